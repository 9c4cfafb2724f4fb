//! The sizes of inputs: planned bytes, and the ratios of read to planned bytes of ended attempts.
//! Part of the learned data, durable through records; it never reads a file.

use std::collections::{BTreeMap, VecDeque};

use headroom_types::Bytes;
use headroom_wire::v1::job::{AttemptInput, AttemptRow, InputGap};

use crate::taskset::TaskPosition;

/// Bytes that a program reads for itself: code, settings, pipes.
const OWN_READ_BYTES: Bytes = Bytes::from_mib(4);

/// Number of attempts of a kind, the most recent ones, from which the ratio of read to planned
/// bytes is computed.
const MAX_RATIOS: usize = 64;
/// Minimum number of attempts for such a ratio.
const MIN_RATIOS: usize = 3;

/// The sizes of all inputs: the planned sizes and the ratios of read to planned bytes. Durable
/// state of the core.
#[derive(Clone, Debug)]
pub(super) struct JobInputSizes {
    /// For each stage, the size for each task; empty if it is neither stated nor measured.
    planned: Vec<Vec<Option<Bytes>>>,
    /// For each stage, the index of the first stage of the same kind.
    kind_of: Vec<usize>,
    /// For each kind, the ratios of read to planned bytes, the oldest first; 1 where there is no
    /// gap.
    ratios: BTreeMap<usize, VecDeque<f64>>,
}

impl JobInputSizes {
    pub(super) fn new(planned: Vec<Vec<Option<Bytes>>>, kind_of: Vec<usize>) -> JobInputSizes {
        JobInputSizes {
            planned,
            kind_of,
            ratios: BTreeMap::new(),
        }
    }
    /// Adds a stage without known inputs; `kind` is the first stage of the same kind.
    pub(super) fn add_stage(&mut self, kind: usize) {
        self.planned.push(Vec::new());
        self.kind_of.push(kind);
    }
    /// Records the measured inputs of a stage.
    pub(super) fn measured(&mut self, stage: usize, sizes: &[Option<Bytes>]) {
        if let Some(planned) = self.planned.get_mut(stage) {
            *planned = sizes.to_vec();
        }
    }
    /// True for a stage whose inputs are neither stated nor measured.
    pub(super) fn are_unknown(&self, stage: usize) -> bool {
        self.planned.get(stage).is_some_and(Vec::is_empty)
    }
    /// The input size of a task, stated in the job file or measured.
    pub(super) fn planned(&self, key: TaskPosition) -> Option<Bytes> {
        self.planned
            .get(key.stage)?
            .get(usize::try_from(key.index).ok()?)
            .copied()
            .flatten()
    }
    /// The bytes that a task is expected to read: the planned size times the median ratio of its
    /// kind.
    pub(super) fn expected(&self, key: TaskPosition) -> Option<Bytes> {
        let planned = self.planned(key)?;
        let ratio = self
            .kind_of
            .get(key.stage)
            .and_then(|kind| self.ratios.get(kind))
            .map_or(1.0, median);
        Some(if (ratio - 1.0).abs() < f64::EPSILON {
            planned
        } else {
            times(planned, ratio)
        })
    }
    /// The input size of a finished attempt: the read bytes if they differ much from the plan, else
    /// the planned size.
    pub(super) fn actual(&self, key: TaskPosition, row: &AttemptRow) -> Option<Bytes> {
        let seen = row.input.as_ref().and_then(far_from_planned);
        self.planned(key).map(|planned| seen.unwrap_or(planned))
    }
    /// Records the ratio of an attempt that succeeded.
    pub(super) fn ended(&mut self, key: TaskPosition, row: &AttemptRow) {
        let (Some(kind), Some(input)) = (self.kind_of.get(key.stage), &row.input) else {
            return;
        };
        let Some(planned) = input.planned.filter(|_| input.read.is_some()) else {
            return;
        };
        let ratios = self.ratios.entry(*kind).or_default();
        ratios.push_back(far_from_planned(input).map_or(1.0, |read| ratio(read, planned)));
        if ratios.len() > MAX_RATIOS {
            ratios.pop_front();
        }
    }
}

/// The read bytes, if they differ much from the plan and describe the input. A program that reads
/// less than [`OWN_READ_BYTES`] maps its input or lets other processes read it; its number is then
/// the same for large and small inputs.
fn far_from_planned(input: &AttemptInput) -> Option<Bytes> {
    input
        .read
        .filter(|read| input.gap.is_some() && *read > OWN_READ_BYTES)
}

fn median(ratios: &VecDeque<f64>) -> f64 {
    let mut sorted: Vec<f64> = ratios.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() < MIN_RATIOS {
        1.0
    } else {
        sorted.get(sorted.len() / 2).copied().unwrap_or(1.0)
    }
}
#[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
fn ratio(read: Bytes, planned: Bytes) -> f64 {
    read.get() as f64 / planned.get().max(1) as f64
}
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // as above
fn times(planned: Bytes, ratio: f64) -> Bytes {
    Bytes::new((planned.get() as f64 * ratio).min(1e18) as u64)
}

/// The gap between planned and read bytes: more than 1.5 times as many, or fewer than two thirds.
/// An attempt that was killed may have read too little, so it shows no gap of the second kind.
pub(super) fn gap(planned: Bytes, read: Bytes, whole: bool) -> Option<InputGap> {
    let far = |less: Bytes, more: Bytes| more > less.mul_ratio(3, 2).saturating_add(OWN_READ_BYTES);
    if far(planned, read) {
        Some(InputGap::More)
    } else if whole && far(read, planned) {
        Some(InputGap::Less)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TaskPosition = TaskPosition { stage: 0, index: 0 };

    fn read(planned: u64, read: u64) -> AttemptRow {
        let (planned, read) = (Bytes::from_mib(planned), Bytes::from_mib(read));
        let input = AttemptInput {
            planned: Some(planned),
            read: Some(read),
            locality: None,
            gap: gap(planned, read, true),
        };
        let mut row: AttemptRow = serde_json::from_value(serde_json::json!({
            "attempt": "map/0@1", "profile": {"heap": 1, "overhead": 0, "cpus": 1}, "slots": 1, "rung": 1,
            "container": "job.1.e1.c1", "node": "n1", "started": 1, "ended": 2, "peak": null, "used": null,
            "reason": null, "dimension": null, "evidence": null,
        }))
        .expect("a row");
        row.input = Some(input);
        row
    }

    #[test]
    fn expected_input_follows_the_read_ratio_of_the_kind() {
        let mut inputs = JobInputSizes::new(vec![vec![Some(Bytes::from_mib(100))]], vec![0]);
        for _ in 0..3 {
            assert_eq!(inputs.expected(ONE), Some(Bytes::from_mib(100)));
            inputs.ended(ONE, &read(200, 400));
        }
        assert_eq!(inputs.expected(ONE), Some(Bytes::from_mib(200)));
        for _ in 0..4 {
            inputs.ended(ONE, &read(200, 205));
        }
        assert_eq!(
            inputs.expected(ONE),
            Some(Bytes::from_mib(100)),
            "most attempts read as much as planned"
        );
        for _ in 0..MAX_RATIOS {
            inputs.ended(ONE, &read(200, 1));
        }
        assert_eq!(
            inputs.expected(ONE),
            Some(Bytes::from_mib(100)),
            "without ratios only the plan is known"
        );
    }

    #[test]
    fn a_finished_task_teaches_read_bytes_that_differ_from_the_plan() {
        let inputs = JobInputSizes::new(vec![vec![Some(Bytes::from_mib(100))]], vec![0]);
        assert_eq!(
            inputs.actual(ONE, &read(100, 104)),
            Some(Bytes::from_mib(100))
        );
        assert_eq!(
            inputs.actual(ONE, &read(100, 800)),
            Some(Bytes::from_mib(800))
        );
        assert_eq!(
            inputs.actual(ONE, &read(100, 20)),
            Some(Bytes::from_mib(20))
        );
        assert_eq!(
            inputs.actual(ONE, &read(100, 3)),
            Some(Bytes::from_mib(100)),
            "it mapped its input"
        );
        let unknown = JobInputSizes::new(vec![vec![None]], vec![0]);
        assert_eq!(
            unknown.actual(ONE, &read(100, 800)),
            None,
            "the next tasks have no planned input either"
        );
    }

    #[test]
    fn a_gap_is_a_factor_above_one_and_a_half_in_either_direction() {
        let of = |planned, read, whole| gap(Bytes::from_mib(planned), Bytes::from_mib(read), whole);
        assert_eq!(
            of(100, 154, true),
            None,
            "additional reads of the program are no gap"
        );
        assert_eq!(of(100, 155, true), Some(InputGap::More));
        assert_eq!(of(100, 155, false), Some(InputGap::More));
        assert_eq!(
            (of(155, 100, true), of(154, 100, true)),
            (Some(InputGap::Less), None)
        );
        assert_eq!(
            of(155, 100, false),
            None,
            "a killed attempt has not read all of its input"
        );
        assert_eq!(of(1, 5, true), None);
    }
}
