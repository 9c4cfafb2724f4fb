//! Kills of the agent at every step of a container's life: what was lost, launched twice, left behind.
//!
//! The rounds are in `integration::lone::rounds`; the tests run a few of the same.

use anyhow::Result;
use integration::clock;
use integration::lone::rounds::{self, Tally};

use crate::progress;

/// How often it is told how far it is. Rounds.
const TELL: u32 = 10;

/// Runs the rounds. A seed of `None` is taken from the clock and told.
pub(crate) fn measure(rounds: u32, seed: Option<u64>) -> Result<Tally> {
    let seed = seed.unwrap_or_else(|| u64::try_from(clock::realtime_nanos() % 1_000_000_007).unwrap_or(1));
    progress::tell(&format!("adopt: {rounds} rounds of seed {seed}"));
    rounds::run(rounds, seed, &mut |n, tally| {
        if (n + 1) % TELL == 0 {
            progress::tell(&format!("{} rounds: {} kills, {} lost, {} twice", n + 1, tally.kills, tally.lost, tally.twice));
        }
    })
}
