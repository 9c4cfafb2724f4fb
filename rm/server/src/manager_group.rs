//! The resource managers of a cluster, of which one leads, and the part of this one in it.
//!
//! A standby follows the state in etcd. It leads when the leader's key is its own; then it opens the
//! state from its copy.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use headroom_config::ResourceManagerConfig;
use headroom_rm_etcd::{
    Candidate, ElectionView, EtcdClient, EtcdKeys, EtcdThread, Leadership, LeaseClock, LeaseFile,
    ManagerRecord, StateFollower, StateWriter,
};
use headroom_rm_store::etcd::EtcdEngine;
use headroom_rm_store::seal::SEAL;
use headroom_telemetry::MetricsPage;
use headroom_telemetry::names::RM_MANAGERS;
use headroom_types::{Epoch, UnixMillis};
use headroom_wire::v1::operator::{LeaderView, ManagerRole, ManagerView};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::clock::ManagerClock;

/// Longest wait for the copy of a new leader to reach the election. Otherwise it reads the state.
const CATCH_UP: Duration = Duration::from_millis(500);
/// Longest wait for the end of a lease that an ended process left.
const END_LEASE: Duration = Duration::from_secs(5);

/// This manager among the others. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ManagerGroup {
    thread: Arc<EtcdThread>,
    client: EtcdClient,
    keys: EtcdKeys,
    view: watch::Sender<ElectionView>,
    /// The revision that the copy of this standby has reached.
    copied: watch::Sender<i64>,
    own: ManagerRecord,
    lease: Duration,
    compact: Option<Duration>,
    state: PathBuf,
}

/// The leadership of this manager, until it resigns or its lease ends.
#[derive(Debug)]
pub(crate) struct Term {
    leadership: Leadership,
    group: ManagerGroup,
}

impl ManagerGroup {
    /// Prepares the calls to etcd. `url` is the address at which others reach this manager.
    pub(crate) fn new(
        config: &ResourceManagerConfig,
        url: &str,
        clock: ManagerClock,
    ) -> anyhow::Result<Self> {
        let etcd = &config.etcd;
        let url = config.advertise.clone().unwrap_or_else(|| url.to_owned());
        Ok(ManagerGroup {
            thread: Arc::new(EtcdThread::start().context("cannot start the thread for etcd")?),
            client: EtcdClient::new(etcd)?,
            keys: EtcdKeys::new(&etcd.prefix),
            view: watch::Sender::new(ElectionView::default()),
            copied: watch::Sender::new(0),
            own: ManagerRecord {
                // Two managers of one address are an error of the operator: one replaces the other.
                id: url.clone(),
                url,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                lease: 0,
                since: clock.unix_at_zero().0,
            },
            lease: etcd.lease,
            compact: etcd.compact,
            state: config.state.clone(),
        })
    }

    /// Waits until this manager leads, and returns the state with the means to write it.
    pub(crate) async fn lead(&self) -> (Term, EtcdEngine) {
        let (client, keys) = (self.client.clone(), self.keys.clone());
        let mut follower = StateFollower::start(
            &self.thread,
            client,
            keys,
            self.view.clone(),
            self.copied.clone(),
        );
        let candidate = Candidate::new(
            self.client.clone(),
            self.keys.clone(),
            self.own.clone(),
            self.lease,
        )
        .recording(self.lease_file().await);
        info!(url = self.own.url, "this resource manager is a standby");
        let leadership = candidate.campaign(&self.thread, self.view.clone()).await;
        info!(url = self.own.url, "this resource manager leads");
        let image = match follower.reach(leadership.revision(), CATCH_UP).await {
            Ok(()) => Some(follower.into_image()).filter(|image| !image.has_parts),
            Err(error) => {
                warn!(%error, "the copy of the state is late; it is read from etcd");
                None
            }
        };
        let engine = EtcdEngine::new(
            self.thread.clone(),
            self.client.clone(),
            self.keys.clone(),
            StateWriter::new(self.client.clone(), self.keys.clone(), leadership.fence()),
            image.map(|image| image.entries),
        );
        if let Some(every) = self.compact {
            self.thread.handle().spawn(compact(self.clone(), every));
        }
        let group = self.clone();
        (Term { leadership, group }, engine)
    }

    /// The record of the own lease. Without it, the lease of a failed process expires.
    async fn lease_file(&self) -> Option<Arc<LeaseFile>> {
        let why = match LeaseFile::claim(&self.state).await {
            Ok(Some(file)) => return Some(Arc::new(file)),
            Ok(None) => "another process uses it".to_owned(),
            Err(error) => error.to_string(),
        };
        let state = self.state.display().to_string();
        warn!(
            state,
            why, "the lease is not recorded in the state directory"
        );
        None
    }

    /// Adds the number of managers to a page of metrics.
    pub(crate) fn count(&self, page: &mut MetricsPage) {
        let managers = self.view.borrow().managers.len();
        page.count(
            &RM_MANAGERS,
            &[],
            u64::try_from(managers).unwrap_or(u64::MAX),
        );
    }

    /// Revisions of the state that the copy of this standby lacks; `None` if etcd does not answer.
    pub(crate) async fn revisions_behind(&self) -> Option<u64> {
        let (client, key) = (self.client.clone(), self.keys.entry(SEAL.as_bytes()));
        let call = async move { client.changed_at(key).await };
        let changed = self.thread.handle().spawn(call).await.ok()?.ok()?;
        let behind = changed - *self.copied.borrow();
        Some(u64::try_from(behind).unwrap_or(0))
    }

    /// Start of this process. Seconds since 1970.
    pub(crate) fn started_seconds(&self) -> f64 {
        Duration::from_millis(self.own.since).as_secs_f64()
    }

    /// The latest view of the managers.
    pub(crate) fn election(&self) -> ElectionView {
        self.view.borrow().clone()
    }

    /// Waits until a leader is known whose URL is not `url`.
    pub(crate) async fn leader_other_than(&self, url: &str) {
        let mut view = self.view.subscribe();
        let is_other = |view: &ElectionView| {
            let leader = view.leader.as_ref().filter(|_| view.problem.is_none());
            leader.is_some_and(|leader| leader.url != url)
        };
        // The sender is a part of this value.
        let _ = view.wait_for(is_other).await;
    }

    /// Receiver of views of the managers.
    pub(crate) fn subscribe(&self) -> watch::Receiver<ElectionView> {
        self.view.subscribe()
    }

    /// The other running managers.
    pub(crate) fn others(&self) -> Vec<ManagerRecord> {
        let managers = self.view.borrow().managers.clone();
        let is_other = |manager: &ManagerRecord| manager.url != self.own.url;
        managers.into_iter().filter(is_other).collect()
    }

    /// URL of this manager.
    pub(crate) fn url(&self) -> &str {
        &self.own.url
    }

    /// The managers, as a message. `leads` are epoch and lease of this manager, if it leads.
    pub(crate) fn report(&self, leads: Option<(Epoch, &LeaseClock)>) -> LeaderView {
        let ElectionView {
            leader,
            managers,
            problem,
        } = self.election();
        let leader = match leads {
            Some(_) => Some(self.own.url.clone()),
            None => leader.map(|leader| leader.url),
        };
        let view = |record: ManagerRecord| ManagerView {
            state: if leader.as_deref() == Some(record.url.as_str()) {
                ManagerRole::Leader
            } else {
                ManagerRole::Standby
            },
            since_ms: (record.since > 0).then_some(UnixMillis(record.since)),
            version: Some(record.version),
            url: record.url,
        };
        let lease = |clock: &LeaseClock| u64::try_from(clock.remaining().as_millis()).ok();
        LeaderView {
            own: self.own.url.clone(),
            state: if leads.is_some() {
                ManagerRole::Leader
            } else {
                ManagerRole::Standby
            },
            epoch: leads.map(|(epoch, _)| epoch),
            lease_ms: leads.and_then(|(_, clock)| lease(clock)),
            managers: managers.into_iter().map(view).collect(),
            leader,
            problem,
        }
    }
}

impl Term {
    /// How long this manager certainly leads.
    pub(crate) fn clock(&self) -> Arc<LeaseClock> {
        self.leadership.clock()
    }

    /// Hands the leadership over. Call it after the last write.
    pub(crate) async fn resign(self) {
        self.leadership.resign(&self.group.thread).await;
    }
}

/// Ends the lease in etcd that an ended process of this host left. It does nothing without etcd, or
/// while a process of this host runs.
///
/// # Errors
/// The state directory cannot be used, or etcd did not answer within 5 s.
pub async fn end_lease(config: &ResourceManagerConfig) -> anyhow::Result<()> {
    if !config.etcd.is_used() {
        return Ok(());
    }
    let Some(file) = LeaseFile::claim(&config.state).await? else {
        return Ok(());
    };
    let client = EtcdClient::new(&config.etcd)?;
    let keys = EtcdKeys::new(&config.etcd.prefix);
    let ended = file.end_lease(&client, &keys, config.advertise.as_deref());
    tokio::time::timeout(END_LEASE, ended)
        .await
        .context("etcd did not answer; the lease expires")??;
    Ok(())
}

/// Removes the history of etcd up to the previous round, until the process ends.
async fn compact(group: ManagerGroup, every: Duration) {
    let mut previous = None;
    loop {
        if let Some(revision) = previous
            && let Err(error) = group.client.compact(revision).await
        {
            warn!(%error, "cannot compact the history of etcd");
        }
        previous = group.client.revision(group.keys.leader()).await.ok();
        tokio::time::sleep(every).await;
    }
}
