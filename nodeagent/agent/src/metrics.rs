//! Metrics of the agent: counted by the loop, which writes a page on each scrape.
//!
//! Names and labels come from `headroom_telemetry::names`. The loop is the only writer, so no lock
//! is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_telemetry::histogram::{LONG, PARTS, SHORT};
use headroom_telemetry::names::*;
use headroom_telemetry::page::{MOST_VALUES, OTHER};
use headroom_telemetry::{Histogram, MetricsPage};
use headroom_types::{Bytes, ExitReason, ExitReport, RequestId, UnixMillis};

use crate::host;

/// A timed step of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedLaunchStep {
    /// Creation of files and cgroup.
    Prepare,
    /// Start of the program.
    Start,
}

/// A failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailedOperation {
    /// Creation of files and cgroup.
    Prepare,
    /// Start of the program.
    Start,
    /// Change of size.
    Resize,
}

/// All counters of the loop.
#[derive(Debug)]
pub(crate) struct AgentMetrics {
    profiles: BTreeSet<String>,
    started: BTreeMap<String, u64>,
    /// By profile and reason.
    exited: BTreeMap<(String, &'static str), (u64, Histogram)>,
    peaks: BTreeMap<String, Histogram>,
    kills: BTreeMap<&'static str, u64>,
    detect: Histogram,
    prepare: Histogram,
    start: Histogram,
    failed: BTreeMap<FailedOperation, u64>,
}

impl AgentMetrics {
    pub(crate) fn new() -> Self {
        let (detect, prepare, start) = (
            Histogram::new(SHORT),
            Histogram::new(SHORT),
            Histogram::new(SHORT),
        );
        let (started, exited, peaks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        AgentMetrics {
            profiles: BTreeSet::new(),
            started,
            exited,
            peaks,
            kills: BTreeMap::new(),
            detect,
            prepare,
            start,
            failed: BTreeMap::new(),
        }
    }

    pub(crate) fn launched(&self, stage: TimedLaunchStep, took: Duration) {
        match stage {
            TimedLaunchStep::Prepare => self.prepare.observe(took.as_secs_f64()),
            TimedLaunchStep::Start => self.start.observe(took.as_secs_f64()),
        }
    }

    pub(crate) fn failed(&mut self, what: FailedOperation) {
        *self.failed.entry(what).or_default() += 1;
    }

    pub(crate) fn started(&mut self, request: Option<&RequestId>) {
        let profile = self.profile(request);
        *self.started.entry(profile).or_default() += 1;
    }

    /// Counts an ended container. `granted` is the time of its grant, `now` the time of its
    /// verdict.
    pub(crate) fn ended(
        &mut self,
        request: Option<&RequestId>,
        granted: Option<UnixMillis>,
        now: UnixMillis,
        report: &ExitReport,
    ) {
        let (profile, reason) = (self.profile(request), report.reason.name());
        let (count, lives) = self
            .exited
            .entry((profile.clone(), reason))
            .or_insert_with(|| (0, Histogram::new(LONG)));
        *count += 1;
        let begun = granted.or(report.started).unwrap_or(report.ended);
        lives.observe(report.ended.since(begun).as_secs_f64());
        if let (Some(peak), Some(limit)) = (
            report.evidence.own.peak,
            report.evidence.own.limit.filter(|l| !l.is_zero()),
        ) {
            self.peaks
                .entry(profile)
                .or_insert_with(|| Histogram::new(PARTS))
                .observe(part(peak, limit));
        }
        if let Some(scope) = scope(report.reason) {
            *self.kills.entry(scope).or_default() += 1;
            self.detect.observe(now.since(report.ended).as_secs_f64());
        }
    }

    /// The profile of a container, or `OTHER` if there are too many profiles.
    fn profile(&mut self, request: Option<&RequestId>) -> String {
        let profile = profile(request);
        if self.profiles.len() >= MOST_VALUES && !self.profiles.contains(profile) {
            return OTHER.to_owned();
        }
        self.profiles.insert(profile.to_owned());
        profile.to_owned()
    }

    /// Adds the counters to a page.
    pub(crate) fn put(&self, page: &mut MetricsPage) {
        for (profile, count) in &self.started {
            page.count(&NODE_STARTED, &[profile], *count);
        }
        for ((profile, reason), (count, lives)) in &self.exited {
            page.count(&NODE_EXITED, &[reason, profile], *count);
            page.spread(&NODE_LIFETIME, &[profile, reason], lives);
        }
        for (profile, peaks) in &self.peaks {
            page.spread(&NODE_PEAK_RATIO, &[profile], peaks);
        }
        for scope in ["container", "ancestor", "node", "external"] {
            page.count(
                &NODE_OOM_KILLS,
                &[scope],
                self.kills.get(scope).copied().unwrap_or_default(),
            );
        }
        page.spread(&NODE_OOM_DETECT, &[], &self.detect);
        page.spread(&NODE_LAUNCH, &["prepare"], &self.prepare);
        page.spread(&NODE_LAUNCH, &["start"], &self.start);
        for (what, op) in [
            (FailedOperation::Prepare, "prepare"),
            (FailedOperation::Start, "start"),
            (FailedOperation::Resize, "resize"),
        ] {
            page.count(
                &NODE_CGROUP_ERRORS,
                &[op],
                self.failed.get(&what).copied().unwrap_or_default(),
            );
        }
    }
}

/// The profile in a request name: `set-main` are executors of the set main, `own-map-7-r2` is task
/// 7 of stage map in its own container.
fn profile(request: Option<&RequestId>) -> &str {
    let Some(request) = request.map(RequestId::as_str) else {
        return "master";
    };
    let own = request
        .strip_prefix("own-")
        .and_then(|rest| rest.rsplit_once("-r"))
        .and_then(|(rest, _)| rest.rsplit_once('-'));
    own.map(|(stage, _)| stage)
        .or_else(|| request.strip_prefix("set-"))
        .unwrap_or(request)
}

/// The level whose memory limit or pressure killed the container. `None` if memory was not the
/// cause.
fn scope(reason: ExitReason) -> Option<&'static str> {
    match reason {
        ExitReason::HeapOom
        | ExitReason::OverheadOom
        | ExitReason::TaskOom
        | ExitReason::StalledAtLimit => Some("container"),
        ExitReason::AncestorOom => Some("ancestor"),
        ExitReason::NodeOom => Some("node"),
        ExitReason::KilledExternally => Some("external"),
        ExitReason::Stopped
        | ExitReason::Preempted
        | ExitReason::Timeout
        | ExitReason::NodeLost => None,
        ExitReason::LaunchFailed | ExitReason::Exit { .. } | ExitReason::Signal { .. } => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of two sizes")]
fn part(peak: Bytes, limit: Bytes) -> f64 {
    peak.get() as f64 / limit.get() as f64
}

/// Adds the metrics of the host. Blocking, for as long as the kernel needs to write three small
/// files.
pub(crate) fn put_host(page: &mut MetricsPage) {
    page.count(&NODE_HOST_MEMORY_USED, &[], host::memory().used.get());
    let pressure = std::fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    for (kind, seconds) in stalled(&pressure) {
        page.number(&NODE_STALLED, &[kind], seconds);
    }
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`, in microseconds. Empty if the
/// kernel reports nothing.
fn stalled(pressure: &str) -> Vec<(&'static str, f64)> {
    let total = |kind: &'static str| {
        let line = pressure.lines().find_map(|l| l.strip_prefix(kind))?;
        let micros: u64 = line.split_once("total=")?.1.trim().parse().ok()?;
        Some((kind, Duration::from_micros(micros).as_secs_f64()))
    };
    ["some", "full"].into_iter().filter_map(total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_telemetry::ExpositionFormat;

    #[test]
    fn the_profile_label_follows_from_the_request() {
        let of = |text: &str| profile(Some(&text.parse().expect("id"))).to_owned();
        assert_eq!(
            [of("set-main"), of("own-map-side-7-r2"), of("mine")],
            ["main", "map-side", "mine"]
        );
        assert_eq!(profile(None), "master");
    }

    #[test]
    fn profiles_are_bounded_and_pressure_is_read() {
        let mut counts = AgentMetrics::new();
        for n in 0..500 {
            counts.started(Some(&format!("r{n}").parse().expect("id")));
        }
        let mut page = MetricsPage::new();
        counts.put(&mut page);
        let text = page.write(ExpositionFormat::Text);
        assert!(
            text.contains("headroom_node_containers_started_total{profile=\"other\"} 300.0"),
            "{text}"
        );
        let read = stalled(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=0\n",
        );
        assert_eq!(format!("{read:?}"), r#"[("some", 1.5), ("full", 0.0)]"#);
    }
}
