//! The statistics of a job. This is the only place that adds them up.

use std::time::Duration;

use headroom_types::{Bytes, ExitCharge, UnixMillis, millis};
use headroom_wire::v1::job::{
    AttemptRow, DataLocality, InputGap, JobTotals, MemoryFailureMode, ShadowOutcome, StageInputs,
};

use crate::policy::{AttemptSize, ChargeAccount, TaskDecision};
use crate::taskset::LifecycleState;

/// Running statistics over all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStatistics {
    totals: JobTotals,
    /// Cost of memory failures. Byte-milliseconds.
    extra: u128,
    /// Number of successful attempts, and their total run time. Milliseconds.
    well: (u64, u64),
}

impl TaskStatistics {
    /// A ledger for `tasks` tasks, with all counts at zero.
    pub fn new(mode: MemoryFailureMode, tasks: u32) -> Self {
        TaskStatistics {
            totals: JobTotals {
                mode,
                tasks,
                ..JobTotals::default()
            },
            extra: 0,
            well: (0, 0),
        }
    }

    /// The statistics.
    pub fn totals(&self) -> &JobTotals {
        &self.totals
    }

    /// Cost of memory failures: attempts that had to run again, and memory that later attempts had
    /// beyond the first size. Byte-milliseconds.
    pub fn extra_byte_ms(&self) -> u128 {
        self.extra
    }

    /// Mean run time of successful attempts; `None` before the first.
    pub fn mean_task_time(&self) -> Option<Duration> {
        let (count, ms) = self.well;
        ms.checked_div(count).map(Duration::from_millis)
    }

    /// Counts a task that was submitted while the job runs.
    pub fn add_task(&mut self) {
        self.totals.tasks = self.totals.tasks.saturating_add(1);
    }

    /// Counts the transition of a task from one state to another.
    pub fn moved(&mut self, from: &LifecycleState, to: &LifecycleState) {
        if let Some(n) = self.place(from) {
            *n = n.saturating_sub(1);
        }
        if let Some(n) = self.place(to) {
            *n = n.saturating_add(1);
        }
    }

    fn place(&mut self, state: &LifecycleState) -> Option<&mut u32> {
        match state {
            LifecycleState::Running { .. } => Some(&mut self.totals.running),
            LifecycleState::Done => Some(&mut self.totals.done),
            LifecycleState::Failed => Some(&mut self.totals.failed),
            LifecycleState::Blocked | LifecycleState::Pending { .. } => None,
        }
    }

    /// Counts an ended attempt of a task whose first attempt had the size `first`.
    pub fn ended(
        &mut self,
        row: &AttemptRow,
        first: Bytes,
        account: ChargeAccount,
        collateral_rerun: bool,
    ) {
        let spent = byte_ms(row);
        let beyond = spent
            .saturating_sub(u128::from(first.get()).saturating_mul(u128::from(runtime_ms(row))));
        self.extra = self.extra.saturating_add(match account {
            ChargeAccount::Memory | ChargeAccount::Spike | ChargeAccount::Bystander => spent,
            ChargeAccount::Success
            | ChargeAccount::Plain
            | ChargeAccount::Transient
            | ChargeAccount::Taken
            | ChargeAccount::Collateral => beyond,
        });
        self.totals.allocated_byte_ms = self.totals.allocated_byte_ms.saturating_add(spent);
        self.shadow(row, spent);
        self.input(row, account);
        if account == ChargeAccount::Success {
            self.well = (
                self.well.0.saturating_add(1),
                self.well.1.saturating_add(runtime_ms(row)),
            );
        } else {
            self.totals.rerun_byte_ms = self.totals.rerun_byte_ms.saturating_add(spent);
        }
        let counter = match account {
            ChargeAccount::Success | ChargeAccount::Plain | ChargeAccount::Bystander => None,
            ChargeAccount::Memory | ChargeAccount::Spike => Some(&mut self.totals.memory_kills),
            ChargeAccount::Transient | ChargeAccount::Taken | ChargeAccount::Collateral => {
                Some(&mut self.totals.transient)
            }
        };
        if let Some(counter) = counter {
            *counter = counter.saturating_add(1);
        }
        if collateral_rerun {
            self.totals.collateral_reruns = self.totals.collateral_reruns.saturating_add(1);
        }
    }

    /// Counts the locality of the input, and the gap between planned and read bytes.
    fn input(&mut self, row: &AttemptRow, account: ChargeAccount) {
        let Some(input) = &row.input else { return };
        let stage = &row.attempt.task.stage;
        let all = &mut self.totals.inputs;
        let at = all
            .iter()
            .position(|inputs| inputs.stage == *stage)
            .unwrap_or_else(|| {
                all.push(StageInputs::new(stage.clone()));
                all.len() - 1
            });
        let Some(inputs) = all.get_mut(at) else {
            return;
        };
        let killed = u32::from(matches!(
            account,
            ChargeAccount::Memory | ChargeAccount::Spike
        ));
        match input.locality {
            None => {}
            Some(DataLocality::Local) => {
                (inputs.attempts, inputs.kills) = (inputs.attempts + 1, inputs.kills + killed)
            }
            Some(DataLocality::Remote) => {
                (inputs.attempts, inputs.kills) = (inputs.attempts + 1, inputs.kills + killed);
                (inputs.remote, inputs.remote_kills) =
                    (inputs.remote + 1, inputs.remote_kills + killed);
            }
        }
        match input.gap {
            None => {}
            Some(InputGap::More) => inputs.more += 1,
            Some(InputGap::Less) => inputs.less += 1,
        }
    }

    /// Counts the outcome that a shadow size would have had.
    fn shadow(&mut self, row: &AttemptRow, spent: u128) {
        let Some((shadow, outcome)) = row
            .shadow
            .as_ref()
            .and_then(|shadow| Some((shadow, shadow.outcome?)))
        else {
            return;
        };
        let totals = self.totals.shadow.get_or_insert_default();
        let learned =
            u128::from(shadow.profile.memory().get()).saturating_mul(u128::from(runtime_ms(row)));
        let well = row
            .reason
            .is_some_and(|reason| reason.charge() == ExitCharge::Success);
        let (counter, learned) = match outcome {
            ShadowOutcome::Fits => (&mut totals.fit, learned),
            ShadowOutcome::Killed => (&mut totals.killed, learned.saturating_add(spent)),
            ShadowOutcome::Perhaps => (&mut totals.perhaps, learned),
        };
        *counter = counter.saturating_add(1);
        if well {
            totals.given_byte_ms = totals.given_byte_ms.saturating_add(spent);
            totals.learned_byte_ms = totals.learned_byte_ms.saturating_add(learned);
        }
    }

    /// Counts a running attempt that got more memory.
    pub fn grew(&mut self) {
        self.totals.grown = self.totals.grown.saturating_add(1);
    }

    /// Counts an attempt that was evicted for a frozen one.
    pub fn count_eviction(&mut self) {
        self.totals.evicted = self.totals.evicted.saturating_add(1);
    }

    /// Counts a task that got another size for the first time.
    pub fn escalated(&mut self) {
        self.totals.escalated = self.totals.escalated.saturating_add(1);
    }
}

/// True when the decision changes the size of the attempt. A move to another place with the same
/// size is no change.
pub fn changes_size(before: &AttemptSize, next: &TaskDecision) -> bool {
    match next {
        TaskDecision::Again { size, .. } => {
            size.profile != before.profile || size.rung != before.rung
        }
        TaskDecision::Done | TaskDecision::GiveUp { .. } => false,
    }
}

/// Run time of an attempt that has ended. Milliseconds.
pub fn runtime_ms(row: &AttemptRow) -> u64 {
    row.ended
        .map_or(0, |ended| millis(ended.since(row.started)))
}

/// Memory limit × time of one attempt, summed over its limits.
pub fn byte_ms(row: &AttemptRow) -> u128 {
    let Some(ended) = row.ended else { return 0 };
    let first = row
        .grown
        .first()
        .map_or_else(|| row.profile.memory(), |growth| growth.from);
    let (mut sum, mut since, mut memory): (u128, UnixMillis, Bytes) = (0, row.started, first);
    for growth in &row.grown {
        sum = sum.saturating_add(product(memory, growth.at.since(since)));
        (since, memory) = (growth.at.max(since), growth.to);
    }
    sum.saturating_add(product(memory, ended.since(since)))
}

fn product(memory: Bytes, time: Duration) -> u128 {
    u128::from(memory.get()).saturating_mul(time.as_millis())
}
