//! The reference of the configuration is current, complete and correct.

#![allow(missing_docs)] // tests are read, not imported

use std::collections::BTreeSet;
use std::path::Path;

use headroom_config::compile::{nodeagent, resourcemanager};
use headroom_config::reference::{AGENT_KEYS, ConfigKey, MANAGER_KEYS, TakesEffect, changes};
use headroom_config::testkit::{
    AGENT_DOCUMENTATION, AUX_SERVICE_KEYS, DocumentedKey, MANAGER_DOCUMENTATION, ValueRange,
    documented, page,
};
use headroom_config::{FileProblem, NodeAgentConfig, ResourceManagerConfig};

#[test]
fn the_page_of_the_configuration_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, page()).expect("the documentation can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        kept == page(),
        "docs/configuration.md is out of date: run the tests once with HEADROOM_UPDATE_GOLDEN=1"
    );
}

/// Formats `table.key` as lines of a file.
fn written(name: &str, value: &str, beside: &str) -> String {
    match name.rsplit_once('.') {
        Some((table, key)) => format!("{beside}[{table}]\n{key} = {value}\n"),
        None => format!("{beside}{name} = {value}\n"),
    }
}

/// The known keys in the parser's error messages, at the top level and in each table.
fn known_to<C>(parse: fn(&str, &str) -> Result<C, Vec<FileProblem>>) -> BTreeSet<String> {
    let named = |table: &str| -> Vec<String> {
        let unknown = "qqqqqqqqqqqqqqqqqqqq";
        let text = if table.is_empty() {
            format!("{unknown} = 1\n")
        } else {
            format!("[{table}]\n{unknown} = 1\n")
        };
        let problems = parse(&text, "f").err().expect("an unknown key is an error");
        let known = problems
            .iter()
            .find_map(|p| p.fix.split("known here: ").nth(1))
            .unwrap_or_default();
        known
            .split(", ")
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    // A key is a table if the parser rejects a number for it as not a table.
    let is_table = |key: &str| match parse(&format!("{key} = 1\n"), "f") {
        Ok(_) => false,
        Err(problems) => problems.iter().any(|p| p.what.contains("not a table")),
    };
    let mut all = BTreeSet::new();
    for top in named("") {
        let inside = if is_table(&top) {
            named(&top)
        } else {
            Vec::new()
        };
        if inside.is_empty() {
            all.insert(top);
        } else {
            all.extend(inside.into_iter().map(|key| format!("{top}.{key}")));
        }
    }
    all
}

fn names<C>(keys: &[ConfigKey<C>]) -> BTreeSet<String> {
    keys.iter().map(|key| key.name.to_owned()).collect()
}

#[test]
fn exactly_the_known_keys_are_in_the_reference() {
    let mut manager = names(MANAGER_KEYS);
    manager.insert("queues".to_owned());
    assert_eq!(manager, known_to(resourcemanager));
    assert_eq!(names(AGENT_KEYS), known_to(nodeagent));
    assert_eq!(
        (MANAGER_KEYS.len(), AGENT_KEYS.len()),
        (manager.len() - 1, names(AGENT_KEYS).len()),
        "each key is listed once"
    );
}

#[test]
fn exactly_the_known_keys_of_a_service_are_in_the_reference() {
    let problems = nodeagent("[aux_services.a]\nqqqqqqqqqqqqqqqqqqqq = 1\n", "f");
    let problems = problems.expect_err("an unknown key is an error");
    let known = problems
        .iter()
        .find_map(|p| p.fix.split("known here: ").nth(1))
        .expect("the list of keys");
    let known: BTreeSet<&str> = known.split(", ").collect();
    let listed: BTreeSet<&str> = AUX_SERVICE_KEYS.iter().map(|key| key.name).collect();
    assert_eq!(listed, known);
}

/// Checks each key of the reference: default, accepted values, rejected value, and the field that
/// it sets.
fn hold<C: PartialEq + std::fmt::Debug>(
    keys: &'static [ConfigKey<C>],
    documentation: &'static [DocumentedKey],
    parse: fn(&str, &str) -> Result<C, Vec<FileProblem>>,
    usual: &C,
) {
    for (key, documentation) in documented(keys, documentation) {
        let name = key.name;
        if let Some(default) = (key.value)(usual) {
            assert_eq!(
                parse(&written(name, &default, ""), "f").as_ref(),
                Ok(usual),
                "{name}: {default} is the default"
            );
        }
        let plain = parse(documentation.beside, "f").unwrap_or_else(|p| panic!("{name}: {p:?}"));
        for example in documentation.range.examples() {
            let config = parse(&written(name, example, documentation.beside), "f")
                .unwrap_or_else(|p| panic!("{name} = {example}: {p:?}"));
            let as_written =
                (key.value)(&config).unwrap_or_else(|| panic!("{name} = {example} was not read"));
            assert_eq!(as_written, example, "{name} is read as written");
            let changed: Vec<&str> = changes(keys, &plain, &config)
                .iter()
                .map(|(key, ..)| key.name)
                .collect();
            let same = (key.value)(&plain).as_deref() == Some(example);
            assert_eq!(
                changed,
                if same { vec![] } else { vec![name] },
                "{name} = {example} changes that key alone"
            );
        }
        let problems = parse(
            &written(name, documentation.wrong, documentation.beside),
            "f",
        )
        .err();
        let problems =
            problems.unwrap_or_else(|| panic!("{name} = {} was accepted", documentation.wrong));
        assert!(
            problems.iter().all(|p| p.key.starts_with(name)),
            "{name} = {}: {problems:?}",
            documentation.wrong
        );
        assert!(
            !matches!(documentation.range, ValueRange::OneOf(all) if all.len() < 2),
            "{name}"
        );
    }
}

#[test]
fn the_reference_of_the_manager_is_correct() {
    hold(
        MANAGER_KEYS,
        MANAGER_DOCUMENTATION,
        resourcemanager,
        &ResourceManagerConfig::default(),
    );
}

#[test]
fn the_reference_of_the_agent_is_correct() {
    hold(
        AGENT_KEYS,
        AGENT_DOCUMENTATION,
        nodeagent,
        &NodeAgentConfig::default(),
    );
    let at_once = |name: &str| name.starts_with("logs.") || name.starts_with("health.");
    assert!(
        AGENT_KEYS
            .iter()
            .all(|key| (key.takes == TakesEffect::Reload) == at_once(key.name)),
        "a reload applies only these"
    );
}

#[test]
fn every_key_has_its_meaning_on_the_page() {
    for line in page().lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(
            cells.len() >= 4 && cells.iter().all(|cell| !cell.is_empty()),
            "{line}"
        );
        assert!(
            cells.last().is_some_and(|meaning| meaning.ends_with('.')),
            "{line}"
        );
    }
}
