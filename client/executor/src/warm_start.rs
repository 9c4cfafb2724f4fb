//! Start of an attempt by a fork server: its files and its cgroup as for every attempt, then a
//! process that the fork server creates and the executor adopts.
//!
//! The process joins its cgroup and waits at its *gate*, a socket of its own, until the executor
//! watches it. A process whose gate closes exits without running its code, so an attempt that is
//! given up has not run.
//!
//! An attempt needs no new process if one of its stage waits for it, see `kept_process`.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use headroom_node_exec::ChildProcess;
use headroom_node_process::fd_passing;
use headroom_types::{Bytes, StopCause, millis};
use headroom_wire::v1::task::TaskStart;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::children::RegisteredChild;
use crate::fork_protocol::{
    DescriptorRole, ForkRequest, ForkRequestError, GATE_FAILED, GATE_READY, GATE_RUN,
    unicode_variables,
};
use crate::fork_server::{ForkJob, ForkServerFailure, ForkServerSpec, RetryUse, watched};
use crate::kept_process::KeptProcess;
use crate::launch::{LaunchContext, LaunchedTask, PreparedTask, TaskSurroundings};
use crate::session::{GRACE_TIMEOUT, TaskControl};

/// Maximum number of tries to start an attempt.
const MAX_TRIES: u32 = 3;
/// Wait before another try with a fork server that runs and could not fork.
const RETRY_WAIT: Duration = Duration::from_millis(100);
/// Maximum time from the creation of a process until it waits at its gate.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time from the close of a gate to the end of its process.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a message of a process at its gate. Bytes.
const MAX_GATE_MESSAGE: usize = 4096 + 16;
/// Prefix of variables that describe one attempt, and that a fork server does not inherit.
const ATTEMPT_PREFIX: &str = "HEADROOM_";

const SIGKILL: i32 = 9;

/// The outcome of a start.
#[derive(Debug)]
pub(crate) enum WarmStart {
    /// The process runs its code. Orders that arrived meanwhile follow.
    Launched(Box<LaunchedTask>, Vec<TaskControl>),
    /// The attempt was stopped before it ran.
    Stopped(StopCause),
}

/// Starts an attempt by its fork server.
pub(crate) async fn start_by_fork_server(
    site: &Arc<LaunchContext>,
    start: &Arc<TaskStart>,
    orders: &mut mpsc::Receiver<TaskControl>,
) -> anyhow::Result<WarmStart> {
    site.children
        .adopt_descendants()
        .context("the executor cannot adopt the processes of a fork server")?;
    let (at_site, to_start) = (site.clone(), start.clone());
    let prepared = match spawn_blocking(move || begin(&at_site, &to_start)).await?? {
        BegunStart::Launched(launched) => return Ok(WarmStart::Launched(launched, Vec::new())),
        BegunStart::Prepared(prepared) => prepared,
    };
    let mut early = Vec::new();
    let outcome = tokio::select! {
        process = fork_attempt(site, start, &prepared) => process.map(Ok),
        cause = stop_order(orders, &mut early) => Ok(Err(cause)),
    };
    let failed = match outcome {
        Ok(Ok((child, registered, gate))) => {
            let launched = Box::new(prepared.launched(child, registered, Some(gate)));
            return Ok(WarmStart::Launched(launched, early));
        }
        Ok(Err(cause)) => Ok(WarmStart::Stopped(cause)),
        Err(error) => Err(error),
    };
    let (at_site, to_start) = (site.clone(), start.clone());
    spawn_blocking(move || prepared.discard(&at_site, &to_start)).await?;
    failed
}

/// A start whose files exist.
enum BegunStart {
    /// A kept process runs it.
    Launched(Box<LaunchedTask>),
    /// It needs a process.
    Prepared(Box<PreparedTask>),
}

/// Creates the files of the attempt, and gives it to a kept process or creates its cgroup. Blocking.
fn begin(site: &LaunchContext, start: &TaskStart) -> anyhow::Result<BegunStart> {
    let surroundings = TaskSurroundings::create(site, start)?;
    let (process, unfit) = site.kept.take(start);
    end_all(site, unfit);
    if let Some(process) = process {
        let roles = vec![DescriptorRole::Stdout, DescriptorRole::Stderr];
        let served = packet(site, start, &surroundings, roles)
            .map_err(io::Error::other)
            .and_then(|packet| process.serve(&site.container, &packet, &surroundings.files));
        match served {
            Ok(()) => {
                let launched = surroundings.launched_again(process);
                return Ok(BegunStart::Launched(Box::new(launched)));
            }
            Err(error) => {
                tracing::debug!(attempt = %start.attempt, %error, "a kept process cannot run the attempt; another one is forked");
                process.end(&site.container);
            }
        }
    }
    let prepared = surroundings.with_group(site, start)?;
    Ok(BegunStart::Prepared(Box::new(prepared)))
}

/// Ends kept processes. Blocking.
pub(crate) fn end_all(site: &LaunchContext, processes: Vec<KeptProcess>) {
    for process in processes {
        process.end(&site.container);
    }
}

/// The request for an attempt.
fn packet(
    site: &LaunchContext,
    start: &TaskStart,
    surroundings: &TaskSurroundings,
    descriptors: Vec<DescriptorRole>,
) -> Result<Vec<u8>, ForkRequestError> {
    ForkRequest {
        attempt: &start.attempt,
        command: &start.command,
        env: unicode_variables(&surroundings.env),
        cwd: &surroundings.cwd,
        oom_score_adj: site.oom_score_adj,
        grace_ms: millis(GRACE_TIMEOUT),
        descriptors,
    }
    .to_packet()
}

/// Waits for a stop. Other orders are kept in `early`.
async fn stop_order(
    orders: &mut mpsc::Receiver<TaskControl>,
    early: &mut Vec<TaskControl>,
) -> StopCause {
    while let Some(order) = orders.recv().await {
        match order {
            TaskControl::Stop { cause, .. } => return cause,
            TaskControl::Limit(_) | TaskControl::Unfreeze => early.push(order),
        }
    }
    std::future::pending().await
}

/// A forked process, its registration, and the executor's end of its gate.
type ForkedProcess = (ChildProcess, RegisteredChild, OwnedFd);

/// Tries to create the process, each time with a gate of its own: a process of an earlier try that
/// still exists finds its gate closed.
async fn fork_attempt(
    site: &LaunchContext,
    start: &TaskStart,
    prepared: &PreparedTask,
) -> anyhow::Result<ForkedProcess> {
    let mut tries = 1;
    loop {
        let failure = match fork_once(site, start, prepared).await? {
            Ok(process) => return Ok(process),
            Err(failure) => failure,
        };
        if tries >= MAX_TRIES || failure.retry == RetryUse::Useless {
            return Err(anyhow::Error::new(failure).context(format!("after {tries} tries")));
        }
        tries += 1;
        sleep(RETRY_WAIT).await;
    }
}

/// One try. The outer error is final.
async fn fork_once(
    site: &LaunchContext,
    start: &TaskStart,
    prepared: &PreparedTask,
) -> anyhow::Result<Result<ForkedProcess, ForkServerFailure>> {
    let (gate, far_end) = fd_passing::pair().context("a socket cannot be created")?;
    let gate = watched(gate, Interest::READABLE).context("a socket cannot be watched")?;
    let (descriptors, roles) = descriptors(prepared, far_end)?;
    let packet = packet(site, start, &prepared.surroundings, roles)?;
    let opened = site.children.open_start();
    let forked = site.fork_servers.fork(
        &start.fork_server,
        |number| spec(site, start, number),
        &site.children,
        |answer| ForkJob {
            attempt: start.attempt.clone(),
            packet,
            descriptors,
            answer,
        },
    );
    let pid = match forked.await {
        Ok(pid) => pid,
        Err(failure) => return Ok(Err(failure)),
    };
    let (child, registered) = match opened.adopt(pid) {
        Ok(adopted) => adopted,
        Err(error) => {
            let what = format!("the process {pid} of the fork server cannot be adopted: {error}");
            return Ok(Err(ForkServerFailure::transient(what)));
        }
    };
    match timeout(PREPARE_TIMEOUT, open_gate(&gate, &child)).await {
        Ok(Ok(())) => {}
        failed @ (Ok(Err(_)) | Err(_)) => {
            let _ = child.signal(SIGKILL); // an error means that it has ended
            failed.context("the forked process was not ready in time")??;
        }
    }
    Ok(Ok((child, registered, gate.into_inner())))
}

/// The descriptors of a request, with their purposes.
fn descriptors(
    prepared: &PreparedTask,
    gate: OwnedFd,
) -> anyhow::Result<(Vec<OwnedFd>, Vec<DescriptorRole>)> {
    let copied = "the descriptor of a log cannot be copied";
    let files = &prepared.surroundings.files;
    let mut descriptors = vec![
        files.out.try_clone().context(copied)?.into(),
        files.err.try_clone().context(copied)?.into(),
        gate,
    ];
    let mut roles = vec![
        DescriptorRole::Stdout,
        DescriptorRole::Stderr,
        DescriptorRole::Gate,
    ];
    for path in prepared.group.group().procs_files() {
        let file = OpenOptions::new()
            .write(true)
            .open(&path)
            .with_context(|| format!("{} cannot be opened", path.display()))?;
        descriptors.push(file.into());
        roles.push(DescriptorRole::Cgroup);
    }
    Ok((descriptors, roles))
}

/// Waits until the process is prepared, then lets it run its code. A process that ends before that
/// counts as started: the counters of its cgroup show the cause.
async fn open_gate(gate: &AsyncFd<OwnedFd>, child: &ChildProcess) -> anyhow::Result<()> {
    let mut room = [0; MAX_GATE_MESSAGE];
    let received = gate.async_io(Interest::READABLE, |gate| {
        fd_passing::receive(gate, &mut room).map(|(length, _)| length)
    });
    let length = received
        .await
        .context("the gate of the forked process failed")?;
    let message = room.get(..length).unwrap_or_default();
    if message.is_empty() {
        let deadline = Instant::now() + END_TIMEOUT;
        while child.peek()?.is_none() {
            anyhow::ensure!(
                Instant::now() < deadline,
                "the forked process closed its gate and did not end"
            );
            sleep(Duration::from_millis(1)).await;
        }
        return Ok(());
    }
    if let Some(why) = message.strip_prefix(GATE_FAILED) {
        anyhow::bail!(
            "the forked process could not be prepared: {}",
            String::from_utf8_lossy(why)
        );
    }
    anyhow::ensure!(
        message == GATE_READY,
        "the forked process sent an unknown message: {:?}",
        String::from_utf8_lossy(message)
    );
    // If this fails, the process has ended meanwhile, for example because of a kill.
    let _ = fd_passing::send(gate, GATE_RUN, &[]);
    Ok(())
}

/// The fork server that the first attempt with its command describes.
fn spec(site: &LaunchContext, start: &TaskStart, number: u32) -> ForkServerSpec {
    let own = start
        .env
        .iter()
        .filter(|(name, _)| !name.starts_with(ATTEMPT_PREFIX))
        .map(|(name, value)| (name.into(), value.into()));
    let mut env = site.environment.for_tasks.clone();
    for (name, value) in own {
        env.retain(|(known, _)| *known != name);
        env.push((name, value));
    }
    ForkServerSpec {
        command: start.fork_server.clone(),
        env,
        work_dir: site.work_dir.clone(),
        log: site
            .environment
            .dir
            .join("tasks")
            .join(format!("fork-server-{number}.log")),
        namespaces: site.namespaces.checked(),
        oom_score_adj: site.fork_server_oom_score_adj,
        reserve: reserve(site, start),
    }
}

/// Memory of the container that no slot uses, if all slots run tasks as large as this one.
fn reserve(site: &LaunchContext, start: &TaskStart) -> Option<Bytes> {
    let slot = start.limit?.get() / u64::from(start.slots.max(1));
    let slots = slot.saturating_mul(u64::from(site.environment.slots));
    let container = site.environment.memory?;
    Some(container.saturating_sub(Bytes::new(slots)))
}
