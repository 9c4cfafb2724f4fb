//! The reported unattributed memory of the node, with the containers that left it.
//!
//! Owned by the node context. It measures nothing: `unattributed` does.

use std::sync::{Mutex, PoisonError};

use headroom_types::Bytes;
use headroom_types::exit::{LeftoverOwner, Unattributed};
use headroom_types::unattributed::LeftoverOwners;

/// Minimum memory for which a container is recorded as its owner.
const MIN_LEFT: Bytes = Bytes::from_mib(1);

/// Memory below this floor is reported as zero: thousandths of the node's offer, within these
/// bounds. The kernel charges a small amount for each group to its parent group.
const FLOOR: u64 = 10;
const MIN_FLOOR: Bytes = Bytes::from_mib(16);
const MAX_FLOOR: Bytes = Bytes::from_mib(256);

/// The last reported memory, and the containers that left it.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<UnattributedState>);

#[derive(Debug, Default)]
struct UnattributedState {
    memory: Bytes,
    bound: Option<Bytes>,
    leavers: LeftoverOwners,
}

impl Leftovers {
    /// Records that a container or task ended, and that this much unreclaimable memory is still
    /// charged to its group.
    pub(crate) fn note(&self, name: &str, memory: Bytes) {
        if memory >= MIN_LEFT {
            self.state().leavers.add(name, memory);
        }
    }
    /// An upper bound of the current unattributed memory, from the last samples of the containers.
    /// `None` without samples.
    pub(crate) fn bound(&self) -> Option<Bytes> {
        self.state().bound
    }
    /// Replaces the upper bound.
    pub(crate) fn set_bound(&self, bound: Option<Bytes>) {
        self.state().bound = bound;
    }
    /// The last reported memory, with its owners.
    pub(crate) fn now(&self) -> Unattributed {
        let state = self.state();
        Unattributed {
            memory: state.memory,
            left_by: state.leavers.largest(),
        }
    }
    /// Replaces the reported memory. Owners of memory that is free again are forgotten.
    pub(crate) fn set(&self, memory: Bytes) -> Unattributed {
        let mut state = self.state();
        state.memory = memory;
        if memory.is_zero() {
            state.leavers.clear();
        }
        drop(state);
        self.now()
    }
    fn state(&self) -> std::sync::MutexGuard<'_, UnattributedState> {
        // A poisoned lock is harmless: the value is written as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reported memory, and the resulting problem of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnattributedFinding {
    pub(crate) memory: Bytes,
    pub(crate) left_by: Vec<LeftoverOwner>,
    /// Why the node takes no work. `None` while the memory is below the allowed share.
    pub(crate) ill: Option<String>,
}

/// The memory below which zero is reported.
pub(crate) fn floor(offers: Bytes) -> Bytes {
    offers.mul_ratio(FLOOR, 1000).clamp(MIN_FLOOR, MAX_FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: fn(u64) -> Bytes = Bytes::from_mib;

    #[test]
    fn the_floor_is_clamped() {
        assert_eq!(
            [MIB(64), MIB(3000), Bytes::from_gib(512)].map(floor),
            [MIB(16), MIB(30), MIB(256)]
        );
    }

    #[test]
    fn owners_are_forgotten_when_the_memory_is_free() {
        let leftovers = Leftovers::default();
        leftovers.note("job.1.e1.c1", MIB(300));
        leftovers.note("job.1.e1.c2", Bytes::from_kib(4));
        assert_eq!(leftovers.set(MIB(300)).left_by.len(), 1);
        assert_eq!(leftovers.set(MIB(0)), Unattributed::default());
    }
}
