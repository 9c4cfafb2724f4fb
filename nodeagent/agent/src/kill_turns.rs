//! The containers whose processes are being killed, so that each has one kill at a time.
//!
//! A kill waits for the ends of the processes, and a process can hang in the kernel for hours. The
//! core repeats the kill. Without this table, the processes of a few containers would occupy all
//! threads for jobs. It kills nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_types::ContainerId;

use crate::stop::StopStep;

/// The containers with a running kill.
#[derive(Clone, Debug, Default)]
pub(crate) struct KillTurns {
    containers: Arc<Mutex<BTreeSet<ContainerId>>>,
}

/// The running kill of one container. Its drop permits the next one.
#[derive(Debug)]
pub(crate) struct KillTurn {
    turns: KillTurns,
    id: ContainerId,
}

impl KillTurns {
    /// Takes the turn. `None` if another kill of the container runs.
    pub(crate) fn take(&self, id: &ContainerId) -> Option<KillTurn> {
        let is_free = self.lock().insert(id.clone());
        is_free.then(|| KillTurn {
            turns: self.clone(),
            id: id.clone(),
        })
    }

    /// Takes the turn if there is a kill among `steps`. Removes the kills from `steps` if another
    /// one runs.
    pub(crate) fn take_for(&self, id: &ContainerId, steps: &mut Vec<StopStep>) -> Option<KillTurn> {
        if !steps.contains(&StopStep::Kill) {
            return None;
        }
        let turn = self.take(id);
        if turn.is_none() {
            steps.retain(|step| *step != StopStep::Kill);
        }
        turn
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ContainerId>> {
        // No operation panics in the middle of a change.
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KillTurn {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use headroom_types::StopCause;

    use super::*;

    #[test]
    fn a_container_has_one_kill_at_a_time() {
        let turns = KillTurns::default();
        let [first, second] =
            ["job.1.e1.c1", "job.1.e1.c2"].map(|id| id.parse::<ContainerId>().expect("an id"));
        let record = StopStep::Record(StopCause::OverLimit);
        let mut steps = vec![record, StopStep::Kill];
        let running = turns.take_for(&first, &mut steps);
        assert!(running.is_some());
        assert_eq!(steps, [record, StopStep::Kill]);
        assert!(turns.take(&first).is_none());
        assert!(turns.take_for(&first, &mut steps).is_none());
        assert_eq!(steps, [record], "the cause is recorded all the same");
        assert!(turns.take(&second).is_some());
        drop(running);
        assert!(turns.take(&first).is_some());
    }

    #[test]
    fn steps_without_a_kill_need_no_turn() {
        let turns = KillTurns::default();
        let id = "job.1.e1.c1".parse::<ContainerId>().expect("an id");
        let mut steps = vec![StopStep::Terminate];
        assert!(turns.take_for(&id, &mut steps).is_none());
        assert_eq!(steps, [StopStep::Terminate]);
        assert!(turns.take(&id).is_some());
    }
}
