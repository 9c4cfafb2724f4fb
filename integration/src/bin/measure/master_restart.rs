//! Kills of the application master while tasks of its job escalate: lost, repeated and duplicated
//! tasks.
//!
//! The rounds are in `integration::masters`; a test runs a few of them.

use anyhow::{Context as _, Result};
use integration::{clock, masters};
use serde::Serialize;

use crate::progress;
use crate::quantiles::quantile;

/// Interval of progress messages. Rounds.
const PRINTED_ROUNDS: u32 = 10;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct MasterRestartResults {
    rounds: u32,
    kills: u32,
    escalations: u32,
    rerun_finished: u32,
    lost: u32,
    twice: u32,
    p50_recovery_ms: u128,
    max_recovery_ms: u128,
    /// Kills while a task had been given another size and had not ended since.
    mid_escalation: u32,
    seed: u64,
    notes: Vec<String>,
}

/// Runs the rounds. A seed of `None` is taken from the clock and printed.
pub(crate) fn measure(rounds: u32, seed: Option<u64>) -> Result<MasterRestartResults> {
    let seed =
        seed.unwrap_or_else(|| u64::try_from(clock::realtime_nanos() % 1_000_000_007).unwrap_or(1));
    progress::print_line(&format!("master-restart: {rounds} rounds of seed {seed}"));
    let results = masters::run(None, rounds, seed, &mut |n, results| {
        if (n + 1) % PRINTED_ROUNDS == 0 {
            let masters::MasterKillResults {
                kills,
                mid_escalation,
                lost,
                twice,
                rerun_finished,
                ..
            } = results;
            let words = format!(
                "{kills} kills, {mid_escalation} of them during an escalation, {lost} lost, {twice} twice"
            );
            progress::print_line(&format!(
                "{} rounds: {words}, {rerun_finished} run again",
                n + 1
            ));
        }
    })?;
    let at = |percent| quantile(&results.recoveries_ms, percent).context("no kill");
    Ok(MasterRestartResults {
        rounds: results.rounds,
        kills: results.kills,
        escalations: results.escalations,
        rerun_finished: results.rerun_finished,
        lost: results.lost,
        twice: results.twice,
        p50_recovery_ms: at(50)?,
        max_recovery_ms: at(100)?,
        mid_escalation: results.mid_escalation,
        seed,
        notes: results.notes.clone(),
    })
}
