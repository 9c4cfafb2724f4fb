//! What a task would be given if memory ended it again and again: the rest of its ladder, as far as that can be told before. Told to people
//! and to nobody else: what is given is decided when it happened, upon what was seen then.

use headroom_config::Memory;
use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::job::TaskState;

use super::Core;
use crate::policy::blame::Fate;
use crate::policy::classify::{Class, MemoryFailure};
use crate::policy::learn::After;
use crate::policy::{Case, Next, Size, Spent, decide};
use crate::taskset::TaskKey;

/// Longest ladder.
const MOST: usize = 8;

impl Core {
    /// Heap and overhead of each further size of a task that has been started and has not ended.
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

    /// What would follow if memory ended it at this size, in the way it did last.
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
