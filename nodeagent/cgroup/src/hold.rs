//! Holding a group near its limit instead of having the kernel kill in it: pure figures and the values of the files.
//!
//! Used for tasks that may be given more while they run. v2: `memory.high` below `memory.max` throttles and wakes whoever watches
//! `memory.events`; a freeze then holds the group for as long as need be, because throttling alone lets it creep on. v1: the kernel
//! does not kill but lets whoever needs a page wait until the limit is raised or the killing is allowed again. A system call
//! that has to fill memory of its caller does not wait there but fails, so v1 groups are also watched well before their limit.
//! Whoever holds a group owes it an end: more memory, or [`crate::Group::let_go`].

use headroom_types::Bytes;

use crate::plan::{Confirm, Knob, Need};

/// How far below the limit, as a share of it.
const SHARE: u64 = 10;
/// And at least so far: a program should be asked for before it has run through what is left.
const LEAST: Bytes = Bytes::from_mib(2);

/// In use, from which on a group with this limit is under pressure.
pub fn pressure_from(limit: Bytes) -> Bytes {
    let below = limit.mul_ratio(1, SHARE).max(LEAST);
    limit.saturating_sub(below).max(limit.mul_ratio(1, 2))
}

/// v2: throttled from there on.
pub(crate) fn v2_throttled(limit: Bytes) -> Knob {
    Knob { file: "memory.high", value: pressure_from(limit).get().to_string(), confirm: Confirm::Pages, need: Need::Must }
}

/// v2: not throttled.
pub(crate) fn v2_unthrottled() -> Knob {
    Knob { file: "memory.high", value: "max".to_owned(), confirm: Confirm::Exact, need: Need::Must }
}

/// v2: nothing in it runs, or it does. A kernel without it (before Linux 5.2) throttles only.
pub(crate) fn v2_frozen(frozen: Frozen) -> Knob {
    let value = match frozen {
        Frozen::Yes => "1",
        Frozen::No => "0",
    };
    Knob { file: "cgroup.freeze", value: value.to_owned(), confirm: Confirm::Exact, need: Need::IfThere }
}

/// Whether a v2 group is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frozen {
    /// Nothing in it runs.
    Yes,
    /// It runs.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_a_tenth_below_the_limit_and_never_below_half_of_it() {
        let from = |mib| pressure_from(Bytes::from_mib(mib));
        assert_eq!(from(1000), Bytes::from_mib(900));
        assert_eq!(from(16), Bytes::from_mib(14));
        assert_eq!(from(2), Bytes::from_mib(1));
    }
}
