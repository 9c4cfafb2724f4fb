//! Throttling and freezing of a group near its limit, instead of a kill by the kernel: pure values.
//!
//! It is used for tasks that can get more memory while they run. v2: `memory.high` below
//! `memory.max` throttles the group and wakes the watcher of `memory.events`. A freeze then stops
//! the group as long as necessary, because a throttled group still grows slowly. v1: the kernel
//! does not kill; a process that needs a page waits until the limit is raised or killing is enabled
//! again. A system call that fills user memory fails instead of waiting, so v1 groups are also
//! watched well below their limit. The caller must end each throttle or freeze: with more memory,
//! or with [`crate::EnforcedGroup::unthrottle`].

use headroom_types::Bytes;

use crate::plan::{CgroupKnob, KnobRequirement, ReadBackCheck};

/// Distance from the limit: the limit divided by this number.
const SHARE: u64 = 10;
/// Minimum distance: a request for memory must be possible before the program uses up the rest.
const LEAST: Bytes = Bytes::from_mib(2);

/// The use from which a group with this limit is under pressure.
pub fn pressure_threshold(limit: Bytes) -> Bytes {
    let below = limit.mul_ratio(1, SHARE).max(LEAST);
    limit.saturating_sub(below).max(limit.mul_ratio(1, 2))
}

/// v2: throttles from that use on.
pub(crate) fn v2_throttled(limit: Bytes) -> CgroupKnob {
    CgroupKnob {
        file: "memory.high",
        value: pressure_threshold(limit).get().to_string(),
        confirm: ReadBackCheck::Pages,
        need: KnobRequirement::Must,
    }
}

/// v2: removes the throttle.
pub(crate) fn v2_unthrottled() -> CgroupKnob {
    CgroupKnob {
        file: "memory.high",
        value: "max".to_owned(),
        confirm: ReadBackCheck::Exact,
        need: KnobRequirement::Must,
    }
}

/// v2: freezes or thaws the group. A kernel without it (before Linux 5.2) only throttles.
pub(crate) fn v2_frozen(frozen: FreezerState) -> CgroupKnob {
    let value = match frozen {
        FreezerState::Yes => "1",
        FreezerState::No => "0",
    };
    CgroupKnob {
        file: "cgroup.freeze",
        value: value.to_owned(),
        confirm: ReadBackCheck::Exact,
        need: KnobRequirement::IfThere,
    }
}

/// Whether a v2 group is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezerState {
    /// No process in it runs.
    Yes,
    /// The group runs.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_between_half_and_nine_tenths_of_the_limit() {
        let from = |mib| pressure_threshold(Bytes::from_mib(mib));
        assert_eq!(from(1000), Bytes::from_mib(900));
        assert_eq!(from(16), Bytes::from_mib(14));
        assert_eq!(from(2), Bytes::from_mib(1));
    }
}
