//! Growth of running tasks: kills with and without it, and the wait of a task.
//!
//! The first part runs jobs on a cluster of the real daemons. Each has four parallel tasks that
//! need three times their limit. It counts the kernel's kills, and takes the executor's own
//! measurement from the freeze of a task to the verified new limit.
//!
//! The second part runs one real executor with a fake master. It measures from the kernel's
//! notification to the pressure line at the master. A thread of this program with real-time
//! priority receives the notification by watching the same files as the executor.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use headroom_executor::growth::is_pressed;
use headroom_node_cgroup::throttle::pressure_threshold;
use headroom_node_cgroup::{
    EnforcedGroup, Enforcer, EnforcerRequest, GroupLimits, MemoryEventWatch, detect,
};
use headroom_node_exec::{ChildProcess, spawn};
use headroom_types::{Bytes, TaskAttemptId};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::task::{FromExecutor, TaskStart, ToExecutor};
use integration::cluster::{Cluster, NodeShape};
use integration::jobs::{JobFile, WorkLog};
use integration::{clock, programs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::quantiles::{millis, quantile};
use crate::{guest_run, progress};

/// Limit of a task.
const LIMIT: Bytes = Bytes::from_mib(48);
/// Need of a task: three times the limit. MiB.
const NEEDS: &str = "144";
/// Duration in which a task allocates its memory. Milliseconds.
const OVER: &str = "300";
/// Parallel tasks of one job.
const AT_ONCE: u32 = 4;
/// Timeout of one step.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of polls.
const GLANCE: Duration = Duration::from_millis(2);
/// Timeout of a round in a guest on a busy machine.
const ROUND: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-secret-of-growth";

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct GrowthResults {
    enforcer: String,
    /// Number of tasks of the jobs with growth, of the jobs without, and of the fake master.
    rounds: u32,
    kills_without: u32,
    kills_with: u32,
    /// Number of limit increases.
    grown: u32,
    pressure_to_master_p50_ms: f64,
    pressure_to_master_p99_ms: f64,
    pressure_to_limit_p50_ms: f64,
    pressure_to_limit_p99_ms: f64,
}

/// As `measure`, in a guest with cgroup v2.
pub(crate) fn in_a_guest(rounds: u32) -> Result<Map<String, Value>> {
    guest_run::in_a_guest(
        &["growth", "--rounds", &rounds.to_string()],
        Duration::from_secs(300) + ROUND * rounds,
    )
}

/// Runs both parts.
pub(crate) fn measure(rounds: u32) -> Result<GrowthResults> {
    let jobs = rounds.div_ceil(AT_ONCE);
    let (mut kills_with, mut kills_without, mut grown, mut held) = (0, 0, 0, Vec::new());
    let shape = NodeShape {
        memory: Bytes::from_mib(1536),
        cpus: 8,
        enforcer: None,
    };
    let cluster = Cluster::start(&[shape])?;
    for n in 0..jobs {
        let with = job(&cluster, &format!("growing-{n}"), "")?;
        let without = job(&cluster, &format!("killing-{n}"), "grow = false")?;
        let totals = |view: &AppView| {
            view.job
                .as_ref()
                .map(|job| job.totals.clone())
                .context("no job")
        };
        kills_with += totals(&with)?.memory_kills;
        kills_without += totals(&without)?.memory_kills;
        grown += totals(&with)?.grown;
        held.extend(holds(&with)?);
        progress::print_line(&format!(
            "job {n}: {kills_with} kills with growth, {kills_without} without"
        ));
    }
    drop(cluster);
    let (delays, enforcer) = measure_delays(jobs * AT_ONCE)?;
    let at = |times: &[u128], percent| {
        quantile(times, percent)
            .map(millis)
            .context("nothing was measured")
    };
    Ok(GrowthResults {
        enforcer,
        rounds: jobs * AT_ONCE,
        kills_without,
        kills_with,
        grown,
        pressure_to_master_p50_ms: at(&delays, 50)?,
        pressure_to_master_p99_ms: at(&delays, 99)?,
        pressure_to_limit_p50_ms: at(&held, 50)?,
        pressure_to_limit_p99_ms: at(&held, 99)?,
    })
}

/// Runs four parallel tasks that need three times their limit. The job must finish.
fn job(cluster: &Cluster, name: &str, more: &str) -> Result<AppView> {
    let log = WorkLog::at(cluster.dir().join(format!("{name}.log")));
    let command = workload(log.path(), &["--mib", NEEDS, "--over-ms", OVER])?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let job = JobFile::new(name, 1, AT_ONCE, LIMIT).stage("large", AT_ONCE, &command, more);
    let app = cluster.submit(job.text())?;
    let end = cluster.until_ended(&app)?;
    ensure!(
        end.state == AppState::Finished,
        "{name} ended as {}: {}",
        end.state.as_str(),
        end.diagnostics
    );
    Ok(end)
}

/// Times from the freeze of each task to its new limit. Nanoseconds.
fn holds(end: &AppView) -> Result<Vec<u128>> {
    let job = end.job.as_ref().context("no job")?;
    let grown = job
        .tasks
        .iter()
        .flat_map(|task| &task.attempts)
        .flat_map(|attempt| &attempt.grown);
    Ok(grown
        .filter_map(|growth| growth.frozen_us)
        .map(|us| u128::from(us) * 1000)
        .collect())
}

fn workload(log: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let (program, log) = (programs::path("workload")?, log.display().to_string());
    let words = [
        program.display().to_string(),
        "run".to_owned(),
        "--log".to_owned(),
        log,
    ];
    Ok(words
        .into_iter()
        .chain(arguments.iter().map(|word| (*word).to_owned()))
        .collect())
}

/// Times from the kernel's notification to the master's line in nanoseconds, and the enforcer.
fn measure_delays(rounds: u32) -> Result<(Vec<u128>, String)> {
    let mut lone = SingleExecutor::start()?;
    let mut times = Vec::new();
    for n in 0..rounds {
        times.extend(lone.round(n).with_context(|| format!("round {n}"))?);
    }
    progress::print_line(&format!(
        "{} of {rounds} pressure notifications were seen by both",
        times.len()
    ));
    let kind = lone.container()?.kind().to_string();
    lone.close()?;
    Ok((times, kind))
}

/// An executor in its own container, and its connection.
struct SingleExecutor {
    dir: tempfile::TempDir,
    enforcer: Enforcer,
    group: Option<EnforcedGroup>,
    executor: ChildProcess,
    write: TcpStream,
    read: BufReader<TcpStream>,
}

impl SingleExecutor {
    fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-growth-")
            .tempdir()
            .context("a directory")?;
        let name = format!("headroom-growth-{}", std::process::id());
        let enforcer = detect(&EnforcerRequest {
            kind: None,
            root: None,
            name,
            attached: false,
        })?
        .enforcer;
        ensure!(
            enforcer.kind().is_kernel(),
            "the kernel must enforce the limits here"
        );
        let group = enforcer.create(
            "c1",
            &GroupLimits {
                memory: Some(Bytes::from_mib(1024)),
                ..GroupLimits::default()
            },
        )?;
        let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
        let executor = executor(dir.path(), &group, listener.local_addr()?.port())?;
        let (write, _) = listener.accept().context("the executor")?;
        write.set_read_timeout(Some(TIMEOUT))?;
        write.set_nodelay(true)?;
        let read = BufReader::new(write.try_clone()?);
        Ok(SingleExecutor {
            dir,
            enforcer,
            group: Some(group),
            executor,
            write,
            read,
        })
    }

    fn container(&self) -> Result<&EnforcedGroup> {
        self.group.as_ref().context("the executor is closed")
    }

    /// Runs one task that reaches its limit once. `None` if it ended before this program read the
    /// counters.
    fn round(&mut self, n: u32) -> Result<Option<u128>> {
        let gate = self.dir.path().join(format!("gate-{n}"));
        let gate_text = gate.display().to_string();
        let arguments = ["--mib", "96", "--over-ms", "200", "--after", &gate_text];
        let start = TaskStart {
            attempt: format!("near/{n}@1").parse().context("a task's name")?,
            command: workload(&self.dir.path().join("log"), &arguments)?,
            env: std::collections::BTreeMap::new(),
            cwd: None,
            slots: 1,
            limit: Some(LIMIT),
            heap: None,
            heap_exit_codes: Vec::new(),
            timeout_ms: None,
            freeze_timeout_ms: Some(60_000),
            output: None,
            input: None,
            fork_server: Vec::new(),
        };
        let attempt = start.attempt.clone();
        self.send(&ToExecutor::Start(Box::new(start)))?;
        self.until(|line| matches!(line, FromExecutor::Started { .. }))?;
        let watch = Pressure::of(self.container()?, &attempt)?;
        let watcher = std::thread::spawn(move || watch.wait());
        std::fs::write(&gate, "").context("opening the gate")?;
        self.until(|line| matches!(line, FromExecutor::Pressure { .. }))?;
        let received = Instant::now();
        self.send(&ToExecutor::Resize {
            attempt: attempt.clone(),
            limit: Bytes::from_mib(256),
        })?;
        self.until(|line| matches!(line, FromExecutor::Ended { .. }))?;
        self.send(&ToExecutor::Ack { attempt })?;
        let Ok(rang) = watcher.join() else {
            bail!("the watching thread has ended")
        };
        // The executor can handle the same event before this thread runs; the difference then
        // counts as 0.
        Ok(rang?.map(|rang| received.saturating_duration_since(rang).as_nanos()))
    }

    fn send(&mut self, message: &ToExecutor) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.write.write_all(&line).context("to the executor")
    }

    fn until(&mut self, mut wanted: impl FnMut(&FromExecutor) -> bool) -> Result<()> {
        loop {
            let mut line = String::new();
            let n = self
                .read
                .read_line(&mut line)
                .context("a line of the executor")?;
            ensure!(n > 0, "the executor closed the connection");
            if wanted(&serde_json::from_str(&line).with_context(|| line.clone())?) {
                return Ok(());
            }
        }
    }

    fn close(mut self) -> Result<()> {
        self.send(&ToExecutor::Shutdown)?;
        self.executor.wait().context("the end of the executor")?;
        Ok(())
    }
}

impl Drop for SingleExecutor {
    fn drop(&mut self) {
        // The executor may have ended already. A leftover cgroup is found by the tests that check
        // for cgroups.
        let _ = self.executor.signal(9);
        if let Some(group) = self.group.take() {
            let _ = group
                .kill()
                .and_then(|()| group.remove(Duration::from_secs(10)));
        }
        let _ = self.enforcer.remove_root();
    }
}

fn executor(dir: &Path, group: &EnforcedGroup, port: u16) -> Result<ChildProcess> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let of = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let env = [
        ("PATH".into(), path),
        of("LANG", "C.UTF-8"),
        of("HEADROOM_MASTER_URL", &format!("tcp://127.0.0.1:{port}")),
        of("HEADROOM_APP_TOKEN", TOKEN),
        of("HEADROOM_SLOTS", "1"),
        of("HEADROOM_APP", "growth.1"),
        of("HEADROOM_CONTAINER", "growth.1.e1.c1"),
        of("HEADROOM_CONTAINER_DIR", &dir.display().to_string()),
        of("HEADROOM_ENFORCER", group.kind().as_str()),
        of(
            "HEADROOM_CGROUP",
            &group.path().context("its cgroup")?.display().to_string(),
        ),
    ];
    let log = std::fs::File::create(dir.join("stderr"))?;
    let (program, procs) = (programs::path("executor")?, group.procs_files());
    let arguments = headroom_node_exec::ExecArguments::new([&program], &env)?;
    let command = headroom_node_exec::SpawnCommand {
        stderr: Some(&log),
        procs_files: &procs,
        new_session: true,
        ..headroom_node_exec::SpawnCommand::new(&arguments, dir)
    };
    Ok(spawn(&command)?)
}

/// The kernel's notification for one task.
struct Pressure {
    task: EnforcedGroup,
    watch: MemoryEventWatch,
}

impl Pressure {
    fn of(container: &EnforcedGroup, attempt: &TaskAttemptId) -> Result<Self> {
        let deadline = Instant::now() + TIMEOUT;
        let name = attempt.file_name();
        let task = loop {
            if let Some((_, task)) = container.tasks()?.into_iter().find(|(n, _)| *n == name) {
                break task;
            }
            ensure!(
                Instant::now() < deadline,
                "the task's cgroup does not exist"
            );
            clock::pause(GLANCE);
        };
        let watch = match MemoryEventWatch::usage(&task, pressure_threshold(LIMIT))? {
            Some(watch) => watch,
            None => MemoryEventWatch::open(&task)?.context("a watch of its events")?,
        };
        Ok(Pressure { task, watch })
    }

    /// Time of the kernel's first notification of pressure; `None` if the cgroup was removed before
    /// it was read.
    fn wait(self) -> Result<Option<Instant>> {
        go_first()?;
        let most = Timespec {
            tv_sec: i64::try_from(TIMEOUT.as_secs())?,
            tv_nsec: 0,
        };
        loop {
            let ready = poll(&mut [PollFd::new(&self.watch, PollFlags::IN)], Some(&most))
                .context("the kernel's notification")?;
            let rang = Instant::now();
            ensure!(
                ready > 0,
                "no pressure notification for {} s",
                TIMEOUT.as_secs()
            );
            self.watch.clear()?;
            let Ok(facts) = self.task.facts() else {
                return Ok(None);
            };
            if is_pressed(&facts, LIMIT) {
                return Ok(Some(rang));
            }
        }
    }
}

/// Gives this thread real-time priority.
fn go_first() -> Result<()> {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let done = Command::new("chrt")
        .args(["-f", "-p", "10", &own])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let done = done.context("chrt: `apt-get install -y util-linux`")?;
    ensure!(
        done.success(),
        "chrt: only root may set a real-time priority"
    );
    Ok(())
}
