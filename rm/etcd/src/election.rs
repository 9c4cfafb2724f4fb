//! The election of the leader: the manager whose key exists leads, as long as its lease lasts.
//!
//! A candidate registers itself with a lease, and creates the leader's key with the same lease when
//! there is none. etcd removes both keys when the lease ends. A leader stops before that
//! ([`LeaseClock`]): it waits for a renewal, and ends if there is none.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::client::EtcdClient;
use crate::error::EtcdError;
use crate::keys::EtcdKeys;
use crate::lease_clock::{LeaseClock, certain_until, now};
use crate::lease_file::LeaseFile;
use crate::message::{
    Compare, EncodedBytes, EncodedNumber, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use crate::thread::EtcdThread;
use crate::transaction::LeaderFence;

/// Pause after a failed call.
const AGAIN: Duration = Duration::from_millis(300);
/// Pause after a failed renewal.
const RENEW_AGAIN: Duration = Duration::from_millis(100);
/// Each member of etcd may take this part of the lease to renew it, so a silent one is left in time.
const RENEWAL_PARTS: u32 = 8;
/// Timeout of a connection to the leader.
const CONNECT: Duration = Duration::from_secs(1);

/// A running resource manager, as the others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerRecord {
    /// Its name, unique in the cluster.
    pub id: String,
    /// The URL at which callers reach it.
    pub url: String,
    /// Its version.
    pub version: String,
    /// Its lease in etcd.
    #[serde(default)]
    pub lease: i64,
    /// Start of its process. Milliseconds since 1970.
    #[serde(default)]
    pub since: u64,
}

impl ManagerRecord {
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    fn put(&self, key: Vec<u8>) -> Result<RequestOp, EtcdError> {
        let value = serde_json::to_vec(self).map_err(|e| EtcdError::Answer(e.to_string()))?;
        Ok(RequestOp::Put(PutRequest {
            key: EncodedBytes(key),
            value: EncodedBytes(value),
            lease: Some(EncodedNumber(self.lease)),
        }))
    }
}

/// The managers of a cluster, as this one knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionView {
    /// The leader.
    pub leader: Option<ManagerRecord>,
    /// All running managers, by URL.
    pub managers: Vec<ManagerRecord>,
    /// The reason why this manager cannot follow or lead.
    pub problem: Option<String>,
}

/// A manager that wants to lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    client: EtcdClient,
    keys: EtcdKeys,
    record: ManagerRecord,
    lease: Duration,
    file: Option<Arc<LeaseFile>>,
}

/// A won election. The lease is renewed until this value is dropped.
#[derive(Debug)]
pub struct Leadership {
    client: EtcdClient,
    lease: i64,
    fence: LeaderFence,
    /// The revision of etcd at the election.
    revision: i64,
    _renewal: AbortOnDropHandle<()>,
}

impl Candidate {
    /// A candidate with this record, whose lease is filled in.
    pub fn new(client: EtcdClient, keys: EtcdKeys, record: ManagerRecord, lease: Duration) -> Self {
        Candidate {
            client,
            keys,
            record,
            lease,
            file: None,
        }
    }

    /// Records the lease in this file, after the lease of an earlier process was ended.
    #[must_use]
    pub fn recording(self, file: Option<Arc<LeaseFile>>) -> Self {
        Candidate { file, ..self }
    }

    /// Waits until this manager leads. Problems go to `view`, which a [`crate::StateFollower`]
    /// keeps current.
    pub async fn campaign(
        mut self,
        thread: &EtcdThread,
        view: watch::Sender<ElectionView>,
    ) -> Leadership {
        let handle = thread.handle().clone();
        let renewing = view.clone();
        let won = thread.handle().spawn(async move {
            loop {
                match self.compete(&view).await {
                    Ok(won) => return (self, won),
                    Err(error) => {
                        view.send_modify(|view| view.problem = Some(error.to_string()));
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        });
        let (candidate, won) = match won.await {
            Ok(won) => won,
            // The thread of etcd ends only with the process.
            Err(_) => std::future::pending().await,
        };
        let until = certain_until(won.renewed, candidate.lease);
        let clock = Arc::new(LeaseClock::until(until).with_patience(candidate.lease));
        let renewal = renew(candidate.clone(), clock.clone(), renewing);
        Leadership {
            client: candidate.client.clone(),
            lease: candidate.record.lease,
            fence: LeaderFence {
                created: won.created,
                modified: Arc::new(AtomicI64::new(won.modified)),
                put: Arc::new(won.put),
                clock,
            },
            revision: won.revision,
            _renewal: AbortOnDropHandle::new(handle.spawn(renewal)),
        }
    }

    /// One lease long: registers, and tries to lead whenever there is no leader.
    async fn compete(&mut self, view: &watch::Sender<ElectionView>) -> Result<Won, EtcdError> {
        if let Some(file) = &self.file {
            let own = Some(self.record.id.as_str());
            file.end_lease(&self.client, &self.keys, own).await?;
        }
        let mut renewed = now();
        self.record.lease = self.client.grant_lease(self.lease).await?.id.0;
        if let Some(file) = &self.file
            && let Err(error) = file.record(self.record.lease, &self.record.id)
        {
            tracing::warn!(%error, "the lease is not recorded, so it expires if this process fails");
        }
        let register = TxnRequest {
            success: vec![self.record.put(self.keys.manager(&self.record.id))?],
            ..TxnRequest::default()
        };
        self.client.transaction(&register).await?;
        let (mut changes, mut watched) = (view.subscribe(), None::<LeaderProcess>);
        loop {
            let leader = match self.try_to_lead(renewed).await? {
                ElectionEnd::Won(won) => return Ok(won),
                ElectionEnd::Led(leader) => leader,
            };
            // The watch of the follower may be at a member that is cut off.
            view.send_if_modified(|view| {
                let is_new = view.leader != leader || view.problem.is_some();
                (view.leader, view.problem) = (leader, None);
                is_new
            });
            let leader = changes.borrow_and_update().leader.clone();
            if watched.as_ref().map(|process| &process.record) != leader.as_ref() {
                watched = leader.map(LeaderProcess::watch);
            }
            let led = watched.is_some();
            let vacant = async {
                // A leader whose key is gone has a successor at once.
                let _ = changes.wait_for(|view| view.leader.is_none() && led).await;
            };
            let ended = tokio::select! {
                () = vacant => false,
                () = LeaderProcess::ended(&mut watched) => true,
                () = tokio::time::sleep(self.lease / 3) => false,
            };
            if ended && let Some(process) = watched.take() {
                tracing::info!(
                    url = process.record.url,
                    "the process of the leader has ended"
                );
                // The lease would expire anyway; this is sooner.
                let _ = self.client.revoke_lease(process.record.lease).await;
            }
            let sent = now();
            let within = self.lease / RENEWAL_PARTS;
            self.client.renew_lease(self.record.lease, within).await?;
            renewed = sent;
        }
    }

    /// Creates the leader's key if there is none. `renewed` is the time of the last renewal.
    async fn try_to_lead(&self, renewed: u64) -> Result<ElectionEnd, EtcdError> {
        let put = self.record.put(self.keys.leader())?;
        let request = TxnRequest {
            compare: vec![Compare::created(self.keys.leader(), 0)],
            success: vec![put.clone()],
            failure: vec![RequestOp::Range(RangeRequest {
                key: EncodedBytes(self.keys.leader()),
                ..RangeRequest::default()
            })],
        };
        let answer = self.client.transaction(&request).await?;
        let revision = answer.header.revision.0;
        let won = |created, modified| Won {
            created,
            modified,
            revision,
            renewed,
            put,
        };
        if answer.succeeded {
            return Ok(ElectionEnd::Won(won(revision, revision)));
        }
        let found = answer.responses.into_iter().next();
        let found = found.and_then(|found| found.response_range?.kvs.pop());
        Ok(match found {
            // An earlier try whose answer was lost has succeeded.
            Some(key) if key.lease.0 == self.record.lease => {
                ElectionEnd::Won(won(key.create_revision.0, key.mod_revision.0))
            }
            Some(key) => ElectionEnd::Led(ManagerRecord::read(&key.value.0)),
            None => ElectionEnd::Led(None),
        })
    }
}

enum ElectionEnd {
    Won(Won),
    /// Another manager leads.
    Led(Option<ManagerRecord>),
}

struct Won {
    /// The creation revision of the leader's key.
    created: i64,
    /// The revision of its last write.
    modified: i64,
    /// The revision of etcd.
    revision: i64,
    /// The write of the leader's key.
    put: RequestOp,
    /// When the last renewal of the lease was sent.
    renewed: u64,
}

/// The leader, whose process is watched.
struct LeaderProcess {
    record: ManagerRecord,
    end: AbortOnDropHandle<()>,
}

impl LeaderProcess {
    fn watch(record: ManagerRecord) -> Self {
        let end = tokio::spawn(process_end(record.url.clone()));
        LeaderProcess {
            record,
            end: AbortOnDropHandle::new(end),
        }
    }

    /// Returns when the process has ended. Cancel safe until it has returned.
    async fn ended(watched: &mut Option<LeaderProcess>) {
        if let Some(process) = watched {
            // The task fails only when it is aborted, with the process.
            let _ = (&mut process.end).await;
        } else {
            std::future::pending().await
        }
    }
}

/// Returns when the process of the manager at `url` has certainly ended: a connection to it broke,
/// and its host answers that nothing listens there. A host that is silent proves nothing.
async fn process_end(url: String) {
    let address = reqwest::Url::parse(&url)
        .ok()
        .and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?)));
    let Some((host, port)) = address else {
        return std::future::pending().await;
    };
    let mut connected = false;
    loop {
        let connection = TcpStream::connect((host.trim_matches(['[', ']']), port));
        match tokio::time::timeout(CONNECT, connection).await {
            Ok(Ok(mut stream)) => {
                connected = true;
                // Returns when the connection ends, for any reason.
                let _ = stream.read(&mut [0; 1]).await;
            }
            Ok(Err(error))
                if connected && error.kind() == std::io::ErrorKind::ConnectionRefused =>
            {
                return;
            }
            Ok(Err(_)) | Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Renews the lease of a leader until it is lost, and keeps the list of managers current.
async fn renew(candidate: Candidate, clock: Arc<LeaseClock>, view: watch::Sender<ElectionView>) {
    let every = candidate.lease / 4;
    loop {
        let sent = now();
        let within = candidate.lease / RENEWAL_PARTS;
        let lease = candidate.record.lease;
        let renewed = candidate.client.renew_lease(lease, within).await;
        let failed = renewed.is_err();
        match renewed {
            Ok(()) => clock.renew(sent, candidate.lease),
            Err(EtcdError::LeaseGone) => clock.end(),
            Err(error) => view.send_modify(|view| view.problem = Some(error.to_string())),
        }
        if clock.remaining_patience().is_zero() {
            clock.end();
            return;
        }
        if failed {
            // etcd elects a leader of its own, keeps all leases meanwhile, and answers then.
            tokio::time::sleep(RENEW_AGAIN).await;
            continue;
        }
        if let Ok(managers) = managers(&candidate).await {
            let leader = Some(candidate.record.clone());
            view.send_replace(ElectionView {
                leader,
                managers,
                problem: None,
            });
        }
        tokio::time::sleep(every).await;
    }
}

async fn managers(candidate: &Candidate) -> Result<Vec<ManagerRecord>, EtcdError> {
    let mut pages = candidate.client.pages_of(candidate.keys.managers());
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        let records = page.entries.iter();
        found.extend(records.filter_map(|(_, value)| ManagerRecord::read(value)));
    }
    found.sort_by(|a, b| a.url.cmp(&b.url));
    Ok(found)
}

impl Leadership {
    /// The condition of all writes.
    pub fn fence(&self) -> LeaderFence {
        self.fence.clone()
    }

    /// How long the lease is certain.
    pub fn clock(&self) -> Arc<LeaseClock> {
        self.fence.clock.clone()
    }

    /// The revision of etcd at the election. The state has every earlier write.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Gives the leadership away at once. Call it after the last write.
    pub async fn resign(self, thread: &EtcdThread) {
        self.fence.clock.end();
        let (client, lease) = (self.client.clone(), self.lease);
        let end = thread
            .handle()
            .spawn(async move { client.revoke_lease(lease).await });
        // If it fails, the lease expires.
        let _ = tokio::time::timeout(CONNECT, end).await;
    }
}
