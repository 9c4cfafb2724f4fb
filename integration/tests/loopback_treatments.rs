//! The treatment of each sub-cause with real daemons and real programs: tasks without a cure fail
//! at once, the others succeed.

#![allow(missing_docs, clippy::print_stdout)] // no public API; skipped programs are printed

use std::path::Path;

use headroom_types::Bytes;
use integration::guest::Guest;
use integration::on_host_and_in_guest;
use integration::treatments::{TreatmentBench, all};

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_mib(1792))
        .timeout(std::time::Duration::from_secs(600))
}

/// Runs the jobs with these names. Each must end according to its treatment, with the minimal
/// number of attempts.
fn treated(names: &[&str]) {
    let ward = TreatmentBench::new(Path::new(env!("CARGO_BIN_EXE_provoke"))).expect("a cluster");
    let chosen: Vec<_> = all(&ward.programs)
        .into_iter()
        .filter(|case| names.contains(&case.program.as_str()))
        .collect();
    assert_eq!(chosen.len(), names.len(), "every name is there");
    for case in chosen {
        if let Some(missing) = case.needs.missing() {
            println!(
                "SKIPPED {}: there is no {missing} on the PATH",
                case.program
            );
            continue;
        }
        let (row, end) = ward.run(&case).expect("a finished run");
        println!(
            "{}: {} → {} in {} attempts: {}",
            row.program, row.named, row.treatment, row.attempts, row.outcome
        );
        assert!(row.right && row.wasted() == 0, "{row:#?}\n{end:#?}");
    }
}

fn limits_of_a_shell_and_requests_beyond_the_host() {
    treated(&["ulimit-v", "impossible"]);
}
on_host_and_in_guest!(
    own_limits,
    guest(),
    limits_of_a_shell_and_requests_beyond_the_host
);

fn remedies_cure_at_the_same_size() {
    treated(&["idle-arenas", "thread-pool"]);
}
on_host_and_in_guest!(remedies, guest(), remedies_cure_at_the_same_size);

fn failures_without_a_memory_cause_run_again() {
    treated(&["killed-from-outside", "exit-137", "no-such-program"]);
}
on_host_and_in_guest!(
    failures_without_memory,
    guest(),
    failures_without_a_memory_cause_run_again
);

/// Only on the host, because all writable directories of a guest are tmpfs.
#[test]
fn files_on_a_tmpfs_are_moved_to_a_disk() {
    treated(&["temporary-files"]);
}

#[test]
fn runtime_limits_set_by_hand_are_treated() {
    treated(&[
        "xmx-by-hand",
        "direct-by-hand",
        "old-space-by-hand",
        "go-ulimit-v",
    ]);
}

#[test]
fn a_leak_fails_early_and_data_gets_more_memory() {
    treated(&["leak", "larger-data"]);
}
