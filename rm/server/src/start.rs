//! Start and shutdown of the resource manager.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context as _;
use headroom_config::{AnonymousAccess, ResourceManagerConfig};
use headroom_identity::CertificateRole;
use headroom_identity::tls::PeerExpectation;
use headroom_rm_etcd::LeaseClock;
use headroom_rm_store::OpenedStore;
use headroom_rm_store::etcd::EtcdEngine;
use headroom_transport::ReloadingKeys;
use headroom_types::{Epoch, millis};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::access::AccessControl;
use crate::activation;
use crate::audit::{self, AuditRecorder};
use crate::clock::ManagerClock;
use crate::eventlog::EventLog;
use crate::front::{Elected, Front, elect};
use crate::handle::MainLoopHandle;
use crate::http::idempotency::IdempotencyStore;
use crate::http::limits::ConnectionLimits;
use crate::http::listeners::{TcpServerListener, UnixSocketListener};
use crate::http::service::InterfaceRoutes;
use crate::http::signer::CertificateSigner;
use crate::http::web::WebResources;
use crate::http::{DESCRIPTION, RequestLimits, addresses, copies_router, router};
use crate::inbox;
use crate::jobs::JobRowStore;
use crate::manager_group::{ManagerGroup, Term};
use crate::metrics::ManagerCounters;
use crate::notify;
use crate::operator::OperatorHandle;
use crate::options::{ManagerOptions, require_secure_listener};
use crate::peer_clients::PeerHttpClients;
use crate::profiles::ProfileCatalog;
use crate::published::Published;
use crate::reader::ClusterReader;
use crate::run::{ManagerLoop, ManagerLoopError};
use crate::shared_state::SharedState;
use crate::upload_copies::UploadCopies;
use crate::upload_sweep::keep_swept;
use crate::uploads::UploadStore;
use crate::usage_history::UsageHistory;
use crate::view;

/// Backlog of the listener; the limit of the kernel also applies.
const BACKLOG: u32 = 16_384;
/// Directory of uploaded files, in the state directory.
const UPLOADS: &str = "uploads";
/// Directory of the event log and the audit log, in the state directory.
const LOGS: &str = "log";
/// Delay of the events of earlier incarnations after the recovery, without a reader.
const RESTORE_DELAY: Duration = Duration::from_secs(2);
/// Timeout for the last batch at shutdown.
const LAST_BATCH: Duration = Duration::from_secs(20);

/// Receiver of the outcome of the main loop.
type LoopOutcome = oneshot::Receiver<Result<(), ManagerLoopError>>;

/// A running resource manager.
#[derive(Debug)]
pub struct RunningManager {
    /// URL of the TCP listener, such as `http://127.0.0.1:7070`.
    pub url: String,
    /// Epoch.
    pub epoch: Epoch,
    pub(crate) handle: MainLoopHandle,
    owner: LoopOutcome,
    /// The leadership; `None` without an election.
    term: Option<Term>,
    server: JoinHandle<()>,
    closing: CancellationToken,
    pub(crate) events: Arc<EventLog>,
    pub(crate) audit: Arc<AuditRecorder>,
    pub(crate) clock: ManagerClock,
    /// Options in effect.
    pub(crate) options: ManagerOptions,
}

/// Starts a resource manager inside another program: opens the listeners and the state, and serves.
pub async fn start(options: ManagerOptions) -> anyhow::Result<RunningManager> {
    start_for(options, None, &[]).await
}

/// Starts the resource manager of a daemon, whose `operator` reloads the configuration and sets the
/// log level. It also serves the `interfaces` of other systems.
pub async fn start_for(
    options: ManagerOptions,
    operator: Option<OperatorHandle>,
    interfaces: &[InterfaceRoutes],
) -> anyhow::Result<RunningManager> {
    let config = &options.config;
    let (listener, socket) = places(config)?;
    let address = listener
        .local_addr()
        .context("cannot read the address of the listener")?;
    let (keys, authority) = certificates(config, address)?;
    let url = format!(
        "{}://{address}",
        if keys.is_some() { "https" } else { "http" }
    );
    let counters = Arc::new(ManagerCounters::new(addresses()));
    let closing = CancellationToken::new();
    let unfinished = closing.clone().drop_guard();
    let front = Front {
        port: TcpServerListener {
            listener,
            anonymous: config.anonymous,
            keys: keys.clone(),
        },
        socket,
        limits: ConnectionLimits::new(config.limits, counters.turned.clone()),
        header_time: options.header_time,
        closing: closing.clone(),
    };
    // A standby stores copies. Otherwise the lock of the state comes first.
    let uploads = match config.etcd.is_used() {
        true => Some(open_uploads(config).await?),
        false => None,
    };
    let copies = uploads
        .clone()
        .map(|store| copies_router(store, options.body_time));
    let copies = copies.unwrap_or_default();
    let elected = elect(config, &url, front, copies).await?;
    let bound = BoundManager {
        url,
        address,
        keys,
        authority,
        operator,
        counters,
        closing,
        uploads,
    };
    let running = lead(options, bound, elected, interfaces).await?;
    // From now on its owner ends it.
    unfinished.disarm();
    Ok(running)
}

/// A manager with its listeners, before it leads.
struct BoundManager {
    url: String,
    address: SocketAddr,
    keys: Option<Arc<ReloadingKeys>>,
    authority: Option<Arc<CertificateSigner>>,
    operator: Option<OperatorHandle>,
    counters: Arc<ManagerCounters>,
    closing: CancellationToken,
    /// Opened before the election, if there is one.
    uploads: Option<Arc<UploadStore>>,
}

/// Opens the state, and serves as the leader.
async fn lead(
    options: ManagerOptions,
    bound: BoundManager,
    elected: Elected,
    interfaces: &[InterfaceRoutes],
) -> anyhow::Result<RunningManager> {
    let (config, closing) = (&options.config, bound.closing);
    let opened = match open_state(config, elected.etcd).await {
        Ok(opened) => opened,
        Err(error) => {
            // Another manager may be able to lead this state, such as one of a later version.
            if let Some(term) = elected.term {
                term.resign().await;
            }
            return Err(error);
        }
    };
    let (clock, epoch, documents) = (
        ManagerClock::start(),
        opened.restored.epoch,
        opened.documents.clone(),
    );
    let once = IdempotencyStore::restored(opened.answers.clone(), clock.unix_now());
    let (apps, nodes) = (opened.restored.apps.len(), opened.restored.nodes.len());
    let logs = config.state.join(LOGS);
    let shared = shared_state(&opened, config, &logs, (clock, bound.counters))?;
    let nodes_called = PeerHttpClients::new(bound.keys.clone(), PeerExpectation::Node)
        .context("cannot create the client for calls to nodes")?;
    tokio::spawn(restore_events(shared.clone(), logs.clone()));
    let lease = elected.term.as_ref().map(Term::clock);
    let (handle, owner) = start_loop(opened, &options, clock, (shared.clone(), lease.clone()))?;
    let (events, audit) = (
        shared.events.clone(),
        Arc::new(AuditRecorder::open(&logs, config.audit)),
    );
    tokio::spawn(audit::keep_synced(audit.clone(), closing.clone()));
    let reader = ClusterReader {
        handle: handle.clone(),
        shared,
        documents,
        epoch,
        clock,
    };
    let managers = elected.group.as_ref().zip(Some(bound.keys));
    let about = (&reader, &closing);
    let (uploads, copies) = keep_uploads(config, bound.uploads, managers, about).await?;
    let web = WebResources {
        url: bound.url.as_str().into(),
        election: elected.group.zip(lease),
        copies,
        ..web(
            config,
            reader,
            (Arc::new(nodes_called), uploads),
            (bound.authority, bound.operator),
            &audit,
            &closing,
        )
    };
    let routes = router(
        web.into(),
        once,
        bound.address,
        RequestLimits {
            limits: config.limits,
            body_time: options.body_time,
        },
        interfaces,
    );
    let server = elected.server.lead(routes);
    let running = RunningManager {
        url: bound.url,
        epoch,
        handle,
        owner,
        term: elected.term,
        server,
        closing,
        events,
        audit,
        clock,
        options,
    };
    announce(&running, (apps, nodes)).await?;
    Ok(running)
}

/// Waits for the first view of the cluster, and reports that the resource manager is ready. `counts`
/// are the restored applications and nodes.
async fn announce(running: &RunningManager, counts: (usize, usize)) -> anyhow::Result<()> {
    // The first turn of the loop is complete when its view exists.
    running.handle.view().await.map_err(anyhow::Error::new)?;
    let config = &running.options.config;
    let store = if config.etcd.is_used() {
        "etcd"
    } else {
        config.store.as_str()
    };
    let state = config.state.display();
    let ((apps, nodes), epoch) = (counts, running.epoch);
    info!(name: "manager-ready", url = running.url, %epoch, apps, nodes, %state, store, "the resource manager answers");
    notify::ready();
    Ok(())
}

/// Restores the state that the main loop shares; `logs` is the directory of the event log.
fn shared_state(
    opened: &OpenedStore,
    config: &ResourceManagerConfig,
    logs: &Path,
    (clock, counters): (ManagerClock, Arc<ManagerCounters>),
) -> anyhow::Result<SharedState> {
    let epoch = opened.restored.epoch;
    Ok(SharedState {
        published: Arc::new(Published::new(view::empty(epoch))),
        events: Arc::new(EventLog::open(epoch, logs, config.events)),
        jobs: Arc::new(JobRowStore::new(
            clock.unix_now(),
            config.telemetry.cardinality,
        )),
        families: Arc::new(UsageHistory::restored(opened.families.clone())),
        profiles: watch::Sender::new(Arc::new(ProfileCatalog::restored(opened.profiles.clone()))),
        access: watch::Sender::new(Arc::new(
            AccessControl::restored(&opened.access).context("cannot create the key for tokens")?,
        )),
        counters,
        heartbeat: Arc::new(AtomicU64::new(millis(config.heartbeat))),
    })
}

/// Restores the events of earlier incarnations while the manager already serves: as soon as a reader
/// needs them, or some time after the recovery. The nodes that register meanwhile need the
/// processors more.
async fn restore_events(shared: SharedState, logs: PathBuf) {
    let (events, mut recovery) = (shared.events, shared.published.recovery());
    let calm = async {
        // Fails if the main loop has ended.
        let _ = recovery.wait_for(|recovered| *recovered).await;
        tokio::time::sleep(RESTORE_DELAY).await;
    };
    tokio::select! {
        () = events.wanted() => {}
        () = calm => {}
    }
    let restored = tokio::task::spawn_blocking(move || events.restore(&logs)).await;
    if let Err(error) = restored {
        tracing::warn!(%error, "the events of earlier incarnations are not restored");
    }
}

/// Starts the main loop. Returns the handle for its inputs, and the receiver of its outcome.
fn start_loop(
    opened: OpenedStore,
    options: &ManagerOptions,
    clock: ManagerClock,
    (shared, lease): (SharedState, Option<Arc<LeaseClock>>),
) -> anyhow::Result<(MainLoopHandle, LoopOutcome)> {
    let (lines, inbox) = inbox::lines();
    let handle = MainLoopHandle::new(lines, shared.published.clone(), clock);
    let owner = ManagerLoop::new(
        opened,
        options.settings(clock),
        clock,
        inbox,
        (shared, lease),
        options.config.journals,
    )
    .context("cannot start the thread that saves the state")?;
    let owner = on_its_thread(owner).context("cannot start the thread of the main loop")?;
    Ok((handle, owner))
}

/// State of the HTTP handlers.
fn web(
    config: &ResourceManagerConfig,
    reader: ClusterReader,
    (nodes, uploads): (Arc<PeerHttpClients>, Arc<UploadStore>),
    (authority, operator): (Option<Arc<CertificateSigner>>, Option<OperatorHandle>),
    audit: &Arc<AuditRecorder>,
    closing: &CancellationToken,
) -> WebResources {
    WebResources {
        reader,
        nodes,
        asks: config.anonymous != AnonymousAccess::All,
        authority,
        traces: config.traces.as_deref().map(Arc::from),
        closing: closing.clone(),
        streams: Arc::new(Semaphore::new(
            usize::try_from(config.limits.streams).unwrap_or(Semaphore::MAX_PERMITS),
        )),
        changes: Arc::default(),
        boards: Arc::default(),
        near: Arc::default(),
        keys: Arc::default(),
        masters: Arc::default(),
        peaks: Arc::default(),
        audit: audit.clone(),
        operator,
        description: &DESCRIPTION,
        uploads,
        copies: None,
        url: "".into(),
        election: None,
        state: config.state.clone().into(),
    }
}

/// Opens the state on disk or in etcd, and logs its anomalies.
async fn open_state(
    config: &ResourceManagerConfig,
    etcd: Option<EtcdEngine>,
) -> anyhow::Result<OpenedStore> {
    let (state, store) = (config.state.clone(), config.store);
    let open = move || match etcd {
        Some(etcd) => headroom_rm_store::open_in_etcd(&state, etcd),
        None => headroom_rm_store::open(&state, store),
    };
    let opened = tokio::task::spawn_blocking(open)
        .await
        .context("cannot open the state")??;
    opened
        .notes
        .iter()
        .for_each(|note| tracing::warn!("{note}"));
    Ok(opened)
}

/// Opens the store of uploaded files.
async fn open_uploads(config: &ResourceManagerConfig) -> anyhow::Result<Arc<UploadStore>> {
    let (dir, limits, clock) = (
        config.state.join(UPLOADS),
        config.uploads,
        ManagerClock::start(),
    );
    let about = dir.display().to_string();
    let opened = tokio::task::spawn_blocking(move || UploadStore::open(dir, limits, clock))
        .await
        .context("cannot open the store of uploads")?;
    let opened = opened.with_context(|| format!("cannot open the store of uploads in {about}"))?;
    Ok(Arc::new(opened))
}

/// Removes old uploaded files until `closing`. With other managers, keeps copies there; the
/// certificate is for calls to them.
async fn keep_uploads(
    config: &ResourceManagerConfig,
    opened: Option<Arc<UploadStore>>,
    managers: Option<(&ManagerGroup, Option<Arc<ReloadingKeys>>)>,
    (reader, closing): (&ClusterReader, &CancellationToken),
) -> anyhow::Result<(Arc<UploadStore>, Option<Arc<UploadCopies>>)> {
    let uploads = match opened {
        Some(uploads) => uploads,
        None => open_uploads(config).await?,
    };
    tokio::spawn(keep_swept(uploads.clone(), reader.clone(), closing.clone()));
    let Some((group, keys)) = managers else {
        return Ok((uploads, None));
    };
    let clients = PeerHttpClients::new(keys, PeerExpectation::Manager)
        .context("cannot create the client for calls to other resource managers")?;
    let copies = UploadCopies::new(uploads.clone(), group.clone(), clients, reader.clock);
    let copies = Arc::new(copies);
    tokio::spawn(copies.clone().keep_equal(reader.clone(), closing.clone()));
    Ok((uploads, Some(copies)))
}

/// Certificate of the daemon, and the signing authority.
type CertificateSetup = (Option<Arc<ReloadingKeys>>, Option<Arc<CertificateSigner>>);

/// Opens the daemon's certificate and, if hosts may join by token, the authority.
fn certificates(
    config: &ResourceManagerConfig,
    address: SocketAddr,
) -> anyhow::Result<CertificateSetup> {
    require_secure_listener(config, address)?;
    let keys = config
        .tls
        .as_deref()
        .map(|dir| ReloadingKeys::open(dir).with_context(|| format!("tls = {}", dir.display())));
    let signer = config.authority.as_deref().map(|dir| {
        CertificateSigner::open(dir).with_context(|| format!("authority = {}", dir.display()))
    });
    let (keys, signer) = (keys.transpose()?, signer.transpose()?);
    if let Some(role) = keys
        .as_ref()
        .and_then(|keys| keys.facts().role)
        .filter(|role| *role != CertificateRole::Manager)
    {
        anyhow::bail!(
            "the certificate in tls is for {role}, not for a manager; create one with rmctl ca issue manager"
        );
    }
    Ok((keys.map(Arc::new), signer.map(Arc::new)))
}

/// Opens the listeners: those that the service manager passed, or new ones.
fn places(
    config: &ResourceManagerConfig,
) -> anyhow::Result<(TcpListener, Option<UnixSocketListener>)> {
    let given = activation::take(config.listen, config.socket.as_deref())?;
    let own = || bind(config.listen).with_context(|| format!("cannot listen on {}", config.listen));
    let listener = given.port.map_or_else(own, Ok)?;
    let at = |path: &Path| {
        UnixSocketListener::bind(path)
            .with_context(|| format!("cannot listen on the socket {}", path.display()))
    };
    let own = || config.socket.as_deref().map(at).transpose();
    Ok((
        listener,
        given
            .socket
            .map_or_else(own, |held| Ok(Some(UnixSocketListener::held(held))))?,
    ))
}

/// Runs the loop on its own thread. The receiver gets the outcome.
fn on_its_thread(owner: ManagerLoop) -> std::io::Result<LoopOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("owner".into())
        .spawn(move || {
            // Fails if the process is ending and has dropped the receiver.
            let _ = sender.send(runtime.block_on(owner.run()));
        })?;
    Ok(ended)
}

/// Opens the TCP listener. Its backlog is large, because all nodes connect at once after a restart.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Connections of the previous incarnation stay in TIME_WAIT for a minute.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl RunningManager {
    /// Returns when the resource manager has failed. Cancel safe until it has returned.
    pub async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.owner).await {
            Ok(Ok(())) => anyhow::anyhow!("the main loop ended without an order"),
            Ok(Err(ended)) => ended.into(),
            Err(fault) => anyhow::Error::new(fault).context("the main loop failed"),
        }
    }

    /// Stops accepting calls, saves the state and closes all streams. Nodes and masters keep their
    /// containers and wait for the next incarnation.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        notify::stopping();
        info!("the resource manager is shutting down and accepts no more calls");
        if self.term.is_none() {
            self.closing.cancel();
        }
        self.handle.stop().await;
        let last = tokio::time::timeout(LAST_BATCH, self.owner).await;
        let last = last.with_context(|| {
            format!(
                "the last batch was not saved within {} s",
                LAST_BATCH.as_secs()
            )
        })?;
        // A standby takes a closed listener for the end of the process, and leads. So a leader closes
        // its own only after its last write and its last effects.
        self.closing.cancel();
        last.context("the main loop failed")??;
        if let Some(term) = self.term {
            term.resign().await;
        }
        self.server.await.context("the server failed")?;
        let events = self.events;
        tokio::task::spawn_blocking(move || events.close())
            .await
            .context("cannot write the last events")?;
        info!("the resource manager has ended");
        Ok(())
    }
}
