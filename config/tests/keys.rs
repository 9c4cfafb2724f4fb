//! The documented keys are those that the reader of job files accepts.

use std::collections::BTreeSet;

use headroom_config::job::{self, Placeholder, keys};

/// One wrong key in every table; the error message lists all known keys of that table.
const WRONG: &str = r#"
version = 1
name = "keys"
qqqqqqqqqqqq = 1
[profiles.exec]
memory = "1GiB"
qqqqqqqqqqqq = 1
[executors.main]
profile = "exec"
qqqqqqqqqqqq = 1
[[stage]]
name = "s"
command = ["true"]
qqqqqqqqqqqq = 1
[[stage.files]]
name = "f"
from = "/f"
qqqqqqqqqqqq = 1
[retry]
qqqqqqqqqqqq = 1
[access]
qqqqqqqqqqqq = 1
"#;

#[test]
fn exactly_the_known_keys_are_documented() {
    let problems = job::compile(WRONG, "keys.toml").expect_err("wrong keys");
    let mut known = BTreeSet::new();
    for problem in &problems {
        let table = problem
            .key
            .strip_suffix("qqqqqqqqqqqq")
            .expect("only these are wrong")
            .trim_end_matches('.');
        let table = match table {
            "profiles.exec" => "profiles.NAME",
            "executors.main" => "executors.NAME",
            "stage.s" => "stage",
            files if files.contains("files") => "stage.files",
            other => other,
        };
        let names = problem
            .fix
            .strip_prefix("remove it; known here: ")
            .expect("no known key is similar");
        known.extend(names.split(", ").map(|name| {
            if table.is_empty() {
                name.to_owned()
            } else {
                format!("{table}.{name}")
            }
        }));
    }
    let documented: BTreeSet<String> = keys::keys().iter().map(keys::JobFileKey::path).collect();
    assert_eq!(problems.len(), 7, "{problems:?}");
    assert_eq!(documented, known);
    assert_eq!(
        documented.len(),
        keys::keys().len(),
        "a key is documented twice"
    );
}

#[test]
fn every_row_of_the_page_is_a_documented_key() {
    let page = include_str!("../../docs/job-file.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(rows.count(), keys::keys().len());
    for key in keys::keys() {
        let cells = [key.name, key.takes, key.usual];
        assert!(
            cells
                .iter()
                .all(|cell| !cell.is_empty() && !cell.contains('|')),
            "{key:?}"
        );
        assert!(
            key.means.ends_with('.') && !key.means.contains(" | "),
            "{key:?}"
        );
    }
}

#[test]
fn the_page_lists_the_placeholders() {
    let page = include_str!("../../docs/job-file.md");
    let placeholders: Vec<String> = Placeholder::ALL
        .iter()
        .map(|placeholder| format!("`{{{}}}`", placeholder.as_str()))
        .collect();
    let sentence = format!("In `command` and `env`: {}. ", placeholders.join(", "));
    assert!(
        page.contains(&sentence),
        "docs/job-file.md lacks: {sentence}"
    );
}
