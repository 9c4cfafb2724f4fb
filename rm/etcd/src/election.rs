//! The election of the leader: the manager whose key exists leads, as long as its lease lasts.
//!
//! A candidate creates the leader's key when there is none. The leader renews its lease by writing a
//! second key. A standby removes the leader's key when the second one has not changed for the lease
//! ([`LeaderSilence`]). The leader stops before that ([`LeaseClock`]): it waits for a renewal, and
//! ends if there is none. All keys of a manager belong to a lease of etcd, with which they end
//! although no standby replaces it; that one lasts longer ([`grace_period`]).

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
use crate::lease_clock::{LeaseClock, certain_until, grace_period, now};
use crate::lease_file::LeaseFile;
use crate::message::{Compare, RequestOp, TxnRequest, TxnResponse};
use crate::silence::{LeaderSilence, Renewal};
use crate::thread::EtcdThread;
use crate::transaction::LeaderFence;

/// Pause after a failed call.
const AGAIN: Duration = Duration::from_millis(300);
/// Pause after a failed renewal.
const RENEW_AGAIN: Duration = Duration::from_millis(100);
/// Renewals in the time of a lease. Each member of etcd may take this part of the lease to answer one,
/// so a silent member is left in time.
const RENEWALS: u32 = 4;
/// Renewals of the lease of etcd in its time.
const KEEPS: u32 = 4;
/// Reads of the last renewal by a standby in the time of a lease.
const LOOKS: u32 = 8;
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
        Ok(RequestOp::put_leased(key, value, self.lease))
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
    _keeping: AbortOnDropHandle<()>,
}

impl Candidate {
    /// A candidate with this record, whose lease is filled in. `lease` is the time without a renewal
    /// after which a standby replaces a leader.
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
        let time = grace_period(candidate.lease);
        let clock = LeaseClock::until(until)
            .with_key_until(certain_until(won.kept, time))
            .with_grace_period(time);
        let clock = Arc::new(clock);
        let renewal = renew(candidate.clone(), won.created, clock.clone(), renewing);
        let keeping = keep_keys(candidate.clone(), clock.clone());
        Leadership {
            client: candidate.client.clone(),
            lease: candidate.record.lease,
            fence: LeaderFence {
                created: won.created,
                modified: Arc::new(AtomicI64::new(won.modified)),
                put: Arc::new(won.put),
                lease: candidate.lease,
                clock,
            },
            revision: won.revision,
            _renewal: AbortOnDropHandle::new(handle.spawn(renewal)),
            _keeping: AbortOnDropHandle::new(handle.spawn(keeping)),
        }
    }

    /// Registers, and tries to lead whenever there is no leader, while its keys exist.
    async fn compete(&mut self, view: &watch::Sender<ElectionView>) -> Result<Won, EtcdError> {
        let mut kept = self.register().await?;
        let mut silence = LeaderSilence::default();
        let (mut changes, mut watched) = (view.subscribe(), None::<LeaderProcess>);
        loop {
            match self.try_to_lead().await {
                Ok(ElectionEnd::Won(won)) => return Ok(Won { kept, ..won }),
                Ok(ElectionEnd::Led(leader, renewal)) => {
                    silence.answered(now(), renewal);
                    show_leader(view, leader);
                }
                Err(error) if error.is_transient() => {
                    silence.unanswered(now());
                    view.send_modify(|view| view.problem = Some(error.to_string()));
                    tokio::time::sleep(RENEW_AGAIN).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(renewal) = silence.expired(now()) {
                tracing::info!("the leader has not renewed its lease");
                // If it fails, the next look decides.
                let _ = self.depose(renewal).await;
                silence = LeaderSilence::default();
                continue;
            }
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
                () = tokio::time::sleep(self.lease / LOOKS) => false,
            };
            if ended && let Some(process) = watched.take() {
                tracing::info!(
                    url = process.record.url,
                    "the process of the leader has ended"
                );
                // The lease would expire anyway; this is sooner.
                let _ = self.client.revoke_lease(process.record.lease).await;
            }
            if Duration::from_millis(now().saturating_sub(kept)) >= grace_period(self.lease) / KEEPS
            {
                let sent = now();
                self.client.renew_lease(self.record.lease).await?;
                kept = sent;
            }
        }
    }

    /// Writes the key of this manager, with a new lease of etcd. Returns when that was sent for.
    async fn register(&mut self) -> Result<u64, EtcdError> {
        if let Some(file) = &self.file {
            let own = Some(self.record.id.as_str());
            file.end_lease(&self.client, &self.keys, own).await?;
        }
        let sent = now();
        let granted = self.client.grant_lease(grace_period(self.lease)).await?;
        self.record.lease = granted.id.0;
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
        Ok(sent)
    }

    /// Creates the leader's key if there is none.
    async fn try_to_lead(&self) -> Result<ElectionEnd, EtcdError> {
        let put = self.record.put(self.keys.leader())?;
        let request = TxnRequest {
            compare: vec![Compare::created(self.keys.leader(), 0)],
            success: vec![put.clone(), self.renewal()],
            failure: vec![
                RequestOp::read(self.keys.leader()),
                RequestOp::read(self.keys.renewed()),
            ],
        };
        let sent = now();
        let within = self.lease / RENEWALS;
        let answer = self.client.transaction_within(&request, within).await?;
        let won = |created, modified, revision, renewed| {
            let won = Won {
                created,
                modified,
                revision,
                put,
                renewed,
                kept: 0,
            };
            Ok(ElectionEnd::Won(won))
        };
        let revision = answer.header.revision.0;
        if answer.succeeded {
            return won(revision, revision, revision, sent);
        }
        let mut found = answer.responses.into_iter();
        let mut next = || found.next()?.response_range?.kvs.pop();
        let (leader, renewed) = (next(), next());
        Ok(match leader {
            // An earlier try whose answer was lost has succeeded, sent at an unknown time.
            Some(key) if key.lease.0 == self.record.lease => {
                let (sent, created) = (now(), key.create_revision.0);
                let renewed = self.renew(created).await?;
                if renewed.succeeded {
                    let revision = renewed.header.revision.0;
                    return won(created, key.mod_revision.0, revision, sent);
                }
                ElectionEnd::Led(None, None)
            }
            Some(key) => {
                // A leader without renewals is of an earlier version: its key ends with its lease.
                let renewal = renewed.and_then(|renewed| {
                    let lease = std::str::from_utf8(&renewed.value.0).ok()?.parse().ok()?;
                    let renewal = Renewal {
                        created: key.create_revision.0,
                        renewed: renewed.mod_revision.0,
                    };
                    Some((renewal, Duration::from_millis(lease)))
                });
                ElectionEnd::Led(ManagerRecord::read(&key.value.0), renewal)
            }
            None => ElectionEnd::Led(None, None),
        })
    }

    /// The write with which a leader renews its lease. Its value is the lease in milliseconds.
    fn renewal(&self) -> RequestOp {
        let lease = self.lease.as_millis().to_string();
        RequestOp::put_leased(self.keys.renewed(), lease.into_bytes(), self.record.lease)
    }

    /// Renews the lease of this leader.
    async fn renew(&self, created: i64) -> Result<TxnResponse, EtcdError> {
        let request = TxnRequest {
            compare: vec![Compare::created(self.keys.leader(), created)],
            success: vec![self.renewal()],
            failure: Vec::new(),
        };
        let within = self.lease / RENEWALS;
        self.client.transaction_within(&request, within).await
    }

    /// Removes the key of a leader that has not renewed its lease since.
    async fn depose(&self, silent: Renewal) -> Result<TxnResponse, EtcdError> {
        let remove = |key| RequestOp::delete(key, None);
        let request = TxnRequest {
            compare: vec![
                Compare::created(self.keys.leader(), silent.created),
                Compare::modified(self.keys.renewed(), silent.renewed),
            ],
            success: vec![remove(self.keys.leader()), remove(self.keys.renewed())],
            failure: Vec::new(),
        };
        let within = self.lease / RENEWALS;
        self.client.transaction_within(&request, within).await
    }
}

/// Shows the leader. The watch of the follower may be at a member that is cut off.
fn show_leader(view: &watch::Sender<ElectionView>, leader: Option<ManagerRecord>) {
    view.send_if_modified(|view| {
        let is_new = view.leader != leader || view.problem.is_some();
        (view.leader, view.problem) = (leader, None);
        is_new
    });
}

enum ElectionEnd {
    Won(Won),
    /// Another manager leads, which has renewed its lease of this length last with this write.
    Led(Option<ManagerRecord>, Option<(Renewal, Duration)>),
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
    /// When the write of the keys was sent.
    renewed: u64,
    /// When the last renewal of their lease of etcd was sent.
    kept: u64,
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
async fn renew(
    candidate: Candidate,
    created: i64,
    clock: Arc<LeaseClock>,
    view: watch::Sender<ElectionView>,
) {
    loop {
        let sent = now();
        let renewed = candidate.renew(created).await;
        let failed = renewed.is_err();
        match renewed {
            Ok(answer) if answer.succeeded => clock.renew(sent, candidate.lease),
            Ok(_) | Err(EtcdError::LeaseGone) => clock.end(),
            Err(error) => view.send_modify(|view| view.problem = Some(error.to_string())),
        }
        if clock.remaining_grace().is_zero() {
            clock.end();
            return;
        }
        if failed {
            // etcd elects a leader of its own, and answers then.
            tokio::time::sleep(RENEW_AGAIN).await;
            continue;
        }
        // A silent member must not delay the next renewal.
        let pause = candidate.lease / RENEWALS;
        if let Ok(Ok(managers)) = tokio::time::timeout(pause, managers(&candidate)).await {
            let leader = Some(candidate.record.clone());
            view.send_replace(ElectionView {
                leader,
                managers,
                problem: None,
            });
        }
        tokio::time::sleep(pause).await;
    }
}

/// Renews the lease of etcd to which the keys of a leader belong.
async fn keep_keys(candidate: Candidate, clock: Arc<LeaseClock>) {
    let time = grace_period(candidate.lease);
    let mut wait = time / KEEPS;
    loop {
        tokio::time::sleep(wait).await;
        let sent = now();
        match candidate.client.renew_lease(candidate.record.lease).await {
            Ok(()) => {
                clock.keep_key(sent, time);
                wait = time / KEEPS;
            }
            Err(EtcdError::LeaseGone) => return clock.end(),
            Err(_) => wait = RENEW_AGAIN,
        }
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
