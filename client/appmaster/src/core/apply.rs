//! Application of records: the only place where durable state changes, in live operation and in
//! replay alike.

use headroom_types::{
    Bytes, ContainerId, ExitCharge, Name, Profile, RequestId, TaskAttemptId, Tick, UnixMillis,
};
use headroom_wire::v1::job::{AttemptGrowth, AttemptRow};

use super::node_exclusion::is_of_the_node;
use super::{MasterCore, MasterPhase};
use crate::event::{JobEndKind, JobOutcome};
use crate::executors::{
    ExecutorEntry, ExecutorRequest, LaunchSubject, RequestPurpose, SlotAssignment, next_round,
};
use crate::ledger;
use crate::policy::{AttemptPlace, AttemptSize, ChargeAccount, GiveUpCause, TaskDecision, backoff};
use crate::record::JournalRecord;
use crate::spec::{self, RequestOwner};
use crate::taskset::{
    EvictedAttempt, LifecycleState, StateChange, TaskInstance, TaskPosition, next_state,
};

/// Timeout for the first hello of a new executor.
const FIRST_HELLO_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

impl MasterCore {
    pub(super) fn apply(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Begin(_) => {}
            JournalRecord::JobStarted { .. } => self.started = true,
            JournalRecord::Run { attempt } => {
                self.runs.insert(*attempt);
            }
            JournalRecord::Gained {
                container,
                request,
                node,
            } => self.apply_gained(container, request, node),
            JournalRecord::Gone {
                container,
                request,
                unused,
                failed,
            } => self.apply_gone(container, request, (*unused, *failed)),
            JournalRecord::Placed { task, row } => self.apply_placed(*task, row),
            JournalRecord::Ended {
                task,
                row,
                account,
                collateral_rerun,
                next,
                need,
            } => {
                self.learn(*task, row, *account, *need, next);
                self.apply_ended(*task, row, (*account, *collateral_rerun), next)
            }
            JournalRecord::Committing { task, row, need } => {
                self.apply_committing(*task, row, *need)
            }
            JournalRecord::Known { stages } => self.apply_known(stages),
            JournalRecord::Inputs { stage, sizes } => self.apply_inputs(*stage, sizes),
            JournalRecord::Moved { task, size, why } => self.apply_moved(*task, size, why),
            JournalRecord::Grown {
                task,
                attempt,
                profile,
                at,
            } => self.apply_grown(*task, attempt, profile, *at),
            JournalRecord::GivenUp {
                task,
                cause,
                message,
            } => self.apply_given_up(*task, *cause, message),
            JournalRecord::Cancelled { task, message } => self.apply_cancelled(*task, message),
            JournalRecord::Evicted {
                task,
                attempt,
                size,
                why,
            } => {
                let evicted = EvictedAttempt {
                    attempt: *attempt,
                    size: size.clone(),
                };
                self.apply_eviction(*task, evicted, why);
            }
            JournalRecord::Ranked { task, priority } => self.apply_ranked(*task, *priority),
            JournalRecord::Scaled { set, count } => self.apply_scaled(*set, *count),
            JournalRecord::StageDeclared { .. }
            | JournalRecord::TasksAccepted { .. }
            | JournalRecord::SubmitterJoined { .. }
            | JournalRecord::SubmitterForgotten { .. }
            | JournalRecord::ResultsAcknowledged { .. }
            | JournalRecord::ValueReturned { .. }
            | JournalRecord::TasksCancelled { .. }
            | JournalRecord::JobClosed { .. } => self.apply_submission(record),
            JournalRecord::Over {
                succeeded,
                diagnostics,
                ..
            } => self.apply_over(*succeeded, diagnostics),
        }
    }

    fn apply_given_up(&mut self, key: TaskPosition, cause: GiveUpCause, message: &str) {
        self.causes.insert(cause);
        if let Some(t) = self.tasks.get_mut(key) {
            message.clone_into(&mut t.note);
            t.given_up = Some(cause);
        }
        self.change(key, StateChange::GivenUp);
    }

    fn apply_cancelled(&mut self, key: TaskPosition, message: &str) {
        if let Some(t) = self.tasks.get_mut(key) {
            (t.cancelled, t.note) = (Some(message.to_owned()), message.to_owned());
        }
        self.view.mark_dirty(key);
    }

    fn apply_eviction(&mut self, key: TaskPosition, evicted: EvictedAttempt, why: &str) {
        if let Some(t) = self.tasks.get_mut(key) {
            t.gave_way = Some(evicted);
            why.clone_into(&mut t.note);
        }
        self.ledger.count_eviction();
        self.view.mark_dirty(key);
    }

    fn apply_scaled(&mut self, set: usize, count: u32) {
        if let Some(spec) = self.job.executors.get_mut(set) {
            (spec.count, spec.min) = (count, spec.min.min(count));
        }
    }

    fn apply_over(&mut self, succeeded: bool, diagnostics: &str) {
        let ending = if succeeded {
            JobEndKind::Succeeded
        } else {
            self.failed_ending()
        };
        self.note_tasks_never_run();
        self.phase = MasterPhase::Over(JobOutcome {
            ending,
            diagnostics: diagnostics.to_owned(),
        });
    }

    /// The purpose of a request id, if the id belongs to this job.
    pub(super) fn purpose(&self, request: &RequestId) -> Option<RequestPurpose> {
        match spec::purpose_of(&self.job, request)? {
            RequestOwner::Set(set) => Some(RequestPurpose::Set(set)),
            RequestOwner::Own { task, .. } => {
                self.tasks.find(&self.job, &task).map(RequestPurpose::Own)
            }
        }
    }

    /// The request with this id; creates it if it does not exist.
    pub(super) fn request_mut(&mut self, id: &RequestId) -> Option<&mut ExecutorRequest> {
        let purpose = self.purpose(id)?;
        let memory = self.container_memory(purpose);
        Some(
            self.fleet
                .requests
                .entry(id.clone())
                .or_insert_with(|| ExecutorRequest::new(purpose, memory)),
        )
    }

    fn apply_gained(
        &mut self,
        container: &ContainerId,
        id: &RequestId,
        node: &headroom_types::NodeId,
    ) {
        let slots = self.purpose(id).map_or(1, |p| p.slots(&self.job));
        let bases = self
            .purpose(id)
            .map(|p| self.base_of(p))
            .unwrap_or_default();
        let until = if self.phase == MasterPhase::Replaying {
            Tick(u64::MAX)
        } else {
            self.now.tick.plus(FIRST_HELLO_TIMEOUT)
        };
        let Some(request) = self.request_mut(id) else {
            return;
        };
        if request.ended.contains(container) {
            return;
        }
        let (base, share) = bases;
        let (purpose, unused) = (request.purpose, request.unused);
        let mut executor = ExecutorEntry::granted(id.clone(), purpose, node.clone(), slots, until);
        executor.rounds = (unused, self.fleet.failures(node));
        (executor.base, executor.share) = (base, share);
        self.fleet
            .executors
            .entry(container.clone())
            .or_insert(executor);
    }

    fn apply_gone(
        &mut self,
        container: &ContainerId,
        id: &RequestId,
        (unused, failed): (bool, bool),
    ) {
        let gone = self.fleet.executors.remove(container);
        self.fleet.collateral.forget(container);
        if let Some(gone) = &gone {
            if failed {
                self.fleet
                    .launch_failed(&gone.node, LaunchSubject::Executor, gone.rounds.1);
            } else if !unused {
                self.fleet
                    .launch_succeeded(&gone.node, LaunchSubject::Executor);
            }
        }
        let (replaying, now) = (self.phase == MasterPhase::Replaying, self.now.tick);
        let Some(request) = self.request_mut(id) else {
            return;
        };
        request.ended.insert(container.clone());
        let round = gone.map_or(request.unused, |gone| gone.rounds.0);
        request.unused = if unused {
            next_round(request.unused, round)
        } else {
            0
        };
        if unused && !replaying {
            request.hold_until = now.plus(backoff(request.unused));
        }
    }

    fn apply_placed(&mut self, key: TaskPosition, row: &AttemptRow) {
        self.apply_first_size(key, row);
        self.submitted.clear_value(key);
        self.change(
            key,
            StateChange::Placed {
                container: row.container.clone(),
            },
        );
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        task.attempts.push(row.clone());
        task.wide_since = None;
        task.note.clear();
        let round = self.fleet.failures(&row.node);
        if let Some(executor) = self.fleet.executors.get_mut(&row.container) {
            let memory = row.profile.memory();
            let seat = SlotAssignment {
                task: key,
                slots: row.slots,
                started: false,
                memory,
                extra: Bytes::ZERO,
                held: None,
                starved: false,
                to_retry: false,
                round,
            };
            executor.seats.insert(row.attempt.clone(), seat);
            // Attempts start only in executors that have sent a hello. Hellos are not recorded.
            executor.greeted = true;
        }
    }

    fn apply_ended(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        (account, collateral_rerun): (ChargeAccount, bool),
        next: &TaskDecision,
    ) {
        let seat = self
            .fleet
            .executors
            .get_mut(&row.container)
            .and_then(|executor| executor.seats.remove(&row.attempt));
        self.note_launch(key, row, account, seat);
        self.commits.remove(&key);
        let first = self
            .tasks
            .get(key)
            .and_then(|task| task.attempts.first())
            .map_or(row.profile.memory(), |a| a.profile.memory());
        self.ledger.ended(row, first, account, collateral_rerun);
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        if let Some(open) = task
            .open_attempt_mut()
            .filter(|open| open.attempt == row.attempt)
        {
            *open = row.clone();
        }
        match account {
            ChargeAccount::Memory => task.spent.memory += 1,
            ChargeAccount::Spike => task.spent.spikes += 1,
            ChargeAccount::Plain => task.spent.plain += 1,
            ChargeAccount::Transient => task.spent.transient += 1,
            ChargeAccount::Collateral => task.spent.collateral += 1,
            ChargeAccount::Success | ChargeAccount::Bystander | ChargeAccount::Taken => {}
        }
        if account == ChargeAccount::Collateral {
            let at = row.ended.unwrap_or(row.started);
            self.fleet.collateral.killed(&row.node, &row.container, at);
        }
        let change = self.decided(key, row, next);
        self.change(key, change);
        self.unblock();
    }

    /// Records for the node whether the attempt could be launched there.
    fn note_launch(
        &mut self,
        key: TaskPosition,
        row: &AttemptRow,
        account: ChargeAccount,
        seat: Option<SlotAssignment>,
    ) {
        let launched = LaunchSubject::Task(key.stage);
        if is_of_the_node(row, account) {
            let round = seat.map_or_else(|| self.fleet.failures(&row.node), |seat| seat.round);
            self.fleet.launch_failed(&row.node, launched, round);
        } else if row
            .reason
            .is_some_and(|reason| reason.charge() != ExitCharge::Free)
        {
            self.fleet.launch_succeeded(&row.node, launched);
        }
    }

    /// Changes the task by the decision and returns the state change that belongs to it.
    fn decided(&mut self, key: TaskPosition, row: &AttemptRow, next: &TaskDecision) -> StateChange {
        let replaying = self.phase == MasterPhase::Replaying;
        let Some(task) = self.tasks.get_mut(key) else {
            return StateChange::GivenUp;
        };
        let mut escalated = 0;
        let change = match next {
            TaskDecision::Done => StateChange::Succeeded,
            TaskDecision::Again {
                size,
                wait_ms,
                elsewhere,
                why,
            } => {
                if ledger::changes_size(&task.size, next) && !task.escalated {
                    task.escalated = true;
                    self.ledger.escalated();
                    escalated = 1;
                }
                task.avoid_after(*elsewhere, &row.container, &row.node);
                task.size = size.clone();
                task.note.clone_from(why);
                task.why.clone_from(why);
                let wait = std::time::Duration::from_millis(*wait_ms);
                let ready = if replaying || wait.is_zero() {
                    Tick(0)
                } else {
                    self.now.tick.plus(wait)
                };
                StateChange::Again { ready }
            }
            TaskDecision::GiveUp { cause, message } => {
                task.note.clone_from(message);
                task.given_up = Some(*cause);
                self.causes.insert(*cause);
                StateChange::GivenUp
            }
        };
        if let Some(stage) = self.tasks.stage_mut(key.stage) {
            stage.escalated += escalated;
        }
        change
    }

    fn apply_grown(
        &mut self,
        key: TaskPosition,
        attempt: &TaskAttemptId,
        profile: &Profile,
        at: UnixMillis,
    ) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        let Some(row) = task
            .open_attempt_mut()
            .filter(|row| row.attempt == *attempt)
        else {
            return;
        };
        let (from, to) = (row.profile.memory(), profile.memory());
        row.grown.push(AttemptGrowth {
            at,
            from,
            to,
            frozen_us: None,
        });
        row.profile = profile.clone();
        let container = row.container.clone();
        task.size.profile = profile.clone();
        if let Some(seat) = self.fleet.seat_mut(&container, attempt) {
            seat.extra = seat.extra.saturating_add(to).saturating_sub(from);
            (seat.memory, seat.held) = (to, None);
            self.fleet.growing.insert(container);
        }
        if to > from {
            self.ledger.grew();
        }
        self.view.mark_dirty(key);
    }

    /// Makes the size of a task durable with its first attempt.
    fn apply_first_size(&mut self, key: TaskPosition, row: &AttemptRow) {
        let own = |container| {
            matches!(
                self.fleet.executors.get(container).map(|e| e.purpose),
                Some(RequestPurpose::Own(_))
            )
        };
        let place = if own(&row.container) {
            AttemptPlace::Own
        } else {
            AttemptPlace::Shared
        };
        let size = AttemptSize {
            profile: row.profile.clone(),
            slots: row.slots,
            rung: row.rung,
            place,
        };
        let Some(task) = self.tasks.get_mut(key).filter(|task| !task.sized) else {
            return;
        };
        (task.sized, task.why) = (true, row.why.clone());
        self.learning.begins(key);
        self.resize(key, &size);
    }

    /// Changes the size of a task and moves it to the matching queue.
    pub(super) fn resize(&mut self, key: TaskPosition, size: &AttemptSize) {
        self.requeue(key, |task| task.size = size.clone());
    }

    /// Changes the priority of a task and moves it in its queue.
    fn apply_ranked(&mut self, key: TaskPosition, priority: i32) {
        self.requeue(key, |task| task.priority = priority);
        self.view.mark_dirty(key);
    }

    /// Changes a value that determines the queue of a task, or its position there.
    fn requeue(&mut self, key: TaskPosition, change: impl FnOnce(&mut TaskInstance)) {
        let Some(set) = self.set_of.get(key.stage).copied() else {
            return;
        };
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(set) {
            queue.remove(key, task);
        }
        change(task);
        self.enqueue(key);
    }

    fn apply_moved(&mut self, key: TaskPosition, size: &AttemptSize, why: &str) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        task.note = why.to_owned();
        task.why = why.to_owned();
        task.wide_since = None;
        if !std::mem::replace(&mut task.sized, true) {
            self.learning.begins(key);
        }
        self.resize(key, size);
        self.fleet.clear_reservation(key);
        self.view.mark_dirty(key);
    }

    /// Changes the state of a task and keeps queues, stages and statistics consistent.
    pub(super) fn change(&mut self, key: TaskPosition, change: StateChange) {
        let Some(set) = self.set_of.get(key.stage).copied() else {
            return;
        };
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        let before = task.state.clone();
        match next_state(before.clone(), change) {
            Ok(after) => {
                task.state = after.clone();
                if let (LifecycleState::Pending { .. }, Some(queue), AttemptPlace::Shared) =
                    (&before, self.queues.get_mut(set), task.size.place)
                {
                    queue.remove(key, task);
                }
                let (was_final, failed) = (task.is_final(), after == LifecycleState::Failed);
                if was_final && task.sized {
                    self.learning.is_over(key);
                }
                self.fleet.clear_reservation(key);
                self.ledger.moved(&before, &after);
                if was_final {
                    self.tasks.count_end(key, failed);
                }
                self.enqueue(key);
                self.view.mark_dirty(key);
                self.note_submitted(key);
            }
            Err(illegal) => self.illegal.push(illegal),
        }
    }

    /// Puts a task where its state and size belong: into a queue, or among the tasks with their own
    /// container.
    fn enqueue(&mut self, key: TaskPosition) {
        let Some(set) = self.set_of.get(key.stage).copied() else {
            return;
        };
        let Some(task) = self.tasks.get(key) else {
            return;
        };
        let open = !task.sized && matches!(task.state, LifecycleState::Pending { .. });
        let own = match (&task.state, task.size.place) {
            (LifecycleState::Pending { ready }, AttemptPlace::Shared) => {
                if let Some(queue) = self.queues.get_mut(set) {
                    queue.push(key, task, *ready);
                }
                false
            }
            (
                LifecycleState::Pending { .. } | LifecycleState::Running { .. },
                AttemptPlace::Own,
            ) => true,
            (LifecycleState::Running { .. }, AttemptPlace::Shared)
            | (LifecycleState::Blocked | LifecycleState::Done | LifecycleState::Failed, _) => false,
        };
        if own && open {
            self.learning.line_up(key);
        } else {
            self.learning.leave_line(key);
        }
        if own && !open {
            self.own.insert(key);
        } else {
            self.own.remove(&key);
        }
    }

    /// Starts every stage whose predecessors are done.
    pub(super) fn unblock(&mut self) {
        let done: Vec<&Name> = self
            .job
            .stages
            .iter()
            .zip(self.tasks.stages())
            .filter(|(_, s)| s.left == 0 && s.failed == 0)
            .map(|(spec, _)| &spec.name)
            .collect();
        let may_begin = |(stage, spec): (usize, &headroom_config::StageSpec)| {
            let waits = self.tasks.stages().get(stage).is_some_and(|s| !s.begun);
            (waits && spec.after.iter().all(|after| done.contains(&after))).then_some(stage)
        };
        let begin: Vec<usize> = self
            .job
            .stages
            .iter()
            .enumerate()
            .filter_map(may_begin)
            .collect();
        for stage in begin {
            if let Some(s) = self.tasks.stage_mut(stage) {
                s.begun = true;
            }
            self.learning.unblocked(stage);
            let keys = self.tasks.keys_of(stage);
            keys.for_each(|key| self.change(key, StateChange::Unblocked));
        }
    }

    /// True when the task avoids this container or its node.
    pub(super) fn is_avoided(&self, key: TaskPosition, container: &ContainerId) -> bool {
        let (Some(task), Some(executor)) =
            (self.tasks.get(key), self.fleet.executors.get(container))
        else {
            return false;
        };
        task.avoid.container.as_ref() == Some(container)
            || task.avoid.node.as_ref() == Some(&executor.node)
            || task.failed_to_start_on(&executor.node)
    }
}
