//! The results of a run of the matrix: JSON for programs and a table for users.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::case::VerdictCase;
use super::play::CaseResult;
use super::wrong::WrongVerdict;

/// The results of a run on one enforcer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MatrixResults {
    /// The enforcer.
    pub enforcer: String,
    /// Number of cases.
    pub cases: usize,
    /// Number of ended containers.
    pub rounds: u32,
    /// Number of right verdicts.
    pub right: u32,
    /// Containers in which a process was killed.
    pub kills: u32,
    /// From the end of a killed process to the report at the resource manager: median.
    /// Milliseconds.
    pub kill_to_report_p50_ms: Option<u64>,
    /// The same: 99th percentile. Milliseconds.
    pub kill_to_report_p99_ms: Option<u64>,
    /// Wrong verdicts.
    pub wrong: Vec<WrongVerdict>,
    /// One row per case.
    pub table: Vec<VerdictCaseRow>,
    /// Skipped cases with reasons.
    pub skipped: Vec<String>,
    /// Cgroups that were left at the end, and reports that contradicted an earlier one.
    pub left: Vec<String>,
}

/// The results of one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VerdictCaseRow {
    /// Its name.
    pub case: String,
    /// Number of containers by verdict.
    pub verdicts: BTreeMap<String, u32>,
    /// The right verdict.
    pub expected: String,
    /// Number of containers.
    pub rounds: u32,
    /// Number of right verdicts.
    pub right: u32,
    /// Containers in which a process was killed.
    pub kills: u32,
    /// Number of containers by the run time of the main process in milliseconds.
    pub lived: BTreeMap<u64, u32>,
    /// Number of killed containers by the delay of their report in milliseconds.
    pub report_delays: BTreeMap<u64, u32>,
    /// Number of stalled containers by the time until their end in milliseconds.
    pub stuck: BTreeMap<u64, u32>,
}

impl VerdictCaseRow {
    /// The empty row of a case.
    pub fn of(case: &VerdictCase) -> VerdictCaseRow {
        VerdictCaseRow {
            case: case.name.to_owned(),
            expected: case.expected(),
            ..VerdictCaseRow::default()
        }
    }

    /// Counts one container.
    pub(super) fn count(&mut self, played: &CaseResult) {
        *self.verdicts.entry(played.verdict.clone()).or_default() += 1;
        self.rounds += 1;
        self.right += u32::from(played.wrong.is_none());
        self.kills += u32::from(played.killed);
        if let Some(ms) = played.lived_ms {
            *self.lived.entry(ms).or_default() += 1;
        }
        if let Some(ms) = played.stuck_ms {
            *self.stuck.entry(ms).or_default() += 1;
        }
        if let Some(ms) = played.report_delay_ms.filter(|_| played.killed) {
            *self.report_delays.entry(ms).or_default() += 1;
        }
    }

    /// Minimum, median and maximum run time, and the longest stall. Milliseconds.
    fn lives(&self) -> String {
        let at = |percent| {
            quantile(&self.lived, percent).map_or_else(|| "-".to_owned(), |ms| ms.to_string())
        };
        let stuck = quantile(&self.stuck, 100)
            .map(|ms| format!(", stuck for {ms} at most"))
            .unwrap_or_default();
        format!("{}/{}/{}{stuck}", at(0), at(50), at(100))
    }
}

/// The smallest value that at least `percent` of all do not exceed; `None` without values.
fn quantile(counts: &BTreeMap<u64, u32>, percent: u64) -> Option<u64> {
    let all: u64 = counts.values().copied().map(u64::from).sum();
    let rank = (all * percent).div_ceil(100).max(1);
    let mut passed = 0;
    counts.iter().find_map(|(value, count)| {
        passed += u64::from(*count);
        (passed >= rank).then_some(*value)
    })
}

impl MatrixResults {
    /// Adds a row.
    pub fn add(&mut self, row: VerdictCaseRow, wrong: Vec<WrongVerdict>) {
        self.cases += 1;
        self.rounds += row.rounds;
        self.right += row.right;
        self.kills += row.kills;
        self.wrong.extend(wrong);
        self.table.push(row);
        let mut delays = BTreeMap::new();
        for (ms, count) in self.table.iter().flat_map(|row| &row.report_delays) {
            *delays.entry(*ms).or_default() += count;
        }
        self.kill_to_report_p50_ms = quantile(&delays, 50);
        self.kill_to_report_p99_ms = quantile(&delays, 99);
    }

    /// Adds the results of another run with the same kind of enforcer.
    pub fn join(&mut self, other: MatrixResults) {
        for row in other.table {
            self.add(row, Vec::new());
        }
        self.wrong.extend(other.wrong);
        self.skipped.extend(other.skipped);
        self.left.extend(other.left);
        self.enforcer = other.enforcer;
    }

    /// Whether all verdicts were right and nothing was left.
    pub fn is_perfect(&self) -> bool {
        self.right == self.rounds && self.wrong.is_empty() && self.left.is_empty()
    }

    /// The table as text.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:42} {:9} {:34} {:26} {:>6} {:>6} {:>6}  {}\n",
            "case",
            "enforcer",
            "verdict",
            "expected",
            "rounds",
            "right",
            "kills",
            "lived ms (least/middle/most)"
        );
        for row in &self.table {
            let verdicts: Vec<String> = match row.verdicts.len() {
                1 => row.verdicts.keys().cloned().collect(),
                _ => row
                    .verdicts
                    .iter()
                    .map(|(verdict, n)| format!("{verdict} {n}"))
                    .collect(),
            };
            let VerdictCaseRow {
                case,
                expected,
                rounds,
                right,
                kills,
                ..
            } = row;
            let lives = row.lives();
            let (enforcer, verdicts) = (&self.enforcer, verdicts.join(", "));
            let _ = writeln!(
                text,
                "{case:42} {enforcer:9} {verdicts:34} {expected:26} {rounds:>6} {right:>6} {kills:>6}  {lives}"
            );
        }
        let _ = writeln!(
            text,
            "{}: {} cases, {} rounds, {} right, {} with a kill",
            self.enforcer, self.cases, self.rounds, self.right, self.kills
        );
        if let (Some(p50), Some(p99)) = (self.kill_to_report_p50_ms, self.kill_to_report_p99_ms) {
            let _ = writeln!(
                text,
                "from a kill to its report: {p50} ms in the middle, {p99} ms for 99 of 100"
            );
        }
        for what in &self.skipped {
            let _ = writeln!(text, "SKIPPED: {what}");
        }
        for what in &self.left {
            let _ = writeln!(text, "left behind: {what}");
        }
        for w in &self.wrong {
            let _ = writeln!(
                text,
                "wrong: {}, round {}: {} ({}); {}",
                w.case, w.round, w.verdict, w.why, w.evidence
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_of_counts_is_an_existing_value() {
        let counts = BTreeMap::from([(2, 98), (5, 1), (90, 1)]);
        let at = |percent| quantile(&counts, percent);
        assert_eq!(
            (at(0), at(50), at(99), at(100)),
            (Some(2), Some(2), Some(5), Some(90))
        );
        assert_eq!(quantile(&BTreeMap::new(), 50), None);
    }
}
