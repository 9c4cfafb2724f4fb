//! Orders that change the number of executors of a running job, in place of `count` in the job
//! file.
//!
//! The number is recorded, so that a restarted master keeps it; the job file stays unchanged. More
//! executors are requested only when there is work for them. If there are too many, the newest
//! start no new tasks and end when no task runs in them; no task is stopped. The minimum of the job
//! file is lowered with the number. Own containers of escalated tasks are counted separately.

use headroom_types::{ContainerId, Reason, ScaleOrder};

use super::MasterCore;
use crate::record::JournalRecord;

impl MasterCore {
    pub(super) fn on_scale(&mut self, order: &ScaleOrder) {
        let job = self.job.name.to_string();
        let because = order
            .reason
            .as_ref()
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        let found = match &order.executors {
            Some(name) => self.job.executors.iter().position(|set| set.name == *name),
            None => Some(0).filter(|_| self.job.executors.len() == 1),
        };
        let Some((set, spec)) = found.and_then(|set| Some((set, self.job.executors.get(set)?)))
        else {
            let names: Vec<&str> = self
                .job
                .executors
                .iter()
                .map(|set| set.name.as_str())
                .collect();
            let wanted = order.executors.as_ref().map_or_else(
                || "the request names no executor set".to_owned(),
                |name| format!("executor set {name} does not exist"),
            );
            let message = format!(
                "{wanted}: the job has {}; nothing was changed",
                names.join(", ")
            );
            return self
                .view
                .add_event(self.now, Reason::ScaleRefused, &job, message);
        };
        let (name, was) = (spec.name.clone(), spec.count);
        let message = if was == order.count {
            format!("executors {name}: {was} at most, unchanged{because}")
        } else {
            format!("executors {name}: {was} → {} at most{because}", order.count)
        };
        if was != order.count {
            self.record(JournalRecord::Scaled {
                set,
                count: order.count,
            });
            for container in self.surplus(set) {
                if let Some(executor) = self.fleet.executors.get_mut(&container) {
                    executor.reserved = None;
                }
            }
        }
        self.view
            .add_event(self.now, Reason::JobScaled, &job, message);
    }

    /// The newest executors of a set beyond its maximum number: they start no new tasks.
    pub(super) fn surplus(&self, set: usize) -> Vec<ContainerId> {
        let most = self
            .job
            .executors
            .get(set)
            .map_or(0, |spec| usize::try_from(spec.count).unwrap_or(usize::MAX));
        self.fleet
            .staying(set)
            .skip(most)
            .map(|(id, _)| id.clone())
            .collect()
    }
}
