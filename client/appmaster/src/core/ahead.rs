//! The sizes that a task would get after further memory failures: the rest of its ladder, as far as
//! it can be predicted. These sizes are for display only. Each actual size is decided after the
//! failure, from the measurements of that failure.

use headroom_config::Memory;
use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::job::TaskState;

use super::Core;
use crate::policy::blame::Fate;
use crate::policy::classify::{Class, MemoryFailure};
use crate::policy::learn::After;
use crate::policy::{Case, Next, Size, Spent, decide};
use crate::taskset::TaskKey;

/// Maximum number of predicted sizes.
const MOST: usize = 8;

impl Core {
    /// Heap and overhead of each further size of a task that has started and has not ended.
    pub(super) fn ahead(&self, key: TaskKey) -> Vec<Bytes> {
        let Some(task) = self.tasks.get(key).filter(|task| !task.attempts.is_empty()) else { return Vec::new() };
        match task.row_state() {
            TaskState::Blocked | TaskState::Done | TaskState::Failed => return Vec::new(),
            TaskState::Pending | TaskState::Running => {}
        }
        let (mut sizes, mut spent) = (Vec::new(), task.spent);
        let mut size = self.size_after(key);
        while let Some(now) = size.take().filter(|_| sizes.len() < MOST) {
            size = self.next_size(key, &now, spent).filter(|next| next.memory() > now.memory());
            sizes.extend(size.as_ref().map(Size::memory));
            spent.memory += 1;
        }
        sizes
    }

    /// The size after one more memory failure at this size, in the dimension of the last failure.
    fn next_size(&self, key: TaskKey, size: &Size, spent: Spent) -> Option<Size> {
        let (stage, set, task) = (self.stage_of(key)?, self.set_of(key)?, self.tasks.get(key)?);
        let dimension = match stage.runtime.memory() {
            Memory::One => Dimension::Native,
            Memory::HeapAndOverhead => task.attempts.iter().rev().find_map(|row| row.dimension).unwrap_or(Dimension::Heap),
        };
        let failure = MemoryFailure { dimension, off_heap: size.profile.overhead, live: None, spike: false };
        let case = Case {
            mode: self.job.mode,
            task: "",
            reason: ExitReason::TaskOom,
            class: Class::Memory(failure),
            fate: Fate::Own,
            size,
            set,
            runtime: stage.runtime,
            idempotent: stage.idempotent,
            retry: &self.job.retry,
            spent,
            cap: self.cap(set),
            known: After::Unknown,
            remote_input: Bytes::ZERO,
            bound: None,
            treated: None,
        };
        match decide(&case).1 {
            Next::Again { size, .. } => Some(size),
            Next::Done | Next::GiveUp { .. } => None,
        }
    }
}
