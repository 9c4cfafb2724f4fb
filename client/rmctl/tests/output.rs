//! The program as a process whose standard output takes no data.

#![allow(missing_docs)] // tests are read, not imported

#[allow(dead_code)] // other tests use the rest
mod fake_manager;

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use fake_manager::{Fake, usual};

/// Runs a verb with this standard output. Returns the exit code and standard error.
fn with_output(fake: &Fake, verb: &[&str], output: Stdio) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_rmctl"))
        .args(["--addr", &fake.url])
        .args(verb)
        .env_clear()
        .stdout(output)
        .stderr(Stdio::piped())
        .output()
        .expect("runs");
    let messages = String::from_utf8(ran.stderr).expect("UTF-8");
    (ran.status.code(), messages)
}

#[test]
fn a_full_disk_is_an_error() {
    let fake = Fake::new(usual);
    for verb in [&["ps"][..], &["ps", "-o", "json"], &["status"]] {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let (code, messages) = with_output(&fake, verb, full.expect("Linux has it").into());
        assert_eq!(code, Some(1), "{verb:?}: {messages}");
        assert!(
            messages.contains("standard output cannot be written: No space left on device"),
            "{verb:?}: {messages}"
        );
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let fake = Fake::new(usual);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let (code, messages) = with_output(&fake, &["ps"], writer.into());
    assert_eq!((code, messages.as_str()), (Some(0), ""));
}
