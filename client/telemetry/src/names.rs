//! The names of all metrics, with labels and help texts. `docs/metrics.md` is generated from this
//! file.
//!
//! A name is one quantity in one base unit. Labels have few values: words of this project, nodes
//! and queues. The number of values that jobs choose is limited by `telemetry.cardinality`.

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
pub struct MetricDefinition {
    /// The full name.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// Its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// The help text, one sentence.
    pub help: &'static str,
}

impl MetricDefinition {
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
        $(#[doc = $help] pub const $name: MetricDefinition =
            MetricDefinition { name: $text, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)*
        $(#[$about])* pub const $part: &[MetricDefinition] = &[$($name),*];
    };
}

metrics! {
    /// Metrics of the resource manager.
    RM;
    RM_BUILD_INFO Gauge "headroom_rm_build_info" ["version"] "Always 1; the version of the resource manager is in the label."
    RM_LEADER Gauge "headroom_rm_leader" [] "1 while this resource manager serves the cluster; 0 on a standby, and after a start until the nodes have registered."
    RM_MANAGERS Gauge "headroom_rm_managers" [] "Running resource managers of the cluster, with standbys; absent without an election."
    RM_LEASE Gauge "headroom_rm_lease_remaining_seconds" [] "Time for which the lease of the leader is certain; absent on a standby and without an election."
    RM_STANDBY_BEHIND Gauge "headroom_rm_standby_behind_revisions" [] "Revisions of the state that a standby has not copied yet; absent on the leader."
    RM_EPOCH Gauge "headroom_rm_epoch" [] "Epoch of the resource manager: increases by one with every start."
    RM_NODES Gauge "headroom_rm_nodes" ["state"] "Nodes by state."
    RM_JOBS Gauge "headroom_rm_jobs" ["state"] "Known applications by state."
    RM_CONTAINERS Gauge "headroom_rm_containers" ["state"] "Containers by state, without ended containers."
    RM_MEMORY_ALLOCATABLE Gauge "headroom_rm_memory_allocatable_bytes" ["node"] "Memory that a node offers to containers."
    RM_MEMORY_ALLOCATED Gauge "headroom_rm_memory_allocated_bytes" ["node", "part"] "Memory granted to containers: part is heap, or rest for all other memory."
    RM_MEMORY_USED Gauge "headroom_rm_memory_used_bytes" ["node"] "Memory that containers use, as last reported by their node."
    RM_UNATTRIBUTED Gauge "headroom_rm_unattributed_memory_bytes" ["node"] "Memory of a node that ended containers left behind and no running container holds; the scheduler counts it as allocated."
    RM_HOST_MEMORY_USED Gauge "headroom_rm_host_memory_used_bytes" ["node"] "Memory in use on the whole host, as last reported by its node."
    RM_MEMORY_RESERVED Gauge "headroom_rm_memory_reserved_bytes" ["node"] "Memory of a node that is reserved for a waiting request."
    RM_CPUS_ALLOCATABLE Gauge "headroom_rm_cpus_allocatable" ["node"] "Processors that a node offers to containers."
    RM_CPUS_ALLOCATED Gauge "headroom_rm_cpus_allocated" ["node"] "Processors granted to containers."
    RM_LARGEST_FREE Gauge "headroom_rm_largest_free_bytes" [] "The largest container that could be granted now on one ready node."
    RM_QUEUE_USED Gauge "headroom_rm_queue_memory_used_bytes" ["queue"] "Memory that the containers of a queue use."
    RM_QUEUE_GUARANTEED Gauge "headroom_rm_queue_memory_guaranteed_bytes" ["queue"] "Guaranteed memory of a queue; absent for a queue without a guarantee."
    RM_REQUESTS Counter "headroom_rm_requests_total" ["queue", "outcome"] "Requested containers by outcome: granted, refused, or expired."
    RM_REQUESTS_PENDING Gauge "headroom_rm_requests_pending" ["queue", "reason"] "Requested containers that are not granted: reason is never_fits if they are larger than every node, else waits."
    RM_REQUEST_WAIT Histogram "headroom_rm_request_wait_seconds" ["queue"] "Wait of a request for each granted container."
    RM_OLDEST_REQUEST Gauge "headroom_rm_oldest_request_seconds" ["queue"] "Wait of the oldest request."
    RM_SCHEDULER_CYCLE Histogram "headroom_rm_scheduler_cycle_seconds" [] "One cycle of the loop: read a batch, place containers, write the state."
    RM_SCHEDULER_DECISIONS Counter "headroom_rm_scheduler_decisions_total" ["result"] "Decisions of the scheduler by result: granted, reserved, preempted, refused, or expired."
    RM_INPUTS_WAITING Gauge "headroom_rm_inputs_waiting" [] "Calls and reports that wait for the loop."
    RM_NODE_HEARTBEAT Gauge "headroom_rm_node_heartbeat_timestamp_seconds" ["node"] "Time of the last heartbeat of a registered node, in seconds of the wall clock."
    RM_HEARTBEATS_MISSED Counter "headroom_rm_heartbeats_missed_total" [] "Times that a node became suspect because its heartbeats were late."
    RM_STATE_WRITE Histogram "headroom_rm_state_write_seconds" [] "One durable commit of the journal."
    RM_STATE_SIZE Gauge "headroom_rm_state_size_bytes" [] "Size of the state directory."
    RM_EVENTS Counter "headroom_rm_events_total" ["reason"] "Events by reason."
    RM_EVENTS_DROPPED Counter "headroom_rm_events_dropped_total" ["stream"] "Stream events: times that a reader was too late for the kept events; stream disk: events that were not written to the disk in time."
    RM_OOM_LAST_HOUR Gauge "headroom_rm_oom_kills_last_hour" [] "Memory kills that were reported in the last hour."
    RM_HTTP_REQUESTS Counter "headroom_rm_http_requests_total" ["route", "method", "code"] "Answered calls."
    RM_HTTP_DURATION Histogram "headroom_rm_http_request_duration_seconds" ["route"] "Time from a call to the head of its response; streams and waiting queries included."
    RM_CONNECTIONS_REFUSED Counter "headroom_rm_connections_refused_total" ["reason"] "Rejected connections: reason is per_ip_limit for an address with too many connections, handshake_failed for a failed handshake. Refused calls are in headroom_rm_http_requests_total, code 401 and 403."
    RM_HTTP_INFLIGHT Gauge "headroom_rm_http_inflight" [] "Calls in progress."
}

metrics! {
    /// Metrics of application masters. The resource manager publishes them; all masters send it the
    /// results of their tasks.
    AM;
    AM_TASKS Gauge "headroom_am_tasks" ["job", "state"] "Tasks of live jobs: state is pending, running, done, or failed."
    AM_ATTEMPTS Counter "headroom_am_task_attempts_total" ["job", "profile", "outcome"] "Ended attempts of tasks by outcome."
    AM_ESCALATIONS Counter "headroom_am_escalations_total" ["job", "profile", "from_rung", "to_rung"] "Times that a task got a larger size for its next attempt."
    AM_EXHAUSTED Counter "headroom_am_escalations_exhausted_total" ["job", "profile"] "Tasks that failed for memory at the largest size."
    AM_RECOVERED Counter "headroom_am_recovered_tasks_total" ["job", "profile"] "Tasks that succeeded after an attempt that was killed for memory."
    AM_GROWN Counter "headroom_am_grown_attempts_total" ["job", "profile"] "Times that a running attempt got more memory."
    AM_SPANS_DROPPED Counter "headroom_am_spans_dropped_total" ["job"] "Spans of traces that the collector did not accept; without those at the end of a job."
    AM_WASTED Counter "headroom_am_wasted_memory_byte_seconds_total" ["job", "profile"] "Memory × time of attempts that did not succeed."
    AM_OVERALLOCATED Counter "headroom_am_overallocated_memory_byte_seconds_total" ["job", "profile"] "Memory × time that successful attempts did not use: size minus peak."
    AM_PEAK_RATIO Histogram "headroom_am_attempt_peak_ratio" ["profile"] "Peak memory of successful attempts, as a part of their size."
}

metrics! {
    /// Metrics of a node agent.
    NODE;
    NODE_BUILD_INFO Gauge "headroom_node_build_info" ["version", "enforcer"] "Always 1; the labels contain the version of the agent and the enforcer of limits."
    NODE_REGISTERED Gauge "headroom_node_registered" [] "1 while the resource manager knows this node."
    NODE_CONTAINERS Gauge "headroom_node_containers" ["state"] "Containers by state."
    NODE_STARTED Counter "headroom_node_containers_started_total" ["profile"] "Containers whose program was started."
    NODE_EXITED Counter "headroom_node_containers_exited_total" ["reason", "profile"] "Ended containers by verdict."
    NODE_MEMORY Gauge "headroom_node_container_memory_bytes" ["job", "task", "kind"] "Memory of running containers: kind is anon, file, or other for all other charged memory."
    NODE_MEMORY_LIMIT Gauge "headroom_node_container_memory_limit_bytes" ["job", "task"] "Memory limits of running containers."
    NODE_PEAK_RATIO Histogram "headroom_node_container_memory_peak_ratio" ["profile"] "Peak memory of an ended container, as a part of its limit."
    NODE_LIFETIME Histogram "headroom_node_container_lifetime_seconds" ["profile", "reason"] "Time from the grant of a container to its end."
    NODE_OOM_KILLS Counter "headroom_node_oom_kills_total" ["scope"] "Containers that ended for memory: scope is container for their own limit, ancestor, node, or external for an unexplained kill."
    NODE_OOM_DETECT Histogram "headroom_node_oom_detect_seconds" [] "Time from the end of a container for memory to its verdict."
    NODE_NEAR_LIMIT Gauge "headroom_node_containers_near_limit" [] "Running containers that use 90 % or more of their limit, without page cache."
    NODE_UNATTRIBUTED Gauge "headroom_node_unattributed_memory_bytes" [] "Memory that ended containers left behind and no running container holds: a lower bound."
    NODE_STALLED Counter "headroom_node_memory_stalled_seconds_total" ["type"] "Time in which some, or all (full), programs of the host stalled for lack of memory."
    NODE_LAUNCH Histogram "headroom_node_launch_seconds" ["stage"] "Time to launch a container: stage is prepare for files and cgroup, start for the program."
    NODE_CGROUP_ERRORS Counter "headroom_node_cgroup_errors_total" ["op"] "Failed steps: op is prepare, start, or resize."
    NODE_CALLS_REFUSED Counter "headroom_node_calls_refused_total" ["code"] "Calls that were refused for lack of permission: code is HR0401 for unauthenticated callers, HR0403 for other callers."
    NODE_CONNECTIONS_REFUSED Counter "headroom_node_connections_refused_total" ["reason"] "Rejected connections: reason is per_ip_limit for an address with too many connections, unauthenticated_limit for too many callers without a certificate, handshake_failed for a failed handshake."
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
    PROCESS_MAX_FDS Gauge "process_max_fds" [] "Maximum open files of the process."
    PROCESS_START_TIME Gauge "process_start_time_seconds" [] "Start time of the process, in seconds of the wall clock."
    PROCESS_THREADS Gauge "process_threads" [] "Threads of the process."
}

/// All metrics of all daemons.
pub fn all() -> impl Iterator<Item = &'static MetricDefinition> {
    [RM, AM, NODE, PROCESS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        for m in all() {
            let good = m.name.starts_with("headroom_") || m.name.starts_with("process_");
            assert!(
                good && m.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{}",
                m.name
            );
            assert_eq!(
                m.name.ends_with("_total"),
                m.kind == MetricKind::Counter,
                "{}",
                m.name
            );
            assert!(
                m.help.ends_with('.') && m.labels.iter().all(|l| !l.is_empty() && *l != "le"),
                "{}",
                m.name
            );
        }
        assert_eq!(
            all().map(|m| m.name).collect::<BTreeSet<_>>().len(),
            all().count()
        );
    }
}
