//! Invariants that hold after every event. Every test and the simulation call this check.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::TaskAttemptId;

use super::MasterCore;
use crate::executors::RequestPurpose;
use crate::policy::AttemptPlace;
use crate::spec;
use crate::taskset::{ForgottenTasks, LifecycleState, TaskInstance, TaskPosition};

impl MasterCore {
    /// Panics with the name of a violated invariant.
    pub fn assert_invariants(&self) {
        assert!(
            self.illegal.is_empty(),
            "illegal changes: {:?}",
            self.illegal
        );
        let mut seated: BTreeMap<&TaskAttemptId, TaskPosition> = BTreeMap::new();
        for (id, executor) in &self.fleet.executors {
            assert!(
                executor.used() <= executor.slots,
                "{id}: {} of {} slots in use",
                executor.used(),
                executor.slots
            );
            for (attempt, seat) in &executor.seats {
                assert!(
                    seated.insert(attempt, seat.task).is_none(),
                    "{attempt} has two slot assignments"
                );
                let task = self
                    .tasks
                    .get(seat.task)
                    .expect("the task of a slot assignment exists");
                assert_eq!(
                    task.state,
                    LifecycleState::Running {
                        container: id.clone()
                    },
                    "{attempt} runs in {id}"
                );
            }
        }
        for (key, task) in self.tasks.iter() {
            self.check_task(key, task, &seated);
        }
        self.check_figures();
        self.check_submitted();
        self.check_drained();
        for wanted in self.fleet.desired_requests() {
            assert!(
                wanted.ended <= wanted.count,
                "{}: more containers ended than were requested",
                wanted.request
            );
        }
    }

    fn check_task(
        &self,
        key: TaskPosition,
        task: &TaskInstance,
        seated: &BTreeMap<&TaskAttemptId, TaskPosition>,
    ) {
        let id = &task.id;
        for (n, row) in (1u32..).zip(&task.attempts) {
            assert_eq!(
                row.attempt.attempt, n,
                "{id}: attempts are numbered without gaps"
            );
            let last = usize::try_from(n).is_ok_and(|n| n == task.attempts.len());
            assert!(
                row.ended.is_some() || last,
                "{id}: only the last attempt may be open"
            );
        }
        let open = task.open_attempt();
        let running = matches!(task.state, LifecycleState::Running { .. });
        assert_eq!(
            open.is_some(),
            running,
            "{id}: open attempt and state {:?}",
            task.state
        );
        assert!(
            running || !self.commits.contains_key(&key),
            "{id}: only a running task has a commit in progress"
        );
        if let Some(row) = open.filter(|_| !self.commits.contains_key(&key)) {
            assert_eq!(
                seated.get(&row.attempt),
                Some(&key),
                "{id}: a running attempt has a slot assignment"
            );
        }
        let retry = &self.job.retry;
        assert!(
            task.spent.transient <= retry.transient + 1,
            "{id}: exceeds its transient budget"
        );
        assert!(
            task.spent.plain <= retry.max_attempts,
            "{id}: exceeds its plain budget"
        );
        assert!(
            task.spent.memory <= retry.memory_attempts.max(retry.max_attempts),
            "{id}: exceeds its memory budget"
        );
        let set = self.set_of.get(key.stage).copied().unwrap_or_default();
        let queued = self.queues.get(set).is_some_and(|q| q.contains(key));
        let pending = matches!(task.state, LifecycleState::Pending { .. });
        assert_eq!(
            queued,
            pending && task.size.place == AttemptPlace::Shared,
            "{id}: queue membership differs from its state"
        );
        let own = !task.is_final()
            && task.state != LifecycleState::Blocked
            && task.size.place == AttemptPlace::Own;
        let open = !task.sized && pending;
        assert_eq!(
            self.own.contains(&key),
            own && !open,
            "{id}: own-container set differs from its state"
        );
        assert_eq!(
            self.learning.in_line(key),
            own && open,
            "{id}: sizing line differs from its state"
        );
        assert!(
            task.sized || task.attempts.is_empty(),
            "{id}: a task with attempts has a recorded size"
        );
    }

    /// Checks drained executors. Each one is drained for exactly one escalated task whose container
    /// is requested, and starts no tasks.
    fn check_drained(&self) {
        if !matches!(self.phase, super::MasterPhase::Working) {
            return;
        }
        for (request, wait) in &self.fleet.own_waits {
            assert!(
                self.fleet
                    .requests
                    .get(request)
                    .is_some_and(|r| r.wanted > 0),
                "{request}: has a wait but is not requested"
            );
            assert!(
                self.tasks
                    .get(wait.task)
                    .is_some_and(|task| task.size.rung > 1),
                "{request}: only escalated tasks drain executors"
            );
        }
        let mut containers = BTreeSet::new();
        for (request, drained) in &self.fleet.drained {
            assert!(
                self.fleet.own_waits.contains_key(request),
                "{request}: a drain has no waiting request"
            );
            assert!(
                containers.insert(&drained.container),
                "{}: drained for two tasks",
                drained.container
            );
            let executor = self.fleet.executors.get(&drained.container);
            assert!(
                executor.is_none_or(|e| e.leaving || e.warning.is_some() || e.ended.is_some()),
                "{}: a drained executor still starts tasks",
                drained.container
            );
            assert!(
                executor.is_none() || drained.gone_at.is_none(),
                "{}: exists after its end",
                drained.container
            );
        }
    }

    /// Checks the tasks of a live job: each has exactly one result after its end, and only tasks
    /// that wait for others are blocked.
    fn check_submitted(&self) {
        let ended = |key: TaskPosition| self.tasks.get(key).map(TaskInstance::is_final);
        self.submitted.assert_invariants(ended);
        for (stage, s) in self.tasks.stages().iter().enumerate() {
            let count = self.job.stages.get(stage).map(|spec| spec.count);
            let open: Vec<TaskPosition> = self.tasks.unfinished(stage).collect();
            let counted = self.tasks.of_stage(stage).filter(|(_, t)| !t.is_final());
            assert_eq!(
                open,
                counted.map(|(key, _)| key).collect::<Vec<_>>(),
                "unfinished tasks of stage {stage}"
            );
            assert_eq!(
                usize::try_from(s.left).ok(),
                Some(open.len()),
                "stage {stage}"
            );
            if !s.live {
                continue;
            }
            let all = self.tasks.of_stage(stage).count();
            let all = u32::try_from(all).expect("few") + s.forgotten.done + s.forgotten.failed;
            assert_eq!(count, Some(all), "tasks of stage {stage}");
            for (key, task) in self.tasks.of_stage(stage).filter(|(_, t)| !t.is_final()) {
                let id = &task.id;
                let accepted = self.submitted.get(key);
                let accepted = accepted.unwrap_or_else(|| panic!("{id}: is not known"));
                let doomed = self.submitted.is_doomed(key);
                assert_eq!(
                    task.state == LifecycleState::Blocked,
                    doomed || !accepted.waits_for.is_empty(),
                    "{id}: blocked tasks are those that wait for others"
                );
            }
        }
    }

    /// The durable state of submitted tasks, for comparisons.
    pub fn submissions_text(&self) -> String {
        format!("{:?}", self.submitted)
    }

    fn check_figures(&self) {
        let count = |wanted: fn(&LifecycleState) -> bool| {
            self.tasks.iter().filter(|(_, t)| wanted(&t.state)).count()
        };
        let forgotten = |figure: fn(&ForgottenTasks) -> u32| -> usize {
            let stages = self.tasks.stages().iter();
            stages
                .map(|s| usize::try_from(figure(&s.forgotten)).expect("few"))
                .sum()
        };
        let totals = self.ledger.totals();
        let escalated = self.tasks.iter().filter(|(_, t)| t.escalated).count();
        let pairs = [
            (
                totals.done,
                count(|s| *s == LifecycleState::Done) + forgotten(|f| f.done),
            ),
            (
                totals.failed,
                count(|s| *s == LifecycleState::Failed) + forgotten(|f| f.failed),
            ),
            (
                totals.running,
                count(|s| matches!(s, LifecycleState::Running { .. })),
            ),
            (totals.escalated, escalated + forgotten(|f| f.escalated)),
            (
                totals.tasks,
                self.tasks.iter().count() + forgotten(|f| f.done + f.failed),
            ),
        ];
        for (reported, counted) in pairs {
            assert_eq!(
                usize::try_from(reported).ok(),
                Some(counted),
                "totals differ from task states: {totals:?}"
            );
        }
        assert!(
            totals.rerun_byte_ms <= totals.allocated_byte_ms,
            "re-run memory is at most the allocated memory"
        );
        for (id, request) in &self.fleet.requests {
            let RequestPurpose::Own(key) = request.purpose else {
                continue;
            };
            let task = self
                .tasks
                .get(key)
                .expect("the task of an own-container request exists");
            let current = spec::own_request(&task.id, task.size.rung).as_ref() == Some(id);
            let over = task.is_final() || !current;
            let is_working = matches!(self.phase, super::MasterPhase::Working);
            assert!(
                !is_working || !over || request.wanted == 0,
                "{id} is requested although its task does not need it"
            );
        }
    }
}
