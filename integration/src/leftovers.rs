//! Programs that leave memory behind when they end, each run as a job and followed by an ordinary
//! job on the same node.
//!
//! A [`LeftoverBench`] is a cluster of one node. [`LeftoverBench::play`] runs one program and
//! reports the results of its job and of the next.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_types::{Bytes, EnforcerKind, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, NodeShape, SOON, until};
use crate::host_tmpfs::HostTmpfs;
use crate::jobs::JobFile;

const SOURCE: &str = include_str!("leftovers.c");
/// Tasks that run at once in the one executor of a job of [`cases`].
const SLOTS: u32 = 3;
/// The exit code of a program whose kind of memory this host does not support.
const SKIPPED: i32 = 77;

/// Leaks a segment of `multiprocessing.shared_memory`, by unregistering it from the tracker that
/// would remove it.
const PYTHON: &str = "
import os, sys
from multiprocessing import resource_tracker, shared_memory
size = int(sys.argv[1]) << 20
made = shared_memory.SharedMemory(create=True, size=size, name='headroom-left-py-%s-%d' % (sys.argv[2], os.getpid()))
for at in range(0, size, 4096):
    made.buf[at] = 1
resource_tracker.unregister(made._name, 'shared_memory')
os._exit(0)
";

/// The user that runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskUser {
    /// The user of the node agent.
    Agent,
    /// The unprivileged user of every Linux, started by an agent that is root.
    Nobody,
    /// `games`, which runs nothing else on a host, started by an agent that is root.
    Games,
}

impl TaskUser {
    /// The value of `[isolation] run_as`.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskUser::Agent => "agent",
            TaskUser::Nobody => "nobody",
            TaskUser::Games => "games",
        }
    }
}

/// A program that leaves memory behind.
#[derive(Clone, Copy, Debug)]
pub struct LeftoverCase {
    /// Its name in `leftovers.c`, or `python-shared-memory`.
    pub program: &'static str,
    /// The number of its tasks.
    pub tasks: u32,
    /// The memory that each task leaves, in MiB, for kinds with a size.
    pub mib: u32,
    /// The expected end of its tasks.
    pub ends: LeftoverTaskEnd,
}

/// The end of a program's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftoverTaskEnd {
    /// With exit code 0.
    Well,
    /// By a signal, or at their own limit.
    Killed,
}

/// All programs. The leftovers of three tasks are too large to fit beside the ordinary job.
pub fn cases() -> Vec<LeftoverCase> {
    let case = |program, tasks, mib, ends| LeftoverCase {
        program,
        tasks,
        mib,
        ends,
    };
    let three = |program| case(program, SLOTS, 170, LeftoverTaskEnd::Well);
    vec![
        three("posix-shm"),
        three("sysv-shm"),
        three("python-shared-memory"),
        case("dev-shm-file", 40, 30, LeftoverTaskEnd::Well),
        three("tmp-file"),
        three("memfd-detached"),
        three("posix-shm-detached"),
        three("sockets-detached"),
        three("named-semaphores"),
        three("sysv-semaphores"),
        three("mq"),
        three("sysv-messages"),
        case("huge-pages", SLOTS, 8, LeftoverTaskEnd::Well),
        case("killed-with-shm", SLOTS, 170, LeftoverTaskEnd::Killed),
        case("oom-with-shm", SLOTS, 170, LeftoverTaskEnd::Killed),
    ]
}

/// The shape of a bench's jobs, each with one executor.
#[derive(Clone, Copy, Debug)]
pub struct JobShape {
    /// Tasks that run at once.
    pub slots: u32,
    /// Limit of each. Bytes.
    pub task: Bytes,
}

impl Default for JobShape {
    /// For [`cases`] on a node of 1 GiB.
    fn default() -> Self {
        JobShape {
            slots: SLOTS,
            task: Bytes::from_mib(200),
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftoverRow {
    /// The program.
    pub program: String,
    /// The user that ran its tasks.
    pub user: TaskUser,
    /// The enforcer of the limits.
    pub enforcer: EnforcerKind,
    /// The reason why the program was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Shared memory, semaphores and queues of the program that were on the host after its end.
    pub left: u32,
    /// Attempts of both jobs that were killed for an outer limit or from outside.
    pub collateral: u32,
    /// Whether the ordinary job failed or one of its tasks ran more than once.
    pub poisoned: bool,
    /// Whether the program ended as expected.
    pub right: bool,
}

/// The delays with which a node reported a leak on a tmpfs of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostLeak {
    /// From the report of the container's end to the first answer of `GET /v1/nodes` that counts
    /// the leak.
    pub seen: Duration,
    /// From the removal of the file to the first answer without a leak, from a node that is ready
    /// again.
    pub gone: Duration,
}

/// A cluster of one node.
#[derive(Debug)]
pub struct LeftoverBench {
    cluster: Cluster,
    user: TaskUser,
    enforcer: EnforcerKind,
    program: PathBuf,
    shape: JobShape,
    played: u32,
}

impl LeftoverBench {
    /// Starts a node with this memory. `isolation` holds more keys of `[isolation]`.
    pub fn new(
        memory: Bytes,
        enforcer: Option<EnforcerKind>,
        user: TaskUser,
        isolation: &str,
    ) -> Result<LeftoverBench> {
        let shape = NodeShape {
            memory,
            cpus: 8,
            enforcer,
        };
        let configuration = format!(
            "[isolation]\nrun_as = \"{}\"\nallow_root = true\n{isolation}",
            user.as_str()
        );
        let cluster = Cluster::start_configured(&[shape], &configuration)?;
        let program = compile(&cluster.dir().join("bin"))?;
        let nodes = cluster.call(cluster.client().nodes())?;
        let enforcer = nodes.first().context("no node")?.enforcer;
        Ok(LeftoverBench {
            cluster,
            user,
            enforcer,
            program,
            shape: JobShape::default(),
            played: 0,
        })
    }

    /// Sets the shape of all later jobs.
    #[must_use]
    pub fn shaped(mut self, shape: JobShape) -> LeftoverBench {
        self.shape = shape;
        self
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The enforcer of the limits.
    pub fn enforcer(&self) -> EnforcerKind {
        self.enforcer
    }

    /// Runs the program as a job, and then an ordinary job.
    pub fn play(&mut self, case: &LeftoverCase) -> Result<LeftoverRow> {
        self.played += 1;
        let key = (std::process::id() % 0x400) * 0x20 + self.played % 0x20;
        let job = self.leaving(case, key)?;
        let end = self
            .cluster
            .until_ended(&self.cluster.submit(job.text())?)?;
        let codes = reasons(&end);
        let skipped = codes
            .contains(&ExitReason::Exit { code: SKIPPED })
            .then(|| "not on this host".to_owned());
        let left = self.left(&end, key)?;
        let after = self.ordinary()?;
        let repeated = after
            .job
            .as_ref()
            .is_some_and(|job| job.tasks.iter().any(|task| task.attempts.len() > 1));
        let right = match case.ends {
            LeftoverTaskEnd::Well => end.state == AppState::Finished,
            LeftoverTaskEnd::Killed => {
                end.state == AppState::Failed && codes.iter().all(|reason| is_own_death(*reason))
            }
        };
        Ok(LeftoverRow {
            program: case.program.to_owned(),
            user: self.user,
            enforcer: self.enforcer,
            right: right || skipped.is_some(),
            skipped,
            left,
            collateral: collateral(&end) + collateral(&after),
            poisoned: repeated || after.state != AppState::Finished,
        })
    }

    /// Runs a task that writes a file to a tmpfs of the host and ends. Waits until the node reports
    /// the memory, checks the free memory, removes the file, and waits until the node reports none.
    /// Needs user 0 and an enforcer of the kernel.
    pub fn leak_on_host_tmpfs(&self, size: Bytes) -> Result<HostLeak> {
        let tmpfs = HostTmpfs::mount(self.cluster.dir().join("host-tmpfs"), None)?;
        let file = tmpfs.path().join("left");
        let (of, mib) = (
            format!("of={}", file.display()),
            size.whole_mib().to_string(),
        );
        let job = JobFile::new("leak", 1, 1, size.mul_ratio(5, 4));
        let job = job.stage(
            "leave",
            1,
            &[
                "/bin/dd",
                "if=/dev/zero",
                &of,
                "bs=1M",
                &format!("count={mib}"),
            ],
            "grow = false",
        );
        let app = self.cluster.submit(job.text())?;
        let client = self.cluster.client();
        until("the containers of the job to end", SOON, || {
            let all = self.cluster.call(client.containers(Some(&app)))?;
            Ok(
                (!all.is_empty() && all.iter().all(|container| container.state == "exited"))
                    .then_some(()),
            )
        })?;
        let ended = Instant::now();
        let left = fs::metadata(&file).map_or(0, |file| file.len());
        ensure!(
            left == size.get(),
            "the job left {left} bytes in {}, not {size}",
            file.display()
        );
        let counted = size.mul_ratio(9, 10);
        let node = until("the leftover memory to be counted", SOON, || {
            let node = self
                .cluster
                .call(client.nodes())?
                .into_iter()
                .next()
                .context("no node")?;
            Ok((node.unattributed >= counted).then_some(node))
        })?;
        let seen = ended.elapsed();
        ensure!(
            node.free_memory() <= node.offers.memory.saturating_sub(counted),
            "the leftover memory still counts as free: {} free",
            node.free_memory()
        );
        fs::remove_file(&file)?;
        let removed = Instant::now();
        until("the memory of the node to be free again", SOON, || {
            let node = self
                .cluster
                .call(client.nodes())?
                .into_iter()
                .next()
                .context("no node")?;
            Ok((node.unattributed.is_zero() && node.state == "ready").then_some(()))
        })?;
        Ok(HostLeak {
            seen,
            gone: removed.elapsed(),
        })
    }

    /// The job of a program. It does not retry failed tasks.
    fn leaving(&self, case: &LeftoverCase, key: u32) -> Result<JobFile> {
        let mib = case.mib.to_string();
        let key = key.to_string();
        let program = self.program.to_str().context("UTF-8")?;
        let command = match case.program {
            "python-shared-memory" => vec!["/usr/bin/python3", "-c", PYTHON, &mib, &key],
            kind => vec![program, kind, &mib, &key],
        };
        let job = JobFile::new(
            &format!("left-{}", self.played),
            1,
            self.shape.slots,
            self.shape.task,
        );
        Ok(job.stage(
            "leave",
            case.tasks,
            &command,
            "grow = false\n[retry]\nmax_attempts = 1\nmemory_attempts = 1",
        ))
    }

    /// Runs a job whose tasks touch memory briefly, to its end.
    pub fn ordinary(&self) -> Result<AppView> {
        let program = self.program.to_str().context("UTF-8")?;
        let mib = (self.shape.task.whole_mib() * 17 / 20).to_string();
        let job = JobFile::new(
            &format!("ordinary-{}", self.played),
            1,
            self.shape.slots,
            self.shape.task,
        );
        let job = job.stage("use", self.shape.slots, &[program, "ordinary", &mib], "");
        self.cluster.until_ended(&self.cluster.submit(job.text())?)
    }

    /// Counts the objects of the ended job on the host. The executor frees a task's memory before
    /// the end of the container is reported, so this waits for the containers first.
    fn left(&self, end: &AppView, key: u32) -> Result<u32> {
        let client = self.cluster.client();
        until("the containers of the job to end", SOON, || {
            let all = self.cluster.call(client.containers(Some(&end.id)))?;
            Ok(all
                .iter()
                .all(|container| container.state == "exited")
                .then_some(()))
        })?;
        let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let of_key =
            |name: &str| name.contains("headroom-left-") && name.contains(&format!("-{key}-"));
        let files = names
            .filter(|entry| of_key(&entry.file_name().to_string_lossy()))
            .count();
        let ipc = ["shm", "sem", "msg"]
            .iter()
            .map(|kind| ids(Path::new("/proc/sysvipc").join(kind).as_path(), key))
            .sum::<usize>();
        Ok(u32::try_from(files + ipc)?)
    }
}

/// Counts the SysV objects whose key has `key` as its upper half.
fn ids(table: &Path, key: u32) -> usize {
    let text = fs::read_to_string(table).unwrap_or_default();
    let keys = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    keys.filter(|found| found >> 16 == i64::from(key)).count()
}

fn reasons(view: &AppView) -> Vec<ExitReason> {
    let tasks = view.job.iter().flat_map(|job| &job.tasks);
    tasks
        .flat_map(|task| &task.attempts)
        .filter_map(|attempt| attempt.reason)
        .collect()
}

/// True if a signal or its own limit killed the program.
fn is_own_death(reason: ExitReason) -> bool {
    matches!(
        reason,
        ExitReason::TaskOom | ExitReason::Signal { .. } | ExitReason::KilledExternally
    )
}

fn collateral(view: &AppView) -> u32 {
    let hit = reasons(view)
        .iter()
        .filter(|reason| matches!(reason, ExitReason::AncestorOom | ExitReason::NodeOom))
        .count();
    u32::try_from(hit).unwrap_or(u32::MAX)
}

/// Compiles `leftovers.c` into `dir`.
pub fn compile(dir: &Path) -> Result<PathBuf> {
    let (source, program) = (dir.join("leftovers.c"), dir.join("leftovers"));
    fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(&source)
        .args(["-lrt", "-pthread"])
        .output();
    let output = output.context("cc: `apt-get install -y gcc libc6-dev`")?;
    ensure!(
        output.status.success(),
        "cc: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(program)
}
