//! Thousands of simulated clusters, and the number of runs with a violated invariant.

use std::time::{Duration, Instant};

use integration::scenario::PlantedBug;
use integration::seed_sweep::{Seeds, SweepControl, replay, sweep};
use serde::Serialize;

/// Interval of progress messages.
const PRINT_INTERVAL: Duration = Duration::from_secs(10);

/// Results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Measured {
    /// Runs.
    seeds: u64,
    /// Runs with a violated invariant.
    violations: u64,
}

/// Runs `count` seeds from `from` on. Progress and failures go to standard error.
#[allow(clippy::print_stderr)] // only results go to standard output
pub(crate) fn measure(from: u64, count: u64) -> Measured {
    let (started, mut printed, mut ran, mut violations) =
        (Instant::now(), Instant::now(), 0_u64, 0);
    sweep(
        Seeds {
            from,
            count,
            until: None,
        },
        PlantedBug::Nothing,
        |outcome| {
            ran += 1;
            if let Some(what) = &outcome.violation {
                violations += 1;
                eprintln!(
                    "seed {}: {what}\n  replay: {}",
                    outcome.seed,
                    replay(outcome.seed)
                );
            }
            if printed.elapsed() >= PRINT_INTERVAL || ran == count {
                printed = Instant::now();
                let ms = started.elapsed().as_millis() / u128::from(ran);
                eprintln!("{ran} of {count} seeds, {violations} violations, {ms} ms each");
            }
            SweepControl::On
        },
    );
    Measured {
        seeds: ran,
        violations,
    }
}
