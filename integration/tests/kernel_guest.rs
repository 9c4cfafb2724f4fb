//! The tests of the crates that use the kernel's interfaces, repeated in a guest with only cgroup
//! v2.

#![allow(missing_docs, clippy::print_stdout)] // no public API; the counts are printed

use std::time::Duration;

use headroom_types::Bytes;
use integration::guest::Guest;
use integration::programs;

/// Runs all test binaries of `package` in a guest. All tests must pass, and there must be at least
/// one. Tests that inspect their own child processes run one at a time.
fn in_guest(package: &str, threads: u32) {
    let mut passed = 0;
    for binary in programs::tests_of(package).expect("test binaries") {
        let guest = Guest::new()
            .memory(Bytes::from_gib(1))
            .timeout(Duration::from_secs(900))
            .with_programs()
            .directory(&binary.folder)
            .env("INSTA_UPDATE", "no")
            .env("INSTA_WORKSPACE_ROOT", env!("CARGO_MANIFEST_DIR"));
        let program = binary.path.to_str().expect("UTF-8");
        let outcome = guest
            .run(&[program, &format!("--test-threads={threads}")])
            .expect("a result");
        let count =
            passed_in(&outcome.stdout).unwrap_or_else(|| panic!("{program}: no result line"));
        assert_eq!(outcome.code, 0, "{program} failed in the guest");
        passed += count;
    }
    assert!(passed > 0, "{package} has no tests that run in a guest");
    println!("{package}: {passed} tests passed on cgroup v2");
}

/// The count of a line `test result: ok. 7 passed; 0 failed; …`.
fn passed_in(stdout: &str) -> Option<u32> {
    let line = stdout.lines().find(|l| l.starts_with("test result: "))?;
    line.split(". ")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[test]
fn the_count_is_read_from_the_result_line() {
    let text = "running 3 tests\n\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.1s\n";
    assert_eq!(passed_in(text), Some(3));
    assert_eq!(
        passed_in("test result: FAILED. 2 passed; 1 failed;"),
        Some(2)
    );
    assert_eq!(passed_in("running 0 tests"), None);
}

#[test]
fn node_cgroup_in_a_guest() {
    in_guest("headroom-node-cgroup", 1);
}

#[test]
fn node_exec_in_a_guest() {
    in_guest("headroom-node-exec", 1);
}

#[test]
fn node_process_in_a_guest() {
    in_guest("headroom-node-process", 1);
}

#[test]
fn container_shim_in_a_guest() {
    in_guest("headroom-container-shim", 1);
}

#[test]
fn nodeagent_in_a_guest() {
    in_guest("headroom-nodeagent", 2);
}

#[test]
fn executor_in_a_guest() {
    in_guest("headroom-executor", 2);
}
