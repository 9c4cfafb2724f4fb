//! Orders for one task: cancel it, retry it, change its priority, or change the size of its next
//! attempt.
//!
//! Orders arrive in the resource manager's stream of updates and may arrive twice. Only durable
//! consequences are recorded. A cancelled task with a running attempt stays marked until that
//! attempt has ended, across restarts of this master.

use headroom_config::Idempotent;
use headroom_types::{Bytes, ContainerId, ExitReason, Reason, TaskOrder, TaskOrderAction};
use headroom_wire::v1::job::AttemptRow;
use headroom_wire::v1::task::ToExecutor;

use super::{MasterCore, send};
use crate::executors::SlotAssignment;
use crate::policy::slot_placement::place_sized_task;
use crate::policy::{AttemptSize, AvoidScope, ChargeAccount, GiveUpCause, TaskDecision, ladder};
use crate::record::JournalRecord;
use crate::taskset::{LifecycleState, TaskPosition};

impl MasterCore {
    pub(super) fn on_order(&mut self, order: &TaskOrder) {
        let Some(key) = self.tasks.find(&self.job, &order.task) else {
            return;
        };
        let Some(state) = self.tasks.get(key).map(|task| task.state.clone()) else {
            return;
        };
        match (order.action, state) {
            (_, LifecycleState::Done | LifecycleState::Failed) => {}
            (TaskOrderAction::Cancel, LifecycleState::Blocked | LifecycleState::Pending { .. }) => {
                self.give_up_on_request(key, order)
            }
            (TaskOrderAction::Cancel, LifecycleState::Running { .. }) => {
                self.cancel_running(key, order)
            }
            (TaskOrderAction::Retry { attempt }, LifecycleState::Running { .. }) => {
                self.retry(key, attempt)
            }
            // The task runs again in any case.
            (
                TaskOrderAction::Retry { .. },
                LifecycleState::Blocked | LifecycleState::Pending { .. },
            ) => {}
            (
                TaskOrderAction::Resize { memory },
                LifecycleState::Blocked | LifecycleState::Pending { .. },
            ) => self.resize_on_request(key, memory, order),
            // A running attempt keeps its size; the API rejects such an order unless the attempt
            // started after the check.
            (TaskOrderAction::Resize { .. }, LifecycleState::Running { .. }) => {}
            (
                TaskOrderAction::Rank { priority },
                LifecycleState::Blocked
                | LifecycleState::Pending { .. }
                | LifecycleState::Running { .. },
            ) => self.rank(key, priority, order),
        }
    }

    fn rank(&mut self, key: TaskPosition, priority: i32, order: &TaskOrder) {
        if self
            .tasks
            .get(key)
            .is_some_and(|task| task.priority != priority)
        {
            self.record(JournalRecord::Ranked {
                task: key,
                priority,
            });
            let message = format!("{}: {}", order.task, order.sentence());
            self.view
                .add_event(self.now, Reason::TaskMoved, &order.task, message);
        }
    }

    fn give_up_on_request(&mut self, key: TaskPosition, order: &TaskOrder) {
        let message = format!("{} {}", order.task, order.sentence());
        self.record(JournalRecord::GivenUp {
            task: key,
            cause: GiveUpCause::Cancelled,
            message: message.clone(),
        });
        self.report_given_up(key, GiveUpCause::Cancelled, &message);
    }

    fn cancel_running(&mut self, key: TaskPosition, order: &TaskOrder) {
        if self
            .tasks
            .get(key)
            .is_some_and(|task| task.cancelled.is_none())
        {
            let message = format!("{} {}", order.task, order.sentence());
            self.record(JournalRecord::Cancelled { task: key, message });
        }
        self.stop_attempt(key);
    }

    /// Ends the running attempt on request; the next one is not charged.
    fn retry(&mut self, key: TaskPosition, number: u32) {
        if self
            .stage_of(key)
            .is_some_and(|stage| stage.idempotent == Idempotent::No)
        {
            if let Some(task) = self.tasks.get_mut(key) {
                task.note = "not retried on request: it must not run twice (idempotent = \"no\")"
                    .to_owned();
            }
            self.view.mark_dirty(key);
            return;
        }
        let open = self
            .tasks
            .get(key)
            .and_then(|task| task.open_attempt())
            .filter(|row| row.attempt.attempt == number);
        let Some((container, attempt)) =
            open.map(|row| (row.container.clone(), row.attempt.clone()))
        else {
            return;
        };
        if let Some(seat) = self.fleet.seat_mut(&container, &attempt) {
            seat.to_retry = true;
        }
        self.stop_attempt(key);
    }

    /// Stops the running attempt; the decision on the task follows its end.
    pub(super) fn stop_attempt(&mut self, key: TaskPosition) {
        let Some(row) = self.tasks.get(key).and_then(|task| task.open_attempt()) else {
            return;
        };
        self.out.push(send(
            &row.container,
            ToExecutor::Stop {
                attempt: row.attempt.clone(),
            },
        ));
    }

    fn resize_on_request(&mut self, key: TaskPosition, memory: Bytes, order: &TaskOrder) {
        let (Some(stage), Some(set), Some(task)) =
            (self.stage_of(key), self.set_of(key), self.tasks.get(key))
        else {
            return;
        };
        let wanted = ladder::in_proportion(&task.size.profile, memory);
        let size = AttemptSize {
            rung: task.size.rung,
            ..place_sized_task(stage, set, (&wanted, false), self.cap(set))
        };
        if size == task.size {
            return;
        }
        self.move_task(key, size, order.sentence());
    }

    /// The decision on a task whose attempt ended by an order. A task that succeeded nevertheless
    /// is done.
    pub(super) fn as_ordered(
        &self,
        key: TaskPosition,
        row: &AttemptRow,
        (account, next): (ChargeAccount, TaskDecision),
    ) -> (ChargeAccount, TaskDecision) {
        let Some(task) = self.tasks.get(key).filter(|_| next != TaskDecision::Done) else {
            return (account, next);
        };
        if let Some(message) = &task.cancelled {
            return (
                account,
                TaskDecision::GiveUp {
                    cause: GiveUpCause::Cancelled,
                    message: message.clone(),
                },
            );
        }
        if let Some(gave_way) = self.decision_after_eviction(key, row) {
            return gave_way;
        }
        let seat = self.fleet.seat(&row.container, &row.attempt);
        if row.reason != Some(ExitReason::Stopped) || !seat.is_some_and(|seat| seat.to_retry) {
            return (account, next);
        }
        let why = "retried on request, not charged".to_owned();
        (
            ChargeAccount::Taken,
            TaskDecision::Again {
                size: task.size.clone(),
                wait_ms: 0,
                elsewhere: AvoidScope::No,
                why,
            },
        )
    }

    /// Repeats the stop messages of cancelled tasks, and of attempts that a retry was ordered for,
    /// after an executor reconnects: they may have been lost with the connection.
    pub(super) fn stop_ordered(&mut self, container: &ContainerId) {
        let Some(executor) = self.fleet.executors.get(container) else {
            return;
        };
        let ordered = |seat: &SlotAssignment| {
            let task = self.tasks.get(seat.task)?;
            (task.cancelled.is_some() || seat.to_retry).then_some(seat.task)
        };
        let ordered: Vec<TaskPosition> = executor.seats.values().filter_map(ordered).collect();
        ordered.into_iter().for_each(|key| self.stop_attempt(key));
    }
}
