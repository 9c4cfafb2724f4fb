//! The time from the kernel's kill of a task to the first instruction of its next attempt.
//!
//! A cluster of the real daemons runs a job of single tasks, one after the other. The first attempt
//! of each task sends its process id, waits until this program watches it by pidfd, and then
//! allocates past its limit. The pidfd becomes readable when the kernel has ended the process. The
//! first instruction of the second attempt reads the same clock (CLOCK_REALTIME) and sends the
//! time. The path contains the executor's verdict, its report to the application master, the
//! decision, the order, the new cgroup and the new process.

pub(crate) mod loaded;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::Bytes;
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, NodeShape};
use integration::{clock, programs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value};

use crate::guest_run;
use crate::quantiles::{millis, quantile};

/// Timeout of one task.
const TIMEOUT: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};
/// Timeout of a task in a guest on a busy machine.
const TASK: Duration = Duration::from_secs(10);
/// Allocation of a first attempt: above the share of one slot, below two.
const TAKES_MIB: u32 = 48;

/// Times from kill to retry.
#[derive(Debug, serde::Serialize)]
pub(crate) struct KillToRetryResults {
    p50_ms: f64,
    p99_ms: f64,
    n: usize,
}

/// Runs the job.
pub(crate) fn measure(count: usize) -> Result<KillToRetryResults> {
    let cluster = Cluster::start(&[NodeShape {
        memory: Bytes::from_mib(512),
        cpus: 4,
        enforcer: None,
    }])?;
    let socket = cluster.dir().join("stamps");
    let listener = UnixListener::bind(&socket).context("the socket for stamps")?;
    let app = cluster.submit(&job(count, &socket)?)?;
    let times: Vec<u128> = (0..count)
        .map(|n| one(&listener).with_context(|| format!("task {n}")))
        .collect::<Result<_>>()?;
    let end = cluster.until_ended(&app)?;
    ensure!(
        end.state == AppState::Finished,
        "the job ended as {}: {}",
        end.state.as_str(),
        end.diagnostics
    );
    let at = |percent| {
        quantile(&times, percent)
            .map(millis)
            .context("nothing was measured")
    };
    Ok(KillToRetryResults {
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        n: times.len(),
    })
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(count: u16) -> Result<Map<String, Value>> {
    guest_run::in_a_guest(
        &["kill-to-retry", "--count", &count.to_string()],
        Duration::from_secs(120) + TASK * u32::from(count),
    )
}

/// A chain of stages of one task each, on an executor with two slots.
fn job(count: usize, socket: &Path) -> Result<String> {
    let program = programs::path("workload")?;
    let mut text = String::from(
        "version = 1\nname = \"kill-to-retry\"\n\
         [profiles.exec]\nheap = \"160MiB\"\noverhead = \"0B\"\ncpus = 0.5\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 2\nreserve = \"96MiB\"\n",
    );
    for n in 0..count {
        let after = n
            .checked_sub(1)
            .map(|before| format!("after = [\"s{before}\"]\n"))
            .unwrap_or_default();
        writeln!(
            text,
            "[[stage]]\nname = \"s{n}\"\ngrow = false\n{after}command = [{program:?}, \"stamp\", \"--socket\", {socket:?}, \"--mib\", \"{TAKES_MIB}\"]"
        )?;
    }
    Ok(text)
}

/// The start message of an attempt.
struct AttemptStart {
    line: UnixStream,
    attempt: u32,
    pid: i32,
    started: u128,
}

/// Time from the kill of the first attempt of a task to the start of its second. Nanoseconds.
fn one(listener: &UnixListener) -> Result<u128> {
    let first = next(listener)?;
    ensure!(first.attempt == 1, "attempt {} came first", first.attempt);
    let killed = end_of(first)?;
    let second = next(listener)?;
    ensure!(
        second.attempt == 2,
        "attempt {} came second",
        second.attempt
    );
    second
        .started
        .checked_sub(killed)
        .context("the clock moved backwards")
}

fn next(listener: &UnixListener) -> Result<AttemptStart> {
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&TIMEOUT))
        .context("waiting for an attempt")?;
    ensure!(ready > 0, "no attempt for {} s", TIMEOUT.tv_sec);
    let (line, _) = listener.accept()?;
    line.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = String::new();
    BufReader::new(line.try_clone()?)
        .read_line(&mut text)
        .context("reading the line of an attempt")?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_task, attempt, pid, started] = words[..] else {
        bail!("an attempt sent {text:?}")
    };
    Ok(AttemptStart {
        line,
        attempt: attempt.parse()?,
        pid: pid.parse()?,
        started: started.parse()?,
    })
}

/// Lets an attempt continue to its kill and returns the time of its end.
fn end_of(mut victim: AttemptStart) -> Result<u128> {
    let pid = rustix::process::Pid::from_raw(victim.pid).context("a process id")?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .context("watching the attempt")?;
    victim.line.write_all(b"!")?;
    let started = Instant::now();
    let gone = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&TIMEOUT))
        .context("waiting for the kill")?;
    let killed = clock::realtime_nanos();
    ensure!(
        gone > 0,
        "the attempt still runs {} s after its limit was exceeded",
        started.elapsed().as_secs()
    );
    Ok(killed)
}
