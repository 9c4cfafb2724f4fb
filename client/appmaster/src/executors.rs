//! Executors: the containers of this job, what runs in their slots, and how many are wanted.
//!
//! Owned by the core. A request's containers are counted as the resource manager counts them: those that ended and were taken in
//! (`settled`) and those that live. Both survive a restart of the master; links and reservations do not.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Bytes, ContainerId, ExitReport, NodeId, RequestId, TaskAttemptId, Tick};

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
    /// Slots.
    pub slots: u32,
    /// The line to it.
    pub line: Line,
    /// Whether it has ever said hello.
    pub greeted: bool,
    /// What runs in it.
    pub seats: BTreeMap<TaskAttemptId, Seat>,
    /// Kept free for a wide task until this moment.
    pub reserved: Option<(TaskKey, Tick)>,
    /// It was told to end.
    pub leaving: bool,
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
            slots,
            line: Line::Silent { until },
            greeted: false,
            seats: BTreeMap::new(),
            reserved: None,
            leaving: false,
            ended: None,
        }
    }
    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.seats.values().fold(0, |n, s| n.saturating_add(s.slots))
    }
    /// Slots that are free.
    pub fn free(&self) -> u32 {
        self.slots.saturating_sub(self.used())
    }
    /// True when a task can be started in it now.
    pub fn takes_work(&self) -> bool {
        self.line == Line::Up && !self.leaving && self.ended.is_none()
    }
    /// True when it will, or may, run tasks: not told to end and not known to have ended.
    pub fn stays(&self) -> bool {
        !self.leaving && self.ended.is_none()
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
    /// Containers in a row that ended before an executor in them had said hello.
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
    /// By request id.
    pub requests: BTreeMap<RequestId, Request>,
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

    /// What each request is worth: settled, told to end, and the larger of wanted and kept.
    pub fn wanted(&self) -> Vec<Wanted> {
        let one = |(id, request): (&RequestId, &Request)| {
            let (kept, leaving): (Vec<bool>, Vec<bool>) = self.of_request(id).map(|(_, e)| e.stays()).partition(|stays| *stays);
            let (kept, leaving) = (count(kept.len()), count(leaving.len()));
            let settled = count(request.settled.len());
            let worth = settled.saturating_add(leaving).saturating_add(kept.max(request.wanted));
            Wanted { request: id.clone(), purpose: request.purpose, count: worth, settled }
        };
        self.requests.iter().map(one).collect()
    }

    /// Containers that the resource manager should stop.
    pub fn releases(&self) -> Vec<ContainerId> {
        self.executors.iter().filter(|(_, e)| e.leaving && e.ended.is_none()).map(|(id, _)| id.clone()).collect()
    }

    /// Executors of a set that stay.
    pub fn staying(&self, set: usize) -> impl Iterator<Item = (&ContainerId, &Executor)> {
        self.executors.iter().filter(move |(_, e)| e.purpose == Purpose::Set(set) && e.stays())
    }

    /// True when an own container is asked for and not there.
    pub fn own_missing(&self) -> bool {
        self.requests.iter().any(|(id, r)| match r.purpose {
            Purpose::Own(_) => r.wanted > 0 && !self.of_request(id).any(|(_, e)| e.stays()),
            Purpose::Set(_) => false,
        })
    }

    /// The earliest moment at which something must be looked at again.
    pub fn next_deadline(&self) -> Option<Tick> {
        let executors = self.executors.values().flat_map(|e| {
            let line = match e.line {
                Line::Silent { until } | Line::Down { until } => Some(until),
                Line::Up => None,
            };
            let reserved = e.reserved.map(|(_, at)| at).filter(|at| *at < Tick(u64::MAX));
            [line, reserved, e.ended.as_ref().map(|(_, at, _)| *at)]
        });
        let holds = self.requests.values().map(|r| (r.hold_until > Tick(0)).then_some(r.hold_until));
        executors.chain(holds).flatten().min()
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
