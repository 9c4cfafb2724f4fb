//! The lease of a live job, and the tasks that follow failed ones.
//!
//! A job that no client has closed ends after its lease has passed without a connected client. A
//! client that was away for a lease is forgotten: results no longer wait for it. A closed job ends
//! when all tasks have ended and no known client waits for results.

use std::time::Duration;

use headroom_types::Tick;

use super::MasterCore;
use crate::event::{JobEndKind, JobOutcome};
use crate::policy::GiveUpCause;
use crate::record::JournalRecord;

impl MasterCore {
    fn lease(&self) -> Option<Duration> {
        self.job.live.as_ref().map(|live| live.lease)
    }

    /// Begins the lease after the first registration of this run.
    pub(super) fn begin_lease(&mut self) {
        if self.job.live.is_some() {
            self.presence.begin(self.now.tick, self.submitted.clients());
        }
    }

    /// Time at which the next lease passes.
    pub(super) fn next_lease_check(&self) -> Option<Tick> {
        let is_open = !self.submitted.is_closed();
        self.presence.next_deadline(self.lease()?, is_open)
    }

    /// Processes leases that have passed.
    pub(super) fn check_leases(&mut self) {
        let Some(lease) = self.lease() else { return };
        for client in self.presence.away_for(self.now.tick, lease) {
            self.record(JournalRecord::SubmitterForgotten { client });
        }
        if self.submitted.is_closed() || !self.presence.alone_for(self.now.tick, lease) {
            return;
        }
        self.record(JournalRecord::JobClosed { client: None });
        let all = self.unfinished_tasks();
        let message = format!(
            "cancelled: no client was connected for the lease of {} s",
            lease.as_secs()
        );
        self.cancel_tasks(all, &message);
    }

    /// Cancels waiting tasks that follow a task which did not succeed.
    pub(super) fn cancel_followers(&mut self) {
        while let Some((key, earlier)) = self.submitted.next_doomed() {
            let name = self.submitted.get(earlier).map_or_else(
                || {
                    self.task_id(earlier)
                        .map_or_else(String::new, |id| id.to_string())
                },
                |task| task.submitted.key.clone(),
            );
            let message = format!("cancelled: it follows task {name}, which did not succeed");
            self.record(JournalRecord::GivenUp {
                task: key,
                cause: GiveUpCause::Cancelled,
                message: message.clone(),
            });
            self.report_given_up(key, GiveUpCause::Cancelled, &message);
        }
    }

    /// True when a live job does not end yet although no task is left.
    pub(super) fn is_held_open(&self) -> bool {
        self.job.live.is_some()
            && (!self.submitted.is_closed() || self.submitted.has_awaited_results())
    }

    /// The outcome of a live job when no task is left.
    pub(super) fn live_outcome(&self) -> JobOutcome {
        let (totals, cancelled) = (self.ledger.totals(), self.submitted.cancelled());
        let failed = totals.failed.saturating_sub(cancelled);
        let mut diagnostics = format!(
            "{} of {} tasks done, {failed} failed, {cancelled} cancelled; {} escalated, {} memory kills",
            totals.done, totals.tasks, totals.escalated, totals.memory_kills
        );
        if self.submitted.is_expired() {
            let seconds = self.lease().unwrap_or_default().as_secs();
            return JobOutcome {
                ending: JobEndKind::Failed,
                diagnostics: format!(
                    "no client was connected for the lease of {seconds} s, and no client had closed the job; {diagnostics}"
                ),
            };
        }
        if totals.done.saturating_add(cancelled) >= totals.tasks {
            return JobOutcome {
                ending: JobEndKind::Succeeded,
                diagnostics,
            };
        }
        if let Some(first) = self.submitted.first_failure() {
            diagnostics.push_str("; ");
            diagnostics.push_str(first);
        }
        JobOutcome {
            ending: self.failed_ending(),
            diagnostics,
        }
    }
}
