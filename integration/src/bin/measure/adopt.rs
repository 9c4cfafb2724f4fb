//! Kills of the agent at each step in the life cycle of a container: lost, duplicated and leftover
//! objects.
//!
//! The rounds are in `integration::single_agent::kill_rounds`; the tests run a few of them.

use std::time::Duration;

use anyhow::Result;
use integration::clock;
use integration::single_agent::kill_rounds::{self, AgentKillResults};
use serde_json::{Map, Value};

use crate::{guest_run, progress};

/// Interval of progress messages. Rounds.
const PRINTED_ROUNDS: u32 = 10;

/// Timeout of a round in a guest on a busy machine.
const ROUND: Duration = Duration::from_secs(60);

/// Runs the rounds. A seed of `None` is taken from the clock and printed.
pub(crate) fn measure(rounds: u32, seed: Option<u64>) -> Result<AgentKillResults> {
    let seed =
        seed.unwrap_or_else(|| u64::try_from(clock::realtime_nanos() % 1_000_000_007).unwrap_or(1));
    progress::print_line(&format!("adopt: {rounds} rounds of seed {seed}"));
    kill_rounds::run(rounds, seed, &mut |n, results| {
        if (n + 1) % PRINTED_ROUNDS == 0 {
            progress::print_line(&format!(
                "{} rounds: {} kills, {} lost, {} twice",
                n + 1,
                results.kills,
                results.lost,
                results.twice
            ));
        }
    })
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(rounds: u32, seed: Option<u64>) -> Result<Map<String, Value>> {
    let (rounds_text, seed) = (rounds.to_string(), seed.map(|seed| seed.to_string()));
    let mut words = vec!["adopt", "--rounds", &rounds_text];
    words.extend(seed.iter().flat_map(|seed| ["--seed", seed.as_str()]));
    guest_run::in_a_guest(&words, Duration::from_secs(120) + ROUND * rounds)
}
