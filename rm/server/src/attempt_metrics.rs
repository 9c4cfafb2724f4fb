//! Attempt metrics: statistics of task attempts, counted when a row from a master shows something
//! new.
//!
//! The job rows own them. They count only events of this incarnation. A master that reports all
//! rows again after a restart therefore causes no double counts.

use std::collections::{BTreeMap, BTreeSet};

use headroom_config::MetricsGranularity;
use headroom_telemetry::histogram::PARTS;
use headroom_telemetry::names::*;
use headroom_telemetry::page::{MOST_VALUES, OTHER};
use headroom_telemetry::{Histogram, MetricsPage};
use headroom_types::{AppId, Bytes, ExitCharge, TaskId, UnixMillis};
use headroom_wire::v1::job::{AttemptRow, TaskRow};

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// Number of minutes that are kept.
const KEPT: usize = 120;

/// Counters by profile, and by application if the configured granularity is that fine.
#[derive(Debug)]
pub(crate) struct AttemptMetrics {
    since: UnixMillis,
    fine: MetricsGranularity,
    profiles: BTreeSet<String>,
    /// Live applications with a label of their own.
    own: BTreeSet<AppId>,
    /// Live applications without a label of their own, because the limit was reached: their counts
    /// stay under the label of all others.
    others: BTreeSet<AppId>,
    /// By application (empty: all) and profile.
    of: BTreeMap<(String, String), ProfileMetrics>,
    peaks: BTreeMap<String, Histogram>,
    /// Dropped trace spans, by application (empty: all).
    spans: BTreeMap<String, u64>,
    /// Recently wasted memory, by the minute of the attempt's end. Byte-milliseconds.
    wasted_by_minute: BTreeMap<u64, u128>,
}

/// Counters of one profile.
#[derive(Clone, Debug, Default, PartialEq)]
struct ProfileMetrics {
    outcomes: BTreeMap<&'static str, u64>,
    escalations: BTreeMap<(u32, u32), u64>,
    exhausted: u64,
    recovered: u64,
    grown: u64,
    /// Byte-milliseconds.
    wasted: u128,
    /// Byte-milliseconds.
    over: u128,
}

impl AttemptMetrics {
    /// Creates counters at zero. Attempts that ended before `since` belong to an earlier
    /// incarnation.
    pub(crate) fn new(since: UnixMillis, fine: MetricsGranularity) -> Self {
        let (profiles, own, others) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (of, peaks, spans, wasted_by_minute) = (
            BTreeMap::new(),
            BTreeMap::new(),
            BTreeMap::new(),
            BTreeMap::new(),
        );
        AttemptMetrics {
            since,
            fine,
            profiles,
            own,
            others,
            of,
            peaks,
            spans,
            wasted_by_minute,
        }
    }

    /// Counts the difference between two versions of a row.
    pub(crate) fn row(&mut self, app: &AppId, before: Option<&TaskRow>, row: &TaskRow) {
        let profile = self.profile(row.task.stage.as_str());
        let since = self.since;
        let job = self.job(app);
        let counts = self.of.entry((job, profile.clone())).or_default();
        let known = |a: &AttemptRow| {
            before.and_then(|b| b.attempts.iter().find(|old| old.attempt == a.attempt))
        };
        let mut earlier: Option<&AttemptRow> = None;
        let mut killed = false;
        for attempt in &row.attempts {
            let old = known(attempt);
            if let Some(from) = earlier
                .filter(|e| old.is_none() && attempt.started >= since && attempt.rung > e.rung)
            {
                *counts
                    .escalations
                    .entry((from.rung, attempt.rung))
                    .or_default() += 1;
            }
            counts.grown +=
                count(attempt.grown.len()).saturating_sub(old.map_or(0, |o| count(o.grown.len())));
            if attempt.ended.is_some_and(|at| at >= since) && old.is_none_or(|o| o.ended.is_none())
            {
                let wasted = counts.ended(attempt, killed);
                *self
                    .wasted_by_minute
                    .entry(attempt.ended.unwrap_or(since).0 / MINUTE_MS)
                    .or_default() += wasted;
                while self.wasted_by_minute.len() > KEPT {
                    self.wasted_by_minute.pop_first();
                }
                if let Some(ratio) = peak_ratio(attempt) {
                    self.peaks
                        .entry(profile.clone())
                        .or_insert_with(|| Histogram::new(PARTS))
                        .observe(ratio);
                }
            }
            killed |= attempt
                .reason
                .is_some_and(|r| r.charge() == ExitCharge::Memory);
            earlier = Some(attempt);
        }
    }

    /// Memory × time of attempts that ended without success in the hour before `now`, accurate to
    /// the minute. Byte-seconds.
    pub(crate) fn wasted_in_last_hour(&self, now: UnixMillis) -> u64 {
        let first = (now.0 / MINUTE_MS).saturating_sub(60);
        let byte_ms = self
            .wasted_by_minute
            .range(first..)
            .fold(0_u128, |sum, (_, wasted)| sum.saturating_add(*wasted));
        u64::try_from(byte_ms / 1000).unwrap_or(u64::MAX)
    }

    /// Counts a task that failed because no larger size exists.
    pub(crate) fn exhausted(&mut self, app: &AppId, task: &str) {
        let stage = task
            .parse::<TaskId>()
            .map_or_else(|_| OTHER.to_owned(), |t| t.stage.to_string());
        let profile = self.profile(&stage);
        let job = self.job(app);
        self.of.entry((job, profile)).or_default().exhausted += 1;
    }

    /// Counts dropped trace spans. Each application attempt counts from zero.
    pub(crate) fn spans(&mut self, app: &AppId, before: u64, now: u64) {
        let more = now.checked_sub(before).unwrap_or(now);
        if more > 0 {
            let job = self.job(app);
            *self.spans.entry(job).or_default() += more;
        }
    }

    /// Removes the series of an application that has ended.
    pub(crate) fn forget(&mut self, app: &AppId) {
        self.others.remove(app);
        if self.own.remove(app) {
            let app = app.to_string();
            self.of.retain(|(job, _), _| *job != app);
            self.spans.remove(&app);
        }
    }

    /// Label of an application: empty if the granularity is coarser, and the label of all others
    /// above the limit.
    pub(crate) fn job(&mut self, app: &AppId) -> String {
        match self.fine {
            MetricsGranularity::Profile => return String::new(),
            MetricsGranularity::Job | MetricsGranularity::Task => {}
        }
        if !self.own.contains(app) && (self.own.len() >= MOST_VALUES || self.others.contains(app)) {
            self.others.insert(app.clone());
            return OTHER.to_owned();
        }
        self.own.insert(app.clone());
        app.to_string()
    }

    /// Label of a profile: its name, or the label of all others above the limit.
    fn profile(&mut self, stage: &str) -> String {
        if self.profiles.len() >= MOST_VALUES && !self.profiles.contains(stage) {
            return OTHER.to_owned();
        }
        self.profiles.insert(stage.to_owned());
        stage.to_owned()
    }

    /// Adds the metrics to the page.
    pub(crate) fn put(&self, page: &mut MetricsPage) {
        for ((job, profile), counts) in &self.of {
            let labels = [job.as_str(), profile.as_str()];
            for (outcome, n) in &counts.outcomes {
                page.count(&AM_ATTEMPTS, &[job, profile, outcome], *n);
            }
            for ((from, to), n) in &counts.escalations {
                page.count(
                    &AM_ESCALATIONS,
                    &[job, profile, &from.to_string(), &to.to_string()],
                    *n,
                );
            }
            page.count(&AM_EXHAUSTED, &labels, counts.exhausted);
            page.count(&AM_RECOVERED, &labels, counts.recovered);
            page.count(&AM_GROWN, &labels, counts.grown);
            page.number(&AM_WASTED, &labels, byte_seconds(counts.wasted));
            page.number(&AM_OVERALLOCATED, &labels, byte_seconds(counts.over));
        }
        for (job, spans) in &self.spans {
            page.count(&AM_SPANS_DROPPED, &[job], *spans);
        }
        for (profile, peaks) in &self.peaks {
            page.spread(&AM_PEAK_RATIO, &[profile], peaks);
        }
    }
}

impl ProfileMetrics {
    /// Counts the end of an attempt; `killed` if an earlier attempt was killed for memory. Returns
    /// the wasted memory. Byte-milliseconds.
    fn ended(&mut self, attempt: &AttemptRow, killed: bool) -> u128 {
        let (Some(reason), Some(ended)) = (attempt.reason, attempt.ended) else {
            return 0;
        };
        *self.outcomes.entry(reason.name()).or_default() += 1;
        let (size, ms) = (
            u128::from(attempt.profile.memory().get()),
            ended.since(attempt.started).as_millis(),
        );
        match reason.charge() {
            ExitCharge::Success => {
                self.recovered += u64::from(killed);
                let unused = attempt
                    .peak
                    .map_or(0, |peak| size.saturating_sub(u128::from(peak.get())));
                self.over = self.over.saturating_add(unused.saturating_mul(ms));
                0
            }
            ExitCharge::Memory | ExitCharge::Plain | ExitCharge::Free => {
                let wasted = size.saturating_mul(ms);
                self.wasted = self.wasted.saturating_add(wasted);
                wasted
            }
        }
    }
}

/// Ratio of peak to size, for successful attempts only: the peak of a killed attempt is not the
/// need of the task.
fn peak_ratio(attempt: &AttemptRow) -> Option<f64> {
    let size = attempt.profile.memory();
    let well = attempt
        .reason
        .is_some_and(|r| r.charge() == ExitCharge::Success);
    attempt
        .peak
        .filter(|_| well && !size.is_zero())
        .map(|peak| part(peak, size))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of two sizes")]
fn part(peak: Bytes, size: Bytes) -> f64 {
    peak.get() as f64 / size.get() as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "scrapers read floating point numbers"
)]
fn byte_seconds(byte_ms: u128) -> f64 {
    byte_ms as f64 / 1000.0
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_telemetry::ExpositionFormat;
    use headroom_types::{Cpus, ExitReason, Profile};
    use headroom_wire::v1::job::TaskState;

    fn attempt(n: u32, rung: u32, end: Option<(u64, ExitReason)>) -> AttemptRow {
        AttemptRow {
            attempt: format!("map/7@{n}").parse().expect("id"),
            profile: profile(1000 * u64::from(rung)),
            slots: 1,
            rung,
            container: "wordcount.7.e1.c1".parse().expect("id"),
            node: "n1".parse().expect("id"),
            started: UnixMillis(10_000),
            ended: end.map(|(at, _)| UnixMillis(at)),
            peak: Some(Bytes::new(500)),
            used: None,
            reason: end.map(|(_, reason)| reason),
            dimension: None,
            evidence: None,
            diagnosis: Vec::new(),
            decision: String::new(),
            timeline: Vec::new(),
            log_tail: String::new(),
            grown: Vec::new(),
            why: String::new(),
            shadow: None,
            input: None,
            treatment: None,
            remedies: Vec::new(),
            log_marker: None,
            silent: false,
        }
    }
    fn profile(memory: u64) -> Profile {
        Profile {
            heap: Bytes::ZERO,
            overhead: Bytes::new(memory),
            cpus: Cpus::from_cores(1),
        }
    }
    fn row(attempts: Vec<AttemptRow>) -> TaskRow {
        let task = "map/7".parse().expect("id");
        TaskRow {
            task,
            state: TaskState::Running,
            profile: profile(1000),
            rung: 1,
            note: String::new(),
            attempts,
            frozen: None,
            ahead: Vec::new(),
            priority: 0,
            tags: Default::default(),
        }
    }
    fn text(tallies: &AttemptMetrics) -> String {
        let mut page = MetricsPage::new();
        tallies.put(&mut page);
        page.write(ExpositionFormat::Text)
    }

    #[test]
    fn each_attempt_of_a_row_is_counted_once() {
        let app: AppId = "wordcount.7".parse().expect("id");
        let mut tallies = AttemptMetrics::new(UnixMillis(5_000), MetricsGranularity::Job);
        let oom = Some((12_000, ExitReason::OverheadOom));
        let first = row(vec![attempt(1, 1, None)]);
        let killed = row(vec![attempt(1, 1, oom)]);
        let again = row(vec![attempt(1, 1, oom), attempt(2, 2, None)]);
        let done = row(vec![
            attempt(1, 1, oom),
            attempt(2, 2, Some((13_000, ExitReason::Exit { code: 0 }))),
        ]);
        let mut before = None;
        for now in [&first, &killed, &killed, &again, &done, &done] {
            tallies.row(&app, before, now);
            before = Some(now);
        }
        // 1000 bytes for two seconds; the attempt ended at second 12.
        let wasted = |s: u64| tallies.wasted_in_last_hour(UnixMillis(s * 1000));
        assert_eq!((wasted(14), wasted(3600), wasted(3670)), (2000, 2000, 0));
        let text = text(&tallies);
        for line in [
            "headroom_am_task_attempts_total{job=\"wordcount.7\",profile=\"map\",outcome=\"overhead_oom\"} 1.0",
            "headroom_am_task_attempts_total{job=\"wordcount.7\",profile=\"map\",outcome=\"exit\"} 1.0",
            "headroom_am_escalations_total{job=\"wordcount.7\",profile=\"map\",from_rung=\"1\",to_rung=\"2\"} 1.0",
            "headroom_am_recovered_tasks_total{job=\"wordcount.7\",profile=\"map\"} 1.0",
            "headroom_am_wasted_memory_byte_seconds_total{job=\"wordcount.7\",profile=\"map\"} 2000.0",
            "headroom_am_overallocated_memory_byte_seconds_total{job=\"wordcount.7\",profile=\"map\"} 4500.0",
            "headroom_am_attempt_peak_ratio_count{profile=\"map\"} 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    fn labels(text: &str, name: &str) -> BTreeSet<String> {
        let of = text
            .lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.split("job=\"").nth(1));
        of.filter_map(|rest| rest.split('"').next())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn series_of_single_jobs_are_bounded_and_end_with_their_job() {
        for fine in [MetricsGranularity::Job, MetricsGranularity::Task] {
            let mut tallies = AttemptMetrics::new(UnixMillis(5_000), fine);
            let app = |n: usize| -> AppId { format!("job.{n}").parse().expect("id") };
            let killed = row(vec![attempt(1, 1, Some((12_000, ExitReason::OverheadOom)))]);
            (1..=3 * MOST_VALUES).for_each(|n| tallies.row(&app(n), None, &killed));
            let name = "headroom_am_task_attempts_total";
            let seen = labels(&text(&tallies), name);
            assert_eq!((seen.len(), seen.contains(OTHER)), (MOST_VALUES + 1, true));
            let others = format!(
                "{name}{{job=\"other\",profile=\"map\",outcome=\"overhead_oom\"}} {}.0",
                2 * MOST_VALUES
            );
            assert!(text(&tallies).contains(&others), "{others}");
            tallies.forget(&app(1));
            assert!(!labels(&text(&tallies), name).contains("job.1"));
            tallies.row(&app(3 * MOST_VALUES), Some(&killed), &killed);
            assert_eq!(
                tallies.job(&app(3 * MOST_VALUES)),
                OTHER,
                "a job keeps its label when a label becomes free"
            );
            tallies.forget(&app(3 * MOST_VALUES));
            assert!(
                text(&tallies).contains(&others),
                "the count of all other jobs stays"
            );
            tallies.row(&app(9999), None, &killed);
            assert!(
                labels(&text(&tallies), name).contains("job.9999"),
                "a new job takes the free label"
            );
        }
        let mut coarse = AttemptMetrics::new(UnixMillis(5_000), MetricsGranularity::Profile);
        coarse.row(
            &"job.1".parse().expect("id"),
            None,
            &row(vec![attempt(1, 1, None)]),
        );
        assert!(labels(&text(&coarse), "headroom_am").is_empty());
    }

    #[test]
    fn earlier_attempts_are_not_counted_and_profiles_are_bounded() {
        let app: AppId = "wordcount.7".parse().expect("id");
        let mut tallies = AttemptMetrics::new(UnixMillis(50_000), MetricsGranularity::Profile);
        let old = row(vec![
            attempt(1, 1, Some((12_000, ExitReason::OverheadOom))),
            attempt(2, 2, None),
        ]);
        tallies.row(&app, None, &old);
        assert!(
            !text(&tallies).contains("headroom_am_escalations_total{")
                && !text(&tallies).contains("outcome=")
        );
        for n in 0..500 {
            tallies.exhausted(&app, &format!("stage{n}/0"));
        }
        let text = text(&tallies);
        assert!(
            text.contains("headroom_am_escalations_exhausted_total{profile=\"other\"} 301.0"),
            "{text}"
        );
    }
}
