//! The agent's side of the launcher: the process that gives each container a shim.
//!
//! Owned by the node context. The launcher starts with the agent, and again after it is gone. If
//! `container-shim` is of a release without launcher, the agent starts each shim as a separate
//! program. The packets of a launch show how far it came (see
//! `container_shim::launcher_protocol`), so this module keeps no state about launches in progress.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use headroom_container_shim::launcher_protocol::{self, LauncherPacket};
use headroom_node_exec::{ChildProcess, ExecArguments, SpawnCommand, spawn};
use headroom_node_process::fd_passing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;
use tracing::{debug, info};

use crate::descriptors;
use crate::process_wait;

/// Maximum time until a launcher is ready.
const START: Duration = Duration::from_secs(20);
/// Maximum wait between two attempts to read or write the launcher's socket.
const LOOK: Duration = Duration::from_millis(100);
/// Number of attempts of a launch, each with another launcher.
const TRIES: u32 = 3;
/// Length of a placeholder argument. It reserves memory for a container's directory name, which
/// process lists then show.
const ROOM: usize = 160;

/// The program that becomes the launcher, and its surroundings.
#[derive(Debug)]
pub(crate) struct LauncherProgram {
    /// Path of `container-shim`.
    pub(crate) path: PathBuf,
    /// State directory of the agent.
    pub(crate) state: PathBuf,
    /// Files that place the launcher and its shims into their cgroups.
    pub(crate) procs_files: Vec<PathBuf>,
}

/// The launcher of one agent.
#[derive(Debug)]
pub(crate) struct ShimLauncher {
    program: LauncherProgram,
    state: Mutex<LauncherConnection>,
}

#[derive(Debug)]
struct LauncherConnection {
    /// The lock that the launcher must hold. `None` after the agent begins to end.
    lock: Option<File>,
    line: LauncherState,
}

#[derive(Clone, Debug)]
enum LauncherState {
    /// Not started, or gone.
    Down,
    /// Running, with its socket.
    Up(Arc<OwnedFd>),
    /// This `container-shim` has no launcher mode.
    Unknown,
}

impl ShimLauncher {
    /// A launcher that is not started, with the lock of the agent's state directory.
    pub(crate) fn new(program: LauncherProgram, lock: File) -> Self {
        ShimLauncher {
            program,
            state: Mutex::new(LauncherConnection {
                lock: Some(lock),
                line: LauncherState::Down,
            }),
        }
    }

    /// Starts the launcher, so that the first container need not wait. Blocking.
    pub(crate) fn start(&self) {
        if let Err(error) = self.line() {
            tracing::warn!(
                error = format!("{error:#}"),
                "the launcher cannot be started; the first container starts it again"
            );
        }
    }

    /// Ends the launcher when the agent ends, and releases the lock.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.lock = None;
        state.line = LauncherState::Down;
    }

    /// Requests a shim for the container in `dir`. Returns the socket for its packets, or `None` if
    /// the shim must be started as a program. Blocking.
    pub(crate) fn ask(&self, dir: &Path, words: &File) -> anyhow::Result<Option<OwnedFd>> {
        for _ in 0..TRIES {
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            let (ours, theirs) = fd_passing::pair().context("cannot create a socket")?;
            match patiently(&line, PollFlags::OUT, || {
                fd_passing::send(
                    &*line,
                    &launcher_protocol::encode_fork_request(dir),
                    &[theirs.as_fd(), words.as_fd()],
                )
            }) {
                Ok(()) => return Ok(Some(ours)),
                Err(error) => {
                    info!(%error, "the launcher has ended; the agent starts another one");
                    self.lost(&line);
                }
            }
        }
        bail!("three launchers ended before they received a request");
    }

    fn line(&self) -> anyhow::Result<Option<Arc<OwnedFd>>> {
        let mut state = self.state();
        if let LauncherState::Down = state.line {
            let Some(lock) = &state.lock else {
                bail!("the agent is shutting down")
            };
            state.line = start(&self.program, lock)?;
        }
        Ok(match &state.line {
            LauncherState::Up(line) => Some(Arc::clone(line)),
            LauncherState::Down | LauncherState::Unknown => None,
        })
    }

    /// Drops a broken socket, unless another launcher already replaced it.
    fn lost(&self, line: &Arc<OwnedFd>) {
        let mut state = self.state();
        if matches!(&state.line, LauncherState::Up(now) if Arc::ptr_eq(now, line)) {
            state.line = LauncherState::Down;
        }
    }

    fn state(&self) -> MutexGuard<'_, LauncherConnection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(program: &LauncherProgram, lock: &File) -> anyhow::Result<LauncherState> {
    let (ours, theirs) = fd_passing::pair().context("cannot create a socket")?;
    let theirs = File::from(theirs);
    let argv: [OsString; 4] = [
        program.path.clone().into(),
        "--launcher".into(),
        program.state.clone().into(),
        "-".repeat(ROOM).into(),
    ];
    let limits: Vec<_> = descriptors::of_children().into_iter().collect();
    let arguments = ExecArguments::new(argv, &[])?;
    let command = SpawnCommand {
        stdin: Some(&theirs),
        procs_files: &program.procs_files,
        limits: &limits,
        new_session: true,
        ..SpawnCommand::new(&arguments, Path::new("/"))
    };
    let child =
        spawn(&command).with_context(|| format!("cannot start {}", program.path.display()))?;
    drop(theirs);
    let mut room = [0; launcher_protocol::MAX_PACKET_BYTES];
    let ready = patiently(&ours, PollFlags::IN, || {
        fd_passing::receive(&ours, &mut room)
    })
    .map(|(length, _)| room.get(..length) == Some(launcher_protocol::READY));
    if !matches!(ready, Ok(true)) {
        debug!(?ready, "the launcher sent no READY packet");
        end(&child).context("a launcher without an answer cannot be killed")?;
        info!("this container-shim has no launcher; each shim is started as a program");
        return Ok(LauncherState::Unknown);
    }
    fd_passing::send(&ours, launcher_protocol::LOCK, &[lock.as_fd()])
        .context("the launcher has ended")?;
    tokio::spawn(async move {
        // A launcher that cannot be watched is reaped when the agent ends.
        process_wait::ended(child, |child: &ChildProcess| child.wait().map(drop))
            .await
            .ok();
    });
    Ok(LauncherState::Up(Arc::new(ours)))
}

fn end(child: &ChildProcess) -> io::Result<()> {
    child.signal(9)?;
    child.wait().map(drop)
}

/// Repeats an operation until it no longer blocks, up to the start timeout.
fn patiently<T>(
    socket: &OwnedFd,
    what: PollFlags,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) && started.elapsed() < START =>
            {
                let look = Timespec::try_from(LOOK).map_err(io::Error::other)?;
                // After a spurious wakeup the operation is tried again.
                poll(&mut [PollFd::new(socket, what)], Some(&look)).ok();
            }
            done => return done,
        }
    }
}

/// The packets of one launch, for use in the async runtime.
#[derive(Debug)]
pub(crate) struct Conversation(AsyncFd<OwnedFd>);

impl Conversation {
    /// Wraps a socket that [`ShimLauncher::ask`] returned.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "the replacement is unsafe to call; an OwnedFd never changes its descriptor"
        )]
        AsyncFd::with_interest(socket, tokio::io::Interest::READABLE).map(Conversation)
    }

    /// The next packet, with the shim's pidfd if it carries one. `None` at end of file, or for an
    /// unknown packet.
    pub(crate) async fn next(&self) -> Option<(LauncherPacket, Option<OwnedFd>)> {
        let mut room = [0; launcher_protocol::MAX_PACKET_BYTES];
        loop {
            let mut ready = self.0.readable().await.ok()?;
            let Ok(received) =
                ready.try_io(|socket| fd_passing::receive(socket.get_ref(), &mut room))
            else {
                continue;
            };
            let (length, files) = received.ok().filter(|(length, _)| *length > 0)?;
            return Some((
                LauncherPacket::decode(room.get(..length).unwrap_or_default())?,
                files.into_iter().next(),
            ));
        }
    }
}
