//! The documentation pages that this crate generates are current.

#![allow(missing_docs)] // tests are read, not imported
#![allow(clippy::disallowed_methods)] // these tests read pages; only the library does no I/O

use std::path::{Path, PathBuf};

fn page(name: &str, made: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, made).expect("the documentation can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the page exists");
    assert!(
        kept == made,
        "docs/{name} is out of date: run the tests once with HEADROOM_UPDATE_GOLDEN=1"
    );
}

#[test]
fn the_page_of_errors_is_current() {
    page("errors.md", &headroom_wire::v1::explain::page());
}

#[test]
fn the_page_of_events_is_current() {
    page("events.md", &headroom_wire::v1::events::page());
}
