//! The treatment table in the documentation matches the code.

#![allow(missing_docs, clippy::disallowed_methods)] // the crate does no I/O; this test reads a page

use headroom_types::SubCause;
use headroom_types::treatment::{UsualTreatment, usual_treatment};

const BEGIN: &str = "<!-- treatments -->\n";
const END: &str = "<!-- end of treatments -->";

/// The table as printed in `docs/diagnosis.md`.
fn treatment_table() -> String {
    let mut text =
        String::from("| sub-cause | treatment | if it comes again |\n| --- | --- | --- |\n");
    for cause in SubCause::ALL {
        let UsualTreatment {
            first,
            remedy,
            then,
        } = usual_treatment(cause);
        let first = remedy.map_or_else(
            || format!("`{first}`"),
            |remedy| format!("`{first}`: `{remedy}`"),
        );
        text.push_str(&format!("| `{cause}` | {first} | `{then}` |\n"));
    }
    text
}

#[test]
fn the_page_has_the_table_of_the_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnosis.md");
    let page = std::fs::read_to_string(&path).expect("docs/diagnosis.md");
    let (before, rest) = page
        .split_once(BEGIN)
        .expect("the page has a mark before the table");
    let (kept, after) = rest
        .split_once(END)
        .expect("the page has a mark after the table");
    if std::env::var_os("HEADROOM_UPDATE_GOLDEN").is_some() {
        std::fs::write(
            &path,
            format!("{before}{BEGIN}{}{END}{after}", treatment_table()),
        )
        .expect("writes");
        return;
    }
    assert!(
        kept == treatment_table(),
        "docs/diagnosis.md has another table; run the test with HEADROOM_UPDATE_GOLDEN=1"
    );
}
