//! A deliberate bug in the ledger itself, which the simulation must find. Only with the feature
//! that adds the bug: `cargo test -p integration --features planted --test sim_planted --
//! --nocapture`

#![allow(missing_docs, clippy::print_stdout)] // no public API; the seed is printed

use integration::scenario::PlantedBug;
use integration::seed_sweep::{Seeds, SweepControl, replay, sweep};

/// The bug: `Ledger::move_app` leaves the user's account in the old leaf unchanged.
#[test]
fn an_account_left_in_the_old_queue_is_found() {
    let mut found = None;
    let ran = sweep(
        Seeds {
            from: 0,
            count: 1000,
            until: None,
        },
        PlantedBug::Nothing,
        |outcome| match &outcome.violation {
            None => SweepControl::On,
            Some(what) => {
                found = Some((outcome.seed, what.clone()));
                SweepControl::Stop
            }
        },
    );
    let Some((seed, what)) = found else {
        panic!("not found in {ran} seeds")
    };
    println!(
        "the ledger of a user whose application moved: found by seed {seed} after {ran} seeds: {what}"
    );
    println!("replay, with --features planted: {}", replay(seed));
}
