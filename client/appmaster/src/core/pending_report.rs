//! Changes of the job that wait to be reported to the resource manager: keys of changed rows, and
//! events. The core owns them. They are not durable, and they never contain a row itself.

use std::collections::BTreeSet;
use std::fmt;

use headroom_types::Reason;
use headroom_types::reason::ReasonLevel;
use headroom_wire::v1::events::EventLevel;
use headroom_wire::v1::job::JobEvent;

use crate::event::EventTimestamp;
use crate::taskset::{JobTaskTable, TaskPosition};

/// Maximum number of events in one patch.
const MAX_PATCH_EVENTS: usize = 1000;
/// Maximum number of events that wait to be reported.
const MAX_PENDING_EVENTS: usize = 10_000;

/// Changes that are not reported yet.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingReport {
    dirty: BTreeSet<TaskPosition>,
    /// The next patch replaces all rows.
    full: bool,
    events: Vec<JobEvent>,
}

impl PendingReport {
    /// True when no change waits to be reported.
    pub(super) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.events.is_empty() && !self.full
    }
    /// Marks the row of a task as changed.
    pub(super) fn mark_dirty(&mut self, key: TaskPosition) {
        self.dirty.insert(key);
    }
    /// Marks all rows as changed; the next patch replaces the rows that the resource manager has.
    pub(super) fn touch_all(&mut self, tasks: &JobTaskTable) {
        self.full = true;
        self.dirty.extend(tasks.iter().map(|(key, _)| key));
    }
    /// Removes the events of replayed records: an earlier run has reported them.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }
    /// Removes and returns the oldest events, at most as many as one patch may contain.
    pub(super) fn take_events(&mut self) -> Vec<JobEvent> {
        let count = self.events.len().min(MAX_PATCH_EVENTS);
        self.events.drain(..count).collect()
    }
    /// Removes and returns the first task whose row has changed.
    pub(super) fn take_dirty(&mut self) -> Option<TaskPosition> {
        self.dirty.pop_first()
    }
    /// Returns whether the next patch replaces all rows, and clears the mark.
    pub(super) fn take_full(&mut self) -> bool {
        std::mem::take(&mut self.full)
    }
    /// Restores the events of a patch that could not be sent, before newer ones.
    pub(super) fn restore(&mut self, full: bool, events: Vec<JobEvent>) {
        self.full |= full;
        let newer = std::mem::replace(&mut self.events, events);
        self.events.extend(newer);
    }
    /// Adds an event with the level of its reason; a reason that may be either is a warning here.
    pub(super) fn add_event(
        &mut self,
        now: EventTimestamp,
        reason: Reason,
        object: &dyn fmt::Display,
        message: String,
    ) {
        let level = match reason.weight() {
            ReasonLevel::Normal => EventLevel::Normal,
            ReasonLevel::Warning | ReasonLevel::Either => EventLevel::Warning,
        };
        self.add_event_at(level, now, reason, object, message);
    }
    /// Adds an event with this level.
    pub(super) fn add_event_at(
        &mut self,
        level: EventLevel,
        now: EventTimestamp,
        reason: Reason,
        object: &dyn fmt::Display,
        message: String,
    ) {
        if self.events.len() >= MAX_PENDING_EVENTS {
            self.events.drain(..MAX_PENDING_EVENTS / 10);
        }
        self.events.push(JobEvent {
            time: now.unix,
            level,
            reason: reason.as_str().to_owned(),
            object: object.to_string(),
            message,
        });
    }
}
