//! Warnings of the resource manager: a container that will be preempted, a node that is being
//! drained.
//!
//! Tasks in a warned container may finish; no new task starts there. The executor ends as soon as
//! no task runs in it, and a replacement is requested in advance. An attempt that is ended
//! nevertheless is not a failure: it is not charged and runs again with the same size. Warnings are
//! not durable: a restarted master that misses one loses only the time that it would have saved.

use headroom_types::{ContainerId, ExitReason, NodeId, Reason, Tick, UnixMillis};

use super::MasterCore;
use crate::executors::DisruptionWarning;
use crate::policy::classify::AttemptEndClass;

impl MasterCore {
    /// Processes the warning that a container will be preempted.
    pub(super) fn on_preempt_soon(&mut self, container: &ContainerId, at: UnixMillis, why: &str) {
        let until = self.now.tick.plus(at.since(self.now.unix));
        if self.warn(container, Some(until)) {
            let object = container.to_string();
            let left = at.since(self.now.unix).as_secs();
            let message = format!(
                "{container} will be preempted in {left} s: {why}; {}",
                self.words_on_running(container)
            );
            self.view
                .add_event(self.now, Reason::PreemptionWarning, &object, message);
        }
    }

    /// Processes the warning that a node must be empty by this time.
    pub(super) fn on_node_draining(&mut self, node: &NodeId, until: Option<UnixMillis>) {
        let there: Vec<ContainerId> = self
            .fleet
            .executors
            .iter()
            .filter(|(_, e)| e.node == *node)
            .map(|(id, _)| id.clone())
            .collect();
        let moment = until.map(|at| self.now.tick.plus(at.since(self.now.unix)));
        for container in there {
            if self.warn(&container, moment) {
                let time = until.map_or_else(String::new, |at| {
                    format!(" within {} s", at.since(self.now.unix).as_secs())
                });
                let message = format!(
                    "{node} must be empty{time}; {}",
                    self.words_on_running(&container)
                );
                self.view
                    .add_event(self.now, Reason::ContainerDraining, &container, message);
            }
        }
    }

    /// The class of a task's end under such a warning, or by the announced preemption.
    pub(super) fn class_of_loss(
        &self,
        container: &ContainerId,
        reason: ExitReason,
        class: AttemptEndClass,
    ) -> AttemptEndClass {
        let warned = self
            .fleet
            .executors
            .get(container)
            .is_some_and(|e| e.warning.is_some());
        let by_platform = matches!(reason, ExitReason::Stopped | ExitReason::NodeLost);
        let taken = reason == ExitReason::Preempted || (warned && by_platform);
        if taken && class == AttemptEndClass::Transient {
            AttemptEndClass::Taken
        } else {
            class
        }
    }

    /// Ends warned executors without tasks at once, and removes warnings that did not come true.
    pub(super) fn apply_warnings(&mut self) {
        let mut idle: Vec<ContainerId> = Vec::new();
        for (id, executor) in &mut self.fleet.executors {
            match executor.warning {
                Some(warning) if warning.forgotten_at().is_some_and(|at| at <= self.now.tick) => {
                    executor.warning = None
                }
                Some(_) if executor.may_run_tasks() && executor.seats.is_empty() => {
                    idle.push(id.clone())
                }
                Some(_) | None => {}
            }
        }
        idle.iter()
            .for_each(|container| self.end_executor(container));
    }

    /// Stores the warning of a container. A warning without a deadline stays: it may be that of a
    /// drain for a task, which later warnings do not end. Returns false if it changes nothing.
    pub(super) fn warn(&mut self, container: &ContainerId, until: Option<Tick>) -> bool {
        let Some(executor) = self
            .fleet
            .executors
            .get_mut(container)
            .filter(|e| e.may_run_tasks())
        else {
            return false;
        };
        let stays = executor.warning.filter(|known| known.until.is_none());
        let warning = stays.unwrap_or(DisruptionWarning { until });
        let new = executor.warning != Some(warning);
        (executor.warning, executor.reserved) = (Some(warning), None);
        new
    }

    fn words_on_running(&self, container: &ContainerId) -> String {
        match self
            .fleet
            .executors
            .get(container)
            .map_or(0, |e| e.seats.len())
        {
            0 => "no task runs in it".to_owned(),
            1 => "its task may finish until then".to_owned(),
            n => format!("its {n} tasks may finish until then"),
        }
    }
}
