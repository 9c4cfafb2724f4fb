//! Memory failures of the last hour: kills, and the outcome of escalated tasks. It is derived from
//! the event log as the log is written, so that it is the same after a restart. Pure: the time is
//! an argument.

use std::collections::{BTreeMap, VecDeque};

use headroom_types::{AppId, Reason, UnixMillis};
use headroom_wire::v1::apps::MemoryFailureStats;
use headroom_wire::v1::events::LoggedEvent;

/// One hour. Milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// Limit on kills and on tasks that are kept: beyond it, old kills are dropped, and new tasks are
/// ignored.
const MOST: usize = 100_000;

/// Memory failures of the last hour.
#[derive(Debug, Default)]
pub(crate) struct RecentMemoryFailures {
    kills: VecDeque<UnixMillis>,
    tasks: BTreeMap<(AppId, String), EscalatedTask>,
}

/// A task that was escalated, or that had no larger size left.
#[derive(Clone, Copy, Debug)]
struct EscalatedTask {
    /// Time of the latest escalation.
    at: UnixMillis,
    escalated: bool,
    fate: MemoryFailureState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryFailureState {
    /// It runs or waits.
    GoingOn,
    /// It succeeded.
    Recovered,
    /// There is no larger size.
    Exhausted,
    /// It failed for another reason, or its job ended first.
    Over,
}

/// True for the event of a task. The resource manager also escalates masters, whose events name
/// their container.
fn is_of_a_task(event: &LoggedEvent) -> bool {
    event.object.contains('/')
}

impl RecentMemoryFailures {
    /// Adds one event, in the order of the log.
    pub(crate) fn take(&mut self, event: &LoggedEvent) {
        // A master of a later version may send unknown reasons, so the text is compared and not
        // parsed.
        let is = |reasons: &[Reason]| reasons.iter().any(|reason| event.reason == reason.as_str());
        if is(&[Reason::OomKilled]) {
            self.kills.push_back(event.time);
            if self.kills.len() > MOST {
                self.kills.pop_front();
            }
        } else if is(&[Reason::Escalated]) && is_of_a_task(event) {
            self.give(event, true, MemoryFailureState::GoingOn);
        } else if is(&[Reason::EscalationExhausted]) {
            self.give(event, false, MemoryFailureState::Exhausted);
        } else if is(&[Reason::TaskFinished]) {
            self.set_outcome(event, MemoryFailureState::Recovered);
        } else if is(&[Reason::TaskFailed]) {
            self.set_outcome(event, MemoryFailureState::Over);
        } else if is(&[Reason::AppFinished, Reason::AppFailed, Reason::AppKilled]) {
            let of_app = self
                .tasks
                .iter_mut()
                .filter(|((app, _), _)| event.app.as_ref() == Some(app));
            of_app
                .filter(|(_, task)| task.fate == MemoryFailureState::GoingOn)
                .for_each(|(_, task)| task.fate = MemoryFailureState::Over);
        }
    }

    fn give(&mut self, event: &LoggedEvent, escalated: bool, fate: MemoryFailureState) {
        let Some(app) = event.app.clone() else { return };
        let key = (app, event.object.clone());
        let before = self.tasks.get(&key).copied();
        if before.is_none() && self.tasks.len() >= MOST {
            self.forget(event.time);
        }
        if before.is_some() || self.tasks.len() < MOST {
            let escalated = escalated || before.is_some_and(|task| task.escalated);
            self.tasks.insert(
                key,
                EscalatedTask {
                    at: event.time,
                    escalated,
                    fate,
                },
            );
        }
    }

    /// Sets the outcome of an escalated task. The event names the task or one of its attempts.
    fn set_outcome(&mut self, event: &LoggedEvent, fate: MemoryFailureState) {
        let task = event.object.split('@').next().unwrap_or_default();
        let Some(app) = event.app.clone().filter(|_| !self.tasks.is_empty()) else {
            return;
        };
        if let Some(known) = self
            .tasks
            .get_mut(&(app, task.to_owned()))
            .filter(|known| known.fate == MemoryFailureState::GoingOn)
        {
            known.fate = fate;
        }
    }

    fn forget(&mut self, now: UnixMillis) {
        let old = |at: UnixMillis| at.0.saturating_add(HOUR_MS) < now.0;
        while self.kills.front().is_some_and(|at| old(*at)) {
            self.kills.pop_front();
        }
        self.tasks.retain(|_, task| !old(task.at));
    }

    /// Statistics of the hour before `now`. The caller fills in the wasted memory.
    pub(crate) fn figures(&mut self, now: UnixMillis) -> MemoryFailureStats {
        self.forget(now);
        let count = |fits: &dyn Fn(&EscalatedTask) -> bool| {
            u32::try_from(self.tasks.values().filter(|task| fits(task)).count()).unwrap_or(u32::MAX)
        };
        MemoryFailureStats {
            kills: u32::try_from(self.kills.len()).unwrap_or(u32::MAX),
            escalated: count(&|task| task.escalated),
            recovered: count(&|task| task.fate == MemoryFailureState::Recovered),
            going_on: count(&|task| task.fate == MemoryFailureState::GoingOn),
            exhausted: count(&|task| task.fate == MemoryFailureState::Exhausted),
            wasted_byte_s: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Reason;
    use headroom_wire::v1::events::EventLevel;

    fn event(s: u64, reason: Reason, app: &str, object: &str) -> LoggedEvent {
        LoggedEvent {
            index: 0,
            time: UnixMillis(s * 1000),
            level: EventLevel::Warning,
            reason: reason.as_str().to_owned(),
            object: object.into(),
            app: app.parse().ok(),
            node: None,
            message: String::new(),
        }
    }

    /// Kills, escalated, recovered, going on, exhausted.
    fn figures(hour: &mut RecentMemoryFailures, s: u64) -> [u32; 5] {
        let f = hour.figures(UnixMillis(s * 1000));
        [f.kills, f.escalated, f.recovered, f.going_on, f.exhausted]
    }

    #[test]
    fn escalated_tasks_are_counted_by_outcome() {
        let mut hour = RecentMemoryFailures::default();
        for (s, reason, app, object) in [
            (1, Reason::OomKilled, "a.1", "map/1@1"),
            (1, Reason::Escalated, "a.1", "map/1"),
            (2, Reason::OomKilled, "a.1", "map/2@1"),
            (2, Reason::Escalated, "a.1", "map/2"),
            (3, Reason::OomKilled, "b.2", "map/1@1"),
            (3, Reason::Escalated, "b.2", "map/1"),
            (4, Reason::TaskFinished, "a.1", "map/1@2"),
            (5, Reason::OomKilled, "a.1", "map/2@2"),
            (5, Reason::EscalationExhausted, "a.1", "map/2"),
            (5, Reason::TaskFailed, "a.1", "map/2"),
            (6, Reason::TaskFinished, "a.1", "map/9@1"),
            (7, Reason::Escalated, "a.1", "a.1.e1.c1"),
        ] {
            hour.take(&event(s, reason, app, object));
        }
        assert_eq!(
            figures(&mut hour, 10),
            [4, 3, 1, 1, 1],
            "a task of the same name in another job is another task"
        );
        hour.take(&event(11, Reason::AppKilled, "b.2", "b.2"));
        assert_eq!(figures(&mut hour, 12), [4, 3, 1, 0, 1]);
        assert_eq!(
            figures(&mut hour, 3603),
            [2, 2, 0, 0, 1],
            "the first two failures are older than an hour"
        );
        assert_eq!(figures(&mut hour, 9000), [0; 5]);
    }

    #[test]
    fn a_task_that_escalates_again_counts_as_going_on() {
        let mut hour = RecentMemoryFailures::default();
        for reason in [Reason::Escalated, Reason::TaskFailed, Reason::Escalated] {
            hour.take(&event(1, reason, "a.1", "map/1"));
        }
        assert_eq!(figures(&mut hour, 2), [0, 1, 0, 1, 0]);
    }
}
