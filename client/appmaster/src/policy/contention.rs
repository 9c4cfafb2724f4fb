//! Which running tasks give way where a node has no room for what held tasks need.
//!
//! An eviction costs the work that its tasks have done. It is chosen so that the least is lost for each byte that helps; what
//! would be freed beyond the need is worth nothing. A task that gave way once is never chosen again, so that every task gets on.

use std::cmp::Ordering;
use std::time::Duration;

use headroom_types::Bytes;

/// Tasks that could be evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<T> {
    /// Who they are.
    pub who: T,
    /// Run time that is lost with them, summed.
    pub lost: Duration,
    /// What the held task could be given when they are gone. Bytes.
    pub frees: Bytes,
    /// One of them has given way before.
    pub gave_way: bool,
}

/// The candidate to evict so that `needs` can be given; `None` where nobody can, or all of them together would not free enough.
/// One that frees enough alone is preferred. Of two that are alike the later one is taken: list the oldest first.
pub fn choose<T>(candidates: &[Candidate<T>], needs: Bytes) -> Option<&Candidate<T>> {
    let able: Vec<&Candidate<T>> = candidates.iter().filter(|c| !c.gave_way && !c.frees.is_zero()).collect();
    let all = able.iter().fold(Bytes::ZERO, |sum, c| sum.saturating_add(c.frees));
    if needs.is_zero() || all < needs {
        return None;
    }
    let alone = able.iter().copied().filter(|c| c.frees >= needs).rev().min_by(|a, b| by_loss(a, b, needs));
    alone.or_else(|| able.iter().copied().rev().min_by(|a, b| by_loss(a, b, needs)))
}

/// Another one, or the held task itself for the next one that is held beside it: that with less run time lost. Of two alike it is
/// the other one.
pub fn cheaper<C>(other: Option<C>, own: Option<C>, lost: impl Fn(&C) -> Duration) -> Option<C> {
    match (other, own) {
        (Some(other), Some(own)) => Some(if lost(&own) < lost(&other) { own } else { other }),
        (other, own) => other.or(own),
    }
}

/// Work lost per useful byte.
fn by_loss<T>(a: &Candidate<T>, b: &Candidate<T>, needs: Bytes) -> Ordering {
    let useful = |c: &Candidate<T>| u128::from(c.frees.min(needs).get());
    let cost = |this: &Candidate<T>, other: &Candidate<T>| this.lost.as_millis().saturating_mul(useful(other));
    cost(a, b).cmp(&cost(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(who: u32, seconds: u64, mib: u64) -> Candidate<u32> {
        Candidate { who, lost: Duration::from_secs(seconds), frees: Bytes::from_mib(mib), gave_way: false }
    }

    fn chosen(candidates: &[Candidate<u32>], mib: u64) -> Option<u32> {
        choose(candidates, Bytes::from_mib(mib)).map(|c| c.who)
    }

    #[test]
    fn the_least_work_is_lost_for_each_byte_that_helps() {
        let two = [candidate(1, 100, 512), candidate(2, 5, 300)];
        assert_eq!(chosen(&two, 300), Some(2));
        assert_eq!(
            chosen(&[candidate(1, 10, 1024), candidate(2, 5, 300)], 300),
            Some(2),
            "what is beyond the need is worth nothing"
        );
        assert_eq!(
            chosen(&[candidate(1, 5, 100), candidate(2, 9, 300)], 300),
            Some(2),
            "one that is enough is better than several"
        );
    }

    #[test]
    fn of_two_that_are_alike_the_newest_gives_way() {
        assert_eq!(chosen(&[candidate(1, 5, 300), candidate(2, 5, 300)], 300), Some(2));
    }

    #[test]
    fn several_give_way_one_after_the_other_where_that_is_enough() {
        let three = [candidate(1, 9, 100), candidate(2, 5, 100), candidate(3, 20, 100)];
        assert_eq!(chosen(&three, 300), Some(2));
        assert_eq!(chosen(&three, 301), None, "nobody is evicted in vain");
    }

    #[test]
    fn the_held_task_itself_gives_way_where_that_costs_less() {
        let cheaper = |other: Option<u64>, own: Option<u64>| cheaper(other, own, |seconds| Duration::from_secs(*seconds));
        assert_eq!((cheaper(Some(5), Some(3)), cheaper(Some(3), Some(5))), (Some(3), Some(3)));
        assert_eq!((cheaper(None, Some(9)), cheaper(Some(9), None), cheaper(None, None)), (Some(9), Some(9), None));
    }

    #[test]
    fn nobody_gives_way_twice() {
        let mut two = [candidate(1, 100, 300), candidate(2, 5, 300)];
        two[1].gave_way = true;
        assert_eq!(chosen(&two, 300), Some(1));
        two[0].gave_way = true;
        assert_eq!(chosen(&two, 300), None);
        assert_eq!(chosen(&[candidate(1, 5, 0)], 1), None);
        assert_eq!(chosen(&[candidate(1, 5, 300)], 0), None);
    }
}
