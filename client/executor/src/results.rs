//! Results that the master has not acknowledged: pure.
//!
//! Owned by the executor's loop. A result is kept until it is acknowledged and told again on every new connection; a second one
//! for the same attempt changes nothing. It never drops a result to make room: starts are refused instead.

use std::collections::{BTreeMap, VecDeque};

use headroom_types::{TaskAttemptId, TaskReport};

use crate::fit::fitted;

/// Most results kept. With each one cut to its smallest they still fit into one line of the protocol.
pub const MOST: usize = 200;
/// How many acknowledged attempts are remembered, so that a start that arrives late is not run a second time.
const REMEMBERED: usize = 4096;

/// The results of one executor.
#[derive(Clone, Debug, Default)]
pub struct Results {
    unacked: BTreeMap<TaskAttemptId, TaskReport>,
    acked: VecDeque<TaskAttemptId>,
}

impl Results {
    /// Keeps a result. False when there is one for this attempt already; the first one stands.
    pub fn add(&mut self, report: TaskReport) -> bool {
        if self.knows(&report.attempt) {
            return false;
        }
        self.unacked.insert(report.attempt.clone(), report);
        true
    }
    /// The master has it: forget it. False when there was none.
    pub fn ack(&mut self, attempt: &TaskAttemptId) -> bool {
        if self.unacked.remove(attempt).is_none() {
            return false;
        }
        if self.acked.len() >= REMEMBERED {
            self.acked.pop_front();
        }
        self.acked.push_back(attempt.clone());
        true
    }
    /// The result of `attempt`, if it has not been acknowledged.
    pub fn get(&self, attempt: &TaskAttemptId) -> Option<&TaskReport> {
        self.unacked.get(attempt)
    }
    /// Whether `attempt` has ended here, acknowledged or not.
    pub fn knows(&self, attempt: &TaskAttemptId) -> bool {
        self.unacked.contains_key(attempt) || self.acked.contains(attempt)
    }
    /// How many are not acknowledged.
    pub fn len(&self) -> usize {
        self.unacked.len()
    }
    /// True when all have been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.unacked.is_empty()
    }
    /// True when the results of `running` more tasks could not be kept.
    pub fn is_full(&self, running: usize) -> bool {
        self.unacked.len().saturating_add(running) >= MOST
    }
    /// All of them in at most `most` bytes of JSON: each gets an equal part and is cut to it where it must.
    pub fn to_tell(&self, most: usize) -> Vec<TaskReport> {
        let each = most / self.unacked.len().max(1);
        self.unacked.values().map(|report| fitted(report, each)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::samples::{large_report, report};
    use headroom_wire::v1::task::MAX_LINE;
    use proptest::prelude::*;

    #[test]
    fn the_first_result_stands_and_an_ack_ends_it() {
        let mut results = Results::default();
        let first = report(1);
        assert!(results.add(first.clone()));
        let mut second = report(1);
        second.log_tail = "another".into();
        assert!(!results.add(second.clone()));
        assert_eq!(results.get(&first.attempt), Some(&first));
        assert!(results.ack(&first.attempt) && !results.ack(&first.attempt));
        assert!(results.is_empty() && results.knows(&first.attempt));
        assert!(!results.add(second), "an acknowledged attempt does not come back");
    }

    #[test]
    fn the_most_results_of_the_largest_kind_fit_into_one_line() {
        let mut results = Results::default();
        for index in 0..MOST {
            assert!(!results.is_full(0));
            assert!(results.add(large_report(u32::try_from(index).expect("small"))));
        }
        assert!(results.is_full(0));
        let budget = MAX_LINE - (128 << 10);
        let told = results.to_tell(budget);
        assert_eq!(told.len(), MOST);
        let line = serde_json::to_vec(&told).expect("writes");
        assert!(line.len() <= budget + MOST, "{} bytes", line.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Safety: what is told is exactly what ended and was not acknowledged, however often and in whatever order.
        #[test]
        fn told_is_ended_minus_acknowledged(steps in proptest::collection::vec((0u32..8, any::<bool>()), 0..40)) {
            let (mut results, mut ended, mut acked) = (Results::default(), std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
            for (index, end) in steps {
                let attempt = report(index).attempt;
                if end {
                    results.add(report(index));
                    ended.insert(attempt);
                } else if results.ack(&attempt) {
                    acked.insert(attempt);
                }
                let told: Vec<_> = results.to_tell(MAX_LINE).into_iter().map(|r| r.attempt).collect();
                let wanted: Vec<_> = ended.difference(&acked).cloned().collect();
                prop_assert_eq!(told, wanted);
            }
        }
    }
}
