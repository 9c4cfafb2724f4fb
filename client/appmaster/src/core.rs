//! The application master as a value: `step(now, event)` changes its state and returns the effects
//! to carry out.
//!
//! The loop of [`crate::run`], or a simulation, owns it. Inputs arrive as events. Durable state
//! changes only when a [`JournalRecord`] is applied, in live operation and in replay alike. The
//! driver carries out an effect after the records before it are durable.
//!
//! *Architecture Invariant*: no clock, no I/O, no randomness, no hash order.

mod apply;
#[cfg(any(test, feature = "testkit"))]
mod check;
mod commits;
mod container_end;
mod contention;
mod drain;
mod ends;
mod fold;
mod grow;
mod input;
mod input_sizes;
mod learn;
mod learned_sizes;
mod leftover;
mod node_exclusion;
mod orders;
mod pending_report;
mod place;
mod predicted_sizes;
mod requests;
mod rm;
mod scale;
mod sets;
mod size_report;
mod submission_lease;
mod submission_results;
mod submissions;
mod submissions_apply;
mod submitted_tasks;
mod submitter_presence;
mod treat;
mod view;
mod warning;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_config::{ExecutorSpec, JobSpec, StageSpec};
use headroom_types::{Bytes, ContainerId, Epoch, Resource, Tick};
use headroom_wire::v1::job::{AttemptRow, JobTotals};
use headroom_wire::v1::task::{TaskUsage, ToExecutor};

use crate::event::{
    EventTimestamp, ExecutorHello, JobEndKind, JobOutcome, MasterEffect, MasterEvent,
};
use crate::executors::{ConnectionState, ContainerListing, ExecutorFleet};
use crate::ledger::TaskStatistics;
use crate::output::EarlierCommit;
use crate::policy::sizing::MeasuredNeed;
use crate::policy::{GiveUpCause, TaskSizeCap};
use crate::record::JournalRecord;
use crate::taskset::{IllegalStateChange, JobTaskTable, TaskPosition, TaskSlotQueue};
use fold::FoldedRows;
use learned_sizes::LearnedSizes;
use pending_report::PendingReport;
use submitted_tasks::SubmittedTasks;
use submitter_presence::SubmitterPresence;

/// Timeout for an executor to reconnect.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Surroundings of the core that do not change during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterSetup {
    /// Working directory of tasks; `None` selects each container's own directory.
    pub base_dir: Option<String>,
    /// Memory of the container in which this master runs; no task can use it. Bytes.
    pub master_memory: Bytes,
    /// Prefix of the directory names of attempts, see [`crate::output::writer`].
    pub writer: String,
    /// Files that a commit of an output may find at its target.
    pub turn: EarlierCommit,
    /// Number of this application attempt.
    pub attempt: u32,
}

/// The state of one application master.
#[derive(Clone, Debug)]
pub struct MasterCore {
    job: JobSpec,
    setup: MasterSetup,
    /// For each stage, the index of its executor set in the job file.
    set_of: Vec<usize>,
    tasks: JobTaskTable,
    /// For each executor set, the tasks that wait for its slots.
    queues: Vec<TaskSlotQueue>,
    /// Tasks that have, or wait for, their own container.
    own: BTreeSet<TaskPosition>,
    fleet: ExecutorFleet,
    ledger: TaskStatistics,
    learning: LearnedSizes,
    view: PendingReport,
    folded: FoldedRows,
    /// Successful attempts whose output is being committed, each with its row and measured need.
    commits: BTreeMap<TaskPosition, (AttemptRow, Option<MeasuredNeed>)>,
    /// Hellos of containers whose grant has not arrived yet.
    early: BTreeMap<ContainerId, ExecutorHello>,
    largest: Option<Resource>,
    epoch: Option<Epoch>,
    cursor: u64,
    phase: MasterPhase,
    causes: BTreeSet<GiveUpCause>,
    started: bool,
    /// Application attempts that wrote this journal. Their executors know the secret that is stored
    /// with it.
    runs: BTreeSet<u32>,
    illegal: Vec<IllegalStateChange>,
    /// The submitted tasks of a live job, and its clients.
    submitted: SubmittedTasks,
    /// The connections of those clients.
    presence: SubmitterPresence,
    /// Time of the present step.
    now: EventTimestamp,
    /// Effects of the present step.
    out: Vec<MasterEffect>,
}

/// Phase of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MasterPhase {
    /// The core applies records of an earlier run.
    Replaying,
    /// The master has not registered this run with the resource manager yet.
    Unregistered,
    /// The job runs.
    Working,
    /// The outcome is decided.
    Over(JobOutcome),
}

impl MasterCore {
    /// Returns a master without any records.
    pub fn new(job: JobSpec, setup: MasterSetup) -> Self {
        let tasks = JobTaskTable::new(&job);
        let set_of = job
            .stages
            .iter()
            .map(|s| {
                job.executors
                    .iter()
                    .position(|e| e.name == s.executors)
                    .unwrap_or(0)
            })
            .collect();
        let mut core = MasterCore {
            set_of,
            queues: vec![TaskSlotQueue::default(); job.executors.len()],
            own: BTreeSet::new(),
            fleet: ExecutorFleet::default(),
            ledger: TaskStatistics::new(job.mode, job.tasks()),
            learning: LearnedSizes::new(&job),
            view: PendingReport::default(),
            folded: FoldedRows::default(),
            commits: BTreeMap::new(),
            early: BTreeMap::new(),
            largest: None,
            epoch: None,
            cursor: 0,
            phase: MasterPhase::Unregistered,
            causes: BTreeSet::new(),
            started: false,
            runs: BTreeSet::new(),
            illegal: Vec::new(),
            submitted: SubmittedTasks::default(),
            presence: SubmitterPresence::default(),
            now: EventTimestamp::default(),
            out: Vec::new(),
            tasks,
            job,
            setup,
        };
        (0..core.job.stages.len()).for_each(|stage| core.charge_first(stage));
        core.unblock();
        core
    }

    /// Returns a master that continues after the given records.
    pub fn replay<R: Borrow<JournalRecord>>(
        job: JobSpec,
        setup: MasterSetup,
        records: impl IntoIterator<Item = R>,
    ) -> Self {
        let mut core = MasterCore::new(job, setup);
        core.phase = MasterPhase::Replaying;
        for record in records {
            core.apply(record.borrow());
        }
        if core.phase == MasterPhase::Replaying {
            core.phase = MasterPhase::Unregistered;
        }
        core.view.forget_events();
        core.learning.resume();
        core
    }

    /// Ends the job before it starts, with these diagnostics.
    pub fn fail_before_start(&mut self, diagnostics: String) {
        self.phase = MasterPhase::Over(JobOutcome {
            ending: JobEndKind::Failed,
            diagnostics,
        });
    }

    /// Processes one event and appends the resulting effects to `out`. This is the only entry
    /// point.
    pub fn step(&mut self, now: EventTimestamp, event: MasterEvent, out: &mut Vec<MasterEffect>) {
        self.now = now;
        match event {
            MasterEvent::Registered {
                epoch,
                largest,
                containers,
                cursor,
            } => {
                self.begin_epoch(epoch, cursor);
                self.on_registered(largest, containers);
            }
            MasterEvent::Update { cursor, what } => self.on_update(cursor, what),
            MasterEvent::Refused {
                request,
                sentence,
                largest,
            } => self.on_refused(&request, &sentence, largest),
            MasterEvent::Hello(hello) => self.on_hello(hello),
            MasterEvent::Started { container, attempt } => self.on_started(&container, &attempt),
            MasterEvent::Usage { container, tasks } => self.on_usage(&container, &tasks),
            MasterEvent::Ended { container, report } => self.on_ended(&container, &report),
            MasterEvent::Committed {
                task,
                attempt,
                error,
            } => self.on_committed(task, &attempt, error),
            MasterEvent::Pressure {
                container,
                attempt,
                limit,
            } => self.on_pressure(&container, &attempt, limit),
            MasterEvent::Leftover { container, left } => self.on_leftover(&container, left),
            MasterEvent::LimitSet { container, set } => self.on_limit_set(&container, &set),
            MasterEvent::ResizeRefused { container, refusal } => {
                self.on_resize_refused(&container, &refusal)
            }
            MasterEvent::Known(family) => self.on_known(&family),
            MasterEvent::Inputs { stage, sizes } => self.on_inputs(stage, sizes),
            MasterEvent::LineDown { container } => self.on_executor_disconnected(&container),
            MasterEvent::SubmitterJoined {
                connection,
                client,
                after,
            } => self.on_submitter_joined(connection, &client, after),
            MasterEvent::Submission {
                connection,
                message,
            } => self.on_submission(connection, *message),
            MasterEvent::SubmitterLeft { connection } => self.on_submitter_left(connection),
            MasterEvent::Stop => self.stop(),
            MasterEvent::Timer => {}
        }
        self.derive_effects();
        out.append(&mut self.out);
    }

    /// Time at which [`MasterEvent::Timer`] is due.
    pub fn next_timer(&self) -> Option<Tick> {
        match self.phase {
            MasterPhase::Working => {}
            MasterPhase::Replaying | MasterPhase::Unregistered | MasterPhase::Over(_) => {
                return None;
            }
        }
        let queues = self.queues.iter().filter_map(TaskSlotQueue::next_ready);
        queues
            .chain(self.next_wide_timeout())
            .chain(self.next_own_start())
            .chain(self.next_drain_check())
            .chain(self.next_contention_check())
            .chain(self.next_lease_check())
            .chain(self.fleet.next_deadline())
            .min()
    }

    /// The job.
    pub fn job(&self) -> &JobSpec {
        &self.job
    }
    /// The statistics of all tasks.
    pub fn totals(&self) -> &JobTotals {
        self.ledger.totals()
    }
    /// Every task.
    pub fn tasks(&self) -> &JobTaskTable {
        &self.tasks
    }
    /// Executors and requests.
    pub fn fleet(&self) -> &ExecutorFleet {
        &self.fleet
    }
    /// The outcome, once the job has ended.
    pub fn outcome(&self) -> Option<&JobOutcome> {
        match &self.phase {
            MasterPhase::Over(outcome) => Some(outcome),
            MasterPhase::Replaying | MasterPhase::Unregistered | MasterPhase::Working => None,
        }
    }
    /// Removes and returns the state changes that were refused as illegal. They indicate faults of
    /// this program.
    pub fn take_illegal(&mut self) -> Vec<IllegalStateChange> {
        std::mem::take(&mut self.illegal)
    }
    /// Cursor up to which all updates of the resource manager are processed durably.
    pub fn acknowledged_cursor(&self) -> u64 {
        let open = self
            .fleet
            .executors
            .values()
            .filter_map(|e| e.ended.as_ref())
            .map(|(_, _, cursor)| cursor.saturating_sub(1));
        open.min().unwrap_or(self.cursor).min(self.cursor)
    }
    /// Resets the cursor for a new epoch of the resource manager, which restarts the numbering of
    /// its updates. Container ends that wait for final task reports came from the old epoch and no
    /// longer delay the acknowledgement.
    fn begin_epoch(&mut self, epoch: Epoch, cursor: u64) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.epoch = Some(epoch);
        self.cursor = cursor;
        for ended in self
            .fleet
            .executors
            .values_mut()
            .filter_map(|e| e.ended.as_mut())
        {
            ended.2 = u64::MAX;
        }
    }

    fn stage_of(&self, key: TaskPosition) -> Option<&StageSpec> {
        self.job.stages.get(key.stage)
    }
    fn set_of(&self, key: TaskPosition) -> Option<&ExecutorSpec> {
        self.job.executors.get(*self.set_of.get(key.stage)?)
    }

    /// The largest size to which a task of this set can grow. A master in a container occupies that
    /// memory on some node for the whole job, so the cap excludes it.
    fn cap(&self, set: &ExecutorSpec) -> TaskSizeCap {
        let largest = self.largest.as_ref().map(|l| l.memory);
        let by_node = largest.map(|l| {
            l.saturating_sub(self.setup.master_memory)
                .saturating_sub(set.reserve)
        });
        match (self.job.retry.cap, by_node) {
            (Some(cap), Some(node)) if node < cap => TaskSizeCap {
                task: node,
                largest,
                by_job: false,
            },
            (Some(cap), _) => TaskSizeCap {
                task: cap,
                largest,
                by_job: true,
            },
            (None, Some(node)) => TaskSizeCap {
                task: node,
                largest,
                by_job: false,
            },
            (None, None) => TaskSizeCap {
                task: Bytes::MAX,
                largest,
                by_job: false,
            },
        }
    }

    fn record(&mut self, record: JournalRecord) {
        self.apply(&record);
        self.out.push(MasterEffect::Record(Box::new(record)));
    }

    fn on_hello(&mut self, hello: ExecutorHello) {
        let Some(executor) = self.fleet.executors.get_mut(&hello.container) else {
            if self
                .fleet
                .requests
                .values()
                .any(|r| r.ended.contains(&hello.container))
            {
                self.out.push(send(&hello.container, ToExecutor::Shutdown));
            } else {
                self.early.insert(hello.container.clone(), hello);
            }
            return;
        };
        (executor.line, executor.greeted) = (ConnectionState::Up, true);
        executor.listing = ContainerListing::Listed;
        executor.slots = executor.slots.min(hello.slots.max(1));
        if !hello.task_groups {
            self.learning.expect_kills();
        }
        let leaving = executor.leaving;
        for report in &hello.unacked {
            self.on_ended(&hello.container, report);
        }
        let Some(executor) = self.fleet.executors.get_mut(&hello.container) else {
            return;
        };
        for attempt in hello
            .running
            .iter()
            .filter(|a| !executor.seats.contains_key(*a))
        {
            self.out.push(send(
                &hello.container,
                ToExecutor::Stop {
                    attempt: attempt.clone(),
                },
            ));
        }
        for (attempt, seat) in &mut executor.seats {
            seat.started |= hello.running.contains(attempt);
        }
        let lost: Vec<TaskPosition> = executor
            .seats
            .values()
            .filter(|s| !s.started)
            .map(|s| s.task)
            .collect();
        if leaving {
            self.out.push(send(&hello.container, ToExecutor::Shutdown));
        }
        // The executor does not know these attempts although a start was sent: the message was
        // lost. An attempt that ran and ended would be among the unacknowledged ends.
        for key in lost {
            self.out.extend(self.start_message(key));
        }
        self.stop_ordered(&hello.container);
        self.stop_evicted(&hello.container);
    }

    fn on_started(&mut self, container: &ContainerId, attempt: &headroom_types::TaskAttemptId) {
        let seat = self.fleet.seat_mut(container, attempt);
        match seat {
            Some(seat) => seat.started = true,
            None => self.out.push(send(
                container,
                ToExecutor::Stop {
                    attempt: attempt.clone(),
                },
            )),
        }
    }

    fn on_usage(&mut self, container: &ContainerId, usages: &[TaskUsage]) {
        let Some(executor) = self.fleet.executors.get_mut(container) else {
            return;
        };
        for usage in usages {
            let Some(seat) = executor.seats.get_mut(&usage.attempt) else {
                continue;
            };
            seat.starved = usage.starved;
            let Some(row) = self
                .tasks
                .get_mut(seat.task)
                .and_then(|t| t.open_attempt_mut())
            else {
                continue;
            };
            row.used = Some(usage.current);
            row.peak = row.peak.max(Some(usage.peak));
            self.view.mark_dirty(seat.task);
        }
    }

    fn on_executor_disconnected(&mut self, container: &ContainerId) {
        self.early.remove(container);
        let Some(executor) = self.fleet.executors.get_mut(container) else {
            return;
        };
        executor.line = ConnectionState::Down {
            until: self.now.tick.plus(RECONNECT_TIMEOUT),
        };
        if let Some((report, _, _)) = executor.ended.take() {
            self.container_gone(container, &report);
        }
    }

    fn stop(&mut self) {
        let diagnostics = "stopped on request".to_owned();
        self.end_job(JobOutcome {
            ending: JobEndKind::Stopped,
            diagnostics,
        });
    }

    /// Ends the job with this outcome and orders all executors to end.
    fn end_job(&mut self, outcome: JobOutcome) {
        if matches!(self.phase, MasterPhase::Over(_)) {
            return;
        }
        let succeeded = outcome.ending == JobEndKind::Succeeded;
        if outcome.ending != JobEndKind::Stopped {
            self.record(JournalRecord::Over {
                succeeded,
                at: self.now.unix,
                diagnostics: outcome.diagnostics.clone(),
            });
        }
        for (container, executor) in &mut self.fleet.executors {
            executor.leaving = true;
            if executor.line == ConnectionState::Up {
                self.out.push(send(container, ToExecutor::Shutdown));
            }
        }
        // No container is requested as a replacement.
        self.fleet
            .requests
            .values_mut()
            .for_each(|request| (request.wanted, request.hold_until) = (0, Tick(0)));
        self.phase = MasterPhase::Over(outcome.clone());
        self.out.push(MasterEffect::Finish(outcome));
    }

    /// Derives all consequences of the state. Runs after every event.
    fn derive_effects(&mut self) {
        if self.phase != MasterPhase::Working {
            return;
        }
        let before = self.desired_fleet();
        self.pass_deadlines();
        self.check_leases();
        self.cancel_followers();
        self.retire_filled();
        self.apply_warnings();
        self.grow_frozen_tasks();
        self.make_room_for_growth();
        self.size_waiting();
        self.give_up_impossible();
        self.place_shared();
        self.admit();
        self.own_containers();
        self.make_room();
        self.size_sets();
        self.shrink_back();
        self.finish_if_over();
        if self.desired_fleet() != before {
            self.out.push(MasterEffect::Sync);
        }
    }

    fn finish_if_over(&mut self) {
        if self.phase != MasterPhase::Working
            || self.is_held_open()
            || self.tasks.stages().iter().any(|s| s.begun && s.left > 0)
        {
            return;
        }
        let outcome = if self.job.live.is_some() {
            self.live_outcome()
        } else {
            self.final_outcome()
        };
        self.end_job(outcome);
    }
}

/// An effect that sends one message to an executor.
fn send(container: &ContainerId, message: ToExecutor) -> MasterEffect {
    MasterEffect::Send {
        container: container.clone(),
        message: Box::new(message),
    }
}
