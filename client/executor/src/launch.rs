//! Start of one task: its files, its cgroup, its process, in this order. A failed step undoes the
//! earlier ones.
//!
//! The process has one of two origins: the executor spawns it, or a fork server creates it (see
//! `warm_start`). The other steps are the same. All steps may block for a moment, so the task calls
//! them on a separate thread. A spawned process is cloned into its cgroup and can run out of memory
//! at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use headroom_node_exec::{ChildProcess, ExecArguments, SpawnCommand, SpawnError};
use headroom_types::{Bytes, Remedy, UnixMillis};
use headroom_wire::v1::task::TaskStart;

use crate::children::{ExecutorChildren, RegisteredChild};
use crate::clock;
use crate::environment::ExecutorSettings;
use crate::fork_server::ForkServerFailure;
use crate::fork_servers::ForkServers;
use crate::growth::TaskGrowth;
use crate::kept_process::{KeptProcess, KeptProcesses};
use crate::limits::has_remedy;
use crate::log_pool::LogPool;
use crate::logs::TaskFiles;
use crate::payload::{FileReuse, PayloadFiles, PayloadPool};
use crate::spawn_failure::exec_failure_code;
use crate::task_namespaces::TaskNamespaces;
use crate::taskgroup::{ContainerCgroup, TaskGroup};

/// Added to the executor's `oom_score_adj` for tasks, so that the kernel kills a task before the
/// executor.
const TASK_OOM_SCORE_OFFSET: i32 = 300;

/// The same for fork servers: the kernel kills a task before them, and them before the executor.
const FORK_SERVER_OOM_SCORE_OFFSET: i32 = 150;

/// Context that all tasks of the executor share.
#[derive(Debug)]
pub struct LaunchContext {
    /// Environment of the executor.
    pub environment: ExecutorSettings,
    /// The container.
    pub container: ContainerCgroup,
    /// Default working directory of tasks.
    pub work_dir: PathBuf,
    /// `oom_score_adj` of tasks.
    pub oom_score_adj: i32,
    /// `oom_score_adj` of fork servers.
    pub fork_server_oom_score_adj: i32,
    /// Children of the executor.
    pub children: ExecutorChildren,
    /// Fork servers.
    pub fork_servers: ForkServers,
    /// Their processes that wait for another attempt.
    pub kept: KeptProcesses,
    /// Input and value files.
    pub payloads: Arc<PayloadPool>,
    /// Empty logs of ended attempts.
    pub logs: Arc<LogPool>,
    /// Namespaces of each task.
    pub namespaces: TaskNamespaces,
}

impl LaunchContext {
    /// The context for `environment`, with the caller's working directory.
    pub fn new(environment: ExecutorSettings) -> anyhow::Result<LaunchContext> {
        let nowhere = PathBuf::from("/");
        let path = environment.cgroup.as_deref().unwrap_or(&nowhere);
        let container = ContainerCgroup::attach(environment.enforcer, path)
            .with_context(|| format!("the container's cgroup {} cannot be used", path.display()))?;
        let work_dir =
            std::env::current_dir().context("the working directory does not exist any more")?;
        let own: i32 = std::fs::read_to_string("/proc/self/oom_score_adj")
            .ok()
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(0);
        let reuse = if environment.enforcer.is_kernel() {
            FileReuse::Allowed
        } else {
            FileReuse::Never
        };
        let payloads = PayloadPool::new(environment.dir.join("tasks"), reuse);
        let namespaces = TaskNamespaces::new(environment.task_shm);
        let oom_score_adj = (own + TASK_OOM_SCORE_OFFSET).min(1000);
        Ok(LaunchContext {
            environment,
            container,
            work_dir,
            oom_score_adj,
            fork_server_oom_score_adj: (own + FORK_SERVER_OOM_SCORE_OFFSET).min(1000),
            children: ExecutorChildren::default(),
            fork_servers: ForkServers::default(),
            kept: KeptProcesses::default(),
            payloads: Arc::new(payloads),
            logs: Arc::new(LogPool::new(reuse)),
            namespaces,
        })
    }
}

/// A task whose process runs.
#[derive(Debug)]
pub struct LaunchedTask {
    /// Its process.
    pub child: ChildProcess,
    /// The registration of the process.
    pub registered: RegisteredChild,
    /// Its cgroup.
    pub group: Arc<TaskGroup>,
    /// Its logs.
    pub files: TaskFiles,
    /// The executor's end of the gate of a forked process.
    pub gate: Option<OwnedFd>,
    /// The growth of a process that served an attempt before.
    pub growth: Option<TaskGrowth>,
    /// Bytes that the process read before.
    pub read_before: Bytes,
    /// Time at which its program started.
    pub started: UnixMillis,
    /// The same moment on the monotonic clock.
    pub started_at: Instant,
}

/// Files, environment and working directory of a task that has neither a cgroup nor a process.
#[derive(Debug)]
pub(crate) struct TaskSurroundings {
    /// Its files.
    pub(crate) files: TaskFiles,
    /// The whole environment of its process.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub(crate) cwd: PathBuf,
}

/// A task without a process: everything else exists.
#[derive(Debug)]
pub(crate) struct PreparedTask {
    /// Its files, environment and working directory.
    pub(crate) surroundings: TaskSurroundings,
    /// Its cgroup.
    pub(crate) group: TaskGroup,
}

impl TaskSurroundings {
    /// Creates the files of a task.
    pub(crate) fn create(
        site: &LaunchContext,
        start: &TaskStart,
    ) -> anyhow::Result<TaskSurroundings> {
        anyhow::ensure!(!start.command.is_empty(), "the command is empty");
        let files = TaskFiles::create(&site.environment.dir, (&site.logs, &site.payloads), start)
            .context("the log files of the task cannot be created")?;
        if let Some(output) = &start.output {
            own_directory(Path::new(output))
                .with_context(|| format!("the output directory {output} cannot be created"))?;
        }
        let env = environment(site, start, &files)?;
        let cwd = site.work_dir.join(start.cwd.as_deref().unwrap_or("."));
        Ok(TaskSurroundings { files, env, cwd })
    }

    /// Creates the cgroup of the task.
    pub(crate) fn with_group(
        self,
        site: &LaunchContext,
        start: &TaskStart,
    ) -> anyhow::Result<PreparedTask> {
        let group = site
            .container
            .create(start)
            .context("the cgroup of the task cannot be created")?;
        match arm_throttle(start, &group) {
            Ok(()) => Ok(PreparedTask {
                surroundings: self,
                group,
            }),
            Err(e) => {
                discard_group(site, start, &group);
                Err(e)
            }
        }
    }

    /// The task with a process that served an attempt before.
    pub(crate) fn launched_again(self, process: KeptProcess) -> LaunchedTask {
        LaunchedTask {
            child: process.child,
            registered: process.registered,
            group: process.group,
            files: self.files,
            gate: Some(process.gate),
            growth: process.growth,
            read_before: process.read,
            started: clock::now(),
            started_at: Instant::now(),
        }
    }
}

impl PreparedTask {
    /// The task with its process, and the gate of a forked one.
    pub(crate) fn launched(
        self,
        child: ChildProcess,
        registered: RegisteredChild,
        gate: Option<OwnedFd>,
    ) -> LaunchedTask {
        self.group.group().set_root_pid(child.pid);
        LaunchedTask {
            child,
            registered,
            group: Arc::new(self.group),
            files: self.surroundings.files,
            gate,
            growth: None,
            read_before: Bytes::ZERO,
            started: clock::now(),
            started_at: Instant::now(),
        }
    }

    /// Removes the cgroup of a task that does not start.
    pub(crate) fn discard(self, site: &LaunchContext, start: &TaskStart) {
        discard_group(site, start, &self.group);
    }
}

/// Starts a task as a program.
pub fn launch(site: &LaunchContext, start: &TaskStart) -> anyhow::Result<LaunchedTask> {
    let prepared = TaskSurroundings::create(site, start)?.with_group(site, start)?;
    let opened = site.children.open_start();
    match spawn_program(site, start, &prepared) {
        Ok(child) => {
            let registered = opened.register(&child);
            Ok(prepared.launched(child, registered, None))
        }
        Err(e) => {
            prepared.discard(site, start);
            Err(e)
        }
    }
}

fn discard_group(site: &LaunchContext, start: &TaskStart, group: &TaskGroup) {
    if let Err(left) = group.clear().and_then(|_| site.container.remove(group)) {
        tracing::warn!(attempt = %start.attempt, error = %left, "the cgroup of an unstarted task cannot be removed");
    }
}

/// The exit code that shows a mistake in the task, not on its node: that of `exec_failure_code`,
/// or that of a fork server that cannot run. `None` for other errors, which may not occur elsewhere.
pub fn program_code(error: &anyhow::Error) -> Option<i32> {
    if let Some(failure) = error.downcast_ref::<ForkServerFailure>() {
        return failure.exit_code;
    }
    exec_failure_code(error.downcast_ref::<SpawnError>()?)
}

/// Creates the output directory of this attempt. An existing directory is an error, because it has
/// another owner.
fn own_directory(output: &Path) -> std::io::Result<()> {
    output.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::create_dir(output)
}

/// Arms the throttle before the start, so that a task that may grow is not killed before the master
/// can react.
fn arm_throttle(start: &TaskStart, group: &TaskGroup) -> anyhow::Result<()> {
    match start.limit.filter(|_| start.freeze_timeout_ms.is_some()) {
        Some(limit) => group
            .group()
            .throttle_at(limit)
            .context("the throttle of the task cannot be set"),
        None => Ok(()),
    }
}

/// Arms growth if the start requests it and the kernel enforces the limit.
pub(crate) fn arm_growth(start: &TaskStart, group: &TaskGroup) -> Option<TaskGrowth> {
    let (limit, freeze_timeout_ms) = (
        start.limit?,
        start
            .freeze_timeout_ms
            .filter(|_| group.kind().is_kernel())?,
    );
    match TaskGrowth::arm(group.group(), limit, freeze_timeout_ms) {
        Ok(growth) => Some(growth),
        Err(error) => {
            tracing::warn!(attempt = %start.attempt, %error, "the task cannot grow while it runs");
            if let Err(error) = group.group().unthrottle() {
                tracing::warn!(attempt = %start.attempt, %error, "the task may stay throttled at its limit");
            }
            None
        }
    }
}

/// The whole environment of the process of a task. Creates its directory for temporary files, if it
/// has one.
fn environment(
    site: &LaunchContext,
    start: &TaskStart,
    files: &TaskFiles,
) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let mut env = task_env(&site.environment.for_tasks, start, files);
    if let Some(dir) = tmp_on_disk(&site.environment.dir, start) {
        std::fs::create_dir_all(&dir).with_context(|| {
            format!(
                "the directory for temporary files {} cannot be created",
                dir.display()
            )
        })?;
        env.retain(|(name, _)| !TMP_VARIABLES.iter().any(|variable| name == variable));
        env.extend(TMP_VARIABLES.map(|variable| (variable.into(), dir.clone().into())));
    }
    Ok(env)
}

fn spawn_program(
    site: &LaunchContext,
    start: &TaskStart,
    prepared: &PreparedTask,
) -> anyhow::Result<ChildProcess> {
    let procs_files = prepared.group.group().procs_files();
    let TaskSurroundings { files, env, cwd } = &prepared.surroundings;
    let arguments = ExecArguments::new(&start.command, env)?;
    let command = SpawnCommand {
        stdout: Some(&files.out),
        stderr: Some(&files.err),
        procs_files: &procs_files,
        new_session: true,
        oom_score_adj: Some(site.oom_score_adj),
        ..SpawnCommand::new(&arguments, cwd)
    };
    Ok(site.namespaces.spawn(&command)?)
}

/// Variables that name the directory for temporary files.
const TMP_VARIABLES: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];

/// Directory of the attempt for temporary files on disk, below that of the container; `None`
/// without the remedy.
pub(crate) fn tmp_on_disk(dir: &Path, start: &TaskStart) -> Option<PathBuf> {
    has_remedy(start, Remedy::TmpOnDisk)
        .then(|| dir.join("tmp-on-disk").join(start.attempt.file_name()))
}

/// The environment of a task: variables of the container, then of the task, then of the master.
/// Later ones override earlier ones.
fn task_env(
    base: &[(OsString, OsString)],
    start: &TaskStart,
    files: &TaskFiles,
) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<OsString, OsString> = base.iter().cloned().collect();
    let mut set = |name: &str, value: OsString| env.insert(name.into(), value);
    let id = &start.attempt;
    set("HEADROOM_TASK", id.task.to_string().into());
    set("HEADROOM_STAGE", id.task.stage.to_string().into());
    set("HEADROOM_INDEX", id.task.index.to_string().into());
    set("HEADROOM_ATTEMPT", id.attempt.to_string().into());
    set("HEADROOM_SLOTS", start.slots.to_string().into());
    set("HEADROOM_OOM_MARKER", files.marker_path().into());
    set("HEADROOM_CACHED_BYTES", files.cached_path().into());
    for (name, path) in files.payload.iter().flat_map(PayloadFiles::variables) {
        set(name, path.into());
    }
    if let Some(limit) = start.limit {
        set("HEADROOM_MEMORY_BYTES", limit.get().to_string().into());
    }
    if let Some(heap) = start.heap {
        set("HEADROOM_HEAP_BYTES", heap.get().to_string().into());
    }
    env.extend(
        start
            .env
            .iter()
            .map(|(key, value)| (key.into(), value.into())),
    );
    env.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::samples::start;

    #[test]
    fn variables_of_the_master_override_those_of_the_container() {
        let start = TaskStart {
            env: [("HEADROOM_RUNG", "3"), ("LANG", "de")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            slots: 2,
            limit: Some(Bytes::new(4096)),
            input: Some("text".into()),
            ..start("map/7@2")
        };
        let dir = tempfile::tempdir().expect("tempdir");
        let payloads = PayloadPool::new(dir.path().join("tasks"), FileReuse::Allowed);
        let pools = (
            &Arc::new(LogPool::new(FileReuse::Allowed)),
            &Arc::new(payloads),
        );
        let files = TaskFiles::create(dir.path(), pools, &start).expect("creates");
        let base = [
            ("LANG", "C.UTF-8"),
            ("PATH", "/bin"),
            ("HEADROOM_MEMORY_BYTES", "1"),
        ]
        .map(|(k, v)| (k.into(), v.into()));
        let env = task_env(&base, &start, &files);
        let tasks = format!("{}/tasks", dir.path().display());
        let text: Vec<String> = env
            .iter()
            .map(|(k, v)| format!("{}={}", k.to_string_lossy(), v.to_string_lossy()))
            .map(|pair| pair.replace(&tasks, "/t"))
            .collect();
        let wanted = [
            "HEADROOM_ATTEMPT=2",
            "HEADROOM_CACHED_BYTES=/t/map-7-2.cached",
            "HEADROOM_INDEX=7",
            "HEADROOM_INPUT_FILE=/t/payload-1.input",
            "HEADROOM_MEMORY_BYTES=4096",
            "HEADROOM_OOM_MARKER=/t/map-7-2.oom-marker",
            "HEADROOM_RUNG=3",
            "HEADROOM_SLOTS=2",
            "HEADROOM_STAGE=map",
            "HEADROOM_TASK=map/7",
            "HEADROOM_VALUE_FILE=/t/payload-1.value",
            "LANG=de",
            "PATH=/bin",
        ];
        assert_eq!(text, wanted);
    }
}
