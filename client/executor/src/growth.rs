//! A task that may be given more while it runs: how it is held near its limit, and what ends that.
//!
//! ```text
//!            Pressure: hold, tell                 LetGo, HoldOver: let go
//!  Below ─────────────────────────────► Held ─────────────────────────────► Free
//!    ▲ ▲                                 │                                   │
//!    │ └──────── More: raise ────────────┘                                   │
//!    └────────────────────────── More: raise ────────────────────────────────┘
//! ```
//!
//! A task in `Free` is as any other: at its limit the kernel kills. The machine is pure; `Alarms` are the kernel's descriptors that
//! wake the task's loop. Nobody decides here how much more it gets: that is the master's.

use std::time::Duration;

use headroom_node_cgroup::hold::pressure_from;
use headroom_node_cgroup::{CgroupError, Group, Watch};
use headroom_types::Bytes;
use headroom_types::exit::GroupFacts;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Longest time that any master may have a task held.
const LONGEST: Duration = Duration::from_secs(300);

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Below its limit, watched.
    Below,
    /// Near it: the master was told, nothing in the group goes on.
    Held,
    /// Nobody holds it.
    Free,
}

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its memory is nearly all in use, and not by pages that can be given back.
    Pressure,
    /// It has another limit.
    More,
    /// The master has no more for it.
    LetGo,
    /// It was held for as long as it may be.
    HoldOver,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Hold it, and tell the master.
    Hold,
    /// It goes on.
    GoOn,
    /// The kernel decides from now on.
    LetGo,
}

impl Hold {
    /// The only place where it changes.
    #[must_use]
    pub fn on(self, event: Event) -> (Hold, Action) {
        match self {
            Hold::Below => match event {
                Event::Pressure => (Hold::Held, Action::Hold),
                Event::More => (Hold::Below, Action::GoOn),
                Event::LetGo => (Hold::Free, Action::LetGo),
                Event::HoldOver => (self, Action::Nothing), // it was given more just before
            },
            Hold::Held => match event {
                Event::Pressure => (self, Action::Nothing), // told already
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

/// True when a group with this limit needs more: nearly full, pages of files left out, since the kernel takes those back by itself.
/// The kernel gathers their figure late, so that a short time of much reading can look like a need.
pub fn is_pressed(facts: &GroupFacts, limit: Bytes) -> bool {
    let files = facts.stat.file.unwrap_or_default().saturating_sub(facts.stat.shmem.unwrap_or_default());
    facts.current.saturating_sub(files) >= pressure_from(limit)
}

/// The growth of one task.
#[derive(Debug)]
pub struct Growth {
    /// Where it is.
    pub hold: Hold,
    /// The limit it has. Bytes.
    pub limit: Bytes,
    /// How long it may be held.
    longest: Duration,
    /// When it began to be held.
    since: Option<Instant>,
    alarms: Alarms,
}

impl Growth {
    /// Arms it: from now on the group is held near `limit`.
    pub fn arm(group: &Group, limit: Bytes, hold_ms: u64) -> Result<Growth, CgroupError> {
        group.hold_at(limit)?;
        let alarms = Alarms::of(group, limit)?;
        let longest = Duration::from_millis(hold_ms).min(LONGEST);
        Ok(Growth { hold: Hold::Below, limit, longest, since: None, alarms })
    }

    /// Lets something happen, and carries it out in the kernel. The action that was taken.
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

    /// Gives it another limit and lets it go on; how long it was held. An error leaves it with the limit it has, as it is.
    pub fn raise(&mut self, group: &Group, limit: Bytes) -> Result<Option<Duration>, CgroupError> {
        group.set_memory(limit)?;
        self.limit = limit;
        group.hold_at(limit)?;
        self.alarms = Alarms::of(group, limit)?;
        let held = self.since.map(|since| since.elapsed());
        self.happen(Event::More, group)?;
        Ok(held)
    }

    /// When it has been held for as long as it may be.
    pub fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + self.longest)
    }

    /// Waits until the kernel has something to tell of the group. For ever when it is not watched.
    pub async fn alarm(&self) {
        match self.hold {
            Hold::Below => self.alarms.ring().await,
            Hold::Held | Hold::Free => std::future::pending().await,
        }
    }
}

/// What the kernel wakes us by.
#[derive(Debug)]
struct Alarms {
    /// Counters of the group have moved; v1: its limit is full.
    events: Option<AsyncFd<Watch>>,
    /// v1: it uses nearly all.
    usage: Option<AsyncFd<Watch>>,
    /// v2, where it is counted: it loses time waiting for memory.
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

/// One that cannot be waited for is left out: the task is measured several times a second all the same.
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
            let _ = watch.get_ref().clear(); // what cannot be read now rings again
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
