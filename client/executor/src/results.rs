//! Results that the master has not acknowledged: pure.
//!
//! Owned by the executor's loop. A result is kept until it is acknowledged, and repeated on every
//! new connection. A second result of the same attempt is ignored. No result is ever dropped to
//! free space: new starts are refused instead.

use std::collections::{BTreeMap, VecDeque};

use headroom_types::{TaskAttemptId, TaskReport};

use crate::report_truncation::truncate_report;

/// Maximum number of kept results. Truncated to their smallest form, all of them fit into one line
/// of the protocol.
pub const MAX_RESULTS: usize = 200;
/// Number of acknowledged attempts that are remembered, so that a delayed start does not run an
/// attempt again.
const REMEMBERED: usize = 4096;

/// The results of an executor.
#[derive(Clone, Debug, Default)]
pub struct UnackedResults {
    unacked: BTreeMap<TaskAttemptId, TaskReport>,
    acked: VecDeque<TaskAttemptId>,
}

impl UnackedResults {
    /// Adds a result. False if the attempt already has one; the first result stands.
    pub fn add(&mut self, report: TaskReport) -> bool {
        if self.knows(&report.attempt) {
            return false;
        }
        self.unacked.insert(report.attempt.clone(), report);
        true
    }
    /// Removes an acknowledged result. False if there was none.
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
    /// True if `attempt` has ended here, acknowledged or not.
    pub fn knows(&self, attempt: &TaskAttemptId) -> bool {
        self.unacked.contains_key(attempt) || self.acked.contains(attempt)
    }
    /// Number of results that are not acknowledged.
    pub fn len(&self) -> usize {
        self.unacked.len()
    }
    /// True if all results are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.unacked.is_empty()
    }
    /// True if the results of `running` more tasks would exceed the maximum.
    pub fn is_full(&self, running: usize) -> bool {
        self.unacked.len().saturating_add(running) >= MAX_RESULTS
    }
    /// All results in at most `most` bytes of JSON. Each result gets an equal share and is
    /// truncated to it if necessary.
    pub fn for_hello(&self, most: usize) -> Vec<TaskReport> {
        let each = most / self.unacked.len().max(1);
        self.unacked
            .values()
            .map(|report| truncate_report(report, each))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_truncation::samples::{large_report, report};
    use headroom_wire::v1::task::MAX_LINE_BYTES;
    use proptest::prelude::*;

    #[test]
    fn the_first_result_is_kept_until_its_acknowledgement() {
        let mut results = UnackedResults::default();
        let first = report(1);
        assert!(results.add(first.clone()));
        let mut second = report(1);
        second.log_tail = "another".into();
        assert!(!results.add(second.clone()));
        assert_eq!(results.get(&first.attempt), Some(&first));
        assert!(results.ack(&first.attempt) && !results.ack(&first.attempt));
        assert!(results.is_empty() && results.knows(&first.attempt));
        assert!(
            !results.add(second),
            "an acknowledged attempt is not added again"
        );
    }

    #[test]
    fn the_maximum_of_largest_results_fits_into_one_line() {
        let mut results = UnackedResults::default();
        for index in 0..MAX_RESULTS {
            assert!(!results.is_full(0));
            assert!(results.add(large_report(u32::try_from(index).expect("small"))));
        }
        assert!(results.is_full(0));
        let budget = MAX_LINE_BYTES - (128 << 10);
        let listed = results.for_hello(budget);
        assert_eq!(listed.len(), MAX_RESULTS);
        let line = serde_json::to_vec(&listed).expect("writes");
        assert!(line.len() <= budget + MAX_RESULTS, "{} bytes", line.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Safety: the reported results are exactly those that ended and were not acknowledged, in
        /// any order and repetition.
        #[test]
        fn reported_results_are_ended_minus_acknowledged(steps in proptest::collection::vec((0u32..8, any::<bool>()), 0..40)) {
            let (mut results, mut ended, mut acked) = (UnackedResults::default(), std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
            for (index, end) in steps {
                let attempt = report(index).attempt;
                if end {
                    results.add(report(index));
                    ended.insert(attempt);
                } else if results.ack(&attempt) {
                    acked.insert(attempt);
                }
                let sent: Vec<_> = results.for_hello(MAX_LINE_BYTES).into_iter().map(|r| r.attempt).collect();
                let wanted: Vec<_> = ended.difference(&acked).cloned().collect();
                prop_assert_eq!(sent, wanted);
            }
        }
    }
}
