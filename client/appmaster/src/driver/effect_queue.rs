//! Effects that wait until the records before them are written or durable. Pure.
//!
//! Each turn of the loop adds one group. A group leaves when its records are durable; its starts
//! leave when they are written. A group without records waits for the records of the groups before
//! it, because its effects follow from the same state.

use std::collections::{BTreeSet, VecDeque};

use headroom_types::ContainerId;
use headroom_wire::v1::task::ToExecutor;

use super::journal_threads::{GroupNumber, MAX_WAITING_GROUPS};
use crate::event::MasterEffect;
use crate::executor_link::ConnectionNumber;
use crate::session::SessionEffect;

/// A message for the connection that an executor had when the core sent it. On a new connection,
/// the core sends again what the executor lacks.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) container: ContainerId,
    pub(super) connection: ConnectionNumber,
    pub(super) message: ToExecutor,
}

/// An effect that waits for durable records.
#[derive(Debug)]
pub(super) enum QueuedEffect {
    /// A message to an executor.
    Send(QueuedMessage),
    /// Another effect of the core.
    Core(MasterEffect),
    /// A call to the resource manager.
    Session(SessionEffect),
}

/// The effects of one turn.
#[derive(Debug)]
pub(super) struct EffectGroup {
    /// The last group of records on which these effects depend.
    pub(super) number: GroupNumber,
    /// Starts that follow the write.
    pub(super) starts: Vec<QueuedMessage>,
    /// All other effects.
    pub(super) rest: Vec<QueuedEffect>,
    /// Cursor of the last result for clients of a live job.
    pub(super) last_result: u64,
}

/// The waiting groups, oldest first.
#[derive(Debug, Default)]
pub(super) struct EffectQueue {
    groups: VecDeque<EffectGroup>,
    last: GroupNumber,
    written: GroupNumber,
    durable: GroupNumber,
}

impl EffectQueue {
    /// The number of the next group with records.
    pub(super) fn next_number(&mut self) -> GroupNumber {
        self.last += 1;
        self.last
    }

    /// Adds the effects of a turn, after [`EffectQueue::next_number`] if it has records.
    pub(super) fn push(
        &mut self,
        starts: Vec<QueuedMessage>,
        rest: Vec<QueuedEffect>,
        last_result: u64,
    ) {
        self.groups.push_back(EffectGroup {
            number: self.last,
            starts,
            rest,
            last_result,
        });
    }

    /// Adds an effect of the session. It waits for all records so far.
    pub(super) fn push_session(&mut self, effect: SessionEffect) {
        let last_result = self.groups.back().map_or(0, |group| group.last_result);
        match self.groups.back_mut() {
            Some(group) if group.number == self.last => {
                group.rest.push(QueuedEffect::Session(effect))
            }
            Some(_) | None => {
                self.push(Vec::new(), vec![QueuedEffect::Session(effect)], last_result)
            }
        }
    }

    /// Notes that the groups up to this one are written.
    pub(super) fn on_written(&mut self, number: GroupNumber) {
        self.written = self.written.max(number);
    }

    /// Notes that the groups up to this one are durable.
    pub(super) fn on_durable(&mut self, number: GroupNumber) {
        self.durable = self.durable.max(number);
        self.on_written(number);
    }

    /// Starts whose records are written, in order. Each is returned once.
    pub(super) fn take_starts(&mut self) -> Vec<QueuedMessage> {
        let written = self.written;
        self.groups
            .iter_mut()
            .take_while(|group| group.number <= written)
            .flat_map(|group| std::mem::take(&mut group.starts))
            .collect()
    }

    /// The next group whose records are durable.
    pub(super) fn pop_durable(&mut self) -> Option<EffectGroup> {
        self.groups
            .front()
            .is_some_and(|group| group.number <= self.durable)
            .then(|| self.groups.pop_front())
            .flatten()
    }

    /// True while no effect waits.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// True if the loop may process further messages.
    pub(super) fn has_room(&self) -> bool {
        self.groups.len() < MAX_WAITING_GROUPS
    }

    /// Executors to which a message other than an acknowledgement waits. A start does not overtake
    /// it.
    pub(super) fn addressees(&self) -> BTreeSet<ContainerId> {
        let waits = |effect: &QueuedEffect| match effect {
            QueuedEffect::Send(queued) if !matches!(queued.message, ToExecutor::Ack { .. }) => {
                Some(queued.container.clone())
            }
            QueuedEffect::Send(_) | QueuedEffect::Core(_) | QueuedEffect::Session(_) => None,
        };
        self.groups
            .iter()
            .flat_map(|group| group.rest.iter().filter_map(waits))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionEffect;

    fn message(container: &str, ends: bool) -> QueuedMessage {
        let message = if ends {
            ToExecutor::Shutdown
        } else {
            ToExecutor::Ack {
                attempt: "map/6@1".parse().expect("an attempt"),
            }
        };
        QueuedMessage {
            container: container.parse().expect("a container"),
            connection: ConnectionNumber(1),
            message,
        }
    }

    #[test]
    fn starts_leave_after_the_write_and_the_rest_after_the_sync() {
        let mut queue = EffectQueue::default();
        let first = queue.next_number();
        queue.push(
            vec![message("j.1.e1.c2", false)],
            vec![QueuedEffect::Send(message("j.1.e1.c3", true))],
            0,
        );
        let second = queue.next_number();
        queue.push(
            vec![message("j.1.e1.c4", false)],
            vec![QueuedEffect::Send(message("j.1.e1.c5", false))],
            3,
        );
        // No records: waits for those before.
        queue.push(Vec::new(), vec![QueuedEffect::Core(MasterEffect::Sync)], 3);
        assert!(queue.take_starts().is_empty() && queue.pop_durable().is_none());
        queue.on_written(first);
        assert_eq!(queue.take_starts().len(), 1);
        queue.on_written(second);
        assert_eq!(queue.take_starts().len(), 1);
        assert!(queue.take_starts().is_empty());
        assert_eq!(
            queue.addressees().len(),
            1,
            "an acknowledgement is no obstacle"
        );
        queue.on_durable(first);
        assert_eq!(queue.pop_durable().map(|g| g.last_result), Some(0));
        assert!(queue.pop_durable().is_none());
        queue.on_durable(second);
        assert_eq!(queue.pop_durable().map(|g| g.last_result), Some(3));
        assert!(queue.pop_durable().is_some() && queue.is_empty());
    }

    #[test]
    fn a_call_waits_for_all_records_before_it_and_the_queue_is_bounded() {
        let mut queue = EffectQueue::default();
        queue.push_session(SessionEffect::SelectCollector(None));
        assert!(queue.pop_durable().is_some(), "nothing to wait for");
        let number = queue.next_number();
        queue.push(Vec::new(), Vec::new(), 0);
        queue.push_session(SessionEffect::SelectCollector(None));
        assert!(queue.pop_durable().is_none());
        queue.on_durable(number);
        assert_eq!(queue.pop_durable().map(|g| g.rest.len()), Some(1));
        for _ in 0..MAX_WAITING_GROUPS {
            assert!(queue.has_room());
            queue.push(Vec::new(), Vec::new(), 0);
        }
        assert!(!queue.has_room());
    }
}
