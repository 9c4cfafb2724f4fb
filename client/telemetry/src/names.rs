//! The names of all metrics, with labels and help texts. `docs/metrics.md` is generated from this
//! file.
//!
//! A name is one quantity in one base unit. Labels have few values: words of this project, nodes
//! and queues. The number of values that jobs choose is limited by `telemetry.cardinality`.

use std::fmt::Write as _;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases; starts at zero with the process.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl MetricKind {
    /// The type's name in the exposition format.
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The full name.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// Its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// The help text, one sentence.
    pub help: &'static str,
}

impl Metric {
    /// The name of its family in OpenMetrics: the family of a counter has no `_total`.
    pub fn family(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            MetricKind::Gauge | MetricKind::Histogram => self.name,
        }
    }
}

macro_rules! metrics {
    ($(#[$about:meta])* $part:ident; $($name:ident $kind:ident $text:literal [$($label:literal),*] $help:literal)*) => {
        $(#[doc = $help] pub const $name: Metric =
            Metric { name: $text, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)*
        $(#[$about])* pub const $part: &[Metric] = &[$($name),*];
    };
}

metrics! {
    /// Metrics of the resource manager.
    RM;
    RM_BUILD_INFO Gauge "headroom_rm_build_info" ["version"] "Always 1; the version of the resource manager is in the label."
    RM_LEADER Gauge "headroom_rm_leader" [] "1 while this resource manager takes calls for the cluster, 0 after a restart until its nodes are back."
    RM_EPOCH Gauge "headroom_rm_epoch" [] "The life of the resource manager: goes up by one with every start."
    RM_NODES Gauge "headroom_rm_nodes" ["state"] "Nodes by state."
    RM_JOBS Gauge "headroom_rm_jobs" ["state"] "Applications that are kept, by state."
    RM_CONTAINERS Gauge "headroom_rm_containers" ["state"] "Containers by state, those that are over left out."
    RM_MEMORY_ALLOCATABLE Gauge "headroom_rm_memory_allocatable_bytes" ["node"] "Memory that a node offers to containers."
    RM_MEMORY_ALLOCATED Gauge "headroom_rm_memory_allocated_bytes" ["node", "part"] "Memory granted to containers: part is heap, or rest for all that is not known to be heap."
    RM_MEMORY_USED Gauge "headroom_rm_memory_used_bytes" ["node"] "Memory that containers use, as their node told last."
    RM_UNATTRIBUTED Gauge "headroom_rm_unattributed_memory_bytes" ["node"] "Memory of a node that ended containers left behind and no running container holds; the scheduler counts it as taken."
    RM_HOST_MEMORY_USED Gauge "headroom_rm_host_memory_used_bytes" ["node"] "Memory in use on the whole host, as its node told last."
    RM_MEMORY_RESERVED Gauge "headroom_rm_memory_reserved_bytes" ["node"] "Memory of a node that is kept for a request that waits."
    RM_CPUS_ALLOCATABLE Gauge "headroom_rm_cpus_allocatable" ["node"] "Processors that a node offers to containers."
    RM_CPUS_ALLOCATED Gauge "headroom_rm_cpus_allocated" ["node"] "Processors granted to containers."
    RM_LARGEST_FREE Gauge "headroom_rm_largest_free_bytes" [] "The largest container that could be granted now on one ready node."
    RM_QUEUE_USED Gauge "headroom_rm_queue_memory_used_bytes" ["queue"] "Memory that the containers of a queue have."
    RM_QUEUE_GUARANTEED Gauge "headroom_rm_queue_memory_guaranteed_bytes" ["queue"] "Memory that a queue can count on; left out where it has no guarantee."
    RM_REQUESTS Counter "headroom_rm_requests_total" ["queue", "outcome"] "Containers of requests by what became of them: granted, refused, or expired."
    RM_REQUESTS_PENDING Gauge "headroom_rm_requests_pending" ["queue", "reason"] "Containers that are asked for and not granted: reason is never_fits when no node is as large as they are, else waits."
    RM_REQUEST_WAIT Histogram "headroom_rm_request_wait_seconds" ["queue"] "How long a request waited for each container it was granted."
    RM_OLDEST_REQUEST Gauge "headroom_rm_oldest_request_seconds" ["queue"] "How long the request has waited that has waited longest."
    RM_SCHEDULER_CYCLE Histogram "headroom_rm_scheduler_cycle_seconds" [] "One turn of the loop: taking in a batch, placing containers, saving."
    RM_SCHEDULER_DECISIONS Counter "headroom_rm_scheduler_decisions_total" ["result"] "What was decided: granted, reserved, preempted, refused, or expired."
    RM_INPUTS_WAITING Gauge "headroom_rm_inputs_waiting" [] "Calls and reports that wait for the loop."
    RM_NODE_HEARTBEAT Gauge "headroom_rm_node_heartbeat_timestamp_seconds" ["node"] "When a node was last heard, in seconds of the wall clock; members only."
    RM_HEARTBEATS_MISSED Counter "headroom_rm_heartbeats_missed_total" [] "Times that a node was silent for so long that it was suspected."
    RM_STATE_WRITE Histogram "headroom_rm_state_write_seconds" [] "One durable commit of the journal."
    RM_STATE_SIZE Gauge "headroom_rm_state_size_bytes" [] "Size of the state directory."
    RM_EVENTS Counter "headroom_rm_events_total" ["reason"] "Events by reason."
    RM_EVENTS_DROPPED Counter "headroom_rm_events_dropped_total" ["stream"] "Stream events: times that a reader came too late for what is kept; stream disk: events that the disk could not take in time."
    RM_OOM_LAST_HOUR Gauge "headroom_rm_oom_kills_last_hour" [] "Memory kills that were told in the last hour."
    RM_HTTP_REQUESTS Counter "headroom_rm_http_requests_total" ["route", "method", "code"] "Calls that were answered."
    RM_HTTP_DURATION Histogram "headroom_rm_http_request_duration_seconds" ["route"] "From a call to the head of its answer; streams and waiting queries included."
    RM_CONNECTIONS_REFUSED Counter "headroom_rm_connections_refused_total" ["reason"] "Connections that were turned away: reason is crowded for an address that has as many as one may have, unproven for callers that showed nothing valid in time. Calls that were refused are in headroom_rm_http_requests_total, code 401 and 403."
    RM_HTTP_INFLIGHT Gauge "headroom_rm_http_inflight" [] "Calls that are being answered."
}

metrics! {
    /// Metrics of application masters. The resource manager publishes them; all masters send it the
    /// results of their tasks.
    AM;
    AM_TASKS Gauge "headroom_am_tasks" ["job", "state"] "Tasks of live jobs: state is pending, running, done, or failed."
    AM_ATTEMPTS Counter "headroom_am_task_attempts_total" ["job", "profile", "outcome"] "Attempts at tasks that ended, by the reason of their end."
    AM_ESCALATIONS Counter "headroom_am_escalations_total" ["job", "profile", "from_rung", "to_rung"] "Times that a task was given a larger size for its next attempt."
    AM_EXHAUSTED Counter "headroom_am_escalations_exhausted_total" ["job", "profile"] "Tasks that were given up for memory, with no larger size left."
    AM_RECOVERED Counter "headroom_am_recovered_tasks_total" ["job", "profile"] "Tasks that ended well after an attempt that was killed for memory."
    AM_GROWN Counter "headroom_am_grown_attempts_total" ["job", "profile"] "Times that a running attempt was given more memory where it ran."
    AM_SPANS_DROPPED Counter "headroom_am_spans_dropped_total" ["job"] "Spans of traces that their collector did not take; not those at the end of a job."
    AM_WASTED Counter "headroom_am_wasted_memory_byte_seconds_total" ["job", "profile"] "Memory × time of attempts that did not end well."
    AM_OVERALLOCATED Counter "headroom_am_overallocated_memory_byte_seconds_total" ["job", "profile"] "Memory × time that attempts which ended well had and never used: size less peak."
    AM_PEAK_RATIO Histogram "headroom_am_attempt_peak_ratio" ["profile"] "Largest use of memory of attempts that ended well, as a part of their size."
}

metrics! {
    /// Metrics of a node agent.
    NODE;
    NODE_BUILD_INFO Gauge "headroom_node_build_info" ["version", "enforcer"] "Always 1; the version of the agent, and what holds containers to their limits, are in the labels."
    NODE_REGISTERED Gauge "headroom_node_registered" [] "1 while the resource manager knows this node."
    NODE_CONTAINERS Gauge "headroom_node_containers" ["state"] "Containers by state."
    NODE_STARTED Counter "headroom_node_containers_started_total" ["profile"] "Containers whose program was started."
    NODE_EXITED Counter "headroom_node_containers_exited_total" ["reason", "profile"] "Containers that ended, by the verdict."
    NODE_MEMORY Gauge "headroom_node_container_memory_bytes" ["job", "task", "kind"] "Memory of containers that run: kind is anon, file, or other for all else that is charged to them."
    NODE_MEMORY_LIMIT Gauge "headroom_node_container_memory_limit_bytes" ["job", "task"] "What containers that run are held to."
    NODE_PEAK_RATIO Histogram "headroom_node_container_memory_peak_ratio" ["profile"] "Largest use of memory of a container, as a part of its limit, at its end."
    NODE_LIFETIME Histogram "headroom_node_container_lifetime_seconds" ["profile", "reason"] "From the grant of a container to its end."
    NODE_OOM_KILLS Counter "headroom_node_oom_kills_total" ["scope"] "Containers that memory ended: scope is container for their own limit, ancestor, node, or external for a kill that nobody here can explain."
    NODE_OOM_DETECT Histogram "headroom_node_oom_detect_seconds" [] "From the end of a container for memory to its verdict."
    NODE_NEAR_LIMIT Gauge "headroom_node_containers_near_limit" [] "Containers that run and use 90 % or more of their limit, page cache left out."
    NODE_UNATTRIBUTED Gauge "headroom_node_unattributed_memory_bytes" [] "Memory that ended containers left behind and no running container holds: a lower bound."
    NODE_STALLED Counter "headroom_node_memory_stalled_seconds_total" ["type"] "Time in which some, or all (full), programs of the host stood still for want of memory."
    NODE_LAUNCH Histogram "headroom_node_launch_seconds" ["stage"] "Launching a container: stage is prepare for files and cgroup, start for the program."
    NODE_CGROUP_ERRORS Counter "headroom_node_cgroup_errors_total" ["op"] "Steps that failed: op is prepare, start, or resize."
    NODE_CALLS_REFUSED Counter "headroom_node_calls_refused_total" ["code"] "Calls that were refused for who sent them: code is HR0401 for nobody in particular, HR0403 for somebody who may not."
    NODE_CONNECTIONS_REFUSED Counter "headroom_node_connections_refused_total" ["reason"] "Connections that were turned away: reason is crowded for an address that has as many as one may have, strangers when as many callers without a certificate are here as may be, unproven for callers that showed nothing valid in time."
    NODE_HOST_MEMORY_USED Gauge "headroom_node_host_memory_used_bytes" [] "Memory in use on the whole host."
    NODE_MEMORY_ALLOCATABLE Gauge "headroom_node_memory_allocatable_bytes" [] "Memory that the node offers to containers."
}

metrics! {
    /// Metrics of every process.
    PROCESS;
    PROCESS_CPU_SECONDS Counter "process_cpu_seconds_total" [] "Processor time that the process has used."
    PROCESS_RESIDENT_MEMORY Gauge "process_resident_memory_bytes" [] "Resident memory of the process."
    PROCESS_VIRTUAL_MEMORY Gauge "process_virtual_memory_bytes" [] "Virtual memory of the process."
    PROCESS_OPEN_FDS Gauge "process_open_fds" [] "Files that the process has open."
    PROCESS_MAX_FDS Gauge "process_max_fds" [] "Files that it may have open."
    PROCESS_START_TIME Gauge "process_start_time_seconds" [] "When the process began, in seconds of the wall clock."
    PROCESS_THREADS Gauge "process_threads" [] "Threads of the process."
}

/// All metrics of all daemons.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [RM, AM, NODE, PROCESS].into_iter().flatten()
}

/// The text of `docs/metrics.md`.
pub fn manual() -> String {
    let mut text = String::from(ABOUT);
    let parts = [
        ("Resource manager", "At `/metrics` of the resource manager.", RM),
        ("Application masters", AM_ABOUT, AM),
        ("Node agent", "At `/metrics` of each node agent.", NODE),
        ("Processes", "At both.", PROCESS),
    ];
    for (title, about, metrics) in parts {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\n## {title}\n\n{about}\n\n| name | type | labels | what it says |\n| --- | --- | --- | --- |\n");
        for m in metrics {
            let labels = if m.labels.is_empty() { "–".to_owned() } else { m.labels.join(", ") };
            let _ = writeln!(text, "| `{}` | {} | {labels} | {} |", m.name, m.kind.as_str(), m.help);
        }
    }
    text
}

const ABOUT: &str = "# Metrics

Generated from `client/telemetry/src/names.rs`; a test keeps it current.

`GET /metrics` of the resource manager (port 7070) and of each node agent (port 7072) answers in the text format, or as OpenMetrics
to whoever asks for `application/openmetrics-text`. Counters begin at zero when a process starts. Units are bytes and seconds. How to
scrape, and what to be woken for: [observing](observing.md).

How many series there are is bounded. `telemetry.cardinality` in the configuration of a daemon says how fine they are:

| value | label `job` | label `task` | series |
| --- | --- | --- | --- |
| `profile` (default) | left out: summed over all jobs | left out | grow with nodes, queues and kinds of tasks |
| `job` | the application, while it lives | left out | and with live jobs |
| `task` | the application | the request of the container | and with running containers |

The label `profile` is the stage of a job that the task belongs to. At most 200 different profiles have names; further ones are `other`.
";

const AM_ABOUT: &str = "At `/metrics` of the resource manager. A master lives as long as its job, on a port that nobody knows beforehand, and ends before it could \
    be scraped a last time; and everything it has to say it sends to the resource manager anyway. Counted from the attempts \
    of tasks that ended in this life of the resource manager, so that a restart begins at zero like any other counter.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_as_scrapers_expect_them() {
        for m in all() {
            let good = m.name.starts_with("headroom_") || m.name.starts_with("process_");
            assert!(good && m.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", m.name);
            assert_eq!(m.name.ends_with("_total"), m.kind == MetricKind::Counter, "{}", m.name);
            assert!(m.help.ends_with('.') && m.labels.iter().all(|l| !l.is_empty() && *l != "le"), "{}", m.name);
        }
        assert_eq!(all().map(|m| m.name).collect::<BTreeSet<_>>().len(), all().count());
    }
}
