//! Metrics of the resource manager: lock-free counters where events happen, and a page that is
//! written on request.
//!
//! Names and labels are those of `headroom_telemetry::names`. Values of the published view are not
//! counted again.

mod calls;
mod put;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_telemetry::histogram::{LONG, SHORT};
use headroom_telemetry::{Histogram, RejectedConnections};
use headroom_types::{QueuePath, word_enum};

pub(crate) use calls::HttpCallCounters;
pub(crate) use put::page;

word_enum! {
    /// Decision about a container of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum ContainerDecision: "is not a decision; use" {
        /// It was granted.
        Granted = "granted",
        /// A node was reserved for it.
        Reserved = "reserved",
        /// A container was preempted for it.
        Preempted = "preempted",
        /// It is infeasible.
        Refused = "refused",
        /// Its deadline passed.
        Expired = "expired",
    }
}

/// All counters.
#[derive(Debug)]
pub(crate) struct ManagerCounters {
    /// HTTP calls.
    pub(crate) calls: HttpCallCounters,
    /// Duration of the main loop's turns.
    pub(crate) turns: Histogram,
    /// Duration of journal commits.
    pub(crate) writes: Histogram,
    /// Number of event readers that were disconnected or started too late.
    pub(crate) dropped: AtomicU64,
    /// Rejected connections.
    pub(crate) turned: Arc<RejectedConnections>,
    /// Counters by queue. The main loop writes them, once for each decision.
    queues: Mutex<BTreeMap<QueuePath, Arc<QueueCounters>>>,
}

/// Counters of one queue.
#[derive(Debug)]
pub(crate) struct QueueCounters {
    pub(crate) decisions: [AtomicU64; ContainerDecision::ALL.len()],
    pub(crate) waits: Histogram,
}

impl ManagerCounters {
    /// Creates counters at zero; `routes` are the paths by which calls are counted.
    pub(crate) fn new(routes: Vec<String>) -> Self {
        ManagerCounters {
            calls: HttpCallCounters::new(routes),
            turns: Histogram::new(SHORT),
            writes: Histogram::new(SHORT),
            dropped: AtomicU64::new(0),
            turned: Arc::default(),
            queues: Mutex::default(),
        }
    }

    /// Counts a decision in a queue, and for a grant the wait before it.
    pub(crate) fn decided(
        &self,
        queue: &QueuePath,
        what: ContainerDecision,
        waited: Option<Duration>,
    ) {
        let of = {
            let mut queues = self.queues();
            match queues.get(queue) {
                Some(of) => of.clone(),
                None => queues
                    .entry(queue.clone())
                    .or_insert_with(|| Arc::new(QueueCounters::new()))
                    .clone(),
            }
        };
        if let Some(count) = ContainerDecision::ALL
            .iter()
            .position(|d| *d == what)
            .and_then(|place| of.decisions.get(place))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(waited) = waited {
            of.waits.observe(waited.as_secs_f64());
        }
    }

    /// Counters by queue. Deleted queues stay until the next start, because counters must not
    /// disappear.
    pub(crate) fn by_queue(&self) -> BTreeMap<QueuePath, Arc<QueueCounters>> {
        self.queues().clone()
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<QueuePath, Arc<QueueCounters>>> {
        // Poisoning is harmless: a panic of a reader changes no state.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueCounters {
    fn new() -> Self {
        QueueCounters {
            decisions: Default::default(),
            waits: Histogram::new(LONG),
        }
    }

    pub(crate) fn count(&self, what: ContainerDecision) -> u64 {
        let place = ContainerDecision::ALL.iter().position(|d| *d == what);
        place
            .and_then(|place| self.decisions.get(place))
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }
}
