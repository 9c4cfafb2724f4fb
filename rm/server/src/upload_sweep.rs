//! Removal of uploaded files that no application needs.

use std::sync::Arc;
use std::time::Duration;

use headroom_types::Tick;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::input::ClusterQuery;
use crate::reader::ClusterReader;
use crate::uploads::UploadStore;

/// Time after the start as the leader until masters have registered again with the requests that name uploads.
const RECOVERY_WAIT: Duration = Duration::from_secs(300);
/// Interval between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// Sweeps periodically until `closing`.
pub(crate) async fn keep_swept(
    store: Arc<UploadStore>,
    reader: ClusterReader,
    closing: CancellationToken,
) {
    let first = tokio::time::Instant::now() + RECOVERY_WAIT;
    let mut clock = tokio::time::interval_at(first, SWEEP_INTERVAL);
    while closing.run_until_cancelled(clock.tick()).await.is_some() {
        sweep(&store, &reader).await;
    }
}

/// Removes stale files that no application names which has not ended. Removes nothing shortly after
/// this resource manager began to lead, when some applications have not sent their requests again.
pub(crate) async fn sweep(store: &Arc<UploadStore>, reader: &ClusterReader) {
    if reader.clock.now().since(Tick(0)) < RECOVERY_WAIT {
        return;
    }
    let (now, listed) = (store.now(), store.clone());
    let stale = tokio::task::spawn_blocking(move || listed.stale(now)).await;
    let stale = stale.unwrap_or_default();
    if stale.is_empty() {
        return;
    }
    let needed = match reader.query(ClusterQuery::NeededUploads).await {
        Ok(needed) => needed,
        Err(problem) => {
            warn!(%problem, "cannot list the uploads that applications need, removing none");
            return;
        }
    };
    let store = store.clone();
    let removed = tokio::task::spawn_blocking(move || store.expire(&stale, &needed, now)).await;
    if let Ok(files @ 1..) = removed {
        info!(files, "removed uploads that were not used");
    }
}
