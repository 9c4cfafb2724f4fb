//! The spans of a job's trace: one for the job, one in it for each task, and one in that for each
//! attempt. Values only.
//!
//! Ids are derived from the journal's secret and the ids of the job. Every run of the master
//! therefore continues the same trace without a record of the sent spans.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headroom_types::{Bytes, ExitCharge, ExitReason, UnixMillis};
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};
use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sha2::{Digest as _, Sha256};

/// The names of Headroom's own attributes; [observing](../../../../docs/observing.md) describes
/// each of them. Attributes of OpenTelemetry's own conventions (`host.name`, `container.id`,
/// `error.type`, `process.exit.code`, `exception.type`, `exception.message`) are used where they
/// fit.
pub mod names {
    /// The application.
    pub const APP: &str = "headroom.app";
    /// The mode for memory failures.
    pub const MODE: &str = "headroom.mode";
    /// Tasks of the job.
    pub const TASKS: &str = "headroom.tasks";
    /// Attempts that ended with a memory failure.
    pub const MEMORY_KILLS: &str = "headroom.memory_kills";
    /// The task.
    pub const TASK: &str = "headroom.task";
    /// Its stage.
    pub const STAGE: &str = "headroom.stage";
    /// The attempt.
    pub const ATTEMPT: &str = "headroom.attempt";
    /// Number of attempts.
    pub const ATTEMPTS: &str = "headroom.attempts";
    /// The rung; 1 for the size of the stage.
    pub const RUNG: &str = "headroom.rung";
    /// Slots of its executor.
    pub const SLOTS: &str = "headroom.slots";
    /// Heap and overhead, bytes.
    pub const LIMIT: &str = "headroom.limit_bytes";
    /// Heap, bytes.
    pub const HEAP: &str = "headroom.heap_bytes";
    /// Overhead, bytes.
    pub const OVERHEAD: &str = "headroom.overhead_bytes";
    /// Peak memory, bytes.
    pub const PEAK: &str = "headroom.peak_bytes";
    /// The verdict.
    pub const VERDICT: &str = "headroom.verdict";
    /// The quantity that ran out.
    pub const DIMENSION: &str = "headroom.dimension";
    /// The first sub-cause of the diagnosis.
    pub const DIAGNOSIS: &str = "headroom.diagnosis";
    /// The decision after the end.
    pub const DECISION: &str = "headroom.decision";
    /// The reason for the size; on a link, the reason for the attempt after the linked one.
    pub const WHY: &str = "headroom.why";
    /// Memory before a growth step, bytes.
    pub const FROM: &str = "headroom.from_bytes";
    /// Memory after a growth step, bytes.
    pub const TO: &str = "headroom.to_bytes";
    /// Time from the pressure message to the new limit, microseconds.
    pub const FROZEN: &str = "headroom.frozen_us";
    /// All names.
    pub const ALL: [&str; 22] = [
        APP,
        MODE,
        TASKS,
        MEMORY_KILLS,
        TASK,
        STAGE,
        ATTEMPT,
        ATTEMPTS,
        RUNG,
        SLOTS,
        LIMIT,
        HEAP,
        OVERHEAD,
        PEAK,
        VERDICT,
        DIMENSION,
        DIAGNOSIS,
        DECISION,
        WHY,
        FROM,
        TO,
        FROZEN,
    ];
}

/// Span event: a running attempt got more memory.
pub const GROWN: &str = "headroom.grown";
/// Span event: the attempt failed.
const EXCEPTION: &str = "exception";
/// Verdict of an attempt that was running when its job ended.
const UNFINISHED: &str = "unfinished";

/// The identity of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceIdentity {
    app: String,
    trace: TraceId,
}

/// The job as a whole, at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpanFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// The mode for memory failures.
    pub mode: &'a str,
    /// Number of tasks.
    pub tasks: u32,
    /// Attempts that ended with a memory failure.
    pub memory_kills: u32,
    /// Start time.
    pub began: UnixMillis,
    /// End time.
    pub ended: UnixMillis,
    /// The reason of a failure; `None` after success.
    pub failure: Option<&'a str>,
}

impl TraceIdentity {
    /// The ids of this application's trace; the secret distinguishes it from one of the same name
    /// in another cluster.
    pub fn new(app: &str, secret: &str) -> Self {
        TraceIdentity {
            app: app.to_owned(),
            trace: TraceId::from_bytes(first(&["trace", app, secret])),
        }
    }

    /// The trace.
    pub fn trace(&self) -> TraceId {
        self.trace
    }

    fn span(&self, what: &str) -> SpanId {
        let trace = self.trace.to_string();
        SpanId::from_bytes(first(&["span", &trace, what]))
    }

    fn context(&self, what: &str) -> SpanContext {
        SpanContext::new(
            self.trace,
            self.span(what),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        )
    }

    /// The span of the job.
    pub fn job(&self, job: &JobSpanFacts<'_>) -> SpanData {
        let attributes = vec![
            KeyValue::new(names::APP, self.app.clone()),
            KeyValue::new(names::MODE, job.mode.to_owned()),
            number(names::TASKS, u64::from(job.tasks)),
            number(names::MEMORY_KILLS, u64::from(job.memory_kills)),
        ];
        let status = job
            .failure
            .map_or(Status::Ok, |why| Status::error(why.to_owned()));
        let span = self.made(
            "job",
            format!("job {}", job.name),
            (job.began, job.ended),
            attributes,
        );
        SpanData {
            status,
            parent_span_id: SpanId::INVALID,
            ..span
        }
    }

    /// The span of a task, from its first attempt to the end of its last; `None` without an
    /// attempt.
    pub fn task(&self, row: &TaskRow, now: UnixMillis) -> Option<SpanData> {
        let (first, last) = (row.attempts.first()?, row.attempts.last()?);
        let id = row.task.to_string();
        let mut attributes = vec![
            KeyValue::new(names::TASK, id.clone()),
            KeyValue::new(names::STAGE, row.task.stage.to_string()),
            number(
                names::ATTEMPTS,
                u64::try_from(row.attempts.len()).unwrap_or(u64::MAX),
            ),
            number(names::RUNG, u64::from(row.rung)),
        ];
        attributes.extend(size(row.profile.heap, row.profile.overhead));
        let status = match row.state {
            TaskState::Done => Status::Ok,
            TaskState::Failed => Status::error(row.note.clone()),
            TaskState::Blocked | TaskState::Pending | TaskState::Running => {
                Status::error(UNFINISHED)
            }
        };
        let times = (first.started, last.ended.unwrap_or(now));
        let span = self.made(&id, format!("task {}", row.task.stage), times, attributes);
        Some(SpanData {
            status,
            parent_span_id: self.span("job"),
            ..span
        })
    }

    /// The span of an attempt; `before` is the attempt before it.
    pub fn attempt(
        &self,
        row: &AttemptRow,
        before: Option<&AttemptRow>,
        now: UnixMillis,
    ) -> SpanData {
        let id = row.attempt.to_string();
        let ended = row.ended.unwrap_or(now);
        let name = format!("attempt {}", row.attempt.task.stage);
        let span = self.made(&id, name, (row.started, ended), attempt_attributes(row));
        let mut events = SpanEvents::default();
        events.events.extend(row.grown.iter().map(|grown| {
            let mut attributes = vec![bytes(names::FROM, grown.from), bytes(names::TO, grown.to)];
            attributes.extend(grown.frozen_us.map(|us| number(names::FROZEN, us)));
            Event::new(GROWN, time(grown.at), attributes, 0)
        }));
        let failure = row
            .reason
            .filter(|reason| reason.charge() != ExitCharge::Success);
        events.events.extend(failure.map(|reason| {
            let attributes = vec![
                KeyValue::new("exception.type", reason.name()),
                KeyValue::new("exception.message", reason.sentence()),
            ];
            Event::new(EXCEPTION, time(ended), attributes, 0)
        }));
        let mut links = SpanLinks::default();
        links.links.extend(before.map(|before| {
            let why = if before.decision.is_empty() {
                row.why.clone()
            } else {
                before.decision.clone()
            };
            let verdict = before.reason.map_or(UNFINISHED, |reason| reason.name());
            let attributes = vec![
                KeyValue::new(names::VERDICT, verdict),
                KeyValue::new(names::WHY, why),
            ];
            Link::new(self.context(&before.attempt.to_string()), attributes, 0)
        }));
        let status = match (row.ended, failure) {
            (None, _) => Status::Unset,
            (Some(_), Some(reason)) => Status::error(reason.sentence()),
            (Some(_), None) => Status::Ok,
        };
        let parent_span_id = self.span(&row.attempt.task.to_string());
        SpanData {
            status,
            parent_span_id,
            events,
            links,
            ..span
        }
    }

    fn made(
        &self,
        what: &str,
        name: String,
        (from, to): (UnixMillis, UnixMillis),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        SpanData {
            span_context: self.context(what),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Owned(name),
            start_time: time(from),
            // Clocks may differ; no span ends before it starts.
            end_time: time(to.max(from)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("headroom-appmaster")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

fn attempt_attributes(row: &AttemptRow) -> Vec<KeyValue> {
    let text = |name: &'static str, value: &str| {
        (!value.is_empty()).then(|| KeyValue::new(name, value.to_owned()))
    };
    let mut all = vec![
        KeyValue::new(names::ATTEMPT, row.attempt.to_string()),
        KeyValue::new(names::TASK, row.attempt.task.to_string()),
        KeyValue::new(names::STAGE, row.attempt.task.stage.to_string()),
        KeyValue::new("host.name", row.node.to_string()),
        KeyValue::new("container.id", row.container.to_string()),
        number(names::RUNG, u64::from(row.rung)),
        number(names::SLOTS, u64::from(row.slots)),
    ];
    all.extend(size(row.profile.heap, row.profile.overhead));
    all.extend(row.peak.map(|peak| bytes(names::PEAK, peak)));
    all.push(KeyValue::new(
        names::VERDICT,
        row.reason.map_or(UNFINISHED, |reason| reason.name()),
    ));
    all.extend(
        row.reason
            .filter(|r| r.charge() != ExitCharge::Success)
            .map(|r| KeyValue::new("error.type", r.name())),
    );
    if let Some(ExitReason::Exit { code }) = row.reason {
        all.push(KeyValue::new("process.exit.code", i64::from(code)));
    }
    all.extend(row.dimension.map(|dimension| {
        let word = match dimension {
            headroom_types::Dimension::Heap => "heap",
            headroom_types::Dimension::Overhead => "overhead",
            headroom_types::Dimension::Native => "native",
        };
        KeyValue::new(names::DIMENSION, word)
    }));
    all.extend(
        row.diagnosis
            .first()
            .map(|found| KeyValue::new(names::DIAGNOSIS, found.name.as_str())),
    );
    all.extend(text(names::DECISION, &row.decision));
    all.extend(text(names::WHY, &row.why));
    all
}

fn size(heap: Bytes, overhead: Bytes) -> [KeyValue; 3] {
    [
        bytes(names::LIMIT, heap.saturating_add(overhead)),
        bytes(names::HEAP, heap),
        bytes(names::OVERHEAD, overhead),
    ]
}

fn bytes(name: &'static str, value: Bytes) -> KeyValue {
    number(name, value.get())
}

fn number(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, Value::I64(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn time(at: UnixMillis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.0)
}

/// The first bytes of a hash of the parts, each with its length.
fn first<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut bytes = [0; N];
    bytes
        .iter_mut()
        .zip(hash.finalize())
        .for_each(|(byte, of)| *byte = of);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Cpus, Dimension, Profile};
    use headroom_wire::v1::job::AttemptGrowth;

    fn row(n: u32, reason: Option<ExitReason>) -> AttemptRow {
        let text = format!(
            r#"{{"attempt": "map/7@{n}", "profile": {{"heap": 0, "overhead": 0, "cpus": 1000}}, "slots": 1, "rung": {n},
                "container": "sort.1.e1.c2", "node": "n1", "started": {start}, "ended": {end}}}"#,
            start = 1000 * n,
            end = 1000 * n + 900
        );
        let mut row: AttemptRow = serde_json::from_str(&text).expect("a row");
        row.profile = Profile {
            heap: Bytes::from_mib(48),
            overhead: Bytes::from_mib(16),
            cpus: Cpus::from_cores(1),
        };
        row.reason = reason;
        row
    }

    fn value(span: &SpanData, name: &str) -> Option<String> {
        span.attributes
            .iter()
            .find(|a| a.key.as_str() == name)
            .map(|a| a.value.to_string())
    }

    fn ids() -> TraceIdentity {
        TraceIdentity::new("sort.1", "secret")
    }

    #[test]
    fn another_run_continues_the_trace_and_another_cluster_has_its_own() {
        let (one, again, other) = (ids(), ids(), TraceIdentity::new("sort.1", "another secret"));
        let (a, b) = (
            one.attempt(&row(1, None), None, UnixMillis(5000)),
            again.attempt(&row(1, None), None, UnixMillis(6000)),
        );
        assert_eq!(a.span_context, b.span_context);
        assert_ne!(one.trace(), other.trace());
        assert_ne!(one.trace(), TraceId::INVALID);
        assert!(!one.trace().to_string().contains("secret"));
    }

    #[test]
    fn a_kill_is_an_error_and_the_next_attempt_links_its_reason() {
        let mut killed = row(1, Some(ExitReason::TaskOom));
        (killed.peak, killed.dimension) = (Some(Bytes::from_mib(64)), Some(Dimension::Native));
        killed.decision = "twice the memory".into();
        killed.grown = vec![AttemptGrowth {
            at: UnixMillis(1500),
            from: Bytes::from_mib(48),
            to: Bytes::from_mib(64),
            frozen_us: Some(7),
        }];
        let next = row(2, Some(ExitReason::Exit { code: 0 }));
        let ids = ids();
        let (first, second) = (
            ids.attempt(&killed, None, UnixMillis(0)),
            ids.attempt(&next, Some(&killed), UnixMillis(0)),
        );
        assert!(
            matches!(first.status, Status::Error { .. }) && second.status == Status::Ok,
            "{:?}",
            first.status
        );
        assert_eq!(value(&first, names::VERDICT).as_deref(), Some("task_oom"));
        assert_eq!(
            value(&first, names::LIMIT),
            Some(Bytes::from_mib(64).get().to_string())
        );
        assert_eq!(
            value(&first, names::PEAK),
            Some(Bytes::from_mib(64).get().to_string())
        );
        assert_eq!(value(&first, "error.type").as_deref(), Some("task_oom"));
        assert_eq!(
            (
                value(&second, "error.type"),
                value(&second, "process.exit.code").as_deref()
            ),
            (None, Some("0"))
        );
        let events: Vec<&str> = first.events.iter().map(|event| &*event.name).collect();
        assert_eq!(events, [GROWN, EXCEPTION]);
        assert!(second.events.is_empty() && first.links.is_empty());
        let [link] = second.links.links.as_slice() else {
            panic!("one link: {:?}", second.links)
        };
        assert_eq!(link.span_context, first.span_context);
        assert!(
            link.attributes
                .iter()
                .any(|a| a.key.as_str() == names::WHY && a.value.as_str() == "twice the memory")
        );
    }

    #[test]
    fn an_attempt_is_in_its_task_and_the_task_in_its_job() {
        let attempts = vec![
            row(1, Some(ExitReason::TaskOom)),
            row(2, Some(ExitReason::Exit { code: 0 })),
        ];
        let (task, profile) = (
            attempts[0].attempt.task.clone(),
            attempts[0].profile.clone(),
        );
        let mut of = TaskRow {
            task,
            state: TaskState::Done,
            profile,
            rung: 2,
            note: String::new(),
            attempts,
            frozen: None,
            ahead: Vec::new(),
            priority: 0,
            tags: Default::default(),
        };
        let ids = ids();
        let (began, ended) = (UnixMillis(900), UnixMillis(9000));
        let whole = JobSpanFacts {
            name: "sort",
            mode: "headroom",
            tasks: 1,
            memory_kills: 1,
            began,
            ended,
            failure: None,
        };
        let job = ids.job(&whole);
        let task = ids.task(&of, ended).expect("the task has an attempt");
        let attempt = ids.attempt(&of.attempts[1], of.attempts.first(), ended);
        assert_eq!(job.parent_span_id, SpanId::INVALID);
        assert_eq!(task.parent_span_id, job.span_context.span_id());
        assert_eq!(attempt.parent_span_id, task.span_context.span_id());
        assert_eq!(
            (task.start_time, task.end_time),
            (time(UnixMillis(1000)), time(UnixMillis(2900)))
        );
        assert!(job.start_time <= task.start_time && task.end_time <= job.end_time);
        assert_eq!(
            (value(&task, names::ATTEMPTS).as_deref(), &task.status),
            (Some("2"), &Status::Ok)
        );
        of.attempts.clear();
        assert_eq!(
            ids.task(&of, ended),
            None,
            "a task without attempts has no span"
        );
        let failed = ids.job(&JobSpanFacts {
            failure: Some("1 failed"),
            ..whole
        });
        assert_eq!(failed.status, Status::error("1 failed"));
    }

    #[test]
    fn no_span_ends_before_its_start_and_open_attempts_are_marked() {
        let mut open = row(3, None);
        open.ended = None;
        let span = ids().attempt(&open, None, UnixMillis(10));
        assert_eq!(span.start_time, span.end_time);
        assert_eq!(
            (value(&span, names::VERDICT).as_deref(), &span.status),
            (Some(UNFINISHED), &Status::Unset)
        );
    }

    #[test]
    fn every_attribute_is_explained() {
        let page = include_str!("../../../../docs/observing.md");
        let own = names::ALL.into_iter().chain([GROWN]);
        let missing: Vec<&str> = own
            .filter(|name| !page.contains(&format!("`{name}`")))
            .collect();
        assert!(
            missing.is_empty(),
            "docs/observing.md does not describe {missing:?}"
        );
    }
}
