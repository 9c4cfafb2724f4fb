//! Programs that a user runs in a container, in addition to the container's own.
//!
//! A shim starts such a program from a specification like that of the container's program: same
//! user, rights, directories and environment. The program has its own directory and cgroup below
//! those of the container. Its memory counts in the container, and its end does not affect the
//! container's verdict.
//!
//! Its output passes through two pipes and is forwarded at once. Its cgroup is killed when the
//! reader disconnects, the time limit ends, or the output limit is exceeded. An agent also ends the
//! programs that an earlier agent left.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use headroom_container_shim::record::{self, ExitRecord, ProcessIdentity, ProgramEnd, StartResult};
use headroom_node_cgroup::{EnforcedGroup, GroupLimits, OomGroup};
use headroom_node_core::{LaunchFailure, LaunchFailureKind};
use headroom_node_exec::{ChildProcess, WatchedProcess};
use headroom_types::exit::MemoryEvents;
use headroom_types::{ContainerId, EnforcerKind};
use headroom_wire::v1::container_access::{ExecExitStatus, MAX_EXEC_OUTPUT_BYTES};
use headroom_wire::v1::nodes::RunOrder;
use std::io::Write as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::disk;
use crate::launch;
use crate::launch_failure;
use crate::node_context::NodeContext;
use crate::process_wait;
use crate::shim_process::{self, ShimLineResult};

/// Maximum number of such programs at once on one node.
pub(crate) const AT_ONCE: usize = 16;
/// Name of their common directory, below that of the container.
const FOLDER: &str = "exec";
/// File of their out-of-memory kills, one line each, below the directory of the container.
const KILLS: &str = "exec.kills";
/// Prefix of their group names. No task name starts with it.
const PREFIX: &str = "reach.";
/// Size of one read. Bytes.
const PIECE: usize = 64 << 10;
/// Maximum number of pieces that wait for a reader.
const WAITING: usize = 4;
/// Maximum time between the end of the program and the exit record of its shim.
const EXIT_RECORD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time until a group is empty and removed.
const REMOVAL: Duration = Duration::from_secs(5);

/// A request to run a program in a container.
#[derive(Debug)]
pub(crate) struct ExecRequest {
    pub(crate) id: ContainerId,
    pub(crate) order: RunOrder,
    /// The group of the container.
    pub(crate) group: Arc<EnforcedGroup>,
    pub(crate) command: Vec<String>,
    /// Standard input; empty if `None`.
    pub(crate) input: Option<Vec<u8>>,
    /// Time limit of the run.
    pub(crate) time: Duration,
}

/// An output piece or the end of the program. The end comes last.
#[derive(Debug)]
pub(crate) enum ExecOutput {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(ExecExitStatus),
}

/// Whether a group below a container's group belongs to such a program.
pub(crate) fn is_ours(group: &str) -> bool {
    group.starts_with(PREFIX)
}

/// One program after the start of its shim.
#[derive(Debug)]
struct RunningExec {
    site: Arc<NodeContext>,
    id: ContainerId,
    dir: PathBuf,
    group: EnforcedGroup,
    /// The group of the container, shared with the loop.
    around: Arc<EnforcedGroup>,
    shim: Arc<ChildProcess>,
}

/// The pipes of both outputs.
#[derive(Debug)]
struct OutputPipes {
    out: pipe::Receiver,
    err: pipe::Receiver,
}

/// Starts a program. Output and end arrive on the channel. Dropping the receiver, or the future
/// during the start, ends the program.
pub(crate) async fn run(
    site: Arc<NodeContext>,
    request: ExecRequest,
    seat: OwnedSemaphorePermit,
) -> anyhow::Result<mpsc::Receiver<ExecOutput>> {
    let (sender, words) = mpsc::channel(WAITING);
    let (reply, started) = oneshot::channel();
    let deadline = Instant::now() + request.time;
    // The future is dropped when the caller disconnects. This task ends the program all the same.
    tokio::spawn(async move {
        match start(site, request).await {
            Ok(StartedExec {
                running,
                pipes,
                line,
            }) => {
                reply.send(Ok(())).ok();
                running.live(pipes, line, deadline, &sender).await;
            }
            Err(error) => drop(reply.send(Err(error))),
        }
        drop(seat);
    });
    started.await.context("starting the program")??;
    Ok(words)
}

/// A started program with its outputs, and the line of its shim.
struct StartedExec {
    running: RunningExec,
    pipes: OutputPipes,
    line: OwnedFd,
}

async fn start(site: Arc<NodeContext>, request: ExecRequest) -> anyhow::Result<StartedExec> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "{PREFIX}{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let dir = site.layout.container(&request.id).join(FOLDER).join(&name);
    let made = dir.clone();
    let folder = move || folder(&made);
    spawn_blocking(folder)
        .await
        .context("creating the directory of the program")??;
    // Opened for reading and writing, so that the pipes do not reach end of file before the program
    // has opened them.
    let open = |name| {
        pipe::OpenOptions::new()
            .read_write(true)
            .open_receiver(dir.join(name))
    };
    let pipes = open("out")
        .and_then(|out| {
            Ok(OutputPipes {
                out,
                err: open("err")?,
            })
        })
        .context("cannot open the output pipes");
    let pipes = match pipes {
        Ok(pipes) => pipes,
        Err(error) => {
            forget(&dir);
            return Err(error);
        }
    };
    let started = spawn_blocking(move || begin(site, request, dir, &name))
        .await
        .context("starting the shim of the program")?;
    let (running, line) = started?;
    Ok(StartedExec {
        running,
        pipes,
        line,
    })
}

/// Creates the program's directory, with a pipe for each output.
fn folder(dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for name in ["out", "err"] {
        let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        nix::unistd::mkfifo(&dir.join(name), mode).context("cannot create a pipe")?;
    }
    Ok(())
}

/// Creates the group and the specification, and starts the shim. On error, removes the parts
/// created so far.
fn begin(
    site: Arc<NodeContext>,
    request: ExecRequest,
    dir: PathBuf,
    name: &str,
) -> anyhow::Result<(RunningExec, OwnedFd)> {
    // A separate handle: kills that the kernel counts in this group must not enter the container's
    // verdict.
    let opened = site
        .enforcer
        .open(&request.id.to_string())
        .ok()
        .flatten()
        .map(Arc::new);
    let limits = GroupLimits {
        memory: None,
        processes: Some(launch::processes(&request.order)),
        cpu_weight: None,
        oom_group: OomGroup::Yes,
        low: None,
    };
    let group = opened
        .as_ref()
        .unwrap_or(&request.group)
        .create_task(name, &limits)
        .context("cannot create its cgroup");
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            forget(&dir);
            return Err(error);
        }
    };
    match shim(&site, &request, &dir, &group) {
        Ok((shim, line)) => {
            let running = RunningExec {
                site,
                id: request.id,
                dir,
                group,
                around: request.group,
                shim: Arc::new(shim),
            };
            Ok((running, line))
        }
        Err(error) => {
            take_away(&request.id, &group, &dir);
            Err(error)
        }
    }
}

fn shim(
    site: &NodeContext,
    request: &ExecRequest,
    dir: &Path,
    group: &EnforcedGroup,
) -> anyhow::Result<(ChildProcess, OwnedFd)> {
    let mut spec = launch::second_program_spec(
        site,
        &request.id,
        &request.order,
        &request.group,
        &request.command,
    )?;
    (spec.procs_files, spec.counters) = (group.procs_files(), Vec::new());
    (spec.stdout, spec.stderr) = (dir.join("out"), dir.join("err"));
    if let Some(input) = &request.input {
        spec.stdin = dir.join("in");
        disk::private(&spec.stdin)
            .and_then(|mut file| file.write_all(input))
            .context("cannot write the input of the program")?;
    }
    let mut file = disk::private(&dir.join(record::file::SPEC))
        .context("cannot create the launch specification")?;
    file.write_all(&spec.encode())
        .context("cannot write the launch specification")?;
    let words = fs::File::create(dir.join("shim.err")).context("cannot create shim.err")?;
    launch::as_program(site, dir, &words)
}

/// The reason to end a program early.
enum ExecAbortCause {
    /// The reader disconnected.
    Alone,
    With(ExecExitStatus),
}

impl RunningExec {
    async fn live(
        self,
        mut pipes: OutputPipes,
        line: OwnedFd,
        deadline: Instant,
        sender: &mpsc::Sender<ExecOutput>,
    ) {
        if let ShimLineResult::Line(StartResult::Started { pid }) = shim_process::listen(line).await
        {
            // If groups are process trees, this separate tree counts in the container's.
            self.group.set_root_pid(pid);
            self.around.add_process(pid);
        }
        let shim = Arc::clone(&self.shim);
        let mut ended = tokio::spawn(process_wait::ended(shim, |shim: &Arc<ChildProcess>| {
            shim.wait().map(drop)
        }));
        let mut printed = 0;
        let cut = tokio::select! {
            cut = pass_on(&mut pipes, sender, &mut printed) => Some(cut),
            () = tokio::time::sleep_until(deadline) => Some(ExecAbortCause::With(ExecExitStatus::Timeout)),
            () = sender.closed() => Some(ExecAbortCause::Alone),
            _ = &mut ended => None,
        };
        // Also ends processes that the program left behind.
        let running = Arc::new(self);
        let job = Arc::clone(&running);
        spawn_blocking(move || job.kill()).await.ok();
        if cut.is_some()
            && tokio::time::timeout(EXIT_RECORD_TIMEOUT, &mut ended)
                .await
                .is_err()
        {
            running.shim.signal(9).ok();
            ended.await.ok();
        }
        let end = match cut {
            None => {
                drain(&mut pipes, sender, deadline).await;
                let job = Arc::clone(&running);
                spawn_blocking(move || how(&job.dir)).await.ok()
            }
            Some(ExecAbortCause::With(end)) => Some(end),
            Some(ExecAbortCause::Alone) => None,
        };
        spawn_blocking(move || {
            note_kills(&running.site, &running.id, &running.group);
            take_away(&running.id, &running.group, &running.dir);
        })
        .await
        .ok();
        if let Some(end) = end {
            sender.send(ExecOutput::Ended(end)).await.ok();
        }
    }

    fn kill(&self) {
        if let Err(error) = self.group.kill() {
            tracing::warn!(container_id = %self.id, %error, "some processes of an exec program may still run");
        }
        tracing::debug!(container_id = %self.id, enforcer = %self.site.kind(), "an exec program has ended");
    }
}

/// Forwards output until the program must be ended.
async fn pass_on(
    pipes: &mut OutputPipes,
    sender: &mpsc::Sender<ExecOutput>,
    printed: &mut u64,
) -> ExecAbortCause {
    let (mut out, mut err) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        // Reserve first: if this future is dropped, no bytes may have been read and then lost.
        let Ok(room) = sender.reserve().await else {
            return ExecAbortCause::Alone;
        };
        let word = tokio::select! {
            read = pipes.out.read(&mut out) => read.map(|n| ExecOutput::Stdout(out.get(..n).unwrap_or_default().to_vec())),
            read = pipes.err.read(&mut err) => read.map(|n| ExecOutput::Stderr(err.get(..n).unwrap_or_default().to_vec())),
        };
        // A pipe that cannot be read has no more output.
        let Ok(word) = word else {
            return ExecAbortCause::Alone;
        };
        if is_too_much(&word, printed) {
            return ExecAbortCause::With(ExecExitStatus::TooMuchOutput);
        }
        room.send(word);
    }
}

fn is_too_much(word: &ExecOutput, printed: &mut u64) -> bool {
    *printed += match word {
        ExecOutput::Stdout(bytes) | ExecOutput::Stderr(bytes) => bytes.len() as u64,
        ExecOutput::Ended(_) => 0,
    };
    *printed > MAX_EXEC_OUTPUT_BYTES
}

/// Forwards the rest in the pipes of an ended program.
async fn drain(pipes: &mut OutputPipes, sender: &mpsc::Sender<ExecOutput>, deadline: Instant) {
    let mut room = vec![0; PIECE];
    loop {
        let read =
            |pipe: &pipe::Receiver, room: &mut [u8]| pipe.try_read(room).ok().filter(|n| *n > 0);
        let word = match read(&pipes.out, &mut room) {
            Some(n) => ExecOutput::Stdout(room.get(..n).unwrap_or_default().to_vec()),
            None => match read(&pipes.err, &mut room) {
                Some(n) => ExecOutput::Stderr(room.get(..n).unwrap_or_default().to_vec()),
                None => return,
            },
        };
        // Two pipes hold little: their content is forwarded even beyond the output limit.
        let sent = tokio::time::timeout_at(
            deadline.max(Instant::now() + EXIT_RECORD_TIMEOUT),
            sender.send(word),
        )
        .await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// The end of the program, from its shim's record.
fn how(dir: &Path) -> ExecExitStatus {
    let record = fs::read(dir.join(record::file::EXIT))
        .ok()
        .and_then(|text| ExitRecord::decode(&text).ok());
    match record.map(|record| record.how) {
        Some(ProgramEnd::Code(code)) => ExecExitStatus::Exit { code },
        Some(ProgramEnd::Signal { signal, .. }) => ExecExitStatus::Signal { signal },
        Some(ProgramEnd::Failed { step, errno, what }) => {
            let LaunchFailure { kind, why } = launch_failure::from_step(step, errno, &what);
            if kind == LaunchFailureKind::ProgramNotFound {
                ExecExitStatus::NotFound { why }
            } else {
                ExecExitStatus::NotStarted { why }
            }
        }
        None => ExecExitStatus::NotStarted {
            why: "the shim was lost before it wrote the exit record".to_owned(),
        },
    }
}

/// Records the kills in the group of such a program. On cgroup v2 the container's counters include
/// them after the group is removed.
fn note_kills(site: &NodeContext, id: &ContainerId, group: &EnforcedGroup) {
    let Some(MemoryEvents {
        oom_kill,
        oom_group_kill,
        ..
    }) = group.facts().ok().map(|facts| facts.events)
    else {
        return;
    };
    if site.kind() != EnforcerKind::Cgroup2 || oom_kill + oom_group_kill == 0 {
        return;
    }
    let path = site.layout.container(id).join(KILLS);
    let written = fs::OpenOptions::new().append(true).create(true).open(path);
    if let Err(error) = written
        .and_then(|mut file| file.write_all(format!("{oom_kill} {oom_group_kill}\n").as_bytes()))
    {
        tracing::warn!(container_id = %id, %error, "a kill of an exec program is counted for its container");
    }
}

/// Subtracts the kills of such programs from the counters of their container.
pub(crate) fn leave_out_kills(dir: &Path, events: &mut MemoryEvents) {
    let text = fs::read_to_string(dir.join(KILLS)).unwrap_or_default();
    let numbers = text.lines().filter_map(|line| line.split_once(' '));
    for (kills, groups) in numbers.filter_map(|(kills, groups)| {
        Some((kills.parse::<u64>().ok()?, groups.parse::<u64>().ok()?))
    }) {
        events.oom_kill = events.oom_kill.saturating_sub(kills);
        events.oom_group_kill = events.oom_group_kill.saturating_sub(groups);
    }
}

fn take_away(id: &ContainerId, group: &EnforcedGroup, dir: &Path) {
    if let Err(error) = group.remove(REMOVAL) {
        tracing::warn!(container_id = %id, %error, "the cgroup of an exec program cannot be removed before the container ends");
    }
    forget(dir);
}

fn forget(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(dir = %dir.display(), %error, "the directory of an exec program cannot be removed, ignoring");
    }
}

/// Ends and removes the programs that an earlier agent left in a container, because their readers
/// are gone. Blocking.
pub(crate) fn clear(site: &NodeContext, id: &ContainerId, group: Option<&EnforcedGroup>) {
    let folder = site.layout.container(id).join(FOLDER);
    let Ok(entries) = fs::read_dir(&folder) else {
        return;
    };
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path().join(record::file::PID)).unwrap_or_default();
        let program = ProcessIdentity::decode(&text)
            .and_then(|p| WatchedProcess::open(p.pid, p.starttime).ok().flatten());
        if let Some(Err(error)) = program.map(|program| program.signal(9)) {
            tracing::warn!(container_id = %id, %error, "an exec program of an earlier agent cannot be killed");
        }
    }
    let left = group
        .and_then(|group| group.tasks().ok())
        .unwrap_or_default();
    for (name, group) in left.into_iter().filter(|(name, _)| is_ours(name)) {
        tracing::info!(container_id = %id, group = name, "an exec program of an earlier agent has no reader and is killed");
        note_kills(site, id, &group);
        if let Err(error) = group.kill().and_then(|()| group.remove(REMOVAL)) {
            tracing::warn!(container_id = %id, group = name, %error, "the cgroup of an exec program cannot be removed, ignoring");
        }
    }
    forget(&folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_of_exec_programs_are_not_counted_for_the_container() {
        let dir = tempfile::tempdir().expect("a directory");
        let counted = MemoryEvents {
            oom: 3,
            oom_kill: 5,
            oom_group_kill: 2,
            ..MemoryEvents::default()
        };
        let mut events = counted;
        leave_out_kills(dir.path(), &mut events);
        assert_eq!(events, counted, "no exec program ran in the container");
        fs::write(dir.path().join(KILLS), "2 1\n1 0\ntorn").expect("writes");
        leave_out_kills(dir.path(), &mut events);
        assert_eq!(
            (events.oom, events.oom_kill, events.oom_group_kill),
            (3, 2, 1)
        );
    }
}
