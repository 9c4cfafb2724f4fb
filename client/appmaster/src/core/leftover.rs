//! Containers in which ended tasks left memory behind.
//!
//! Files on a tmpfs and shared memory stay charged to the container after their task has ended. A
//! container that therefore has too little memory for its next task takes no more tasks. It ends
//! when no task runs in it, and a replacement is requested. None of this state is durable: an
//! executor reports it again on every new connection.

use headroom_types::exit::Unattributed;
use headroom_types::{Bytes, ContainerId, Reason};

use super::MasterCore;
use crate::executors::RequestPurpose;
use crate::taskset::TaskPosition;

impl MasterCore {
    /// Processes the memory that ended tasks left in a container.
    pub(super) fn on_leftover(&mut self, container: &ContainerId, left: Unattributed) {
        if let Some(executor) = self.fleet.executors.get_mut(container) {
            executor.left = left;
        }
    }

    /// Retires executors whose next task would not have enough memory.
    pub(super) fn retire_filled(&mut self) {
        let filled = |(container, e): (&ContainerId, &crate::executors::ExecutorEntry)| {
            let RequestPurpose::Set(set) = e.purpose else {
                return None;
            };
            if e.left.memory.is_zero() || !e.may_run_tasks() || e.warning.is_some() {
                return None; // the most frequent case
            }
            let reserve = self.job.executors.get(set)?.reserve;
            let (next, needs) = self.next_in(set)?;
            (needs > e.room_beside_leftovers(reserve)).then(|| (container.clone(), next, needs))
        };
        let filled: Vec<(ContainerId, TaskPosition, Bytes)> =
            self.fleet.executors.iter().filter_map(filled).collect();
        for (container, next, needs) in filled {
            let Some(left) = self.fleet.executors.get(&container).map(|e| e.left.clone()) else {
                continue;
            };
            let Some(next) = self.tasks.get(next).map(|task| task.id.clone()) else {
                continue;
            };
            let message = format!(
                "{container} starts no more tasks and ends when idle: ended tasks left {} in it ({}), and the next task, {next}, needs {needs}",
                left.memory,
                left.owners_text()
            );
            self.view
                .add_event(self.now, Reason::ContainerDraining, &container, message);
            self.warn(&container, None);
        }
    }

    /// The task of a set that starts next, and its memory.
    fn next_in(&self, set: usize) -> Option<(TaskPosition, Bytes)> {
        let key = self.queues.get(set)?.ready().next()?;
        Some((key, self.tasks.get(key)?.size.memory()))
    }
}
