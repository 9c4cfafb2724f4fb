//! Growth of a running task: the freeze near its limit, and the events that end it.
//!
//! ```text
//!          Pressure: freeze, report               Unfreeze, FreezeTimeout: release
//!  Below ─────────────────────────────► Frozen ───────────────────────────► Free
//!    ▲ ▲                                 │                                   │
//!    │ └──────── More: raise ────────────┘                                   │
//!    └────────────────────────── More: raise ────────────────────────────────┘
//! ```
//!
//! A task in `Free` is like any other: at its limit the kernel kills it. The machine is pure.
//! `PressureAlarms` are kernel descriptors that wake the task's loop. The master alone decides
//! about the amount of growth.

use std::time::Duration;

use headroom_node_cgroup::throttle::pressure_threshold;
use headroom_node_cgroup::{CgroupError, EnforcedGroup, MemoryEventWatch};
use headroom_types::Bytes;
use headroom_types::exit::CgroupStats;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Maximum time of a freeze, for any master.
const MAX_FREEZE_TIMEOUT: Duration = Duration::from_secs(300);

/// The state of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthState {
    /// Below the limit and monitored.
    Below,
    /// Frozen near the limit: the pressure is reported and no process in the group runs.
    Frozen,
    /// Neither throttled nor frozen.
    Free,
}

/// An event of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthEvent {
    /// Most of the limit is in use, page cache not counted.
    Pressure,
    /// The limit was raised.
    More,
    /// The master has no more memory for the task.
    Unfreeze,
    /// The maximum time of the freeze is over.
    FreezeTimeout,
}

/// The action that follows an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthAction {
    /// No action.
    Nothing,
    /// Freezes the group and reports pressure to the master.
    Freeze,
    /// Thaws the group.
    Thaw,
    /// Removes throttle and freeze; the kernel enforces the limit from now on.
    Unthrottle,
}

impl GrowthState {
    /// The transition function of the machine.
    #[must_use]
    pub fn on(self, event: GrowthEvent) -> (GrowthState, GrowthAction) {
        match self {
            GrowthState::Below => match event {
                GrowthEvent::Pressure => (GrowthState::Frozen, GrowthAction::Freeze),
                GrowthEvent::More => (GrowthState::Below, GrowthAction::Thaw),
                GrowthEvent::Unfreeze => (GrowthState::Free, GrowthAction::Unthrottle),
                GrowthEvent::FreezeTimeout => (self, GrowthAction::Nothing), // the limit was raised just before
            },
            GrowthState::Frozen => match event {
                GrowthEvent::Pressure => (self, GrowthAction::Nothing), // reported already
                GrowthEvent::More => (GrowthState::Below, GrowthAction::Thaw),
                GrowthEvent::Unfreeze | GrowthEvent::FreezeTimeout => {
                    (GrowthState::Free, GrowthAction::Unthrottle)
                }
            },
            GrowthState::Free => match event {
                GrowthEvent::Pressure | GrowthEvent::Unfreeze | GrowthEvent::FreezeTimeout => {
                    (self, GrowthAction::Nothing)
                }
                GrowthEvent::More => (GrowthState::Below, GrowthAction::Thaw),
            },
        }
    }
}

/// True if a group with this limit needs more memory: nearly full without page cache, which the
/// kernel reclaims by itself. The kernel updates the counter of page cache with a delay, so a short
/// burst of reads can look like pressure.
pub fn is_pressed(facts: &CgroupStats, limit: Bytes) -> bool {
    let files = facts
        .stat
        .file
        .unwrap_or_default()
        .saturating_sub(facts.stat.shmem.unwrap_or_default());
    facts.current.saturating_sub(files) >= pressure_threshold(limit)
}

/// The growth of one task.
#[derive(Debug)]
pub struct TaskGrowth {
    /// State.
    pub state: GrowthState,
    /// Current limit. Bytes.
    pub limit: Bytes,
    /// Maximum time of a freeze.
    longest: Duration,
    /// Start of the freeze.
    since: Option<Instant>,
    alarms: PressureAlarms,
}

impl TaskGrowth {
    /// Watches a group that was throttled at `limit` before its start.
    pub fn arm(
        group: &EnforcedGroup,
        limit: Bytes,
        freeze_timeout_ms: u64,
    ) -> Result<TaskGrowth, CgroupError> {
        let alarms = PressureAlarms::of(group)?;
        let longest = Duration::from_millis(freeze_timeout_ms).min(MAX_FREEZE_TIMEOUT);
        Ok(TaskGrowth {
            state: GrowthState::Below,
            limit,
            longest,
            since: None,
            alarms,
        })
    }

    /// Handles an event and applies the action in the kernel. Returns the action.
    pub fn handle_event(
        &mut self,
        event: GrowthEvent,
        group: &EnforcedGroup,
    ) -> Result<GrowthAction, CgroupError> {
        let (state, action) = self.state.on(event);
        self.state = state;
        match action {
            GrowthAction::Nothing => {}
            GrowthAction::Freeze => {
                self.since = Some(Instant::now());
                group.freeze()?;
            }
            GrowthAction::Thaw => {
                self.since = None;
                group.thaw()?;
            }
            GrowthAction::Unthrottle => {
                self.since = None;
                group.unthrottle()?;
            }
        }
        Ok(action)
    }

    /// Sets a new limit, with its watch, and thaws the group. Returns the duration of the freeze.
    /// After an error the group stays in its state, with its current limit.
    pub fn raise(
        &mut self,
        group: &EnforcedGroup,
        limit: Bytes,
        watch: UsageWatchResult,
    ) -> Result<Option<Duration>, CgroupError> {
        group.set_memory(limit)?;
        self.limit = limit;
        group.throttle_at(limit)?;
        self.alarms = PressureAlarms::of(group)?;
        self.watch_usage(watch);
        let held = self.since.map(|since| since.elapsed());
        self.handle_event(GrowthEvent::More, group)?;
        Ok(held)
    }

    /// Stores the result of [`usage_watch`]. After an error, samples and the other alarms remain.
    pub fn watch_usage(&mut self, watch: UsageWatchResult) {
        match watch {
            Ok(watch) => self.alarms.usage = watched(watch, Interest::READABLE),
            Err(error) => {
                tracing::warn!(%error, "the use of a task cannot be watched; it is sampled");
            }
        }
    }

    /// End of the maximum freeze time.
    pub fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + self.longest)
    }

    /// Waits for an alarm of the kernel about the group. Pending forever while the group is not
    /// monitored.
    pub async fn alarm(&self) {
        match self.state {
            GrowthState::Below => self.alarms.ring().await,
            GrowthState::Frozen | GrowthState::Free => std::future::pending().await,
        }
    }
}

/// The watch of the use of a group; `None` where other alarms show it.
pub type UsageWatchResult = Result<Option<MemoryEventWatch>, CgroupError>;

/// Creates a watch of the use of a group near `limit`. Blocks on cgroup v1 for a grace period of the
/// kernel, 10 ms and more.
pub fn usage_watch(group: &EnforcedGroup, limit: Bytes) -> UsageWatchResult {
    MemoryEventWatch::usage(group, pressure_threshold(limit))
}

/// The kernel events that wake the loop.
#[derive(Debug)]
struct PressureAlarms {
    /// Counters of the group have changed; v1: its limit is reached.
    events: Option<AsyncFd<MemoryEventWatch>>,
    /// v1: nearly all of the limit is in use.
    usage: Option<AsyncFd<MemoryEventWatch>>,
    /// v2, if the kernel counts it: the group stalls on memory.
    stalls: Option<AsyncFd<MemoryEventWatch>>,
}

impl PressureAlarms {
    fn of(group: &EnforcedGroup) -> Result<PressureAlarms, CgroupError> {
        let stalls = MemoryEventWatch::stalls(group).unwrap_or_else(|error| {
            tracing::debug!(%error, "memory stalls cannot be watched, ignoring");
            None
        });
        Ok(PressureAlarms {
            events: watched(MemoryEventWatch::open(group)?, Interest::READABLE),
            usage: None,
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
    reason = "the replacement is an unsafe fn; `Watch` owns its descriptor and never closes or replaces it, as required"
)]
fn watched(
    watch: Option<MemoryEventWatch>,
    interest: Interest,
) -> Option<AsyncFd<MemoryEventWatch>> {
    let fd = AsyncFd::with_interest(watch?, interest);
    fd.inspect_err(
        |error| tracing::warn!(%error, "a watch of the kernel cannot be polled, ignoring"),
    )
    .ok()
}

async fn rang(watch: Option<&AsyncFd<MemoryEventWatch>>, interest: Interest) {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
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
    fn every_event_in_every_state() {
        let events = [
            GrowthEvent::Pressure,
            GrowthEvent::More,
            GrowthEvent::Unfreeze,
            GrowthEvent::FreezeTimeout,
        ];
        let table = [
            (
                GrowthState::Below,
                [
                    (GrowthState::Frozen, GrowthAction::Freeze),
                    (GrowthState::Below, GrowthAction::Thaw),
                    (GrowthState::Free, GrowthAction::Unthrottle),
                    (GrowthState::Below, GrowthAction::Nothing),
                ],
            ),
            (
                GrowthState::Frozen,
                [
                    (GrowthState::Frozen, GrowthAction::Nothing),
                    (GrowthState::Below, GrowthAction::Thaw),
                    (GrowthState::Free, GrowthAction::Unthrottle),
                    (GrowthState::Free, GrowthAction::Unthrottle),
                ],
            ),
            (
                GrowthState::Free,
                [
                    (GrowthState::Free, GrowthAction::Nothing),
                    (GrowthState::Below, GrowthAction::Thaw),
                    (GrowthState::Free, GrowthAction::Nothing),
                    (GrowthState::Free, GrowthAction::Nothing),
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
    fn page_cache_is_no_pressure_and_tmpfs_is() {
        let limit = Bytes::from_mib(100);
        let facts = |current, file, shmem| CgroupStats {
            current: Bytes::from_mib(current),
            stat: MemoryStat {
                file: Some(Bytes::from_mib(file)),
                shmem: Some(Bytes::from_mib(shmem)),
                ..MemoryStat::default()
            },
            ..CgroupStats::default()
        };
        assert!(is_pressed(&facts(92, 1, 0), limit));
        assert!(
            !is_pressed(&facts(99, 40, 0), limit),
            "page cache can be reclaimed"
        );
        assert!(
            is_pressed(&facts(99, 40, 40), limit),
            "tmpfs cannot be reclaimed"
        );
        assert!(!is_pressed(&facts(89, 0, 0), limit));
    }
}
