//! The fork servers of an executor: one for each distinct command, started by its first attempt.
//!
//! The launch context owns the table. Each fork server is owned by its own tokio task, which
//! receives requests through a bounded queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::children::ExecutorChildren;
use crate::environment::MAX_SLOTS;
use crate::fork_server::{ForkJob, ForkServer, ForkServerFailure, ForkServerSpec, server_name};

/// Maximum number of fork servers. A further one ends the least recently used one.
const MAX_FORK_SERVERS: usize = 8;

/// The table of fork servers.
#[derive(Debug, Default)]
pub struct ForkServers {
    table: Mutex<ForkServerTable>,
}

#[derive(Debug, Default)]
struct ForkServerTable {
    /// Number of fork servers so far.
    count: u32,
    /// The most recently used one is the last.
    servers: Vec<ForkServerEntry>,
}

#[derive(Debug)]
struct ForkServerEntry {
    command: Vec<String>,
    jobs: mpsc::Sender<ForkJob>,
    task: AbortHandle,
}

impl ForkServers {
    fn lock(&self) -> MutexGuard<'_, ForkServerTable> {
        // No operation panics in the middle of a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a process from the fork server with this command. `spec` describes a fork server that
    /// does not exist yet, by its number from 1. Returns the pid.
    pub(crate) async fn fork(
        &self,
        command: &[String],
        spec: impl FnOnce(u32) -> ForkServerSpec,
        children: &ExecutorChildren,
        job: impl FnOnce(oneshot::Sender<Result<i32, ForkServerFailure>>) -> ForkJob,
    ) -> Result<i32, ForkServerFailure> {
        let (answer, pid) = oneshot::channel();
        let jobs = self.lock().entry(command, spec, children);
        let lost = |why: &str| {
            let name = server_name(command);
            Err(ForkServerFailure::transient(format!(
                "the fork server {name} {why}"
            )))
        };
        if jobs.try_send(job(answer)).is_err() {
            return lost("has too many waiting requests, or was ended");
        }
        match pid.await {
            Ok(result) => result,
            Err(_) => lost("was ended before it answered"),
        }
    }

    /// Ends all fork servers.
    pub fn close(&self) {
        for server in self.lock().servers.drain(..) {
            server.task.abort();
        }
    }
}

impl ForkServerTable {
    fn entry(
        &mut self,
        command: &[String],
        spec: impl FnOnce(u32) -> ForkServerSpec,
        children: &ExecutorChildren,
    ) -> mpsc::Sender<ForkJob> {
        // The task of a fork server has ended without its sender only after a defect in it.
        self.servers.retain(|entry| !entry.jobs.is_closed());
        let known = self
            .servers
            .iter()
            .position(|entry| entry.command == command);
        let entry = match known {
            Some(place) => self.servers.remove(place),
            None => self.start(command, spec, children),
        };
        let jobs = entry.jobs.clone();
        self.servers.push(entry);
        jobs
    }

    fn start(
        &mut self,
        command: &[String],
        spec: impl FnOnce(u32) -> ForkServerSpec,
        children: &ExecutorChildren,
    ) -> ForkServerEntry {
        if self.servers.len() >= MAX_FORK_SERVERS {
            // Without its sender it ends after the requests that wait for it.
            let oldest = self.servers.remove(0);
            tracing::info!(
                fork_server = server_name(&oldest.command),
                "a fork server is ended, because the executor has too many"
            );
        }
        self.count = self.count.saturating_add(1);
        let (jobs, requests) = mpsc::channel(MAX_SLOTS as usize);
        let server = ForkServer::new(spec(self.count), children.clone());
        let task = tokio::spawn(server.serve(requests)).abort_handle();
        ForkServerEntry {
            command: command.to_vec(),
            jobs,
            task,
        }
    }
}
