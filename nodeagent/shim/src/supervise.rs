//! Supervises one container: starts the program, waits, reads the counters, writes the exit record.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headroom_container_shim::LaunchStep;
use headroom_container_shim::record::{ExitRecord, ProgramEnd, StartResult, file};

use crate::launch::launch;
use crate::step_failure::StepFailure;
use crate::{records, sys};

/// The connection to the agent, on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentConnection {
    /// A pipe, closed after the one line.
    Pipe,
    /// The socket of a launch, closed when the exit record is written.
    Socket,
}

/// What is left to do after a container has ended.
pub(crate) enum SupervisedEnd {
    /// The shim ends with this code.
    Exit(ExitCode),
    /// The agent reads the exit record, which is not synced.
    Read(File),
}

/// Supervises a container from start to end. An exit code shows whether the exit record could be
/// written. The caller ignores the signals of [`sys::ignore_termination`].
///
/// `until_named` is closed as soon as the directory names this process.
pub(crate) fn run(dir: &Path, until_named: Option<File>, agent: AgentConnection) -> SupervisedEnd {
    sys::become_subreaper();
    // If this fails, no program starts. A directory that names no shim means that no program ever
    // started there.
    let named = records::write_identity(dir, file::SHIM_PID, sys::own_pid());
    drop(until_named);
    let named = named
        .map_err(|e| StepFailure::new(LaunchStep::Identity, sys::errno_of(&e), file::SHIM_PID));
    if let Err(failure) = &named
        && failure.errno == libc::EEXIST
    {
        // Another shim has the container. Its files belong to that shim.
        answer(failure);
        return SupervisedEnd::Exit(ExitCode::FAILURE);
    }
    let spec = named.and_then(|()| {
        records::read_spec(dir)
            .map_err(|(errno, what)| StepFailure::new(LaunchStep::Spec, errno, what))
    });
    match spec.and_then(|spec| launch(&spec).map(|pid| (pid, spec.counters))) {
        Ok((pid, counters)) => {
            let started_ms = records::now_ms();
            complain(
                records::write_identity(dir, file::PID, pid),
                "the identity of the program",
            );
            sys::write_text(1, &StartResult::Started { pid }.encode());
            if agent == AgentConnection::Pipe {
                close_agent_pipe();
            }
            let written = records::write_exit(dir, &wait(pid, started_ms, counters));
            let Ok(record) = written else {
                return SupervisedEnd::Exit(conclude(dir, written.map(drop)));
            };
            // The agent collects the end from now on. It may use the file of standard error for
            // other purposes, so an error of the sync is not written there.
            if agent == AgentConnection::Socket && !sys::has_lost_peer(1) {
                close_agent_pipe();
                return SupervisedEnd::Read(record);
            }
            // Records and reports of other ends come before the sync and the end of this process. An
            // agent without the socket, such as one that was started later, waits for its end.
            sys::yield_to_others();
            // Exit handlers would only touch memory that is then freed.
            sys::exit_now(i32::from(record.sync_all().is_err()))
        }
        Err(failure) => {
            let record = failed(&failure);
            // The record comes first: an agent that reads the line may look for the record at once.
            let written = records::write_exit(dir, &record);
            let code = conclude(dir, written.and_then(|file| file.sync_all()));
            answer(&failure);
            SupervisedEnd::Exit(code)
        }
    }
}

/// Reports to the agent that this shim has started no program.
fn answer(failure: &StepFailure) {
    let result = StartResult::Failed {
        step: failure.step,
        errno: failure.errno,
    };
    sys::write_text(1, &result.encode());
}

/// Closes the socket or pipe to the agent. The agent sees end of file and reads the exit record.
fn close_agent_pipe() {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        // If a descriptor cannot be replaced, the agent waits for the end of this process.
        let _ = sys::place(&null, 0).and_then(|()| sys::place(&null, 1));
    }
}

/// Reaps ended processes (orphans of the program become children of the shim) until the program
/// itself has ended.
fn wait(pid: i32, started_ms: u64, counters: Vec<PathBuf>) -> ExitRecord {
    loop {
        match sys::wait() {
            Some(end) if end.pid == pid => {
                // Read the counters first, before another process changes or removes them.
                return ended(&end, started_ms, read_all(counters));
            }
            Some(_) => {}
            // Cannot happen: only this process reaps the program. A record with this error is
            // better than none.
            None => {
                return failed(&StepFailure {
                    step: LaunchStep::Wait,
                    errno: libc::ECHILD,
                    what: pid.to_string(),
                });
            }
        }
    }
}

/// Reads kernel files. Those of one directory follow each other.
fn read_all(paths: Vec<PathBuf>) -> Vec<(PathBuf, Option<String>)> {
    let mut open: Option<(PathBuf, File)> = None;
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        let parent = path.parent().unwrap_or(Path::new("/"));
        if open.as_ref().is_none_or(|(dir, _)| dir != parent) {
            let opened = sys::open_dir(parent).ok();
            open = opened.map(|file| (parent.to_owned(), file));
        }
        let text = open.as_ref().and_then(|(_, dir)| read(dir, &path));
        all.push((path, text));
    }
    all
}

/// Reads a kernel file. One read returns the whole file, so its length is not needed.
fn read(dir: &File, path: &Path) -> Option<String> {
    let name = CString::new(path.file_name()?.as_bytes()).ok()?;
    let mut room = [0; 8 * 1024];
    let length = sys::open_in(dir, &name).and_then(|mut file| file.read(&mut room));
    std::str::from_utf8(room.get(..length.ok()?)?)
        .ok()
        .map(str::to_owned)
}

fn ended(
    end: &sys::ReapedChild,
    started_ms: u64,
    counters: Vec<(PathBuf, Option<String>)>,
) -> ExitRecord {
    let how = if libc::WIFSIGNALED(end.status) {
        ProgramEnd::Signal {
            signal: libc::WTERMSIG(end.status),
            core: libc::WCOREDUMP(end.status),
        }
    } else {
        ProgramEnd::Code(libc::WEXITSTATUS(end.status))
    };
    ExitRecord {
        how,
        started_ms: Some(started_ms),
        ended_ms: records::now_ms(),
        // The kernel reports KiB.
        max_rss: u64::try_from(end.usage.ru_maxrss)
            .unwrap_or(0)
            .saturating_mul(1024),
        user_us: micros(end.usage.ru_utime),
        system_us: micros(end.usage.ru_stime),
        counters,
    }
}

fn micros(time: libc::timeval) -> u64 {
    let (whole, part) = (
        u64::try_from(time.tv_sec).unwrap_or(0),
        u64::try_from(time.tv_usec).unwrap_or(0),
    );
    whole.saturating_mul(1_000_000).saturating_add(part)
}

fn failed(failure: &StepFailure) -> ExitRecord {
    ExitRecord {
        how: ProgramEnd::Failed {
            step: failure.step,
            errno: failure.errno,
            what: failure.what.clone(),
        },
        started_ms: None,
        ended_ms: records::now_ms(),
        max_rss: 0,
        user_us: 0,
        system_us: 0,
        counters: Vec::new(),
    }
}

/// The exit code of the shim. An error is logged.
fn conclude(dir: &Path, written: std::io::Result<()>) -> ExitCode {
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            sys::write_text(
                2,
                &format!(
                    "container-shim: cannot write {}: {error}\n",
                    dir.join(file::EXIT).display()
                ),
            );
            ExitCode::FAILURE
        }
    }
}

/// Logs a failed write and continues: the program is more important.
fn complain(result: std::io::Result<()>, record: &str) {
    if let Err(error) = result {
        sys::write_text(
            2,
            &format!("container-shim: cannot write {record}: {error}, ignoring\n"),
        );
    }
}
