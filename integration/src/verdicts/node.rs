//! One real agent process with its own fake manager, directories and cgroups; dropping it removes
//! them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::{Bytes, ContainerId, EnforcerKind};
use headroom_wire::v1::nodes::NodeHealthState;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::manager::MatrixManager;
use crate::cluster::on_any_disk;
use crate::{programs, sweep};

/// Timeout for the start of an agent and for the `ready` line of a program.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of file polls.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// An agent.
#[derive(Debug)]
pub(super) struct Node {
    /// Its manager.
    pub(super) manager: MatrixManager,
    name: String,
    /// The cgroup above the agent's own.
    outer: Option<String>,
    memory: Bytes,
    enforcer: EnforcerKind,
    /// The parent of its cgroups; `None` for the `poll` enforcer.
    root: Option<PathBuf>,
    dir: tempfile::TempDir,
    child: Mutex<Option<Child>>,
}

impl Node {
    /// Starts an agent in a cgroup with this foreign limit. Only v2.
    pub(super) async fn start_within(limit: Bytes, memory: Bytes) -> Result<Node> {
        let outer = format!("matrix-outer-{}", std::process::id());
        let base = Path::new("/sys/fs/cgroup");
        fs::write(base.join("cgroup.subtree_control"), "+memory +pids")
            .context("controllers of the root cgroup")?;
        fs::create_dir(base.join(&outer)).context("an outer cgroup")?;
        fs::write(
            base.join(&outer).join("memory.max"),
            limit.get().to_string(),
        )
        .context("its limit")?;
        fs::write(
            base.join(&outer).join("cgroup.subtree_control"),
            "+memory +pids",
        )
        .context("its controllers")?;
        Node::start_in(EnforcerKind::Cgroup2, memory, Some(outer)).await
    }

    /// Starts an agent with this memory and waits until it has tested its enforcer.
    pub(super) async fn start(enforcer: EnforcerKind, memory: Bytes) -> Result<Node> {
        Node::start_in(enforcer, memory, None).await
    }

    async fn start_in(
        enforcer: EnforcerKind,
        memory: Bytes,
        outer: Option<String>,
    ) -> Result<Node> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "matrix-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let root = match enforcer {
            EnforcerKind::Cgroup2 => Some(
                Path::new("/sys/fs/cgroup")
                    .join(outer.clone().unwrap_or_default())
                    .join(&name),
            ),
            EnforcerKind::Cgroup1 => Some(Path::new("/sys/fs/cgroup/memory").join(&name)),
            EnforcerKind::Poll => None,
        };
        let dir = tempfile::Builder::new()
            .prefix("headroom-matrix-")
            .tempdir()
            .context("a directory for the node")?;
        let manager = MatrixManager::start()?;
        let node = Node {
            manager,
            name,
            outer,
            memory,
            enforcer,
            root,
            dir,
            child: Mutex::default(),
        };
        node.start_agent()?;
        let healthy = wait("the agent to register", START_TIMEOUT, || {
            node.manager.health()
        })
        .await
        .map_err(|e| node.with_log(e))?;
        ensure!(
            healthy == NodeHealthState::Healthy,
            "the enforcer {enforcer} is not fit: {healthy:?}"
        );
        Ok(node)
    }

    /// Starts the agent, or restarts it after [`Node::crash`].
    pub(super) fn start_agent(&self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())?;
        let config = self.dir.path().join("nodeagent.toml");
        std::fs::write(&config, on_any_disk(""))?;
        let mut command = Command::new(programs::path("nodeagent")?);
        command
            .args([
                "--rm",
                self.manager.url(),
                "--name",
                &self.name,
                "--listen",
                "127.0.0.1:0",
                "--cpus",
                "64",
            ])
            .args(["--run-as", "agent", "--allow-root", "--shared-tmp"])
            .args([
                "--memory",
                &self.memory.get().to_string(),
                "--enforcer",
                self.enforcer.as_str(),
            ])
            .arg("--config")
            .arg(&config)
            .arg("--state")
            .arg(self.state())
            .arg("--bin-dir")
            .arg(programs::dir()?);
        if let Some(root) = &self.root {
            command.arg("--cgroup-root").arg(root);
        }
        let started = command
            .env("HEADROOM_LOG", "info")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        *self.locked() = Some(started.context("starting the agent")?);
        Ok(())
    }

    /// Sends SIGKILL to the agent. Its containers keep running.
    pub(super) fn crash(&self) -> Result<()> {
        let mut child = self.locked().take().context("the agent does not run")?;
        child
            .kill()
            .and_then(|()| child.wait())
            .context("killing the agent")?;
        Ok(())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
    fn log_path(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }

    /// A file of a container.
    pub(super) fn file(&self, id: &ContainerId, name: &str) -> PathBuf {
        self.state()
            .join("containers")
            .join(id.to_string())
            .join(name)
    }

    /// Waits until the program of a container has written `ready` and its shim has written the pid
    /// file. A fast program can be first.
    pub(super) async fn ready(&self, id: &ContainerId) -> Result<()> {
        let stdout = self.file(id, "stdout");
        let pid = self.file(id, "pid");
        let seen = || {
            (pid.exists() && fs::read_to_string(&stdout).is_ok_and(|text| text.contains("ready")))
                .then_some(())
        };
        wait(&format!("{id} to be ready"), START_TIMEOUT, seen).await
    }

    /// Lets a program continue that waits for the file `go`.
    pub(super) fn let_continue(&self, id: &ContainerId) -> Result<()> {
        File::create(self.file(id, "work").join("go"))
            .map(drop)
            .context("the file `go`")
    }

    /// Sends SIGKILL to the program of a container, as an operator can.
    pub(super) fn kill_program(&self, id: &ContainerId) -> Result<()> {
        let path = self.file(id, "pid");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let pid = text
            .split_whitespace()
            .next()
            .and_then(|n| n.parse().ok())
            .with_context(|| format!("{text:?}"))?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("killing the program")
    }

    /// Kills all processes of a container's cgroup, as systemd-oomd does: with `cgroup.kill` if
    /// available, else one by one.
    pub(super) fn kill_group(&self, id: &ContainerId) -> Result<()> {
        let Some(root) = &self.root else {
            return self.kill_program(id);
        };
        let group = root.join("containers").join(id.to_string());
        if fs::write(group.join("cgroup.kill"), "1").is_ok() {
            return Ok(());
        }
        let procs = fs::read_to_string(group.join("main/cgroup.procs"))
            .context("the processes of the cgroup")?;
        for pid in procs.lines().filter_map(|l| l.parse().ok()) {
            // A process may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        Ok(())
    }

    /// Cgroups of containers that are left after all have ended. A cgroup is removed after its
    /// report was sent.
    pub(super) async fn leftovers(&self) -> Vec<String> {
        let Some(root) = &self.root else {
            return Vec::new();
        };
        let left = || {
            let entries = fs::read_dir(root.join("containers"))
                .into_iter()
                .flatten()
                .flatten();
            let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            dirs.filter_map(|e| e.file_name().into_string().ok())
                .collect::<Vec<_>>()
        };
        match wait("cgroups to be removed", Duration::from_secs(10), || {
            left().is_empty().then_some(())
        })
        .await
        {
            Ok(()) => Vec::new(),
            Err(_) => left(),
        }
    }

    fn with_log(&self, error: anyhow::Error) -> anyhow::Error {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        error.context(lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Lines of the agent's log about one container, for the analysis of a wrong verdict.
    pub(super) fn log_of(&self, id: &ContainerId) -> Vec<String> {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let word = id.to_string();
        log.lines()
            .filter(|l| l.split([' ', '"', '=', ',']).any(|w| w == word))
            .map(str::to_owned)
            .collect()
    }
}

impl Node {
    /// The state of a container whose report does not arrive: its files, its cgroup, and the
    /// processes with their wait channels.
    pub(super) fn traces_of(&self, id: &ContainerId) -> Vec<String> {
        let mut seen = vec![format!("desired state: {}", self.manager.desired(id))];
        let dir = self.file(id, "");
        let files = fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        seen.push(format!("files: {}", files.collect::<Vec<_>>().join(" ")));
        if let Some(root) = &self.root {
            let group = root.join("containers").join(id.to_string());
            for dir in [group.clone(), group.join("main")] {
                for file in [
                    "cgroup.procs",
                    "memory.events",
                    "memory.current",
                    "memory.usage_in_bytes",
                    "memory.oom_control",
                ] {
                    if let Ok(text) = fs::read_to_string(dir.join(file)) {
                        seen.push(format!(
                            "{}: {}",
                            dir.join(file).display(),
                            text.replace('\n', " ")
                        ));
                    }
                }
            }
        }
        for pid in sweep::processes(&dir) {
            let read =
                |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            seen.push(format!(
                "process {pid}: {} {} {}",
                read("stat"),
                read("wchan"),
                read("stack").replace('\n', " ")
            ));
        }
        seen.extend(self.log_of(id));
        seen
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The agent may have ended already.
        let _ = self.crash();
        sweep::processes_of(self.dir.path());
        for hierarchy in ["", "memory", "pids", "cpu"] {
            let path = Path::new("/sys/fs/cgroup")
                .join(hierarchy)
                .join(self.outer.as_ref().unwrap_or(&self.name));
            if path.exists() {
                sweep::cgroup(&path);
            }
        }
    }
}

/// Polls `see` every 3 ms until it returns a value.
async fn wait<T>(what: &str, time: Duration, mut see: impl FnMut() -> Option<T>) -> Result<T> {
    let looking = async {
        loop {
            if let Some(seen) = see() {
                return seen;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    match tokio::time::timeout(time, looking).await {
        Ok(seen) => Ok(seen),
        Err(_) => bail!("timed out after {} s waiting for {what}", time.as_secs()),
    }
}
