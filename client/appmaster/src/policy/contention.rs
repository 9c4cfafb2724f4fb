//! Selection of running tasks to evict on a node that has too little free memory for its frozen
//! tasks.
//!
//! An eviction costs the work that its tasks have done. The selection minimises the lost work for
//! each useful byte; memory beyond the need counts as useless. A task is evicted at most once, so
//! that every task makes progress.

use std::cmp::Ordering;
use std::time::Duration;

use headroom_types::Bytes;

/// Tasks that could be evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionCandidate<T> {
    /// Identity of the tasks.
    pub who: T,
    /// Sum of the run times that would be lost.
    pub lost: Duration,
    /// Memory that their eviction makes available to the frozen task. Bytes.
    pub frees: Bytes,
    /// True if one of them has been evicted before.
    pub gave_way: bool,
}

/// The candidate to evict so that `needs` bytes become available. `None` if none may be evicted, or
/// if all together would free too little. A candidate that frees enough alone is preferred. Of
/// equal candidates the last one is chosen: list the oldest first.
pub fn choose<T>(
    candidates: &[EvictionCandidate<T>],
    needs: Bytes,
) -> Option<&EvictionCandidate<T>> {
    let able: Vec<&EvictionCandidate<T>> = candidates
        .iter()
        .filter(|c| !c.gave_way && !c.frees.is_zero())
        .collect();
    let all = able
        .iter()
        .fold(Bytes::ZERO, |sum, c| sum.saturating_add(c.frees));
    if needs.is_zero() || all < needs {
        return None;
    }
    let alone = able
        .iter()
        .copied()
        .filter(|c| c.frees >= needs)
        .rev()
        .min_by(|a, b| by_loss(a, b, needs));
    alone.or_else(|| {
        able.iter()
            .copied()
            .rev()
            .min_by(|a, b| by_loss(a, b, needs))
    })
}

/// The cheaper of two evictions: another task, or the frozen task itself in favour of the next
/// frozen one. It is the one that loses less run time; of equal ones, the other task.
pub fn cheaper<C>(other: Option<C>, own: Option<C>, lost: impl Fn(&C) -> Duration) -> Option<C> {
    match (other, own) {
        (Some(other), Some(own)) => Some(if lost(&own) < lost(&other) {
            own
        } else {
            other
        }),
        (other, own) => other.or(own),
    }
}

/// Compares two candidates by lost work per useful byte.
fn by_loss<T>(a: &EvictionCandidate<T>, b: &EvictionCandidate<T>, needs: Bytes) -> Ordering {
    let useful = |c: &EvictionCandidate<T>| u128::from(c.frees.min(needs).get());
    let cost = |this: &EvictionCandidate<T>, other: &EvictionCandidate<T>| {
        this.lost.as_millis().saturating_mul(useful(other))
    };
    cost(a, b).cmp(&cost(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(who: u32, seconds: u64, mib: u64) -> EvictionCandidate<u32> {
        EvictionCandidate {
            who,
            lost: Duration::from_secs(seconds),
            frees: Bytes::from_mib(mib),
            gave_way: false,
        }
    }

    fn chosen(candidates: &[EvictionCandidate<u32>], mib: u64) -> Option<u32> {
        choose(candidates, Bytes::from_mib(mib)).map(|c| c.who)
    }

    #[test]
    fn the_least_work_is_lost_for_each_byte_that_helps() {
        let two = [candidate(1, 100, 512), candidate(2, 5, 300)];
        assert_eq!(chosen(&two, 300), Some(2));
        assert_eq!(
            chosen(&[candidate(1, 10, 1024), candidate(2, 5, 300)], 300),
            Some(2),
            "memory beyond the need has no value"
        );
        assert_eq!(
            chosen(&[candidate(1, 5, 100), candidate(2, 9, 300)], 300),
            Some(2),
            "one sufficient task is better than several"
        );
    }

    #[test]
    fn of_equal_candidates_the_newest_is_evicted() {
        assert_eq!(
            chosen(&[candidate(1, 5, 300), candidate(2, 5, 300)], 300),
            Some(2)
        );
    }

    #[test]
    fn the_fewest_tasks_that_free_enough_memory_are_evicted() {
        let three = [
            candidate(1, 9, 100),
            candidate(2, 5, 100),
            candidate(3, 20, 100),
        ];
        assert_eq!(chosen(&three, 300), Some(2));
        assert_eq!(
            chosen(&three, 301),
            None,
            "no task is evicted if that does not free enough"
        );
    }

    #[test]
    fn the_frozen_task_is_evicted_if_that_costs_less() {
        let cheaper = |other: Option<u64>, own: Option<u64>| {
            cheaper(other, own, |seconds| Duration::from_secs(*seconds))
        };
        assert_eq!(
            (cheaper(Some(5), Some(3)), cheaper(Some(3), Some(5))),
            (Some(3), Some(3))
        );
        assert_eq!(
            (
                cheaper(None, Some(9)),
                cheaper(Some(9), None),
                cheaper(None, None)
            ),
            (Some(9), Some(9), None)
        );
    }

    #[test]
    fn no_task_is_evicted_twice() {
        let mut two = [candidate(1, 100, 300), candidate(2, 5, 300)];
        two[1].gave_way = true;
        assert_eq!(chosen(&two, 300), Some(1));
        two[0].gave_way = true;
        assert_eq!(chosen(&two, 300), None);
        assert_eq!(chosen(&[candidate(1, 5, 0)], 1), None);
        assert_eq!(chosen(&[candidate(1, 5, 300)], 0), None);
    }
}
