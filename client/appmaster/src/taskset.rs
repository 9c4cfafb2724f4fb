//! The tasks of a job by stage, and the queue of tasks that wait for slots.
//!
//! The core owns them. Only [`next_state`] changes the state of a task.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use headroom_config::{JobSpec, SizingMode, StageSpec};
use headroom_types::{
    Bytes, ContainerId, ExitReason, NodeId, TaskAttemptId, TaskId, Tick, UnixMillis,
};
use headroom_wire::v1::job::{AttemptRow, TaskRow, TaskState};
use serde::{Deserialize, Serialize};

use crate::policy::{AttemptPlace, AttemptSize, AvoidScope, GiveUpCause, SpentBudgets};
use crate::spec;

/// A task by its position in the job: index of its stage, and index in the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskPosition {
    /// The stage's index in the job file.
    pub stage: usize,
    /// The task's position in the stage's array, from the array's first index.
    pub index: u32,
}

/// The state of a task.
///
/// ```text
///            stage may begin            placed              ended well
///  Blocked ------------------> Pending --------> Running -----------------> Done
///     |                         |   ^               |
///     |        given up         |   |  again        |  given up
///     +----------> Failed <-----+   +---------------+-------------> Failed
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifecycleState {
    /// Its stage has not started.
    Blocked,
    /// It waits for slots or for its container.
    Pending {
        /// Not placed before this time.
        ready: Tick,
    },
    /// An attempt runs, or is about to.
    Running {
        /// The container.
        container: ContainerId,
    },
    /// Done.
    Done,
    /// Given up.
    Failed,
}

/// A change of a task's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// Its stage may start.
    Unblocked,
    /// An attempt was assigned to an executor.
    Placed {
        /// The container.
        container: ContainerId,
    },
    /// The attempt succeeded.
    Succeeded,
    /// It runs again.
    Again {
        /// Not before this time.
        ready: Tick,
    },
    /// It is given up.
    GivenUp,
}

/// A change that is not allowed in the state. The state is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {state:?} cannot be {change:?}")]
pub struct IllegalStateChange {
    /// The current state.
    pub state: LifecycleState,
    /// The refused change.
    pub change: StateChange,
}

/// Returns the state after a change. This is the only place where a task's state changes.
pub fn next_state(
    state: LifecycleState,
    change: StateChange,
) -> Result<LifecycleState, IllegalStateChange> {
    match state {
        LifecycleState::Blocked => match change {
            StateChange::Unblocked => Ok(LifecycleState::Pending { ready: Tick(0) }),
            StateChange::GivenUp => Ok(LifecycleState::Failed),
            StateChange::Placed { .. } | StateChange::Succeeded | StateChange::Again { .. } => {
                Err(IllegalStateChange {
                    state: LifecycleState::Blocked,
                    change,
                })
            }
        },
        LifecycleState::Pending { ready } => match change {
            StateChange::Unblocked => Ok(LifecycleState::Pending { ready }),
            StateChange::Placed { container } => Ok(LifecycleState::Running { container }),
            StateChange::GivenUp => Ok(LifecycleState::Failed),
            StateChange::Succeeded | StateChange::Again { .. } => Err(IllegalStateChange {
                state: LifecycleState::Pending { ready },
                change,
            }),
        },
        LifecycleState::Running { container } => match change {
            StateChange::Succeeded => Ok(LifecycleState::Done),
            StateChange::Again { ready } => Ok(LifecycleState::Pending { ready }),
            StateChange::GivenUp => Ok(LifecycleState::Failed),
            StateChange::Unblocked | StateChange::Placed { .. } => Err(IllegalStateChange {
                state: LifecycleState::Running { container },
                change,
            }),
        },
        LifecycleState::Done => Err(IllegalStateChange {
            state: LifecycleState::Done,
            change,
        }),
        LifecycleState::Failed => Err(IllegalStateChange {
            state: LifecycleState::Failed,
            change,
        }),
    }
}

/// The places that a repeated attempt must avoid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvoidedPlaces {
    /// A container.
    pub container: Option<ContainerId>,
    /// A node.
    pub node: Option<NodeId>,
}

/// One task.
#[derive(Clone, Debug)]
pub struct TaskInstance {
    /// Its id.
    pub id: TaskId,
    /// Its state.
    pub state: LifecycleState,
    /// The size of its next, or running, attempt.
    pub size: AttemptSize,
    /// The spent part of its budgets.
    pub spent: SpentBudgets,
    /// The places that its next attempt must avoid.
    pub avoid: AvoidedPlaces,
    /// Every attempt, the first one first.
    pub attempts: Vec<AttemptRow>,
    /// The reason why it waits or was given up.
    pub note: String,
    /// Time since when a wide attempt waits for slots of one executor.
    pub wide_since: Option<Tick>,
    /// True after the first change of size.
    pub escalated: bool,
    /// The reason for its size; empty for the size of its stage.
    pub why: String,
    /// False while its size depends on learned data; true once it is recorded.
    pub sized: bool,
    /// Tasks with a higher priority start first; the default is 0.
    pub priority: i32,
    /// Labels that the client of a live job gave it.
    pub tags: Option<Box<BTreeMap<String, String>>>,
    /// The reason why it is not retried after its running attempt.
    pub cancelled: Option<String>,
    /// The evicted attempt. A task is evicted at most once.
    pub gave_way: Option<EvictedAttempt>,
    /// The cause for which it was given up.
    pub given_up: Option<GiveUpCause>,
}

/// An attempt that was evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictedAttempt {
    /// Its number.
    pub attempt: u32,
    /// The size of the next attempt.
    pub size: AttemptSize,
}

impl TaskInstance {
    /// A task that has not started. `sized` is false while its size depends on learned data.
    pub fn blocked(id: TaskId, size: AttemptSize, sized: bool) -> TaskInstance {
        TaskInstance {
            id,
            state: LifecycleState::Blocked,
            size,
            spent: SpentBudgets::default(),
            avoid: AvoidedPlaces::default(),
            attempts: Vec::new(),
            note: String::new(),
            priority: 0,
            tags: None,
            cancelled: None,
            gave_way: None,
            given_up: None,
            wide_since: None,
            escalated: false,
            why: String::new(),
            sized,
        }
    }
    /// The running attempt.
    pub fn open_attempt(&self) -> Option<&AttemptRow> {
        self.attempts.last().filter(|row| row.ended.is_none())
    }
    /// Mutable variant of [`TaskInstance::open_attempt`].
    pub fn open_attempt_mut(&mut self) -> Option<&mut AttemptRow> {
        self.attempts.last_mut().filter(|row| row.ended.is_none())
    }
    /// The id of the next attempt.
    pub fn next_attempt(&self) -> TaskAttemptId {
        let attempt = u32::try_from(self.attempts.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        TaskAttemptId {
            task: self.id.clone(),
            attempt,
        }
    }
    /// The reason of its last ended attempt.
    pub fn previous_reason(&self) -> Option<ExitReason> {
        self.attempts.iter().rev().find_map(|row| row.reason)
    }
    /// True when it needed nothing but one attempt at its first size.
    pub fn is_plain_success(&self) -> bool {
        self.state == LifecycleState::Done
            && self.size.rung == 1
            && self.attempts.len() == 1
            && self.attempts.iter().all(|attempt| attempt.grown.is_empty())
    }
    /// True when its state will not change any more.
    pub fn is_final(&self) -> bool {
        match self.state {
            LifecycleState::Done | LifecycleState::Failed => true,
            LifecycleState::Blocked
            | LifecycleState::Pending { .. }
            | LifecycleState::Running { .. } => false,
        }
    }
    /// The state in its row.
    pub fn row_state(&self) -> TaskState {
        match self.state {
            LifecycleState::Blocked => TaskState::Blocked,
            LifecycleState::Pending { .. } => TaskState::Pending,
            LifecycleState::Running { .. } => TaskState::Running,
            LifecycleState::Done => TaskState::Done,
            LifecycleState::Failed => TaskState::Failed,
        }
    }
    /// The row for displays.
    pub fn row(&self) -> TaskRow {
        TaskRow {
            task: self.id.clone(),
            state: self.row_state(),
            profile: self.size.profile.clone(),
            rung: self.size.rung,
            note: self.note.clone(),
            frozen: None,
            attempts: self.attempts.clone(),
            ahead: Vec::new(),
            priority: self.priority,
            tags: self.tags.as_deref().cloned().unwrap_or_default(),
        }
    }
    /// Its attempts whose launch failed.
    pub fn failed_starts(&self) -> impl Iterator<Item = &AttemptRow> {
        self.attempts
            .iter()
            .filter(|row| row.reason == Some(ExitReason::LaunchFailed))
    }
    /// True when one of them was on that node.
    pub fn failed_to_start_on(&self, node: &NodeId) -> bool {
        self.failed_starts().any(|row| row.node == *node)
    }
    /// Stores the places that the next attempt must avoid.
    pub fn avoid_after(&mut self, elsewhere: AvoidScope, container: &ContainerId, node: &NodeId) {
        self.avoid = match elsewhere {
            AvoidScope::No => AvoidedPlaces::default(),
            AvoidScope::Executor => AvoidedPlaces {
                container: Some(container.clone()),
                node: None,
            },
            AvoidScope::Node => AvoidedPlaces {
                container: Some(container.clone()),
                node: Some(node.clone()),
            },
        };
    }
}

/// One stage.
#[derive(Clone, Debug)]
pub struct StageTasks {
    /// True if its tasks may run.
    pub begun: bool,
    /// Number of tasks that are not final.
    pub left: u32,
    /// Number of tasks that were given up.
    pub failed: u32,
    /// Number of tasks that got another size after they had started.
    pub escalated: u32,
    /// True for a live stage, whose tasks are submitted while the job runs.
    pub live: bool,
    /// Tasks of which only the end is kept.
    pub forgotten: ForgottenTasks,
    /// Its tasks, by position in the array.
    tasks: Vec<TaskSlot>,
    /// Positions of the tasks that are not final.
    unfinished: BTreeSet<u32>,
}

/// A task of a stage, or the kind of its end.
#[derive(Clone, Debug)]
enum TaskSlot {
    /// A task with all its attempts.
    Kept(Box<TaskInstance>),
    /// A task whose result was acknowledged.
    Forgotten(TaskEndKind),
}

impl TaskSlot {
    fn task(&self) -> Option<&TaskInstance> {
        match self {
            TaskSlot::Kept(task) => Some(task),
            TaskSlot::Forgotten(_) => None,
        }
    }
}

/// The kind of the end of a forgotten task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEndKind {
    /// It succeeded.
    Done,
    /// It was given up.
    Failed,
}

/// Counts of forgotten tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenTasks {
    /// Number of tasks that succeeded.
    pub done: u32,
    /// Number of tasks that were given up.
    pub failed: u32,
    /// Number of tasks that got another size after they had started.
    pub escalated: u32,
    /// Peak memory of the last successful ones, the oldest first.
    pub peaks: VecDeque<Bytes>,
}

/// Number of peaks of forgotten tasks that are kept for each stage.
const MAX_FORGOTTEN_PEAKS: usize = 256;

/// All tasks of a job.
#[derive(Clone, Debug)]
pub struct JobTaskTable {
    stages: Vec<StageTasks>,
}

impl JobTaskTable {
    /// All tasks of `job` with their first sizes, in state blocked.
    pub fn new(job: &JobSpec) -> Self {
        JobTaskTable {
            stages: job
                .stages
                .iter()
                .map(|spec| StageTasks::of(job, spec))
                .collect(),
        }
    }

    /// The stages in the order of the job file.
    pub fn stages(&self) -> &[StageTasks] {
        &self.stages
    }
    /// The stage with this index.
    pub fn stage_mut(&mut self, stage: usize) -> Option<&mut StageTasks> {
        self.stages.get_mut(stage)
    }
    /// A task that waits for slots.
    pub fn pending(&self, key: TaskPosition) -> Option<&TaskInstance> {
        let task = self.get(key)?;
        matches!(task.state, LifecycleState::Pending { .. }).then_some(task)
    }
    /// A task.
    pub fn get(&self, key: TaskPosition) -> Option<&TaskInstance> {
        self.stages
            .get(key.stage)?
            .tasks
            .get(usize::try_from(key.index).ok()?)?
            .task()
    }
    /// A task, mutable.
    pub fn get_mut(&mut self, key: TaskPosition) -> Option<&mut TaskInstance> {
        let stage = self.stages.get_mut(key.stage)?;
        match stage.tasks.get_mut(usize::try_from(key.index).ok()?)? {
            TaskSlot::Kept(task) => Some(task),
            TaskSlot::Forgotten(_) => None,
        }
    }
    /// The end of a task that is final, whether it is forgotten or not.
    pub fn end_of(&self, key: TaskPosition) -> Option<TaskEndKind> {
        let stage = self.stages.get(key.stage)?;
        match stage.tasks.get(usize::try_from(key.index).ok()?)? {
            TaskSlot::Forgotten(end) => Some(*end),
            TaskSlot::Kept(task) => match task.state {
                LifecycleState::Done => Some(TaskEndKind::Done),
                LifecycleState::Failed => Some(TaskEndKind::Failed),
                LifecycleState::Blocked
                | LifecycleState::Pending { .. }
                | LifecycleState::Running { .. } => None,
            },
        }
    }
    /// True when the task existed and only its end is kept.
    pub fn is_forgotten(&self, key: TaskPosition) -> bool {
        self.get(key).is_none() && self.end_of(key).is_some()
    }
    /// Adds a live stage without tasks.
    pub fn add_live_stage(&mut self) {
        self.stages.push(StageTasks {
            live: true,
            ..StageTasks::new(Vec::new())
        });
    }
    /// Adds a blocked task to a live stage and returns its position.
    pub fn add_task(&mut self, stage: usize, task: TaskInstance) -> Option<TaskPosition> {
        let of_stage = self.stages.get_mut(stage)?;
        let index = u32::try_from(of_stage.tasks.len()).ok()?;
        of_stage.left = of_stage.left.saturating_add(1);
        of_stage.unfinished.insert(index);
        of_stage.tasks.push(TaskSlot::Kept(Box::new(task)));
        Some(TaskPosition { stage, index })
    }
    /// Counts a task that has become final.
    pub fn count_end(&mut self, key: TaskPosition, failed: bool) {
        if let Some(stage) = self.stages.get_mut(key.stage) {
            stage.left = stage.left.saturating_sub(1);
            stage.failed += u32::from(failed);
            stage.unfinished.remove(&key.index);
        }
    }
    /// Keeps only the end of a final task of a live stage.
    pub fn forget(&mut self, key: TaskPosition) {
        let Some(end) = self.end_of(key) else { return };
        let Some(stage) = self.stages.get_mut(key.stage) else {
            return;
        };
        let index = usize::try_from(key.index).unwrap_or(usize::MAX);
        let Some(slot) = stage.tasks.get_mut(index) else {
            return;
        };
        let TaskSlot::Kept(task) = std::mem::replace(slot, TaskSlot::Forgotten(end)) else {
            return;
        };
        let counts = &mut stage.forgotten;
        counts.escalated += u32::from(task.escalated);
        match end {
            TaskEndKind::Failed => counts.failed += 1,
            TaskEndKind::Done => {
                counts.done += 1;
                let peak = task.attempts.last().and_then(|row| row.peak);
                counts.peaks.extend(peak);
                if counts.peaks.len() > MAX_FORGOTTEN_PEAKS {
                    counts.peaks.pop_front();
                }
            }
        }
    }
    /// The tasks of a stage that are not final.
    pub fn unfinished(&self, stage: usize) -> impl Iterator<Item = TaskPosition> {
        let of_stage = self.stages.get(stage).map(|s| s.unfinished.iter());
        let indexes = of_stage.into_iter().flatten();
        indexes.map(move |index| TaskPosition {
            stage,
            index: *index,
        })
    }
    /// Every task in the order of stage and index, without forgotten ones.
    pub fn iter(&self) -> impl Iterator<Item = (TaskPosition, &TaskInstance)> {
        self.stages.iter().enumerate().flat_map(|(stage, s)| {
            (0u32..).zip(&s.tasks).filter_map(move |(index, slot)| {
                Some((TaskPosition { stage, index }, slot.task()?))
            })
        })
    }
    /// Every task of one stage, without forgotten ones.
    pub fn of_stage(&self, stage: usize) -> impl Iterator<Item = (TaskPosition, &TaskInstance)> {
        let tasks = self.stages.get(stage).map(|s| s.tasks.iter());
        (0u32..)
            .zip(tasks.into_iter().flatten())
            .filter_map(move |(index, slot)| Some((TaskPosition { stage, index }, slot.task()?)))
    }
    /// The keys of one stage.
    pub fn keys_of(&self, stage: usize) -> impl Iterator<Item = TaskPosition> + use<> {
        let count = self
            .stages
            .get(stage)
            .map_or(0, |s| u32::try_from(s.tasks.len()).unwrap_or(u32::MAX));
        (0..count).map(move |index| TaskPosition { stage, index })
    }
    /// The task that an id names.
    pub fn find(&self, job: &JobSpec, id: &TaskId) -> Option<TaskPosition> {
        let stage = job.stages.iter().position(|s| s.name == id.stage)?;
        let index = id.index.checked_sub(job.stages.get(stage)?.first)?;
        let key = TaskPosition { stage, index };
        self.get(key).map(|_| key)
    }
}

impl StageTasks {
    /// The tasks of a stage, blocked, with their first size.
    fn of(job: &JobSpec, spec: &StageSpec) -> Self {
        let (size, sized) = (
            spec::first_size(job, spec),
            job.sizes() != SizingMode::Learned,
        );
        let task = |index| {
            let stage = spec.name.clone();
            TaskInstance::blocked(TaskId { stage, index }, size.clone(), sized)
        };
        StageTasks {
            live: job.live.is_some() && spec.count == 0,
            ..StageTasks::new(spec.indexes().map(task).collect())
        }
    }
    /// A stage of these tasks.
    pub fn new(tasks: Vec<TaskInstance>) -> Self {
        let left = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let kept = |task| TaskSlot::Kept(Box::new(task));
        StageTasks {
            begun: false,
            left,
            failed: 0,
            escalated: 0,
            live: false,
            forgotten: ForgottenTasks::default(),
            tasks: tasks.into_iter().map(kept).collect(),
            unfinished: (0..left).collect(),
        }
    }
}

/// The position of a waiting task: by priority, then escalated tasks in the order in which their
/// attempts ended, then by stage and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    priority: Reverse<i32>,
    escalated: Reverse<bool>,
    /// Start of an escalated task's wait; 0 for the others.
    since: UnixMillis,
    /// The task.
    pub key: TaskPosition,
}

/// Tasks of one executor set that wait for slots, and those that wait for a time.
#[derive(Clone, Debug, Default)]
pub struct TaskSlotQueue {
    ready: BTreeSet<QueuePosition>,
    later: BTreeSet<(Tick, TaskPosition)>,
    /// Number of waiting tasks by number of slots.
    widths: BTreeMap<u32, u32>,
    slots: u64,
    /// Number of ready tasks that are escalated.
    escalated: usize,
}

impl TaskSlotQueue {
    /// Adds a waiting task.
    pub fn push(&mut self, key: TaskPosition, task: &TaskInstance, ready: Tick) {
        debug_assert_eq!(
            task.size.place,
            AttemptPlace::Shared,
            "a task with a container of its own does not wait for slots"
        );
        let new = if ready > Tick(0) {
            self.later.insert((ready, key))
        } else {
            self.insert_ready(turn(key, task))
        };
        if new {
            self.slots += u64::from(task.size.slots);
            *self.widths.entry(task.size.slots).or_default() += 1;
        }
    }
    /// Removes a waiting task. It must have the same size and priority as at the push.
    pub fn remove(&mut self, key: TaskPosition, task: &TaskInstance) {
        let size = &task.size;
        let waiting: Vec<(Tick, TaskPosition)> = self
            .later
            .iter()
            .filter(|(_, k)| *k == key)
            .copied()
            .collect();
        let position = turn(key, task);
        let was_ready = self.ready.remove(&position);
        self.escalated -= usize::from(was_ready && position.escalated.0);
        let found = was_ready || !waiting.is_empty();
        for entry in waiting {
            self.later.remove(&entry);
        }
        if found {
            self.slots = self.slots.saturating_sub(u64::from(size.slots));
            if let Some(count) = self.widths.get_mut(&size.slots) {
                *count -= 1;
                if *count == 0 {
                    self.widths.remove(&size.slots);
                }
            }
        }
    }
    /// Moves the tasks whose time has come at `now` to the ready ones.
    pub fn wake<'t>(&mut self, now: Tick, task: impl Fn(TaskPosition) -> Option<&'t TaskInstance>) {
        while let Some((at, key)) = self.later.first().copied().filter(|(at, _)| *at <= now) {
            self.later.remove(&(at, key));
            if let Some(task) = task(key) {
                self.insert_ready(turn(key, task));
            }
        }
    }
    fn insert_ready(&mut self, position: QueuePosition) -> bool {
        let new = self.ready.insert(position);
        self.escalated += usize::from(new && position.escalated.0);
        new
    }
    /// True when all tasks after this one have the size of their stage, except for tasks of a lower
    /// priority than the default.
    pub fn is_among_the_last(&self, position: QueuePosition) -> bool {
        !position.escalated.0 && (position.priority.0 <= 0 || self.escalated == 0)
    }
    /// The ready tasks in their order.
    pub fn ready(&self) -> impl Iterator<Item = TaskPosition> {
        self.ready.iter().map(|t| t.key)
    }
    /// The entry after `turn`, or the first one.
    pub fn next_after(&self, turn: Option<QueuePosition>) -> Option<QueuePosition> {
        let from = turn.map_or(Bound::Unbounded, Bound::Excluded);
        self.ready.range((from, Bound::Unbounded)).next().copied()
    }
    /// A position behind all tasks of the same stage and rung.
    pub fn behind_stage(turn: QueuePosition) -> QueuePosition {
        QueuePosition {
            key: TaskPosition {
                index: u32::MAX,
                ..turn.key
            },
            ..turn
        }
    }
    /// The smallest number of slots of a waiting task.
    pub fn narrowest(&self) -> Option<u32> {
        self.widths.keys().next().copied()
    }
    /// Time at which the next waiting task becomes ready.
    pub fn next_ready(&self) -> Option<Tick> {
        self.later.first().map(|(at, _)| *at)
    }
    /// Total slots of all waiting tasks.
    pub fn slots(&self) -> u64 {
        self.slots
    }
    /// True when the task is in this queue.
    pub fn contains(&self, key: TaskPosition) -> bool {
        self.ready.iter().any(|t| t.key == key) || self.later.iter().any(|(_, k)| *k == key)
    }
}

fn turn(key: TaskPosition, task: &TaskInstance) -> QueuePosition {
    let escalated = task.size.rung > 1;
    let since = task
        .attempts
        .last()
        .and_then(|row| row.ended)
        .filter(|_| escalated)
        .unwrap_or_default();
    QueuePosition {
        priority: Reverse(task.priority),
        escalated: Reverse(escalated),
        since,
        key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> ContainerId {
        "job.1.e1.c1".parse().expect("id")
    }

    #[test]
    fn every_state_answers_every_change() {
        let states = [
            LifecycleState::Blocked,
            LifecycleState::Pending { ready: Tick(0) },
            LifecycleState::Running {
                container: container(),
            },
            LifecycleState::Done,
            LifecycleState::Failed,
        ];
        let changes = [
            StateChange::Unblocked,
            StateChange::Placed {
                container: container(),
            },
            StateChange::Succeeded,
            StateChange::Again { ready: Tick(5) },
            StateChange::GivenUp,
        ];
        let legal: Vec<Vec<bool>> = states
            .iter()
            .map(|s| {
                changes
                    .iter()
                    .map(|c| next_state(s.clone(), c.clone()).is_ok())
                    .collect()
            })
            .collect();
        assert_eq!(legal[0], [true, false, false, false, true], "blocked");
        assert_eq!(legal[1], [true, true, false, false, true], "pending");
        assert_eq!(legal[2], [false, false, true, true, true], "running");
        assert_eq!(legal[3], [false; 5], "done");
        assert_eq!(legal[4], [false; 5], "failed");
    }

    #[test]
    fn an_illegal_change_names_state_and_change_and_keeps_the_state() {
        let error = next_state(LifecycleState::Done, StateChange::Succeeded).expect_err("illegal");
        assert_eq!(error.state, LifecycleState::Done);
        assert!(error.to_string().contains("Done"));
    }
}
