//! Generated pages about telemetry are current and complete.

#![allow(missing_docs)] // tests are read, not imported

use std::path::Path;

#[test]
fn the_page_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let made = headroom_telemetry::names::manual();
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &made).expect("the documentation can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        kept == made,
        "docs/metrics.md is out of date: run the tests once with HEADROOM_UPDATE_GOLDEN=1"
    );
}

#[test]
fn lines_with_a_message_id_are_in_the_catalog_and_documented() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let (catalog, page) = (read("systemd/headroom.catalog"), read("docs/observing.md"));
    let listed: Vec<&str> = catalog
        .lines()
        .filter_map(|line| line.strip_prefix("-- "))
        .collect();
    let known: Vec<&str> = headroom_telemetry::journal::MESSAGES
        .iter()
        .map(|m| m.id)
        .collect();
    assert_eq!(
        listed, known,
        "systemd/headroom.catalog lists the message ids of the code"
    );
    for message in headroom_telemetry::journal::MESSAGES {
        let by = if message.by == "both" {
            "both".to_owned()
        } else {
            format!("`{}`", message.by)
        };
        let row = format!("| `{}` | {by} | {} |\n", message.id, message.when);
        assert!(page.contains(&row), "docs/observing.md lacks: {row}");
    }
}
