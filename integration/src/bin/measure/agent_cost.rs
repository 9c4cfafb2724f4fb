//! The cost of an agent that only samples its containers, and the time until it has reported many
//! ends.
//!
//! The real agent has a fake resource manager and many sleeping containers. After all have started,
//! the measurement waits. Then it reads from the kernel the agent's processor time over a window,
//! its resident memory at the end, and the private memory of each shim. At the end it kills the
//! programs of a hundred containers at once, several times, while the other containers run.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use headroom_test_fakes::FakeResourceManager;
use headroom_types::{Bytes, ContainerId};
use integration::clock;
use integration::single_agent::agent::{container, order, words};
use integration::single_agent::{Shape, SingleAgent, start_manager};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::progress;
use crate::quantiles::{millis, quantile};

/// Timeout of all launches.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Wait after the last launch, before the window.
const SETTLE: Duration = Duration::from_secs(3);
/// Length of the window.
const WINDOW: Duration = Duration::from_secs(20);
/// Number of containers whose programs are killed at once.
const KILLED_AT_ONCE: usize = 100;
/// Maximum number of such groups.
const MAX_KILL_ROUNDS: usize = 5;
/// Wait after the reports of a group, in which the agent removes the rest of it.
const KILL_PAUSE: Duration = Duration::from_secs(2);
/// Kernel ticks per second of processor time.
const TICKS: f64 = 100.0;

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct AgentCostResults {
    containers: u64,
    /// Resident memory of the agent at the end of the window, and its anonymous part. The rest are
    /// pages of its program file.
    rss_mib: f64,
    anon_mib: f64,
    /// Processor time of the agent in the window. Per cent of one processor.
    cpu_percent: f64,
    /// Private memory of a shim: mean and maximum.
    shim_private_kib: f64,
    shim_private_max_kib: f64,
    /// Threads and open files of the agent.
    threads: usize,
    descriptors: usize,
    /// Containers whose programs were killed at once, and the time from the SIGKILL of each to its
    /// exit report at the resource manager.
    killed_at_once: usize,
    kill_to_report_p50_ms: f64,
    kill_to_report_p99_ms: f64,
    kill_to_report_max_ms: f64,
}

/// Starts the containers and measures.
pub(crate) fn measure(containers: u64) -> Result<AgentCostResults> {
    let manager = start_manager()?;
    let mut agent = SingleAgent::new(
        &manager,
        Shape {
            memory: Bytes::from_gib(16),
            cpus: 256,
        },
    )?;
    agent.start(&manager)?;
    let ids: Vec<_> = (1..=containers).map(container).collect::<Result<_>>()?;
    let orders: Result<Vec<_>> = ids
        .iter()
        .map(|id| {
            Ok((
                id.clone(),
                order(id, Bytes::from_mib(32), words(&["/bin/sleep", "600"]))?,
            ))
        })
        .collect();
    manager.run(orders?);
    let all = |received: &mut headroom_test_fakes::ReceivedReports| {
        ids.iter()
            .all(|id| received.running.contains_key(id))
            .then_some(())
    };
    manager
        .until("all containers to run", TIMEOUT, all)
        .with_context(|| agent.log_tail())?;
    progress::print_line(&format!(
        "{containers} containers run; measuring for {} s",
        WINDOW.as_secs()
    ));
    clock::pause(SETTLE);
    let pid = agent.pid()?;
    let (before, started) = (ticks(pid)?, Instant::now());
    clock::pause(WINDOW);
    let (after, took) = (ticks(pid)?, started.elapsed().as_secs_f64());
    let shims: Vec<f64> = ids
        .iter()
        .filter_map(|id| private_kib(agent.process(id, "shim.pid")?))
        .collect();
    let count = |dir: &str| fs::read_dir(format!("/proc/{pid}/{dir}")).map_or(0, Iterator::count);
    let (rss, anon) = (status_kib(pid, "VmRSS:")?, status_kib(pid, "RssAnon:")?);
    let (threads, descriptors) = (count("task"), count("fd"));
    let delays = kill_in_groups(&manager, &agent, &ids)?;
    let delay = |percent| {
        quantile(&delays, percent)
            .map(millis)
            .context("no container was killed")
    };
    Ok(AgentCostResults {
        containers,
        rss_mib: rss / 1024.0,
        anon_mib: anon / 1024.0,
        cpu_percent: (after - before) / TICKS / took * 100.0,
        shim_private_kib: shims.iter().sum::<f64>() / f64::from(u32::try_from(shims.len().max(1))?),
        shim_private_max_kib: shims.iter().copied().fold(0.0, f64::max),
        threads,
        descriptors,
        killed_at_once: KILLED_AT_ONCE.min(ids.len()),
        kill_to_report_p50_ms: delay(50)?,
        kill_to_report_p99_ms: delay(99)?,
        kill_to_report_max_ms: delay(100)?,
    })
}

/// Kills the programs of a hundred containers at once, several times. Returns the time from each
/// kill to its report. Nanoseconds.
fn kill_in_groups(
    manager: &FakeResourceManager,
    agent: &SingleAgent,
    ids: &[ContainerId],
) -> Result<Vec<u128>> {
    let mut delays = Vec::new();
    for group in ids.chunks(KILLED_AT_ONCE).take(MAX_KILL_ROUNDS) {
        let programs: Vec<Pid> = group
            .iter()
            .map(|id| agent.process(id, "pid").map(Pid::from_raw))
            .collect::<Option<_>>()
            .context("the process id of a program")?;
        let mut killed = Vec::new();
        for program in programs {
            killed.push(Instant::now());
            kill(program, Signal::SIGKILL).context("the kill")?;
        }
        let reported = manager
            .until(
                "the reports of the killed containers",
                TIMEOUT,
                |received| {
                    let times = group.iter().map(|id| Some(received.ends.get(id)?.at));
                    times.collect::<Option<Vec<_>>>()
                },
            )
            .with_context(|| agent.log_tail())?;
        let spans = killed.iter().zip(reported);
        delays.extend(spans.map(|(killed, at)| at.duration_since(*killed).as_nanos()));
        manager.forget(group.iter().cloned());
        manager.remove_desired(group);
        clock::pause(KILL_PAUSE);
    }
    Ok(delays)
}

/// User and system time of the process itself so far. Ticks.
fn ticks(pid: i32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit_once(") ")
        .context("a stat")?
        .1
        .split(' ')
        .collect();
    Ok(fields
        .get(11..13)
        .context("a stat")?
        .iter()
        .filter_map(|field| field.parse::<f64>().ok())
        .sum())
}

/// The value of a key in the status of a process. KiB.
pub(crate) fn status_kib(pid: i32, key: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    kib(&status, key).with_context(|| format!("{key} of {pid}"))
}

/// Private pages of a process, clean and dirty. `None` if it has ended.
fn private_kib(pid: i32) -> Option<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(kib(&rollup, "Private_Clean:")? + kib(&rollup, "Private_Dirty:")?)
}

fn kib(text: &str, key: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::kib;

    #[test]
    fn a_value_is_found_by_its_key() {
        assert_eq!(
            kib(
                "Rss:  900 kB\nPrivate_Dirty:      64 kB\n",
                "Private_Dirty:"
            ),
            Some(64.0)
        );
        assert_eq!(kib("Rss:  900 kB\n", "Pss:"), None);
    }
}
