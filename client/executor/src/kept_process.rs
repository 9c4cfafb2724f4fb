//! Forked processes that wait for the next attempt of their stage.
//!
//! A process of a fork server may offer itself at the end of an attempt: it sends `done` on its gate
//! instead of exiting with code 0. The executor keeps it, with its cgroup, if the attempt was short
//! and left nothing behind; otherwise it ends both. The next attempt of the same stage and size then
//! needs neither a fork nor a new cgroup.
//!
//! The launch context owns the table. An attempt that no kept process can serve ends all of them, so
//! processes that run and processes that wait are never more than the slots.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headroom_node_exec::ChildProcess;
use headroom_node_process::fd_passing;
use headroom_types::{Bytes, Name};
use headroom_wire::v1::task::TaskStart;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::children::RegisteredChild;
use crate::fork_protocol::GATE_DONE;
use crate::growth::TaskGrowth;
use crate::limits::has_remedies;
use crate::logs::TaskFiles;
use crate::taskgroup::{ContainerCgroup, TaskGroup};

/// Maximum time for which a process waits.
const MAX_IDLE: Duration = Duration::from_secs(2);
/// Memory that a kept process may always use. Bytes.
const MIN_KEPT: Bytes = Bytes::from_mib(16);
/// The same if its limit is unknown. Bytes.
const UNLIMITED_KEPT: Bytes = Bytes::from_mib(64);

const SIGKILL: i32 = 9;

/// The attempts that a process can serve: those of one stage and one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessPurpose {
    stage: Name,
    fork_server: Vec<String>,
    limit: Option<Bytes>,
    slots: u32,
    freeze_timeout_ms: Option<u64>,
}

impl ProcessPurpose {
    /// The purpose of the process of an attempt; `None` if it serves no other one.
    pub(crate) fn of(start: &TaskStart) -> Option<ProcessPurpose> {
        let forked = !start.fork_server.is_empty();
        (forked && !has_remedies(start)).then(|| ProcessPurpose {
            stage: start.attempt.task.stage.clone(),
            fork_server: start.fork_server.clone(),
            limit: start.limit,
            slots: start.slots,
            freeze_timeout_ms: start.freeze_timeout_ms,
        })
    }
}

/// Largest use of a process that is kept. It reduces the memory of the next attempt.
pub(crate) fn max_kept_use(limit: Option<Bytes>) -> Bytes {
    limit.map_or(UNLIMITED_KEPT, |limit| {
        limit
            .mul_ratio(1, 8)
            .max(MIN_KEPT)
            .min(limit.mul_ratio(1, 2))
    })
}

/// A process that waits at its gate, with its cgroup.
#[derive(Debug)]
pub(crate) struct KeptProcess {
    /// Its process.
    pub(crate) child: ChildProcess,
    /// The registration of the process.
    pub(crate) registered: RegisteredChild,
    /// Its cgroup.
    pub(crate) group: Arc<TaskGroup>,
    /// The executor's end of its gate.
    pub(crate) gate: OwnedFd,
    /// Its growth, in its first state.
    pub(crate) growth: Option<TaskGrowth>,
    /// Bytes that it has read so far.
    pub(crate) read: Bytes,
    /// The attempts that it can serve.
    pub(crate) purpose: ProcessPurpose,
    /// Start of the wait.
    pub(crate) since: Instant,
}

impl KeptProcess {
    /// Gives it another attempt: the request, and the logs.
    pub(crate) fn serve(
        &self,
        container: &ContainerCgroup,
        packet: &[u8],
        files: &TaskFiles,
    ) -> io::Result<()> {
        self.group.begin_again(container);
        fd_passing::send(&self.gate, packet, &[files.out.as_fd(), files.err.as_fd()])
    }

    /// Ends the process and removes its cgroup. Blocking.
    pub(crate) fn end(self, container: &ContainerCgroup) {
        drop(self.gate);
        // An error means that it has ended.
        let _ = self.child.signal(SIGKILL);
        let removed = self
            .group
            .clear()
            .and_then(|_| container.remove(&self.group));
        if let Err(error) = removed {
            tracing::warn!(%error, "the cgroup of a process without an attempt cannot be removed");
        }
        if let Err(error) = self.child.wait() {
            tracing::debug!(%error, "a process without an attempt cannot be reaped now");
        }
        drop(self.registered);
    }
}

/// The kept processes of an executor.
#[derive(Debug, Default)]
pub struct KeptProcesses {
    idle: Mutex<Vec<KeptProcess>>,
}

impl KeptProcesses {
    fn lock(&self) -> MutexGuard<'_, Vec<KeptProcess>> {
        // No operation panics in the middle of a change.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process.
    pub(crate) fn add(&self, process: KeptProcess) {
        self.lock().push(process);
    }

    /// The process for an attempt, and the processes to end.
    pub(crate) fn take(&self, start: &TaskStart) -> (Option<KeptProcess>, Vec<KeptProcess>) {
        let mut idle = self.lock();
        let Some(purpose) = ProcessPurpose::of(start).filter(|_| !idle.is_empty()) else {
            return (None, std::mem::take(&mut idle));
        };
        // The last one has the warmest caches.
        let serves = |process: &KeptProcess| process.purpose == purpose && process.is_waiting();
        match idle.iter().rposition(serves) {
            Some(place) => (Some(idle.swap_remove(place)), Vec::new()),
            None => (None, std::mem::take(&mut idle)),
        }
    }

    /// Removes the processes that have waited for too long.
    pub(crate) fn take_expired(&self) -> Vec<KeptProcess> {
        let expired = |process: &mut KeptProcess| process.since.elapsed() >= MAX_IDLE;
        self.lock().extract_if(.., expired).collect()
    }

    /// Removes all processes.
    pub(crate) fn take_all(&self) -> Vec<KeptProcess> {
        std::mem::take(&mut self.lock())
    }
}

impl KeptProcess {
    /// False if it was killed while it waited.
    fn is_waiting(&self) -> bool {
        matches!(self.child.peek(), Ok(None))
    }
}

/// True when a forked process offers itself for another attempt. Pending forever without its gate,
/// which is closed after anything else.
pub(crate) async fn done(gate: &mut Option<AsyncFd<OwnedFd>>) -> bool {
    let mut room = [0; GATE_DONE.len()];
    let length = match gate {
        Some(gate) => {
            let received = gate.async_io(Interest::READABLE, |gate| {
                fd_passing::receive(gate, &mut room).map(|(length, _)| length)
            });
            received.await.unwrap_or_default()
        }
        None => std::future::pending().await,
    };
    if room.get(..length) == Some(GATE_DONE) {
        return true;
    }
    *gate = None;
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::samples::start;

    #[test]
    fn a_process_serves_attempts_of_its_stage_and_size() {
        let forked = |id: &str| TaskStart {
            fork_server: vec!["server".into()],
            limit: Some(Bytes::from_mib(64)),
            ..start(id)
        };
        let purpose = ProcessPurpose::of(&forked("map/7@1"));
        assert!(purpose.is_some());
        assert_eq!(purpose, ProcessPurpose::of(&forked("map/8@2")));
        assert_ne!(purpose, ProcessPurpose::of(&forked("reduce/7@1")));
        let larger = TaskStart {
            limit: Some(Bytes::from_mib(128)),
            ..forked("map/7@2")
        };
        assert_ne!(purpose, ProcessPurpose::of(&larger));
        assert_eq!(ProcessPurpose::of(&start("map/7@1")), None);
        let mut treated = forked("map/7@1");
        treated
            .env
            .insert("HEADROOM_REMEDIES".into(), "tmp-on-disk".into());
        assert_eq!(ProcessPurpose::of(&treated), None);
    }

    #[test]
    fn a_kept_process_leaves_most_of_its_limit_to_the_next_attempt() {
        let mib = Bytes::from_mib;
        let kept = [None, Some(16), Some(64), Some(128), Some(1024)]
            .map(|limit| max_kept_use(limit.map(mib)));
        assert_eq!(kept, [mib(64), mib(8), mib(16), mib(16), mib(128)]);
    }
}
