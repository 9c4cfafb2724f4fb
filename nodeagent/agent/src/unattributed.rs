//! Memory that ended containers leave charged to the node, and that no running container holds.
//!
//! Runs beside the loop and reports to it when the figure changes. It looks at the cgroup around all containers; the resource manager counts
//! what it finds as taken, and from a share on the node takes no work. Who left it is noted when a container's group is removed. Without
//! cgroups no kernel counts it, and nothing is reported.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_config::HealthChecks;
use headroom_types::Bytes;
use headroom_types::exit::{LeftBy, Unattributed};
use headroom_types::unattributed::{Leavers, owners};
use tokio::sync::{mpsc, watch};

use crate::run::Input;
use crate::site::Site;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// What is less is reported as nothing, in thousandths of what the node offers, within these bounds. The kernel charges a little for each
/// group to the group around it.
const FLOOR: u64 = 10;
const MIN_FLOOR: Bytes = Bytes::from_mib(16);
const MAX_FLOOR: Bytes = Bytes::from_mib(256);
/// A container that leaves less is not remembered for it.
const MIN_LEFT: Bytes = Bytes::from_mib(1);

/// What was found last, and who left it.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    memory: Bytes,
    leavers: Leavers,
}

impl Leftovers {
    /// A container or task ended, and so much that reclaim cannot give back is still charged to its group.
    pub(crate) fn note(&self, name: &str, memory: Bytes) {
        if memory >= MIN_LEFT {
            self.state().leavers.add(name, memory);
        }
    }
    /// The figure that was reported last, with who left it.
    pub(crate) fn now(&self) -> Unattributed {
        let state = self.state();
        Unattributed { memory: state.memory, left_by: state.leavers.largest() }
    }
    fn set(&self, memory: Bytes) -> Unattributed {
        let mut state = self.state();
        state.memory = memory;
        if memory.is_zero() {
            state.leavers.clear();
        }
        drop(state);
        self.now()
    }
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A value is written whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The figure as it is reported, and what is wrong with the host for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) memory: Bytes,
    pub(crate) left_by: Vec<LeftBy>,
    /// Why the node takes no work; `None` while the figure is below the share that is allowed.
    pub(crate) ill: Option<String>,
}

/// Looks again and again, until the loop is gone.
pub(crate) async fn watch(
    site: Arc<Site>,
    offers: Bytes,
    mut wanted: watch::Receiver<HealthChecks>,
    inputs: mpsc::Sender<Input>,
) {
    let floor = floor(offers);
    let mut filter = Filter::new(floor);
    let mut reported = Found::default();
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let at = Arc::clone(&site);
                let look = tokio::task::spawn_blocking(move || at.enforcer.unattributed(floor)).await;
                match look {
                    Ok(Ok(Some(memory))) => filter.take(memory),
                    // No kernel counts it here.
                    Ok(Ok(None)) => return,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "unattributed memory cannot be measured now");
                        continue;
                    }
                    // A panic is on the log already.
                    Err(_) => continue,
                }
            }
            changed = wanted.changed() => if changed.is_err() { return },
            () = inputs.closed() => return,
        }
        let max = wanted.borrow_and_update().max_unattributed;
        let Unattributed { memory, left_by } = site.leftovers.set(filter.shown);
        let ill = ill(memory, offers, max, &left_by);
        // Owners that are noted later are reported with the next figure.
        if (memory, ill.is_some()) != (reported.memory, reported.ill.is_some()) {
            reported = Found { memory, left_by, ill };
            if inputs.send(Input::Unattributed(reported.clone())).await.is_err() {
                return;
            }
        }
    }
}

/// What is less counts as nothing.
pub(crate) fn floor(offers: Bytes) -> Bytes {
    offers.mul_ratio(FLOOR, 1000).clamp(MIN_FLOOR, MAX_FLOOR)
}

/// Why the node takes no work for it; `max` in thousandths of what it offers.
fn ill(memory: Bytes, offers: Bytes, max: u32, left_by: &[LeftBy]) -> Option<String> {
    let limit = offers.mul_ratio(u64::from(max), 1000);
    let exceeded = !memory.is_zero() && memory > limit;
    exceeded.then(|| {
        format!(
            "{memory} of {offers} are held by memory that no running container owns (limit {limit}); {}; remove it: ls -l /dev/shm, \
             ipcs -m, df -t tmpfs",
            owners(left_by)
        )
    })
}

/// From single looks to the figure that is reported. A rise counts when two looks in a row agree on it, and from a step on; a fall at once.
#[derive(Debug)]
struct Filter {
    floor: Bytes,
    before: Bytes,
    shown: Bytes,
}

impl Filter {
    fn new(floor: Bytes) -> Self {
        Filter { floor, before: Bytes::ZERO, shown: Bytes::ZERO }
    }

    fn take(&mut self, look: Bytes) {
        let sure = look.min(self.before);
        self.before = look;
        let sure = if sure < self.floor { Bytes::ZERO } else { sure };
        let rise = sure.saturating_sub(self.shown);
        let step = self.floor.mul_ratio(1, 2);
        if sure < self.shown || rise >= step {
            // Whole MiB: smaller changes are not worth a message.
            self.shown = Bytes::from_mib(sure.get() >> 20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: fn(u64) -> Bytes = Bytes::from_mib;

    #[test]
    fn a_rise_needs_two_looks_and_a_fall_one() {
        let mut filter = Filter::new(MIB(30));
        let mut shown = |look: u64| {
            filter.take(MIB(look));
            filter.shown
        };
        assert_eq!([300, 0, 0].map(&mut shown), [MIB(0); 3], "seen once");
        assert_eq!([300, 290, 300].map(&mut shown), [MIB(0), MIB(290), MIB(290)], "the lower of two, then less than a step");
        assert_eq!([310, 310].map(&mut shown), [MIB(290), MIB(310)]);
        assert_eq!([200, 20, 0].map(&mut shown), [MIB(200), MIB(0), MIB(0)], "below the floor is nothing");
    }

    #[test]
    fn the_floor_has_bounds() {
        assert_eq!([MIB(64), MIB(3000), Bytes::from_gib(512)].map(floor), [MIB(16), MIB(30), MIB(256)]);
    }

    #[test]
    fn above_its_share_the_node_says_who_left_it() {
        let left_by = [LeftBy { name: "etl.1.e1.c2".into(), memory: MIB(800) }];
        assert_eq!(ill(MIB(256), MIB(1024), 250, &left_by), None, "a quarter is allowed");
        let why = ill(MIB(257), MIB(1024), 250, &left_by).expect("too much");
        assert!(why.starts_with("257 MiB of 1 GiB are held by memory that no running container owns (limit 256 MiB)"), "{why}");
        assert!(why.contains("left by etl.1.e1.c2 (800 MiB)"), "{why}");
        assert_eq!(ill(MIB(1024), MIB(1024), 1000, &left_by), None, "100 % is no limit");
    }

    #[test]
    fn who_left_it_is_forgotten_when_it_is_gone() {
        let leftovers = Leftovers::default();
        leftovers.note("job.1.e1.c1", MIB(300));
        leftovers.note("job.1.e1.c2", Bytes::from_kib(4));
        assert_eq!(leftovers.set(MIB(300)).left_by.len(), 1);
        assert_eq!(leftovers.set(MIB(0)), Unattributed::default());
    }
}
