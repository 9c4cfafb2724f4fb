//! The simulated etcd: a linearizable store with leases. It has the key of the leader and the state
//! of the cluster.
//!
//! Requests take effect one after the other, at the time of their arrival. A lease of etcd expires by
//! the clock of etcd. Without a quorum nothing takes effect, no lease expires, and afterwards each lease
//! has its whole time again, as after a change of etcd's own leader.

use std::collections::BTreeMap;
use std::rc::Rc;

use headroom_rm_core::{DurableRecord, RestoredCluster};
use headroom_rm_etcd::Renewal;
use headroom_types::{AppId, Epoch};

use super::disk::Disk;

/// The key of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaderKey {
    /// The manager that created it.
    pub(super) manager: usize,
    /// The lease with which it ends.
    pub(super) lease: i64,
    /// The revision of its creation.
    pub(super) created: i64,
    /// The revision of its last change.
    pub(super) modified: i64,
    /// The revision of the last renewal, which is a key of its own.
    pub(super) renewed: i64,
}

impl LeaderKey {
    pub(super) fn renewal(&self) -> Renewal {
        Renewal {
            created: self.created,
            renewed: self.renewed,
        }
    }
}

/// The condition of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteCondition {
    /// The creation revision of the leader's key.
    pub(super) created: i64,
    /// The revision of its last change; `None` if any is accepted.
    pub(super) modified: Option<i64>,
}

/// A change of the state.
#[derive(Clone, Debug)]
pub(super) enum StateChange {
    Epoch(Epoch),
    Record(Box<DurableRecord>),
}

/// Changes that are written together.
#[derive(Debug)]
pub(super) struct WriteBatch {
    /// Its number among all batches of the run.
    pub(super) number: u64,
    /// The creation revision of its leader's key.
    pub(super) created: i64,
    pub(super) changes: Vec<StateChange>,
}

impl WriteBatch {
    /// Applications whose state it changes.
    pub(super) fn states(&self) -> impl Iterator<Item = &AppId> {
        self.changes.iter().filter_map(|change| match change {
            StateChange::Epoch(_) => None,
            StateChange::Record(record) => {
                if let DurableRecord::State { app, .. } = &**record {
                    Some(app)
                } else {
                    None
                }
            }
        })
    }

    pub(super) fn apply(&self, state: &mut Disk) {
        for change in &self.changes {
            match change {
                StateChange::Epoch(epoch) => state.begin(*epoch),
                StateChange::Record(record) => state.save(record),
            }
        }
    }
}

/// A request of a manager.
#[derive(Clone, Debug)]
pub(super) enum EtcdRequest {
    /// A new lease of this time. Milliseconds.
    GrantLease(u64),
    RenewLease(i64),
    RevokeLease(i64),
    /// Creates the leader's key if there is none.
    CreateLeaderKey {
        manager: usize,
        lease: i64,
    },
    /// Writes the key of renewals, for the leader whose key was created at this revision.
    RenewLeader {
        created: i64,
    },
    /// Removes the leader's key if the leader has not renewed its lease since.
    DeposeLeader(Renewal),
    /// Writes the leader's key again, with the same value. Its revision changes.
    MoveFence {
        created: i64,
    },
    ReadState,
    /// Writes a batch; without a condition in any case.
    Write(Option<WriteCondition>, Rc<WriteBatch>),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(super) enum EtcdAnswer {
    LeaseGranted(i64),
    LeaseRenewed,
    LeaseRevoked,
    LeaseGone,
    /// The leader's key, created by this request.
    LeaderKeyCreated(LeaderKey),
    /// The leader's key, created before.
    LeaderKey(LeaderKey),
    LeaderRenewed,
    LeaderDeposed,
    FenceMoved(i64),
    State(Box<RestoredCluster>),
    Written,
    /// The condition did not hold. With the leader's key.
    ConditionFailed(Option<LeaderKey>),
    /// Nothing was decided.
    NoQuorum,
}

#[derive(Debug)]
struct EtcdLease {
    time: u64,
    until: u64,
}

/// The simulated etcd.
#[derive(Debug, Default)]
pub(super) struct SimEtcd {
    revision: i64,
    leases: BTreeMap<i64, EtcdLease>,
    leader: Option<LeaderKey>,
    pub(super) state: Disk,
}

impl SimEtcd {
    pub(super) fn leader(&self) -> Option<LeaderKey> {
        self.leader
    }

    /// Time at which a lease expires unless it is renewed.
    pub(super) fn lease_until(&self, lease: i64) -> Option<u64> {
        self.leases.get(&lease).map(|lease| lease.until)
    }

    /// Executes a request at the time `now`.
    pub(super) fn execute(&mut self, now: u64, request: &EtcdRequest) -> EtcdAnswer {
        match request {
            EtcdRequest::GrantLease(time) => {
                self.revision += 1;
                let lease = EtcdLease {
                    time: *time,
                    until: now + time,
                };
                self.leases.insert(self.revision, lease);
                EtcdAnswer::LeaseGranted(self.revision)
            }
            EtcdRequest::RenewLease(id) => match self.leases.get_mut(id) {
                Some(lease) => {
                    lease.until = now + lease.time;
                    EtcdAnswer::LeaseRenewed
                }
                None => EtcdAnswer::LeaseGone,
            },
            EtcdRequest::RevokeLease(id) => {
                self.end_lease(*id);
                EtcdAnswer::LeaseRevoked
            }
            EtcdRequest::CreateLeaderKey { manager, lease } => {
                self.create_leader_key(*manager, *lease)
            }
            EtcdRequest::RenewLeader { created } => match &mut self.leader {
                Some(key) if key.created == *created => {
                    self.revision += 1;
                    key.renewed = self.revision;
                    EtcdAnswer::LeaderRenewed
                }
                other => EtcdAnswer::ConditionFailed(*other),
            },
            EtcdRequest::DeposeLeader(silent) => match self.leader {
                Some(key) if key.renewal() == *silent => {
                    self.revision += 1;
                    self.leader = None;
                    EtcdAnswer::LeaderDeposed
                }
                other => EtcdAnswer::ConditionFailed(other),
            },
            EtcdRequest::MoveFence { created } => match &mut self.leader {
                Some(key) if key.created == *created => {
                    self.revision += 1;
                    key.modified = self.revision;
                    EtcdAnswer::FenceMoved(self.revision)
                }
                other => EtcdAnswer::ConditionFailed(*other),
            },
            EtcdRequest::ReadState => EtcdAnswer::State(Box::new(self.state.restored())),
            EtcdRequest::Write(condition, batch) => {
                if condition.is_some_and(|condition| !self.holds(condition)) {
                    return EtcdAnswer::ConditionFailed(self.leader);
                }
                self.revision += 1;
                batch.apply(&mut self.state);
                EtcdAnswer::Written
            }
        }
    }

    fn holds(&self, condition: WriteCondition) -> bool {
        self.leader.is_some_and(|key| {
            key.created == condition.created
                && condition.modified.is_none_or(|at| key.modified == at)
        })
    }

    fn create_leader_key(&mut self, manager: usize, lease: i64) -> EtcdAnswer {
        if !self.leases.contains_key(&lease) {
            return EtcdAnswer::LeaseGone;
        }
        if let Some(key) = self.leader {
            return EtcdAnswer::LeaderKey(key);
        }
        self.revision += 1;
        let key = LeaderKey {
            manager,
            lease,
            created: self.revision,
            modified: self.revision,
            renewed: self.revision,
        };
        self.leader = Some(key);
        EtcdAnswer::LeaderKeyCreated(key)
    }

    /// Ends a lease, and the leader's key with it.
    pub(super) fn end_lease(&mut self, id: i64) {
        self.revision += 1;
        self.leases.remove(&id);
        self.leader = self.leader.filter(|key| key.lease != id);
    }

    /// Gives each lease its whole time again.
    pub(super) fn extend_leases(&mut self, now: u64) {
        for lease in self.leases.values_mut() {
            lease.until = now + lease.time;
        }
    }

    /// The leases, for their timers.
    pub(super) fn leases(&self) -> impl Iterator<Item = i64> {
        self.leases.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(etcd: &mut SimEtcd, now: u64) -> i64 {
        let answer = etcd.execute(now, &EtcdRequest::GrantLease(3_000));
        let EtcdAnswer::LeaseGranted(id) = answer else {
            panic!("{answer:?}");
        };
        id
    }

    fn lead(etcd: &mut SimEtcd, manager: usize, lease: i64) -> LeaderKey {
        let answer = etcd.execute(0, &EtcdRequest::CreateLeaderKey { manager, lease });
        let (EtcdAnswer::LeaderKeyCreated(key) | EtcdAnswer::LeaderKey(key)) = answer else {
            panic!("{answer:?}");
        };
        key
    }

    fn write(etcd: &mut SimEtcd, key: LeaderKey, epoch: u32) -> EtcdAnswer {
        let condition = WriteCondition {
            created: key.created,
            modified: Some(key.modified),
        };
        let batch = WriteBatch {
            number: 1,
            created: key.created,
            changes: vec![StateChange::Epoch(Epoch(epoch))],
        };
        etcd.execute(0, &EtcdRequest::Write(Some(condition), Rc::new(batch)))
    }

    #[test]
    fn one_manager_leads_until_its_lease_ends_and_then_its_writes_fail() {
        let mut etcd = SimEtcd::default();
        let (a, b) = (lease(&mut etcd, 0), lease(&mut etcd, 500));
        assert_eq!(etcd.lease_until(b), Some(3_500));
        let first = lead(&mut etcd, 0, a);
        assert_eq!(lead(&mut etcd, 1, b), first);
        assert!(matches!(write(&mut etcd, first, 1), EtcdAnswer::Written));
        etcd.end_lease(a);
        let second = lead(&mut etcd, 1, b);
        assert_eq!((second.manager, second.created > first.created), (1, true));
        let refused = write(&mut etcd, first, 2);
        assert!(matches!(refused, EtcdAnswer::ConditionFailed(Some(key)) if key == second));
        assert_eq!(etcd.state.restored().epoch, Epoch(2), "the next after 1");
        let gone = etcd.execute(0, &EtcdRequest::RenewLease(a));
        assert!(matches!(gone, EtcdAnswer::LeaseGone));
    }

    #[test]
    fn a_leader_is_deposed_only_if_it_has_not_renewed_its_lease() {
        let mut etcd = SimEtcd::default();
        let a = lease(&mut etcd, 0);
        let seen = lead(&mut etcd, 0, a);
        let created = seen.created;
        let renew = |etcd: &mut SimEtcd| etcd.execute(0, &EtcdRequest::RenewLeader { created });
        assert!(matches!(renew(&mut etcd), EtcdAnswer::LeaderRenewed));
        let late = etcd.execute(0, &EtcdRequest::DeposeLeader(seen.renewal()));
        assert!(matches!(late, EtcdAnswer::ConditionFailed(Some(key)) if key.created == created));
        let now = etcd.leader().expect("leads").renewal();
        let deposed = etcd.execute(0, &EtcdRequest::DeposeLeader(now));
        assert!(matches!(deposed, EtcdAnswer::LeaderDeposed));
        assert!(matches!(
            renew(&mut etcd),
            EtcdAnswer::ConditionFailed(None)
        ));
    }

    #[test]
    fn a_moved_fence_refuses_writes_that_were_sent_before() {
        let mut etcd = SimEtcd::default();
        let a = lease(&mut etcd, 0);
        let key = lead(&mut etcd, 0, a);
        let created = key.created;
        let moved = etcd.execute(0, &EtcdRequest::MoveFence { created });
        let EtcdAnswer::FenceMoved(modified) = moved else {
            panic!("{moved:?}");
        };
        assert!(matches!(
            write(&mut etcd, key, 1),
            EtcdAnswer::ConditionFailed(Some(found)) if found.created == created
        ));
        let key = LeaderKey { modified, ..key };
        assert!(matches!(write(&mut etcd, key, 1), EtcdAnswer::Written));
    }
}
