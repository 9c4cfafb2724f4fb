//! Application of the records of a live job.

use std::collections::BTreeSet;

use headroom_config::SizingMode;
use headroom_types::TaskId;
use headroom_wire::v1::submission::SubmittedTask;

use super::submitted_tasks::SubmittedTaskEnd;
use super::{MasterCore, MasterPhase};
use crate::event::{JobEndKind, JobOutcome};
use crate::policy::GiveUpCause;
use crate::record::JournalRecord;
use crate::spec;
use crate::taskset::{LifecycleState, StateChange, TaskEndKind, TaskInstance, TaskPosition};

impl MasterCore {
    /// Applies a record of a live job; other records change nothing here.
    pub(super) fn apply_submission(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::StageDeclared { name, spec } => self.apply_stage(name, spec),
            JournalRecord::TasksAccepted { stage, items, .. } => self.apply_tasks(*stage, items),
            JournalRecord::SubmitterJoined { client } => self.submitted.add_client(client),
            JournalRecord::SubmitterForgotten { client } => {
                self.submitted.remove_client(client);
                self.presence.forget(client);
                self.forget_acknowledged();
            }
            JournalRecord::ResultsAcknowledged { client, cursor } => {
                self.submitted.acknowledge(client, *cursor);
                self.forget_acknowledged();
            }
            JournalRecord::ValueReturned {
                task,
                value,
                too_large,
            } => self
                .submitted
                .set_value(*task, value.as_deref(), *too_large),
            JournalRecord::TasksCancelled { tasks, message } => {
                for key in tasks {
                    self.apply_task_cancelled(*key, message);
                }
            }
            JournalRecord::JobClosed { client } => self.submitted.close(client.is_none()),
            JournalRecord::Begin(_)
            | JournalRecord::JobStarted { .. }
            | JournalRecord::Run { .. }
            | JournalRecord::Gained { .. }
            | JournalRecord::Gone { .. }
            | JournalRecord::Placed { .. }
            | JournalRecord::Ended { .. }
            | JournalRecord::Committing { .. }
            | JournalRecord::Grown { .. }
            | JournalRecord::Moved { .. }
            | JournalRecord::Known { .. }
            | JournalRecord::Inputs { .. }
            | JournalRecord::GivenUp { .. }
            | JournalRecord::Cancelled { .. }
            | JournalRecord::Evicted { .. }
            | JournalRecord::Ranked { .. }
            | JournalRecord::Scaled { .. }
            | JournalRecord::Over { .. } => {}
        }
    }

    fn apply_stage(&mut self, name: &headroom_types::Name, keys: &serde_json::Value) {
        let stage = match self.job.compile_stage(name, keys) {
            Ok(stage) => stage,
            // Only in a journal of another version of this program.
            Err(problems) => {
                let diagnostics = format!(
                    "the journal declares a stage that this version refuses: {}",
                    headroom_config::render(&problems)
                );
                self.phase = MasterPhase::Over(JobOutcome {
                    ending: JobEndKind::Failed,
                    diagnostics,
                });
                return;
            }
        };
        let sets = &self.job.executors;
        let set = sets.iter().position(|set| set.name == stage.executors);
        self.set_of.push(set.unwrap_or(0));
        self.tasks.add_live_stage();
        self.job.stages.push(stage);
        self.learning.add_last_stage(&self.job);
        self.unblock();
    }

    fn apply_tasks(&mut self, stage: usize, items: &[SubmittedTask]) {
        let Some(spec) = self.job.stages.get(stage) else {
            return;
        };
        let (name, usual) = (spec.name.clone(), spec::first_size(&self.job, spec));
        let stated = self.job.sizes() != SizingMode::Learned;
        for item in items {
            let Some(spec) = self.job.stages.get(stage) else {
                return;
            };
            let size = item.memory.map_or_else(
                || usual.clone(),
                |memory| spec::first_size_of_memory(&self.job, spec, memory),
            );
            let id = TaskId {
                stage: name.clone(),
                index: spec.count,
            };
            let mut task = TaskInstance::blocked(id, size, stated || item.memory.is_some());
            task.priority = item.priority;
            task.tags = (!item.tags.is_empty()).then(|| Box::new(item.tags.clone()));
            if item.memory.is_some() {
                task.why = "the memory that its client states".to_owned();
            }
            let Some(key) = self.tasks.add_task(stage, task) else {
                return;
            };
            if let Some(spec) = self.job.stages.get_mut(stage) {
                spec.count = spec.count.saturating_add(1);
            }
            self.ledger.add_task();
            if item.memory.is_some() && !stated {
                self.learning.begins(key);
            }
            self.accept(key, item);
        }
    }

    /// Accepts a task that was just added, and lets it wait for the earlier tasks that it follows.
    fn accept(&mut self, key: TaskPosition, item: &SubmittedTask) {
        let (mut waits_for, mut doomed_by) = (BTreeSet::new(), None);
        for earlier in item.after.iter().filter_map(|k| self.submitted.find(k)) {
            match self.tasks.end_of(earlier) {
                Some(TaskEndKind::Done) => {}
                Some(TaskEndKind::Failed) => doomed_by = doomed_by.or(Some(earlier)),
                None => drop(waits_for.insert(earlier)),
            }
        }
        let waits = waits_for.len();
        let is_free = waits == 0 && doomed_by.is_none();
        self.submitted.accept(key, item, waits_for, doomed_by);
        if is_free {
            self.change(key, StateChange::Unblocked);
        } else if let Some(task) = self.tasks.get_mut(key) {
            task.note = format!("waits for {waits} of the tasks that it follows");
            self.view.mark_dirty(key);
        }
    }

    fn apply_task_cancelled(&mut self, key: TaskPosition, message: &str) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        match task.state {
            LifecycleState::Done | LifecycleState::Failed => {}
            LifecycleState::Running { .. } => {
                message.clone_into(&mut task.note);
                task.cancelled = Some(message.to_owned());
                self.view.mark_dirty(key);
            }
            LifecycleState::Blocked | LifecycleState::Pending { .. } => {
                message.clone_into(&mut task.note);
                task.given_up = Some(GiveUpCause::Cancelled);
                self.causes.insert(GiveUpCause::Cancelled);
                self.change(key, StateChange::GivenUp);
            }
        }
    }

    /// Notes the change of a task in a live job: its result, and the tasks that may start now.
    pub(super) fn note_submitted(&mut self, key: TaskPosition) {
        if self.job.live.is_none() {
            return;
        }
        let Some(task) = self.tasks.get(key) else {
            return;
        };
        let end = match task.state {
            LifecycleState::Blocked => return,
            LifecycleState::Pending { .. } if task.attempts.is_empty() => return,
            LifecycleState::Pending { .. } | LifecycleState::Running { .. } => {
                if self.submitted.get(key).is_some() {
                    self.presence.note_change(key);
                }
                return;
            }
            LifecycleState::Done => SubmittedTaskEnd::Succeeded,
            LifecycleState::Failed if task.given_up == Some(GiveUpCause::Cancelled) => {
                SubmittedTaskEnd::Cancelled
            }
            LifecycleState::Failed => SubmittedTaskEnd::Failed,
        };
        self.submitted.count_failure(end, &task.note);
        self.presence.note_end(key);
        for free in self.submitted.end(key, end) {
            self.change(free, StateChange::Unblocked);
        }
    }

    /// Forgets the tasks whose results all clients have acknowledged. Those with failed attempts
    /// keep their rows for a while.
    fn forget_acknowledged(&mut self) {
        while let Some(key) = self.submitted.take_acknowledged() {
            let plain = self
                .tasks
                .get(key)
                .is_none_or(TaskInstance::is_plain_success);
            let over = if plain {
                Some(key)
            } else {
                self.submitted.display(key)
            };
            if let Some(over) = over {
                self.tasks.forget(over);
                self.folded.note_forgotten(over);
            }
        }
    }
}
