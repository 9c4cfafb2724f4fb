//! A whole cluster of child processes: one resource manager and some node agents, for `dev` and
//! `demo`.
//!
//! The cluster owns a directory with all their state and removes it at the end, unless the
//! directory is kept. The daemons are the programs beside this one. They and all containers end
//! when this process ends, also when it or one of them is killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use headroom_client::Client;
use headroom_types::{Bytes, Cpus, EnforcerKind};
use headroom_wire::v1::attached::{ManagerReady, NodeReady};
use headroom_wire::v1::nodes::NodeHealthState;
use tokio::time::Instant;

use crate::attached::DaemonProcess;
use crate::exit::{CommandFailure, CommandResult};

/// Timeout of the registration of nodes.
const REGISTER: Duration = Duration::from_secs(20);
/// Programs that must be in the directory of this one.
const SIBLINGS: [&str; 5] = [
    "resourcemanager",
    "nodeagent",
    "appmaster",
    "executor",
    "container-shim",
];
/// A developer's disk is often fuller than a server's may be. The agent still checks that the disk
/// is writable.
const NODE_CONFIG: &str = "[health]\ndisk_full = 100\ninodes_full = 100\n";

/// Parameters of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct LocalClusterParams {
    /// Number of nodes.
    pub(crate) nodes: u32,
    /// Memory of each node; default is a share of the free memory.
    pub(crate) memory: Option<Bytes>,
    /// Processors of each node; default is the number of this machine.
    pub(crate) cpus: Option<Cpus>,
    /// Enforcer of limits; default is the best available one.
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Address of the resource manager.
    pub(crate) listen: SocketAddr,
    /// Directory for all state; default is a temporary one.
    pub(crate) keep: Option<PathBuf>,
    /// Log level of the daemons, unless `HEADROOM_LOG` is set.
    pub(crate) log: &'static str,
}

/// A running cluster.
#[derive(Debug)]
pub(crate) struct LocalCluster {
    manager: DaemonProcess,
    url: String,
    nodes: Vec<LocalNodeAgent>,
    home: ClusterDirectory,
}

/// A running node agent, with its command line for a restart.
#[derive(Debug)]
struct LocalNodeAgent {
    daemon: DaemonProcess,
    ready: NodeReady,
    program: PathBuf,
    arguments: Vec<String>,
    log: &'static str,
}

impl LocalNodeAgent {
    /// Ends the containers and the agent. The containers of an agent that was killed live on:
    /// another agent is started in its state directory, adopts them and ends them.
    async fn stop(self) {
        if self.daemon.stop().await {
            return;
        }
        let ended = match DaemonProcess::start::<NodeReady>(
            "the node agent",
            &self.program,
            &self.arguments,
            self.log,
        )
        .await
        {
            Ok((daemon, _)) => daemon.stop().await,
            Err(failure) => {
                tracing::warn!("{failure}");
                false
            }
        };
        if !ended {
            tracing::warn!("containers of {} may still run", self.ready.node);
        }
    }
}

/// A directory that is removed at the end, or kept.
#[derive(Debug)]
pub(crate) enum ClusterDirectory {
    /// The directory is removed on drop.
    Temporary(tempfile::TempDir),
    /// The directory is kept.
    Kept(PathBuf),
}

impl ClusterDirectory {
    /// Creates the directory. Large data goes below `TMPDIR` or `/var/tmp`, since `/tmp` may be in
    /// memory.
    pub(crate) fn make(keep: Option<&Path>) -> CommandResult<ClusterDirectory> {
        if let Some(dir) = keep {
            std::fs::create_dir_all(dir).map_err(|e| unwritable(dir, &e))?;
            let dir = dir.canonicalize().map_err(|e| unwritable(dir, &e))?;
            return Ok(ClusterDirectory::Kept(dir));
        }
        let large = Path::new("/var/tmp");
        let named = std::env::var_os("TMPDIR").is_some_and(|t| !t.is_empty());
        let made = tempfile::Builder::new()
            .prefix("headroom-")
            .tempdir_in(if named {
                std::env::temp_dir()
            } else {
                large.into()
            });
        made.or_else(|_| tempfile::Builder::new().prefix("headroom-").tempdir())
            .map(ClusterDirectory::Temporary)
            .map_err(|e| unwritable(&std::env::temp_dir(), &e))
    }
    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            ClusterDirectory::Temporary(dir) => dir.path(),
            ClusterDirectory::Kept(dir) => dir,
        }
    }
}

fn unwritable(dir: &Path, e: &std::io::Error) -> CommandFailure {
    CommandFailure::failed(format!("{} cannot be used: {e}", dir.display()))
        .help("name another directory with --keep")
}

impl LocalCluster {
    /// Starts all daemons and waits until all nodes are ready.
    pub(crate) async fn start(params: &LocalClusterParams) -> CommandResult<LocalCluster> {
        let bin_dir = bin_dir()?;
        let home = ClusterDirectory::make(params.keep.as_deref())?;
        let state = directory(home.path(), "resourcemanager")?;
        let arguments = [
            "--listen".to_owned(),
            params.listen.to_string(),
            "--state".to_owned(),
            text(&state),
        ];
        let program = bin_dir.join("resourcemanager");
        let (manager, ready) = DaemonProcess::start::<ManagerReady>(
            "the resource manager",
            &program,
            &arguments,
            params.log,
        )
        .await?;
        let mut cluster = LocalCluster {
            manager,
            url: ready.url,
            nodes: Vec::new(),
            home,
        };
        match cluster.add_nodes(params, &bin_dir).await {
            Ok(()) => Ok(cluster),
            Err(failure) => {
                cluster.stop().await;
                Err(failure)
            }
        }
    }

    async fn add_nodes(
        &mut self,
        params: &LocalClusterParams,
        bin_dir: &Path,
    ) -> CommandResult<()> {
        let memory = params.memory.unwrap_or_else(|| {
            free_memory()
                .mul_ratio(3, 4)
                .mul_ratio(1, u64::from(params.nodes.max(1)))
        });
        for i in 1..=params.nodes {
            let state = directory(self.home.path(), &format!("dev-{i}"))?;
            let arguments = self.node_arguments(params, i, memory, &state, bin_dir)?;
            let program = bin_dir.join("nodeagent");
            let (daemon, ready) = DaemonProcess::start::<NodeReady>(
                "the node agent",
                &program,
                &arguments,
                params.log,
            )
            .await?;
            let health = ready.health.clone();
            self.nodes.push(LocalNodeAgent {
                daemon,
                ready,
                program,
                arguments,
                log: params.log,
            });
            if let NodeHealthState::Unhealthy { reason } = health {
                return Err(
                    CommandFailure::failed(format!("the node cannot take work: {reason}"))
                        .help("try --enforcer poll, which needs no privileges"),
                );
            }
        }
        self.registered().await
    }

    fn node_arguments(
        &self,
        params: &LocalClusterParams,
        number: u32,
        memory: Bytes,
        state: &Path,
        bin_dir: &Path,
    ) -> CommandResult<Vec<String>> {
        let config = state.join("nodeagent.toml");
        std::fs::write(&config, NODE_CONFIG).map_err(|e| unwritable(&config, &e))?;
        let mut arguments = vec!["--allow-root".to_owned(), "--shared-tmp".to_owned()];
        let mut option = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        option("config", text(&config));
        option("rm", self.url.clone());
        option("name", format!("dev-{number}"));
        option("state", text(state));
        option("listen", "127.0.0.1:0".to_owned());
        option("memory", format!("{}B", memory.get()));
        option("bin-dir", text(bin_dir));
        option("run-as", "agent".to_owned());
        option(
            "cgroup-name",
            format!("headroom-dev-{}-{number}", std::process::id()),
        );
        if let Some(cpus) = params.cpus {
            option("cpus", cpus.to_string());
        }
        if let Some(enforcer) = params.enforcer {
            option("enforcer", enforcer.as_str().to_owned());
        }
        Ok(arguments)
    }

    async fn registered(&self) -> CommandResult<()> {
        let client = Client::new(&self.url)?;
        let deadline = Instant::now() + REGISTER;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while Instant::now() < deadline {
            ticks.tick().await;
            let ready = client
                .nodes()
                .await?
                .iter()
                .filter(|n| n.state == "ready")
                .count();
            if ready == self.nodes.len() {
                return Ok(());
            }
        }
        let seconds = REGISTER.as_secs();
        Err(
            CommandFailure::failed(format!("not every node was ready after {seconds} s"))
                .help("HEADROOM_LOG=info shows why"),
        )
    }

    /// URL of the resource manager.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
    /// Directory of all state.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }
    /// The nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeReady> {
        self.nodes.iter().map(|node| &node.ready)
    }

    /// Returns when a daemon has ended by itself.
    pub(crate) async fn failed(&mut self) -> CommandFailure {
        let daemons = std::iter::once(&mut self.manager)
            .chain(self.nodes.iter_mut().map(|node| &mut node.daemon));
        select_all(daemons.map(|daemon| Box::pin(daemon.ended())))
            .await
            .0
    }

    /// Ends all containers and daemons, and removes a temporary directory.
    pub(crate) async fn stop(self) {
        join_all(self.nodes.into_iter().map(LocalNodeAgent::stop)).await;
        self.manager.stop().await;
        drop(self.home);
    }
}

/// Directory of the programs that a node starts.
fn bin_dir() -> CommandResult<PathBuf> {
    let named = std::env::var_os("HEADROOM_BIN_DIR").map(PathBuf::from);
    let beside = || {
        std::env::current_exe()
            .ok()
            .and_then(|exe| exe.parent().map(Path::to_owned))
    };
    let dir = named.or_else(beside).unwrap_or_default();
    let missing: Vec<&str> = SIBLINGS
        .into_iter()
        .filter(|name| !dir.join(name).is_file())
        .collect();
    if missing.is_empty() {
        return Ok(dir);
    }
    Err(CommandFailure::failed(format!(
        "{} must be in {}, the directory of rmctl",
        missing.join(", "),
        dir.display()
    ))
    .help("build the whole workspace, or set HEADROOM_BIN_DIR to the directory of the daemons"))
}

fn directory(home: &Path, name: &str) -> CommandResult<PathBuf> {
    let path = home.join(name);
    std::fs::create_dir_all(&path).map_err(|e| unwritable(&path, &e))?;
    Ok(path)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Available memory according to the kernel, or 2 GiB if it is unknown.
fn free_memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&text).unwrap_or(Bytes::from_gib(2))
}

fn available(meminfo: &str) -> Option<Bytes> {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()
        .map(Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"),
            Some(Bytes::from_mib(2))
        );
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_temporary_home_is_removed_and_a_kept_home_stays() {
        let home = ClusterDirectory::make(None).expect("makes");
        let path = home.path().to_owned();
        assert!(path.is_dir());
        drop(home);
        assert!(!path.exists());
        let outer = tempfile::tempdir().expect("directory");
        let kept = outer.path().join("a/b");
        drop(ClusterDirectory::make(Some(&kept)).expect("makes"));
        assert!(kept.is_dir());
        let refused = ClusterDirectory::make(Some(Path::new("/proc/none"))).expect_err("not there");
        assert!(refused.to_string().contains("/proc/none"), "{refused}");
    }
}
