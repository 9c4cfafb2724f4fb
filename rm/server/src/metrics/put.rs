//! Metrics page: the published view, the counters, and the totals that masters reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headroom_telemetry::names::*;
use headroom_telemetry::{MetricsPage, process};
use headroom_types::{Reason, Tick};
use headroom_wire::v1::apps::{AppState, MemoryFailureStats};
use headroom_wire::v1::error::ProblemResult;

use super::{ContainerDecision, ManagerCounters};
use crate::reader::ClusterReader;
use crate::view::ClusterSnapshot;

/// Current metrics. `state` is the state directory; only its size is read.
pub(crate) async fn page(reader: &ClusterReader, state: Arc<Path>) -> ProblemResult<MetricsPage> {
    let view = reader.handle.view().await?;
    let hour = reader.shared.memory_hour(reader.clock.unix_now()).await;
    let size = tokio::task::spawn_blocking(move || size_of(&state))
        .await
        .unwrap_or_default();
    let mut page = MetricsPage::new();
    cluster(&mut page, reader, &view, hour);
    nodes(&mut page, reader, &view);
    queues(&mut page, &view);
    counted(&mut page, &reader.shared.counters, reader);
    reader.shared.jobs.put(&mut page);
    page.count(&RM_STATE_SIZE, &[], size);
    process::add_process_metrics(&mut page, seconds(reader.clock.unix_at_zero().0));
    Ok(page)
}

fn cluster(
    page: &mut MetricsPage,
    reader: &ClusterReader,
    view: &ClusterSnapshot,
    hour: MemoryFailureStats,
) {
    let status = view.status(reader.clock.now(), hour);
    page.count(&RM_BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
    page.count(
        &RM_LEADER,
        &[],
        u64::from(reader.shared.published.is_recovered()),
    );
    page.count(&RM_EPOCH, &[], u64::from(reader.epoch.0));
    page.count(&RM_OOM_LAST_HOUR, &[], u64::from(status.oom_1h));
    page.count(&RM_LARGEST_FREE, &[], view.figures.largest_free.get());
    page.count(
        &RM_INPUTS_WAITING,
        &[],
        u64::try_from(reader.handle.waiting()).unwrap_or(u64::MAX),
    );
    // A state without applications is exported as zero.
    for state in AppState::ALL {
        page.count(&RM_JOBS, &[state.as_str()], 0);
    }
    for app in view.apps.values() {
        page.count(&RM_JOBS, &[app.state.as_str()], 1);
    }
    for state in ["allocated", "launching", "running", "stopping"] {
        page.count(
            &RM_CONTAINERS,
            &[state],
            view.figures
                .containers
                .get(state)
                .copied()
                .unwrap_or_default(),
        );
    }
}

fn nodes(page: &mut MetricsPage, reader: &ClusterReader, view: &ClusterSnapshot) {
    for state in [
        "ready",
        "cordoned",
        "unhealthy",
        "suspect",
        "unreachable",
        "lost",
        "draining",
        "drained",
        "decommissioned",
    ] {
        page.count(&RM_NODES, &[state], 0);
    }
    for (node, heard) in view.nodes.values() {
        let name = node.id.as_str();
        page.count(&RM_NODES, &[&node.state], 1);
        page.count(&RM_MEMORY_ALLOCATABLE, &[name], node.offers.memory.get());
        page.count(
            &RM_MEMORY_ALLOCATED,
            &[name, "heap"],
            node.allocated_heap.get(),
        );
        let rest = node.allocated.memory.saturating_sub(node.allocated_heap);
        page.count(&RM_MEMORY_ALLOCATED, &[name, "rest"], rest.get());
        page.count(&RM_MEMORY_USED, &[name], node.used.get());
        page.count(&RM_HOST_MEMORY_USED, &[name], node.host_used.get());
        page.count(&RM_UNATTRIBUTED, &[name], node.unattributed.get());
        page.count(
            &RM_MEMORY_RESERVED,
            &[name],
            view.figures
                .reserved
                .get(&node.id)
                .copied()
                .unwrap_or_default()
                .get(),
        );
        page.number(
            &RM_CPUS_ALLOCATABLE,
            &[name],
            f64::from(node.offers.cpus.milli()) / 1000.0,
        );
        page.number(
            &RM_CPUS_ALLOCATED,
            &[name],
            f64::from(node.allocated.cpus.milli()) / 1000.0,
        );
        if !matches!(node.state.as_str(), "lost" | "decommissioned") {
            page.number(&RM_NODE_HEARTBEAT, &[name], heard_at(reader, *heard));
        }
    }
}

fn heard_at(reader: &ClusterReader, heard: Tick) -> f64 {
    seconds(reader.clock.unix_at_zero().0.saturating_add(heard.0))
}

fn queues(page: &mut MetricsPage, view: &ClusterSnapshot) {
    for queue in view
        .queues
        .root
        .walk()
        .into_iter()
        .filter(|q| q.queues.is_empty())
    {
        let (name, waiting) = (
            queue.path.as_str(),
            view.figures
                .waiting
                .get(&queue.path)
                .copied()
                .unwrap_or_default(),
        );
        page.count(&RM_REQUESTS_PENDING, &[name, "waits"], waiting.waits);
        page.count(&RM_REQUESTS_PENDING, &[name, "never_fits"], waiting.never);
        page.number(&RM_OLDEST_REQUEST, &[name], waiting.longest.as_secs_f64());
        page.count(&RM_QUEUE_USED, &[name], queue.used.memory.get());
        if !queue.guaranteed.memory.is_zero() {
            page.count(&RM_QUEUE_GUARANTEED, &[name], queue.guaranteed.memory.get());
        }
    }
}

fn counted(page: &mut MetricsPage, counters: &Arc<ManagerCounters>, reader: &ClusterReader) {
    counters.calls.put(page);
    page.spread(&RM_SCHEDULER_CYCLE, &[], &counters.turns);
    page.spread(&RM_STATE_WRITE, &[], &counters.writes);
    counters.turned.put(page, &RM_CONNECTIONS_REFUSED);
    page.count(
        &RM_EVENTS_DROPPED,
        &["events"],
        counters.dropped.load(Ordering::Relaxed),
    );
    page.count(
        &RM_EVENTS_DROPPED,
        &["disk"],
        reader.shared.events.unwritten(),
    );
    let events = reader.shared.events.counts();
    page.count(
        &RM_HEARTBEATS_MISSED,
        &[],
        events
            .get(Reason::NodeSuspect.as_str())
            .copied()
            .unwrap_or_default(),
    );
    for (reason, count) in events {
        page.count(&RM_EVENTS, &[reason], count);
    }
    for decision in ContainerDecision::ALL {
        page.count(&RM_SCHEDULER_DECISIONS, &[decision.as_str()], 0);
    }
    for (queue, of) in counters.by_queue() {
        page.spread(&RM_REQUEST_WAIT, &[queue.as_str()], &of.waits);
        for decision in ContainerDecision::ALL {
            page.count(
                &RM_SCHEDULER_DECISIONS,
                &[decision.as_str()],
                of.count(decision),
            );
        }
        for decision in [
            ContainerDecision::Granted,
            ContainerDecision::Refused,
            ContainerDecision::Expired,
        ] {
            page.count(
                &RM_REQUESTS,
                &[queue.as_str(), decision.as_str()],
                of.count(decision),
            );
        }
    }
}

/// Converts milliseconds of the wall clock to seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact for three hundred thousand years"
)]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Size of all files below a directory. Unreadable files count as zero: they may be replaced at
/// that moment.
fn size_of(folder: &Path) -> u64 {
    let mut sum = 0;
    let mut todo: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => todo.push(entry.path()),
                Ok(meta) => sum += meta.len(),
                Err(_) => {}
            }
        }
    }
    sum
}
