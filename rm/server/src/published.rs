//! The published view of the cluster, with the number of batches since the start.
//!
//! The main loop publishes; readers read, or wait for the next view. It never makes a view itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::view::ClusterSnapshot;

/// The published view, and the number of batches.
#[derive(Debug)]
pub(crate) struct Published {
    view: watch::Sender<Arc<ClusterSnapshot>>,
    batches: AtomicU64,
    /// Notifies callers that wait for the next batch.
    news: watch::Sender<u64>,
    /// Whether the recovery after a restart is complete.
    recovered: watch::Sender<bool>,
}

impl Published {
    /// Starts with an outdated view, so that no caller sees it before the first turn of the main
    /// loop.
    pub(crate) fn new(view: ClusterSnapshot) -> Self {
        let batches = view.batch + 1;
        Published {
            batches: AtomicU64::new(batches),
            news: watch::Sender::new(batches),
            recovered: watch::Sender::new(false),
            view: watch::Sender::new(Arc::new(view)),
        }
    }
    /// Marks the published view as outdated after a batch.
    pub(crate) fn outdate(&self) {
        let before = self.batches.fetch_add(1, Ordering::AcqRel);
        if self.news.receiver_count() > 0 {
            self.news.send_replace(before + 1);
        }
    }
    /// Sets whether the recovery after a restart is complete, so that no node is awaited any more.
    pub(crate) fn recovered(&self, recovered: bool) {
        self.recovered
            .send_if_modified(|known| std::mem::replace(known, recovered) != recovered);
    }
    /// Whether the recovery after a restart is complete.
    pub(crate) fn is_recovered(&self) -> bool {
        *self.recovered.borrow()
    }
    /// Number of batches.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }
    /// Last published view, possibly outdated.
    pub(crate) fn last(&self) -> Arc<ClusterSnapshot> {
        self.view.borrow().clone()
    }
    pub(crate) fn publish(&self, view: ClusterSnapshot) {
        self.view.send_replace(Arc::new(view));
    }
    /// Last published view, if no batch came after it.
    pub(crate) fn fresh(&self) -> Option<Arc<ClusterSnapshot>> {
        let view = self.view.borrow().clone();
        (view.batch >= self.batches.load(Ordering::Acquire)).then_some(view)
    }
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh().is_some()
    }
    /// Receiver of the published views.
    pub(crate) fn views(&self) -> watch::Receiver<Arc<ClusterSnapshot>> {
        self.view.subscribe()
    }
    /// Receiver of the number of batches.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
    /// Receiver of whether the recovery after a restart is complete.
    pub(crate) fn recovery(&self) -> watch::Receiver<bool> {
        self.recovered.subscribe()
    }
}
