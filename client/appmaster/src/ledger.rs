//! The figures of a job: the only place that adds.

use headroom_types::Bytes;
use headroom_wire::v1::job::{AttemptRow, JobTotals, Mode};

use crate::policy::{Account, Next, Size};
use crate::taskset::State;

/// Running figures over all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    totals: JobTotals,
    plain: u32,
}

impl Ledger {
    /// Nothing has happened to `tasks` tasks.
    pub fn new(mode: Mode, tasks: u32) -> Self {
        Ledger { totals: JobTotals { mode, tasks, ..JobTotals::default() }, plain: 0 }
    }

    /// The figures.
    pub fn totals(&self) -> &JobTotals {
        &self.totals
    }

    /// Attempts that ended as a plain failure.
    pub fn plain_failures(&self) -> u32 {
        self.plain
    }

    /// A task has moved from one state to another.
    pub fn moved(&mut self, from: &State, to: &State) {
        if let Some(n) = self.place(from) {
            *n = n.saturating_sub(1);
        }
        if let Some(n) = self.place(to) {
            *n = n.saturating_add(1);
        }
    }

    fn place(&mut self, state: &State) -> Option<&mut u32> {
        match state {
            State::Running { .. } => Some(&mut self.totals.running),
            State::Done => Some(&mut self.totals.done),
            State::Failed => Some(&mut self.totals.failed),
            State::Blocked | State::Pending { .. } => None,
        }
    }

    /// An attempt has ended.
    pub fn ended(&mut self, row: &AttemptRow, account: Account, innocent: bool) {
        let spent = byte_ms(row);
        self.totals.allocated_byte_ms = self.totals.allocated_byte_ms.saturating_add(spent);
        if account != Account::Success {
            self.totals.rerun_byte_ms = self.totals.rerun_byte_ms.saturating_add(spent);
        }
        let counter = match account {
            Account::Success | Account::Innocent => None,
            Account::Memory | Account::Spike => Some(&mut self.totals.memory_kills),
            Account::Plain => Some(&mut self.plain),
            Account::Transient => Some(&mut self.totals.transient),
        };
        if let Some(counter) = counter {
            *counter = counter.saturating_add(1);
        }
        if innocent {
            self.totals.innocent_reruns = self.totals.innocent_reruns.saturating_add(1);
        }
    }

    /// A task was given another size for the first time.
    pub fn escalated(&mut self) {
        self.totals.escalated = self.totals.escalated.saturating_add(1);
    }
}

/// True when the decision gives another size than the attempt had.
pub fn changes_size(before: &Size, next: &Next) -> bool {
    match next {
        Next::Again { size, .. } => size.profile != before.profile || size.slots != before.slots || size.place != before.place,
        Next::Done | Next::GiveUp { .. } => false,
    }
}

/// Memory limit × time of one attempt.
pub fn byte_ms(row: &AttemptRow) -> u128 {
    let Some(ended) = row.ended else { return 0 };
    let memory: Bytes = row.profile.memory();
    u128::from(memory.get()).saturating_mul(ended.since(row.started).as_millis())
}
