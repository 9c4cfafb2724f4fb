//! The connections of the clients of a live job, as the loop sees them: answers in their order, and
//! results and states as far as the clients read them.
//!
//! Results are read from the core when there is room in the queue of a connection, so that a slow
//! client costs no memory. Half of each queue is kept for answers. A client that does not even read
//! its answers is disconnected; it connects again with its cursor.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::submission::{SubmittedTaskState, ToSubmitter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::core::MasterCore;
use crate::event::{JobOutcome, SubmitterConnection};
use crate::submitter_link::MAX_QUEUED_ANSWERS;

/// Minimum interval between two messages with states, or with the credit.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Interval after which results are sent that did not fit into a queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of states in a message; far below the maximum length of a line.
const MAX_STATES: usize = 2000;
/// Part of a queue that results may fill. The rest is for answers.
const MAX_QUEUED_RESULTS: usize = MAX_QUEUED_ANSWERS / 2;

/// The connection of one client.
struct SubmitterWriter {
    sender: mpsc::Sender<ToSubmitter>,
    writer: JoinHandle<()>,
    /// Cursor of the last result that the client has processed or that is in the queue.
    sent: u64,
    /// True after the client was welcomed. It gets no results before.
    is_welcome: bool,
    /// The credit that the client knows. Zero after a refusal for lack of credit, because the client
    /// then waits for the next message with a credit.
    credit: u32,
}

/// The connections of all clients.
pub(super) struct SubmitterWriters {
    lines: BTreeMap<SubmitterConnection, SubmitterWriter>,
    next_report: Instant,
    /// True while results wait for room in a queue.
    waits_for_room: bool,
}

impl SubmitterWriters {
    pub(super) fn new() -> Self {
        SubmitterWriters {
            lines: BTreeMap::new(),
            next_report: Instant::now(),
            waits_for_room: false,
        }
    }

    /// Adds a connection. `after` is the cursor of the last result that its client has processed.
    pub(super) fn add(
        &mut self,
        connection: SubmitterConnection,
        after: u64,
        sender: mpsc::Sender<ToSubmitter>,
        writer: JoinHandle<()>,
    ) {
        let line = SubmitterWriter {
            sender,
            writer,
            sent: after,
            is_welcome: false,
            credit: 0,
        };
        self.lines.insert(connection, line);
    }

    /// True for a connection that is open.
    pub(super) fn contains(&self, connection: SubmitterConnection) -> bool {
        self.lines.contains_key(&connection)
    }

    /// Removes a connection. False if it was not there.
    pub(super) fn remove(&mut self, connection: SubmitterConnection) -> bool {
        self.lines.remove(&connection).is_some()
    }

    /// Sends an answer. False if the connection ends: with this message, or because the client does
    /// not read.
    pub(super) fn answer(&mut self, connection: SubmitterConnection, message: ToSubmitter) -> bool {
        let Some(line) = self.lines.get_mut(&connection) else {
            return true;
        };
        let ends = match &message {
            ToSubmitter::Welcome { credit, .. } => {
                (line.is_welcome, line.credit) = (true, *credit);
                false
            }
            ToSubmitter::Accepted { credit, .. } | ToSubmitter::Credit { credit } => {
                line.credit = *credit;
                false
            }
            ToSubmitter::Refused { subject, error } => {
                if error.code == ErrorCode::HR0429 {
                    line.credit = 0;
                }
                subject.is_none()
            }
            ToSubmitter::Over { .. } => true,
            ToSubmitter::StageAccepted { .. }
            | ToSubmitter::States { .. }
            | ToSubmitter::Ended(_)
            | ToSubmitter::Alive => false,
        };
        let sent = line.sender.try_send(message).is_ok();
        if !sent {
            tracing::warn!(
                ?connection,
                "a client does not read its messages, closing its connection"
            );
        }
        if ends || !sent {
            self.lines.remove(&connection);
        }
        !ends && sent
    }

    /// Time at which [`SubmitterWriters::flush`] is due, besides after every change.
    pub(super) fn next_flush(&self, core: &MasterCore) -> Option<Instant> {
        if self.lines.is_empty() {
            return None;
        }
        let room = self.waits_for_room.then(|| Instant::now() + RETRY_INTERVAL);
        let credit = core.submission_credit();
        let grown = |line: &SubmitterWriter| line.is_welcome && line.credit < credit;
        let grown = self.lines.values().any(grown);
        let report = (core.has_state_changes() || grown).then_some(self.next_report);
        room.into_iter().chain(report).min()
    }

    /// Sends results for which there is room, and at times the changed states and the credit. The
    /// records of the results up to `last` must be durable. States are for display, and a client may
    /// see one that a crash takes back.
    pub(super) fn flush(&mut self, core: &mut MasterCore, last: u64) {
        if self.lines.is_empty() {
            return;
        }
        self.waits_for_room = false;
        let behind = |line: &&mut SubmitterWriter| line.is_welcome && line.sent < last;
        for line in self.lines.values_mut().filter(behind) {
            let room = line.sender.capacity().saturating_sub(MAX_QUEUED_RESULTS);
            for result in core.results_after(line.sent, room) {
                if result.cursor > last {
                    break; // its record is not durable yet
                }
                line.sent = result.cursor;
                // There is room, and only this loop sends.
                let _ = line.sender.try_send(ToSubmitter::Ended(Box::new(result)));
            }
            self.waits_for_room |= line.sent < last;
        }
        let now = Instant::now();
        if now < self.next_report {
            return;
        }
        self.next_report = now + REPORT_INTERVAL;
        let states = core.take_state_changes(MAX_STATES);
        let credit = core.submission_credit();
        for line in self.lines.values_mut().filter(|line| line.is_welcome) {
            line.report(&states, credit);
        }
    }

    /// Ends all connections of a job with this outcome, after the results up to `last` that fit.
    pub(super) fn end(
        &mut self,
        core: &mut MasterCore,
        outcome: &JobOutcome,
        last: u64,
    ) -> Vec<JoinHandle<()>> {
        self.flush(core, last);
        let over = MasterCore::over_message(outcome);
        let lines = std::mem::take(&mut self.lines).into_values();
        lines
            .map(|line| {
                // A client that does not read learns the outcome from the resource manager.
                let _ = line.sender.try_send(over.clone());
                line.writer
            })
            .collect()
    }
}

impl SubmitterWriter {
    /// Sends states and a larger credit if there is room. The next report contains the credit
    /// otherwise; states that are lost follow with the result.
    fn report(&mut self, states: &[SubmittedTaskState], credit: u32) {
        if !states.is_empty() && self.sender.capacity() > MAX_QUEUED_RESULTS {
            let tasks = states.to_vec();
            let _ = self.sender.try_send(ToSubmitter::States { tasks });
        }
        let has_room = self.sender.capacity() > MAX_QUEUED_RESULTS;
        if credit > self.credit && has_room {
            self.credit = credit;
            let _ = self.sender.try_send(ToSubmitter::Credit { credit });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::MasterSetup;
    use headroom_wire::v1::error::ProblemDetails;
    use headroom_wire::v1::submission::VERSION;

    const JOB: &str = r#"
version = 1
name = "live"
live = true
[profiles.exec]
memory = "160MiB"
cpus = 2
[executors.main]
profile = "exec"
"#;

    #[tokio::test]
    async fn a_client_without_credit_learns_the_next_credit_though_it_is_no_larger() {
        let job = headroom_config::job::compile(JOB, "job.toml").expect("a valid job");
        let mut core = MasterCore::new(job, MasterSetup::default());
        let credit = core.submission_credit();
        assert!(credit > 0);
        let (sender, mut messages) = mpsc::channel(MAX_QUEUED_ANSWERS);
        let (mut writers, connection) = (SubmitterWriters::new(), SubmitterConnection(1));
        writers.add(connection, 0, sender, tokio::spawn(async {}));
        let welcome = ToSubmitter::Welcome {
            version: VERSION,
            credit,
            cursor: 0,
            closed: false,
        };
        assert!(writers.answer(connection, welcome));
        writers.flush(&mut core, 0);
        let first = messages.try_recv().expect("a message");
        assert!(matches!(first, ToSubmitter::Welcome { .. }), "{first:?}");
        assert!(messages.try_recv().is_err(), "the client knows the credit");

        let refused = ToSubmitter::Refused {
            subject: Some("b1".to_owned()),
            error: Box::new(ProblemDetails::new(ErrorCode::HR0429, "no credit")),
        };
        assert!(writers.answer(connection, refused));
        assert_eq!(writers.next_flush(&core), Some(writers.next_report));
        writers.next_report = Instant::now();
        writers.flush(&mut core, 0);
        let answer = messages.try_recv().expect("a message");
        assert!(matches!(answer, ToSubmitter::Refused { .. }), "{answer:?}");
        let next = messages.try_recv().expect("a message");
        assert_eq!(next, ToSubmitter::Credit { credit });
    }
}
