//! Messages of the clients of a live job: they declare stages, add and cancel tasks, acknowledge
//! results, and close the job.
//!
//! Each message is checked against the present state, recorded, and answered after the record is
//! durable. A message that changes nothing, because it is a repetition, is answered like the first
//! one. A refused message has changed nothing.

use std::collections::BTreeSet;

use headroom_config::StageSpec;
use headroom_config::job::feasibility::infeasible_stage;
use headroom_types::spelling::{closest_name, counted_noun};
use headroom_types::{Name, Reason};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::submission::{FromSubmitter, SubmittedTask, ToSubmitter, VERSION};

use super::{MasterCore, MasterPhase};
use crate::event::{MasterEffect, SubmitterConnection};
use crate::record::JournalRecord;
use crate::submission_limits::{batch_error, client_error, task_error};
use crate::taskset::{LifecycleState, TaskPosition};

/// Maximum number of clients of a live job.
const MAX_CLIENTS: usize = 64;
/// Maximum number of stages of a live job.
const MAX_STAGES: usize = 1_000;
/// Maximum number of tasks of a live job: the master keeps the key of each.
const MAX_LIVE_TASKS: usize = 5_000_000;

impl MasterCore {
    pub(super) fn on_submitter_joined(
        &mut self,
        connection: SubmitterConnection,
        client: &str,
        after: u64,
    ) {
        if let MasterPhase::Over(outcome) = &self.phase {
            let over = over_message(outcome);
            return self.out.push(answer(connection, over));
        }
        if let Some(error) = self.client_refusal(client, after) {
            return self.out.push(refuse(connection, None, error));
        }
        if !self.submitted.knows_client(client) {
            let client = client.to_owned();
            self.record(JournalRecord::SubmitterJoined { client });
        }
        self.presence.connect(connection, client);
        self.acknowledge(client, after);
        let welcome = ToSubmitter::Welcome {
            version: VERSION,
            credit: self.submission_credit(),
            cursor: self.submitted.last_cursor(),
            closed: self.submitted.is_closed(),
        };
        self.out.push(answer(connection, welcome));
    }

    fn client_refusal(&self, client: &str, after: u64) -> Option<ProblemDetails> {
        if self.job.live.is_none() {
            let what = "the job is not live, so it accepts no tasks while it runs";
            return Some(ProblemDetails::conflict(what).hint("add live = true to its job file"));
        }
        if let Some(error) = client_error(client) {
            return Some(error);
        }
        if self.phase != MasterPhase::Working {
            let what = "the master has not registered with the resource manager yet";
            return Some(ProblemDetails::unavailable(what).hint("connect again"));
        }
        let last = self.submitted.last_cursor();
        if after > last {
            let what = format!(
                "{client} has processed {after} results, but this run of the job has {last}: its journal is another one"
            );
            return Some(ProblemDetails::conflict(what).hint("submit the tasks to a new job"));
        }
        let full = self.submitted.clients().count() >= MAX_CLIENTS;
        (full && !self.submitted.knows_client(client)).then(|| {
            let what = format!("{MAX_CLIENTS} clients are known to this job, which is the maximum");
            ProblemDetails::new(ErrorCode::HR0429, what).hint("use the names of earlier clients")
        })
    }

    pub(super) fn on_submitter_left(&mut self, connection: SubmitterConnection) {
        self.presence.disconnect(connection, self.now.tick);
    }

    pub(super) fn on_submission(
        &mut self,
        connection: SubmitterConnection,
        message: FromSubmitter,
    ) {
        let Some(client) = self.presence.client(connection).cloned() else {
            return;
        };
        if self.phase != MasterPhase::Working {
            return;
        }
        match message {
            FromSubmitter::Submitter { .. } => {
                let what = "a second first line on the same connection";
                self.out
                    .push(refuse(connection, None, ProblemDetails::bad_request(what)));
            }
            FromSubmitter::Stage { name, spec } => {
                let subject = name.to_string();
                let declared = self.declare_stage(name.clone(), spec);
                self.out.push(match declared {
                    Ok(()) => answer(connection, ToSubmitter::StageAccepted { name }),
                    Err(error) => refuse(connection, Some(subject), *error),
                });
            }
            FromSubmitter::Tasks {
                batch,
                stage,
                items,
            } => {
                let accepted = self.add_tasks(&batch, &stage, items);
                let credit = self.submission_credit();
                self.out.push(match accepted {
                    Ok(()) => answer(connection, ToSubmitter::Accepted { batch, credit }),
                    Err(error) => refuse(connection, Some(batch), *error),
                });
            }
            FromSubmitter::Cancel { keys } => {
                let keys = keys.iter().filter_map(|key| self.submitted.find(key));
                let tasks: BTreeSet<TaskPosition> = keys.collect();
                self.cancel_tasks(tasks, &format!("cancelled by {client}"));
            }
            FromSubmitter::CancelAll => {
                let all = self.unfinished_tasks();
                self.cancel_tasks(all, &format!("cancelled by {client}"));
            }
            FromSubmitter::Close => {
                if !self.submitted.is_closed() {
                    let client = Some(client);
                    self.record(JournalRecord::JobClosed { client });
                }
            }
            FromSubmitter::Ack { cursor } => self.acknowledge(&client, cursor),
            FromSubmitter::Leave => {
                if self.presence.leave(connection, self.now.tick) {
                    self.record(JournalRecord::SubmitterForgotten { client });
                }
            }
            FromSubmitter::Alive => {}
        }
    }

    fn acknowledge(&mut self, client: &str, cursor: u64) {
        let cursor = cursor.min(self.submitted.last_cursor());
        if cursor > self.submitted.acknowledged_by(client) {
            let client = client.to_owned();
            self.record(JournalRecord::ResultsAcknowledged { client, cursor });
        }
    }

    fn declare_stage(
        &mut self,
        name: Name,
        spec: serde_json::Value,
    ) -> Result<(), Box<ProblemDetails>> {
        let declared = self.job.compile_stage(&name, &spec).map_err(|problems| {
            ProblemDetails::bad_request(headroom_config::render(&problems).trim_end().to_owned())
        })?;
        if let Some(known) = self.job.stage(&name) {
            let known = StageSpec {
                count: 0,
                ..known.clone()
            };
            if known == declared {
                return Ok(());
            }
            let what = format!("stage {name} exists and differs from this declaration");
            return Err(ProblemDetails::conflict(what)
                .hint("declare it under another name")
                .into());
        }
        if self.submitted.is_closed() {
            return Err(closed().into());
        }
        if self.job.stages.len() >= MAX_STAGES {
            let what = format!("the job has {MAX_STAGES} stages, which is the maximum");
            return Err(ProblemDetails::too_large(what)
                .hint("use one stage for tasks with the same command")
                .into());
        }
        if let Some(largest) = &self.largest
            && let Some(never) = infeasible_stage(&self.job, &declared, largest)
        {
            return Err(ProblemDetails::new(ErrorCode::HR0422, never.sentence).into());
        }
        self.record(JournalRecord::StageDeclared { name, spec });
        self.learn_history_of_last_stage();
        Ok(())
    }

    fn add_tasks(
        &mut self,
        batch: &str,
        stage: &Name,
        items: Vec<SubmittedTask>,
    ) -> Result<(), Box<ProblemDetails>> {
        if let Some(error) = batch_error(batch, items.len()) {
            return Err(error.into());
        }
        let stage = self.live_stage(stage)?;
        let mut new: BTreeSet<String> = BTreeSet::new();
        let mut items = items;
        items.retain(|item| {
            self.submitted.find(&item.key).is_none() && new.insert(item.key.clone())
        });
        if items.is_empty() {
            return Ok(());
        }
        if self.submitted.is_closed() {
            return Err(closed().into());
        }
        let mut earlier: BTreeSet<&str> = BTreeSet::new();
        for item in &items {
            if let Some(error) = task_error(item) {
                return Err(error.into());
            }
            let is_known = |key: &&String| {
                earlier.contains(key.as_str()) || self.submitted.find(key).is_some()
            };
            if let Some(unknown) = item.after.iter().find(|key| !is_known(key)) {
                let what = format!("task {} follows {unknown:?}, which is not known", item.key);
                return Err(ProblemDetails::bad_request(what)
                    .hint("submit a task after the tasks that it follows")
                    .into());
            }
            earlier.insert(&item.key);
        }
        let (count, credit) = (items.len(), self.submission_credit());
        if self.submitted.accepted().saturating_add(count) > MAX_LIVE_TASKS {
            let what = format!("a live job has at most {MAX_LIVE_TASKS} tasks");
            return Err(ProblemDetails::too_large(what)
                .hint("start another job")
                .into());
        }
        if count > usize::try_from(credit).unwrap_or(usize::MAX) {
            let what = format!("{count} tasks, but the job accepts {credit} at present");
            return Err(ProblemDetails::new(ErrorCode::HR0429, what)
                .hint("acknowledge results, and send the batch again after a message `credit`")
                .into());
        }
        let batch = batch.to_owned();
        self.record(JournalRecord::TasksAccepted {
            batch,
            stage,
            items,
        });
        Ok(())
    }

    /// The index of a live stage.
    fn live_stage(&self, name: &Name) -> Result<usize, Box<ProblemDetails>> {
        let names: Vec<&str> = self.job.stages.iter().map(|s| s.name.as_str()).collect();
        let Some(stage) = names.iter().position(|known| *known == name.as_str()) else {
            let hint = match closest_name(name.as_str(), &names) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "declare the stage before its tasks".to_owned(),
            };
            return Err(
                ProblemDetails::not_found(format!("there is no stage {name}"))
                    .hint(hint)
                    .into(),
            );
        };
        if self.tasks.stages().get(stage).is_some_and(|s| s.live) {
            return Ok(stage);
        }
        let what = format!("stage {name} has an array of tasks in the job file");
        Err(ProblemDetails::conflict(what)
            .hint("remove its array, or add the tasks to another stage")
            .into())
    }

    /// All tasks that are not final.
    pub(super) fn unfinished_tasks(&self) -> BTreeSet<TaskPosition> {
        (0..self.job.stages.len())
            .flat_map(|stage| self.tasks.unfinished(stage))
            .collect()
    }

    /// Cancels tasks; those that are final or cancelled already are left out.
    pub(super) fn cancel_tasks(&mut self, tasks: BTreeSet<TaskPosition>, message: &str) {
        let open = |key: &TaskPosition| {
            self.tasks
                .get(*key)
                .is_some_and(|task| !task.is_final() && task.cancelled.is_none())
        };
        let tasks: Vec<TaskPosition> = tasks.into_iter().filter(open).collect();
        if tasks.is_empty() {
            return;
        }
        let event = format!("{} {message}", counted_noun(tasks.len(), "task"));
        let message = message.to_owned();
        self.record(JournalRecord::TasksCancelled {
            tasks: tasks.clone(),
            message,
        });
        let job = self.job.name.clone();
        self.view
            .add_event(self.now, Reason::TaskFailed, &job, event);
        for key in tasks {
            if let Some(task) = self.tasks.get(key)
                && matches!(task.state, LifecycleState::Running { .. })
            {
                self.stop_attempt(key);
            }
        }
    }
}

fn closed() -> ProblemDetails {
    ProblemDetails::conflict("the job is closed, so it accepts no more stages and tasks")
        .hint("submit another job")
}

/// The last message to a client.
pub(super) fn over_message(outcome: &crate::event::JobOutcome) -> ToSubmitter {
    ToSubmitter::Over {
        succeeded: outcome.ending == crate::event::JobEndKind::Succeeded,
        diagnostics: outcome.diagnostics.clone(),
    }
}

fn answer(connection: SubmitterConnection, message: ToSubmitter) -> MasterEffect {
    MasterEffect::Answer {
        connection,
        message: Box::new(message),
    }
}

fn refuse(
    connection: SubmitterConnection,
    subject: Option<String>,
    error: ProblemDetails,
) -> MasterEffect {
    answer(
        connection,
        ToSubmitter::Refused {
            subject,
            error: Box::new(error),
        },
    )
}
