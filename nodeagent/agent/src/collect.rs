//! Collects the exit report of an ended container. Blocking; called as a job of the loop.
//!
//! The order of the steps matters: read the counters, end the remaining processes of the group,
//! read the logs, write the report. The group is removed after the report was sent, by
//! [`remove_empty_group`]. A failed step is named in `missing` and the other steps continue: every
//! container gets a report.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_container_shim::record::{self, ExitRecord, ProgramEnd};
use headroom_node_cgroup::{CgroupError, EnforcedGroup};
use headroom_node_core::container::ContainerEnd;
use headroom_node_core::{
    LaunchFailure, LaunchFailureKind, Verdict, VerdictScope, classify, diagnose, gclog, timeline,
};
use headroom_types::exit::{
    CgroupStats, MemoryEvents, OuterLevel, TaskGroupStats, Unattributed, VictimProcess,
};
use headroom_types::{
    Bytes, Certainty, ContainerId, Diagnosis, Dimension, EnforcerKind, Evidence, ExitReason,
    ExitReport, StopCause, SubCause, UnixMillis,
};
use headroom_wire::v1::nodes::RunOrder;

use crate::clock;
use crate::crash;
use crate::disk::{Baselines, file};
use crate::exec;
use crate::launch_failure;
use crate::leftover;
use crate::logs;
use crate::node_context::NodeContext;
use crate::outer_counters::OuterCounters;
use crate::sample::{self, ContainerMeasurements, SharedSampler};

/// Maximum time until a group is empty and removed.
pub(crate) const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum memory of ended containers that can explain a kill.
const MIN_LEFTOVER: Bytes = Bytes::from_mib(1);
/// Size of the end of the output that is searched for garbage collector lines. Bytes.
const GC_LOG: u64 = 64 << 10;

/// An ended container before its report.
#[derive(Debug)]
pub(crate) struct ContainerRemains {
    /// The container id.
    pub(crate) id: ContainerId,
    /// The end, as the core knows it.
    pub(crate) end: ContainerEnd,
    /// The time at which the agent learned of it.
    pub(crate) known: Instant,
    /// The group of the container, if known.
    pub(crate) group: Option<Arc<EnforcedGroup>>,
    /// The sampler with its measurements.
    pub(crate) meter: Option<SharedSampler>,
}

/// A container with its report on disk.
#[derive(Debug)]
pub(crate) struct CollectedContainer {
    /// The report.
    pub(crate) report: Box<ExitReport>,
    /// The group, which is not removed yet.
    pub(crate) group: Option<Arc<EnforcedGroup>>,
}

/// Collects all evidence, classifies it, and makes the report durable.
pub(crate) fn collect(site: &NodeContext, remains: ContainerRemains) -> CollectedContainer {
    let id = remains.id.clone();
    let group = remains.group.clone().or_else(|| {
        site.enforcer
            .open(&id.to_string())
            .ok()
            .flatten()
            .map(Arc::new)
    });
    let report = Box::new(match &remains.end {
        ContainerEnd::Ended { asked } => ended(site, &remains, group.as_ref(), *asked),
        ContainerEnd::Failed(failure) => failed(site, &id, group.as_ref(), failure),
        ContainerEnd::Never { cause } => never(site, &id, *cause),
    });
    crash::at("rest-ended");
    if let Err(error) = site.layout.write_report(&report) {
        tracing::error!(container_id = %id, %error, "the exit report cannot be written; a restart of the agent would lose it");
    }
    crash::at("report-written");
    CollectedContainer { report, group }
}

/// Ends the remaining processes of a container's group and removes it. Its counters must already be
/// read.
pub(crate) fn remove_group(site: &NodeContext, id: &ContainerId, group: &EnforcedGroup) {
    end_the_rest(id, group);
    if let Err(error) = remove_empty_group(site, id, group, REMOVAL_TIMEOUT) {
        log_failed_removal(id, &error);
    }
}

/// Removes a group whose processes have ended or were killed, within a time.
pub(crate) fn remove_empty_group(
    site: &NodeContext,
    id: &ContainerId,
    group: &EnforcedGroup,
    within: Duration,
) -> Result<(), CgroupError> {
    // No process runs in it any more: memory that reclaim cannot free now stays charged to the
    // node.
    if let Ok(Some(charged)) = group.charged() {
        site.leftovers.note(&id.to_string(), charged.unreclaimable);
    }
    group.remove(within)?;
    crash::at("group-removed");
    Ok(())
}

/// Logs that a group stays.
pub(crate) fn log_failed_removal(id: &ContainerId, error: &CgroupError) {
    tracing::warn!(container_id = %id, %error, "the cgroup of the container cannot be removed, ignoring");
}

fn end_the_rest(id: &ContainerId, group: &EnforcedGroup) {
    let alive = group.populated().unwrap_or(true);
    if alive && let Err(error) = group.kill() {
        tracing::warn!(container_id = %id, %error, "some processes of the container may still run");
    }
}

fn ended(
    site: &NodeContext,
    remains: &ContainerRemains,
    group: Option<&Arc<EnforcedGroup>>,
    asked: Option<StopCause>,
) -> ExitReport {
    let id = &remains.id;
    let dir = site.layout.container(id);
    let mut missing = Vec::new();
    let record = exit_record(site, id, &mut missing);
    if let Some(ExitRecord {
        how: ProgramEnd::Failed { step, errno, what },
        ..
    }) = &record
    {
        return failed(
            site,
            id,
            group,
            &launch_failure::from_step(*step, *errno, what),
        );
    }
    if record.is_none() && !dir.join(record::file::PID).exists() {
        return failed(
            site,
            id,
            group,
            &LaunchFailure::new(
                LaunchFailureKind::Internal,
                "the shim ended before it had started the program",
            ),
        );
    }
    let ordered = site.layout.order(id);
    let (order, baselines) = match &ordered {
        Some(r) => (Some(&r.order), r.baselines),
        None => (None, Baselines::default()),
    };
    // Before the remaining processes end: the counters and the tasks' groups as the program left
    // them.
    let (own, tasks) = facts(site, &dir, group, record.as_ref(), &mut missing);
    if let Some(group) = group {
        end_the_rest(id, group);
    }
    if site.ipc_privilege().is_none() {
        let started = record
            .as_ref()
            .and_then(|record| record.started_ms)
            .map(UnixMillis);
        leftover::sweep(site, id, started);
    }
    let measured = remains
        .meter
        .as_ref()
        .map(sample::finish)
        .unwrap_or_default();
    let mut e = Evidence::empty(site.kind());
    e.stop_asked = asked.filter(|_| !site.layout.stop(id).is_some_and(|stop| stop.too_late));
    e.own = own;
    let killed = e.own.events.oom_kill + e.own.events.oom_group_kill > 0;
    e.outer = outer(site, &baselines, remains.known, killed, &mut missing);
    add_end(&mut e, record.as_ref());
    add_order(&mut e, order, &measured, &mut missing);
    add_measured(&mut e, &measured, record.as_ref(), order);
    e.heap_marker = logs::heap_marker(&dir);
    add_gc_log(&mut e, &dir);
    if let Some(heap) = &mut e.heap {
        heap.cached = logs::cached(&dir);
    }
    if site.isolation.private_tmp && !site.has_private_tmp() {
        missing.push(
            "a private /tmp: this agent may not mount, so only TMPDIR named a private directory"
                .into(),
        );
    }
    if site.lacks_ipc_namespace() {
        missing.push("a private IPC namespace and /dev/shm: this agent may not create them; those of the host were used".into());
    }
    e.missing = missing;
    let codes = order
        .map(|o| o.launch.heap_exit_codes.clone())
        .unwrap_or_default();
    let verdict = classify(&e, VerdictScope::Container, &codes);
    finish(site, id, e, &verdict, record.as_ref(), measured, tasks)
}

fn finish(
    site: &NodeContext,
    id: &ContainerId,
    evidence: Evidence,
    verdict: &Verdict,
    record: Option<&ExitRecord>,
    measured: ContainerMeasurements,
    tasks: Vec<TaskGroupStats>,
) -> ExitReport {
    let mut points = measured.timeline;
    timeline::mark_end(&mut points, verdict.reason, &evidence);
    ExitReport {
        container: id.clone(),
        node: site.node.clone(),
        reason: verdict.reason,
        diagnosis: diagnose(&evidence, verdict),
        evidence,
        started: record.and_then(|r| r.started_ms).map(UnixMillis),
        ended: record.map_or_else(clock::unix_now, |r| UnixMillis(r.ended_ms)),
        timeline: points,
        log_tail: log_tail(site, id),
        tasks,
    }
}

fn exit_record(
    site: &NodeContext,
    id: &ContainerId,
    missing: &mut Vec<String>,
) -> Option<ExitRecord> {
    let path = site.layout.container(id).join(record::file::EXIT);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            missing.push(format!(
                "exit code and signal: the shim was lost before it wrote its record ({error})"
            ));
            return None;
        }
    };
    ExitRecord::decode(&bytes)
        .map_err(|error| {
            missing.push(format!(
                "exit code and signal: the shim's record is damaged ({error})"
            ))
        })
        .ok()
}

/// The counters of the container, and those of its tasks.
fn facts(
    site: &NodeContext,
    dir: &Path,
    group: Option<&Arc<EnforcedGroup>>,
    record: Option<&ExitRecord>,
    missing: &mut Vec<String>,
) -> (CgroupStats, Vec<TaskGroupStats>) {
    let single = group.is_some_and(|group| group.has_only_main());
    let recorded = record
        .filter(|_| single)
        .and_then(|record| recorded_facts(site, record));
    let mut own = match recorded {
        Some(own) => own,
        None => own_facts(site, group, record, missing),
    };
    exec::leave_out_kills(dir, &mut own.events);
    let tasks = if single {
        Vec::new()
    } else {
        task_facts(group)
    };
    (own, tasks)
}

/// The current counters of the group. If the group cannot be read, the ones that the shim read
/// right after the end.
fn own_facts(
    site: &NodeContext,
    group: Option<&Arc<EnforcedGroup>>,
    record: Option<&ExitRecord>,
    missing: &mut Vec<String>,
) -> CgroupStats {
    let why = match group.map(|g| g.facts()) {
        Some(Ok(facts)) => return facts,
        Some(Err(error)) => error.to_string(),
        None => "the cgroup does not exist any more".to_owned(),
    };
    record
        .and_then(|record| facts_of_record(site, record))
        .unwrap_or_else(|| {
            missing.push(format!("memory counters: {why}"));
            CgroupStats::default()
        })
}

/// The counters that the shim read right after the end, if they are as good as the current ones.
/// With cgroup v1 and without groups of tasks, they are. With cgroup v2, the kernel counts the kill
/// of a whole group after the kill of its first process.
fn recorded_facts(site: &NodeContext, record: &ExitRecord) -> Option<CgroupStats> {
    let is_whole = record.counters.iter().all(|(_, text)| text.is_some());
    (site.kind() == EnforcerKind::Cgroup1 && is_whole)
        .then(|| facts_of_record(site, record))
        .flatten()
}

fn facts_of_record(site: &NodeContext, record: &ExitRecord) -> Option<CgroupStats> {
    let counters = record.counters.iter();
    let texts: Vec<_> = counters
        .filter_map(|(path, text)| Some((path.clone(), text.clone()?)))
        .collect();
    EnforcedGroup::facts_from_texts(site.kind(), &texts)
}

fn task_facts(group: Option<&Arc<EnforcedGroup>>) -> Vec<TaskGroupStats> {
    let tasks = group.and_then(|g| g.tasks().ok()).unwrap_or_default();
    let tasks = tasks
        .into_iter()
        .filter(|(name, _)| !crate::exec::is_ours(name));
    tasks
        .filter_map(|(name, task)| {
            Some(TaskGroupStats {
                name,
                facts: task.facts().ok()?,
            })
        })
        .collect()
}

/// Increase of the enclosing levels' counters since the launch. After a kill, also the memory that
/// ended containers had left there.
fn outer(
    site: &NodeContext,
    baselines: &Baselines,
    known: Instant,
    killed: bool,
    missing: &mut Vec<String>,
) -> Vec<OuterLevel> {
    let counters = site
        .outer
        .read_since(known, || OuterCounters::read(&site.enforcer));
    let mut levels = Vec::new();
    if site.kind() != EnforcerKind::Poll {
        match (counters.fence, baselines.fence) {
            (Ok((limit, now)), Some(then)) => {
                let unattributed = killed.then(|| left(site)).flatten();
                levels.push(OuterLevel {
                    level: "containers".into(),
                    limit,
                    local: now.since(&then),
                    unattributed,
                });
            }
            (Ok(_), None) => missing.push("counters of the fence at launch".into()),
            (Err(error), _) => missing.push(format!("counters of the fence: {error}")),
        }
    }
    if let (Some(now), Some(then)) = (counters.above, baselines.above) {
        levels.push(OuterLevel::counted(
            "above all containers",
            None,
            now.since(&then),
        ));
    }
    if let (Some(now), Some(then)) = (counters.host_oom_kills, baselines.host_oom_kills) {
        let local = MemoryEvents {
            oom_kill: now.saturating_sub(then),
            ..MemoryEvents::default()
        };
        levels.push(OuterLevel::counted("host", None, local));
    } else {
        missing.push("kills on the host".into());
    }
    levels
}

/// Memory that ended containers left on the node: the larger of the current and the last reported
/// value.
fn left(site: &NodeContext) -> Option<Unattributed> {
    let reported = site.leftovers.now();
    let now = site
        .enforcer
        .unattributed(MIN_LEFTOVER)
        .ok()
        .flatten()
        .unwrap_or_default();
    let memory = now.max(reported.memory);
    (!memory.is_zero()).then_some(Unattributed { memory, ..reported })
}

fn add_end(e: &mut Evidence, record: Option<&ExitRecord>) {
    match record.map(|r| &r.how) {
        Some(ProgramEnd::Code(code)) => e.exit_code = Some(*code),
        Some(ProgramEnd::Signal { signal, .. }) => e.signal = Some(*signal),
        Some(ProgramEnd::Failed { .. }) | None => {}
    }
}

fn add_order(
    e: &mut Evidence,
    order: Option<&RunOrder>,
    measured: &ContainerMeasurements,
    missing: &mut Vec<String>,
) {
    let Some(order) = order else {
        missing.push("the order of the container".into());
        return;
    };
    e.own.limit = e.own.limit.or(Some(order.resource.memory));
    e.heap_budget = order.launch.heap;
    let mut own_limits = measured.own_limits.clone();
    own_limits.add_environment(
        order
            .launch
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    own_limits.add_command(order.launch.command.iter().map(String::as_str));
    e.own_limits = own_limits.into_vec();
    e.heap = measured.heap;
    if order.launch.heap.is_some() && measured.heap.is_none() {
        missing
            .push("heap: the runtime shared no counters, or ended before they were found".into());
    }
}

/// After the end a group is empty. Its contents are known from the sample with the largest use.
fn add_measured(
    e: &mut Evidence,
    measured: &ContainerMeasurements,
    record: Option<&ExitRecord>,
    order: Option<&RunOrder>,
) {
    let refaults = e.own.stat.workingset_refault_file;
    if let Some(fullest) = measured.fullest {
        e.own.stat = fullest;
        e.own.stat.workingset_refault_file = refaults.max(fullest.workingset_refault_file);
    }
    if let Some(last) = measured.last {
        e.own.current = e.own.current.max(last.current);
    }
    if e.own.peak.is_none() {
        e.own.peak = measured.timeline.iter().map(|s| s.current).max();
    }
    e.victims.clone_from(&measured.victims);
    e.inside = measured.inside;
    let killed = e.own.events.oom_kill + e.own.events.oom_group_kill > 0;
    if e.victims.is_empty() && killed {
        e.victims.extend(main_as_victim(record, order));
    }
}

/// Adds lines of the garbage collector from the program's own output, if its log is switched on.
fn add_gc_log(e: &mut Evidence, dir: &Path) {
    let Some(heap) = &mut e.heap else { return };
    let text = |name: &str| logs::tail(dir, name, GC_LOG).unwrap_or_default();
    if let Some(log) = [file::STDOUT, file::STDERR]
        .into_iter()
        .find_map(|name| gclog::parse(&text(name)))
    {
        gclog::add(&log, heap);
    }
}

/// The main process as the victim, if it grew faster than the sampling interval. Its parent, the
/// shim, recorded its largest size.
fn main_as_victim(record: Option<&ExitRecord>, order: Option<&RunOrder>) -> Option<VictimProcess> {
    let program = order?.launch.command.first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    Some(VictimProcess {
        pid: 0,
        name: name.chars().take(15).collect(),
        rss: Bytes::new(record?.max_rss),
    })
}

fn log_tail(site: &NodeContext, id: &ContainerId) -> String {
    logs::tail(&site.layout.container(id), file::STDERR, logs::REPORTED).unwrap_or_default()
}

fn without_program(site: &NodeContext, id: &ContainerId, reason: ExitReason) -> ExitReport {
    let verdict = Verdict {
        reason,
        dimension: None::<Dimension>,
    };
    let mut report = finish(
        site,
        id,
        Evidence::empty(site.kind()),
        &verdict,
        None,
        ContainerMeasurements::default(),
        Vec::new(),
    );
    report
        .evidence
        .missing
        .push("everything: the program never ran".into());
    report
}

fn failed(
    site: &NodeContext,
    id: &ContainerId,
    group: Option<&Arc<EnforcedGroup>>,
    failure: &LaunchFailure,
) -> ExitReport {
    if let Some(group) = group {
        end_the_rest(id, group);
    }
    let mut report = without_program(site, id, ExitReason::LaunchFailed);
    report.diagnosis.push(Diagnosis::new(
        SubCause::NotStarted,
        Certainty::Certain,
        &failure.why,
        failure.fix(),
    ));
    report
}

fn never(site: &NodeContext, id: &ContainerId, cause: StopCause) -> ExitReport {
    let reason = match cause {
        StopCause::Asked | StopCause::OverLimit | StopCause::Stalled => ExitReason::Stopped,
        StopCause::Preempted => ExitReason::Preempted,
        StopCause::Timeout => ExitReason::Timeout,
        StopCause::Fenced => ExitReason::NodeLost,
    };
    let mut report = without_program(site, id, reason);
    report.evidence.stop_asked = Some(cause);
    report
}
