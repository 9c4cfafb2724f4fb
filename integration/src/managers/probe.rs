//! Callers that run during all failures: a master that requests one container after the other and
//! records the time of each grant, and a user who submits one application after the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use headroom_client::{Client, ClientResult};
use headroom_types::{AppId, AttemptId, Bytes, Cpus, LaunchSpec, RequestId, Resource};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::application_master::{
    ApplicationUpdateKind, MasterSync, PlacementRequest, RegisterMaster,
};
use headroom_wire::v1::apps::{ApplicationMaster, SubmitApplicationRequest};

/// Timeout of a call, and longest wait for a grant before the prober registers again.
const PATIENCE: Duration = Duration::from_millis(700);
/// Pause between two submissions.
const SUBMIT_EVERY: Duration = Duration::from_millis(200);
/// Pause before the next registration.
const AGAIN: Duration = Duration::from_millis(20);

/// The running prober; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct GrantProbe {
    grants: Arc<Mutex<Vec<Instant>>>,
    _runtime: tokio::runtime::Runtime,
}

impl GrantProbe {
    /// Starts to request containers from the managers at `addresses`.
    pub(super) fn start(addresses: &str) -> Result<Self> {
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

    /// The latest grant.
    pub(super) fn last(&self) -> Option<Instant> {
        self.grants().last().copied()
    }

    /// Number of grants after a time.
    pub(super) fn since(&self, time: Instant) -> usize {
        self.grants().iter().filter(|at| **at > time).count()
    }

    /// The longest time between two grants of which the later one is after `time`.
    pub(super) fn longest_gap(&self, time: Instant) -> Duration {
        let grants = self.grants();
        let pairs = grants.windows(2).filter(|pair| pair[1] > time);
        pairs
            .map(|pair| pair[1].duration_since(pair[0]))
            .max()
            .unwrap_or_default()
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
        let registered = self
            .client
            .register_master(
                &self.app,
                &RegisterMaster {
                    attempt: self.attempt.clone(),
                    master_url: None,
                    submission_token: None,
                },
            )
            .await?;
        let (epoch, mut cursor) = (registered.epoch, registered.cursor);
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
                asks: vec![probing(request.clone())],
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
                let granted = matches!(
                    &update.what,
                    ApplicationUpdateKind::Allocated(grant)
                        if grant.request == request
                );
                if granted {
                    break;
                }
            }
            self.grants
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Instant::now());
        }
    }
}

/// The request for one container that ends at once.
fn probing(request: RequestId) -> PlacementRequest {
    let resource = Resource::new(Bytes::from_mib(4), Cpus::from_milli(10));
    let launch = LaunchSpec {
        command: vec!["true".into()],
        ..LaunchSpec::default()
    };
    PlacementRequest::new(request, resource, launch)
}
