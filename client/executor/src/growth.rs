//! Growth of a running task: the freeze near its limit, and the events that end it.
//!
//! ```text
//!          Pressure: freeze, report               LetGo, HoldOver: release
//!  Below ─────────────────────────────► Held ─────────────────────────────► Free
//!    ▲ ▲                                 │                                   │
//!    │ └──────── More: raise ────────────┘                                   │
//!    └────────────────────────── More: raise ────────────────────────────────┘
//! ```
//!
//! A task in `Free` is like any other: at its limit the kernel kills it. The machine is pure.
//! `Alarms` are kernel descriptors that wake the task's loop. The master alone decides about the
//! amount of growth.

use std::time::Duration;

use headroom_node_cgroup::hold::pressure_from;
use headroom_node_cgroup::{CgroupError, Group, Watch};
use headroom_types::Bytes;
use headroom_types::exit::GroupFacts;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Maximum time of a freeze, for any master.
const LONGEST: Duration = Duration::from_secs(300);

/// The state of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Below the limit and monitored.
    Below,
    /// Frozen near the limit: the pressure is reported and no process in the group runs.
    Held,
    /// Neither throttled nor frozen.
    Free,
}

/// An event of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Most of the limit is in use, page cache not counted.
    Pressure,
    /// The limit was raised.
    More,
    /// The master has no more memory for the task.
    LetGo,
    /// The maximum time of the freeze is over.
    HoldOver,
}

/// The action that follows an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No action.
    Nothing,
    /// Freezes the group and reports pressure to the master.
    Hold,
    /// Thaws the group.
    GoOn,
    /// Removes throttle and freeze; the kernel enforces the limit from now on.
    LetGo,
}

impl Hold {
    /// The transition function of the machine.
    #[must_use]
    pub fn on(self, event: Event) -> (Hold, Action) {
        match self {
            Hold::Below => match event {
                Event::Pressure => (Hold::Held, Action::Hold),
                Event::More => (Hold::Below, Action::GoOn),
                Event::LetGo => (Hold::Free, Action::LetGo),
                Event::HoldOver => (self, Action::Nothing), // the limit was raised just before
            },
            Hold::Held => match event {
                Event::Pressure => (self, Action::Nothing), // reported already
                Event::More => (Hold::Below, Action::GoOn),
                Event::LetGo | Event::HoldOver => (Hold::Free, Action::LetGo),
            },
            Hold::Free => match event {
                Event::Pressure | Event::LetGo | Event::HoldOver => (self, Action::Nothing),
                Event::More => (Hold::Below, Action::GoOn),
            },
        }
    }
}

/// True if a group with this limit needs more memory: nearly full without page cache, which the
/// kernel reclaims by itself. The kernel updates the counter of page cache with a delay, so a short
/// burst of reads can look like pressure.
pub fn is_pressed(facts: &GroupFacts, limit: Bytes) -> bool {
    let files = facts.stat.file.unwrap_or_default().saturating_sub(facts.stat.shmem.unwrap_or_default());
    facts.current.saturating_sub(files) >= pressure_from(limit)
}

/// The growth of one task.
#[derive(Debug)]
pub struct Growth {
    /// State.
    pub hold: Hold,
    /// Current limit. Bytes.
    pub limit: Bytes,
    /// Maximum time of a freeze.
    longest: Duration,
    /// Start of the freeze.
    since: Option<Instant>,
    alarms: Alarms,
}

impl Growth {
    /// Arms the throttle: from now on the kernel holds the group near `limit`.
    pub fn arm(group: &Group, limit: Bytes, hold_ms: u64) -> Result<Growth, CgroupError> {
        group.hold_at(limit)?;
        let alarms = Alarms::of(group, limit)?;
        let longest = Duration::from_millis(hold_ms).min(LONGEST);
        Ok(Growth { hold: Hold::Below, limit, longest, since: None, alarms })
    }

    /// Handles an event and applies the action in the kernel. Returns the action.
    pub fn happen(&mut self, event: Event, group: &Group) -> Result<Action, CgroupError> {
        let (hold, action) = self.hold.on(event);
        self.hold = hold;
        match action {
            Action::Nothing => {}
            Action::Hold => {
                self.since = Some(Instant::now());
                group.pause()?;
            }
            Action::GoOn => {
                self.since = None;
                group.go_on()?;
            }
            Action::LetGo => {
                self.since = None;
                group.let_go()?;
            }
        }
        Ok(action)
    }

    /// Sets a new limit and thaws the group. Returns the duration of the freeze. After an error the
    /// group stays in its state, with its current limit.
    pub fn raise(&mut self, group: &Group, limit: Bytes) -> Result<Option<Duration>, CgroupError> {
        group.set_memory(limit)?;
        self.limit = limit;
        group.hold_at(limit)?;
        self.alarms = Alarms::of(group, limit)?;
        let held = self.since.map(|since| since.elapsed());
        self.happen(Event::More, group)?;
        Ok(held)
    }

    /// End of the maximum freeze time.
    pub fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + self.longest)
    }

    /// Waits for an alarm of the kernel about the group. Pending forever while the group is not
    /// monitored.
    pub async fn alarm(&self) {
        match self.hold {
            Hold::Below => self.alarms.ring().await,
            Hold::Held | Hold::Free => std::future::pending().await,
        }
    }
}

/// The kernel events that wake the loop.
#[derive(Debug)]
struct Alarms {
    /// Counters of the group have changed; v1: its limit is reached.
    events: Option<AsyncFd<Watch>>,
    /// v1: nearly all of the limit is in use.
    usage: Option<AsyncFd<Watch>>,
    /// v2, if the kernel counts it: the group stalls on memory.
    stalls: Option<AsyncFd<Watch>>,
}

impl Alarms {
    fn of(group: &Group, limit: Bytes) -> Result<Alarms, CgroupError> {
        let stalls = Watch::stalls(group).unwrap_or_else(|error| {
            tracing::debug!(%error, "time lost for memory cannot be watched, ignoring");
            None
        });
        Ok(Alarms {
            events: watched(Watch::open(group)?, Interest::READABLE),
            usage: watched(Watch::usage(group, pressure_from(limit))?, Interest::READABLE),
            stalls: watched(stalls, Interest::PRIORITY),
        })
    }

    async fn ring(&self) {
        tokio::select! {
            () = rang(self.events.as_ref(), Interest::READABLE) => {}
            () = rang(self.usage.as_ref(), Interest::READABLE) => {}
            () = rang(self.stalls.as_ref(), Interest::PRIORITY) => {}
        }
    }
}

/// Wraps a watch for the event loop. A watch that cannot be awaited is omitted, because the task is
/// also sampled several times per second.
#[expect(
    deprecated,
    reason = "its successor is an unsafe fn; `Watch` owns its descriptor and never closes or replaces it, which is all that one asks"
)]
fn watched(watch: Option<Watch>, interest: Interest) -> Option<AsyncFd<Watch>> {
    let fd = AsyncFd::with_interest(watch?, interest);
    fd.inspect_err(|error| tracing::warn!(%error, "a watch of the kernel cannot be waited for, ignoring")).ok()
}

async fn rang(watch: Option<&AsyncFd<Watch>>, interest: Interest) {
    let Some(watch) = watch else { return std::future::pending().await };
    match watch.ready(interest).await {
        Ok(mut guard) => {
            let _ = watch.get_ref().clear(); // if the read fails, the descriptor stays ready and wakes the loop again
            guard.clear_ready();
        }
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::exit::MemoryStat;

    #[test]
    fn every_cell() {
        let events = [Event::Pressure, Event::More, Event::LetGo, Event::HoldOver];
        let table = [
            (
                Hold::Below,
                [
                    (Hold::Held, Action::Hold),
                    (Hold::Below, Action::GoOn),
                    (Hold::Free, Action::LetGo),
                    (Hold::Below, Action::Nothing),
                ],
            ),
            (
                Hold::Held,
                [
                    (Hold::Held, Action::Nothing),
                    (Hold::Below, Action::GoOn),
                    (Hold::Free, Action::LetGo),
                    (Hold::Free, Action::LetGo),
                ],
            ),
            (
                Hold::Free,
                [
                    (Hold::Free, Action::Nothing),
                    (Hold::Below, Action::GoOn),
                    (Hold::Free, Action::Nothing),
                    (Hold::Free, Action::Nothing),
                ],
            ),
        ];
        for (state, row) in table {
            for (event, cell) in events.into_iter().zip(row) {
                assert_eq!(state.on(event), cell, "{state:?} on {event:?}");
            }
        }
    }

    #[test]
    fn pages_of_files_are_no_need_and_tmpfs_is() {
        let limit = Bytes::from_mib(100);
        let facts = |current, file, shmem| GroupFacts {
            current: Bytes::from_mib(current),
            stat: MemoryStat { file: Some(Bytes::from_mib(file)), shmem: Some(Bytes::from_mib(shmem)), ..MemoryStat::default() },
            ..GroupFacts::default()
        };
        assert!(is_pressed(&facts(92, 1, 0), limit));
        assert!(!is_pressed(&facts(99, 40, 0), limit), "they can be given back");
        assert!(is_pressed(&facts(99, 40, 40), limit), "tmpfs cannot");
        assert!(!is_pressed(&facts(89, 0, 0), limit));
    }
}
