//! Who is behind the death of a shared executor.
//!
//! The smallest set of tasks whose removal would have kept the executor under its limit, largest overshoot first. The others ran
//! within their size, or so little beyond it that the kernel's own memory explains that, and are not charged.

use headroom_types::Bytes;
use headroom_types::exit::GroupFacts;

/// What a task may be charged with beyond its size without being suspected for that alone; a sixty-fourth of its size where that is
/// more. Bytes.
const SLIGHT: Bytes = Bytes::from_mib(2);

/// Whether an attempt is charged although nothing is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// It is.
    Yes,
    /// Tasks of its kind fit their share, so it is not.
    No,
}

/// A task's part in the end of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The end is its own: it has a report of its own.
    Own,
    /// Its executor died, and it is behind it.
    Blamed,
    /// Its executor died for another task.
    Innocent,
    /// Its executor died, and no figure tells who is behind it.
    Unknown {
        /// Whether it is charged all the same.
        charged: Charged,
    },
}

/// One task that ran when its executor died.
#[derive(Clone, Copy, Debug)]
pub struct Suspect {
    /// Its size. Bytes.
    pub size: Bytes,
    /// The most it was seen to use. Bytes.
    pub peak: Option<Bytes>,
    /// Its own cgroup was at its own limit, and something in it was killed.
    pub at_own_limit: bool,
    /// Nine in ten tasks of its kind that are done used no more than its size.
    pub kind_fits: bool,
}

impl Suspect {
    fn overshoot(&self) -> Bytes {
        self.peak.unwrap_or_default().saturating_sub(self.size)
    }
    /// So little beyond its size that the kernel's own memory for it explains that: stacks, page tables, sockets.
    fn is_slight(&self) -> bool {
        self.overshoot() <= SLIGHT.max(self.size.mul_ratio(1, 64))
    }
    /// What it is counted with: an unknown use counts as its size.
    fn counted(&self) -> Bytes {
        self.peak.unwrap_or(self.size)
    }
}

/// True when counters prove that a task's own limit was hit and something in it was killed for that.
pub fn at_own_limit(facts: &GroupFacts) -> bool {
    let killed = facts.local.oom_kill > 0 || facts.local.oom_group_kill > 0 || facts.events.oom_kill > 0;
    // On cgroup v1 there is no count of `oom`; the limit that was hit shows in `failcnt`, kept as `max`.
    let limit_hit = facts.local.oom > 0 || facts.local.max > 0;
    killed && limit_hit
}

/// One fate for each suspect, in their order. `room` is what the executor's limit leaves for tasks.
pub fn blame(room: Bytes, suspects: &[Suspect]) -> Vec<Fate> {
    if suspects.iter().any(|s| s.at_own_limit) {
        return suspects.iter().map(|s| if s.at_own_limit { Fate::Blamed } else { Fate::Innocent }).collect();
    }
    // Whoever was alone in it needs no figures: without this, one that dies before it is measured would be run again for ever.
    if suspects.len() == 1 {
        return vec![Fate::Blamed];
    }
    let mut order: Vec<usize> = (0..suspects.len()).filter(|i| !suspects[*i].overshoot().is_zero()).collect();
    order.sort_by_key(|i| (suspects[*i].is_slight(), std::cmp::Reverse(suspects[*i].overshoot()), *i));
    let mut sum = suspects.iter().fold(Bytes::ZERO, |sum, s| sum.saturating_add(s.counted()));
    // At the moment of death the limit is what they come to together, so a sum near it says that tasks filled it.
    let nearly_full = room.mul_ratio(15, 16);
    let mut fates = vec![Fate::Innocent; suspects.len()];
    for (nth, i) in order.iter().enumerate() {
        // Samples miss the last moment, so the largest overshoot is blamed even when the sum seems to fit, unless it is next to nothing.
        let explained = if suspects[*i].is_slight() && nth == 0 { sum < nearly_full } else { nth > 0 && sum <= room };
        if explained {
            break;
        }
        fates[*i] = Fate::Blamed;
        sum = sum.saturating_sub(suspects[*i].counted());
    }
    if order.is_empty() || sum > room {
        for (fate, suspect) in fates.iter_mut().zip(suspects).filter(|(f, s)| **f == Fate::Innocent && s.peak.is_none()) {
            let charged = if suspect.kind_fits { Charged::No } else { Charged::Yes };
            *fate = Fate::Unknown { charged };
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::exit::MemoryEvents;

    fn used(peak: u64) -> Suspect {
        Suspect { size: Bytes::from_mib(64), peak: Some(Bytes::from_mib(peak)), at_own_limit: false, kind_fits: false }
    }
    fn unseen() -> Suspect {
        Suspect { peak: None, ..used(0) }
    }
    const ROOM: Bytes = Bytes::from_mib(256);

    #[test]
    fn the_smallest_set_that_explains_the_death_is_blamed() {
        let fates = blame(ROOM, &[used(60), used(150), used(70), used(40)]);
        assert_eq!(fates, [Fate::Innocent, Fate::Blamed, Fate::Innocent, Fate::Innocent]);
        let fates = blame(ROOM, &[used(90), used(50), used(220), used(60)]);
        assert_eq!(fates, [Fate::Innocent, Fate::Innocent, Fate::Blamed, Fate::Innocent], "the larger one alone explains it");
    }

    #[test]
    fn two_large_ones_are_both_blamed() {
        let fates = blame(ROOM, &[used(200), used(60), used(260), used(60)]);
        assert_eq!(fates, [Fate::Blamed, Fate::Innocent, Fate::Blamed, Fate::Innocent]);
    }

    #[test]
    fn a_task_group_at_its_own_limit_is_proof() {
        let at_limit = Suspect { at_own_limit: true, ..used(64) };
        assert_eq!(blame(ROOM, &[used(90), at_limit]), [Fate::Innocent, Fate::Blamed]);
    }

    #[test]
    fn one_that_was_alone_is_behind_it_whatever_was_seen() {
        let fits = Suspect { kind_fits: true, ..unseen() };
        assert_eq!([blame(ROOM, &[fits]), blame(ROOM, &[used(10)])], [[Fate::Blamed], [Fate::Blamed]]);
    }

    #[test]
    fn nobody_above_its_size_is_blamed() {
        assert_eq!(blame(ROOM, &[used(60), used(64)]), [Fate::Innocent, Fate::Innocent]);
    }

    #[test]
    fn what_the_kernel_takes_beside_makes_nobody_guilty_while_there_is_another_reason() {
        let slight = Suspect { peak: Some(Bytes::from_kib(64 * 1024 + 300)), ..used(0) };
        let fates = blame(ROOM, &[slight, used(150), slight]);
        assert_eq!(fates, [Fate::Innocent, Fate::Blamed, Fate::Innocent]);
        assert_eq!(blame(ROOM, &[slight, used(60)]), [Fate::Innocent; 2], "together they fit: it was the executor itself");
        let full = blame(Bytes::from_mib(126), &[slight, used(60)]);
        assert_eq!(full, [Fate::Blamed, Fate::Innocent], "nothing else explains the death");
    }

    #[test]
    fn without_figures_a_task_whose_kind_fits_is_not_charged() {
        let fits = Suspect { kind_fits: true, ..unseen() };
        let fates = blame(ROOM, &[unseen(), fits]);
        assert_eq!(fates, [Fate::Unknown { charged: Charged::Yes }, Fate::Unknown { charged: Charged::No }]);
        assert_eq!(blame(ROOM, &[used(200), fits]), [Fate::Blamed, Fate::Innocent], "a known overshoot explains it");
    }

    #[test]
    fn a_kill_for_the_container_is_no_proof_against_its_victim() {
        let mut facts = GroupFacts { events: MemoryEvents { oom_kill: 1, ..MemoryEvents::default() }, ..GroupFacts::default() };
        assert!(!at_own_limit(&facts));
        facts.local.oom = 1;
        assert!(at_own_limit(&facts));
    }
}
