//! Starts and stops an agent: checks, lock, enforcer, adoption, proof, then the loop.

use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use headroom_client::{Client, ClientCredentials};
use headroom_config::{
    HealthChecks, Isolation, NodeAgentConfig, RunAsUser, SelfFence, total_memory,
};
use headroom_identity::CertificateRole;
use headroom_identity::token::random_hex;
use headroom_node_cgroup::{EnforcerRequest, detect};
use headroom_node_core::fence::FenceTimeout;
use headroom_transport::{CertificateFiles, ReloadingKeys};
use headroom_types::{Bytes, EnforcerKind, Name, NodeId, Resource};
use headroom_wire::v1::attached::NodeReady;
use headroom_wire::v1::nodes::{NodeHealthState, NodeTraits};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::adopt::AdoptedContainer;
use crate::agent_input::{AgentInput, ShutdownContainers};
use crate::agent_loop::NodeAgentLoop;
use crate::agent_state::AgentSetup;
use crate::clock::AgentClock;
use crate::disk::{self, StateLayout};
use crate::disk_checks::DiskChecks;
use crate::http::listener::NodeListener;
use crate::journals::SharedJournals;
use crate::launcher::{LauncherProgram, ShimLauncher};
use crate::localize::Localizer;
use crate::node_context::NodeContext;
use crate::privileges::AgentPrivileges;
use crate::rm_link::ResourceManagerLink;
use crate::shared_reading::SharedReading;
use crate::unattributed_memory::Leftovers;
use crate::{
    adopt, clock, crash, descriptors, doctor, garbage_collection, health, host, http, notify,
    proof, unattributed,
};

/// Maximum number of inputs that wait for the loop.
const QUEUE: usize = 1024;
/// Minimum memory that a node offers. No useful container fits into less.
const LEAST: Bytes = Bytes::from_mib(16);
/// Maximum time that processes of a killed agent may hold its lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between attempts to take the lock.
const LOOK: Duration = Duration::from_millis(5);
/// Maximum time of a shutdown, including the grace of the containers.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(660);

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Configuration.
    pub config: NodeAgentConfig,
    /// Name of the cgroup directory that is created if none is given. `None` means `headroom-NODE`.
    pub cgroup_name: Option<String>,
    /// Whether the parent process and its other children share a cgroup with the agent.
    pub attached: bool,
}

impl AgentOptions {
    /// Options that detect everything. Programs run as the user of the calling process.
    pub fn new(rm: impl Into<String>, state: impl Into<PathBuf>) -> Self {
        AgentOptions {
            config: NodeAgentConfig {
                rm: rm.into(),
                state: state.into(),
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                // A user's own machine runs the user's own programs, whose data may be in /tmp.
                // Only a daemon isolates users from each other.
                isolation: Isolation {
                    run_as: RunAsUser::Agent,
                    allow_root: true,
                    private_tmp: false,
                    ..Isolation::default()
                },
                ..NodeAgentConfig::default()
            },
            cgroup_name: None,
            attached: false,
        }
    }
}

/// A running agent. Dropping it ends the agent and keeps the containers.
#[derive(Debug)]
pub struct RunningAgent {
    /// Its address, node, enforcer and resources.
    pub ready: NodeReady,
    pub(crate) site: Arc<NodeContext>,
    pub(crate) inputs: mpsc::Sender<AgentInput>,
    /// Health checks of the node, shared with the watchers.
    pub(crate) checks: watch::Sender<HealthChecks>,
    end: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Starts an agent. Returns when it serves requests. Registration with the resource manager
/// continues in the background.
pub async fn start(options: AgentOptions) -> anyhow::Result<RunningAgent> {
    descriptors::raise();
    let config = &options.config;
    let client = client(config)?;
    let node = node_name(config)?;
    let bin_dir = bin_dir(config.bin_dir.as_deref())?;
    let layout = StateLayout::open(&config.state)?;
    let lock = lock(&layout).await?;
    let listener = listen(config.listen).await?;
    let keys = certificate(config, &node)?;
    let (node_listener, url) =
        node_listener(config, keys.clone(), listener).context("the address of the listener")?;
    let offers = offers(config)?;
    let (site, notes) = enforce(
        &options,
        &node,
        (bin_dir, keys, client.clone()),
        layout.clone(),
        &offers,
        &lock,
    )
    .await?;
    let HostExamination {
        found,
        services,
        health,
        host,
    } = examine_host(&site, config.clone()).await?;
    let ready = NodeReady {
        url,
        node: node.clone(),
        enforcer: site.kind(),
        health,
        notes,
        offers,
    };
    remember(&layout, &ready, &site);
    announce(&ready);
    doctor::log_findings(&host);

    let (inputs, queue) = mpsc::channel(QUEUE);
    let facts = AgentSetup {
        site: Arc::clone(&site),
        ready: ready.clone(),
        traits: traits(config),
        key: random_hex::<16>().context("cannot create the key for the resource manager")?,
        cardinality: config.telemetry.cardinality,
        host,
    };
    let link = ResourceManagerLink::new(client.clone(), node, inputs.clone());
    let mut agent = NodeAgentLoop::new(
        facts,
        fence_timeout(config.self_fence),
        AgentClock::start(),
        link,
        inputs.clone(),
    );
    agent.adopt_aux_services(services);
    agent.adopt(found);
    let checks = start_background_tasks(&mut agent, config.health.clone(), client, &inputs);
    let end = CancellationToken::new();
    let router = router(&agent.state.facts, &inputs, &node_listener);
    let task = tokio::spawn(serve(
        agent,
        queue,
        node_listener,
        router,
        end.clone(),
        (lock, Arc::clone(&site)),
    ));
    let (offers, enforcer) = (&ready.offers, ready.enforcer);
    notify::ready(&format!("{}: {offers} by {enforcer}", ready.node));
    Ok(RunningAgent {
        ready,
        site,
        inputs,
        checks,
        end,
        task: Some(task),
    })
}

/// Rack, labels and attributes of the node, for placement. An operator sets its taints.
fn traits(config: &NodeAgentConfig) -> NodeTraits {
    NodeTraits {
        rack: config.rack.clone(),
        labels: config.labels.clone(),
        exclusive: config.exclusive,
        attributes: config.attributes.clone(),
        ..NodeTraits::default()
    }
}

fn fence_timeout(fence: SelfFence) -> FenceTimeout {
    match fence {
        SelfFence::Never => FenceTimeout::Endless,
        SelfFence::After(silence) => FenceTimeout::For(silence),
    }
}

fn node_name(config: &NodeAgentConfig) -> anyhow::Result<NodeId> {
    config
        .name
        .clone()
        .or_else(host::name)
        .context("the host name is not a valid node name; give one with --name")
}

/// The findings about the host before the loop starts.
struct HostExamination {
    /// The containers of an earlier agent.
    found: Vec<AdoptedContainer>,
    /// The auxiliary services of an earlier agent that run.
    services: Vec<Name>,
    /// The result of the proof of the enforcer.
    health: NodeHealthState,
    /// The findings of the doctor.
    host: Vec<doctor::DoctorFinding>,
}

/// Adopts containers, starts the launcher, proves the enforcer, and runs the doctor.
async fn examine_host(
    site: &Arc<NodeContext>,
    mut config: NodeAgentConfig,
) -> anyhow::Result<HostExamination> {
    let site = Arc::clone(site);
    config.state = site.layout.state().to_owned();
    let look = move || {
        crash::at("adoption");
        let found = adopt::adopt(&site);
        crash::at("adopted");
        // Queried once, so that the file that it keeps open is open before the first container.
        site.enforcer.host_oom_kills();
        site.launcher.start();
        (found, proof::examine(&site), doctor::examine(&config))
    };
    let (found, health, host) = tokio::task::spawn_blocking(look)
        .await
        .context("cannot examine the host")?;
    let (found, services) = found.context("the containers of an earlier agent cannot be listed")?;
    Ok(HostExamination {
        found,
        services,
        health,
        host,
    })
}

/// Checks the disk, and starts the tasks that run beside the loop: the host checks and the garbage
/// collection. Returns the sender with which the settings of the checks change.
fn start_background_tasks(
    agent: &mut NodeAgentLoop,
    health: HealthChecks,
    client: Client,
    inputs: &mpsc::Sender<AgentInput>,
) -> watch::Sender<HealthChecks> {
    let site = &agent.state.facts.site;
    let mut ills = health::disk(site.layout.state(), &health);
    ills.extend(health::journals(site));
    agent.state.ills.clone_from(&ills);
    for ill in &ills {
        warn!(ill, "this host takes no work until the problem is solved");
    }
    let checks = watch::Sender::new(health);
    tokio::spawn(health::watch(
        Arc::clone(site),
        checks.subscribe(),
        ills,
        inputs.clone(),
    ));
    tokio::spawn(unattributed::watch(
        Arc::clone(site),
        agent.state.facts.ready.offers.memory,
        checks.subscribe(),
        inputs.clone(),
    ));
    tokio::spawn(garbage_collection::keep(
        Arc::clone(site),
        client,
        inputs.clone(),
    ));
    checks
}

/// The HTTP interface of the agent.
fn router(
    facts: &AgentSetup,
    inputs: &mpsc::Sender<AgentInput>,
    node_listener: &NodeListener,
) -> axum::Router {
    let about = http::NodeSummary {
        node: facts.ready.node.clone(),
        url: facts.ready.url.clone(),
        offers: facts.ready.offers.clone(),
        started: clock::unix_now(),
    };
    http::router(
        Arc::clone(&facts.site),
        &facts.key,
        inputs.clone(),
        about,
        node_listener.refusals(),
    )
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another --listen"))
}

fn client(config: &NodeAgentConfig) -> anyhow::Result<Client> {
    let files = config
        .tls
        .as_deref()
        .map(CertificateFiles::of)
        .unwrap_or_default();
    Ok(Client::with_credentials(
        &config.rm,
        ClientCredentials {
            files,
            ..ClientCredentials::default()
        },
    )?)
}

/// The listener, and the URL by which others connect to it.
fn node_listener(
    config: &NodeAgentConfig,
    keys: Option<Arc<ReloadingKeys>>,
    listener: TcpListener,
) -> anyhow::Result<(NodeListener, String)> {
    let url = reached_at(config, listener.local_addr()?);
    Ok((NodeListener::new(listener, keys), url))
}

/// The agent's certificate, which must belong to this node. Listening beyond loopback requires one.
fn certificate(
    config: &NodeAgentConfig,
    node: &NodeId,
) -> anyhow::Result<Option<Arc<ReloadingKeys>>> {
    let Some(dir) = &config.tls else {
        let listen = config.listen;
        anyhow::ensure!(
            listen.ip().is_loopback(),
            "listen = \"{listen}\" can be reached from other hosts, and callers would not be authenticated; get a certificate \
             with rmctl node join and name its directory: tls = \"/etc/headroom/tls\", or listen on 127.0.0.1"
        );
        return Ok(None);
    };
    let keys = ReloadingKeys::open(dir).with_context(|| format!("tls = {}", dir.display()))?;
    if let Some(role) = keys
        .facts()
        .role
        .filter(|role| *role != CertificateRole::Node(node.clone()))
    {
        bail!(
            "the certificate in {} is of {role}, but this is node {node}; get one with rmctl node join",
            dir.display()
        );
    }
    Ok(Some(Arc::new(keys)))
}

/// The URL of the agent for other hosts.
fn reached_at(config: &NodeAgentConfig, address: SocketAddr) -> String {
    let scheme = if config.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let host = advertised(config).unwrap_or_else(|| address.ip().to_string());
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    format!("{scheme}://{host}:{}", address.port())
}

/// The name or address of this node for other hosts. `None` if the agent listens on a specific
/// address.
fn advertised(config: &NodeAgentConfig) -> Option<String> {
    let unnamed = || {
        let unspecified = config.listen.ip().is_unspecified();
        unspecified.then(host::name)?.map(|name| name.to_string())
    };
    config.advertise.clone().or_else(unnamed)
}

/// The listen address and host name for masters on this host, so that executors of other hosts can
/// connect to them. Masters listen on the usual address of loopback by themselves.
fn for_masters(config: &NodeAgentConfig) -> Option<(String, String)> {
    let ip = config.listen.ip();
    if ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST {
        return None;
    }
    let name = advertised(config).unwrap_or_else(|| ip.to_string());
    Some((SocketAddr::new(ip, 0).to_string(), name))
}

/// Takes the lock of the state directory. The launcher of a killed agent, and shims that it has
/// just forked, hold the lock until they are named. Waiting for them lets adoption find every shim.
/// A running agent holds the lock longer than this waits, which is an error.
async fn lock(layout: &StateLayout) -> anyhow::Result<File> {
    let deadline = tokio::time::Instant::now() + LOCK_TIMEOUT;
    while tokio::time::Instant::now() < deadline {
        if let Some(lock) = layout.try_lock()? {
            return Ok(lock);
        }
        tokio::time::sleep(LOOK).await;
    }
    layout.lock()
}

/// Runs until the loop ends or is aborted. The lock is held for the same time.
async fn serve(
    agent: NodeAgentLoop,
    queue: mpsc::Receiver<AgentInput>,
    node_listener: NodeListener,
    router: axum::Router,
    end: CancellationToken,
    (lock, site): (File, Arc<NodeContext>),
) {
    tokio::select! {
        () = agent.run(queue) => {}
        () = end.cancelled() => {}
        () = node_listener.serve(router) => warn!("the HTTP listener ended"),
    }
    site.launcher.close();
    drop(lock);
}

impl RunningAgent {
    /// Waits until the agent ends by itself, which indicates an error.
    pub async fn ended(&mut self) {
        if let Some(task) = self.task.as_mut() {
            task.await.ok();
        }
    }

    /// Ends the agent. Ends its containers too with [`ShutdownContainers::Kill`].
    pub async fn shutdown(mut self, containers: ShutdownContainers) {
        let (done, ended) = oneshot::channel();
        if self
            .inputs
            .send(AgentInput::Shutdown(containers, done))
            .await
            .is_ok()
            && tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err()
        {
            warn!("the agent did not end in time");
        }
        self.end.cancel();
        if let Some(task) = self.task.take() {
            task.await.ok();
        }
        if containers == ShutdownContainers::Kill {
            let site = Arc::clone(&self.site);
            if let Ok(Err(error)) =
                tokio::task::spawn_blocking(move || site.enforcer.remove_root()).await
            {
                warn!(%error, "the cgroups of this node cannot be removed, ignoring");
            }
        }
    }
}

fn bin_dir(wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    let dir = match (wanted, std::env::var_os("HEADROOM_BIN_DIR")) {
        (Some(dir), _) => dir.to_owned(),
        (None, Some(dir)) => PathBuf::from(dir),
        (None, None) => {
            let own = std::env::current_exe()
                .context("cannot find the path of this program; give --bin-dir")?;
            own.parent()
                .context("cannot find the path of this program; give --bin-dir")?
                .to_owned()
        }
    };
    let dir = dir.canonicalize().with_context(|| {
        format!(
            "there is no directory {}; give another --bin-dir",
            dir.display()
        )
    })?;
    if !dir.join("container-shim").is_file() {
        bail!(
            "container-shim is not in {}; give its directory with --bin-dir or HEADROOM_BIN_DIR",
            dir.display()
        );
    }
    Ok(dir)
}

fn offers(config: &NodeAgentConfig) -> anyhow::Result<Resource> {
    let services = total_memory(&config.aux_services);
    let memory = config
        .memory
        .unwrap_or_else(|| host::memory().total.saturating_sub(config.reserve))
        .saturating_sub(services);
    if memory < LEAST {
        let kept = if services.is_zero() {
            String::new()
        } else {
            format!(", because its auxiliary services need {services}")
        };
        bail!(
            "this node would offer {memory}, less than {LEAST}{kept}; lower --reserve or give --memory"
        );
    }
    Ok(Resource::new(
        memory,
        config.cpus.unwrap_or_else(host::cpus),
    ))
}

async fn enforce(
    options: &AgentOptions,
    node: &NodeId,
    (bin_dir, keys, client): (PathBuf, Option<Arc<ReloadingKeys>>, Client),
    layout: StateLayout,
    offers: &Resource,
    lock: &File,
) -> anyhow::Result<(Arc<NodeContext>, Vec<String>)> {
    let config = &options.config;
    let wanted = EnforcerRequest {
        kind: config.enforcer,
        root: config.cgroup_root.clone(),
        name: options
            .cgroup_name
            .clone()
            .unwrap_or_else(|| format!("headroom-{node}")),
        attached: options.attached,
    };
    let aux_services = config.aux_services.clone();
    // The limit around all containers also contains the services.
    let fence = offers.memory.saturating_add(total_memory(&aux_services));
    let (node, rm) = (node.clone(), client.base().to_owned());
    let for_masters = for_masters(config);
    let journals = SharedJournals::of(config, node.as_str());
    let journal_place = config.masters.journals.clone();
    let (isolation, logs, rights) = (
        config.isolation.clone(),
        config.logs,
        AgentPrivileges::own(),
    );
    let (cache, lock) = (
        config.cache.clone(),
        lock.try_clone().context("cannot duplicate the lock")?,
    );
    let job = move || -> anyhow::Result<(Arc<NodeContext>, Vec<String>)> {
        let found = detect(&wanted)?;
        found
            .enforcer
            .set_fence(fence)
            .context("the limit around all containers cannot be set")?;
        let localizer = Localizer::open(layout.state(), cache, client)?;
        let shim = LauncherProgram {
            path: bin_dir.join("container-shim"),
            state: layout.state().to_owned(),
            procs_files: found.enforcer.shim_procs_files(),
        };
        let site = NodeContext {
            node,
            layout,
            enforcer: found.enforcer,
            bin_dir,
            rm,
            keys,
            for_masters,
            journal_place,
            journals,
            isolation,
            logs: logs.into(),
            localizer,
            launcher: ShimLauncher::new(shim, lock),
            rights,
            leftovers: Leftovers::default(),
            outer: SharedReading::default(),
            disk_checks: DiskChecks::default(),
            aux_services,
        };
        Ok((Arc::new(site), found.notes))
    };
    tokio::task::spawn_blocking(job)
        .await
        .context("cannot detect the enforcer")?
}

#[derive(Serialize)]
struct NodeRecord<'a> {
    version: u32,
    node: &'a NodeId,
    url: &'a str,
    pid: u32,
    enforcer: EnforcerKind,
    /// The cgroup directory of the agent.
    root: Option<PathBuf>,
}

/// Writes node.json, for users and tools that read the state directory, and for the doctor.
fn remember(layout: &StateLayout, ready: &NodeReady, site: &NodeContext) {
    let record = NodeRecord {
        version: 1,
        node: &ready.node,
        url: &ready.url,
        pid: std::process::id(),
        enforcer: ready.enforcer,
        root: site.enforcer.root(),
    };
    if let Err(error) = disk::write_json(&layout.node(), &record) {
        warn!(%error, "node.json cannot be written, ignoring");
    }
}

fn announce(ready: &NodeReady) {
    for note in &ready.notes {
        info!(note, "the enforcer was detected");
    }
    let node = &ready.node;
    match &ready.health {
        NodeHealthState::Healthy => {
            info!(%node, enforcer = %ready.enforcer, offers = %ready.offers, "the enforcer passed its test")
        }
        NodeHealthState::Unhealthy { reason } => {
            warn!(%node, reason, "the node takes no work")
        }
    }
}
