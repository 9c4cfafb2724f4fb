//! What the resource manager tells scrapers: counted where things happen, without locks, and put on a page when somebody asks.
//!
//! Names and labels are those of `headroom_telemetry::names`. What the published view says is not counted a second time.

mod calls;
mod put;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_telemetry::histogram::{LONG, SHORT};
use headroom_telemetry::{Histogram, Turned};
use headroom_types::QueuePath;

pub(crate) use calls::Calls;
pub(crate) use put::page;

/// What was decided about a container of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Decision {
    /// It was given.
    Granted,
    /// A node is kept for it.
    Reserved,
    /// One was taken back for it.
    Preempted,
    /// No node could ever give it.
    Refused,
    /// Its deadline passed.
    Expired,
}

impl Decision {
    pub(crate) const ALL: [Decision; 5] =
        [Decision::Granted, Decision::Reserved, Decision::Preempted, Decision::Refused, Decision::Expired];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Decision::Granted => "granted",
            Decision::Reserved => "reserved",
            Decision::Preempted => "preempted",
            Decision::Refused => "refused",
            Decision::Expired => "expired",
        }
    }
}

/// All that is counted.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Calls.
    pub(crate) calls: Calls,
    /// Turns of the loop.
    pub(crate) turns: Histogram,
    /// Commits of the journal.
    pub(crate) writes: Histogram,
    /// Readers of events that were cut off or came too late.
    pub(crate) dropped: AtomicU64,
    /// Connections that nobody was let in by.
    pub(crate) turned: Arc<Turned>,
    /// Written by the loop, once for each request that something is decided about.
    queues: Mutex<BTreeMap<QueuePath, Arc<OfQueue>>>,
}

/// What is counted for one queue.
#[derive(Debug)]
pub(crate) struct OfQueue {
    pub(crate) decisions: [AtomicU64; Decision::ALL.len()],
    pub(crate) waits: Histogram,
}

impl Counters {
    /// Nothing yet; `routes` are the addresses that calls are counted by.
    pub(crate) fn new(routes: Vec<String>) -> Self {
        Counters {
            calls: Calls::new(routes),
            turns: Histogram::new(SHORT),
            writes: Histogram::new(SHORT),
            dropped: AtomicU64::new(0),
            turned: Arc::default(),
            queues: Mutex::default(),
        }
    }

    /// Something was decided in a queue; of a grant, how long it was waited for.
    pub(crate) fn decided(&self, queue: &QueuePath, what: Decision, waited: Option<Duration>) {
        let of = {
            let mut queues = self.queues();
            match queues.get(queue) {
                Some(of) => of.clone(),
                None => queues.entry(queue.clone()).or_insert_with(|| Arc::new(OfQueue::new())).clone(),
            }
        };
        if let Some(count) = Decision::ALL.iter().position(|d| *d == what).and_then(|place| of.decisions.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(waited) = waited {
            of.waits.time(waited);
        }
    }

    /// By queue. Queues that are gone stay until the next start: they had things to tell.
    pub(crate) fn by_queue(&self) -> BTreeMap<QueuePath, Arc<OfQueue>> {
        self.queues().clone()
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<QueuePath, Arc<OfQueue>>> {
        // A reader that panicked has changed nothing.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfQueue {
    fn new() -> Self {
        OfQueue { decisions: Default::default(), waits: Histogram::new(LONG) }
    }

    pub(crate) fn count(&self, what: Decision) -> u64 {
        let place = Decision::ALL.iter().position(|d| *d == what);
        place.and_then(|place| self.decisions.get(place)).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}
