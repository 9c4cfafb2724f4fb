//! Checks of the disk outside of their interval, for launches that fail on a full disk.
//!
//! The resource manager repeats such a launch at once. The node must be unhealthy by then, or it
//! gets the next attempt, too.

use std::time::Duration;

use headroom_node_core::{LaunchFailure, LaunchFailureKind};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Maximum time that the report of a failed launch waits for a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests for checks, and their ends.
#[derive(Debug, Default)]
pub(crate) struct DiskChecks {
    requested: Notify,
    /// Number of checks whose result the loop has received.
    finished: watch::Sender<u64>,
}

impl DiskChecks {
    /// Checks the disk if it was too full for a launch. Returns when the loop knows the result.
    pub(crate) async fn check_after(&self, failure: &LaunchFailure) {
        if failure.kind != LaunchFailureKind::DiskFull {
            return;
        }
        let mut finished = self.finished.subscribe();
        self.requested.notify_one();
        // After the timeout, the next regular check finds the problem.
        let _ = timeout(CHECK_TIMEOUT, finished.changed()).await;
    }

    /// Waits until a check is requested.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Ends the wait of all launches for a check.
    pub(crate) fn finish(&self) {
        self.finished.send_modify(|number| *number += 1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    fn failure(kind: LaunchFailureKind) -> LaunchFailure {
        LaunchFailure::new(kind, "it failed")
    }

    #[tokio::test]
    async fn a_launch_that_failed_on_a_full_disk_waits_for_a_check() {
        let (checks, full) = (DiskChecks::default(), failure(LaunchFailureKind::DiskFull));
        let mut waits = pin!(checks.check_after(&full));
        assert_eq!(waits.as_mut().now_or_never(), None);
        assert_eq!(checks.requested().now_or_never(), Some(()));
        assert_eq!(
            waits.as_mut().now_or_never(),
            None,
            "the check has only begun"
        );
        checks.finish();
        assert_eq!(waits.now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn other_failures_request_no_check() {
        let (checks, other) = (
            DiskChecks::default(),
            failure(LaunchFailureKind::ProgramNotFound),
        );
        assert_eq!(checks.check_after(&other).now_or_never(), Some(()));
        assert_eq!(checks.requested().now_or_never(), None);
    }
}
