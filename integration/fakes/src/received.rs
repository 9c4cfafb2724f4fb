//! The messages that a fake resource manager received from its node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use headroom_types::{ContainerId, ExitReason, ExitReport, UnixMillis};
use headroom_wire::v1::nodes::{
    ConfigReload, NodeContainerPhase, NodeHealthState, ObservedContainer, RegisterNode,
};

/// The received reports on the end of one container.
#[derive(Clone, Debug)]
pub struct ReportedEnd {
    /// The first report.
    pub report: ExitReport,
    /// Time of receipt of the first report, on the monotonic clock of this process.
    pub at: Instant,
    /// The same time on the wall clock, which the report's own times are on.
    pub received: UnixMillis,
    /// Number of reports.
    pub reports: u32,
}

/// All received messages, in the form in which tests read them.
#[derive(Debug, Default)]
pub struct ReceivedReports {
    /// Accepted registrations, oldest first.
    pub registrations: Vec<RegisterNode>,
    /// Number of registrations, accepted or refused.
    pub registration_attempts: u32,
    /// The last reported state of each container.
    pub observed: BTreeMap<ContainerId, ObservedContainer>,
    /// Time of the first report of each container as running.
    pub running: BTreeMap<ContainerId, Instant>,
    /// Reported ends.
    pub ends: BTreeMap<ContainerId, ReportedEnd>,
    /// Containers whose end was reported again with another reason.
    pub contradicted: BTreeSet<ContainerId>,
    /// Time of receipt of the last accepted report or registration.
    pub last_message: Option<Instant>,
    /// The last reported health.
    pub health: Option<NodeHealthState>,
    /// Results of configuration reloads, oldest first.
    pub reloads: Vec<ConfigReload>,
    /// The first reported reason of each end. It outlives the entry in `ends`.
    reasons: BTreeMap<ContainerId, ExitReason>,
}

impl ReceivedReports {
    /// The first report on the end of a container.
    pub fn exit(&self, id: &ContainerId) -> Option<&ExitReport> {
        self.ends.get(id).map(|end| &end.report)
    }

    /// Removes the reports on an end from the record, which keeps its reason. For tests with so
    /// many containers that their reports would fill the memory.
    pub fn take_end(&mut self, id: &ContainerId) -> Option<ReportedEnd> {
        self.ends.remove(id)
    }

    /// Forgets the reports that an incarnation keeps in memory. Registrations stay.
    pub(crate) fn clear_containers(&mut self) {
        self.observed.clear();
        self.ends.clear();
    }

    pub(crate) fn add_containers(&mut self, containers: Vec<ObservedContainer>, now: Instant) {
        for observed in containers {
            if observed.phase == NodeContainerPhase::Running {
                self.running
                    .entry(observed.container.clone())
                    .or_insert(now);
            }
            self.observed.insert(observed.container.clone(), observed);
        }
    }

    pub(crate) fn add_end(&mut self, report: ExitReport, now: Instant) {
        let id = report.container.clone();
        let reason = *self.reasons.entry(id.clone()).or_insert(report.reason);
        if reason != report.reason {
            self.contradicted.insert(id.clone());
        }
        let end = self.ends.entry(id).or_insert_with(|| ReportedEnd {
            report,
            at: now,
            received: wall_clock(),
            reports: 0,
        });
        end.reports += 1;
    }

    /// A result is repeated in each report until the next reload.
    pub(crate) fn add_reload(&mut self, reload: Option<ConfigReload>) {
        if let Some(reload) = reload.filter(|reload| self.reloads.last() != Some(reload)) {
            self.reloads.push(reload);
        }
    }
}

fn wall_clock() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
