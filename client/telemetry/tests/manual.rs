//! The page of the documentation that is made from the names: as it would be made now.

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
    assert!(kept == made, "docs/metrics.md is old: run the tests once with HEADROOM_UPDATE_GOLDEN=1");
}
