//! One round of each case of the verdict matrix, on this host's kernel and in guests: all verdicts
//! must be right.

#![allow(missing_docs, clippy::print_stdout)] // no public API; the table is printed

use headroom_types::EnforcerKind;
use integration::programs;
use integration::verdicts::case::Stage;
use integration::verdicts::{MatrixResults, Plan, in_guests, of_this_kernel, on_this_kernel};

fn all_right(figures: &MatrixResults, least: usize) {
    println!("{}", figures.table());
    assert!(
        figures.is_perfect(),
        "not every verdict was right: {}",
        figures.table()
    );
    assert!(
        figures.cases >= least,
        "only {} cases were played",
        figures.cases
    );
}

fn on_host(enforcer: EnforcerKind) -> MatrixResults {
    let scratch = tempfile::tempdir().expect("a directory");
    on_this_kernel(
        &Plan {
            enforcer,
            rounds: 1,
            only: String::new(),
            stages: Vec::new(),
        },
        scratch.path(),
    )
    .expect("plays")
}

#[test]
fn on_this_host() {
    all_right(&on_host(of_this_kernel()), 15);
}

#[test]
fn without_a_kernels_help() {
    all_right(&on_host(EnforcerKind::Poll), 12);
}

/// The runtimes take most of the time, so they have their own test beside the other cases.
#[test]
fn containers_in_a_guest() {
    in_a_guest(&[Stage::Roomy], 25);
}

#[test]
fn other_limits_and_crashes_in_a_guest() {
    in_a_guest(
        &[
            Stage::Burst,
            Stage::Fenced,
            Stage::Nested,
            Stage::Fragile,
            Stage::Swapped,
            Stage::Starved,
        ],
        6,
    );
}

fn in_a_guest(stages: &[Stage], least: usize) {
    let measure = programs::path("measure").expect("measure");
    let figures = in_guests(1, "", stages, &measure, &["verdicts", "-o", "json"]).expect("plays");
    assert_eq!(figures.enforcer, "cgroup2");
    all_right(&figures, least);
}
