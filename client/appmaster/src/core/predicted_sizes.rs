//! The sizes that a task would get after further memory failures: the rest of its ladder, as far as
//! it can be predicted. These sizes are for display only. Each actual size is decided after the
//! failure, from the measurements of that failure.

use headroom_config::MemoryQuantities;
use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::job::TaskState;

use super::MasterCore;
use crate::policy::blame::AttemptFate;
use crate::policy::classify::{AttemptEndClass, MemoryFailure};
use crate::policy::learn::SizeAfterKill;
use crate::policy::{AttemptSize, DecisionInput, SpentBudgets, TaskDecision, decide};
use crate::taskset::TaskPosition;

/// Maximum number of predicted sizes.
const MAX_PREDICTED_SIZES: usize = 8;

impl MasterCore {
    /// Heap and overhead of each further size of a task that has started and has not ended.
    pub(super) fn ahead(&self, key: TaskPosition) -> Vec<Bytes> {
        let Some(task) = self.tasks.get(key).filter(|task| !task.attempts.is_empty()) else {
            return Vec::new();
        };
        match task.row_state() {
            TaskState::Blocked | TaskState::Done | TaskState::Failed => return Vec::new(),
            TaskState::Pending | TaskState::Running => {}
        }
        let (mut sizes, mut spent) = (Vec::new(), task.spent);
        let mut size = self.size_after(key);
        while let Some(now) = size.take().filter(|_| sizes.len() < MAX_PREDICTED_SIZES) {
            size = self
                .next_size(key, &now, spent)
                .filter(|next| next.memory() > now.memory());
            sizes.extend(size.as_ref().map(AttemptSize::memory));
            spent.memory += 1;
        }
        sizes
    }

    /// The size after one more memory failure at this size, in the dimension of the last failure.
    fn next_size(
        &self,
        key: TaskPosition,
        size: &AttemptSize,
        spent: SpentBudgets,
    ) -> Option<AttemptSize> {
        let (stage, set, task) = (self.stage_of(key)?, self.set_of(key)?, self.tasks.get(key)?);
        let dimension = match stage.runtime.memory() {
            MemoryQuantities::One => Dimension::Native,
            MemoryQuantities::HeapAndOverhead => task
                .attempts
                .iter()
                .rev()
                .find_map(|row| row.dimension)
                .unwrap_or(Dimension::Heap),
        };
        let failure = MemoryFailure {
            dimension,
            off_heap: size.profile.overhead,
            live: None,
            spike: false,
        };
        let case = DecisionInput {
            mode: self.job.mode,
            task: "",
            reason: ExitReason::TaskOom,
            class: AttemptEndClass::Memory(failure),
            fate: AttemptFate::Own,
            size,
            set,
            runtime: stage.runtime,
            idempotent: stage.idempotent,
            retry: &self.job.retry,
            spent,
            cap: self.cap(set),
            known: SizeAfterKill::Unknown,
            remote_input: Bytes::ZERO,
            bound: None,
            treated: None,
        };
        match decide(&case).1 {
            TaskDecision::Again { size, .. } => Some(size),
            TaskDecision::Done | TaskDecision::GiveUp { .. } => None,
        }
    }
}
