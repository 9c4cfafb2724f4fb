//! One resource manager as a child process: start, kill, restart at the same address, and its
//! resource usage.
//!
//! One measurement or test owns it. Dropping it ends the process and removes its state.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::cluster::{free_port, until};
use crate::programs;

/// Timeout of a start, long enough to read the state of 10,000 nodes.
const START: Duration = Duration::from_secs(60);

/// A resource manager process with its state directory and address.
#[derive(Debug)]
pub struct Daemon {
    dir: tempfile::TempDir,
    address: SocketAddr,
    /// Its configuration file, if it has one.
    config: Option<PathBuf>,
    child: Option<Child>,
}

/// The resource usage of a process since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Resident memory. MiB.
    pub rss_mib: u64,
    /// Processor time, all threads, user and system. Seconds.
    pub cpu_s: f64,
    /// Time of the reading.
    pub at: Instant,
}

impl Usage {
    /// Average number of busy processors since `before`.
    pub fn cpus_since(&self, before: &Usage) -> f64 {
        (self.cpu_s - before.cpu_s) / self.at.duration_since(before.at).as_secs_f64().max(1e-9)
    }
}

impl Daemon {
    /// Starts one with an empty state and waits until it answers.
    pub fn start() -> Result<Self> {
        Daemon::start_configured("")
    }

    /// As [`Daemon::start`], with this configuration.
    pub fn start_configured(configuration: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-load-")
            .tempdir()
            .context("a directory for the state")?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let config = (!configuration.is_empty()).then(|| dir.path().join("config.toml"));
        if let Some(file) = &config {
            fs::write(file, configuration)?;
        }
        let mut daemon = Daemon {
            dir,
            address,
            config,
            child: None,
        };
        daemon.spawn()?;
        daemon.until_answers()?;
        Ok(daemon)
    }

    /// Address of the API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the process at its previous address and returns the time of the start.
    pub fn spawn(&mut self) -> Result<Instant> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .context("the log of the daemon")?;
        let started = Instant::now();
        let mut command = Command::new(programs::path("resourcemanager")?);
        if let Some(file) = &self.config {
            command.arg("--config").arg(file);
        }
        let child = command
            .args(["--listen", &self.address.to_string(), "--state"])
            .arg(self.dir.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting resourcemanager")?;
        self.child = Some(child);
        Ok(started)
    }

    /// Waits until it accepts connections.
    pub fn until_answers(&self) -> Result<()> {
        until("the resource manager to answer", START, || {
            Ok(std::net::TcpStream::connect(self.address).ok())
        })
        .map(|_| ())
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("no process to kill")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// The usage of the process so far.
    pub fn usage(&self) -> Result<Usage> {
        let child = self.child.as_ref().context("no process to look at")?;
        usage(child.id())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Log lines with errors or panics.
    pub fn faults(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(self.log_path()).context("the log of the daemon")?;
        let bad = |line: &&str| line.contains("ERROR") || line.contains("panicked");
        Ok(text.lines().filter(bad).map(str::to_owned).collect())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have exited already; then the kill fails, without consequence.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The usage of a process so far.
pub fn usage(pid: u32) -> Result<Usage> {
    let proc = Path::new("/proc").join(pid.to_string());
    let status = fs::read_to_string(proc.join("status")).context("the status of a process")?;
    let rss = status.lines().find_map(|l| {
        l.strip_prefix("VmRSS:")?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    let stat = fs::read_to_string(proc.join("stat")).context("the times of a process")?;
    let after_name = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest)
        .context("a line of /proc without a name")?;
    let ticks: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|w| w.parse().ok())
        .collect();
    ensure!(ticks.len() == 2, "{stat:?} has no times");
    let ticks = u32::try_from(ticks.iter().sum::<u64>()).unwrap_or(u32::MAX);
    // `/proc` counts in ticks of 1/100 s on all architectures.
    Ok(Usage {
        rss_mib: rss.unwrap_or(0) / 1024,
        cpu_s: f64::from(ticks) / 100.0,
        at: Instant::now(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_memory_and_time() {
        let before = usage(std::process::id()).expect("reads");
        let started = Instant::now();
        let mut n = 0_u64;
        while started.elapsed() < Duration::from_millis(100) {
            n = std::hint::black_box(n + 1);
        }
        let after = usage(std::process::id()).expect("reads");
        assert!(
            before.rss_mib > 0 && after.cpu_s > before.cpu_s,
            "{before:?} {after:?}"
        );
    }
}
