//! One fork server: its process, its socket, and the requests to it.
//!
//! A tokio task owns the fork server. It starts the process for the first request, handles one
//! request at a time, and starts the process again after its end. The kernel ends the process
//! together with the executor.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_node_exec::{
    ChildProcess, ExecArguments, Namespaces, ProcessEnd, SpawnCommand, SpawnError, spawn,
};
use headroom_node_process::fd_passing;
use headroom_transport::deadline;
use headroom_types::{Bytes, TaskAttemptId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::children::{ExecutorChildren, RegisteredChild};
use crate::fork_protocol::{CHANNEL_VARIABLE, ForkServerMessage, MAX_MESSAGE_BYTES, VERSION};
use crate::logs::tail;
use crate::spawn_failure::exec_failure_code;

/// Timeout of a start: importing large libraries from a network file system takes long.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout of the answer to a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time between the close of its socket, or SIGKILL, and the end of its process.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Wait before the start that follows the first failure; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Maximum of that wait.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Maximum length of its name in messages. Bytes.
const MAX_NAME: usize = 100;
/// Bytes at the end of its log that an error contains.
const LOG_TAIL: u64 = 2048;

const SIGKILL: i32 = 9;

/// The properties of a fork server's process.
#[derive(Clone, Debug)]
pub(crate) struct ForkServerSpec {
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// The whole environment except for the number of the descriptor.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub(crate) work_dir: PathBuf,
    /// File for its standard output and error.
    pub(crate) log: PathBuf,
    /// Separate namespaces, which its forks share.
    pub(crate) namespaces: Option<Namespaces>,
    /// `oom_score_adj` of its process.
    pub(crate) oom_score_adj: i32,
    /// Memory of the container beside its slots, if known. Bytes.
    pub(crate) reserve: Option<Bytes>,
}

/// A request for a process.
#[derive(Debug)]
pub(crate) struct ForkJob {
    /// The task attempt.
    pub(crate) attempt: TaskAttemptId,
    /// The message.
    pub(crate) packet: Vec<u8>,
    /// Descriptors that the message carries.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Receives the pid. A dropped receiver gives up the request.
    pub(crate) answer: oneshot::Sender<Result<i32, ForkServerFailure>>,
}

/// The reason that a request has no process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct ForkServerFailure {
    /// The reason, for users.
    pub(crate) what: String,
    /// Exit code of a fork server that ended by itself before it was ready, or 126 or 127 if its
    /// program cannot be executed. The cause is then its command, not the node.
    pub(crate) exit_code: Option<i32>,
    /// Whether another try may succeed.
    pub(crate) retry: RetryUse,
}

/// Whether another try may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryUse {
    /// It may.
    Possible,
    /// It fails in the same way.
    Useless,
}

impl ForkServerFailure {
    /// A failure after which another try may succeed.
    pub(crate) fn transient(what: String) -> ForkServerFailure {
        ForkServerFailure {
            what,
            exit_code: None,
            retry: RetryUse::Possible,
        }
    }
}

/// A failed step, and its consequence for the process.
enum ForkStepFailure {
    /// The process continues to run.
    Refused(String),
    /// The process does not answer any more, or has ended. `before_ready` is true during its start.
    Broken { why: String, before_ready: bool },
    /// The process was not started.
    Unstarted(SpawnError),
    /// Its files or descriptors cannot be created.
    Unprepared(io::Error),
}

/// The process of a fork server. The drop kills it.
#[derive(Debug)]
struct ForkServerProcess {
    child: AsyncFd<ChildProcess>,
    channel: AsyncFd<OwnedFd>,
    received: Vec<u8>,
    _registered: RegisteredChild,
}

impl Drop for ForkServerProcess {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.child.get_ref().signal(SIGKILL);
    }
}

/// One fork server and its process.
#[derive(Debug)]
pub(crate) struct ForkServer {
    spec: ForkServerSpec,
    children: ExecutorChildren,
    process: Option<ForkServerProcess>,
    /// Failures since the last process that was forked.
    failures: u32,
    /// Time of the next start.
    not_before: Instant,
}

impl ForkServer {
    /// A fork server whose process does not run yet.
    pub(crate) fn new(spec: ForkServerSpec, children: ExecutorChildren) -> ForkServer {
        ForkServer {
            spec,
            children,
            process: None,
            failures: 0,
            not_before: Instant::now(),
        }
    }

    /// Handles requests until all senders are dropped.
    pub(crate) async fn serve(mut self, mut jobs: mpsc::Receiver<ForkJob>) {
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.handle(job, &mut jobs).await,
                    None => return,
                },
                () = ended(self.process.as_ref()) => {
                    let why = "it ended while it was idle".to_owned();
                    let failure = self.on_broken(&why, false).await;
                    tracing::warn!(error = %failure, "a fork server has ended; the next attempt starts it again");
                }
            }
        }
    }

    async fn handle(&mut self, job: ForkJob, jobs: &mut mpsc::Receiver<ForkJob>) {
        if job.answer.is_closed() {
            return;
        }
        let step = match self.start().await {
            Ok(()) => self.request(&job).await,
            Err(failure) => Err(failure),
        };
        let (result, broken) = match step {
            Ok(pid) => {
                self.failures = 0;
                (Ok(pid), false)
            }
            Err(ForkStepFailure::Refused(why)) => {
                let name = self.name();
                let what = format!("the fork server {name} cannot fork: {why}");
                (Err(ForkServerFailure::transient(what)), false)
            }
            Err(ForkStepFailure::Broken { why, before_ready }) => {
                (Err(self.on_broken(&why, before_ready).await), true)
            }
            Err(ForkStepFailure::Unstarted(error)) => (Err(self.on_unstarted(&error)), true),
            Err(ForkStepFailure::Unprepared(error)) => {
                let what = format!("the fork server {} cannot be started: {error}", self.name());
                self.count_failure();
                (Err(ForkServerFailure::transient(what)), true)
            }
        };
        if let (Err(failure), true) = (&result, broken) {
            tracing::warn!(attempt = %job.attempt, error = %failure, "a fork server has failed");
            // Requests that wait behind this one fail in the same way, without another start each.
            while let Ok(waiting) = jobs.try_recv() {
                let _ = waiting.answer.send(Err(failure.clone()));
            }
        }
        let _ = job.answer.send(result); // the attempt may have been stopped meanwhile
    }

    /// Starts the process if it does not run, and waits until it is ready.
    async fn start(&mut self) -> Result<(), ForkStepFailure> {
        if self.process.is_some() {
            return Ok(());
        }
        deadline::reached(self.not_before).await;
        let began = Instant::now();
        let mut process = self.spawn_process()?;
        let ready = timeout(START_TIMEOUT, process.ready()).await;
        let pid = process.child.get_ref().pid;
        self.process = Some(process);
        let before_ready = true;
        match ready {
            Ok(Ok(warnings)) => {
                for warning in warnings {
                    tracing::warn!(fork_server = self.name(), "{warning}");
                }
                self.report_memory(pid, began.elapsed());
                Ok(())
            }
            Ok(Err(why)) => Err(ForkStepFailure::Broken { why, before_ready }),
            Err(_) => {
                let why = format!("it was not ready within {} s", START_TIMEOUT.as_secs());
                Err(ForkStepFailure::Broken { why, before_ready })
            }
        }
    }

    fn spawn_process(&self) -> Result<ForkServerProcess, ForkStepFailure> {
        let unprepared = ForkStepFailure::Unprepared;
        let log = File::create(&self.spec.log).map_err(unprepared)?;
        let (channel, inherited) = fd_passing::pair().map_err(unprepared)?;
        let mut env = self.spec.env.clone();
        let number = inherited.as_raw_fd().to_string();
        env.push((CHANNEL_VARIABLE.into(), number.into()));
        let arguments =
            ExecArguments::new(&self.spec.command, &env).map_err(ForkStepFailure::Unstarted)?;
        let command = SpawnCommand {
            stdout: Some(&log),
            stderr: Some(&log),
            inherited: &[inherited.as_fd()],
            namespaces: self.spec.namespaces,
            new_session: true,
            oom_score_adj: Some(self.spec.oom_score_adj),
            // The executor has one thread for its loop, on which this code runs.
            parent_death: Some(SIGKILL),
            ..SpawnCommand::new(&arguments, &self.spec.work_dir)
        };
        let start = self.children.open_start();
        let child = spawn(&command).map_err(ForkStepFailure::Unstarted)?;
        let registered = start.register(&child);
        let process = ForkServerProcess {
            child: watched(child, Interest::READABLE).map_err(unprepared)?,
            channel: watched(channel, Interest::READABLE | Interest::WRITABLE)
                .map_err(unprepared)?,
            received: vec![0; MAX_MESSAGE_BYTES],
            _registered: registered,
        };
        Ok(process)
    }

    /// Sends a request and waits for the pid.
    async fn request(&mut self, job: &ForkJob) -> Result<i32, ForkStepFailure> {
        let before_ready = false;
        let broken = |why| ForkStepFailure::Broken { why, before_ready };
        let Some(process) = &mut self.process else {
            return Err(broken("it does not run".to_owned()));
        };
        match timeout(ANSWER_TIMEOUT, process.request(job)).await {
            Ok(Ok(ForkAnswer::Forked(pid))) => Ok(pid),
            Ok(Ok(ForkAnswer::Failed(why))) => Err(ForkStepFailure::Refused(why)),
            Ok(Err(why)) => Err(broken(why)),
            Err(_) => Err(broken(format!(
                "it did not answer within {} s",
                ANSWER_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Ends a broken process and describes its end.
    async fn on_broken(&mut self, why: &str, before_ready: bool) -> ForkServerFailure {
        self.count_failure();
        let end = match self.process.take() {
            Some(process) => process.end().await,
            None => None,
        };
        let (description, code) = match end {
            Some(ProcessEnd::Code(code)) => (format!("exit code {code}"), Some(code)),
            Some(ProcessEnd::Signal(signal)) => (format!("signal {signal}"), None),
            None => ("its end is unknown".to_owned(), None),
        };
        let log = tail(&self.spec.log, LOG_TAIL).unwrap_or_default();
        let name = self.name();
        ForkServerFailure {
            what: format!(
                "the fork server {name} failed: {why} ({description}); the end of its log: {}",
                if log.trim().is_empty() {
                    "empty"
                } else {
                    log.trim()
                }
            ),
            exit_code: code.filter(|code| before_ready && *code != 0),
            retry: RetryUse::Possible,
        }
    }

    fn on_unstarted(&mut self, error: &SpawnError) -> ForkServerFailure {
        self.count_failure();
        let exit_code = exec_failure_code(error);
        ForkServerFailure {
            what: format!(
                "the fork server {} cannot be started: {error}: {}",
                self.name(),
                error.source
            ),
            exit_code,
            retry: match exit_code {
                Some(_) => RetryUse::Useless,
                None => RetryUse::Possible,
            },
        }
    }

    fn count_failure(&mut self) {
        self.not_before = Instant::now() + backoff(self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    /// Logs the memory of a process that has just become ready, and compares it with the memory
    /// that no slot uses.
    fn report_memory(&self, pid: i32, took: Duration) {
        let Some(memory) = private_memory(pid) else {
            return;
        };
        tracing::info!(
            fork_server = self.name(),
            pid,
            bytes = memory.get(),
            ms = took.as_millis(),
            "a fork server is ready"
        );
        if let Some(reserve) = self.spec.reserve.filter(|reserve| memory > *reserve) {
            tracing::warn!(
                fork_server = self.name(),
                "the fork server uses {memory}, but the container has only {reserve} beside its slots; \
                 raise `reserve` of the executors to at least {memory}"
            );
        }
    }

    fn name(&self) -> String {
        server_name(&self.spec.command)
    }
}

/// The command of a fork server as its name in messages, shortened.
pub(crate) fn server_name(command: &[String]) -> String {
    let mut name = command.join(" ").replace(char::is_control, " ");
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME));
        name.push('…');
    }
    format!("`{name}`")
}

/// The answer of a fork server to a request.
enum ForkAnswer {
    /// The pid.
    Forked(i32),
    /// The error.
    Failed(String),
}

impl ForkServerProcess {
    /// Waits until it is ready. Returns its warnings.
    async fn ready(&mut self) -> Result<Vec<String>, String> {
        match self.receive().await? {
            ForkServerMessage::Ready { version, warnings } if version == VERSION => Ok(warnings),
            ForkServerMessage::Ready { version, .. } => Err(format!(
                "it supports version {version} of the protocol, the executor version {VERSION}"
            )),
            message @ (ForkServerMessage::Forked { .. } | ForkServerMessage::Failed { .. }) => {
                Err(format!("its first message is not `ready`: {message:?}"))
            }
        }
    }

    async fn request(&mut self, job: &ForkJob) -> Result<ForkAnswer, String> {
        let files: Vec<_> = job.descriptors.iter().map(OwnedFd::as_fd).collect();
        let send = |channel: &OwnedFd| fd_passing::send(channel, &job.packet, &files);
        self.channel
            .async_io(Interest::WRITABLE, send)
            .await
            .map_err(|e| format!("the request cannot be sent: {e}"))?;
        loop {
            match self.receive().await? {
                ForkServerMessage::Forked { attempt, pid } if attempt == job.attempt => {
                    return Ok(ForkAnswer::Forked(pid));
                }
                ForkServerMessage::Failed { attempt, error } if attempt == job.attempt => {
                    return Ok(ForkAnswer::Failed(error));
                }
                message @ (ForkServerMessage::Ready { .. }
                | ForkServerMessage::Forked { .. }
                | ForkServerMessage::Failed { .. }) => {
                    tracing::debug!(?message, "an unexpected message of a fork server, ignoring");
                }
            }
        }
    }

    /// The next message, or the reason that there is none.
    async fn receive(&mut self) -> Result<ForkServerMessage, String> {
        let room = &mut self.received;
        let packet = self.channel.async_io(Interest::READABLE, |channel| {
            fd_passing::receive(channel, room).map(|(length, _)| length)
        });
        let length = tokio::select! {
            biased;
            length = packet => length.map_err(|e| format!("its socket failed: {e}"))?,
            // A forked process may keep the socket open.
            _ = self.child.readable() => return Err("it ended".to_owned()),
        };
        if length == 0 {
            return Err("it ended or closed its socket".to_owned());
        }
        let packet = self.received.get(..length).unwrap_or_default();
        serde_json::from_slice(packet).map_err(|e| format!("its message is invalid: {e}"))
    }

    /// Ends the process and reaps it. `None` if it does not end in time.
    async fn end(self) -> Option<ProcessEnd> {
        // A process that has just closed its socket may still be exiting with a code of its own.
        if timeout(END_TIMEOUT / 4, self.child.readable())
            .await
            .is_err()
        {
            let _ = self.child.get_ref().signal(SIGKILL); // an error means that it has ended
            let _ = timeout(END_TIMEOUT, self.child.readable()).await;
        }
        self.child.get_ref().try_wait().ok().flatten()
    }
}

/// Waits for the end of a process; pending forever without one.
async fn ended(process: Option<&ForkServerProcess>) {
    match process {
        Some(process) => {
            let _ = process.child.readable().await; // an error counts as the end
        }
        None => std::future::pending().await,
    }
}

/// The wait after a failure that follows `failures` others.
fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF
        .saturating_mul(1 << failures.min(16))
        .min(MAX_BACKOFF)
}

/// Memory of a process that no file backs. Bytes.
fn private_memory(pid: i32) -> Option<Bytes> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let kib = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let status = status.ok()?;
    let anonymous = kib(&status, "RssAnon:")?;
    let shared = kib(&status, "RssShmem:").unwrap_or(0);
    Some(Bytes::new(anonymous.saturating_add(shared) << 10))
}

/// Wraps a descriptor for the event loop.
#[expect(
    deprecated,
    reason = "the replacement is an unsafe fn; the owner of the descriptor never closes or replaces it, as required"
)]
pub(crate) fn watched<T: std::os::fd::AsRawFd>(
    descriptor: T,
    interest: Interest,
) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, interest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_maximum() {
        let waits: Vec<u64> = (0..8)
            .map(|failures| u64::try_from(backoff(failures).as_millis()).expect("small"))
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff(u32::MAX), MAX_BACKOFF);
    }

    #[test]
    fn this_process_has_private_memory() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert!(private_memory(own).is_some_and(|memory| memory > Bytes::ZERO));
        assert_eq!(private_memory(i32::MAX), None);
    }
}
