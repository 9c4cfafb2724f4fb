//! The registry of the executor's children behind a lock, and the reaping of orphans.
//!
//! The launch context owns it. All tasks and fork servers share it; no lock is held across a wait.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_node_exec::ChildProcess;
use headroom_node_exec::adoption::{adopt, become_subreaper, ended_child, reap_child};

use crate::child_registry::ChildRegistry;

/// Maximum number of orphans that one call reaps.
const MAX_REAPED: usize = 1024;

/// The children of the executor.
#[derive(Clone, Debug, Default)]
pub struct ExecutorChildren {
    state: Arc<Mutex<ChildrenState>>,
}

#[derive(Debug, Default)]
struct ChildrenState {
    registry: ChildRegistry,
    is_subreaper: bool,
}

/// A start whose child may exist before it is registered; the drop ends the start.
#[derive(Debug)]
pub struct OpenStart {
    children: ExecutorChildren,
    start: u64,
}

/// The registration of a child; the drop removes it. Drop it after the child was reaped.
#[derive(Debug)]
pub struct RegisteredChild {
    children: ExecutorChildren,
    pid: i32,
}

impl ExecutorChildren {
    fn lock(&self) -> MutexGuard<'_, ChildrenState> {
        // No operation panics in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a start, before its child can exist.
    pub fn open_start(&self) -> OpenStart {
        let start = self.lock().registry.open_start();
        OpenStart {
            children: self.clone(),
            start,
        }
    }

    /// From now on, descendants whose parents end become children of the executor.
    pub fn adopt_descendants(&self) -> io::Result<()> {
        let mut state = self.lock();
        if !state.is_subreaper {
            become_subreaper()?;
            state.is_subreaper = true;
        }
        Ok(())
    }

    /// Reaps ended children that have no owner.
    pub fn reap_orphans(&self) {
        if !self.lock().is_subreaper {
            return;
        }
        for _ in 0..MAX_REAPED {
            let reaped = ended_child().and_then(|pid| match pid {
                // An owner that has not reaped its child yet hides the orphans behind it for a moment.
                Some(pid) if self.lock().registry.is_orphan(pid) => reap_child(pid),
                Some(_) | None => Ok(false),
            });
            match reaped {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "an ended process cannot be reaped");
                    return;
                }
            }
        }
    }
}

impl OpenStart {
    /// Registers the child of this start.
    pub fn register(self, child: &ChildProcess) -> RegisteredChild {
        self.children.lock().registry.register(child.pid);
        RegisteredChild {
            children: self.children.clone(),
            pid: child.pid,
        }
    }

    /// Takes the process `pid`, which another process has started for this start.
    ///
    /// # Errors
    /// `NotFound` if it is not a child of the executor; `AlreadyExists` if it has another owner.
    pub fn adopt(self, pid: i32) -> io::Result<(ChildProcess, RegisteredChild)> {
        if self.children.lock().registry.is_registered(pid) {
            let why = format!("process {pid} belongs to another task or fork server");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let child = adopt(pid)?;
        let registered = self.register(&child);
        Ok((child, registered))
    }
}

impl Drop for OpenStart {
    fn drop(&mut self) {
        self.children.lock().registry.close_start(self.start);
    }
}

impl Drop for RegisteredChild {
    fn drop(&mut self) {
        self.children.lock().registry.forget(self.pid);
    }
}
