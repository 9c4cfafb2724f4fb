//! The program of the tasks in test jobs: it allocates memory at a given rate, writes lines to a
//! log, and waits for files.
//!
//! Only executors in tests and measurements start it. It depends only on its arguments and the
//! task's environment, so a run can be understood from its log.

#![forbid(unsafe_code)]

mod act;

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use integration::clock;

/// Interval of gate polls.
const GLANCE: Duration = Duration::from_millis(10);
/// Timeout of a wait; the workload continues after it.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Parser)]
enum Workload {
    /// Log, allocate memory, wait, log, exit.
    Run(Run),
    /// Send the start time of this attempt to a measuring program; a first attempt exceeds its
    /// limit.
    Stamp {
        /// Socket of the measuring program.
        #[arg(long)]
        socket: PathBuf,
        /// Allocation of a first attempt. MiB.
        #[arg(long)]
        mib: usize,
    },
    /// Run these steps: `take:8 ready await-go hog:64`; see `act.rs` for all of them.
    Act {
        /// Steps, one word each.
        steps: Vec<String>,
    },
    /// Enter a cgroup and then run these steps.
    Enter {
        /// Directory of the cgroup.
        dir: PathBuf,
        /// Steps, one word each.
        steps: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Log file that gets a line `start TASK ATTEMPT PID` and, at the end, `end TASK ATTEMPT PID`.
    #[arg(long)]
    log: PathBuf,
    /// Wait for this file before the allocation.
    #[arg(long)]
    after: Option<PathBuf>,
    /// Memory to allocate and keep. MiB.
    #[arg(long, default_value_t = 0)]
    mib: usize,
    /// Duration of the allocation. Milliseconds.
    #[arg(long, default_value_t = 0)]
    over_ms: u64,
    /// Wait for this file after the allocation.
    #[arg(long)]
    until: Option<PathBuf>,
    /// Exit code.
    #[arg(long, default_value_t = 0)]
    exit: u8,
}

fn main() -> Result<ExitCode> {
    // First, because this time is the end of a measurement.
    let started = clock::realtime_nanos();
    match Workload::parse() {
        Workload::Run(run) => work(&run),
        Workload::Stamp { socket, mib } => stamp(&socket, mib, started),
        Workload::Act { steps } => act::act(&steps).map(ExitCode::from),
        Workload::Enter { dir, steps } => act::enter(&dir, &steps).map(ExitCode::from),
    }
}

fn work(run: &Run) -> Result<ExitCode> {
    note(&run.log, "start")?;
    wait_for(run.after.as_deref());
    let kept = take(run.mib, Duration::from_millis(run.over_ms));
    wait_for(run.until.as_deref());
    drop(std::hint::black_box(kept));
    note(&run.log, "end")?;
    Ok(ExitCode::from(run.exit))
}

fn wait_for(gate: Option<&Path>) {
    let deadline = Instant::now() + TIMEOUT;
    while gate.is_some_and(|gate| !gate.exists()) && Instant::now() < deadline {
        clock::pause(GLANCE);
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| "-".to_owned())
}

/// Writes a line in one write, so that lines of several tasks do not mix.
fn note(log: &Path, what: &str) -> Result<()> {
    let line = format!(
        "{what} {} {} {}\n",
        variable("HEADROOM_TASK"),
        variable("HEADROOM_ATTEMPT"),
        std::process::id()
    );
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| log.display().to_string())?;
    file.write_all(line.as_bytes()).context("writing the log")
}

fn take(mib: usize, over: Duration) -> Vec<Vec<u8>> {
    let pause = over
        .checked_div(u32::try_from(mib).unwrap_or(u32::MAX))
        .unwrap_or_default();
    let mut kept = Vec::with_capacity(mib);
    for _ in 0..mib {
        kept.push(std::hint::black_box(vec![1; 1 << 20]));
        if !pause.is_zero() {
            clock::pause(pause);
        }
    }
    kept
}

fn stamp(socket: &Path, mib: usize, started: u128) -> Result<ExitCode> {
    let attempt = variable("HEADROOM_ATTEMPT");
    let mut line = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    writeln!(
        line,
        "{} {attempt} {} {started}",
        variable("HEADROOM_TASK"),
        std::process::id()
    )?;
    if attempt == "1" {
        line.read_exact(&mut [0])
            .context("waiting for the measuring program")?;
        drop(take(mib, Duration::ZERO));
    }
    Ok(ExitCode::SUCCESS)
}
