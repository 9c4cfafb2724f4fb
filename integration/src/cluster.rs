//! A cluster of the real daemons as child processes, in a temporary directory, on free ports.
//!
//! One test owns it. Every wait has a deadline and names its condition. Dropping the cluster
//! removes all its daemons, shims, containers and cgroups. If the test is failing, the drop prints
//! the last lines of all logs.

mod journals;
mod network;
mod proxy;
mod replicas;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use headroom_client::Client;
use headroom_types::{AppId, Bytes, EnforcerKind, NodeId};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::application_master::RegisterMaster;
use headroom_wire::v1::apps::{
    AppView, ApplicationMaster, ContainerView, SubmissionResult, SubmitApplicationRequest,
};
use headroom_wire::v1::nodes::NodeView;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use self::network::TestNetwork;
pub use self::replicas::EtcdSetup;
use self::replicas::ManagerReplicas;
use crate::credentials::ClusterCredentials;
use crate::skew::Skew;
use crate::{clock, programs, sweep};

/// Timeout for anything that should happen at once, on a loaded machine.
pub const SOON: Duration = Duration::from_secs(60);
/// The place of journals of masters in the state of the resource manager.
pub const IN_RESOURCE_MANAGER: &str = "resourcemanager";
/// Timeout for a whole job of a test. A JVM in a guest on one shared processor takes 40 s.
pub const JOB: Duration = Duration::from_secs(240);

/// The resources of one node.
#[derive(Clone, Copy, Debug)]
pub struct NodeShape {
    /// Memory.
    pub memory: Bytes,
    /// Processors.
    pub cpus: u32,
    /// The enforcer of limits; the best available one if absent.
    pub enforcer: Option<EnforcerKind>,
}

impl Default for NodeShape {
    fn default() -> Self {
        NodeShape {
            memory: Bytes::from_mib(1024),
            cpus: 8,
            enforcer: None,
        }
    }
}

/// The owner of containers in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerOwner {
    /// The container of the application master.
    Master,
    /// The containers that the master requested.
    Executors,
}

/// The user that runs the containers of a cluster.
#[derive(Clone, Debug)]
enum TestContainerUser {
    /// The user who runs the tests.
    Own,
    /// The user that the node agents' configuration names, with programs that all users may
    /// execute.
    Configured { file: PathBuf, programs: PathBuf },
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    dir: tempfile::TempDir,
    port: u16,
    nodes: BTreeMap<String, NodeShape>,
    daemons: BTreeMap<String, Child>,
    /// The user of the containers, and the programs they use.
    people: TestContainerUser,
    /// Certificates and tokens, if the cluster authenticates its callers.
    papers: Option<ClusterCredentials>,
    /// The resource manager's configuration file, if it has one.
    manager: Option<PathBuf>,
    /// Several resource managers and their etcd, in place of one.
    replicas: Option<ManagerReplicas>,
    /// Networks of the hosts, on which the daemons run whose names end with their numbers.
    network: Option<TestNetwork>,
    /// Clock errors by daemon.
    skews: BTreeMap<String, Skew>,
    /// More configuration of the node agents.
    agent_keys: String,
    runtime: tokio::runtime::Runtime,
    client: Client,
}

/// The exit code and the output of a program that ran to its end.
#[derive(Clone, Debug)]
pub struct ProgramOutput {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}
impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        ProgramOutput {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Cluster {
    /// Starts a resource manager and nodes `node-1`, `node-2` … of these shapes, and waits until
    /// all are ready.
    pub fn start(shapes: &[NodeShape]) -> Result<Self> {
        let dir = cluster_dir()?;
        Cluster::start_in(dir, shapes, (TestContainerUser::Own, None))
    }

    /// As [`Cluster::start`], with a resource manager of this configuration.
    pub fn start_managed(shapes: &[NodeShape], configuration: &str) -> Result<Self> {
        let dir = cluster_dir()?;
        let file = dir.path().join("resourcemanager.toml");
        fs::write(&file, configuration)?;
        Cluster::start_in(dir, shapes, (TestContainerUser::Own, Some(file)))
    }

    /// As [`Cluster::start`], with node agents of this configuration. Other users can access the
    /// programs and the directory of the cluster.
    pub fn start_configured(shapes: &[NodeShape], configuration: &str) -> Result<Self> {
        let dir = cluster_dir()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let (file, own) = (dir.path().join("nodeagent.toml"), dir.path().join("bin"));
        fs::write(&file, on_any_disk(configuration))?;
        fs::create_dir(&own)?;
        for name in ["nodeagent", "container-shim", "appmaster", "executor"] {
            fs::copy(programs::path(name)?, own.join(name))
                .with_context(|| format!("copying {name}"))?;
        }
        Cluster::start_in(
            dir,
            shapes,
            (
                TestContainerUser::Configured {
                    file,
                    programs: own,
                },
                None,
            ),
        )
    }

    /// As [`Cluster::start`], with listeners that other hosts can reach. All connections are
    /// encrypted and all callers authenticated.
    pub fn start_secured(shapes: &[NodeShape]) -> Result<Self> {
        let dir = cluster_dir()?;
        let (port, papers) = (
            free_port()?,
            ClusterCredentials::new(&dir.path().join("papers"))?,
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let url = format!("https://127.0.0.1:{port}");
        let nodes = named(shapes);
        let (people, daemons, client) = (
            TestContainerUser::Own,
            BTreeMap::new(),
            Client::new("http://127.0.0.1:1")?,
        );
        let (manager, skews) = (Some(papers.config()), BTreeMap::new());
        let kept = Some(papers.clone());
        let mut cluster = Cluster {
            dir,
            port,
            nodes,
            daemons,
            people,
            runtime,
            client,
            papers: kept,
            manager,
            replicas: None,
            network: None,
            skews,
            agent_keys: String::new(),
        };
        cluster.start_resource_manager()?;
        until("the first token", SOON, || Ok(papers.bootstrap(&url).ok()))?;
        cluster.client = papers.client(&url)?;
        for name in cluster.nodes.keys().cloned().collect::<Vec<_>>() {
            papers.join(&url, &name)?;
            cluster.start_node(&name)?;
        }
        cluster.until_ready()?;
        Ok(cluster)
    }

    fn start_in(
        dir: tempfile::TempDir,
        shapes: &[NodeShape],
        (people, manager): (TestContainerUser, Option<PathBuf>),
    ) -> Result<Self> {
        let mut cluster = Cluster::new_in(dir, shapes, (people, manager))?;
        cluster.start_daemons()?;
        Ok(cluster)
    }

    /// A cluster whose daemons do not run yet.
    fn new_in(
        dir: tempfile::TempDir,
        shapes: &[NodeShape],
        (people, manager): (TestContainerUser, Option<PathBuf>),
    ) -> Result<Self> {
        let port = free_port()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = Client::new(&format!("http://127.0.0.1:{port}"))?;
        Ok(Cluster {
            dir,
            port,
            nodes: named(shapes),
            daemons: BTreeMap::new(),
            people,
            runtime,
            client,
            papers: None,
            manager,
            replicas: None,
            network: None,
            skews: BTreeMap::new(),
            agent_keys: String::new(),
        })
    }

    fn start_daemons(&mut self) -> Result<()> {
        self.start_resource_manager()?;
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.start_node(&name)?;
        }
        self.until_ready()
    }

    /// Starts a cluster with one node of the default shape.
    pub fn of_one() -> Result<Self> {
        Cluster::start(&[NodeShape::default()])
    }

    /// Address of the resource manager, or the list of all.
    pub fn url(&self) -> String {
        if let Some(replicas) = &self.replicas {
            return replicas.addresses();
        }
        let scheme = if self.papers.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }
    /// Certificates and tokens of a secured cluster. An error in other clusters.
    pub fn papers(&self) -> Result<&ClusterCredentials> {
        self.papers
            .as_ref()
            .context("this cluster does not authenticate callers")
    }
    /// Ids of the nodes.
    pub fn node_ids(&self) -> Result<Vec<NodeId>> {
        let ids = self.nodes.keys().map(|name| name.parse());
        ids.collect::<Result<_, _>>().context("a name of a node")
    }
    /// The directory that contains all files of this cluster.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
    /// State directory of a daemon.
    pub fn state(&self, daemon: &str) -> PathBuf {
        self.dir.path().join(daemon)
    }
    /// Process id of a daemon.
    pub fn pid(&self, daemon: &str) -> Result<i32> {
        Ok(i32::try_from(
            self.daemons
                .get(daemon)
                .with_context(|| format!("{daemon} does not run"))?
                .id(),
        )?)
    }

    /// Starts or restarts the resource manager.
    pub fn start_resource_manager(&mut self) -> Result<()> {
        let at = if self.papers.is_some() {
            "0.0.0.0"
        } else {
            "127.0.0.1"
        };
        let listen = format!("{at}:{}", self.port);
        let config = self.manager.as_ref().map(|file| file.display().to_string());
        let mut flags = vec!["--listen", &listen];
        flags.extend(config.iter().flat_map(|file| ["--config", file.as_str()]));
        self.spawn("resourcemanager", "resourcemanager", &flags)
    }

    /// Starts or restarts a node agent.
    pub fn start_node(&mut self, name: &str) -> Result<()> {
        let shape = *self
            .nodes
            .get(name)
            .with_context(|| format!("no node {name}"))?;
        let (memory, cpus, url) = (
            shape.memory.get().to_string(),
            shape.cpus.to_string(),
            self.url(),
        );
        let listen = match (&self.network, host_of(name)) {
            (Some(_), Some(host)) => format!("{}:0", network::address(host)),
            (Some(_) | None, _) => "127.0.0.1:0".to_owned(),
        };
        let mut flags = vec![
            "--rm", &url, "--name", name, "--memory", &memory, "--cpus", &cpus,
        ];
        let tls = self
            .papers
            .as_ref()
            .map(|papers| papers.node(name).display().to_string());
        match &tls {
            Some(tls) => flags.extend([
                "--listen",
                "0.0.0.0:0",
                "--advertise",
                "127.0.0.1",
                "--tls",
                tls,
            ]),
            None => flags.extend(["--listen", &listen]),
        }
        let people = self.people.clone();
        let plain = self
            .dir
            .path()
            .join("plain-nodeagent.toml")
            .display()
            .to_string();
        fs::write(&plain, on_any_disk(&self.agent_keys))?;
        match &people {
            // Jobs of tests run as the user who runs the tests, and share data with the tests in
            // /tmp.
            TestContainerUser::Own => flags.extend([
                "--config",
                &plain,
                "--run-as",
                "agent",
                "--allow-root",
                "--shared-tmp",
            ]),
            TestContainerUser::Configured { file, .. } => {
                flags.extend(["--config", file.to_str().context("UTF-8")?])
            }
        }
        let cgroup = if shape.enforcer == Some(EnforcerKind::Poll) {
            None
        } else {
            self.cgroup(name)
        };
        if let Some(kind) = shape.enforcer {
            flags.extend(["--enforcer", kind.as_str()]);
        }
        if let Some(root) = cgroup.as_ref().and_then(|c| c.to_str()) {
            flags.extend(["--cgroup-root", root]);
        }
        self.spawn(name, "nodeagent", &flags)
    }

    /// Sets a clock error for a daemon. It applies from the daemon's next start.
    pub fn set_clock(&mut self, daemon: &str, skew: Skew) {
        self.skews.insert(daemon.to_owned(), skew);
    }

    fn spawn(&mut self, name: &str, program: &str, flags: &[&str]) -> Result<()> {
        let state = self.state(name);
        fs::create_dir_all(&state)?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(name))?;
        let siblings = match &self.people {
            TestContainerUser::Own => programs::dir()?,
            TestContainerUser::Configured { programs, .. } => programs,
        };
        let mut command = match (&self.network, host_of(name)) {
            (Some(network), Some(host)) => {
                let words = network.enter(host)?;
                let (enter, arguments) = words.split_first().context("no program")?;
                let mut command = Command::new(enter);
                command.args(arguments).arg(programs::path(program)?);
                command
            }
            (Some(_) | None, _) => Command::new(programs::path(program)?),
        };
        if let Some(skew) = self.skews.get(name) {
            skew.put(&mut command, self.dir.path())?;
        }
        let child = command
            .args(flags)
            .arg("--state")
            .arg(&state)
            .env("HEADROOM_LOG", "info")
            .env(programs::DIR_VARIABLE, siblings)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        self.daemons.insert(name.to_owned(), child);
        Ok(())
    }

    /// The cgroup of a node (v1: in the memory hierarchy). `None` if this process may not create
    /// cgroups.
    pub fn cgroup(&self, node: &str) -> Option<PathBuf> {
        let hierarchy = hierarchies().into_iter().next()?;
        Some(hierarchy.join(self.cgroup_name(node)))
    }
    fn cgroup_name(&self, node: &str) -> String {
        format!("headroom-test-{}-{}-{node}", std::process::id(), self.port)
    }

    fn log_path(&self, daemon: &str) -> PathBuf {
        self.dir.path().join(format!("{daemon}.log"))
    }
    /// The whole log of a daemon.
    pub fn log(&self, daemon: &str) -> String {
        fs::read_to_string(self.log_path(daemon)).unwrap_or_default()
    }

    /// Sends SIGKILL to a daemon. Its containers keep running.
    pub fn kill_daemon(&mut self, name: &str) -> Result<()> {
        let mut child = self
            .daemons
            .remove(name)
            .with_context(|| format!("{name} does not run"))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM to a daemon and returns its exit status.
    pub fn stop_daemon(&mut self, name: &str) -> Result<ExitStatus> {
        let pid = self.pid(name)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        let mut child = self.daemons.remove(name).context("runs")?;
        until(&format!("{name} to end after SIGTERM"), SOON, || {
            Ok(child.try_wait()?)
        })
    }

    /// Waits until the resource manager answers and every node is ready.
    pub fn until_ready(&self) -> Result<()> {
        let wanted = self.nodes.len();
        let mut seen = String::new();
        let ready = until("all nodes to be ready", SOON, || {
            let nodes = match self.call(self.client.nodes()) {
                Ok(nodes) => nodes,
                Err(error) => {
                    seen = error.to_string();
                    return Ok(None);
                }
            };
            let state = |node: &NodeView| {
                format!(
                    "{}: {} {}",
                    node.id,
                    node.state,
                    node.not_ready_reason().unwrap_or_default()
                )
            };
            seen = nodes.iter().map(state).collect::<Vec<_>>().join("; ");
            Ok((nodes.iter().filter(|node| node.state == "ready").count() == wanted).then_some(()))
        });
        ready.with_context(|| format!("expected {wanted} nodes; last seen: {seen}"))
    }

    /// The typed API client.
    pub fn client(&self) -> &Client {
        &self.client
    }
    /// Runs one call of the client to completion.
    pub fn call<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Runs `rmctl` against this cluster.
    pub fn rmctl(&self, arguments: &[&str]) -> Result<ProgramOutput> {
        match &self.papers {
            Some(papers) => papers.rmctl(&self.url(), arguments),
            None => rmctl(&self.url(), arguments),
        }
    }

    /// Submits the text of a job file and returns the application's id.
    pub fn submit(&self, job: &str) -> Result<AppId> {
        let file = self
            .dir
            .path()
            .join(format!("job-{}.toml", clock::realtime_nanos()));
        fs::write(&file, job)?;
        self.submit_file(&file)
    }

    /// Submits a job file and returns the application's id.
    pub fn submit_file(&self, file: &Path) -> Result<AppId> {
        let path = file.to_str().context("the job file's path is not UTF-8")?;
        let ran = self.rmctl(&["submit", path, "-o", "name"])?;
        ensure!(
            ran.code == 0,
            "rmctl submit: exit code {}\n{}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
        ran.stdout
            .trim()
            .parse()
            .with_context(|| format!("rmctl submit -o name wrote {:?}", ran.stdout))
    }

    /// The resource manager's view of an application.
    pub fn app(&self, app: &AppId) -> Result<AppView> {
        Ok(self.call(self.client.app(app))?)
    }

    /// Waits for a condition on an application's view. Calls that the resource manager does not
    /// answer are repeated.
    pub fn until_app<T>(
        &self,
        app: &AppId,
        what: &str,
        time: Duration,
        see: impl Fn(&AppView) -> Option<T>,
    ) -> Result<T> {
        until(what, time, || {
            Ok(self.app(app).ok().and_then(|view| see(&view)))
        })
    }

    /// Running containers of an application: those of its executors, or its master's.
    pub fn live_containers(
        &self,
        app: &AppId,
        whose: ContainerOwner,
    ) -> Result<Vec<ContainerView>> {
        let all = self.call(self.client.containers(Some(app)))?;
        let wanted = |c: &ContainerView| {
            c.request.is_none() == (whose == ContainerOwner::Master) && c.state == "running"
        };
        Ok(all.into_iter().filter(wanted).collect())
    }

    /// Process id of a container's program, from the file that its shim wrote.
    pub fn container_pid(&self, container: &ContainerView) -> Result<i32> {
        let file = self
            .state(container.node.as_str())
            .join(format!("containers/{}/pid", container.id));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        text.split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
            .with_context(|| format!("{text:?} in {}", file.display()))
    }

    /// Sends SIGKILL to one process.
    pub fn kill_process(pid: i32) -> Result<()> {
        kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("killing {pid}"))
    }

    /// Submits an application of the user `ann` whose master is the caller, and registers it.
    pub fn register_master(&self, name: &str) -> Result<SubmissionResult> {
        let new = SubmitApplicationRequest {
            name: name.parse()?,
            queue: None,
            priority: 0,
            user: Some("ann".into()),
            lifetime_ms: None,
            master: ApplicationMaster::Unmanaged,
            idempotency_key: None,
            access: AppAccess::default(),
        };
        let submitted = self.call(self.client.submit(&new))?;
        let body = RegisterMaster {
            master_url: Some("tcp://127.0.0.1:4711".into()),
            ..RegisterMaster::new(submitted.attempt.clone())
        };
        self.call(self.client.register_master(&submitted.app, &body))?;
        Ok(submitted)
    }

    /// Waits for the end of an application.
    pub fn until_ended(&self, app: &AppId) -> Result<AppView> {
        self.until_app(app, &format!("{app} to end"), JOB, |view| {
            view.state.is_final().then(|| view.clone())
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        for (_, mut child) in std::mem::take(&mut self.daemons) {
            // The daemon may have exited already; then the kill fails, without consequence.
            let _ = child.kill();
            let _ = child.wait();
        }
        sweep::processes_of(self.dir.path());
        for (hierarchy, node) in hierarchies()
            .iter()
            .flat_map(|h| self.nodes.keys().map(move |n| (h, n)))
        {
            sweep::cgroup(&hierarchy.join(self.cgroup_name(node)));
        }
    }
}

impl Cluster {
    /// Prints the last lines of all logs for a failing test.
    #[allow(clippy::print_stderr)] // read by the developer of the failed test
    fn print_logs(&self) {
        for name in self.daemons.keys() {
            let log = self.log(name);
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- {name} (last of {} lines)\n{}",
                lines.len(),
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
        if let Ok(apps) = self.call(self.client.apps()) {
            for app in apps {
                eprintln!("--- {}: {} {}", app.id, app.state.as_str(), app.diagnostics);
            }
        }
    }
}

fn cluster_dir() -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("headroom-cluster-")
        .tempdir()
        .context("a directory for the cluster")
}

/// The host of the daemon `NAME-HOST`.
fn host_of(daemon: &str) -> Option<usize> {
    daemon.rsplit_once('-')?.1.parse().ok()
}

/// `node-1`, `node-2` …
fn named(shapes: &[NodeShape]) -> BTreeMap<String, NodeShape> {
    shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| (format!("node-{}", i + 1), *shape))
        .collect()
}

/// Mount points of the cgroup hierarchies that a node uses, memory first. Empty if this process may
/// not write to them.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let all = if base.join("cgroup.controllers").exists() {
        vec![base.to_owned()]
    } else {
        ["memory", "pids", "cpu"]
            .iter()
            .map(|c| base.join(c))
            .filter(|p| p.join("tasks").exists())
            .collect()
    };
    let writable =
        |p: &PathBuf| nix::unistd::access(p.as_path(), nix::unistd::AccessFlags::W_OK).is_ok();
    all.into_iter().filter(writable).collect()
}

/// The configuration of a node agent, with health checks that pass even if the disk of the test
/// machine is full.
pub(crate) fn on_any_disk(configuration: &str) -> String {
    let checks = "[health]\ndisk_full = 100\ninodes_full = 100\n";
    if configuration.contains("[health]\n") {
        configuration.replace("[health]\n", checks)
    } else {
        format!("{configuration}\n{checks}")
    }
}

/// Runs `rmctl` against the resource manager at `url`.
pub fn rmctl(url: &str, arguments: &[&str]) -> Result<ProgramOutput> {
    let mut command = Command::new(programs::path("rmctl")?);
    command
        .args(arguments)
        .env("HEADROOM_ADDR", url)
        .env(programs::DIR_VARIABLE, programs::dir()?);
    ran(command)
}

/// Runs a program to its end and returns its exit code and output.
pub fn ran(mut command: Command) -> Result<ProgramOutput> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))
        .map(ProgramOutput::from)
}

/// Calls `see` every 20 ms until it returns a value. An error of `see` ends the wait.
pub fn until<T>(
    what: &str,
    time: Duration,
    mut see: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + time;
    loop {
        if let Some(seen) = see()? {
            return Ok(seen);
        }
        if Instant::now() >= deadline {
            bail!("timed out after {} s waiting for {what}", time.as_secs());
        }
        clock::pause(Duration::from_millis(20));
    }
}

/// A free port below the ephemeral range of the kernel, in a row of ten that belongs to this
/// process. No other test process gets it, so a restarted daemon finds its port free.
pub fn free_port() -> Result<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let row = 10_000 + u16::try_from(std::process::id() % 2_200).unwrap_or(0) * 10;
    let mut ports = (0..10).map(|_| row + GIVEN.fetch_add(1, Ordering::Relaxed) % 10);
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .with_context(|| format!("ports {row} to {} are taken", row + 9))
}
