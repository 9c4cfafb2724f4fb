//! A whole cluster inside this process: one resource manager and some node agents, for `dev` and `demo`.
//!
//! It owns a directory with all their state and removes it at the end, unless it was told to keep it. Stopping it ends every
//! container; a process that is killed outright leaves them to the next agent in the same directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_client::Client;
use headroom_nodeagent::Containers;
use headroom_types::{Bytes, Cpus, EnforcerKind};
use headroom_wire::v1::nodes::Health;
use tokio::time::Instant;

use crate::exit::{Exit, Failure};

/// How long nodes may take to register.
const REGISTER: Duration = Duration::from_secs(20);
/// Programs that must be beside this one.
const SIBLINGS: [&str; 3] = ["appmaster", "executor", "container-shim"];

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// How many nodes.
    pub(crate) nodes: u32,
    /// Memory each offers; a share of what is free when left out.
    pub(crate) memory: Option<Bytes>,
    /// Processors each offers; the machine's when left out.
    pub(crate) cpus: Option<Cpus>,
    /// What must hold the limits; the best there is when left out.
    pub(crate) enforcer: Option<EnforcerKind>,
    /// Where the resource manager listens.
    pub(crate) listen: SocketAddr,
    /// Where all state goes; a temporary directory when left out.
    pub(crate) keep: Option<PathBuf>,
}

/// A cluster that runs.
#[derive(Debug)]
pub(crate) struct Cluster {
    rm: headroom_resourcemanager::Running,
    nodes: Vec<headroom_nodeagent::Running>,
    home: Home,
}

/// A directory that is removed in the end, or kept.
#[derive(Debug)]
pub(crate) enum Home {
    /// Removed.
    Temporary(tempfile::TempDir),
    /// Kept.
    Kept(PathBuf),
}

impl Home {
    /// Makes the directory. Large data goes below `TMPDIR` or `/var/tmp`, since `/tmp` may be memory itself.
    pub(crate) fn make(keep: Option<&Path>) -> Result<Home, Failure> {
        if let Some(dir) = keep {
            std::fs::create_dir_all(dir).map_err(|e| unwritable(dir, &e))?;
            let dir = dir.canonicalize().map_err(|e| unwritable(dir, &e))?;
            return Ok(Home::Kept(dir));
        }
        let large = Path::new("/var/tmp");
        let named = std::env::var_os("TMPDIR").is_some_and(|t| !t.is_empty());
        let made =
            tempfile::Builder::new().prefix("headroom-").tempdir_in(if named { std::env::temp_dir() } else { large.into() });
        made.or_else(|_| tempfile::Builder::new().prefix("headroom-").tempdir())
            .map(Home::Temporary)
            .map_err(|e| unwritable(&std::env::temp_dir(), &e))
    }
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Home::Temporary(dir) => dir.path(),
            Home::Kept(dir) => dir,
        }
    }
}

fn unwritable(dir: &Path, e: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{} cannot be used: {e}", dir.display())).help("name another directory with --keep")
}

impl Cluster {
    /// Starts everything and waits until all nodes take work.
    pub(crate) async fn start(wish: &Wish) -> Result<Cluster, Failure> {
        let bin_dir = bin_dir()?;
        let home = Home::make(wish.keep.as_deref())?;
        let rm_state = directory(home.path(), "resourcemanager")?;
        let options = headroom_resourcemanager::Options::new(wish.listen, rm_state);
        let rm = headroom_resourcemanager::start(options).await.map_err(|e| rm_failed(&e))?;
        let mut cluster = Cluster { rm, nodes: Vec::new(), home };
        match cluster.add_nodes(wish, &bin_dir).await {
            Ok(()) => Ok(cluster),
            Err(failure) => {
                cluster.stop().await;
                Err(failure)
            }
        }
    }

    async fn add_nodes(&mut self, wish: &Wish, bin_dir: &Path) -> Result<(), Failure> {
        let memory = wish.memory.unwrap_or_else(|| free_memory().mul_ratio(3, 4).mul_ratio(1, u64::from(wish.nodes.max(1))));
        for i in 1..=wish.nodes {
            let name = format!("dev-{i}");
            let mut options = headroom_nodeagent::Options::new(&self.rm.url, directory(self.home.path(), &name)?);
            options.cgroup_name = Some(format!("headroom-dev-{}-{i}", std::process::id()));
            options.name = name.parse().ok();
            options.memory = Some(memory);
            options.cpus = wish.cpus;
            options.enforcer = wish.enforcer;
            options.bin_dir = Some(bin_dir.to_owned());
            // A developer's disk is often fuller than a server's may be. That it can be written to is checked all the same.
            (options.health.disk_full, options.health.inodes_full) = (100, 100);
            let node = headroom_nodeagent::start(options).await.map_err(|e| daemon("the node agent did not start", &e))?;
            let health = node.health.clone();
            self.nodes.push(node);
            if let Health::Unhealthy { reason } = health {
                return Err(Failure::new(Exit::Failed, format!("the node cannot take work: {reason}"))
                    .help("try --enforcer poll, which needs no privileges"));
            }
        }
        self.registered().await
    }

    async fn registered(&self) -> Result<(), Failure> {
        let client = Client::new(&self.rm.url)?;
        let deadline = Instant::now() + REGISTER;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while Instant::now() < deadline {
            ticks.tick().await;
            let ready = client.nodes().await?.iter().filter(|n| n.state == "ready").count();
            if ready == self.nodes.len() {
                return Ok(());
            }
        }
        let seconds = REGISTER.as_secs();
        Err(Failure::new(Exit::Failed, format!("not every node was ready after {seconds} s")).help("HEADROOM_LOG=info tells why"))
    }

    /// Where the resource manager answers.
    pub(crate) fn url(&self) -> &str {
        &self.rm.url
    }
    /// The directory of all state.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }
    /// The nodes.
    pub(crate) fn nodes(&self) -> &[headroom_nodeagent::Running] {
        &self.nodes
    }

    /// Returns when the resource manager can go on no longer.
    pub(crate) async fn failed(&mut self) -> Failure {
        daemon("the resource manager ended", &self.rm.failed().await)
    }

    /// Ends every container and all daemons, and removes what is not to be kept.
    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.shutdown(Containers::Kill).await;
        }
        if let Err(e) = self.rm.shutdown().await {
            tracing::warn!("the resource manager did not end well: {e:#}");
        }
        drop(self.home);
    }
}

/// Where the programs are that a node starts.
fn bin_dir() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("HEADROOM_BIN_DIR").map(PathBuf::from);
    let beside = || std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let dir = named.or_else(beside).unwrap_or_default();
    let missing: Vec<&str> = SIBLINGS.into_iter().filter(|name| !dir.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(dir);
    }
    Err(Failure::new(Exit::Failed, format!("{} must be beside rmctl in {}", missing.join(", "), dir.display()))
        .help("build the whole workspace, or name their directory in HEADROOM_BIN_DIR"))
}

fn directory(home: &Path, name: &str) -> Result<PathBuf, Failure> {
    let path = home.join(name);
    std::fs::create_dir_all(&path).map_err(|e| unwritable(&path, &e))?;
    Ok(path)
}

fn rm_failed(e: &anyhow::Error) -> Failure {
    let taken = |c: &(dyn std::error::Error + 'static)| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::AddrInUse)
    };
    let failure = daemon("the resource manager did not start", e);
    if e.chain().any(taken) { failure.help("another one runs there? choose another address with --listen") } else { failure }
}

fn daemon(what: &str, e: &anyhow::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{what}: {e:#}"))
}

/// Memory that the kernel says is available; 2 GiB when it does not say.
fn free_memory() -> Bytes {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&text).unwrap_or(Bytes::from_gib(2))
}

fn available(meminfo: &str) -> Option<Bytes> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok().map(Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(Bytes::from_mib(2)));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_temporary_home_is_removed_and_a_kept_one_stays() {
        let home = Home::make(None).expect("makes");
        let path = home.path().to_owned();
        assert!(path.is_dir());
        drop(home);
        assert!(!path.exists());
        let outer = tempfile::tempdir().expect("directory");
        let kept = outer.path().join("a/b");
        drop(Home::make(Some(&kept)).expect("makes"));
        assert!(kept.is_dir());
        let refused = Home::make(Some(Path::new("/proc/none"))).expect_err("not there");
        assert!(refused.to_string().contains("/proc/none"), "{refused}");
    }
}
