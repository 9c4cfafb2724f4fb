//! State that the main loop shares with readers: the published view, the event log, job rows, usage
//! history, profiles, access control and counters.
//!
//! The main loop is the only writer of durable parts, and publishes them when they are on disk.
//! Readers never wait for the loop here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_types::{UnixMillis, millis};
use headroom_wire::v1::apps::MemoryFailureStats;
use tokio::sync::watch;

use crate::access::AccessControl;
use crate::eventlog::EventLog;
use crate::jobs::JobRowStore;
use crate::metrics::ManagerCounters;
use crate::profiles::ProfileCatalog;
use crate::published::Published;
use crate::usage_history::UsageHistory;

/// State that the loop shares with readers.
#[derive(Clone, Debug)]
pub(crate) struct SharedState {
    pub(crate) published: Arc<Published>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) jobs: Arc<JobRowStore>,
    pub(crate) families: Arc<UsageHistory>,
    /// Durable profiles.
    pub(crate) profiles: watch::Sender<Arc<ProfileCatalog>>,
    /// Durable access control state.
    pub(crate) access: watch::Sender<Arc<AccessControl>>,
    pub(crate) counters: Arc<ManagerCounters>,
    /// Interval between heartbeats of nodes. Milliseconds.
    pub(crate) heartbeat: Arc<AtomicU64>,
}

impl SharedState {
    /// Sets the interval between heartbeats of nodes.
    pub(crate) fn set_heartbeat(&self, interval: Duration) {
        self.heartbeat.store(millis(interval), Ordering::Relaxed);
    }

    /// Interval between heartbeats of nodes, as messages have it. Milliseconds.
    pub(crate) fn heartbeat_ms(&self) -> Option<u64> {
        Some(self.heartbeat.load(Ordering::Relaxed))
    }

    /// Memory failures in the hour before `now`. After a restart, the first caller waits for the
    /// events of earlier incarnations.
    pub(crate) async fn memory_hour(&self, now: UnixMillis) -> MemoryFailureStats {
        self.events.restored().await;
        MemoryFailureStats {
            wasted_byte_s: self.jobs.wasted_in_last_hour(now),
            ..self.events.memory_hour(now)
        }
    }
}
