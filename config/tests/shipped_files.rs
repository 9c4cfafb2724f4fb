//! The shipped configuration files compile, contain the defaults, and name every key.

use std::path::Path;

use headroom_config::compile::{nodeagent, resourcemanager};
use headroom_config::{
    NodeAgentConfig, ResourceManagerConfig, load_nodeagent, load_resourcemanager,
};

const RM: &str = include_str!("../resourcemanager.toml");
const NODE: &str = include_str!("../nodeagent.toml");

/// Each `# Default: …` comment with the key line below it.
fn documented(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let key_after = |i: usize| {
        lines[i + 1..]
            .iter()
            .find(|l| l.contains(" = "))
            .expect("a key below")
    };
    let defaults = lines
        .iter()
        .enumerate()
        .filter_map(|(i, l)| l.strip_prefix("# Default: ").map(|d| (i, d)));
    defaults
        .map(|(i, d)| (d.to_owned(), (*key_after(i)).to_owned()))
        .collect()
}

#[test]
fn shipped_files_contain_the_defaults() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(
        load_resourcemanager(&folder.join("resourcemanager.toml")),
        Ok(ResourceManagerConfig::default())
    );
    assert_eq!(
        load_nodeagent(&folder.join("nodeagent.toml")),
        Ok(NodeAgentConfig::default())
    );
}

#[test]
fn each_documented_default_is_the_written_value() {
    for text in [RM, NODE] {
        for (default, line) in documented(text) {
            let Some((key, value)) = line.split_once(" = ") else {
                panic!("{line}")
            };
            if key.starts_with("# ") {
                assert!(
                    !default.starts_with('"'),
                    "{key} has a fixed default and is commented out"
                );
            } else {
                assert_eq!(default, value, "{key}");
            }
        }
    }
}

#[test]
fn commented_keys_compile_and_are_complete() {
    let switched_on = |text: &str| -> String {
        let on = |l: &str| match l.strip_prefix("# ") {
            Some(rest)
                if rest.split_once(" = ").is_some_and(|(k, _)| {
                    k.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                }) =>
            {
                format!("{rest}\n")
            }
            Some(_) | None => format!("{l}\n"),
        };
        text.lines().map(on).collect()
    };
    // A directory and an object store exclude each other.
    let on = switched_on(NODE);
    let without = |key: &str| -> String {
        let lines = on.lines().filter(|line| !line.starts_with(key));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let stored =
        without("file_system").replace("/shared/headroom/journals", "s3://bucket/journals");
    let stored = nodeagent(&stored, "nodeagent.toml").expect("compiles");
    assert!(stored.masters.object_store.is_some());
    let node = nodeagent(&without("object_store"), "nodeagent.toml").expect("compiles");
    let all = [
        node.name.is_some(),
        node.memory.is_some(),
        node.cpus.is_some(),
        node.enforcer.is_some(),
        node.cgroup_root.is_some(),
    ];
    assert!(all.iter().all(|there| *there) && node.bin_dir.is_some());
    assert!(node.rack.is_some() && node.attributes.len() == 2 && node.cache.ca_file.is_some());
    assert_eq!(node.aux_services.len(), 1);
    assert!(resourcemanager(&switched_on(RM), "resourcemanager.toml").is_ok());
    assert_eq!(
        (documented(RM).len(), documented(NODE).len()),
        (43, 50),
        "one comment for each key of the checked types"
    );
}

#[test]
fn the_queues_of_the_sample_compile_and_name_every_key() {
    let sample: String = RM
        .lines()
        .filter_map(|l| l.strip_prefix("#   "))
        .map(|l| format!("{l}\n"))
        .collect();
    let tree = resourcemanager(&sample, "sample")
        .expect("compiles")
        .queues
        .expect("queues");
    assert_eq!(tree.queues.len(), 3);
    for key in headroom_wire::v1::queue_tree::KEYS {
        assert!(
            sample.lines().any(|l| l.starts_with(&format!("{key} ="))) || key == "queues",
            "{key} is not in the sample"
        );
    }
}
