//! The documented keys are those that the reader of job files accepts.

use std::collections::BTreeSet;

use headroom_config::job::{self, keys};

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
    let documented: BTreeSet<String> = keys::KEYS.iter().map(keys::JobFileKey::path).collect();
    assert_eq!(problems.len(), 7, "{problems:?}");
    assert_eq!(documented, known);
    assert_eq!(
        documented.len(),
        keys::KEYS.len(),
        "a key is documented twice"
    );
}

#[test]
fn the_page_of_the_job_file_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/job-file.md");
    let now = keys::page();
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &now).expect("writes");
    }
    let kept = std::fs::read_to_string(&path).expect("docs/job-file.md");
    assert!(
        kept == now,
        "docs/job-file.md is out of date; HEADROOM_UPDATE_GOLDEN=1 writes it again"
    );
}
