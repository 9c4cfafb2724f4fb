//! Executors: the containers of this job, the attempts in their slots, and the number of requested
//! ones.
//!
//! The core owns them. The containers of a request are counted as the resource manager counts them:
//! those whose end was processed and the live ones. Both counts survive a restart of
//! the master; connections and reservations do not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_config::JobSpec;
use headroom_types::exit::Unattributed;
use headroom_types::{
    Bytes, ContainerId, ExitReport, NodeId, RequestId, Resource, TaskAttemptId, Tick, UnixMillis,
};

use crate::policy::backoff;
use crate::policy::collateral::{CollateralKills, OtherNodeExists};
use crate::taskset::TaskPosition;

/// The connection to an executor.
///
/// ```text
///  Silent --hello--> Up --closed--> Down --hello--> Up
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The executor has not sent a hello in this run of the master.
    Silent {
        /// Timeout; then the executor counts as lost.
        until: Tick,
    },
    /// The executor is connected.
    Up,
    /// The connection was lost.
    Down {
        /// Timeout; then the executor counts as lost.
        until: Tick,
    },
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestPurpose {
    /// Shared executors: the index of their set in the job file.
    Set(usize),
    /// A container for one task.
    Own(TaskPosition),
}

impl RequestPurpose {
    /// Slots of a container of this purpose.
    pub fn slots(self, job: &JobSpec) -> u32 {
        match self {
            RequestPurpose::Set(set) => job.executors.get(set).map_or(1, |s| s.slots),
            RequestPurpose::Own(_) => 1,
        }
    }
}

/// An attempt in the slots of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotAssignment {
    /// The task.
    pub task: TaskPosition,
    /// Number of slots that it occupies.
    pub slots: u32,
    /// True if the executor reported that it runs.
    pub started: bool,
    /// The limit that it has, or is about to get. Bytes.
    pub memory: Bytes,
    /// The part of that limit that it got while it ran. Bytes.
    pub extra: Bytes,
    /// Set while it is frozen near its limit and waits for more memory.
    pub held: Option<TaskFreeze>,
    /// True if its runtime spends most of its time collecting a heap that is too small.
    pub starved: bool,
    /// True if a retry was ordered in place of this attempt.
    pub to_retry: bool,
    /// Number of failed launches in a row on the node before this one.
    pub round: u32,
}

/// The subject of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchSubject {
    /// An executor.
    Executor,
    /// A task of the stage with this index in the job file.
    Task(usize),
}

/// A node on which launches fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchExclusion {
    /// Number of failures in a row; several that fail together count once.
    pub failures: u32,
    /// Subject of the last failure.
    pub launched: LaunchSubject,
    /// No task starts there before this time; 0 after it has passed.
    pub until: Tick,
}

/// The freeze of a task that waits for more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskFreeze {
    /// Start of the freeze.
    pub since: Tick,
    /// Time at which the executor unfreezes the task.
    pub until: Tick,
    /// Memory that the node was found not to have; `None` while that is unknown. Bytes.
    pub short: Option<Bytes>,
    /// Start of the freeze, by the wall clock.
    pub at: UnixMillis,
}

impl TaskFreeze {
    /// The middle of the freeze.
    pub fn half(self) -> Tick {
        self.since.plus(self.until.since(self.since) / 2)
    }
}

/// A requested change of a container's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingResize {
    /// Requested memory in total. Bytes.
    pub to: Bytes,
    /// Time of the next request.
    pub again_at: Tick,
    /// Number of refusals.
    pub tries: u32,
}

/// Timeout after an announced preemption; a container that is still alive then is no longer
/// considered warned.
const WARNING_TIMEOUT: Duration = Duration::from_secs(10);

/// The warning that a container will be preempted, or that its node is being drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisruptionWarning {
    /// Time of the preemption; `None` if there is no deadline.
    pub until: Option<Tick>,
}

impl DisruptionWarning {
    /// Time at which the warning expires if it did not come true.
    pub fn forgotten_at(self) -> Option<Tick> {
        self.until.map(|until| until.plus(WARNING_TIMEOUT))
    }
}

/// Whether the resource manager knows the container of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerListing {
    /// It listed or granted the container, or the executor has connected since.
    Listed,
    /// It did not list the container when this master last registered.
    Unlisted,
    /// Likewise, and the end may have been reported to another attempt of the application, with
    /// another journal. The container counts as ended.
    Ended,
}

impl ContainerListing {
    fn is_listed(self) -> bool {
        match self {
            ContainerListing::Listed => true,
            ContainerListing::Unlisted | ContainerListing::Ended => false,
        }
    }
}

/// One executor.
#[derive(Clone, Debug)]
pub struct ExecutorEntry {
    /// Its request.
    pub request: RequestId,
    /// The purpose of that request.
    pub purpose: RequestPurpose,
    /// Its node.
    pub node: NodeId,
    /// Failures in a row when it was granted: containers of its request, and launches on its node.
    pub rounds: (u32, u32),
    /// Slots.
    pub slots: u32,
    /// The connection to it.
    pub line: ConnectionState,
    /// True if it has ever sent a hello.
    pub greeted: bool,
    /// The attempts in its slots.
    pub seats: BTreeMap<TaskAttemptId, SlotAssignment>,
    /// Time since when no task runs in it.
    pub idle_since: Option<Tick>,
    /// The wide task for which it is reserved, and the end of the reservation.
    pub reserved: Option<(TaskPosition, Tick)>,
    /// Current size of its container; `None` until the resource manager has reported it to this run
    /// of the master.
    pub resource: Option<Resource>,
    /// Initial memory of its container. Bytes.
    pub base: Bytes,
    /// Memory of one of its slots; zero if it runs one task. Bytes.
    pub share: Bytes,
    /// A requested change of its size.
    pub resizing: Option<PendingResize>,
    /// A smaller size that the node could not apply. Bytes.
    pub keeps: Option<Bytes>,
    /// Memory that ended tasks left in its container.
    pub left: Unattributed,
    /// Set when the platform will end it: no new task starts in it.
    pub warning: Option<DisruptionWarning>,
    /// It was ordered to end.
    pub leaving: bool,
    /// It was ordered to end because its first hello did not arrive in time.
    pub was_silent: bool,
    /// Whether the resource manager knows its container.
    pub listing: ContainerListing,
    /// The exit report of its container, the timeout for its final task reports, and the cursor of
    /// the update.
    pub ended: Option<(Box<ExitReport>, Tick, u64)>,
}

impl ExecutorEntry {
    /// An executor that was granted and has not connected yet.
    pub fn granted(
        request: RequestId,
        purpose: RequestPurpose,
        node: NodeId,
        slots: u32,
        until: Tick,
    ) -> Self {
        ExecutorEntry {
            request,
            purpose,
            node,
            rounds: (0, 0),
            slots,
            line: ConnectionState::Silent { until },
            greeted: false,
            seats: BTreeMap::new(),
            idle_since: None,
            reserved: None,
            resource: None,
            base: Bytes::ZERO,
            share: Bytes::ZERO,
            resizing: None,
            keeps: None,
            left: Unattributed::default(),
            warning: None,
            leaving: false,
            was_silent: false,
            listing: ContainerListing::Listed,
            ended: None,
        }
    }
    /// Occupied slots.
    pub fn used(&self) -> u32 {
        self.seats
            .values()
            .fold(0, |n, s| n.saturating_add(s.slots))
    }
    /// Free slots whose memory is available: tasks that grew may use the memory of other slots.
    /// None while the heap of one task is starved, because that task's overhead may need the
    /// remaining memory next.
    pub fn free(&self) -> u32 {
        if self.seats.values().any(|seat| seat.starved) {
            return 0;
        }
        let free = self.empty();
        let borrowed = self.extra().saturating_sub(self.enlarged());
        if self.share.is_zero() || borrowed.is_zero() {
            return free;
        }
        free.saturating_sub(u32::try_from(borrowed.div_ceil(self.share)).unwrap_or(u32::MAX))
    }
    /// Memory that is available for growth of its tasks. Bytes.
    pub fn spare(&self) -> Bytes {
        self.enlarged()
            .saturating_add(self.share.mul_ratio(u64::from(self.empty()), 1))
            .saturating_sub(self.extra())
    }
    /// Memory that its container needs for the granted limits. Bytes.
    pub fn needs(&self) -> Bytes {
        self.base.saturating_add(self.extra())
    }
    /// True when its container is larger than it needs to be now.
    pub fn has_too_much(&self) -> bool {
        self.may_run_tasks()
            && self
                .resource
                .as_ref()
                .is_some_and(|has| has.memory > self.needs().max(self.base))
            && !self.share.is_zero()
    }
    /// Memory that the next task in it would find: the container's memory, minus the `reserve` of
    /// the executor, the leftovers of ended tasks, and the limits of running tasks. If no slot is
    /// free, the largest running task counts as ended. Bytes.
    pub fn room_beside_leftovers(&self, reserve: Bytes) -> Bytes {
        let has = self.resource.as_ref().map_or(self.base, |has| has.memory);
        let taken = self
            .seats
            .values()
            .fold(Bytes::ZERO, |sum, seat| sum.saturating_add(seat.memory));
        let largest = self
            .seats
            .values()
            .map(|seat| seat.memory)
            .max()
            .filter(|_| self.empty() == 0)
            .unwrap_or_default();
        has.saturating_sub(reserve)
            .saturating_sub(self.left.memory)
            .saturating_sub(taken.saturating_sub(largest))
    }
    fn empty(&self) -> u32 {
        self.slots.saturating_sub(self.used())
    }
    fn extra(&self) -> Bytes {
        self.seats
            .values()
            .fold(Bytes::ZERO, |sum, s| sum.saturating_add(s.extra))
    }
    fn enlarged(&self) -> Bytes {
        self.resource
            .as_ref()
            .map_or(Bytes::ZERO, |has| has.memory.saturating_sub(self.base))
    }
    /// True when the executor itself can start a task.
    fn takes_work(&self) -> bool {
        self.line == ConnectionState::Up && self.may_run_tasks() && self.warning.is_none()
    }
    /// True when it may run tasks: neither ordered to end nor known to have ended.
    pub fn may_run_tasks(&self) -> bool {
        !self.leaving && self.ended.is_none()
    }
    /// True when it needs no replacement. A warned executor is replaced at once. A warned own
    /// container is replaced only if its task has to run again.
    pub fn needs_no_replacement(&self) -> bool {
        let done_here = matches!(self.purpose, RequestPurpose::Own(_)) && !self.seats.is_empty();
        self.may_run_tasks() && self.listing.is_listed() && (self.warning.is_none() || done_here)
    }
}

/// One container request.
#[derive(Clone, Debug)]
pub struct ExecutorRequest {
    /// Its purpose.
    pub purpose: RequestPurpose,
    /// Requested number of live containers.
    pub wanted: u32,
    /// Containers of it whose end was processed.
    pub ended: BTreeSet<ContainerId>,
    /// Number of containers in a row that ended before their executor sent a hello; several that
    /// end together count once.
    pub unused: u32,
    /// No replacement is requested before this time.
    pub hold_until: Tick,
    /// Memory of each container. Bytes.
    pub memory: Bytes,
    /// Time since when the resource manager reports it as infeasible.
    pub refused_since: Option<Tick>,
}

impl ExecutorRequest {
    /// A request for no container so far.
    pub fn new(purpose: RequestPurpose, memory: Bytes) -> Self {
        let hold_until = Tick(0);
        ExecutorRequest {
            purpose,
            wanted: 0,
            ended: BTreeSet::new(),
            unused: 0,
            hold_until,
            memory,
            refused_since: None,
        }
    }
}

/// All requests and executors of the job.
#[derive(Clone, Debug, Default)]
pub struct ExecutorFleet {
    /// By container.
    pub executors: BTreeMap<ContainerId, ExecutorEntry>,
    /// Containers whose tasks have grown or wait for growth, or whose size may have to change.
    pub growing: BTreeSet<ContainerId>,
    /// By request id.
    pub requests: BTreeMap<RequestId, ExecutorRequest>,
    /// Containers whose end was processed and that the resource manager reports alive again, for
    /// example when a lost node returns. They must be stopped.
    pub strays: BTreeSet<ContainerId>,
    /// Nodes on which launches fail.
    pub shunned: BTreeMap<NodeId, LaunchExclusion>,
    /// Kills for outer limits, by node and container.
    pub collateral: CollateralKills,
    /// Time at which the next idle executor ends.
    pub idle_until: Option<Tick>,
    /// Own containers of escalated tasks that are requested and not granted. Not durable.
    pub own_waits: BTreeMap<RequestId, OwnContainerWait>,
    /// Live containers of single tasks. Not durable.
    pub own_live: BTreeSet<ContainerId>,
    /// The executors that make room for them, by the request of the own container. Not durable.
    pub drained: BTreeMap<RequestId, DrainedRoom>,
    /// Nodes that are too full for the needs of frozen tasks. Not durable.
    pub contention: BTreeMap<NodeId, Contention>,
}

/// The wait for the own container of an escalated task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnContainerWait {
    /// The task.
    pub task: TaskPosition,
    /// Start of the wait.
    pub since: Tick,
    /// No executor is drained for it before this time.
    pub drain_at: Tick,
    /// Number of drains in a row that did not lead to a grant.
    pub failed_drains: u32,
    /// True if a drain is due and all executors that could be drained make room for other tasks.
    pub takes_turns: bool,
}

/// Room that one executor makes for the own container of an escalated task. Until the container is
/// granted, the executor is not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainedRoom {
    /// The executor.
    pub container: ContainerId,
    /// Its node.
    pub node: NodeId,
    /// Memory of all executors that were drained for this request. Bytes.
    pub freed: Bytes,
    /// Time at which the last of them had ended.
    pub gone_at: Option<Tick>,
}

/// Frozen tasks of one node need more memory than it has free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// The drain or eviction in progress.
    pub makes_room: Option<PendingRoom>,
    /// Evicted tasks: their containers are requested when the contention is over.
    pub evicted: BTreeSet<TaskPosition>,
    /// Sets whose executors have left or are about to leave; they are replaced when the contention
    /// is over.
    pub sets: BTreeSet<usize>,
    /// No attempt is evicted before this time.
    pub evict_at: Tick,
}

/// An executor, or attempts in it, that are about to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRoom {
    /// The container.
    pub container: ContainerId,
    /// Attempts that were ordered to stop; empty if the executor drains.
    pub attempts: Vec<TaskAttemptId>,
    /// True if the container ends.
    pub leaves: bool,
}

/// The desired state of one request at the resource manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredRequest {
    /// The request.
    pub request: RequestId,
    /// Its purpose.
    pub purpose: RequestPurpose,
    /// Number of containers in total, ended ones included.
    pub count: u32,
    /// Number of them whose end was processed.
    pub ended: u32,
}

impl ExecutorFleet {
    /// The slots that an attempt holds in a container.
    pub fn seat(
        &self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
    ) -> Option<&SlotAssignment> {
        self.executors.get(container)?.seats.get(attempt)
    }

    /// The slots of all attempts in a container.
    pub fn seats_of(&self, container: &ContainerId) -> BTreeMap<TaskAttemptId, SlotAssignment> {
        let executor = self.executors.get(container);
        executor.map(|e| e.seats.clone()).unwrap_or_default()
    }

    /// The same as [`ExecutorFleet::seat`], for a change.
    pub fn seat_mut(
        &mut self,
        container: &ContainerId,
        attempt: &TaskAttemptId,
    ) -> Option<&mut SlotAssignment> {
        self.executors.get_mut(container)?.seats.get_mut(attempt)
    }

    /// Executors of a request, including those that were ordered to end.
    pub fn of_request<'a>(
        &'a self,
        request: &'a RequestId,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a ExecutorEntry)> {
        self.executors
            .iter()
            .filter(move |(_, e)| e.request == *request)
    }

    /// The desired count of each request: ended containers, ending ones, and the larger of
    /// requested and kept ones.
    pub fn desired_requests(&self) -> Vec<DesiredRequest> {
        self.worth(|_| true)
    }

    /// Like [`ExecutorFleet::desired_requests`], without requests that need no further containers.
    /// In a long job these are the great majority.
    pub fn open(&self) -> Vec<DesiredRequest> {
        self.worth(|wanted: (u32, u32)| wanted.0 > wanted.1)
    }

    /// Requests whose count and number of ended containers `pass`.
    fn worth(&self, pass: impl Fn((u32, u32)) -> bool) -> Vec<DesiredRequest> {
        #[derive(Clone, Copy, Default)]
        struct ContainerCounts {
            kept: u32,
            leaving: u32,
            ended: u32,
        }
        let mut counts: BTreeMap<&RequestId, ContainerCounts> = BTreeMap::new();
        for executor in self.executors.values() {
            let of_request = counts.entry(&executor.request).or_default();
            let counter = match executor.listing {
                ContainerListing::Listed if executor.needs_no_replacement() => &mut of_request.kept,
                ContainerListing::Listed => &mut of_request.leaving,
                ContainerListing::Ended => &mut of_request.ended,
                // The resource manager itself replaces it. Counted here, it would be requested again
                // and again.
                ContainerListing::Unlisted => continue,
            };
            *counter = counter.saturating_add(1);
        }
        let one = |(id, request): (&RequestId, &ExecutorRequest)| {
            let counts = counts.get(id).copied().unwrap_or_default();
            let ended = count(request.ended.len()).saturating_add(counts.ended);
            let worth = ended
                .saturating_add(counts.leaving)
                .saturating_add(counts.kept.max(request.wanted));
            let wanted = || DesiredRequest {
                request: id.clone(),
                purpose: request.purpose,
                count: worth,
                ended,
            };
            pass((worth, ended)).then(wanted)
        };
        self.requests.iter().filter_map(one).collect()
    }

    /// Ends the reservations of executors for a task.
    pub fn clear_reservation(&mut self, task: TaskPosition) {
        for executor in self.executors.values_mut() {
            executor.reserved = executor.reserved.filter(|(reserved, _)| *reserved != task);
        }
    }

    /// Containers that the resource manager should stop.
    pub fn releases(&self) -> Vec<ContainerId> {
        let leaving = self
            .executors
            .iter()
            .filter(|(_, e)| e.leaving && e.ended.is_none())
            .map(|(id, _)| id);
        leaving.chain(&self.strays).cloned().collect()
    }

    /// Executors of a set that stay and are not warned.
    pub fn staying(&self, set: usize) -> impl Iterator<Item = (&ContainerId, &ExecutorEntry)> {
        self.executors
            .iter()
            .filter(move |(_, e)| e.purpose == RequestPurpose::Set(set) && e.needs_no_replacement())
    }

    /// True when an own container is requested and not granted.
    pub fn own_missing(&self) -> bool {
        let there: BTreeSet<&RequestId> = self
            .executors
            .values()
            .filter(|e| e.needs_no_replacement())
            .map(|e| &e.request)
            .collect();
        self.requests.iter().any(|(id, r)| match r.purpose {
            RequestPurpose::Own(_) => r.wanted > 0 && !there.contains(id),
            RequestPurpose::Set(_) => false,
        })
    }

    /// Number of failed launches in a row on a node.
    pub fn failures(&self, node: &NodeId) -> u32 {
        self.shunned.get(node).map_or(0, |shunned| shunned.failures)
    }

    /// Counts a failed launch that started when `round` launches had failed there.
    pub fn launch_failed(&mut self, node: &NodeId, launched: LaunchSubject, round: u32) {
        let new = LaunchExclusion {
            failures: 0,
            launched,
            until: Tick(0),
        };
        let shunned = self.shunned.entry(node.clone()).or_insert(new);
        shunned.failures = next_round(shunned.failures, round);
        shunned.launched = launched;
    }

    /// Excludes the node from now on, the longer the more launches of tasks have failed there.
    pub fn restart_exclusion(&mut self, node: &NodeId, now: Tick) {
        let Some(shunned) = self.shunned.get_mut(node) else {
            return;
        };
        match shunned.launched {
            LaunchSubject::Executor => {}
            LaunchSubject::Task(_) => shunned.until = now.plus(backoff(shunned.failures)),
        }
    }

    /// Removes the failures of a node if the subject that failed last was launched successfully.
    pub fn launch_succeeded(&mut self, node: &NodeId, launched: LaunchSubject) {
        if self
            .shunned
            .get(node)
            .is_some_and(|shunned| shunned.launched == launched)
        {
            self.shunned.remove(node);
        }
    }

    /// Whether an executor runs on a node that is not excluded.
    pub fn other_place(&self) -> OtherNodeExists {
        let healthy = self
            .executors
            .values()
            .any(|e| e.may_run_tasks() && !self.collateral.is_excluded(&e.node));
        if healthy {
            OtherNodeExists::There
        } else {
            OtherNodeExists::Missing
        }
    }

    /// True when a task can be started in this executor now.
    pub fn takes_work(&self, executor: &ExecutorEntry) -> bool {
        executor.takes_work()
            && self
                .shunned
                .get(&executor.node)
                .is_none_or(|shunned| shunned.until == Tick(0))
    }

    /// For each request of one task, a container that can run it now.
    pub fn ready_own(&self) -> BTreeMap<&RequestId, &ContainerId> {
        let own = |e: &ExecutorEntry| {
            matches!(e.purpose, RequestPurpose::Own(_)) && self.takes_work(e) && e.free() > 0
        };
        self.executors
            .iter()
            .rev()
            .filter(|(_, e)| own(e))
            .map(|(id, e)| (&e.request, id))
            .collect()
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Tick> {
        let executors = self.executors.values().flat_map(|e| {
            let line = match e.line {
                ConnectionState::Silent { until } | ConnectionState::Down { until } => Some(until),
                ConnectionState::Up => None,
            };
            let reserved = e
                .reserved
                .map(|(_, at)| at)
                .filter(|at| *at < Tick(u64::MAX));
            let forgotten = e.warning.and_then(DisruptionWarning::forgotten_at);
            let again = e.resizing.map(|r| r.again_at);
            let held = e
                .seats
                .values()
                .filter_map(|s| s.held)
                .map(|h| h.until)
                .min();
            [
                line,
                reserved,
                forgotten,
                again,
                held,
                e.ended.as_ref().map(|(_, at, _)| *at),
            ]
        });
        let holds = self
            .requests
            .values()
            .map(|r| (r.hold_until > Tick(0)).then_some(r.hold_until));
        let shut = self
            .shunned
            .values()
            .map(|s| (s.until > Tick(0)).then_some(s.until));
        executors
            .chain(holds)
            .chain(shut)
            .chain([self.idle_until])
            .flatten()
            .min()
    }
}

/// The number of failures in a row after the failure of an action that started when the number was
/// `round`.
pub fn next_round(failures: u32, round: u32) -> u32 {
    failures.max(round.min(failures).saturating_add(1))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
