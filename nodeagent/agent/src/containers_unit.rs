//! The unit of systemd that holds the cgroup of all containers.
//!
//! systemd ends and restarts the unit, and the agent with it, when no process is left in it. A program
//! that starts in between would keep the unit from ending until systemd kills it after its timeout.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_container_shim::KEEPER_GROUP;
use tokio::time::{Instant, sleep};
use tracing::warn;

/// Longest wait for the restart of the unit. Afterwards programs start as if there were no unit.
const RESTART_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two looks at the unit.
const LOOK: Duration = Duration::from_millis(20);

/// A unit without processes, which is about to restart.
#[derive(Debug)]
pub(crate) struct EmptyUnit(PathBuf);

impl EmptyUnit {
    /// The unit with this cgroup, if no process is left in it. `None` on a host without such a unit,
    /// and with cgroup v1, which does not tell.
    pub(crate) fn of(root: Option<PathBuf>) -> Option<EmptyUnit> {
        let root = root.filter(|root| root.join(KEEPER_GROUP).is_dir() && is_empty(root))?;
        Some(EmptyUnit(root))
    }

    /// Waits until a process is in the unit again. Usually the restart of the agent ends this wait.
    pub(crate) async fn restarted(self) {
        let EmptyUnit(root) = self;
        warn!(root = %root.display(), "every process of the containers' unit has ended, its cgroup holder too; launches wait for its restart");
        let deadline = Instant::now() + RESTART_TIMEOUT;
        while is_empty(&root) && Instant::now() < deadline {
            sleep(LOOK).await;
        }
    }
}

/// Whether no process is in a group or below it.
fn is_empty(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "populated 0"))
}
