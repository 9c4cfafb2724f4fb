//! The writes of a leader, as `rm/etcd/src/transaction.rs` has them: each holds only while the
//! leader's key is its own. A write without an answer is sent again while the lease lasts, behind a
//! moved fence, so that its first sending has no effect any more. A leader that cannot confirm a
//! write ends.

use std::rc::Rc;

use headroom_rm_core::{ClusterEffect, RestoredCluster};

use super::Simulation;
use super::election::{CALL, SimElectionEvent};
use super::etcd::{EtcdAnswer, EtcdRequest, StateChange, WriteBatch, WriteCondition};
use super::etcd_link::AnswerFate;
use super::manager_faults::ManagerLink;
use crate::fault::LastWrite;
use crate::scenario::PlantedBug;

/// Pause before a write is sent again. Milliseconds.
const AGAIN: u64 = 50;

/// A write under way.
#[derive(Debug)]
pub(super) struct SimCommit {
    batch: Rc<WriteBatch>,
    call: Option<u64>,
    /// It was sent without an answer, so the fence moves before it is sent again.
    unknown: bool,
    moves_fence: bool,
}

impl Simulation {
    /// Begins the epoch of a leader that has read the state.
    pub(super) fn begin_epoch(&mut self, m: usize, state: Box<RestoredCluster>) {
        let epoch = state.epoch;
        self.note(|| format!("manager {m} opens the state, epoch {epoch}"));
        if let Some(e) = self.election(m) {
            e.opened = Some(state);
        }
        self.commit(m, vec![StateChange::Epoch(epoch)]);
    }

    /// Writes the records of the effects of a leader.
    pub(super) fn commit_effects(&mut self, m: usize) {
        let records = self.managers[m].effects.iter().filter_map(|effect| {
            if let ClusterEffect::Save(record) = effect {
                Some(StateChange::Record(record.clone()))
            } else {
                None
            }
        });
        let changes = records.collect();
        self.commit(m, changes);
    }

    fn commit(&mut self, m: usize, changes: Vec<StateChange>) {
        let number = self.number();
        let Some(key) = self.election(m).and_then(|e| e.key) else {
            return;
        };
        let batch = Rc::new(WriteBatch {
            number,
            created: key.created,
            changes,
        });
        // A leader that continues after a pause may have a successor, and begins in vain.
        let leads = self.etcd.store.leader();
        if leads.is_some_and(|leads| leads.created == key.created) {
            self.leadership.on_begun(&batch);
        }
        if let Some(e) = self.election(m) {
            e.commit = Some(SimCommit {
                batch,
                call: None,
                unknown: false,
                moves_fence: false,
            });
        }
        self.commit_sends(m);
    }

    fn commit_sends(&mut self, m: usize) {
        let (now, plant) = (self.now, self.plant);
        let Some(e) = self.election(m) else {
            return;
        };
        let left = e.remaining_grace(now);
        let (Some(key), Some(commit)) = (e.key, e.commit.as_mut()) else {
            return;
        };
        if left == 0 {
            let why = if commit.unknown {
                self.counts.unconfirmed_writes += 1;
                "its last write is not confirmed"
            } else {
                "its lease ended before its write"
            };
            return self.leader_ends(m, why);
        }
        commit.moves_fence = commit.unknown && plant != PlantedBug::RepeatsWithoutFence;
        let created = key.created;
        let request = if commit.moves_fence {
            EtcdRequest::MoveFence { created }
        } else {
            let modified = Some(key.modified).filter(|_| plant != PlantedBug::RepeatsWithoutFence);
            let guarded = plant != PlantedBug::WritesWithoutGuard;
            let condition = guarded.then_some(WriteCondition { created, modified });
            EtcdRequest::Write(condition, Rc::clone(&commit.batch))
        };
        let is_write = matches!(request, EtcdRequest::Write(..));
        let cut = self.managers[m].cut_at_write.take_if(|_| is_write);
        let answer = match cut {
            Some((LastWrite::Kept, _)) => AnswerFate::Lost,
            Some((LastWrite::Lost, _)) | None => AnswerFate::Arrives,
        };
        let number = self.election_calls(m, request, (CALL.min(left), answer));
        if let Some((_, for_ms)) = cut {
            self.manager_is_cut(m, ManagerLink::Etcd, for_ms);
        }
        if let Some(commit) = self.election(m).and_then(|e| e.commit.as_mut()) {
            commit.call = Some(number);
        }
        self.write_was_sent(m);
    }

    pub(super) fn commit_again(&mut self, m: usize) {
        let waits = self.election(m).and_then(|e| e.commit.as_ref());
        if waits.is_some_and(|commit| commit.call.is_none()) {
            self.commit_sends(m);
        }
    }

    pub(super) fn commit_hears(&mut self, m: usize, number: u64, answer: Option<EtcdAnswer>) {
        let Some(e) = self.election(m) else {
            return;
        };
        let (Some(key), Some(commit)) = (&mut e.key, &mut e.commit) else {
            return;
        };
        if commit.call.take_if(|call| *call == number).is_none() {
            return;
        }
        let silent = answer.is_none();
        match answer {
            Some(EtcdAnswer::Written) => self.commit_is_durable(m),
            Some(EtcdAnswer::FenceMoved(modified)) => {
                key.modified = modified;
                commit.unknown = false;
                self.commit_sends(m);
            }
            // An earlier move of the fence took effect late.
            Some(EtcdAnswer::ConditionFailed(Some(found))) if found.created == key.created => {
                key.modified = found.modified;
                self.commit_sends(m);
            }
            Some(EtcdAnswer::ConditionFailed(_)) => self.leader_ends(m, "another manager leads"),
            Some(_) | None => {
                let was_write = !commit.moves_fence;
                commit.unknown = true;
                self.counts.unknown_outcomes += u64::from(was_write && silent);
                self.election_later(m, AGAIN, SimElectionEvent::CommitAgain);
            }
        }
    }

    fn commit_is_durable(&mut self, m: usize) {
        let Some(commit) = self.election(m).and_then(|e| e.commit.take()) else {
            return;
        };
        self.leadership.on_acknowledged(&commit.batch);
        if self.managers[m].cluster.is_none() {
            return self.leader_begins(m);
        }
        self.manager_is_durable(m);
    }
}
