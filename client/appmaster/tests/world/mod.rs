//! A cluster in virtual time around the real core: a simulated resource manager, nodes, executors
//! and tasks with complete behaviour. After every step, the core's invariants are checked.
//! [`MasterScenario`] builds it; a scenario that is dropped without a run panics.

#![allow(dead_code, unreachable_pub, unused_macros)] // each test file uses its own part of the world

mod behaviour;
mod client;
mod executor_events;
mod files;
mod first_request;
mod masters;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use headroom_appmaster::event::{
    EventTimestamp, ExecutorHello, JobOutcome, MasterEffect, MasterEvent, TaskLimitResult,
};
use headroom_appmaster::{
    MasterCore, MasterSetup, output::OutputCommit, record::JournalRecord, taskset::TaskPosition,
};
use headroom_config::JobSpec;
use headroom_types::exit::{HeapReport, TaskGroupStats, TaskReport};
use headroom_types::{
    Bytes, ContainerId, Cpus, EnforcerKind, Epoch, Evidence, ExitReason, ExitReport, LaunchSpec,
    RequestId, Resource, ScaleOrder, TaskAttemptId, TaskId, TaskOrder, Tick, UnixMillis,
};
use headroom_wire::v1::application_master::{
    ApplicationUpdateKind, ContainerGrant, Placement, PlacementRequest,
};
use headroom_wire::v1::job::{JobEvent, JobViewPatch, MemoryFailureMode, TaskRow};
use headroom_wire::v1::task::{TaskStart, TaskUsage, ToExecutor};

pub use behaviour::TaskBehaviour;
use behaviour::{total, verdict};
use client::ClientEvent;
pub use client::SimulatedClient;
pub use files::Files;
use first_request::{greeting, same_as_first};

/// The start of a job file: its name, and executors `main` with memory, processors, count and
/// slots. Additional top-level keys are optional.
macro_rules! job_head {
    ($name:literal, $memory:literal, $cpus:literal, $count:literal, $slots:literal $(, $top:literal)?) => {
        concat!(
            "version = 1\nname = \"", $name, "\"\n", $($top,)? "[profiles.exec]\nmemory = \"", $memory, "\"\ncpus = ", $cpus,
            "\n[executors.main]\nprofile = \"exec\"\ncount = ", $count, "\nslots = ", $slots, "\n"
        )
    };
}

/// A fault that a scenario injects.
#[derive(Clone, Debug)]
pub enum InjectedFault {
    /// The master dies right after this many records are durable, and another takes over.
    MasterDiesAfter(usize),
    /// At this time the host of the master fails, and another master takes over on host `to`. It
    /// has only the journal that an earlier master wrote there.
    MasterMoves { at_ms: u64, to: usize },
    /// At this time the n-th live container ends for this reason.
    ContainerEnds {
        at_ms: u64,
        nth: usize,
        reason: ExitReason,
    },
    /// At this time the n-th live container is warned of its preemption, which follows `warning_ms`
    /// later.
    Preempted {
        at_ms: u64,
        nth: usize,
        warning_ms: u64,
    },
    /// At this time ended tasks have left this memory in the n-th live container.
    LeftBehind { at_ms: u64, nth: usize, mib: u64 },
    /// At this time the first node starts to drain; no new container starts there.
    Drained { at_ms: u64 },
    /// A drain of the first node with a deadline is announced, and does not happen.
    DrainCancelled { at_ms: u64, within_ms: u64 },
    /// At this time the resource manager starts a new epoch.
    ManagerRestarts { at_ms: u64 },
    /// From this time on, for `for_ms`, the n-th live container is disconnected; its tasks
    /// continue.
    Partitioned { at_ms: u64, nth: usize, for_ms: u64 },
    /// The master dies right after this many commits, before it receives the last result.
    MasterDiesAfterCommit(usize),
    /// At this time a task gets an order; it is repeated to every later master.
    Ordered { at_ms: u64, order: TaskOrder },
    /// At this time the number of executors is changed; the order is repeated likewise.
    Scaled { at_ms: u64, order: ScaleOrder },
    /// Every message about an end arrives twice.
    Twice,
    /// Containers end as soon as they are granted.
    NothingStarts,
    /// Executors never send a hello.
    NothingConnects,
    /// Containers on this node end as soon as they are granted.
    NoContainers { node: usize },
    /// Tasks on this node cannot be started.
    NoTasks { node: usize },
    /// Tasks on this node are killed for the limit around all containers.
    OuterKills { node: usize },
}

struct SimulatedContainer {
    granted: ContainerGrant,
    /// The secret that it knows: the host of the journal.
    secret: usize,
    slots: u32,
    running: BTreeMap<TaskAttemptId, TaskStart>,
    unacked: BTreeMap<TaskAttemptId, TaskReport>,
    connected: bool,
    leaving: bool,
    cut: bool,
}

#[derive(Clone, Debug)]
enum SimulatedEvent {
    Granted(ContainerGrant),
    Hello(ContainerId),
    TaskEnds(ContainerId, TaskAttemptId),
    FreezeTimeout(ContainerId, TaskAttemptId, Option<Bytes>),
    ContainerEnds(ContainerId, ExitReason),
    Nth(usize, ExitReason),
    Cut(usize, u64),
    Healed(ContainerId),
    Commit(TaskPosition, TaskAttemptId, OutputCommit),
    Warned(usize, u64),
    LeftBehind(usize, u64),
    Resized(ContainerId, Resource),
    Drained,
    DrainCancelled(u64),
    Moved(usize),
    Ordered(Box<ApplicationUpdateKind>),
    Registered(Epoch),
    Exited(u64),
    Client(usize, ClientEvent),
    Deliver(MasterEvent),
    Timer,
}

pub struct MasterScenario {
    job: JobSpec,
    nodes: Vec<Bytes>,
    habits: BTreeMap<TaskId, TaskBehaviour>,
    usual: TaskBehaviour,
    faults: Vec<InjectedFault>,
    shared_fate: bool,
    quick: bool,
    files: Files,
    mirrored: bool,
    inputs: BTreeMap<PathBuf, Bytes>,
    clients: Vec<SimulatedClient>,
    /// Times, clients and their actions.
    client_events: Vec<(u64, usize, ClientEvent)>,
    run: bool,
}

impl Drop for MasterScenario {
    fn drop(&mut self) {
        assert!(
            self.run || std::thread::panicking(),
            "a scenario was created but not run"
        );
    }
}

pub fn task(text: &str) -> TaskId {
    text.parse().expect("task id")
}

impl MasterScenario {
    pub fn of(job_file: &str) -> Self {
        let job = headroom_config::job::compile(job_file, "job.toml")
            .map_err(|p| headroom_config::render(&p))
            .expect("a valid job");
        MasterScenario {
            job,
            nodes: vec![Bytes::from_gib(8)],
            habits: BTreeMap::new(),
            usual: TaskBehaviour::native(1, 1000),
            faults: Vec::new(),
            shared_fate: false,
            quick: false,
            files: Files::default(),
            mirrored: false,
            inputs: BTreeMap::new(),
            clients: Vec::new(),
            client_events: Vec::new(),
            run: false,
        }
    }
    pub fn mode(mut self, mode: MemoryFailureMode) -> Self {
        self.job.mode = mode;
        self
    }
    pub fn nodes(mut self, mib: &[u64]) -> Self {
        self.nodes = mib.iter().map(|m| Bytes::from_mib(*m)).collect();
        self
    }
    pub fn usual(mut self, habit: TaskBehaviour) -> Self {
        self.usual = habit;
        self
    }
    pub fn habit(mut self, id: &str, habit: TaskBehaviour) -> Self {
        self.habits.insert(task(id), habit);
        self
    }
    pub fn fault(mut self, fault: InjectedFault) -> Self {
        self.faults.push(fault);
        self
    }
    /// Tasks have no cgroups: one that exceeds the memory of its executor ends the executor.
    pub fn shared_fate(mut self) -> Self {
        self.shared_fate = true;
        self
    }
    /// A file system with this duration of a rename, and with these outputs present.
    pub fn files(mut self, rename_ms: u64, places: &[&str]) -> Self {
        self.files = Files::new(rename_ms, places);
        self
    }
    /// Checks invariants at the end only.
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self
    }
    /// After every step, compares a master that reads the journal with the one that wrote it.
    pub fn mirrored(mut self) -> Self {
        self.mirrored = true;
        self
    }
    pub fn file(mut self, name: &str, mib: u64) -> Self {
        self.inputs
            .insert(Path::new(BASE).join(name), Bytes::from_mib(mib));
        self
    }
    pub fn run(mut self) -> SimulatedCluster {
        self.run = true;
        let mut world = SimulatedCluster::new(&self);
        world.go();
        world
    }
}

pub struct SimulatedCluster {
    job: JobSpec,
    pub core: MasterCore,
    pub records: Vec<JournalRecord>,
    host: usize,
    journals: BTreeMap<usize, Vec<JournalRecord>>,
    attempt: u32,
    /// Requests for which this run of the master has not reported yet how many ends it knows.
    unreported: BTreeSet<RequestId>,
    pub outcome: Option<JobOutcome>,
    pub rows: BTreeMap<TaskId, TaskRow>,
    pub notes: BTreeSet<String>,
    pub folded: BTreeSet<TaskId>,
    /// The predicted sizes, by the task and its number of attempts at that time.
    pub ahead: BTreeMap<(TaskId, usize), Vec<u64>>,
    pub events: Vec<JobEvent>,
    pub granted: BTreeMap<RequestId, u32>,
    pub now_ms: u64,
    /// Times at which containers ended, in order. Milliseconds.
    pub ended: Vec<u64>,
    habits: BTreeMap<TaskId, TaskBehaviour>,
    usual: TaskBehaviour,
    nodes: Vec<Bytes>,
    boxes: BTreeMap<ContainerId, SimulatedContainer>,
    things: BTreeMap<(u64, u64), SimulatedEvent>,
    exits: BTreeMap<u64, (RequestId, ExitReport, Option<u64>)>,
    seq: u64,
    cursor: u64,
    acked: u64,
    ends: u64,
    epoch: u32,
    containers: u64,
    die_after: Option<usize>,
    twice: bool,
    barren: BTreeSet<usize>,
    silent: bool,
    broken: BTreeMap<usize, ExitReason>,
    shared_fate: bool,
    quick: bool,
    mirrored: bool,
    inputs: BTreeMap<PathBuf, Bytes>,
    master_up: bool,
    pub resizes: u32,
    pub files: Files,
    orders: Vec<ApplicationUpdateKind>,
    stopped: BTreeSet<TaskAttemptId>,
    pub launches: BTreeMap<RequestId, LaunchSpec>,
    pub placements: BTreeMap<RequestId, Placement>,
    closed: Option<usize>,
    pub clients: Vec<SimulatedClient>,
    connections: u64,
    /// Start messages of all attempts.
    pub starts: BTreeMap<TaskAttemptId, TaskStart>,
}

/// Working directory of tasks in a real cluster.
const BASE: &str = "/job";

fn setup(attempt: u32) -> MasterSetup {
    MasterSetup {
        base_dir: Some(BASE.to_owned()),
        attempt,
        ..MasterSetup::default()
    }
}

impl SimulatedCluster {
    fn new(s: &MasterScenario) -> Self {
        let mut world = SimulatedCluster {
            core: MasterCore::new(s.job.clone(), setup(1)),
            job: s.job.clone(),
            records: Vec::new(),
            host: 0,
            journals: BTreeMap::new(),
            attempt: 1,
            unreported: BTreeSet::new(),
            outcome: None,
            rows: BTreeMap::new(),
            notes: BTreeSet::new(),
            folded: BTreeSet::new(),
            ahead: BTreeMap::new(),
            events: Vec::new(),
            granted: BTreeMap::new(),
            now_ms: 1000,
            ended: Vec::new(),
            habits: s.habits.clone(),
            usual: s.usual.clone(),
            nodes: s.nodes.clone(),
            boxes: BTreeMap::new(),
            things: BTreeMap::new(),
            exits: BTreeMap::new(),
            seq: 0,
            cursor: 0,
            acked: 0,
            ends: 0,
            epoch: 1,
            containers: 0,
            die_after: None,
            twice: false,
            barren: BTreeSet::new(),
            silent: false,
            broken: BTreeMap::new(),
            shared_fate: s.shared_fate,
            quick: s.quick,
            mirrored: s.mirrored,
            inputs: s.inputs.clone(),
            master_up: true,
            resizes: 0,
            files: s.files.clone(),
            orders: Vec::new(),
            stopped: BTreeSet::new(),
            launches: BTreeMap::new(),
            placements: BTreeMap::new(),
            closed: None,
            clients: s.clients.clone(),
            connections: 0,
            starts: BTreeMap::new(),
        };
        for (at_ms, client, event) in &s.client_events {
            world.later(*at_ms, SimulatedEvent::Client(*client, event.clone()));
        }
        world.plan(&s.faults);
        world.later(0, SimulatedEvent::Registered(Epoch(1)));
        world
    }

    fn plan(&mut self, faults: &[InjectedFault]) {
        for fault in faults {
            match fault {
                InjectedFault::MasterDiesAfter(n) => self.die_after = Some(*n),
                InjectedFault::MasterMoves { at_ms, to } => {
                    self.later(*at_ms, SimulatedEvent::Moved(*to))
                }
                InjectedFault::ContainerEnds { at_ms, nth, reason } => {
                    self.later(*at_ms, SimulatedEvent::Nth(*nth, *reason))
                }
                InjectedFault::Preempted {
                    at_ms,
                    nth,
                    warning_ms,
                } => self.later(*at_ms, SimulatedEvent::Warned(*nth, *warning_ms)),
                InjectedFault::LeftBehind { at_ms, nth, mib } => {
                    self.later(*at_ms, SimulatedEvent::LeftBehind(*nth, *mib))
                }
                InjectedFault::Drained { at_ms } => self.later(*at_ms, SimulatedEvent::Drained),
                InjectedFault::DrainCancelled { at_ms, within_ms } => {
                    self.later(*at_ms, SimulatedEvent::DrainCancelled(*within_ms))
                }
                InjectedFault::ManagerRestarts { at_ms } => {
                    self.later(*at_ms, SimulatedEvent::Registered(Epoch(2)));
                }
                InjectedFault::Partitioned { at_ms, nth, for_ms } => {
                    self.later(*at_ms, SimulatedEvent::Cut(*nth, *for_ms))
                }
                InjectedFault::MasterDiesAfterCommit(n) => self.files.die_after = Some(*n),
                InjectedFault::Ordered { at_ms, order } => self.later(
                    *at_ms,
                    SimulatedEvent::Ordered(Box::new(ApplicationUpdateKind::Order(order.clone()))),
                ),
                InjectedFault::Scaled { at_ms, order } => self.later(
                    *at_ms,
                    SimulatedEvent::Ordered(Box::new(ApplicationUpdateKind::Scale(order.clone()))),
                ),
                InjectedFault::Twice => self.twice = true,
                InjectedFault::NothingConnects => self.silent = true,
                InjectedFault::NothingStarts => self.barren.extend(0..self.nodes.len()),
                InjectedFault::NoContainers { node } => {
                    self.barren.insert(*node);
                }
                InjectedFault::OuterKills { node } => {
                    self.broken.insert(*node, ExitReason::AncestorOom);
                }
                InjectedFault::NoTasks { node } => {
                    self.broken.insert(*node, ExitReason::LaunchFailed);
                }
            }
        }
    }

    fn later(&mut self, after_ms: u64, thing: SimulatedEvent) {
        self.seq += 1;
        self.things
            .insert((self.now_ms + after_ms, self.seq), thing);
    }

    fn now(&self) -> EventTimestamp {
        EventTimestamp {
            tick: Tick(self.now_ms),
            unix: UnixMillis(1_700_000_000_000 + self.now_ms),
        }
    }

    fn go(&mut self) {
        let mut steps = 0;
        while self.outcome.is_none() {
            steps += 1;
            assert!(
                steps < 500_000 && self.now_ms < 24 * 3_600_000,
                "the job does not end: {:?}",
                self.core.totals()
            );
            let timer = self
                .core
                .next_timer()
                .filter(|_| self.master_up)
                .map(|t| t.0.max(self.now_ms));
            let next = self.things.first_key_value().map(|((at, _), _)| *at);
            let thing = match (timer, next) {
                (Some(t), Some(n)) if t < n => self.jump(t, SimulatedEvent::Timer),
                (Some(t), None) => self.jump(t, SimulatedEvent::Timer),
                (_, Some(_)) => {
                    let ((at, _), thing) = self.things.pop_first().expect("there");
                    self.jump(at, thing)
                }
                (None, None) => panic!(
                    "no further event is scheduled: {:?} {:?}",
                    self.core.totals(),
                    self.core.fleet()
                ),
            };
            self.happen(thing);
        }
        while self.core.has_unreported_changes() {
            let patch = self.core.take_patch();
            self.take(patch);
        }
        self.core.assert_invariants();
    }

    fn jump(&mut self, to: u64, thing: SimulatedEvent) -> SimulatedEvent {
        self.now_ms = self.now_ms.max(to);
        thing
    }

    fn happen(&mut self, thing: SimulatedEvent) {
        match thing {
            SimulatedEvent::Timer => self.step(MasterEvent::Timer),
            SimulatedEvent::Deliver(event) => self.step(event),
            SimulatedEvent::Registered(epoch) => self.register(epoch),
            SimulatedEvent::Granted(granted) => {
                self.update(ApplicationUpdateKind::Allocated(granted))
            }
            SimulatedEvent::Hello(container) => self.hello(&container),
            SimulatedEvent::TaskEnds(container, attempt) => self.task_ends(&container, &attempt),
            SimulatedEvent::FreezeTimeout(container, attempt, limit) => {
                self.hold_over(container, attempt, limit)
            }
            SimulatedEvent::ContainerEnds(container, reason) => {
                self.container_ends(&container, reason, Vec::new())
            }
            SimulatedEvent::Nth(nth, reason) => {
                if let Some(container) = self.boxes.keys().nth(nth).cloned() {
                    self.container_ends(&container, reason, Vec::new());
                }
            }
            SimulatedEvent::Cut(nth, for_ms) => {
                let Some(container) = self.boxes.keys().nth(nth).cloned() else {
                    return;
                };
                let b = self.boxes.get_mut(&container).expect("there");
                (b.cut, b.connected) = (true, false);
                self.later(for_ms, SimulatedEvent::Healed(container.clone()));
                self.step(MasterEvent::LineDown { container });
            }
            SimulatedEvent::Healed(container) => {
                if let Some(b) = self.boxes.get_mut(&container) {
                    b.cut = false;
                    self.hello(&container);
                }
            }
            SimulatedEvent::Commit(task, attempt, commit) => {
                self.put_in_place(task, attempt, &commit)
            }
            SimulatedEvent::Resized(container, resource) => {
                self.update(ApplicationUpdateKind::Resized {
                    container,
                    resource,
                    version: 2,
                })
            }
            SimulatedEvent::Warned(nth, warning_ms) => {
                let Some(container) = self.boxes.keys().nth(nth).cloned() else {
                    return;
                };
                self.later(
                    warning_ms,
                    SimulatedEvent::ContainerEnds(container.clone(), ExitReason::Preempted),
                );
                let at = UnixMillis(self.now().unix.0 + warning_ms);
                self.update(ApplicationUpdateKind::PreemptSoon {
                    container,
                    at,
                    why: "queue b is owed its share".into(),
                });
            }
            SimulatedEvent::LeftBehind(nth, mib) => self.left_behind(nth, mib),
            SimulatedEvent::Drained => {
                self.closed = Some(0);
                self.first_node_drains(None);
            }
            SimulatedEvent::DrainCancelled(within_ms) => self.first_node_drains(Some(within_ms)),
            SimulatedEvent::Moved(to) => self.master_moves(to),
            SimulatedEvent::Ordered(order) => {
                self.orders.push(ApplicationUpdateKind::clone(&order));
                if self.master_up {
                    self.update(*order);
                }
            }
            SimulatedEvent::Exited(number) => self.exited(number),
            SimulatedEvent::Client(n, event) => self.client_acts(n, event),
        }
    }

    /// Delivers an exit report, with the cursor of its first delivery in this epoch.
    fn exited(&mut self, number: u64) {
        let next = self.cursor + 1;
        if let Some((request, report, delivered)) = self.exits.get_mut(&number) {
            let cursor = *delivered.get_or_insert(next);
            self.cursor = self.cursor.max(cursor);
            let (request, report) = (request.clone(), report.clone());
            self.step(MasterEvent::Update {
                cursor,
                what: ApplicationUpdateKind::Exited {
                    request,
                    report: Box::new(report),
                },
            });
        }
    }

    fn update(&mut self, what: ApplicationUpdateKind) {
        self.cursor += 1;
        let cursor = self.cursor;
        self.step(MasterEvent::Update { cursor, what });
    }

    fn register(&mut self, epoch: Epoch) {
        if epoch.0 > self.epoch {
            self.epoch = epoch.0;
            self.cursor = 0;
            self.exits
                .values_mut()
                .for_each(|(_, _, cursor)| *cursor = None);
            self.acked = 0;
        }
        self.master_up = true;
        let largest = self.nodes.iter().max().copied().unwrap_or_default();
        let containers = self.boxes.values().map(|b| b.granted.clone()).collect();
        let cursor = self.acked;
        self.step(MasterEvent::Registered {
            epoch,
            largest: Resource::new(largest, Cpus::from_cores(64)),
            containers,
            cursor,
        });
        let orders = std::mem::take(&mut self.orders);
        orders
            .into_iter()
            .for_each(|order| self.later(1, SimulatedEvent::Ordered(Box::new(order))));
        let again: Vec<u64> = self.exits.keys().copied().collect();
        for cursor in again {
            self.later(1, SimulatedEvent::Exited(cursor));
        }
        self.clients_connect();
    }

    fn step(&mut self, event: MasterEvent) {
        if !self.master_up {
            return;
        }
        let mut effects = Vec::new();
        let now = self.now();
        self.core.step(now, event, &mut effects);
        if !self.quick {
            self.core.assert_invariants();
        }
        for effect in effects {
            match effect {
                MasterEffect::Record(record) => {
                    let text = serde_json::to_string(&record).expect("writes");
                    self.records
                        .push(serde_json::from_str(&text).expect("reads its own record"));
                    if self.die_after == Some(self.records.len()) {
                        self.master_dies();
                        return;
                    }
                }
                MasterEffect::Send { container, message } => {
                    self.executor_hears(&container, *message)
                }
                MasterEffect::Commit {
                    task,
                    attempt,
                    commit,
                } => {
                    self.later(
                        self.files.rename_ms,
                        SimulatedEvent::Commit(task, attempt, commit),
                    );
                }
                MasterEffect::Sync => {}
                MasterEffect::Answer {
                    connection,
                    message,
                } => self.client_hears(connection, *message),
                MasterEffect::Measure { stage } => {
                    let sizes = self
                        .core
                        .input_files(stage)
                        .into_iter()
                        .map(|file| self.inputs.get(&file?).copied())
                        .collect();
                    self.later(
                        2,
                        SimulatedEvent::Deliver(MasterEvent::Inputs { stage, sizes }),
                    );
                }
                MasterEffect::Resize {
                    container,
                    resource,
                } => self.resize(container, resource),
                MasterEffect::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
        if self.mirrored {
            self.compare_with_journal();
        }
        let patch = self.core.take_patch();
        self.take(patch);
        self.sync();
        self.deliver_results();
    }

    /// Compares with a master that takes over: it would give the same sizes, and has the same
    /// observations.
    fn compare_with_journal(&mut self) {
        let mut other = self.successor();
        let largest = self.nodes.iter().max().copied().unwrap_or_default();
        let event = MasterEvent::Registered {
            epoch: Epoch(self.epoch),
            largest: Resource::new(largest, Cpus::from_cores(64)),
            containers: Vec::new(),
            cursor: 0,
        };
        other.step(self.now(), event, &mut Vec::new());
        assert_eq!(
            other.first_sizes(),
            self.core.first_sizes(),
            "sizes after {} records",
            self.records.len()
        );
        assert_eq!(
            other.totals(),
            self.core.totals(),
            "totals after {} records",
            self.records.len()
        );
        assert_eq!(
            other.submissions_text(),
            self.core.submissions_text(),
            "submitted tasks after {} records",
            self.records.len()
        );
    }

    fn take(&mut self, patch: JobViewPatch) {
        for row in &patch.tasks {
            self.notes.insert(format!("{}: {}", row.task, row.note));
            if row.attempts.last().is_some_and(|a| a.ended.is_none()) {
                let sizes = row.ahead.iter().map(|size| size.whole_mib()).collect();
                self.ahead
                    .insert((row.task.clone(), row.attempts.len()), sizes);
            }
        }
        self.folded.extend(patch.folded);
        self.rows
            .extend(patch.tasks.into_iter().map(|row| (row.task.clone(), row)));
        self.events.extend(patch.events);
    }

    /// Processes the requests of the master, and grants containers for which there is free memory.
    fn sync(&mut self) {
        let ack = self.core.acknowledged_cursor();
        self.acked = self.acked.max(ack);
        self.exits
            .retain(|_, (_, _, delivered)| delivered.is_none_or(|cursor| cursor > ack));
        for container in self.core.releases() {
            if self
                .boxes
                .get(&container)
                .is_some_and(|b| !b.leaving && !b.cut)
            {
                self.boxes.get_mut(&container).expect("there").leaving = true;
                self.later(
                    10,
                    SimulatedEvent::ContainerEnds(container, ExitReason::Stopped),
                );
            }
        }
        for ask in self.core.open_requests(&greeting()) {
            same_as_first(&self.job, &ask);
            self.launches
                .insert(ask.request.clone(), (*ask.launch).clone());
            self.placements
                .insert(ask.request.clone(), (*ask.placement).clone());
            if self.unreported.remove(&ask.request) {
                *self.granted.entry(ask.request.clone()).or_default() += ask.ended;
            }
            loop {
                let granted = self.granted.get(&ask.request).copied().unwrap_or(0);
                if granted >= ask.count
                    || !self.grant(
                        &ask,
                        ask.launch.env["HEADROOM_SLOTS"].parse().expect("slots"),
                    )
                {
                    break;
                }
            }
        }
    }

    pub fn sizes(&self, id: &str) -> Vec<u64> {
        self.rows[&task(id)]
            .attempts
            .iter()
            .map(|a| a.profile.memory().whole_mib())
            .collect()
    }
    pub fn row(&self, id: &str) -> &TaskRow {
        &self.rows[&task(id)]
    }
    pub fn words(&self, reason: &str) -> Vec<&str> {
        self.events
            .iter()
            .filter(|e| e.reason == reason)
            .map(|e| e.message.as_str())
            .collect()
    }
    pub fn places(&self, id: &str) -> BTreeSet<ContainerId> {
        self.row(id)
            .attempts
            .iter()
            .map(|a| a.container.clone())
            .collect()
    }
    /// The result that must not depend on restarts.
    pub fn result(&self) -> Vec<(TaskId, String)> {
        self.rows
            .values()
            .map(|r| (r.task.clone(), format!("{:?}", r.state)))
            .collect()
    }
}
