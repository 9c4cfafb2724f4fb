//! Traces of a job through real daemons: a collector receives all spans, and a missing collector
//! delays nothing.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::body::Bytes as Body;
use axum::http::{HeaderMap, StatusCode, header};
use headroom_types::{Bytes, ExitCharge, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, TaskRow};
use integration::cluster::{Cluster, ContainerOwner, JOB, NodeShape, SOON, until};
use integration::jobs::{JobFile, WorkLog};
use integration::programs;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode as Code};
use prost::Message as _;

/// Send timeout of the master for one batch, in milliseconds. A job that waits for a collector
/// would take at least this long.
const SENDING_MS: u64 = 10_000;

/// A trace collector in this process.
struct Collector {
    url: String,
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    fn start() -> Self {
        let taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>> = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .expect("binds");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let kept = taken.clone();
        let take = move |headers: HeaderMap, body: Body| async move {
            let wanted = headers
                .get(header::CONTENT_TYPE)
                .is_some_and(|kind| kind == "application/x-protobuf");
            let Some(request) = wanted
                .then(|| ExportTraceServiceRequest::decode(body).ok())
                .flatten()
            else {
                return StatusCode::BAD_REQUEST;
            };
            kept.lock().expect("not poisoned").push(request);
            StatusCode::OK
        };
        let router = axum::Router::new().route("/v1/traces", axum::routing::post(take));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Collector {
            url,
            taken,
            _runtime: runtime,
        }
    }

    fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().expect("not poisoned");
        let scopes = taken
            .iter()
            .flat_map(|request| &request.resource_spans)
            .flat_map(|of| &of.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    fn resource(&self) -> Vec<KeyValue> {
        let taken = self.taken.lock().expect("not poisoned");
        taken[0].resource_spans[0]
            .resource
            .clone()
            .expect("a resource")
            .attributes
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes
        .iter()
        .find(|a| a.key == name)?
        .value
        .as_ref()?
        .value
        .as_ref()?;
    if let Value::StringValue(text) = value {
        return Some(text.clone());
    }
    let Value::IntValue(number) = value else {
        panic!("{name} is {value:?}")
    };
    Some(number.to_string())
}

fn nanos(ms: u64) -> u64 {
    ms * 1_000_000
}

fn cluster(collector: &str) -> Cluster {
    Cluster::start_managed(
        &[NodeShape::default()],
        &format!("traces = \"{collector}\"\n"),
    )
    .expect("a cluster")
}

/// Adds a stage of the workload with further keys.
fn stage(
    job: JobFile,
    name: &str,
    count: u32,
    log: &WorkLog,
    arguments: &[&str],
    more: &str,
) -> JobFile {
    let program = programs::path("workload").expect("the workload is built");
    let mut command = vec![
        program.to_str().expect("UTF-8"),
        "run",
        "--log",
        log.path().to_str().expect("UTF-8"),
    ];
    command.extend(arguments);
    job.stage(name, count, &command, more)
}

/// A job with two short tasks. After the gate opens, a third task is killed for memory and a fourth
/// grows.
fn job(cluster: &Cluster, gate: &Path) -> JobFile {
    let (log, gate) = (
        WorkLog::at(cluster.dir().join("work.log")),
        gate.to_str().expect("UTF-8"),
    );
    let job = JobFile::new("skewed", 1, 4, Bytes::from_mib(48));
    let job = stage(
        job,
        "small",
        2,
        &log,
        &["--mib", "8", "--over-ms", "100"],
        "",
    );
    let job = stage(
        job,
        "large",
        1,
        &log,
        &["--mib", "88", "--over-ms", "800", "--after", gate],
        "grow = false",
    );
    stage(
        job,
        "growing",
        1,
        &log,
        &["--mib", "100", "--over-ms", "800", "--after", gate],
        "grow = true",
    )
}

fn rows(app: &AppView) -> &[TaskRow] {
    &app.job.as_ref().expect("a job").tasks
}

/// Spans by the ids of attempts and tasks, and `job`.
fn named(spans: Vec<Span>) -> BTreeMap<String, Span> {
    let count = spans.len();
    let name = |span: &Span| {
        let id = text(&span.attributes, "headroom.attempt")
            .or_else(|| text(&span.attributes, "headroom.task"));
        id.unwrap_or_else(|| "job".to_owned())
    };
    let named: BTreeMap<String, Span> = spans.into_iter().map(|span| (name(&span), span)).collect();
    assert_eq!(named.len(), count, "each span was sent once");
    named
}

#[test]
fn a_trace_survives_a_kill_of_the_master_on_this_host() {
    let collector = Collector::start();
    let cluster = cluster(&collector.url);
    let gate = cluster.dir().join("gate");
    let app = cluster
        .submit(job(&cluster, &gate).text())
        .expect("submits");
    let have_started = |spans: &[Span]| {
        spans
            .iter()
            .filter(|span| text(&span.attributes, "headroom.attempt").is_some())
            .count()
            == 2
    };
    until("the first spans", SOON, || {
        Ok(have_started(&collector.spans()).then_some(()))
    })
    .expect("spans while the job runs");
    let masters = cluster
        .live_containers(&app, ContainerOwner::Master)
        .expect("lists");
    Cluster::kill_process(cluster.container_pid(&masters[0]).expect("runs")).expect("kills");
    cluster
        .until_app(&app, "another master", JOB, |view| {
            (view.attempt == 2 && view.master_url.is_some()).then_some(())
        })
        .expect("comes");
    fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);

    let spans = named(collector.spans());
    let attempts: usize = rows(&end).iter().map(|row| row.attempts.len()).sum();
    assert_eq!(
        spans.len(),
        1 + rows(&end).len() + attempts,
        "{:?}",
        spans.keys()
    );
    let root = &spans["job"];
    assert!(
        spans
            .values()
            .all(|span| span.trace_id == root.trace_id && span.trace_id.len() == 16),
        "one trace"
    );
    assert!(root.parent_span_id.is_empty() && root.name == "job skewed");
    assert_eq!(
        text(&root.attributes, "headroom.app"),
        Some(app.to_string())
    );
    assert_eq!(
        root.status.as_ref().map(|status| status.code),
        Some(Code::Ok as i32)
    );
    let resource = collector.resource();
    assert_eq!(text(&resource, "service.name").as_deref(), Some("headroom"));
    assert_eq!(
        text(&resource, "service.instance.id"),
        Some(format!("{app}@1"))
    );
    for row in rows(&end) {
        task(&spans, row);
    }
    let large = rows(&end)
        .iter()
        .find(|row| row.task.to_string() == "large/0")
        .expect("the span");
    killed(&spans, large);
    grown(
        &spans,
        rows(&end)
            .iter()
            .find(|row| row.task.to_string() == "growing/0")
            .expect("the span"),
    );
    assert_eq!(dropped(&cluster), 0, "all of it arrived");
}

/// Checks that a task is inside the job and its attempts inside the task, also in time.
fn task(spans: &BTreeMap<String, Span>, row: &TaskRow) {
    let (root, task) = (&spans["job"], &spans[&row.task.to_string()]);
    assert_eq!(task.parent_span_id, root.span_id);
    assert!(
        root.start_time_unix_nano <= task.start_time_unix_nano
            && task.end_time_unix_nano <= root.end_time_unix_nano
    );
    assert_eq!(
        text(&task.attributes, "headroom.attempts"),
        Some(row.attempts.len().to_string())
    );
    let mut before: Option<&Span> = None;
    for attempt in &row.attempts {
        let span = &spans[&attempt.attempt.to_string()];
        assert_eq!(span.parent_span_id, task.span_id, "{}", attempt.attempt);
        same(span, attempt);
        assert!(
            task.start_time_unix_nano <= span.start_time_unix_nano
                && span.end_time_unix_nano <= task.end_time_unix_nano
        );
        assert!(
            before.is_none_or(|before| before.end_time_unix_nano <= span.start_time_unix_nano),
            "overlapping attempts"
        );
        let linked: Vec<&[u8]> = span
            .links
            .iter()
            .map(|link| link.span_id.as_slice())
            .collect();
        assert_eq!(
            linked,
            before
                .iter()
                .map(|before| before.span_id.as_slice())
                .collect::<Vec<_>>(),
            "a wrong link"
        );
        before = Some(span);
    }
}

/// Checks that a span agrees with the resource manager's row of the attempt.
fn same(span: &Span, row: &AttemptRow) {
    let (started, ended) = (nanos(row.started.0), nanos(row.ended.expect("an end").0));
    assert_eq!(
        (span.start_time_unix_nano, span.end_time_unix_nano),
        (started, ended),
        "{}",
        row.attempt
    );
    let is = |name: &str| text(&span.attributes, name);
    let reason = row.reason.expect("a verdict");
    assert_eq!(is("headroom.verdict").as_deref(), Some(reason.name()));
    assert_eq!(
        is("error.type").as_deref(),
        (reason.charge() != ExitCharge::Success).then_some(reason.name())
    );
    assert_eq!(is("host.name"), Some(row.node.to_string()));
    assert_eq!(is("container.id"), Some(row.container.to_string()));
    assert_eq!(
        is("headroom.limit_bytes"),
        Some(row.profile.memory().get().to_string())
    );
    assert_eq!(
        is("headroom.heap_bytes"),
        Some(row.profile.heap.get().to_string())
    );
    assert_eq!(
        is("headroom.overhead_bytes"),
        Some(row.profile.overhead.get().to_string())
    );
    assert_eq!(
        is("headroom.peak_bytes"),
        row.peak.map(|peak| peak.get().to_string())
    );
    assert_eq!(is("headroom.rung"), Some(row.rung.to_string()));
    let failed = reason.charge() != ExitCharge::Success;
    let code = if failed { Code::Error } else { Code::Ok };
    assert_eq!(
        span.status.as_ref().map(|status| status.code),
        Some(code as i32),
        "{}",
        row.attempt
    );
}

/// Checks that the kill is an event of its attempt, and that the link of the next attempt contains
/// the decision.
fn killed(spans: &BTreeMap<String, Span>, row: &TaskRow) {
    let [first, .., last] = row.attempts.as_slice() else {
        panic!("the task has a second attempt: {row:?}")
    };
    assert_eq!(
        (first.reason, last.reason),
        (
            Some(ExitReason::TaskOom),
            Some(ExitReason::Exit { code: 0 })
        )
    );
    let (span, next) = (
        &spans[&first.attempt.to_string()],
        &spans[&row.attempts[1].attempt.to_string()],
    );
    let exceptions: Vec<_> = span
        .events
        .iter()
        .filter(|event| event.name == "exception")
        .collect();
    assert_eq!(exceptions.len(), 1, "{:?}", span.events);
    assert_eq!(exceptions[0].time_unix_nano, span.end_time_unix_nano);
    assert_eq!(
        text(&exceptions[0].attributes, "exception.type").as_deref(),
        Some("task_oom")
    );
    assert_eq!(
        text(&exceptions[0].attributes, "exception.message"),
        Some(ExitReason::TaskOom.sentence())
    );
    let link = &next.links[0];
    assert_eq!(
        text(&link.attributes, "headroom.verdict").as_deref(),
        Some("task_oom")
    );
    assert_eq!(
        text(&link.attributes, "headroom.why"),
        Some(first.decision.clone()).filter(|why| !why.is_empty())
    );
}

fn grown(spans: &BTreeMap<String, Span>, row: &TaskRow) {
    let attempt = row
        .attempts
        .iter()
        .find(|attempt| !attempt.grown.is_empty())
        .expect("the attempt has grown");
    let span = &spans[&attempt.attempt.to_string()];
    let events: Vec<_> = span
        .events
        .iter()
        .filter(|event| event.name == "headroom.grown")
        .collect();
    assert_eq!(events.len(), attempt.grown.len());
    for (event, grown) in events.iter().zip(&attempt.grown) {
        assert_eq!(event.time_unix_nano, nanos(grown.at.0));
        assert_eq!(
            text(&event.attributes, "headroom.to_bytes"),
            Some(grown.to.get().to_string())
        );
    }
}

/// The sum of the series of lost spans.
fn dropped(cluster: &Cluster) -> u64 {
    let page = cluster
        .call(cluster.client().get_text("/metrics"))
        .unwrap_or_default();
    let lines = page
        .lines()
        .filter(|line| line.starts_with("headroom_am_spans_dropped_total"));
    // The page writes counts as 4.0.
    lines
        .filter_map(|line| {
            line.rsplit(' ')
                .next()?
                .split('.')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}

fn holds_nothing_up(end: &AppView) {
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    assert_eq!(end.job.as_ref().expect("a job").totals.memory_kills, 1);
    let last = rows(end)
        .iter()
        .flat_map(|row| &row.attempts)
        .filter_map(|a| a.ended)
        .max()
        .expect("an end");
    let ended = end.ended.expect("an end");
    assert!(
        ended.0.saturating_sub(last.0) < SENDING_MS,
        "the job waited for its collector: {last:?} {ended:?}"
    );
}

/// The log of the master.
fn master_log(cluster: &Cluster, app: &str) -> String {
    let ran = cluster
        .rmctl(&["logs", app, "--master", "--stderr"])
        .expect("runs");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

#[test]
fn an_unreachable_collector_is_logged_once_on_this_host() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .expect("binds")
        .local_addr()
        .expect("an address");
    let cluster = cluster(&format!("http://{unused}"));
    let gate = cluster.dir().join("gate");
    let app = cluster
        .submit(job(&cluster, &gate).text())
        .expect("submits");
    // Two attempts and two tasks have ended, and their spans were dropped.
    until("spans to be counted as lost", SOON, || {
        Ok((dropped(&cluster) >= 4).then_some(()))
    })
    .expect("counted");
    fs::write(&gate, "").expect("opens the gate");
    let end = cluster.until_ended(&app).expect("ends");
    holds_nothing_up(&end);
    let log = master_log(&cluster, &app.to_string());
    assert_eq!(
        log.matches("cannot send traces, dropping them").count(),
        1,
        "{log}"
    );
    assert_eq!(
        log.matches("the trace of this job is incomplete").count(),
        1,
        "{log}"
    );
}

#[test]
fn a_silent_collector_delays_no_job_on_this_host() {
    // The kernel accepts connections, but this program never reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("binds");
    let cluster = cluster(&format!(
        "http://{}",
        silent.local_addr().expect("an address")
    ));
    let gate = cluster.dir().join("gate");
    fs::write(&gate, "").expect("is open");
    let app = cluster
        .submit(job(&cluster, &gate).text())
        .expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    holds_nothing_up(&end);
}
