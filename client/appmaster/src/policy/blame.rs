//! Attribution of the death of a shared executor to its tasks.
//!
//! The blamed tasks are the smallest set whose removal would have kept the executor under its
//! limit, the largest overshoot first. The other tasks stayed within their sizes, or exceeded them
//! by no more than kernel memory explains, and are not charged.

use headroom_types::Bytes;
use headroom_types::exit::CgroupStats;

/// Overshoot that does not by itself make a task a suspect; a sixty-fourth of its size if that is
/// more. Bytes.
const MAX_SLIGHT_OVERSHOOT: Bytes = Bytes::from_mib(2);

/// Whether an attempt without measurements is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCharge {
    /// It is charged.
    Yes,
    /// It is not charged, because tasks of its kind fit their share.
    No,
}

/// The part of a task in the end of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFate {
    /// The attempt has its own report.
    Own,
    /// Its executor died, and this task is blamed.
    Blamed,
    /// Its executor died, and another task is blamed.
    Bystander,
    /// Its executor died, and no measurement shows the cause.
    Unknown {
        /// Whether the attempt is charged nevertheless.
        charged: UnknownCharge,
    },
}

/// A task that ran when its executor died.
#[derive(Clone, Copy, Debug)]
pub struct SuspectTask {
    /// Its size. Bytes.
    pub size: Bytes,
    /// Its measured peak. Bytes.
    pub peak: Option<Bytes>,
    /// True if its own cgroup reached its own limit and a process in it was killed.
    pub at_own_limit: bool,
    /// True if at least 19 in 20 finished tasks of its stage used no more than its size.
    pub kind_fits: bool,
}

impl SuspectTask {
    fn overshoot(&self) -> Bytes {
        self.peak.unwrap_or_default().saturating_sub(self.size)
    }
    /// True when its overshoot is small enough to be kernel memory of the task: stacks, page
    /// tables, sockets.
    fn is_slight(&self) -> bool {
        self.overshoot() <= MAX_SLIGHT_OVERSHOOT.max(self.size.mul_ratio(1, 64))
    }
    /// The memory that counts for it; its size if the peak is unknown.
    fn counted(&self) -> Bytes {
        self.peak.unwrap_or(self.size)
    }
}

/// True when counters prove that a task's own limit was reached and a process in it was killed for
/// that.
pub fn at_own_limit(facts: &CgroupStats) -> bool {
    let killed =
        facts.local.oom_kill > 0 || facts.local.oom_group_kill > 0 || facts.events.oom_kill > 0;
    // On cgroup v1 there is no count of `oom`; a reached limit shows in `failcnt`, which is kept as
    // `max`.
    let limit_hit = facts.local.oom > 0 || facts.local.max > 0;
    killed && limit_hit
}

/// One fate for each suspect, in their order. `room` is the part of the executor's limit that is
/// available to tasks.
pub fn blame(room: Bytes, suspects: &[SuspectTask]) -> Vec<AttemptFate> {
    if suspects.iter().any(|s| s.at_own_limit) {
        return suspects
            .iter()
            .map(|s| {
                if s.at_own_limit {
                    AttemptFate::Blamed
                } else {
                    AttemptFate::Bystander
                }
            })
            .collect();
    }
    // A single task needs no measurement. Otherwise a task that dies before its first measurement
    // would run again without end.
    if suspects.len() == 1 {
        return vec![AttemptFate::Blamed];
    }
    let mut order: Vec<usize> = (0..suspects.len())
        .filter(|i| !suspects[*i].overshoot().is_zero())
        .collect();
    order.sort_by_key(|i| {
        (
            suspects[*i].is_slight(),
            std::cmp::Reverse(suspects[*i].overshoot()),
            *i,
        )
    });
    let mut sum = suspects
        .iter()
        .fold(Bytes::ZERO, |sum, s| sum.saturating_add(s.counted()));
    // At the time of death the usage equals the limit. A sum near the limit therefore shows that
    // tasks filled it.
    let nearly_full = room.mul_ratio(15, 16);
    let mut fates = vec![AttemptFate::Bystander; suspects.len()];
    for (nth, i) in order.iter().enumerate() {
        // Samples miss the last moment. The largest overshoot is therefore blamed even if the sum
        // seems to fit, unless the overshoot is slight.
        let explained = if suspects[*i].is_slight() && nth == 0 {
            sum < nearly_full
        } else {
            nth > 0 && sum <= room
        };
        if explained {
            break;
        }
        fates[*i] = AttemptFate::Blamed;
        sum = sum.saturating_sub(suspects[*i].counted());
    }
    if order.is_empty() || sum > room {
        for (fate, suspect) in fates
            .iter_mut()
            .zip(suspects)
            .filter(|(f, s)| **f == AttemptFate::Bystander && s.peak.is_none())
        {
            let charged = if suspect.kind_fits {
                UnknownCharge::No
            } else {
                UnknownCharge::Yes
            };
            *fate = AttemptFate::Unknown { charged };
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::exit::MemoryEvents;

    fn used(peak: u64) -> SuspectTask {
        SuspectTask {
            size: Bytes::from_mib(64),
            peak: Some(Bytes::from_mib(peak)),
            at_own_limit: false,
            kind_fits: false,
        }
    }
    fn unseen() -> SuspectTask {
        SuspectTask {
            peak: None,
            ..used(0)
        }
    }
    const ROOM: Bytes = Bytes::from_mib(256);

    #[test]
    fn the_smallest_set_that_explains_the_death_is_blamed() {
        let fates = blame(ROOM, &[used(60), used(150), used(70), used(40)]);
        assert_eq!(
            fates,
            [
                AttemptFate::Bystander,
                AttemptFate::Blamed,
                AttemptFate::Bystander,
                AttemptFate::Bystander
            ]
        );
        let fates = blame(ROOM, &[used(90), used(50), used(220), used(60)]);
        assert_eq!(
            fates,
            [
                AttemptFate::Bystander,
                AttemptFate::Bystander,
                AttemptFate::Blamed,
                AttemptFate::Bystander
            ],
            "the larger one alone explains it"
        );
    }

    #[test]
    fn two_large_tasks_are_both_blamed() {
        let fates = blame(ROOM, &[used(200), used(60), used(260), used(60)]);
        assert_eq!(
            fates,
            [
                AttemptFate::Blamed,
                AttemptFate::Bystander,
                AttemptFate::Blamed,
                AttemptFate::Bystander
            ]
        );
    }

    #[test]
    fn a_task_group_at_its_own_limit_is_proof() {
        let at_limit = SuspectTask {
            at_own_limit: true,
            ..used(64)
        };
        assert_eq!(
            blame(ROOM, &[used(90), at_limit]),
            [AttemptFate::Bystander, AttemptFate::Blamed]
        );
    }

    #[test]
    fn a_task_alone_in_its_executor_is_blamed() {
        let fits = SuspectTask {
            kind_fits: true,
            ..unseen()
        };
        assert_eq!(
            [blame(ROOM, &[fits]), blame(ROOM, &[used(10)])],
            [[AttemptFate::Blamed], [AttemptFate::Blamed]]
        );
    }

    #[test]
    fn without_an_overshoot_no_task_is_blamed() {
        assert_eq!(
            blame(ROOM, &[used(60), used(64)]),
            [AttemptFate::Bystander, AttemptFate::Bystander]
        );
    }

    #[test]
    fn a_slight_overshoot_is_not_blamed_while_another_task_explains_the_kill() {
        let slight = SuspectTask {
            peak: Some(Bytes::from_kib(64 * 1024 + 300)),
            ..used(0)
        };
        let fates = blame(ROOM, &[slight, used(150), slight]);
        assert_eq!(
            fates,
            [
                AttemptFate::Bystander,
                AttemptFate::Blamed,
                AttemptFate::Bystander
            ]
        );
        assert_eq!(
            blame(ROOM, &[slight, used(60)]),
            [AttemptFate::Bystander; 2],
            "the tasks fit: the executor is the cause"
        );
        let full = blame(Bytes::from_mib(126), &[slight, used(60)]);
        assert_eq!(
            full,
            [AttemptFate::Blamed, AttemptFate::Bystander],
            "nothing else explains the death"
        );
    }

    #[test]
    fn an_unmeasured_task_whose_kind_fits_is_not_charged() {
        let fits = SuspectTask {
            kind_fits: true,
            ..unseen()
        };
        let fates = blame(ROOM, &[unseen(), fits]);
        assert_eq!(
            fates,
            [
                AttemptFate::Unknown {
                    charged: UnknownCharge::Yes
                },
                AttemptFate::Unknown {
                    charged: UnknownCharge::No
                }
            ]
        );
        assert_eq!(
            blame(ROOM, &[used(200), fits]),
            [AttemptFate::Blamed, AttemptFate::Bystander],
            "a known overshoot explains it"
        );
    }

    #[test]
    fn a_kill_for_the_container_is_no_proof_against_its_victim() {
        let mut facts = CgroupStats {
            events: MemoryEvents {
                oom_kill: 1,
                ..MemoryEvents::default()
            },
            ..CgroupStats::default()
        };
        assert!(!at_own_limit(&facts));
        facts.local.oom = 1;
        assert!(at_own_limit(&facts));
    }
}
