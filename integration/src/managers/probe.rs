//! Callers that run during all failures: for each node a master that requests one container of it
//! after the other and records the time of each grant, and a user who submits one application after
//! the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use headroom_client::{Client, ClientResult, LiveContainers};
use headroom_types::{AppId, AttemptId, Bytes, Cpus, LaunchSpec, NodeId, RequestId, Resource};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::application_master::{
    ApplicationUpdateKind, MasterSync, PlacementRequest, RegisterMaster,
};
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};

/// Timeout of a call, and longest wait for a grant before the prober registers again.
const PATIENCE: Duration = Duration::from_millis(700);
/// Pause between two submissions.
const SUBMIT_EVERY: Duration = Duration::from_millis(200);
/// Pause between two requests of a prober.
const REQUEST_EVERY: Duration = Duration::from_millis(50);
/// Pause before the next registration.
const AGAIN: Duration = Duration::from_millis(20);

/// One prober for each node. They share no container, so the loss of a node stops one of them.
#[derive(Debug)]
pub(super) struct GrantProbes {
    probes: Vec<GrantProbe>,
}

impl GrantProbes {
    /// Starts to request containers of each node from the managers at `addresses`.
    pub(super) fn start(addresses: &str, nodes: &[NodeId]) -> Result<Self> {
        let start = |node: &NodeId| GrantProbe::start(addresses, node);
        Ok(GrantProbes {
            probes: nodes.iter().map(start).collect::<Result<_>>()?,
        })
    }

    /// Whether each prober got a grant.
    pub(super) fn have_begun(&self) -> bool {
        self.probes.iter().all(|probe| !probe.grants().is_empty())
    }

    /// Number of grants after a time.
    pub(super) fn since(&self, time: Instant) -> usize {
        let all = self.probes.iter().flat_map(GrantProbe::grants);
        all.filter(|at| *at > time).count()
    }

    /// The longest time without any grant that ended after `time`.
    pub(super) fn longest_gap(&self, time: Instant) -> Duration {
        let mut all: Vec<Instant> = self.probes.iter().flat_map(GrantProbe::grants).collect();
        all.sort_unstable();
        longest_gap(&all, time)
    }

    /// The longest time without a grant of one of the nodes that ended after `time`.
    pub(super) fn longest_gap_of_a_node(&self, time: Instant) -> Duration {
        let gaps = self.probes.iter();
        let gaps = gaps.map(|probe| longest_gap(&probe.grants(), time));
        gaps.max().unwrap_or_default()
    }
}

fn longest_gap(grants: &[Instant], time: Instant) -> Duration {
    let pairs = grants.windows(2).filter(|pair| pair[1] > time);
    let gaps = pairs.map(|pair| pair[1].duration_since(pair[0]));
    gaps.max().unwrap_or_default()
}

/// The running prober; it ends when this value is dropped.
#[derive(Debug)]
struct GrantProbe {
    grants: Arc<Mutex<Vec<Instant>>>,
    _runtime: tokio::runtime::Runtime,
}

impl GrantProbe {
    fn start(addresses: &str, node: &NodeId) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let client = Client::new(addresses)?.with_timeout(PATIENCE);
        let submitted = runtime.block_on(client.submit(&unmanaged("probe")?))?;
        let grants = Arc::<Mutex<Vec<Instant>>>::default();
        let prober = Prober {
            client,
            app: submitted.app,
            attempt: submitted.attempt,
            grants: grants.clone(),
            requests: 0,
            node: node.clone(),
            containers: LiveContainers::default(),
        };
        runtime.spawn(prober.run());
        Ok(GrantProbe {
            grants,
            _runtime: runtime,
        })
    }

    fn grants(&self) -> Vec<Instant> {
        self.grants
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The running submitter; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct SubmissionProbe {
    accepted: Arc<Mutex<Vec<AppId>>>,
    _runtime: tokio::runtime::Runtime,
}

impl SubmissionProbe {
    /// Starts to submit applications to the managers at `addresses`.
    pub(super) fn start(addresses: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let accepted = Arc::<Mutex<Vec<AppId>>>::default();
        let (client, request) = (Client::new(addresses)?, unmanaged("submitted")?);
        runtime.spawn(submit(client, request, accepted.clone()));
        Ok(SubmissionProbe {
            accepted,
            _runtime: runtime,
        })
    }

    /// The applications that were accepted since the last call.
    pub(super) fn take(&self) -> Vec<AppId> {
        std::mem::take(&mut self.accepted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn submit(
    client: Client,
    request: SubmitApplicationRequest,
    accepted: Arc<Mutex<Vec<AppId>>>,
) {
    loop {
        // Without an answer it may be accepted or not; only an answer is a promise.
        if let Ok(submitted) = client.submit(&request).await {
            let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.push(submitted.app);
        }
        tokio::time::sleep(SUBMIT_EVERY).await;
    }
}

/// An application without a master of the cluster.
fn unmanaged(name: &str) -> Result<SubmitApplicationRequest> {
    Ok(SubmitApplicationRequest {
        name: name.parse()?,
        queue: None,
        priority: 10,
        user: Some("probe".into()),
        lifetime_ms: None,
        master: ApplicationMaster::Unmanaged,
        idempotency_key: None,
        access: AppAccess::default(),
    })
}

struct Prober {
    client: Client,
    app: AppId,
    attempt: AttemptId,
    grants: Arc<Mutex<Vec<Instant>>>,
    requests: u32,
    node: NodeId,
    containers: LiveContainers,
}

impl Prober {
    async fn run(mut self) {
        loop {
            // Every error is a reason to register again, with the manager that leads then.
            let _ = self.serve().await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Registers, and requests containers until an error or a long wait.
    async fn serve(&mut self) -> ClientResult<()> {
        let mut registered = self
            .client
            .register_master(
                &self.app,
                &RegisterMaster {
                    nodes: self.containers.nodes(),
                    containers: self.containers.numbers(),
                    ..RegisterMaster::new(self.attempt.clone())
                },
            )
            .await?;
        let (epoch, mut cursor) = (registered.epoch, registered.cursor);
        self.containers.register(&mut registered);
        let mut updates = self.client.updates(&self.app, epoch, cursor).await?;
        loop {
            self.requests += 1;
            let Ok(request) = format!("p{}", self.requests).parse::<RequestId>() else {
                return Ok(());
            };
            let sync = MasterSync {
                attempt: self.attempt.clone(),
                epoch,
                ack: cursor,
                asks: vec![probing(request.clone(), self.node.clone())],
                drop: Vec::new(),
                release: Vec::new(),
                job: None,
            };
            self.client.sync_master(&self.app, &sync).await?;
            let until = tokio::time::Instant::now() + PATIENCE;
            loop {
                let Ok(Some(line)) = tokio::time::timeout_at(until, updates.next()).await else {
                    return Ok(());
                };
                let update = line?;
                cursor = update.cursor;
                self.containers.update(&update.what);
                let granted = matches!(
                    &update.what,
                    ApplicationUpdateKind::Allocated(grant) if grant.request == request
                );
                if granted {
                    break;
                }
            }
            self.grants
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Instant::now());
            tokio::time::sleep(REQUEST_EVERY).await;
        }
    }
}

/// The request for one container that ends at once.
fn probing(request: RequestId, node: NodeId) -> PlacementRequest {
    let resource = Resource::new(Bytes::from_mib(4), Cpus::from_milli(10));
    let launch = LaunchSpec {
        command: vec!["true".into()],
        ..LaunchSpec::default()
    };
    PlacementRequest {
        nodes: vec![node],
        ..PlacementRequest::new(request, resource, launch)
    }
}
