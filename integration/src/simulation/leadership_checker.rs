//! Invariants of several managers.
//!
//! - A leader opens the state with all writes that were acknowledged to earlier leaders; of a leader
//!   that ended during a write, also with that one. Nothing else is in it.
//! - No write takes effect after a later one was acknowledged, or after another manager leads.
//! - Effects leave only the manager whose key is in etcd.
//! - The epoch grows with each leader.

use std::rc::Rc;

use headroom_rm_core::RestoredCluster;
use headroom_types::Epoch;

use super::disk::Disk;
use super::etcd::{LeaderKey, WriteBatch};

/// What the managers may rely on.
#[derive(Debug, Default)]
pub(super) struct LeadershipChecker {
    /// The state with all acknowledged writes.
    acknowledged: Disk,
    /// The last of them.
    last: u64,
    /// Writes that are not acknowledged, of the present leader.
    open: Vec<Rc<WriteBatch>>,
    epoch: Epoch,
}

impl LeadershipChecker {
    pub(super) fn on_begun(&mut self, batch: &Rc<WriteBatch>) {
        self.open.push(Rc::clone(batch));
    }

    /// The leader has the confirmation of a write. A paused one may get it after another manager has
    /// opened the state.
    pub(super) fn on_acknowledged(&mut self, batch: &WriteBatch) {
        let open = self.open.len();
        self.open.retain(|open| open.number != batch.number);
        if self.open.len() < open {
            self.last = self.last.max(batch.number);
            batch.apply(&mut self.acknowledged);
        }
    }

    /// Checks a write that has just taken effect.
    pub(super) fn on_written(
        &self,
        batch: &WriteBatch,
        leads: Option<LeaderKey>,
    ) -> Result<(), String> {
        if batch.number < self.last {
            return Err(format!(
                "write {} takes effect after write {} was acknowledged, and may undo it",
                batch.number, self.last
            ));
        }
        if leads.is_none_or(|key| key.created != batch.created) {
            return Err(format!(
                "write {} of a manager that does not lead takes effect; the leader is {leads:?}",
                batch.number
            ));
        }
        Ok(())
    }

    /// Checks the state that a new leader has read.
    pub(super) fn on_opened(&mut self, read: &RestoredCluster) -> Result<(), String> {
        let read = format!("{read:?}");
        for batch in
            std::iter::once(None).chain(std::mem::take(&mut self.open).into_iter().map(Some))
        {
            batch
                .into_iter()
                .for_each(|batch| batch.apply(&mut self.acknowledged));
            if format!("{:?}", self.acknowledged.restored()) == read {
                return Ok(());
            }
        }
        Err(format!(
            "a leader opens a state that lacks an acknowledged write, or has another one: {read}"
        ))
    }

    /// Checks the state at the end of a run.
    pub(super) fn on_end(&mut self, state: &Disk) -> Result<(), String> {
        self.on_opened(&state.restored())
    }

    pub(super) fn on_epoch(&mut self, epoch: Epoch) -> Result<(), String> {
        let before = std::mem::replace(&mut self.epoch, epoch);
        if epoch > before {
            return Ok(());
        }
        Err(format!("epoch {epoch} begins after epoch {before}"))
    }

    /// Checks a manager that lets effects leave.
    pub(super) fn on_effects(
        m: usize,
        own: Option<LeaderKey>,
        leads: Option<LeaderKey>,
    ) -> Result<(), String> {
        let created = |key: Option<LeaderKey>| key.map(|key| key.created);
        if created(own).is_some() && created(own) == created(leads) {
            return Ok(());
        }
        Err(format!(
            "manager {m} lets effects leave, and does not lead: the leader is {leads:?}"
        ))
    }
}
