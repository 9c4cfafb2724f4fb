//! Runs of many seeds on all processors. The runs share only the counter of the next seed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use crate::scenario::PlantedBug;
use crate::simulation::{Outcome, run_with};

/// A range of seeds.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first seed.
    pub from: u64,
    /// Maximum number of seeds.
    pub count: u64,
    /// No run starts after this time.
    pub until: Option<Instant>,
}

/// Whether a sweep continues after one of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepControl {
    /// Continue with the next seed.
    On,
    /// Stop the sweep.
    Stop,
}

/// Runs the seeds and passes each outcome to `each`, in the order of their ends. Returns the number
/// of runs.
pub fn sweep(seeds: Seeds, plant: PlantedBug, each: impl FnMut(&Outcome) -> SweepControl) -> u64 {
    sweep_runs(seeds, |seed| run_with(seed, plant), each)
}

/// As [`sweep`], with another run for each seed.
pub fn sweep_runs(
    seeds: Seeds,
    run: impl Fn(u64) -> Outcome + Sync,
    mut each: impl FnMut(&Outcome) -> SweepControl,
) -> u64 {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (sender, outcomes) = mpsc::sync_channel::<Outcome>(threads);
    let mut ran = 0;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (next, stop, run, sender) = (&next, &stop, &run, sender.clone());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed)
                    && seeds.until.is_none_or(|until| Instant::now() < until)
                {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= seeds.count || sender.send(run(seeds.from.wrapping_add(n))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            ran += 1;
            if !stop.load(Ordering::Relaxed) && each(&outcome) == SweepControl::Stop {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    ran
}

/// The command that runs one seed again with its full output.
pub fn replay(seed: u64) -> String {
    format!(
        "HEADROOM_SIM_SEED={seed} HEADROOM_SIM_ECHO=1 cargo test -p integration --test sim_seeds fresh_seeds_pass -- --nocapture"
    )
}
