//! Allocation of slots to tasks: pure.
//!
//! The executor's loop owns the slots. The allocation never waits, and keeps a task until its end
//! is reported.

use std::collections::BTreeMap;

use headroom_types::TaskAttemptId;

/// The slots of one executor.
#[derive(Clone, Debug)]
pub struct ExecutorSlots {
    total: u32,
    held: BTreeMap<TaskAttemptId, u32>,
}

/// The response to a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDecision {
    /// The slots are taken: start the task.
    Start,
    /// The task runs already.
    Known,
    /// The task cannot run here now.
    Refused(StartRefusal),
}

/// The reason that a start is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartRefusal {
    /// Fewer slots are free than the task takes.
    #[error(
        "the task takes {wants} slots, but {free} of {total} are free; send it later, or to another executor"
    )]
    Slots {
        /// Slots that the task takes.
        wants: u32,
        /// Free slots.
        free: u32,
        /// Slots of the executor.
        total: u32,
    },
    /// The start requests zero slots; a task takes at least one.
    #[error("the task takes 0 slots; a task takes at least 1")]
    NoSlots,
    /// The executor is ending.
    #[error("the executor is ending; send it to another one")]
    Ending,
    /// Too many results await the master's acknowledgement.
    #[error("{0} results wait for the acknowledgement of the master, which is the maximum")]
    Unacked(usize),
    /// The command is empty.
    #[error("the command is empty; name the program as its first element")]
    NoCommand,
    /// A text that cannot be passed to a program.
    #[error("the {0} contains a NUL character, or its name an = sign")]
    Text(&'static str),
}

impl ExecutorSlots {
    /// Creates `total` free slots.
    pub fn new(total: u32) -> Self {
        ExecutorSlots {
            total,
            held: BTreeMap::new(),
        }
    }
    /// Total number of slots.
    pub fn total(&self) -> u32 {
        self.total
    }
    /// Number of free slots.
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.held.values().sum())
    }
    /// True when no task runs.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }
    /// Tasks that hold slots, ordered by id.
    pub fn running(&self) -> impl Iterator<Item = &TaskAttemptId> {
        self.held.keys()
    }
    /// Takes `wants` slots for `attempt`, if they are free.
    pub fn take(&mut self, attempt: &TaskAttemptId, wants: u32) -> StartDecision {
        if self.held.contains_key(attempt) {
            return StartDecision::Known;
        }
        if wants == 0 {
            return StartDecision::Refused(StartRefusal::NoSlots);
        }
        let free = self.free();
        if wants > free {
            return StartDecision::Refused(StartRefusal::Slots {
                wants,
                free,
                total: self.total,
            });
        }
        self.held.insert(attempt.clone(), wants);
        StartDecision::Start
    }
    /// Releases the slots of `attempt`. False if it held none.
    pub fn release(&mut self, attempt: &TaskAttemptId) -> bool {
        self.held.remove(attempt).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attempt(index: u32) -> TaskAttemptId {
        format!("map/{index}@1").parse().expect("id")
    }

    #[test]
    fn a_start_is_accepted_known_or_refused() {
        let mut slots = ExecutorSlots::new(4);
        assert_eq!(slots.take(&attempt(1), 3), StartDecision::Start);
        assert_eq!(slots.take(&attempt(1), 3), StartDecision::Known);
        assert_eq!(
            slots.take(&attempt(2), 2),
            StartDecision::Refused(StartRefusal::Slots {
                wants: 2,
                free: 1,
                total: 4
            })
        );
        assert_eq!(
            slots.take(&attempt(2), 0),
            StartDecision::Refused(StartRefusal::NoSlots)
        );
        assert_eq!(slots.take(&attempt(2), 1), StartDecision::Start);
        assert_eq!(slots.free(), 0);
        assert!(slots.release(&attempt(1)) && !slots.release(&attempt(1)));
        assert_eq!(slots.take(&attempt(3), 3), StartDecision::Start);
    }

    proptest! {
        /// Safety: the held slots never exceed the total. Liveness: after the end of all tasks, all
        /// slots are free.
        #[test]
        fn slots_are_neither_oversold_nor_leaked(total in 1u32..9, steps in proptest::collection::vec((0u32..6, 0u32..6, any::<bool>()), 0..60)) {
            let mut slots = ExecutorSlots::new(total);
            for (index, wants, start) in steps {
                let before = slots.free();
                if start {
                    let answer = slots.take(&attempt(index), wants);
                    prop_assert_eq!(before - slots.free(), if answer == StartDecision::Start { wants } else { 0 });
                } else {
                    slots.release(&attempt(index));
                    prop_assert!(slots.free() >= before);
                }
                prop_assert!(slots.free() <= total);
            }
            let all: Vec<_> = slots.running().cloned().collect();
            prop_assert!(all.iter().all(|a| slots.release(a)));
            prop_assert!(slots.is_idle() && slots.free() == total);
        }

        #[test]
        fn an_empty_executor_accepts_any_task_up_to_its_size(total in 1u32..1000, wants in 1u32..1000) {
            let fits = ExecutorSlots::new(total).take(&attempt(0), wants) == StartDecision::Start;
            prop_assert_eq!(fits, wants <= total);
        }
    }
}
