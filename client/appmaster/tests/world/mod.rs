//! A cluster in virtual time around the real core: a resource manager, nodes, executors and tasks that behave, not doubles that
//! record. After every step the core's invariants are checked.
//!
//! Built by [`Scenario`]; a scenario that is dropped without having been run panics.

#![allow(dead_code, unreachable_pub)] // each test file uses its own part of the world

mod habit;

use std::collections::{BTreeMap, BTreeSet};

use headroom_appmaster::event::{Effect, Event, Hello, Now, Outcome};
use headroom_appmaster::record::Record;
use headroom_appmaster::spec::Greeting;
use headroom_appmaster::{Core, Setup};
use headroom_config::JobSpec;
use headroom_types::exit::{HeapFacts, TaskGroupFacts, TaskReport};
use headroom_types::{
    Bytes, ContainerId, Cpus, EnforcerKind, Epoch, Evidence, ExitReason, ExitReport, RequestId, Resource, TaskAttemptId, TaskId,
    Tick, UnixMillis,
};
use headroom_wire::v1::am::{Granted, UpdateKind};
use headroom_wire::v1::job::{JobEvent, JobPatch, Mode, TaskRow};
use headroom_wire::v1::task::{TaskStart, TaskUsage, ToExecutor};

pub use habit::Habit;
use habit::{total, verdict};

/// A disturbance.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The master dies right after this many records are durable, and another takes over.
    MasterDiesAfter(usize),
    /// At this time the n-th live container ends for this reason.
    ContainerEnds { at_ms: u64, nth: usize, reason: ExitReason },
    /// At this time the resource manager begins another life.
    ManagerRestarts { at_ms: u64 },
    /// Every message about an end comes twice.
    Twice,
    /// Containers end as soon as they are granted.
    NothingStarts,
}

struct Box_ {
    granted: Granted,
    slots: u32,
    running: BTreeMap<TaskAttemptId, TaskStart>,
    unacked: BTreeMap<TaskAttemptId, TaskReport>,
    connected: bool,
    leaving: bool,
}

#[derive(Clone, Debug)]
enum Thing {
    Granted(Granted),
    Hello(ContainerId),
    TaskEnds(ContainerId, TaskAttemptId),
    ContainerEnds(ContainerId, ExitReason),
    Nth(usize, ExitReason),
    Registered(Epoch),
    Exited(u64),
    Deliver(Event),
    Timer,
}

pub struct Scenario {
    job: JobSpec,
    nodes: Vec<Bytes>,
    habits: BTreeMap<TaskId, Habit>,
    usual: Habit,
    faults: Vec<Fault>,
    shared_fate: bool,
    quick: bool,
    run: bool,
}

impl Drop for Scenario {
    fn drop(&mut self) {
        assert!(self.run || std::thread::panicking(), "a scenario was built and never run");
    }
}

pub fn task(text: &str) -> TaskId {
    text.parse().expect("task id")
}

impl Scenario {
    pub fn of(job_file: &str) -> Self {
        let job =
            headroom_config::job::compile(job_file, "job.toml").map_err(|p| headroom_config::render(&p)).expect("a right job");
        Scenario {
            job,
            nodes: vec![Bytes::from_gib(8)],
            habits: BTreeMap::new(),
            usual: Habit::native(1, 1000),
            faults: Vec::new(),
            shared_fate: false,
            quick: false,
            run: false,
        }
    }
    pub fn mode(mut self, mode: Mode) -> Self {
        self.job.mode = mode;
        self
    }
    pub fn nodes(mut self, mib: &[u64]) -> Self {
        self.nodes = mib.iter().map(|m| Bytes::from_mib(*m)).collect();
        self
    }
    pub fn usual(mut self, habit: Habit) -> Self {
        self.usual = habit;
        self
    }
    pub fn habit(mut self, id: &str, habit: Habit) -> Self {
        self.habits.insert(task(id), habit);
        self
    }
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }
    /// Tasks have no cgroups: one that passes its executor's room takes the executor with it.
    pub fn shared_fate(mut self) -> Self {
        self.shared_fate = true;
        self
    }
    /// Invariants are checked at the end only.
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self
    }
    pub fn run(mut self) -> World {
        self.run = true;
        let mut world = World::new(&self);
        world.go();
        world
    }
}

pub struct World {
    job: JobSpec,
    pub core: Core,
    pub records: Vec<Record>,
    pub outcome: Option<Outcome>,
    pub rows: BTreeMap<TaskId, TaskRow>,
    pub events: Vec<JobEvent>,
    /// Largest number of containers alive at once, and how many were ever granted by request.
    pub granted: BTreeMap<RequestId, u32>,
    pub now_ms: u64,
    habits: BTreeMap<TaskId, Habit>,
    usual: Habit,
    nodes: Vec<Bytes>,
    boxes: BTreeMap<ContainerId, Box_>,
    things: BTreeMap<(u64, u64), Thing>,
    /// Ends by number, with their place in the stream once they were told.
    exits: BTreeMap<u64, (RequestId, ExitReport, Option<u64>)>,
    seq: u64,
    cursor: u64,
    acked: u64,
    ends: u64,
    epoch: u32,
    containers: u64,
    die_after: Option<usize>,
    twice: bool,
    nothing_starts: bool,
    shared_fate: bool,
    quick: bool,
    master_up: bool,
}

fn greeting() -> Greeting {
    Greeting { master_url: "tcp://127.0.0.1:1".into(), token: "t".into() }
}

impl World {
    fn new(s: &Scenario) -> Self {
        let mut world = World {
            core: Core::new(s.job.clone(), Setup::default()),
            job: s.job.clone(),
            records: Vec::new(),
            outcome: None,
            rows: BTreeMap::new(),
            events: Vec::new(),
            granted: BTreeMap::new(),
            now_ms: 1000,
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
            nothing_starts: false,
            shared_fate: s.shared_fate,
            quick: s.quick,
            master_up: true,
        };
        for fault in &s.faults {
            match fault {
                Fault::MasterDiesAfter(n) => world.die_after = Some(*n),
                Fault::ContainerEnds { at_ms, nth, reason } => world.later(*at_ms, Thing::Nth(*nth, *reason)),
                Fault::ManagerRestarts { at_ms } => {
                    world.later(*at_ms, Thing::Registered(Epoch(2)));
                }
                Fault::Twice => world.twice = true,
                Fault::NothingStarts => world.nothing_starts = true,
            }
        }
        world.later(0, Thing::Registered(Epoch(1)));
        world
    }

    fn later(&mut self, after_ms: u64, thing: Thing) {
        self.seq += 1;
        self.things.insert((self.now_ms + after_ms, self.seq), thing);
    }

    fn now(&self) -> Now {
        Now { tick: Tick(self.now_ms), unix: UnixMillis(1_700_000_000_000 + self.now_ms) }
    }

    fn go(&mut self) {
        let mut steps = 0;
        while self.outcome.is_none() {
            steps += 1;
            assert!(steps < 500_000 && self.now_ms < 24 * 3_600_000, "the job does not end: {:?}", self.core.totals());
            let timer = self.core.next_timer().filter(|_| self.master_up).map(|t| t.0.max(self.now_ms));
            let next = self.things.first_key_value().map(|((at, _), _)| *at);
            let thing = match (timer, next) {
                (Some(t), Some(n)) if t < n => self.jump(t, Thing::Timer),
                (Some(t), None) => self.jump(t, Thing::Timer),
                (_, Some(_)) => {
                    let ((at, _), thing) = self.things.pop_first().expect("there");
                    self.jump(at, thing)
                }
                (None, None) => panic!("nothing will ever happen: {:?} {:?}", self.core.totals(), self.core.fleet()),
            };
            self.happen(thing);
        }
        while self.core.has_news() {
            let patch = self.core.take_patch();
            self.take(patch);
        }
        self.core.assert_invariants();
    }

    fn jump(&mut self, to: u64, thing: Thing) -> Thing {
        self.now_ms = self.now_ms.max(to);
        thing
    }

    fn happen(&mut self, thing: Thing) {
        match thing {
            Thing::Timer => self.step(Event::Timer),
            Thing::Deliver(event) => self.step(event),
            Thing::Registered(epoch) => self.register(epoch),
            Thing::Granted(granted) => {
                self.cursor += 1;
                let cursor = self.cursor;
                self.step(Event::Update { cursor, what: UpdateKind::Allocated(granted) });
            }
            Thing::Hello(container) => self.hello(&container),
            Thing::TaskEnds(container, attempt) => self.task_ends(&container, &attempt),
            Thing::ContainerEnds(container, reason) => self.container_ends(&container, reason, Vec::new()),
            Thing::Nth(nth, reason) => {
                if let Some(container) = self.boxes.keys().nth(nth).cloned() {
                    self.container_ends(&container, reason, Vec::new());
                }
            }
            Thing::Exited(cursor) => {
                let number = cursor;
                let next = self.cursor + 1;
                if let Some((request, report, told)) = self.exits.get_mut(&number) {
                    let cursor = *told.get_or_insert(next);
                    self.cursor = self.cursor.max(cursor);
                    let (request, report) = (request.clone(), report.clone());
                    self.step(Event::Update { cursor, what: UpdateKind::Exited { request, report: Box::new(report) } });
                }
            }
        }
    }

    fn register(&mut self, epoch: Epoch) {
        if epoch.0 > self.epoch {
            self.epoch = epoch.0;
            self.cursor = 0;
            self.exits.values_mut().for_each(|(_, _, cursor)| *cursor = None);
            self.acked = 0;
        }
        self.master_up = true;
        let largest = self.nodes.iter().max().copied().unwrap_or_default();
        let containers = self.boxes.values().map(|b| b.granted.clone()).collect();
        let cursor = self.acked;
        self.step(Event::Registered { epoch, largest: Resource::new(largest, Cpus::from_cores(64)), containers, cursor });
        let again: Vec<u64> = self.exits.keys().copied().collect();
        for cursor in again {
            self.later(1, Thing::Exited(cursor));
        }
    }

    fn step(&mut self, event: Event) {
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
                Effect::Record(record) => {
                    let text = serde_json::to_string(&record).expect("writes");
                    self.records.push(serde_json::from_str(&text).expect("reads what it wrote"));
                    if self.die_after == Some(self.records.len()) {
                        self.master_dies();
                        return;
                    }
                }
                Effect::Send { container, message } => self.executor_hears(&container, *message),
                Effect::Sync => {}
                Effect::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
        let patch = self.core.take_patch();
        self.take(patch);
        self.sync();
    }

    fn take(&mut self, patch: JobPatch) {
        self.rows.extend(patch.tasks.into_iter().map(|row| (row.task.clone(), row)));
        self.events.extend(patch.events);
    }

    fn master_dies(&mut self) {
        self.die_after = None;
        self.master_up = false;
        self.core = Core::replay(self.job.clone(), Setup::default(), &self.records);
        self.core.assert_invariants();
        if let Some(outcome) = self.core.outcome() {
            self.outcome = Some(outcome.clone());
            return;
        }
        self.things
            .retain(|_, thing| !matches!(thing, Thing::Deliver(_) | Thing::Granted(_) | Thing::Hello(_) | Thing::Exited(_)));
        self.later(200, Thing::Registered(Epoch(self.epoch)));
        let boxes: Vec<ContainerId> = self.boxes.keys().cloned().collect();
        for (n, container) in boxes.into_iter().enumerate() {
            self.boxes.get_mut(&container).expect("there").connected = false;
            self.later(250 + 10 * u64::try_from(n).expect("few"), Thing::Hello(container));
        }
    }

    /// The resource manager takes in what the master wants, and grants what there is room for.
    fn sync(&mut self) {
        let ack = self.core.acknowledged();
        self.acked = self.acked.max(ack);
        self.exits.retain(|_, (_, _, told)| told.is_none_or(|cursor| cursor > ack));
        for container in self.core.releases() {
            if self.boxes.get(&container).is_some_and(|b| !b.leaving) {
                self.boxes.get_mut(&container).expect("there").leaving = true;
                self.later(10, Thing::ContainerEnds(container, ExitReason::Stopped));
            }
        }
        for ask in self.core.asks(&greeting()) {
            loop {
                let granted = self.granted.get(&ask.request).copied().unwrap_or(0);
                if granted >= ask.count
                    || !self.grant(&ask.request, &ask.resource, ask.launch.env["HEADROOM_SLOTS"].parse().expect("slots"))
                {
                    break;
                }
            }
        }
    }

    fn grant(&mut self, request: &RequestId, resource: &Resource, slots: u32) -> bool {
        let used = |node: usize| -> Bytes {
            let on = self.boxes.values().filter(|b| b.granted.node.as_str() == format!("n{node}"));
            on.fold(Bytes::ZERO, |sum, b| sum.saturating_add(b.granted.resource.memory))
        };
        let free = |node: usize| self.nodes[node].saturating_sub(used(node));
        let Some(node) = (0..self.nodes.len()).filter(|n| free(*n) >= resource.memory).max_by_key(|n| free(*n)) else {
            return false;
        };
        self.containers += 1;
        let container = format!("job.1.e{}.c{}", self.epoch, self.containers).parse::<ContainerId>().expect("id");
        let granted = Granted {
            container: container.clone(),
            request: request.clone(),
            node: format!("n{node}").parse().expect("node"),
            resource: resource.clone(),
        };
        *self.granted.entry(request.clone()).or_default() += 1;
        let boxed = Box_ {
            granted: granted.clone(),
            slots,
            running: BTreeMap::new(),
            unacked: BTreeMap::new(),
            connected: false,
            leaving: false,
        };
        self.boxes.insert(container.clone(), boxed);
        self.later(5, Thing::Granted(granted));
        if self.nothing_starts {
            self.later(20, Thing::ContainerEnds(container, ExitReason::LaunchFailed));
        } else {
            self.later(20, Thing::Hello(container));
        }
        true
    }

    fn hello(&mut self, container: &ContainerId) {
        if !self.master_up {
            self.later(100, Thing::Hello(container.clone()));
            return;
        }
        let Some(b) = self.boxes.get_mut(container) else { return };
        b.connected = true;
        let hello = Hello {
            container: container.clone(),
            slots: b.slots,
            running: b.running.keys().cloned().collect(),
            unacked: b.unacked.values().cloned().collect(),
        };
        self.step(Event::Hello(hello));
    }

    fn executor_hears(&mut self, container: &ContainerId, message: ToExecutor) {
        let Some(b) = self.boxes.get_mut(container) else { return };
        if !b.connected {
            return;
        }
        match message {
            ToExecutor::Start(start) => {
                if b.running.contains_key(&start.attempt) || b.unacked.contains_key(&start.attempt) {
                    return;
                }
                let attempt = start.attempt.clone();
                let used: u32 = b.running.values().map(|s| s.slots).sum();
                assert!(used + start.slots <= b.slots, "{container} is given more than its {} slots", b.slots);
                b.running.insert(attempt.clone(), *start);
                self.start(container, attempt);
            }
            ToExecutor::Stop { attempt } => {
                b.running.remove(&attempt);
            }
            ToExecutor::Ack { attempt } => {
                b.unacked.remove(&attempt);
            }
            ToExecutor::Shutdown => {
                if !b.leaving {
                    b.leaving = true;
                    self.later(10, Thing::ContainerEnds(container.clone(), ExitReason::Exit { code: 0 }));
                }
            }
            ToExecutor::Alive => {}
        }
    }

    fn habit(&self, id: &TaskId) -> Habit {
        self.habits.get(id).unwrap_or(&self.usual).clone()
    }

    fn start(&mut self, container: &ContainerId, attempt: TaskAttemptId) {
        let habit = self.habit(&attempt.task);
        let start = self.boxes[container].running[&attempt].clone();
        self.later(1, Thing::Deliver(Event::Started { container: container.clone(), attempt: attempt.clone() }));
        let usage = TaskUsage { attempt: attempt.clone(), current: total(&habit), peak: total(&habit), heap: None };
        self.later(2, Thing::Deliver(Event::Usage { container: container.clone(), tasks: vec![usage] }));
        let whole = self.room(container) < total(&habit) && self.shared_fate;
        let killed = verdict(&habit, &start).is_some() && !self.shared_fate || whole;
        let after = if killed { habit.runs_ms / 2 } else { habit.runs_ms };
        self.later(after, Thing::TaskEnds(container.clone(), attempt));
    }

    fn room(&self, container: &ContainerId) -> Bytes {
        self.boxes[container].granted.resource.memory.saturating_sub(Bytes::from_mib(32))
    }

    fn task_ends(&mut self, container: &ContainerId, attempt: &TaskAttemptId) {
        let Some(b) = self.boxes.get(container) else { return };
        let Some(start) = b.running.get(attempt).cloned() else { return };
        let habit = self.habit(&attempt.task);
        if self.shared_fate && total(&habit) > self.room(container) {
            let tasks = Vec::new();
            self.container_ends(container, ExitReason::OverheadOom, tasks);
            return;
        }
        let nth = usize::try_from(attempt.attempt - 1).expect("small");
        let forced = habit.ends.get(nth).copied();
        let verdict = if self.shared_fate { None } else { verdict(&habit, &start) };
        let (reason, dimension) = match forced {
            Some(reason) => (reason, None),
            None => verdict.unwrap_or((ExitReason::Exit { code: 0 }, None)),
        };
        let mut evidence = Evidence::empty(EnforcerKind::Cgroup2);
        evidence.own.limit = start.limit;
        evidence.own.peak = Some(start.limit.map_or(total(&habit), |l| l.min(total(&habit))));
        evidence.heap_budget = start.heap;
        evidence.heap = start.heap.map(|budget| HeapFacts {
            used: habit.heap.min(budget),
            committed: habit.heap.min(budget),
            max: budget,
            ..HeapFacts::default()
        });
        let report = TaskReport {
            attempt: attempt.clone(),
            container: container.clone(),
            reason,
            dimension,
            evidence,
            diagnosis: Vec::new(),
            started: Some(self.now().unix),
            ended: self.now().unix,
            timeline: Vec::new(),
            log_tail: String::new(),
        };
        let b = self.boxes.get_mut(container).expect("there");
        b.running.remove(attempt);
        b.unacked.insert(attempt.clone(), report.clone());
        if b.connected && self.master_up {
            let event = Event::Ended { container: container.clone(), report: Box::new(report) };
            if self.twice {
                self.later(3, Thing::Deliver(event.clone()));
                self.later(700, Thing::Deliver(event.clone()));
            }
            self.step(event);
        }
    }

    fn container_ends(&mut self, container: &ContainerId, reason: ExitReason, tasks: Vec<TaskGroupFacts>) {
        let Some(b) = self.boxes.remove(container) else { return };
        let report = ExitReport {
            container: container.clone(),
            node: b.granted.node.clone(),
            reason,
            evidence: Evidence::empty(EnforcerKind::Cgroup2),
            diagnosis: Vec::new(),
            started: None,
            ended: self.now().unix,
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks,
        };
        self.ends += 1;
        let number = self.ends;
        self.exits.insert(number, (b.granted.request.clone(), report, None));
        self.later(30, Thing::Exited(number));
        if self.twice {
            self.later(900, Thing::Exited(number));
        }
        if b.connected {
            self.later(1, Thing::Deliver(Event::LineDown { container: container.clone() }));
        }
    }

    /// The memory of every attempt of a task, in MiB.
    pub fn sizes(&self, id: &str) -> Vec<u64> {
        self.rows[&task(id)].attempts.iter().map(|a| a.profile.memory().whole_mib()).collect()
    }
    pub fn row(&self, id: &str) -> &TaskRow {
        &self.rows[&task(id)]
    }
    pub fn words(&self, reason: &str) -> Vec<&str> {
        self.events.iter().filter(|e| e.reason == reason).map(|e| e.message.as_str()).collect()
    }
    /// Containers used by a task's attempts.
    pub fn places(&self, id: &str) -> BTreeSet<ContainerId> {
        self.row(id).attempts.iter().map(|a| a.container.clone()).collect()
    }
    /// What must be the same whatever restarts in between.
    pub fn result(&self) -> Vec<(TaskId, String)> {
        self.rows.values().map(|r| (r.task.clone(), format!("{:?}", r.state))).collect()
    }
}
