//! Kills for lack of memory on the host, distinguished from kills for the limit of a cgroup.
//!
//! The fallback enforcer owns it, because it has no counters of its own. `/proc/vmstat` counts
//! every kill for memory, for any limit; on a host with other containers it moves all the time. A
//! host out of memory first makes processes wait for reclaim. Those waits (`allocstall_*`) are
//! counted for the host only, never for the limit of a cgroup. A kill therefore counts only when
//! such waits occurred in the same short interval. Frequent reads keep that interval short.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum interval between reads that no caller needs.
const EVERY: Duration = Duration::from_millis(100);

/// The counter of the host's own kills.
#[derive(Debug, Default)]
pub(crate) struct HostKills(Mutex<HostKillState>);

#[derive(Debug, Default)]
struct HostKillState {
    before: Option<(Instant, HostOomCounters)>,
    kills: u64,
}

/// Two counters of the kernel in one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HostOomCounters {
    kills: u64,
    waits: u64,
}

impl HostKills {
    /// Kills so far; `None` where the kernel does not report them.
    pub(crate) fn count(&self) -> Option<u64> {
        let now = seen()?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, before)) = state.before {
            state.kills = state.kills.saturating_add(own_kills(before, now));
        }
        state.before = Some((Instant::now(), now));
        Some(state.kills)
    }

    /// Reads the counters, unless a read has just happened.
    pub(crate) fn look(&self) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.before.is_none_or(|(at, _)| at.elapsed() >= EVERY);
        drop(state);
        if due {
            self.count();
        }
    }
}

/// The kills between two reads, if the host waited for memory in between.
fn own_kills(before: HostOomCounters, now: HostOomCounters) -> u64 {
    if now.waits > before.waits {
        now.kills.saturating_sub(before.kills)
    } else {
        0
    }
}

fn seen() -> Option<HostOomCounters> {
    let all = procfs::vmstat().ok()?;
    let waits = all
        .iter()
        .filter(|(name, _)| name.starts_with("allocstall"))
        .map(|(_, n)| u64::try_from(*n).unwrap_or(0));
    Some(HostOomCounters {
        kills: u64::try_from(*all.get("oom_kill")?).ok()?,
        waits: waits.sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_without_a_wait_for_memory_is_counted_for_a_cgroup() {
        let before = HostOomCounters {
            kills: 7,
            waits: 100,
        };
        assert_eq!(
            own_kills(
                before,
                HostOomCounters {
                    kills: 9,
                    waits: 100
                }
            ),
            0
        );
        assert_eq!(
            own_kills(
                before,
                HostOomCounters {
                    kills: 9,
                    waits: 130
                }
            ),
            2
        );
        assert_eq!(
            own_kills(
                before,
                HostOomCounters {
                    kills: 7,
                    waits: 130
                }
            ),
            0,
            "the wait ended without a kill"
        );
    }

    #[test]
    fn this_kernel_counts_kills_and_waits() {
        let all = procfs::vmstat().expect("/proc/vmstat");
        assert!(
            all.contains_key("oom_kill") && all.keys().any(|name| name.starts_with("allocstall"))
        );
        let kills = HostKills::default();
        assert_eq!(
            kills.count(),
            Some(0),
            "kills before the first read are not counted"
        );
    }
}
