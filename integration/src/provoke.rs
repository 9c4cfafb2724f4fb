//! Programs that each run out of one kind of memory, run as real tasks in real cgroups, and the
//! check of their diagnosis.
//!
//! A [`DiagnosisBench`] is a container with the executor's own code in this process: the launch,
//! the measurement, the verdict and the rules are the shipped ones. The creator owns it; dropping
//! it removes its cgroups and files.

mod cases;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_executor::environment::ExecutorSettings;
use headroom_executor::launch::LaunchContext;
use headroom_executor::session::TaskControl;
use headroom_executor::task::{self, TaskChannels};
use headroom_node_cgroup::{EnforcedGroup, Enforcer, EnforcerRequest, GroupLimits, detect};
use headroom_types::{Bytes, Certainty, EnforcerKind, StopCause, SubCause, TaskReport};
use headroom_wire::v1::task::TaskStart;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::programs::compile_go;

pub use cases::{DiagnosisCase, Needs, cases};

/// Timeout of a task, for a machine with twenty times the load it can handle. A task beyond it is
/// stopped and counts as wrong.
const LONGEST: Duration = Duration::from_secs(600);
/// Timeout for the removal of cgroups.
const REMOVAL: Duration = Duration::from_secs(10);
/// Memory of the container around the tasks.
const CONTAINER: Bytes = Bytes::from_mib(900);

/// One row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiagnosisRow {
    /// The program.
    pub program: String,
    /// The runtime of its memory.
    pub runtime: String,
    /// The first sub-cause of the diagnosis; `unnamed` without one.
    pub named: SubCause,
    /// The expected sub-cause.
    pub expected: SubCause,
    /// The certainty of the diagnosis.
    pub certainty: Option<Certainty>,
    /// The cure.
    pub fix: String,
    /// The size that suffices together with the cure. MiB.
    pub would_fit_mib: Option<u64>,
    /// Whether the first sub-cause is the expected one.
    pub right: bool,
}

impl DiagnosisRow {
    /// The row for a report on `case`.
    pub fn of(case: &DiagnosisCase, report: &TaskReport) -> DiagnosisRow {
        let first = report.diagnosis.first();
        let named = first.map_or(SubCause::Unnamed, |row| row.name);
        DiagnosisRow {
            program: case.program.to_owned(),
            runtime: case.runtime.to_owned(),
            named,
            expected: case.expected,
            certainty: first.map(|row| row.certainty),
            fix: first.map(|row| row.fix.clone()).unwrap_or_default(),
            would_fit_mib: first.and_then(|row| row.would_fit).map(Bytes::whole_mib),
            right: named == case.expected,
        }
    }
}

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The built `provoke`.
    pub native: PathBuf,
    /// The directory of `Provoke.java` and the scripts.
    pub sources: PathBuf,
    /// The directory of its classes.
    pub classes: PathBuf,
    /// The compiled `provoke.go`.
    pub go: PathBuf,
    /// A file on a tmpfs that only this bench uses.
    pub in_memory: PathBuf,
    /// A directory for files on a disk.
    pub dir: PathBuf,
}

impl Programs {
    /// Paths of programs that are compiled into `dir`; `name` is a file name on a tmpfs.
    pub fn new(native: &Path, dir: &Path, name: &str) -> Programs {
        Programs {
            native: native.to_owned(),
            sources: Path::new(env!("CARGO_MANIFEST_DIR")).join("provoke"),
            classes: dir.join("classes"),
            go: dir.join("provoke-go"),
            in_memory: PathBuf::from(format!("/dev/shm/{name}")),
            dir: dir.to_owned(),
        }
    }

    /// Compiles the program of a case on first use.
    pub fn compile(&self, needs: Needs) -> Result<()> {
        match needs {
            Needs::Java if !self.classes.exists() => {
                let source = self.sources.join("Provoke.java");
                let mut command = std::process::Command::new("javac");
                let output = command
                    .arg("-d")
                    .arg(&self.classes)
                    .arg(source)
                    .output()
                    .context("javac")?;
                ensure!(
                    output.status.success(),
                    "javac: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                Ok(())
            }
            Needs::Go if !self.go.exists() => {
                compile_go(&self.sources.join("provoke.go"), &self.go)
            }
            Needs::Nothing | Needs::Java | Needs::Node | Needs::Python | Needs::Go => Ok(()),
        }
    }
}

/// A container for tasks that are meant to fail.
#[derive(Debug)]
pub struct DiagnosisBench {
    /// Removed with the bench.
    _dir: tempfile::TempDir,
    programs: Programs,
    site: Arc<LaunchContext>,
    group: Option<EnforcedGroup>,
    enforcer: Option<Enforcer>,
    runtime: tokio::runtime::Runtime,
}

impl DiagnosisBench {
    /// Creates the container. `native` is the built program `provoke`.
    pub fn new(name: &str, native: &Path) -> Result<DiagnosisBench> {
        let dir = tempfile::tempdir().context("a directory")?;
        let wanted = EnforcerRequest {
            kind: None,
            root: None,
            name: format!("headroom-{name}-{}", std::process::id()),
            attached: false,
        };
        let enforcer = detect(&wanted).context("an enforcer")?.enforcer;
        ensure!(
            enforcer.kind().is_kernel(),
            "the kernel must enforce the limits here; the best enforcer is {}",
            enforcer.kind()
        );
        let group = enforcer
            .create(
                "c1",
                &GroupLimits {
                    memory: Some(CONTAINER),
                    ..GroupLimits::default()
                },
            )
            .context("a container")?;
        let path = group.path().context("the container's cgroup")?.to_owned();
        let site = Arc::new(LaunchContext::new(environment(
            enforcer.kind(),
            &path,
            dir.path(),
        )?)?);
        let programs = Programs::new(native, dir.path(), &wanted.name);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        Ok(DiagnosisBench {
            _dir: dir,
            programs,
            site,
            group: Some(group),
            enforcer: Some(enforcer),
            runtime,
        })
    }

    /// The enforcer of the limits.
    pub fn kind(&self) -> EnforcerKind {
        self.site.container.kind()
    }

    /// Runs one case to its end.
    pub fn run(&self, case: &DiagnosisCase) -> Result<TaskReport> {
        self.programs.compile(case.needs)?;
        let start = Arc::new(self.start(case)?);
        let report = self.runtime.block_on(self.live(start));
        let _ = std::fs::remove_file(&self.programs.in_memory); // only one case creates it
        report
    }

    fn start(&self, case: &DiagnosisCase) -> Result<TaskStart> {
        Ok(TaskStart {
            attempt: format!("{}/0@1", case.program)
                .parse()
                .context("a task's name")?,
            command: (case.command)(&self.programs),
            env: case
                .env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            cwd: None,
            slots: 1,
            limit: Some(case.limit),
            heap: case.heap,
            heap_exit_codes: case.codes.to_vec(),
            timeout_ms: None,
            freeze_timeout_ms: None,
            output: None,
            input: None,
            fork_server: Vec::new(),
        })
    }

    async fn live(&self, start: Arc<TaskStart>) -> Result<TaskReport> {
        let (orders, to_task) = mpsc::channel(1);
        let (news, mut events) = mpsc::channel(8);
        let (usage, _used) = watch::channel(None);
        let (pressed, _held) = watch::channel(None);
        let life = task::run(
            self.site.clone(),
            start,
            TaskChannels {
                orders: to_task,
                news,
                usage,
                pressed,
            },
        );
        let life = tokio::spawn(life);
        let listen = tokio::spawn(async move { while events.recv().await.is_some() {} });
        let late = tokio::spawn(async move {
            tokio::time::sleep(LONGEST).await;
            let _ = orders
                .send(TaskControl::Stop {
                    cause: StopCause::Timeout,
                    grace: Duration::from_millis(100),
                })
                .await;
        });
        let finished = life.await.context("the task")?;
        late.abort();
        listen.abort();
        if let Some(group) = finished.group {
            let site = self.site.clone();
            tokio::task::spawn_blocking(move || site.container.remove(&group))
                .await?
                .context("its cgroup is left behind")?;
        }
        Ok(finished.report)
    }
}

impl Drop for DiagnosisBench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.programs.in_memory);
        if let Some(group) = self.group.take() {
            let _ = group.kill().and_then(|()| group.remove(REMOVAL));
        }
        if let Some(enforcer) = self.enforcer.take() {
            let _ = enforcer.remove_root();
        }
    }
}

fn environment(enforcer: EnforcerKind, cgroup: &Path, dir: &Path) -> Result<ExecutorSettings> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    Ok(ExecutorSettings {
        memory: Some(CONTAINER),
        task_shm: None,
        master: Some("tcp://127.0.0.1:1".parse().context("an address")?),
        token: "none".to_owned(),
        slots: 1,
        app: "provoke.1".parse().context("an id")?,
        container: "provoke.1.e1.c1".parse().context("an id")?,
        rm: None,
        ca: None,
        token_file: None,
        dir: dir.to_owned(),
        enforcer,
        cgroup: Some(cgroup.to_owned()),
        for_tasks: vec![("PATH".into(), path), ("LANG".into(), "C.UTF-8".into())],
    })
}
