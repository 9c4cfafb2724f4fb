//! Surplus containers: a node runs them, but the cluster does not count them and has ordered their
//! end. A node that returns late from a restart has them, for example.
//!
//! *Invariant*: their memory counts as taken on the node until the node reports their end, or does
//! not report them any more. A report that was overtaken may name one after its end.

use headroom_types::{Bytes, ContainerId, NodeId, Tick};

use crate::cluster::Cluster;
use crate::event::{ContainerPhase, ReportedContainer};
use crate::sched::node_ix::NodeNumber;

/// Heartbeats of a node without a surplus container after which it is gone. Each one names all
/// containers.
const UNSEEN_HEARTBEATS: u32 = 3;

impl Cluster {
    /// Counts the reported containers that the cluster does not know and that run. `ended` are
    /// containers with an exit report. Call it after the report of the time `now` was processed.
    pub(crate) fn count_surplus<'r>(
        &mut self,
        number: NodeNumber,
        node: &NodeId,
        seen: &[ReportedContainer],
        ended: impl Iterator<Item = &'r ContainerId>,
        now: Tick,
    ) {
        let mut changed = false;
        for seen in seen {
            let runs = match seen.phase {
                ContainerPhase::Preparing
                | ContainerPhase::Starting
                | ContainerPhase::Running
                | ContainerPhase::Stopping => true,
                ContainerPhase::Exited => false,
            };
            let is_surplus = runs && self.allocations.row_of(&seen.container).is_none();
            let memory = is_surplus.then_some((seen.resource.memory, now));
            changed |= self.nodes.set_surplus(number, &seen.container, memory);
        }
        for container in ended {
            changed |= self.nodes.set_surplus(number, container, None);
        }
        let unseen = self.heartbeat_interval() * UNSEEN_HEARTBEATS;
        changed |= self.nodes.forget_surplus(number, now, unseen);
        if changed {
            self.charge_surplus(number, node);
        }
    }

    /// Takes the memory of the surplus containers of a node, and lets waiting requests use memory
    /// that is free again.
    pub(crate) fn charge_surplus(&mut self, number: NodeNumber, node: &NodeId) {
        let memory = self.nodes.surplus(number);
        let before = self.ledger().node(node).map(|account| account.surplus);
        if before.unwrap_or(Bytes::ZERO) == memory {
            return;
        }
        self.allocations.ledger_mut().set_surplus(node, memory);
        self.reindex_at(number);
        self.queue.note_room();
    }
}
