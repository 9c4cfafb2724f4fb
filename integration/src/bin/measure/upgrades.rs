//! Restarts, kills and upgrades of installed daemons under load: three kernels with systemd, and
//! the packages.
//!
//! The rounds are in `integration::fleet::fault_rounds`; a test runs a few of them.

use std::time::Duration;

use anyhow::Result;
use integration::fleet::fault_rounds::{self, FleetRoundResults};
use integration::fleet::{Fleet, TranscriptOutput};

use crate::progress;

/// Interval of progress messages. Rounds.
const PRINTED_ROUNDS: u32 = 5;
/// Timeout of boot and installation, and of a round.
const SETUP: Duration = Duration::from_secs(300);
const ROUND: Duration = Duration::from_secs(60);

/// Installs a fleet and runs the rounds.
pub(crate) fn measure(rounds: u32) -> Result<FleetRoundResults> {
    progress::print_line(&format!("upgrades: {rounds} rounds on three hosts"));
    let mut fleet = Fleet::boot(TranscriptOutput::Silent, SETUP + ROUND * rounds)?;
    fleet.set_up()?;
    progress::print_line("the hosts are installed");
    fault_rounds::run(&fleet, rounds, &mut |results| {
        if results.rounds % PRINTED_ROUNDS == 0 {
            let FleetRoundResults {
                rounds,
                restarts,
                kills,
                upgrades,
                lost,
                twice,
                verdicts_lost,
                ..
            } = results;
            let done = format!("{restarts} restarts, {kills} kills, {upgrades} upgrades");
            progress::print_line(&format!(
                "{rounds} rounds: {done}, {lost} lost, {twice} twice, {verdicts_lost} verdicts lost"
            ));
        }
    })
}
