//! Mode `tovar`: two sizes. The first has the least expected waste over the observed needs of the
//! kind. After a kill, a task gets the largest possible size.

use std::collections::BTreeMap;

use headroom_types::Bytes;

use super::decision_input::DecisionInput;
use super::headroom;
use super::ladder::{self, LadderStep};

pub(super) fn grow(case: &DecisionInput<'_>) -> LadderStep {
    let (size, cap) = (case.size, case.cap.task);
    if size.memory() >= cap {
        return LadderStep::Top(format!(
            "it ran at the largest size, set by {}",
            case.cap.words()
        ));
    }
    headroom::own(case, ladder::in_proportion(&size.profile, cap))
}

/// The needs of finished tasks of each kind. Grows with the number of tasks of a job.
#[derive(Clone, Debug, Default)]
pub struct ObservedNeeds {
    /// Sorted by need, with run times in seconds.
    kinds: BTreeMap<String, Vec<(Bytes, f64)>>,
    /// Cached first sizes.
    firsts: BTreeMap<String, Bytes>,
}

impl ObservedNeeds {
    /// Adds the need of a task that succeeded.
    pub fn ended(&mut self, kind: &str, peak: Bytes, runtime_s: f64) {
        let needs = self.kinds.entry(kind.to_owned()).or_default();
        let at = needs.partition_point(|(need, _)| *need < peak);
        needs.insert(at, (peak, runtime_s));
        self.firsts.remove(kind);
    }

    /// The first size with the least expected waste, if a retry gets the largest observed need.
    /// `None` for a kind without observations.
    pub fn first(&mut self, kind: &str) -> Option<Bytes> {
        if let Some(first) = self.firsts.get(kind) {
            return Some(*first);
        }
        let needs = self.kinds.get(kind)?;
        let most = needs.last()?.0.as_gib_f64();
        let all: f64 = needs.iter().map(|(_, time)| time).sum();
        let mut fits = 0.0;
        let mut best: Option<(f64, Bytes)> = None;
        for (need, time) in needs {
            fits += time;
            // all tasks pay for the first size; those that do not fit pay for the largest too
            let cost = need.as_gib_f64() * all + most * (all - fits);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, *need));
            }
        }
        let (_, size) = best?;
        self.firsts.insert(kind.to_owned(), size);
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(needs_mib: &[u64]) -> Option<u64> {
        let mut needs = ObservedNeeds::default();
        needs_mib
            .iter()
            .for_each(|mib| needs.ended("sort", Bytes::from_mib(*mib), 10.0));
        needs.first("sort").map(Bytes::whole_mib)
    }

    #[test]
    fn the_first_size_wastes_least_and_ignores_an_outlier() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[900]), Some(900));
        let mut needs = vec![100; 20];
        needs.push(1000);
        assert_eq!(
            first(&needs),
            Some(100),
            "900 more for all tasks costs more than one retry"
        );
        assert_eq!(
            first(&[100, 110, 120, 130]),
            Some(130),
            "a retry costs more than a little more for all tasks"
        );
    }

    #[test]
    fn later_needs_count_and_kinds_are_separate() {
        let mut needs = ObservedNeeds::default();
        needs.ended("sort", Bytes::from_mib(100), 10.0);
        assert_eq!(
            (needs.first("sort"), needs.first("join")),
            (Some(Bytes::from_mib(100)), None)
        );
        needs.ended("sort", Bytes::from_mib(110), 10.0);
        assert_eq!(needs.first("sort"), Some(Bytes::from_mib(110)));
    }
}
