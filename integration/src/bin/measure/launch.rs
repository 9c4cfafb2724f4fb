//! The speed of the node agent: from an order to a running program, containers per second, and from
//! a kill to the report.
//!
//! The real agent runs with a fake resource manager on loopback, so the measurement covers only the
//! agent. It has three parts:
//!
//! - single launches, from the order to the report that the container runs;
//! - single kills, from the SIGKILL to its report;
//! - a burst of containers whose program exits at once, from the order to the report, with a
//!   bounded number in parallel.
//!
//! The burst alternates with a loop that shows the kernel's own cost. The loop creates the same
//! cgroups with the same limits, forks, enters, executes, waits and removes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_test_fakes::FakeResourceManager;
use headroom_types::{Bytes, ContainerId, ExitReason};
use integration::single_agent::agent::{container, order, words};
use integration::single_agent::{Shape, SingleAgent, start_manager};
use integration::{clock, cluster};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::quantiles::{millis, quantile};
use crate::{guest_run, progress};

/// Timeout of one step.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of parallel containers in the burst.
const AT_ONCE: u64 = 32;
/// Timeout for one container in a guest on a busy machine, for all parts.
const ROUND: Duration = Duration::from_secs(6);
/// Wait between a burst and the bare loop.
const SETTLE: Duration = Duration::from_millis(200);
/// Number of turns of burst and bare loop; the medians count.
const TURNS: usize = 3;
/// Limit of a container.
const MEMORY: Bytes = Bytes::from_mib(16);
/// The program of the containers in the burst.
const PROGRAM: &str = "/bin/true";

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct LaunchResults {
    /// From the order to the report that it runs.
    p50_ms: f64,
    p99_ms: f64,
    /// From SIGKILL to the report.
    exit_p50_ms: f64,
    exit_p99_ms: f64,
    /// Containers per second, from order to report.
    per_s: f64,
    /// Iterations of the bare loop per second, on one thread.
    bare_per_s: f64,
    /// Time for a container as a multiple of an iteration of the bare loop.
    ratio: f64,
    /// Processor time of the agent and all its processes for one container, and of one iteration of
    /// the bare loop. Milliseconds.
    cpu_ms: f64,
    bare_cpu_ms: f64,
    /// `crun run` per second, if crun is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    crun_per_s: Option<f64>,
    n: u64,
}

/// Runs all parts.
pub(crate) fn measure(rounds: u32) -> Result<LaunchResults> {
    let manager = start_manager()?;
    let mut agent = SingleAgent::new(
        &manager,
        Shape {
            memory: Bytes::from_gib(4),
            cpus: 64,
        },
    )?;
    agent.start(&manager)?;
    let mut next = 1;
    let (starts, ends) = one_by_one(&manager, &agent, &mut next, rounds)?;
    let at = |times: &[u128], percent| {
        quantile(times, percent)
            .map(millis)
            .context("nothing was measured")
    };
    let bare = Bare::new(&agent)?;
    let (mut crowd, mut loops) = (Vec::new(), Vec::new());
    let before = cpu_of(&agent)?;
    for turn in 0..TURNS {
        crowd.push(crowd_of(&manager, &agent, &mut next, u64::from(rounds))?);
        // Shims sync their records after the burst, which is not the loop's work.
        clock::pause(SETTLE);
        loops.push(bare.turn(rounds)?);
        progress::print_line(&format!(
            "turn {turn}: {:?} and {:?}",
            crowd.last(),
            loops.last()
        ));
    }
    let n = u64::from(rounds) * u64::try_from(TURNS)?;
    let cpu_ms = (cpu_of(&agent)? - before) * 1e3 / as_f64(n);
    let crun_per_s = crun(agent.dir(), rounds.min(100))?;
    let crowd = median(crowd, |per_s| *per_s)?;
    let loops = median(loops, |pace| pace.per_s)?;
    Ok(LaunchResults {
        p50_ms: at(&starts, 50)?,
        p99_ms: at(&starts, 99)?,
        exit_p50_ms: at(&ends, 50)?,
        exit_p99_ms: at(&ends, 99)?,
        per_s: crowd,
        bare_per_s: loops.per_s,
        ratio: loops.per_s / crowd,
        cpu_ms,
        bare_cpu_ms: loops.cpu_ms,
        crun_per_s,
        n,
    })
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(rounds: u32) -> Result<Map<String, Value>> {
    guest_run::in_a_guest(
        &["launch", "--rounds", &rounds.to_string()],
        Duration::from_secs(120) + ROUND * rounds,
    )
}

/// The results of one turn of the bare loop.
#[derive(Clone, Copy, Debug)]
struct Pace {
    per_s: f64,
    cpu_ms: f64,
}

/// The turn with the median speed.
fn median<T: Copy>(mut turns: Vec<T>, per_s: fn(&T) -> f64) -> Result<T> {
    turns.sort_by(|a, b| per_s(a).total_cmp(&per_s(b)));
    turns
        .get(turns.len() / 2)
        .copied()
        .context("nothing was measured")
}

/// Runs single containers. Returns nanoseconds from order to running, and from kill to report.
fn one_by_one(
    manager: &FakeResourceManager,
    agent: &SingleAgent,
    next: &mut u64,
    rounds: u32,
) -> Result<(Vec<u128>, Vec<u128>)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let id = fresh(next)?;
        let started = Instant::now();
        let launch = order(&id, MEMORY, words(&["/bin/sleep", "60"]))?;
        manager.run([(id.clone(), launch)]);
        let running = manager
            .until("a container", TIMEOUT, |received| {
                received.running.get(&id).copied()
            })
            .with_context(|| agent.log_tail())?;
        starts.push(running.duration_since(started).as_nanos());
        let pid = agent.process(&id, "pid").context("the process id")?;
        let killed = Instant::now();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        )
        .context("the kill")?;
        let reported = manager.until("the end of the container", TIMEOUT, |received| {
            received.ends.get(&id).map(|end| end.at)
        })?;
        ends.push(reported.duration_since(killed).as_nanos());
        release(manager, &[id]);
    }
    Ok((starts, ends))
}

/// Runs `count` containers whose program exits at once, at most `AT_ONCE` in parallel.
fn crowd_of(
    manager: &FakeResourceManager,
    agent: &SingleAgent,
    next: &mut u64,
    count: u64,
) -> Result<f64> {
    let started = Instant::now();
    let (mut open, mut left) = (Vec::<ContainerId>::new(), count);
    while left > 0 || !open.is_empty() {
        let free = AT_ONCE.saturating_sub(u64::try_from(open.len())?).min(left);
        let mut orders = Vec::new();
        for _ in 0..free {
            let id = fresh(next)?;
            orders.push((id.clone(), order(&id, MEMORY, words(&[PROGRAM]))?));
            open.push(id);
        }
        left -= free;
        manager.run(orders);
        let done: Vec<ContainerId> = manager
            .until("an end", TIMEOUT, |received| {
                let done: Vec<_> = open
                    .iter()
                    .filter(|id| received.ends.contains_key(*id))
                    .cloned()
                    .collect();
                (!done.is_empty()).then_some(done)
            })
            .with_context(|| agent.log_tail())?;
        open.retain(|id| !done.contains(id));
        release(manager, &done);
    }
    let took = started.elapsed().as_secs_f64();
    let is_wrong = |reason: ExitReason| !["exit", "killed_externally"].contains(&reason.name());
    let wrong = manager.with(|received| {
        let ends = received.ends.values();
        ends.filter(|end| is_wrong(end.report.reason)).count()
    });
    ensure!(wrong == 0, "{wrong} containers ended for another reason");
    Ok(as_f64(count) / took)
}

fn release(manager: &FakeResourceManager, ids: &[ContainerId]) {
    manager.forget(ids.iter().cloned());
    manager.remove_desired(ids);
}

fn fresh(next: &mut u64) -> Result<ContainerId> {
    *next += 1;
    container(*next - 1)
}

#[allow(clippy::cast_precision_loss)] // counts of thousands
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Processor time of the agent, its launcher, and all shims and programs, after their ends. Seconds.
fn cpu_of(agent: &SingleAgent) -> Result<f64> {
    // The kernel adds the time of a shim to that of its launcher when it is reaped.
    cluster::until("the ends of the shims", TIMEOUT, || {
        Ok((agent.shims() == 0).then_some(()))
    })?;
    let mut ticks = 0;
    for pid in [agent.pid()?].into_iter().chain(agent.launcher()) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> = stat
            .rsplit_once(") ")
            .context("a stat")?
            .1
            .split(' ')
            .collect();
        ticks += fields
            .get(11..15)
            .context("a stat")?
            .iter()
            .filter_map(|f| f.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(as_f64(ticks) / 100.0)
}

/// The bare loop. Its cgroups are beside the agent's own and have the same files written.
struct Bare {
    memory: PathBuf,
    pids: Option<PathBuf>,
    v1: bool,
}

impl Bare {
    fn new(agent: &SingleAgent) -> Result<Self> {
        let roots = agent.cgroups();
        let memory = roots
            .first()
            .context("this host has no cgroups to compare with")?
            .join("containers");
        let v1 = memory.join("memory.limit_in_bytes").exists();
        let pids = roots
            .iter()
            .map(|root| root.join("containers"))
            .find(|dir| *dir != memory && dir.join("cgroup.procs").exists());
        Ok(Bare { memory, pids, v1 })
    }

    fn turn(&self, rounds: u32) -> Result<Pace> {
        let before = own_cpu()?;
        let started = Instant::now();
        for n in 0..rounds {
            self.one(n)?;
        }
        let (took, count) = (started.elapsed().as_secs_f64(), f64::from(rounds));
        Ok(Pace {
            per_s: count / took,
            cpu_ms: (own_cpu()? - before) * 1e3 / count,
        })
    }

    fn one(&self, n: u32) -> Result<()> {
        let dir = self.memory.join(format!("bare-{n}"));
        let main = dir.join("main");
        fs::create_dir(&dir)?;
        let bytes = MEMORY.get().to_string();
        let limit = if self.v1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        fs::write(dir.join(limit), &bytes)?;
        fs::create_dir(&main)?;
        let mirror = self
            .pids
            .as_ref()
            .map(|pids| pids.join(format!("bare-{n}")));
        if let Some(mirror) = &mirror {
            fs::create_dir(mirror)?;
            fs::write(mirror.join("pids.max"), "4096")?;
        }
        run_in(
            &main,
            mirror.as_deref(),
            if self.v1 { "tasks" } else { "cgroup.procs" },
        )?;
        if let Some(mirror) = &mirror {
            fs::remove_dir(mirror)?;
        }
        remove(&main)?;
        remove(&dir)
    }
}

/// Runs the program in both groups, which the child enters by the file `entry` of each, and waits
/// for it. It uses `vfork`, the faster kind of fork.
fn run_in(main: &Path, mirror: Option<&Path>, entry: &str) -> Result<()> {
    let groups: Vec<PathBuf> = std::iter::once(main)
        .chain(mirror)
        .map(|dir| dir.join(entry))
        .collect();
    let arguments = headroom_node_exec::ExecArguments::new([PROGRAM], &[])?;
    let command = headroom_node_exec::SpawnCommand {
        procs_files: &groups,
        ..headroom_node_exec::SpawnCommand::new(&arguments, Path::new("/"))
    };
    let ended = headroom_node_exec::spawn(&command)?.wait()?;
    ensure!(
        ended == headroom_node_exec::ProcessEnd::Code(0),
        "{PROGRAM} ended with {ended:?}"
    );
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    let started = Instant::now();
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(e)
                if e.kind() == std::io::ErrorKind::ResourceBusy
                    && started.elapsed() < Duration::from_secs(2) =>
            {
                std::thread::yield_now();
            }
            Err(e) => return Err(e).with_context(|| dir.display().to_string()),
        }
    }
}

/// Processor time of this process and of its reaped children. Seconds.
fn own_cpu() -> Result<f64> {
    use nix::sys::resource::{UsageWho, getrusage};
    let of = |who| -> Result<f64> {
        let usage = getrusage(who)?;
        let seconds = |t: nix::sys::time::TimeVal| {
            Duration::from_micros(u64::try_from(t.tv_sec() * 1_000_000 + t.tv_usec()).unwrap_or(0))
                .as_secs_f64()
        };
        Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
    };
    Ok(of(UsageWho::RUSAGE_SELF)? + of(UsageWho::RUSAGE_CHILDREN)?)
}

/// Runs `crun run` of the same program with a memory limit, one after the other. `None` if crun is
/// not installed or does not work with this host's cgroups.
fn crun(dir: &Path, rounds: u32) -> Result<Option<f64>> {
    let installed = Command::new("crun")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !installed.is_ok_and(|status| status.success()) {
        progress::print_line("crun is not installed; measuring without it");
        return Ok(None);
    }
    let bundle = dir.join("bundle");
    fs::create_dir_all(bundle.join("root"))?;
    fs::write(bundle.join("config.json"), spec().to_string())?;
    // crun refuses a hybrid host while the empty v2 hierarchy is mounted, and refuses `/` as a
    // root. A separate mount namespace changes both.
    let script = format!(
        "umount /sys/fs/cgroup/unified 2>/dev/null; mount --bind / {bundle}/root || exit 1; n=0; while [ $n -lt {rounds} ]; do \
         crun --cgroup-manager=cgroupfs run --bundle {bundle} headroom-bare-{own}-$n </dev/null || exit 1; n=$((n+1)); done",
        bundle = bundle.display(),
        own = std::process::id()
    );
    let started = Instant::now();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .context("unshare")?;
    let took = started.elapsed().as_secs_f64();
    if !output.status.success() {
        progress::print_line(&format!(
            "crun does not run here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
        return Ok(None);
    }
    Ok(Some(f64::from(rounds) / took))
}

/// The minimal OCI configuration: the host's own files, a pid and a mount namespace, and the same
/// limit.
fn spec() -> serde_json::Value {
    serde_json::json!({
        "ociVersion": "1.0.2",
        "process": { "terminal": false, "user": { "uid": 0, "gid": 0 }, "args": [PROGRAM], "env": ["PATH=/usr/bin:/bin"], "cwd": "/" },
        "root": { "path": "root" },
        "mounts": [{ "destination": "/proc", "type": "proc", "source": "proc" }],
        "linux": {
            "namespaces": [{ "type": "pid" }, { "type": "mount" }],
            "resources": { "memory": { "limit": MEMORY.get() }, "pids": { "limit": 4096 } }
        }
    })
}
