//! Configuration of both daemons, and the values in it.

use std::str::from_utf8;

use headroom_config::{FileProblem, compile, render, toml_reader};

/// A file is accepted or refused; the errors are bounded.
pub fn check(data: &[u8]) {
    let Ok(text) = from_utf8(data) else { return };
    if let Err(problems) = compile::resourcemanager(text, "resourcemanager.toml") {
        check_problems(&problems, text);
    }
    if let Err(problems) = compile::nodeagent(text, "nodeagent.toml") {
        check_problems(&problems, text);
    }
    let _ = toml_reader::parse_duration(text);
}

/// The number and size of errors for a file are bounded, independent of its contents.
pub(crate) fn check_problems(problems: &[FileProblem], text: &str) {
    assert!(!problems.is_empty() && problems.len() <= headroom_config::problem::MAX_PROBLEMS + 1);
    assert!(problems.iter().all(|p| {
        p.source
            .as_ref()
            .is_none_or(|s| s.len() <= headroom_config::problem::MAX_SOURCE_LINE_BYTES)
    }));
    let words = render(problems);
    assert!(
        words.len() <= (256 << 10) + 4 * text.len(),
        "{} bytes give an error of {} bytes",
        text.len(),
        words.len()
    );
}
