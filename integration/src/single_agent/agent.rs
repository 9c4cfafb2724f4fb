//! A node agent as a child process, with its own temporary directory and cgroups.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use headroom_test_fakes::{
    DesiredStateStream, EndHandling, FakeManagerSettings, FakeResourceManager, run_order,
};
use headroom_types::{Bytes, ContainerId, Cpus, LaunchSpec, NodeId, Resource};
use headroom_wire::v1::nodes::RunOrder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::{hierarchies, on_any_disk, until};
use crate::single_agent::leftover_counts::{self, launcher_of};
use crate::{programs, sweep};

/// Timeout for an agent to start and test its enforcer on a loaded machine.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The resources of the node.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Memory.
    pub memory: Bytes,
    /// Processors.
    pub cpus: u32,
}

/// Starts a fake resource manager for one agent. It sends changes as the real one does, and its
/// owner orders the agent to forget containers.
pub fn start_manager() -> Result<FakeResourceManager> {
    FakeResourceManager::start(FakeManagerSettings {
        stream: DesiredStateStream::Changes,
        ends: EndHandling::Keep,
    })
}

/// One node agent without a cluster.
#[derive(Debug)]
pub struct SingleAgent {
    dir: tempfile::TempDir,
    node: NodeId,
    rm: String,
    shape: Shape,
    /// The directory of its programs.
    bin: PathBuf,
    child: Option<Child>,
}

impl SingleAgent {
    /// Prepares an agent that connects to `manager`. It does not run yet.
    pub fn new(manager: &FakeResourceManager, shape: Shape) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("headroom-single-")
            .tempdir()
            .context("a directory for the agent")?;
        fs::write(dir.path().join("nodeagent.toml"), on_any_disk(""))?;
        let node = format!("single-{}", std::process::id()).parse()?;
        let bin = programs::dir()?.to_owned();
        Ok(SingleAgent {
            dir,
            node,
            rm: manager.url().to_owned(),
            shape,
            bin,
            child: None,
        })
    }

    /// Sets the directory of its programs, from the next start.
    pub fn use_programs(&mut self, bin: PathBuf) {
        self.bin = bin;
    }

    /// Starts it, with one more environment variable.
    pub fn spawn(&mut self, variable: Option<(&str, &str)>) -> Result<()> {
        self.kill()?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let (memory, cpus) = (
            self.shape.memory.get().to_string(),
            self.shape.cpus.to_string(),
        );
        let mut command = Command::new(self.bin.join("nodeagent"));
        command.args([
            "--rm",
            &self.rm,
            "--name",
            self.node.as_str(),
            "--listen",
            "127.0.0.1:0",
        ]);
        command.args(["--run-as", "agent", "--allow-root", "--shared-tmp"]);
        command
            .args(["--memory", &memory, "--cpus", &cpus])
            .arg("--config")
            .arg(self.dir.path().join("nodeagent.toml"))
            .arg("--state")
            .arg(self.state());
        if let Some(root) = self.cgroups().first() {
            command.arg("--cgroup-root").arg(root);
        }
        command
            .env("HEADROOM_LOG", "info")
            .env(programs::DIR_VARIABLE, &self.bin)
            .envs(variable);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(command.spawn().context("starting the node agent")?);
        Ok(())
    }

    /// Starts it and waits until it has registered.
    pub fn start(&mut self, manager: &FakeResourceManager) -> Result<()> {
        let before = manager.with(|received| received.registrations.len());
        self.spawn(None)?;
        manager
            .until("the agent to register", START_TIMEOUT, |received| {
                (received.registrations.len() > before).then_some(())
            })
            .with_context(|| self.log_tail())
    }

    /// Sends SIGKILL if it runs. Its containers keep running.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the end. Its containers keep running.
    pub fn terminate(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
        until("the agent to end", START_TIMEOUT, || Ok(child.try_wait()?)).map(drop)
    }

    /// Whether it has ended.
    pub fn is_dead(&mut self) -> Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.is_some()),
            None => Ok(true),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(
            self.child.as_ref().context("the agent does not run")?.id(),
        )?)
    }

    /// The process id of its launcher, if it has one.
    pub fn launcher(&self) -> Option<i32> {
        launcher_of(self.pid().ok()?)
    }

    /// Number of shims that its launcher has not reaped.
    pub fn shims(&self) -> usize {
        self.launcher()
            .map_or(0, |launcher| leftover_counts::children(launcher, |_| true))
    }

    /// The directory that contains all its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
    /// A file of a container.
    pub fn file(&self, id: &ContainerId, name: &str) -> PathBuf {
        self.state()
            .join("containers")
            .join(id.to_string())
            .join(name)
    }
    /// The number in a container's `pid` or `shim.pid` file, if the file exists.
    pub fn process(&self, id: &ContainerId, name: &str) -> Option<i32> {
        fs::read_to_string(self.file(id, name))
            .ok()?
            .split(' ')
            .next()?
            .parse()
            .ok()
    }

    /// Its cgroups in the hierarchies of this host, memory first. Empty if this process may not
    /// create cgroups.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        hierarchies()
            .into_iter()
            .map(|h| h.join(format!("headroom-{}", self.node)))
            .collect()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }
    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!(
            "the last lines of its log:\n{}",
            lines
                .get(lines.len().saturating_sub(30)..)
                .unwrap_or_default()
                .join("\n")
        )
    }
}

impl Drop for SingleAgent {
    fn drop(&mut self) {
        // A failed kill has no remedy; the sweep below ends its containers anyway.
        let _ = self.kill();
        sweep::processes_of(self.dir.path());
        for root in self.cgroups() {
            sweep::cgroup(&root);
        }
    }
}

/// The id of the `n`th container.
pub fn container(n: u64) -> Result<ContainerId> {
    Ok(format!("single.1.e1.c{n}").parse()?)
}

/// An order for the container `id` with `memory` and 0.1 processors.
pub fn order(id: &ContainerId, memory: Bytes, launch: LaunchSpec) -> Result<RunOrder> {
    let resource = Resource::new(memory, Cpus::from_milli(100));
    Ok(run_order(id, Some("main".parse()?), resource, launch))
}

/// A launch of this command.
pub fn words<S: AsRef<str>>(command: &[S]) -> LaunchSpec {
    LaunchSpec {
        command: command.iter().map(|w| w.as_ref().to_owned()).collect(),
        ..LaunchSpec::default()
    }
}
