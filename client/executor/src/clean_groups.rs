//! Clean cgroups of ended tasks, which wait for another task.
//!
//! The cgroup of the container owns the table. A cgroup that no task needs for a while is removed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headroom_types::Bytes;

/// Maximum number of cgroups that wait.
const MAX_CLEAN: usize = 16;
/// Maximum time for which a cgroup waits.
const MAX_IDLE: Duration = Duration::from_secs(2);

/// Clean cgroups of type `G`.
#[derive(Debug)]
pub(crate) struct CleanGroups<G> {
    state: Mutex<CleanGroupState<G>>,
}

#[derive(Debug)]
struct CleanGroupState<G> {
    waiting: Vec<WaitingGroup<G>>,
    is_closed: bool,
}

#[derive(Debug)]
struct WaitingGroup<G> {
    group: G,
    /// Its limit.
    limit: Option<Bytes>,
    since: Instant,
}

impl<G> CleanGroups<G> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        let state = CleanGroupState {
            waiting: Vec::new(),
            is_closed: false,
        };
        CleanGroups {
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CleanGroupState<G>> {
        // No operation panics in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a cgroup with this limit. Returns it if enough of them wait, or the executor ends.
    pub(crate) fn add(&self, limit: Option<Bytes>, group: G) -> Result<(), G> {
        let mut state = self.lock();
        if state.is_closed || state.waiting.len() >= MAX_CLEAN {
            return Err(group);
        }
        state.waiting.push(WaitingGroup {
            group,
            limit,
            since: Instant::now(),
        });
        Ok(())
    }

    /// A cgroup with this limit, if one waits.
    pub(crate) fn take(&self, limit: Option<Bytes>) -> Option<G> {
        let waiting = &mut self.lock().waiting;
        // The last one has the warmest caches.
        let place = waiting.iter().rposition(|one| one.limit == limit)?;
        Some(waiting.swap_remove(place).group)
    }

    /// Takes out the cgroups that have waited for too long.
    pub(crate) fn take_expired(&self) -> Vec<G> {
        let mut state = self.lock();
        let expired = |one: &mut WaitingGroup<G>| one.since.elapsed() >= MAX_IDLE;
        let gone = state.waiting.extract_if(.., expired);
        gone.map(|one| one.group).collect()
    }

    /// Takes out all cgroups, and accepts no more.
    pub(crate) fn close(&self) -> Vec<G> {
        let mut state = self.lock();
        state.is_closed = true;
        let gone = std::mem::take(&mut state.waiting);
        gone.into_iter().map(|one| one.group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_serves_a_task_with_its_limit() {
        let groups = CleanGroups::new();
        let (small, large) = (Some(Bytes::from_mib(64)), Some(Bytes::from_mib(128)));
        for (limit, group) in [(small, 1), (large, 2), (small, 3)] {
            assert_eq!(groups.add(limit, group), Ok(()));
        }
        assert_eq!(groups.take(None), None);
        assert_eq!(groups.take(small), Some(3), "the last one first");
        assert_eq!(groups.take(small), Some(1));
        assert_eq!((groups.take(small), groups.take(large)), (None, Some(2)));
    }

    #[test]
    fn few_cgroups_wait_and_none_after_the_end() {
        let groups = CleanGroups::new();
        for group in 0..MAX_CLEAN {
            assert_eq!(groups.add(None, group), Ok(()));
        }
        assert_eq!(groups.add(None, 99), Err(99));
        assert!(groups.take_expired().is_empty());
        assert_eq!(groups.close().len(), MAX_CLEAN);
        assert_eq!(groups.add(None, 1), Err(1));
    }
}
