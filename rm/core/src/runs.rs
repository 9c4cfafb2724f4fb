//! Latest attempts of an application: container, node and outcome of each.
//!
//! The application owns the list; the last attempt is the current one. The list is bounded and
//! drops the oldest first. The application decides whether another attempt follows.

use std::collections::VecDeque;

use headroom_types::{ContainerId, ExitReason, ExitReport, NodeId, Resource, UnixMillis};

use crate::event::ApplicationOutcome;

/// Most attempts that are kept of one application.
pub const MAX_KEPT_ATTEMPTS: usize = 20;

/// Record of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Number; counts up from 1.
    pub number: u32,
    /// Container; `None` for an unmanaged master.
    pub container: Option<ContainerId>,
    /// Node.
    pub node: Option<NodeId>,
    /// Size of its container.
    pub resource: Option<Resource>,
    /// Time of the grant; for an unmanaged master, of the registration.
    pub started: Option<UnixMillis>,
    /// Time of its end.
    pub ended: Option<UnixMillis>,
    /// Outcome; `None` until it is decided.
    pub outcome: Option<ApplicationOutcome>,
    /// Verdict of its container.
    pub reason: Option<ExitReason>,
    /// True when its failure counts against `max_attempts`.
    pub charged: bool,
    /// Reason of the failure, for users. Known before the outcome if the master was not started.
    pub why: String,
}

impl AttemptRecord {
    /// The reason of a master that was not started. `None` for other attempts.
    pub fn not_started(&self) -> Option<&str> {
        (self.reason == Some(ExitReason::LaunchFailed) && !self.why.is_empty())
            .then_some(self.why.as_str())
    }
}

/// Latest attempts of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptHistory {
    latest: VecDeque<AttemptRecord>,
}

impl AttemptHistory {
    /// Creates a list with the first attempt.
    pub fn new() -> Self {
        AttemptHistory {
            latest: VecDeque::from([AttemptRecord {
                number: 1,
                ..AttemptRecord::default()
            }]),
        }
    }
    /// Restores the saved attempts. Without saved attempts, only number and container of the
    /// current one are known.
    pub fn restored(
        saved: Vec<AttemptRecord>,
        number: u32,
        container: Option<&ContainerId>,
    ) -> Self {
        let mut latest = VecDeque::from(saved);
        if latest.is_empty() {
            latest.push_back(AttemptRecord {
                number,
                container: container.cloned(),
                ..AttemptRecord::default()
            });
        }
        AttemptHistory { latest }
    }
    /// Adds another attempt.
    pub fn next(&mut self, number: u32) {
        self.latest.push_back(AttemptRecord {
            number,
            ..AttemptRecord::default()
        });
        while self.latest.len() > MAX_KEPT_ATTEMPTS {
            self.latest.pop_front();
        }
    }
    /// Records the container of the current attempt.
    pub fn granted(
        &mut self,
        container: &ContainerId,
        node: &NodeId,
        resource: &Resource,
        at: UnixMillis,
    ) {
        if let Some(run) = self.latest.back_mut() {
            run.container = Some(container.clone());
            run.node = Some(node.clone());
            run.resource = Some(resource.clone());
            run.started = Some(at);
        }
    }
    /// Records the registration of the current attempt.
    pub fn registered(&mut self, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut() {
            run.started.get_or_insert(at);
        }
    }
    /// Records the failure of the current attempt.
    pub fn failed(&mut self, why: String, charged: bool, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut().filter(|run| run.outcome.is_none()) {
            (run.outcome, run.why, run.charged) = (Some(ApplicationOutcome::Failed), why, charged);
            run.ended.get_or_insert(at);
        }
    }
    /// Records the application's outcome in the current attempt.
    pub fn over(&mut self, outcome: ApplicationOutcome, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut().filter(|run| run.outcome.is_none()) {
            run.outcome = Some(outcome);
            run.ended.get_or_insert(at);
        }
    }
    /// Records the end of an attempt's container.
    pub fn exited(&mut self, container: &ContainerId, report: &ExitReport) {
        let run = self
            .latest
            .iter_mut()
            .find(|run| run.container.as_ref() == Some(container));
        let Some(run) = run.filter(|run| run.reason.is_none()) else {
            return;
        };
        (run.reason, run.ended) = (Some(report.reason), Some(report.ended));
        if report.reason == ExitReason::LaunchFailed && run.why.is_empty() {
            let cause = report.diagnosis.first().map(|d| d.cause.as_str());
            run.why = match cause.filter(|cause| !cause.is_empty()) {
                Some(cause) => format!("not started on {}: {cause}", report.node),
                None => format!("not started on {}", report.node),
            };
        }
    }
    /// All kept attempts, the current one last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &AttemptRecord> {
        self.latest.iter()
    }
    /// The attempt before the current one.
    pub fn previous(&self) -> Option<&AttemptRecord> {
        self.latest.iter().rev().nth(1)
    }
    /// The current attempt.
    pub fn current(&self) -> Option<&AttemptRecord> {
        self.latest.back()
    }
}

impl Default for AttemptHistory {
    fn default() -> Self {
        AttemptHistory::new()
    }
}
