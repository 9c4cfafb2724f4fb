//! Exclusion of nodes on which launches fail, for example for a missing directory, a full disk, or
//! a program of another release.
//!
//! Such a failure counts as the node's while other nodes succeed. The first failed launch of a task
//! on a node is not charged to it. The task returns to that node only if no other executor is left.
//! The whole job starts nothing on the node for a while, twice as long after each further round.
//! Executors there end as soon as no task runs in them, and replacements are requested on other
//! nodes. Several launches that fail together are one round.

use headroom_types::{ContainerId, ExitReason, NodeId, Reason};
use headroom_wire::v1::job::AttemptRow;

use super::MasterCore;
use crate::executors::LaunchSubject;
use crate::policy::classify::AttemptEndClass;
use crate::policy::collateral::{KillConsequence, MAX_PER_NODE};
use crate::policy::{ChargeAccount, backoff};
use crate::taskset::TaskPosition;

/// Maximum number of nodes for which the first failed launch of a task is not charged.
const MAX_UNCHARGED_LAUNCHES: usize = 5;

/// True when the attempt was not started, for a reason that may lie with its node.
pub(super) fn is_of_the_node(row: &AttemptRow, account: ChargeAccount) -> bool {
    let free = match account {
        ChargeAccount::Transient | ChargeAccount::Taken => true,
        ChargeAccount::Success
        | ChargeAccount::Memory
        | ChargeAccount::Spike
        | ChargeAccount::Plain
        | ChargeAccount::Bystander
        | ChargeAccount::Collateral => false,
    };
    free && row.reason == Some(ExitReason::LaunchFailed)
}

impl MasterCore {
    /// The class of a failed launch. It is charged to the task from the second one on the same
    /// node.
    pub(super) fn class_of_launch(
        &self,
        key: TaskPosition,
        row: &AttemptRow,
        reason: ExitReason,
        class: AttemptEndClass,
    ) -> AttemptEndClass {
        let Some(task) = self.tasks.get(key) else {
            return class;
        };
        let new = !task.failed_to_start_on(&row.node)
            && task.failed_starts().count() < MAX_UNCHARGED_LAUNCHES;
        let free = reason == ExitReason::LaunchFailed && class == AttemptEndClass::Transient;
        if free && new {
            AttemptEndClass::Taken
        } else {
            class
        }
    }

    /// Excludes the node if launches there have failed more often in a row than `before`.
    pub(super) fn exclude_node(&mut self, node: &NodeId, before: u32, what: &str) {
        let Some(shunned) = self.fleet.shunned.get(node).copied() else {
            return;
        };
        self.fleet.restart_exclusion(node, self.now.tick);
        self.end_idle_after_task_failures(node, shunned.launched);
        if shunned.failures > before {
            let wait = match shunned.launched {
                LaunchSubject::Executor => String::new(),
                LaunchSubject::Task(_) => format!(
                    "no task starts there for {} s, ",
                    backoff(shunned.failures).as_secs()
                ),
            };
            let message = format!(
                "{node}: {what}; {} failures in a row: {wait}the job requests other nodes",
                shunned.failures
            );
            self.view
                .add_event(self.now, Reason::NodeExcluded, &node, message);
        }
    }

    /// Extends the note of a task, as `rmctl why` shows it, with the exclusion of the node.
    pub(super) fn note_shunned(&mut self, key: TaskPosition, node: &NodeId) {
        let wait = backoff(self.fleet.failures(node)).as_secs();
        if let Some(task) = self.tasks.get_mut(key).filter(|task| !task.is_final()) {
            task.note
                .push_str(&format!("; no task starts on {node} for {wait} s"));
            self.view.mark_dirty(key);
        }
    }

    /// Restarts the exclusions after a restart of the master: the records do not contain their end.
    pub(super) fn restore_exclusions(&mut self) {
        for (node, launched) in self
            .fleet
            .shunned
            .iter()
            .map(|(node, s)| (node.clone(), s.launched))
            .collect::<Vec<_>>()
        {
            self.fleet.restart_exclusion(&node, self.now.tick);
            self.end_idle_after_task_failures(&node, launched);
        }
        let nodes: Vec<NodeId> = self.fleet.collateral.excluded().cloned().collect();
        nodes.iter().for_each(|node| self.leave_node(node));
        let retired: Vec<ContainerId> = self.fleet.collateral.retired().cloned().collect();
        for container in &retired {
            self.warn(container, None);
        }
    }

    /// Reacts to a kill for an outer limit. A container or node where this repeats is not used
    /// again.
    pub(super) fn leave_after_collateral(&mut self, row: &AttemptRow) {
        let KillConsequence { retire, exclude } = self.fleet.collateral.last_consequence();
        if retire {
            self.warn(&row.container, None);
        }
        if exclude {
            self.leave_node(&row.node);
            let message = format!(
                "{}: an outer limit killed tasks {MAX_PER_NODE} times there: the job starts nothing there while it has another node",
                row.node
            );
            self.view
                .add_event(self.now, Reason::NodeExcluded, &row.node, message);
        }
    }

    /// Ends idle executors on the node, and busy ones when they become idle, if the failed launches
    /// are those of tasks.
    fn end_idle_after_task_failures(&mut self, node: &NodeId, launched: LaunchSubject) {
        match launched {
            LaunchSubject::Executor => return,
            LaunchSubject::Task(_) => {}
        }
        self.leave_node(node);
    }

    /// Ends the executors on the node as soon as no task runs in them.
    fn leave_node(&mut self, node: &NodeId) {
        let there = self
            .fleet
            .executors
            .iter()
            .filter(|(_, e)| e.node == *node)
            .map(|(id, _)| id.clone());
        for container in there.collect::<Vec<ContainerId>>() {
            self.warn(&container, None);
        }
    }

    /// Nodes that containers should avoid.
    pub(super) fn excluded_nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.fleet
            .shunned
            .keys()
            .chain(self.fleet.collateral.excluded())
    }
}
