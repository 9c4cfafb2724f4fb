//! Pauses of a manager, and its end in good order.

use std::collections::VecDeque;
use std::time::Duration;

use headroom_rm_core::ClusterEvent;

use super::etcd::EtcdRequest;
use super::etcd_link::AnswerFate;
use super::manager::SimManagerEvent;
use super::{Simulation, SimulationEvent as Any};
use crate::fault::LastWrite;
use crate::scenario::PlantedBug;

/// A longer pause is no evidence against a node or master. Milliseconds.
const HELD_UP: u64 = 3_000;

/// The state of a manager that is asked to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ManagerStop {
    #[default]
    NotAsked,
    /// It ends after its last write.
    Asked {
        /// Time until it starts again. Milliseconds.
        down_ms: u64,
        /// Whether it still listens.
        listens: bool,
    },
}

/// A pause of the process of a manager.
#[derive(Debug, Default)]
pub(super) struct ManagerPause {
    /// Events that it has missed.
    pub(super) held: VecDeque<SimManagerEvent>,
    since: u64,
    /// It was about to send the effects of a batch.
    sends: bool,
}

impl Simulation {
    /// Ends a manager that was asked to, after its last write.
    pub(super) fn manager_may_end(&mut self, m: usize) {
        let manager = &self.managers[m];
        let ManagerStop::Asked { down_ms, .. } = manager.stop else {
            return;
        };
        let Some(key) = manager.election.as_ref().and_then(|e| e.key) else {
            return;
        };
        if manager.writing || !manager.inbox.is_empty() || manager.cluster.is_none() {
            return;
        }
        self.note(|| format!("manager {m} hands its leadership over"));
        self.counts.hand_overs += 1;
        self.etcd_calls(m, EtcdRequest::RevokeLease(key.lease), AnswerFate::Arrives);
        self.manager_dies(m, LastWrite::Kept);
        self.later(down_ms, Any::Manager(m, SimManagerEvent::Start));
    }

    /// Asks a manager to end.
    pub(super) fn manager_stops(&mut self, m: usize, down_ms: u64) {
        if self.managers[m].pause.is_some() || self.managers[m].election.is_none() {
            return;
        }
        if self.managers[m].cluster.is_none() {
            // A standby hands nothing over.
            self.manager_dies(m, LastWrite::Kept);
            return self.later(down_ms, Any::Manager(m, SimManagerEvent::Start));
        }
        let listens = self.plant != PlantedBug::ClosesBeforeHandOver;
        self.managers[m].stop = ManagerStop::Asked { down_ms, listens };
        if !listens {
            self.break_streams_of_manager(m, false);
            self.process_end_is_noticed(m);
        }
        self.manager_turn(m);
    }

    /// Pauses the process of a manager. If it `sends`, it has checked its lease and sends the effects
    /// when it continues.
    pub(super) fn manager_pauses(&mut self, m: usize, for_ms: u64, sends: bool) {
        let manager = &mut self.managers[m];
        if manager.pause.is_some() || manager.election.is_none() {
            return;
        }
        manager.pause = Some(ManagerPause {
            held: VecDeque::new(),
            since: self.now,
            sends,
        });
        let life = manager.life;
        self.counts.pauses += 1;
        self.note(|| format!("manager {m} is paused for {for_ms} ms"));
        self.later(for_ms, Any::Manager(m, SimManagerEvent::Continue { life }));
    }

    pub(super) fn manager_continues(&mut self, m: usize) {
        let now = self.now;
        let Some(pause) = self.managers[m].pause.take() else {
            return;
        };
        self.note(|| format!("manager {m} continues"));
        let gap = now - pause.since;
        if let Some(e) = self.managers[m]
            .election
            .as_ref()
            .filter(|e| e.key.is_some())
            && e.remaining(now) == 0
        {
            self.counts.pauses_beyond_lease += 1;
            self.counts.sends_after_pause += u64::from(pause.sends);
        }
        if pause.sends {
            self.manager_carries_out(m);
        }
        if gap > HELD_UP && self.managers[m].cluster.is_some() {
            self.manager_steps(m, ClusterEvent::Stalled(Duration::from_millis(gap)));
        }
        for thing in pause.held {
            self.manager_thing(m, thing);
        }
        self.manager_turn(m);
    }
}
