//! Executors: the containers of this job, what runs in their slots, and how many are wanted.
//!
//! Owned by the core. A request's containers are counted as the resource manager counts them: those that ended and were taken in
//! (`settled`) and those that live. Both survive a restart of the master; links and reservations do not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, ContainerId, ExitReport, NodeId, RequestId, Resource, TaskAttemptId, Tick, UnixMillis};

use crate::policy::backoff;
use crate::policy::collateral::{Collateral, OtherPlace};
use crate::taskset::TaskKey;

/// The line to an executor.
///
/// ```text
///  Silent --hello--> Up --closed--> Down --hello--> Up
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It has not said hello in this run of the master.
    Silent {
        /// Given up at this moment.
        until: Tick,
    },
    /// It is connected.
    Up,
    /// The connection was lost.
    Down {
        /// Given up at this moment.
        until: Tick,
    },
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Shared executors: the place of their set in the job file.
    Set(usize),
    /// A container for one task.
    Own(TaskKey),
}

/// An attempt in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Which task.
    pub task: TaskKey,
    /// How many slots it takes.
    pub slots: u32,
    /// Whether the executor said that it runs.
    pub started: bool,
    /// The limit it has, or is about to have. Bytes.
    pub memory: Bytes,
    /// How much of that it was given while it ran. Bytes.
    pub extra: Bytes,
    /// It is held near its limit and waits for more.
    pub held: Option<Held>,
    /// Its runtime spends its time collecting a heap that is too small.
    pub starved: bool,
    /// Somebody asked for another attempt in the place of this one.
    pub to_retry: bool,
    /// How many launches in a row had failed on the node before.
    pub round: u32,
}

/// What is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// An executor.
    Executor,
    /// A task of the stage at this place in the job file.
    Task(usize),
}

/// A node on which launches fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shunned {
    /// How often in a row; several together are one.
    pub failures: u32,
    /// What failed last.
    pub launched: Launched,
    /// No task is begun there before this moment; 0 once it has passed.
    pub until: Tick,
}

/// A task waits for more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Since when.
    pub since: Tick,
    /// Its executor lets it go by then.
    pub until: Tick,
    /// What its node was found to have no room for; `None` as long as that is not known. Bytes.
    pub short: Option<Bytes>,
    /// Since when, by the clock of screens.
    pub at: UnixMillis,
}

impl Held {
    /// When half of the time is over.
    pub fn half(self) -> Tick {
        self.since.plus(self.until.since(self.since) / 2)
    }
}

/// Another size of a container was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing {
    /// Memory in all. Bytes.
    pub to: Bytes,
    /// Asked for again at this moment.
    pub again_at: Tick,
    /// How often it was refused.
    pub tries: u32,
}

/// A container that lives so long after the moment it was to be taken at is not taken any more.
const WITHDRAWN: Duration = Duration::from_secs(10);

/// It will be taken, or its node is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// When; `None` when it may run as long as it likes.
    pub until: Option<Tick>,
}

impl Warning {
    /// When it has not come true.
    pub fn forgotten_at(self) -> Option<Tick> {
        self.until.map(|until| until.plus(WITHDRAWN))
    }
}

/// One executor.
#[derive(Clone, Debug)]
pub struct Executor {
    /// Its request.
    pub request: RequestId,
    /// What that is for.
    pub purpose: Purpose,
    /// Where it is.
    pub node: NodeId,
    /// How many containers of its request, and launches on its node, had failed in a row when it was granted.
    pub rounds: (u32, u32),
    /// Slots.
    pub slots: u32,
    /// The line to it.
    pub line: Line,
    /// Whether it has ever said hello.
    pub greeted: bool,
    /// What runs in it.
    pub seats: BTreeMap<TaskAttemptId, Seat>,
    /// Since when nothing runs in it.
    pub idle_since: Option<Tick>,
    /// Kept free for a wide task until this moment.
    pub reserved: Option<(TaskKey, Tick)>,
    /// What its container has; `None` until the resource manager has told it to this run of the master.
    pub resource: Option<Resource>,
    /// Memory its container has at first. Bytes.
    pub base: Bytes,
    /// Memory of one of its slots; zero where it has one task. Bytes.
    pub share: Bytes,
    /// Another size that was asked for.
    pub resizing: Option<Resizing>,
    /// A smaller size that it could not be brought to. Bytes.
    pub keeps: Option<Bytes>,
    /// What ended tasks have left in its container.
    pub left: Unattributed,
    /// It will be taken by the platform: nothing new is begun in it.
    pub warning: Option<Warning>,
    /// It was told to end.
    pub leaving: bool,
    /// The resource manager did not know it any more when this master last registered, and nothing was heard from it since.
    pub unlisted: bool,
    /// Its end is known, and its last words are waited for until this moment.
    pub ended: Option<(Box<ExitReport>, Tick, u64)>,
}

impl Executor {
    /// An executor that was granted and not yet heard of.
    pub fn granted(request: RequestId, purpose: Purpose, node: NodeId, slots: u32, until: Tick) -> Self {
        Executor {
            request,
            purpose,
            node,
            rounds: (0, 0),
            slots,
            line: Line::Silent { until },
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
            unlisted: false,
            ended: None,
        }
    }
    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.seats.values().fold(0, |n, s| n.saturating_add(s.slots))
    }
    /// Slots that are free and have their memory: tasks that were given more while they ran may have taken that of others. None as
    /// long as the heap of one of them is starved: what is left beside it may be what its overhead needs next.
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
    /// Memory that could be given to what runs in it. Bytes.
    pub fn spare(&self) -> Bytes {
        self.enlarged().saturating_add(self.share.mul_ratio(u64::from(self.empty()), 1)).saturating_sub(self.extra())
    }
    /// Memory its container should have for what it was given to hold. Bytes.
    pub fn needs(&self) -> Bytes {
        self.base.saturating_add(self.extra())
    }
    /// True when its container was made larger than it needs to be now.
    pub fn has_too_much(&self) -> bool {
        self.stays()
            && self.resource.as_ref().is_some_and(|has| has.memory > self.needs().max(self.base))
            && !self.share.is_zero()
    }
    /// Memory that the next task in it would find beside `reserve`, which is the executor's own: what it has less what ended tasks left there
    /// and less what runs in it. Where no slot is free, the largest task in it is taken to have ended. Bytes.
    pub fn room_beside_leftovers(&self, reserve: Bytes) -> Bytes {
        let has = self.resource.as_ref().map_or(self.base, |has| has.memory);
        let taken = self.seats.values().fold(Bytes::ZERO, |sum, seat| sum.saturating_add(seat.memory));
        let largest = self.seats.values().map(|seat| seat.memory).max().filter(|_| self.empty() == 0).unwrap_or_default();
        has.saturating_sub(reserve).saturating_sub(self.left.memory).saturating_sub(taken.saturating_sub(largest))
    }
    fn empty(&self) -> u32 {
        self.slots.saturating_sub(self.used())
    }
    fn extra(&self) -> Bytes {
        self.seats.values().fold(Bytes::ZERO, |sum, s| sum.saturating_add(s.extra))
    }
    fn enlarged(&self) -> Bytes {
        self.resource.as_ref().map_or(Bytes::ZERO, |has| has.memory.saturating_sub(self.base))
    }
    /// True when a task can be started in it, as far as it is up to the executor.
    fn takes_work(&self) -> bool {
        self.line == Line::Up && self.stays() && self.warning.is_none()
    }
    /// True when it may run tasks: not told to end and not known to have ended.
    pub fn stays(&self) -> bool {
        !self.leaving && self.ended.is_none()
    }
    /// True when no other one is wanted in its place. One that will be taken is replaced at once, but a container for one task only
    /// when the task has to run again.
    pub fn holds_its_place(&self) -> bool {
        let done_here = matches!(self.purpose, Purpose::Own(_)) && !self.seats.is_empty();
        self.stays() && !self.unlisted && (self.warning.is_none() || done_here)
    }
}

/// One container request.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it is for.
    pub purpose: Purpose,
    /// Containers of it that are wanted alive.
    pub wanted: u32,
    /// Containers of it whose end was taken in.
    pub settled: BTreeSet<ContainerId>,
    /// How often in a row containers ended before an executor in them had said hello; several together are one.
    pub unused: u32,
    /// A replacement is not asked for before this moment.
    pub hold_until: Tick,
    /// Memory of each container. Bytes.
    pub memory: Bytes,
    /// Since when the resource manager has called it impossible.
    pub refused_since: Option<Tick>,
}

impl Request {
    /// A request worth nothing so far.
    pub fn new(purpose: Purpose, memory: Bytes) -> Self {
        let hold_until = Tick(0);
        Request { purpose, wanted: 0, settled: BTreeSet::new(), unused: 0, hold_until, memory, refused_since: None }
    }
}

/// All requests and executors of the job.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// By container.
    pub executors: BTreeMap<ContainerId, Executor>,
    /// Containers in which a task was given more, or waits for it, or whose size may have to change.
    pub growing: BTreeSet<ContainerId>,
    /// By request id.
    pub requests: BTreeMap<RequestId, Request>,
    /// Containers whose end was taken in and that the resource manager shows alive again, as when a node that was given up comes
    /// back: they are to be stopped.
    pub strays: BTreeSet<ContainerId>,
    /// Nodes on which launches fail.
    pub shunned: BTreeMap<NodeId, Shunned>,
    /// Kills for outer limits, by node and container.
    pub collateral: Collateral,
    /// When the next executor that nobody needs has waited long enough for work.
    pub idle_until: Option<Tick>,
    /// Containers of escalated tasks that are asked for and not there. Nothing lasting.
    pub own_waits: BTreeMap<RequestId, OwnWait>,
    /// Containers of single tasks that live. Nothing lasting.
    pub own_live: BTreeSet<ContainerId>,
    /// The executors that make room for them, by the request of the task's container. Nothing lasting.
    pub drained: BTreeMap<RequestId, DrainedRoom>,
    /// Nodes that are too full for what held tasks need. Nothing lasting.
    pub contention: BTreeMap<NodeId, Contention>,
}

/// The container of an escalated task is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnWait {
    /// The task.
    pub task: TaskKey,
    /// Since when.
    pub since: Tick,
    /// No executor is drained for it before this moment.
    pub drain_at: Tick,
    /// Drains in a row that did not lead to a grant.
    pub failed_drains: u32,
    /// It is due, and all that could be drained makes room for others.
    pub takes_turns: bool,
}

/// Room that one executor makes for the container of an escalated task. Until that is granted, no executor is asked for in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainedRoom {
    /// The executor.
    pub container: ContainerId,
    /// Its node.
    pub node: NodeId,
    /// Memory of all executors that were drained for this request. Bytes.
    pub freed: Bytes,
    /// When the last of them was gone.
    pub gone_at: Option<Tick>,
}

/// Held tasks of one node need more than it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// Who makes room now.
    pub makes_room: Option<MakesRoom>,
    /// Tasks that gave way: their containers are asked for when this is over.
    pub evicted: BTreeSet<TaskKey>,
    /// Sets of which executors have left, or are about to: they are replaced when this is over.
    pub sets: BTreeSet<usize>,
    /// Nobody is evicted before this moment.
    pub evict_at: Tick,
}

/// An executor, or attempts in it, on the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MakesRoom {
    /// Where.
    pub container: ContainerId,
    /// Attempts that were told to end; none where the executor runs dry.
    pub attempts: Vec<TaskAttemptId>,
    /// The container leaves.
    pub leaves: bool,
}

/// What is asked of the resource manager for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The request.
    pub request: RequestId,
    /// What it is for.
    pub purpose: Purpose,
    /// Containers it is worth in all.
    pub count: u32,
    /// How many of them have ended and were taken in.
    pub settled: u32,
}

impl Fleet {
    /// Live executors of a request, told to end or not.
    pub fn of_request<'a>(&'a self, request: &'a RequestId) -> impl Iterator<Item = (&'a ContainerId, &'a Executor)> {
        self.executors.iter().filter(move |(_, e)| e.request == *request)
    }

    /// What each request is worth: settled, about to end, and the larger of wanted and kept.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.worth(|_| true)
    }

    /// As [`Fleet::wanted`], without those that are worth nothing more. In a long job these are nearly all.
    pub fn open(&self) -> Vec<Wanted> {
        self.worth(|wanted: (u32, u32)| wanted.0 > wanted.1)
    }

    /// Those whose count, and how many of it have ended, `pass`.
    fn worth(&self, pass: impl Fn((u32, u32)) -> bool) -> Vec<Wanted> {
        let mut live: BTreeMap<&RequestId, (u32, u32)> = BTreeMap::new();
        // What the resource manager does not know is replaced by it, and would be again and again if it were counted here.
        for executor in self.executors.values().filter(|e| !e.unlisted) {
            let (kept, leaving) = live.entry(&executor.request).or_default();
            let counter = if executor.holds_its_place() { kept } else { leaving };
            *counter = counter.saturating_add(1);
        }
        let one = |(id, request): (&RequestId, &Request)| {
            let (kept, leaving) = live.get(id).copied().unwrap_or_default();
            let settled = count(request.settled.len());
            let worth = settled.saturating_add(leaving).saturating_add(kept.max(request.wanted));
            let wanted = || Wanted { request: id.clone(), purpose: request.purpose, count: worth, settled };
            pass((worth, settled)).then(wanted)
        };
        self.requests.iter().filter_map(one).collect()
    }

    /// Containers that the resource manager should stop.
    pub fn releases(&self) -> Vec<ContainerId> {
        let leaving = self.executors.iter().filter(|(_, e)| e.leaving && e.ended.is_none()).map(|(id, _)| id);
        leaving.chain(&self.strays).cloned().collect()
    }

    /// Executors of a set that stay, and are not to be taken.
    pub fn staying(&self, set: usize) -> impl Iterator<Item = (&ContainerId, &Executor)> {
        self.executors.iter().filter(move |(_, e)| e.purpose == Purpose::Set(set) && e.holds_its_place())
    }

    /// True when an own container is asked for and not there.
    pub fn own_missing(&self) -> bool {
        let there: BTreeSet<&RequestId> = self.executors.values().filter(|e| e.holds_its_place()).map(|e| &e.request).collect();
        self.requests.iter().any(|(id, r)| match r.purpose {
            Purpose::Own(_) => r.wanted > 0 && !there.contains(id),
            Purpose::Set(_) => false,
        })
    }

    /// Launches that failed on a node in a row.
    pub fn failures(&self, node: &NodeId) -> u32 {
        self.shunned.get(node).map_or(0, |shunned| shunned.failures)
    }

    /// A launch that was begun when `round` had failed there has failed too.
    pub fn launch_failed(&mut self, node: &NodeId, launched: Launched, round: u32) {
        let new = Shunned { failures: 0, launched, until: Tick(0) };
        let shunned = self.shunned.entry(node.clone()).or_insert(new);
        shunned.failures = next_round(shunned.failures, round);
        shunned.launched = launched;
    }

    /// From now on, and for longer the more launches of tasks have failed there, none is begun on that node.
    pub fn shut(&mut self, node: &NodeId, now: Tick) {
        let Some(shunned) = self.shunned.get_mut(node) else { return };
        match shunned.launched {
            Launched::Executor => {}
            Launched::Task(_) => shunned.until = now.plus(backoff(shunned.failures)),
        }
    }

    /// What had failed there last does not fail any more.
    pub fn launch_succeeded(&mut self, node: &NodeId, launched: Launched) {
        if self.shunned.get(node).is_some_and(|shunned| shunned.launched == launched) {
            self.shunned.remove(node);
        }
    }

    /// Whether an executor is on a node that is not excluded.
    pub fn other_place(&self) -> OtherPlace {
        let healthy = self.executors.values().any(|e| e.stays() && !self.collateral.is_excluded(&e.node));
        if healthy { OtherPlace::There } else { OtherPlace::Missing }
    }

    /// True when a task can be started in this executor now.
    pub fn takes_work(&self, executor: &Executor) -> bool {
        executor.takes_work() && self.shunned.get(&executor.node).is_none_or(|shunned| shunned.until == Tick(0))
    }

    /// For each request of one task, a container that could take it now.
    pub fn ready_own(&self) -> BTreeMap<&RequestId, &ContainerId> {
        let own = |e: &Executor| matches!(e.purpose, Purpose::Own(_)) && self.takes_work(e) && e.free() > 0;
        self.executors.iter().rev().filter(|(_, e)| own(e)).map(|(id, e)| (&e.request, id)).collect()
    }

    /// The earliest moment at which something must be looked at again.
    pub fn next_deadline(&self) -> Option<Tick> {
        let executors = self.executors.values().flat_map(|e| {
            let line = match e.line {
                Line::Silent { until } | Line::Down { until } => Some(until),
                Line::Up => None,
            };
            let reserved = e.reserved.map(|(_, at)| at).filter(|at| *at < Tick(u64::MAX));
            let forgotten = e.warning.and_then(Warning::forgotten_at);
            let again = e.resizing.map(|r| r.again_at);
            let held = e.seats.values().filter_map(|s| s.held).map(|h| h.until).min();
            [line, reserved, forgotten, again, held, e.ended.as_ref().map(|(_, at, _)| *at)]
        });
        let holds = self.requests.values().map(|r| (r.hold_until > Tick(0)).then_some(r.hold_until));
        let shut = self.shunned.values().map(|s| (s.until > Tick(0)).then_some(s.until));
        executors.chain(holds).chain(shut).chain([self.idle_until]).flatten().min()
    }
}

/// How often in a row, once what was begun when it was `round` times has failed too.
pub fn next_round(failures: u32, round: u32) -> u32 {
    failures.max(round.min(failures).saturating_add(1))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
