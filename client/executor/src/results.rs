//! Results that the master has not acknowledged: pure.
//!
//! Owned by the executor's loop. A result is kept until it is acknowledged, and repeated on every
//! new connection. A second result of the same attempt is ignored. No result is ever dropped to
//! free space: new starts are refused instead.

use std::collections::{BTreeMap, VecDeque};

use headroom_types::{TaskAttemptId, TaskReport};

use crate::report_truncation::truncate_report;

/// Maximum number of kept results. Truncated to their smallest form, all of them without their
/// values fit into one line of the protocol.
pub const MAX_RESULTS: usize = 200;
/// Number of acknowledged attempts that are remembered, so that a delayed start does not run an
/// attempt again.
const REMEMBERED: usize = 4096;

/// Largest smallest form of a result without its value. Bytes of JSON.
const SMALLEST_REPORT: usize = 4500;

/// All results, divided between the first line of a connection and the lines after it.
#[derive(Clone, Debug, Default)]
pub struct HelloResults {
    /// Results in the first line.
    pub listed: Vec<TaskReport>,
    /// Results whose values do not fit into the first line. Each follows in a line of its own.
    pub following: Vec<TaskReport>,
}

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
    /// All results; the listed ones in at most `most` bytes of JSON. Values are never truncated:
    /// as many as fit are listed, in the order of the attempts. The rest of each listed result gets
    /// an equal share and is truncated to it if necessary.
    pub fn for_hello(&self, most: usize) -> HelloResults {
        let sizes = self.unacked.values().map(value_size);
        let without_value = sizes.clone().filter(|size| *size == 0).count();
        let (mut taken, mut values) = (without_value.saturating_mul(SMALLEST_REPORT), 0);
        let (mut listed, mut following) = (Vec::new(), Vec::new());
        for (report, size) in self.unacked.values().zip(sizes) {
            let needed = SMALLEST_REPORT.saturating_add(size);
            if size == 0 {
                listed.push((report, size));
            } else if taken.saturating_add(needed) <= most {
                (taken, values) = (taken + needed, values + size);
                listed.push((report, size));
            } else {
                following.push(report.clone());
            }
        }
        let each = most.saturating_sub(values) / listed.len().max(1);
        let listed = listed
            .into_iter()
            .map(|(report, size)| truncate_report(report, each + size))
            .collect();
        HelloResults { listed, following }
    }
}

/// Size of the value of a report. Bytes of JSON.
fn value_size(report: &TaskReport) -> usize {
    report.value.as_ref().map_or(0, |value| {
        serde_json::to_vec(value).map_or(0, |json| json.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_truncation::samples::{large_report, report};
    use headroom_wire::v1::submission::MAX_VALUE_BYTES;
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
        let HelloResults { listed, following } = results.for_hello(budget);
        assert!(following.is_empty(), "a result without a value is listed");
        assert_eq!(listed.len(), MAX_RESULTS);
        let line = serde_json::to_vec(&listed).expect("writes");
        assert!(line.len() <= budget + MAX_RESULTS, "{} bytes", line.len());
    }

    /// Values in the longest and in the shortest form of JSON.
    #[test]
    fn values_are_never_truncated_and_follow_if_they_do_not_fit() {
        for (text, count) in [("\u{1}", MAX_RESULTS), ("v", MAX_RESULTS), ("v", 20)] {
            let mut results = UnackedResults::default();
            for index in 0..count {
                let mut large = large_report(u32::try_from(index).expect("small"));
                large.value = (index % 2 == 0).then(|| text.repeat(MAX_VALUE_BYTES));
                assert!(results.add(large));
            }
            let budget = MAX_LINE_BYTES - (128 << 10);
            let HelloResults { listed, following } = results.for_hello(budget);
            let line = serde_json::to_vec(&listed).expect("writes");
            assert!(line.len() <= budget + MAX_RESULTS, "{} bytes", line.len());
            assert_eq!(listed.len() + following.len(), count);
            assert_eq!(following.is_empty(), count == 20);
            let values = listed
                .iter()
                .chain(&following)
                .filter_map(|r| r.value.as_ref());
            let whole = values
                .filter(|value| value.len() == MAX_VALUE_BYTES)
                .count();
            assert_eq!(whole, count / 2);
        }
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
                let sent: Vec<_> = results.for_hello(MAX_LINE_BYTES).listed.into_iter().map(|r| r.attempt).collect();
                let wanted: Vec<_> = ended.difference(&acked).cloned().collect();
                prop_assert_eq!(sent, wanted);
            }
        }
    }
}
