//! Carries out the effects of the core: records first, then the starts that may follow the write,
//! and all others when the records are durable.

use std::fs::Metadata;
use std::path::PathBuf;

use headroom_types::{Bytes, ContainerId};
use headroom_wire::v1::task::ToExecutor;
use tokio::time::timeout;

use super::effect_batch::EffectBatch;
use super::effect_queue::{QueuedEffect, QueuedMessage};
use super::journal_threads::JournalProgress;
use super::{LAST_SYNC_TIMEOUT, MasterDriver};
use crate::event::{JobOutcome, MasterEffect, MasterEvent};
use crate::journal::JournalError;

impl MasterDriver {
    /// Gives the records of this turn to the journal, queues the other effects, and carries out
    /// those that wait for nothing.
    pub(super) fn carry_out(&mut self) {
        while !self.effects.is_empty() {
            let effects = std::mem::take(&mut self.effects);
            let batch = EffectBatch::new(effects, self.queue.addressees());
            let ended = self.traces.find_ended(&batch.records);
            if !batch.records.is_empty() {
                let number = self.queue.next_number();
                self.journal.write(number, batch.records);
                self.traces.queue_spans(&self.core, &ended, self.now().unix);
            }
            let starts = batch.starts.into_iter();
            let starts = starts.filter_map(|(c, message)| self.addressed(c, message));
            let rest = batch.rest.into_iter().filter_map(|effect| match effect {
                MasterEffect::Send { container, message } => {
                    self.addressed(container, *message).map(QueuedEffect::Send)
                }
                MasterEffect::Record(_)
                | MasterEffect::Commit { .. }
                | MasterEffect::Resize { .. }
                | MasterEffect::Measure { .. }
                | MasterEffect::Answer { .. }
                | MasterEffect::Sync
                | MasterEffect::Finish(_) => Some(QueuedEffect::Core(effect)),
            });
            let (starts, rest) = (starts.collect(), rest.collect());
            self.queue.push(starts, rest, self.core.last_result());
            self.release();
        }
        if self.core.has_unreported_changes() {
            self.session.sync_soon(self.now().tick);
        }
    }

    /// The message with the present connection of its executor; `None` without a connection.
    fn addressed(&self, container: ContainerId, message: ToExecutor) -> Option<QueuedMessage> {
        let connection = self.lines.get(&container)?.connection;
        Some(QueuedMessage {
            container,
            connection,
            message,
        })
    }

    /// Notes the progress of the journal, and carries out the effects that waited for it.
    pub(super) fn hear_journal(&mut self, progress: JournalProgress) -> Result<(), JournalError> {
        match progress {
            JournalProgress::Written(number) => self.queue.on_written(number),
            JournalProgress::Durable(number) => self.queue.on_durable(number),
            JournalProgress::Failed(error) => return Err(error),
        }
        self.release();
        Ok(())
    }

    /// Carries out the effects that need not wait any longer.
    fn release(&mut self) {
        while let Some(group) = self.queue.pop_durable() {
            self.durable_result = group.last_result;
            for message in group.starts {
                self.send(message);
            }
            for effect in group.rest {
                match effect {
                    QueuedEffect::Send(message) => self.send(message),
                    QueuedEffect::Core(effect) => self.carry_out_core_effect(effect),
                    QueuedEffect::Session(effect) => self.carry_out_session_effect(effect),
                }
            }
            self.carry_out_session();
        }
        for message in self.queue.take_starts() {
            self.send(message);
        }
    }

    fn carry_out_core_effect(&mut self, effect: MasterEffect) {
        match effect {
            // Records are with the journal, and messages have their own variant.
            MasterEffect::Record(_) | MasterEffect::Send { .. } => {}
            MasterEffect::Commit {
                task,
                attempt,
                commit,
            } => self.commits.begin(task, attempt, commit),
            MasterEffect::Resize {
                container,
                resource,
            } => self
                .session
                .resize(container, resource, &mut self.session_effects),
            MasterEffect::Measure { stage } => self.measure(stage),
            MasterEffect::Answer {
                connection,
                message,
            } => {
                if !self.submitters.answer(connection, *message) {
                    self.step(MasterEvent::SubmitterLeft { connection });
                }
            }
            MasterEffect::Sync => self.session.sync_now(self.now().tick),
            MasterEffect::Finish(outcome) => self.end(outcome),
        }
    }

    /// Measures the inputs of a stage outside of the loop, because a file system may be slow. No
    /// task waits for the result.
    fn measure(&mut self, stage: usize) {
        let files = self.core.input_files(stage);
        self.measuring.spawn_blocking(move || {
            let size = |file: PathBuf| {
                std::fs::metadata(file)
                    .ok()
                    .filter(Metadata::is_file)
                    .map(|m| Bytes::new(m.len()))
            };
            MasterEvent::Inputs {
                stage,
                sizes: files.into_iter().map(|file| file.and_then(size)).collect(),
            }
        });
    }

    /// Sends a message to an executor, unless its connection has changed. An executor that does not
    /// read is disconnected; it reconnects and reports its state.
    fn send(&mut self, queued: QueuedMessage) {
        let QueuedMessage {
            container,
            connection,
            message,
        } = queued;
        let line = self.lines.get(&container);
        let Some(line) = line.filter(|line| line.connection == connection) else {
            return;
        };
        if line.sender.try_send(message).is_err() {
            tracing::warn!(%container, "an executor does not read its messages, closing its connection");
            self.lines.remove(&container);
            self.step(MasterEvent::LineDown { container });
        }
    }

    fn end(&mut self, outcome: JobOutcome) {
        tracing::info!(ending = ?outcome.ending, "job has ended: {}", outcome.diagnostics);
        let now = self.now();
        self.core.report_job_end(now, &outcome);
        let ended = self
            .submitters
            .end(&mut self.core, &outcome, self.durable_result);
        self.ending.extend(ended);
        self.traces.queue_job_span(&self.core, &outcome, now.unix);
        self.session.finish(now.tick, outcome);
    }

    /// Waits until no effect waits for the journal, at most for a timeout: nothing depends on
    /// records that are not durable then.
    pub(super) async fn finish_effects(&mut self) -> Result<(), JournalError> {
        let all = async {
            while !self.queue.is_empty() {
                let progress = self.journal.progress().await;
                self.hear_journal(progress)?;
                self.carry_out();
            }
            Ok(())
        };
        timeout(LAST_SYNC_TIMEOUT, all).await.unwrap_or_else(|_| {
            tracing::warn!("the journal does not become durable in time; the next run repeats the last decisions");
            Ok(())
        })
    }
}
