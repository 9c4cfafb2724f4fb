//! Traces of the job for an OTLP collector, if the master's environment or the resource manager
//! names one.
//!
//! The loop owns them. A span is created when its end has been recorded, and waits in a bounded
//! queue for a task that sends it.
//!
//! *Architecture Invariant*: the job never waits for a collector. A span that does not fit into the
//! queue, or cannot be sent, is dropped and counted.

pub mod spans;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headroom_identity::tls::PeerExpectation;
use headroom_transport::{CertificateFiles, trust_none_config};
use headroom_types::UnixMillis;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::core::MasterCore;
use crate::event::{JobEndKind, JobOutcome};
use crate::record::JournalRecord;
use crate::taskset::TaskPosition;
use spans::{JobSpanFacts, TraceIdentity};

/// Maximum number of waiting spans.
const QUEUE: usize = 8192;
/// Maximum number of spans in one batch.
const BATCH: usize = 512;
/// Maximum wait of a span for others in its batch.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of one batch, all tries included.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Retries for collectors that report to be busy.
const RETRIES: usize = 3;
/// Timeout for the remaining spans at the end of the job.
const FINAL_SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// Path at which a collector accepts spans.
const PATH: &str = "/v1/traces";
/// Variables that name a collector, the more specific one first.
const ENDPOINT_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
/// Variables that name its CA certificate.
const CA_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];

/// The trace of a job.
#[derive(Debug)]
pub(crate) struct JobTraceExporter {
    ids: TraceIdentity,
    service: String,
    began: Option<UnixMillis>,
    sender: Option<SpanSender>,
    /// True after the collector was selected, found unusable, or found to be absent; the selection
    /// is not repeated.
    is_selected: bool,
}

/// The sending end of the span queue.
#[derive(Debug)]
struct SpanSender {
    queue: mpsc::Sender<SpanData>,
    counts: Arc<SpanCounts>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct SpanCounts {
    made: AtomicU64,
    sent: AtomicU64,
    dropped: AtomicU64,
    /// True if the last batch was not accepted.
    failing: AtomicBool,
}

/// Attempts and tasks that ended with some records.
#[derive(Debug, Default)]
pub(crate) struct EndedTasks {
    attempts: Vec<(TaskPosition, u32)>,
    /// Tasks that may have ended with them.
    tasks: BTreeSet<TaskPosition>,
}

impl JobTraceExporter {
    /// Traces without a collector; no span is sent before one is named.
    pub(crate) fn new(ids: TraceIdentity, attempt: String) -> Self {
        JobTraceExporter {
            ids,
            service: attempt,
            began: None,
            sender: None,
            is_selected: false,
        }
    }

    /// Keeps the start of the job, as an earlier run recorded it.
    pub(crate) fn remember_start(&mut self, at: Option<UnixMillis>) {
        self.began = self.began.or(at);
    }

    /// Reads the start of the job from records.
    fn remember(&mut self, records: &[JournalRecord]) {
        for record in records {
            if let JournalRecord::JobStarted { at } = record {
                self.began.get_or_insert(*at);
            }
        }
    }

    /// Selects the collector: that of the master's own environment, else that of the cluster.
    pub(crate) fn select_collector(&mut self, cluster: Option<&str>) {
        if self.is_selected
            || nonempty_variable("OTEL_SDK_DISABLED")
                .is_some_and(|value| value.eq_ignore_ascii_case("true"))
        {
            return;
        }
        self.is_selected = true;
        let own = ENDPOINT_VARIABLES
            .iter()
            .find_map(|name| nonempty_variable(name));
        let Some(named) = own.as_deref().or(cluster) else {
            return;
        };
        match exporter(named, own.is_none(), &self.service) {
            Ok(exporter) => {
                tracing::info!(collector = named, trace = %self.ids.trace(), "sending the trace of this job");
                self.sender = Some(SpanSender::start(exporter, named.to_owned()));
            }
            Err(why) => tracing::warn!(
                collector = named,
                why,
                "cannot send traces, continuing without them"
            ),
        }
    }

    /// Number of spans that did not fit into the queue or were not accepted.
    pub(crate) fn dropped(&self) -> u64 {
        self.sender
            .as_ref()
            .map_or(0, |sender| sender.counts.dropped.load(Ordering::Relaxed))
    }

    /// Attempts and tasks that end with these records. Called before the records are written;
    /// [`JobTraceExporter::queue_spans`] follows after.
    pub(crate) fn find_ended(&mut self, records: &[JournalRecord]) -> EndedTasks {
        self.remember(records);
        let mut ended = EndedTasks::default();
        if self.sender.is_none() {
            return ended;
        }
        for record in records {
            match record {
                JournalRecord::Ended { task, row, .. } => {
                    ended.attempts.push((*task, row.attempt.attempt));
                    ended.tasks.insert(*task);
                }
                JournalRecord::GivenUp { task, .. } => drop(ended.tasks.insert(*task)),
                JournalRecord::TasksCancelled { tasks, .. } => ended.tasks.extend(tasks),
                JournalRecord::Begin(_)
                | JournalRecord::JobStarted { .. }
                | JournalRecord::Run { .. }
                | JournalRecord::Gained { .. }
                | JournalRecord::Gone { .. }
                | JournalRecord::Placed { .. }
                | JournalRecord::Committing { .. }
                | JournalRecord::Grown { .. }
                | JournalRecord::Moved { .. }
                | JournalRecord::Known { .. }
                | JournalRecord::Inputs { .. }
                | JournalRecord::Cancelled { .. }
                | JournalRecord::Evicted { .. }
                | JournalRecord::Scaled { .. }
                | JournalRecord::Ranked { .. }
                | JournalRecord::StageDeclared { .. }
                | JournalRecord::TasksAccepted { .. }
                | JournalRecord::SubmitterJoined { .. }
                | JournalRecord::SubmitterForgotten { .. }
                | JournalRecord::ResultsAcknowledged { .. }
                | JournalRecord::ValueReturned { .. }
                | JournalRecord::JobClosed { .. }
                | JournalRecord::Over { .. } => {}
            }
        }
        ended
    }

    /// Queues the spans of attempts and tasks whose end is recorded.
    pub(crate) fn queue_spans(&self, core: &MasterCore, ended: &EndedTasks, now: UnixMillis) {
        let Some(sender) = &self.sender else { return };
        for (key, number) in &ended.attempts {
            let Some(task) = core.tasks().get(*key) else {
                continue;
            };
            let Some(at) = task
                .attempts
                .iter()
                .position(|row| row.attempt.attempt == *number)
            else {
                continue;
            };
            let before = at
                .checked_sub(1)
                .and_then(|before| task.attempts.get(before));
            let row = task.attempts.get(at);
            row.into_iter()
                .for_each(|row| sender.put(self.ids.attempt(row, before, now)));
        }
        for key in &ended.tasks {
            let task = core.tasks().get(*key).filter(|task| task.is_final());
            task.and_then(|task| self.ids.task(&task.row(), now))
                .into_iter()
                .for_each(|span| sender.put(span));
        }
    }

    /// Queues the remaining spans when the job has ended. Running attempts will not be reported any
    /// more.
    pub(crate) fn queue_job_span(&self, core: &MasterCore, outcome: &JobOutcome, now: UnixMillis) {
        let Some(sender) = &self.sender else { return };
        for (_, task) in core.tasks().iter().filter(|(_, task)| !task.is_final()) {
            if let Some(open) = task.open_attempt() {
                let before = task
                    .attempts
                    .len()
                    .checked_sub(2)
                    .and_then(|before| task.attempts.get(before));
                sender.put(self.ids.attempt(open, before, now));
            }
            self.ids
                .task(&task.row(), now)
                .into_iter()
                .for_each(|span| sender.put(span));
        }
        let (job, totals) = (core.job(), core.totals());
        let succeeded = outcome.ending == JobEndKind::Succeeded;
        sender.put(self.ids.job(&JobSpanFacts {
            name: job.name.as_str(),
            mode: job.mode.as_str(),
            tasks: totals.tasks,
            memory_kills: totals.memory_kills,
            began: self.began.unwrap_or(now),
            ended: now,
            failure: (!succeeded).then_some(outcome.diagnostics.as_str()),
        }));
    }

    /// Sends the waiting spans, within a timeout.
    pub(crate) async fn finish(&mut self) {
        let Some(SpanSender {
            queue,
            counts,
            mut task,
        }) = self.sender.take()
        else {
            return;
        };
        drop(queue);
        if timeout_at(Instant::now() + FINAL_SEND_TIMEOUT, &mut task)
            .await
            .is_err()
        {
            task.abort();
        }
        let (made, sent) = (
            counts.made.load(Ordering::Relaxed),
            counts.sent.load(Ordering::Relaxed),
        );
        if sent < made {
            tracing::warn!(made, sent, "the trace of this job is incomplete");
        } else {
            tracing::info!(spans = sent, "sent the trace of this job");
        }
    }
}

impl SpanSender {
    fn start(exporter: SpanExporter, collector: String) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let counts = Arc::new(SpanCounts::default());
        let task = tokio::spawn(send(exporter, collector, waiting, counts.clone()));
        SpanSender {
            queue,
            counts,
            task,
        }
    }

    fn put(&self, span: SpanData) {
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends batches until the queue is closed and empty.
async fn send(
    exporter: SpanExporter,
    collector: String,
    mut waiting: mpsc::Receiver<SpanData>,
    counts: Arc<SpanCounts>,
) {
    let mut batch = Vec::new();
    while gather(&mut waiting, &mut batch).await {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let taken =
            match tokio::time::timeout(BATCH_TIMEOUT, exporter.export(std::mem::take(&mut batch)))
                .await
            {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {} s", BATCH_TIMEOUT.as_secs())),
            };
        let failed = counts.failing.load(Ordering::Relaxed);
        match taken {
            Ok(()) => {
                counts.sent.fetch_add(spans, Ordering::Relaxed);
                counts.failing.store(false, Ordering::Relaxed);
                if failed {
                    tracing::info!(collector, "sending traces again");
                }
            }
            Err(why) => {
                counts.dropped.fetch_add(spans, Ordering::Relaxed);
                // Logged once, not for every batch, because the job continues and cannot correct
                // it.
                if !failed {
                    tracing::warn!(collector, why, spans, "cannot send traces, dropping them");
                }
                counts.failing.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Waits for a span, and briefly for others. False when the queue is closed.
async fn gather(waiting: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) -> bool {
    let Some(span) = waiting.recv().await else {
        return false;
    };
    batch.push(span);
    let until = Instant::now() + BATCH_INTERVAL;
    while batch.len() < BATCH {
        match timeout_at(until, waiting.recv()).await {
            Ok(Some(span)) => batch.push(span),
            Ok(None) | Err(_) => break,
        }
    }
    true
}

/// The client of a collector. The library itself reads the rest of the environment for a collector
/// that is named there.
fn exporter(named: &str, of_cluster: bool, instance: &str) -> Result<SpanExporter, String> {
    let tls = if named.starts_with("https://") {
        let ca = CA_VARIABLES
            .iter()
            .find_map(|name| nonempty_variable(name))
            .map(PathBuf::from);
        CertificateFiles { ca, own: None }
            .client(PeerExpectation::Daemon)
            .map_err(|error| error.to_string())?
    } else {
        trust_none_config().map_err(|error| error.to_string())?
    };
    let client = reqwest::Client::builder()
        .connect_timeout(BATCH_TIMEOUT / 2)
        .timeout(BATCH_TIMEOUT)
        .no_proxy();
    let client = client
        .tls_backend_preconfigured(tls)
        .build()
        .map_err(|error| error.to_string())?;
    let policy = RetryPolicy::recommended()
        .with_max_retries(RETRIES)
        .with_initial_delay(Duration::from_millis(500));
    let policy = policy.with_max_delay(Duration::from_secs(2));
    let builder = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary);
    let builder = builder
        .with_timeout(BATCH_TIMEOUT)
        .with_retry_policy(policy);
    let builder = if of_cluster {
        builder.with_endpoint(format!("{}{PATH}", named.trim_end_matches('/')))
    } else {
        builder
    };
    let mut exporter = builder.build().map_err(|error| error.to_string())?;
    exporter.set_resource(&resource(instance));
    Ok(exporter)
}

/// The resource attributes of the sender; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`
/// override them.
fn resource(instance: &str) -> Resource {
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ];
    let name = nonempty_variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "headroom".to_owned());
    Resource::builder()
        .with_attributes(own)
        .with_service_name(name)
        .build()
}

/// A variable with a non-empty value.
fn nonempty_variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.trim().is_empty())
}
