//! The loop that owns the core: it processes messages in batches, makes records durable, and only
//! then carries out the other effects, except for starts that may follow the write of the records.

mod commits;
mod effect_batch;
mod rm_session;
mod submitters;

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::PathBuf;
use std::time::Duration;

use headroom_types::exit::Unattributed;
use headroom_types::{AttemptId, Bytes, ContainerId, Tick};
use headroom_wire::v1::task::{FromExecutor, ToExecutor};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::core::MasterCore;
use crate::event::{EventTimestamp, JobOutcome, MasterEffect, MasterEvent, TaskLimitResult};
use crate::executor_link::{ConnectionNumber, ExecutorLinkEvent};
use crate::journal::{JournalError, MasterJournal};
use crate::record::JournalRecord;
use crate::rm_link::RmLink;
use crate::run_error::MasterRunError;
use crate::session::{ManagerSession, SessionEffect, SessionInput};
use crate::spec::ExecutorEnvironment;
use crate::stop_request::StopRequest;
use crate::submitter_link::SubmitterLinkEvent;
use crate::traces::JobTraceExporter;
use commits::Commits;
use effect_batch::EffectBatch;
use submitters::SubmitterWriters;

/// Maximum number of messages that are processed before records are made durable.
const BATCH: usize = 256;
/// Timeout for the last messages to executors at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The connection of one executor.
struct ExecutorWriter {
    connection: ConnectionNumber,
    sender: mpsc::Sender<ToExecutor>,
    writer: JoinHandle<()>,
}

/// The state of the loop.
pub(crate) struct MasterDriver {
    core: MasterCore,
    journal: Option<MasterJournal>,
    lines: BTreeMap<ContainerId, ExecutorWriter>,
    submitters: SubmitterWriters,
    /// Writers that send their last messages.
    ending: Vec<JoinHandle<()>>,
    session: ManagerSession,
    session_effects: Vec<SessionEffect>,
    link: RmLink,
    environment: ExecutorEnvironment,
    commits: Commits,
    started: Instant,
    effects: Vec<MasterEffect>,
    /// Measurements of inputs in progress. At most one for each stage.
    measuring: JoinSet<MasterEvent>,
    traces: JobTraceExporter,
}

/// An input of the loop.
enum DriverInput {
    Executor(ExecutorLinkEvent),
    Submitter(SubmitterLinkEvent),
    Rm(SessionInput),
    /// Results or states for clients are due.
    Flush,
    /// The commit of an output succeeded or failed.
    Committed(MasterEvent),
    Timer,
    Measured(MasterEvent),
    StopRequest(StopRequest),
    /// A call to the resource manager is due.
    Speak,
}

impl MasterDriver {
    pub(crate) fn new(
        core: MasterCore,
        journal: MasterJournal,
        link: RmLink,
        (environment, attempt): (ExecutorEnvironment, AttemptId),
        submission_token: Option<String>,
        traces: JobTraceExporter,
    ) -> Self {
        let url = environment.master_url.clone();
        let session = ManagerSession::new(attempt, url, core.outcome().cloned(), Tick(0))
            .with_submission_token(submission_token);
        MasterDriver {
            core,
            journal: Some(journal),
            lines: BTreeMap::new(),
            submitters: SubmitterWriters::new(),
            ending: Vec::new(),
            session,
            session_effects: Vec::new(),
            link,
            environment,
            commits: Commits::default(),
            started: Instant::now(),
            effects: Vec::new(),
            measuring: JoinSet::new(),
            traces,
        }
    }

    /// Makes the first records durable.
    pub(crate) async fn write_first(
        &mut self,
        records: &[JournalRecord],
    ) -> Result<(), JournalError> {
        self.commit(records.to_vec(), Vec::new()).await
    }

    /// Runs until the job has ended and the end is reported to the resource manager, or until this
    /// run is requested to end.
    pub(crate) async fn work(
        &mut self,
        mut executors: mpsc::Receiver<ExecutorLinkEvent>,
        mut submitters: mpsc::Receiver<SubmitterLinkEvent>,
        mut rm: mpsc::Receiver<SessionInput>,
        mut stops: watch::Receiver<StopRequest>,
        url: &str,
    ) -> Result<Option<JobOutcome>, MasterRunError> {
        self.register();
        loop {
            let timer = self.core.next_timer().map(|tick| self.moment(tick));
            let speak = self.session.next_timer().map(|tick| self.moment(tick));
            let flush = self.submitters.next_flush(&self.core);
            let heard = tokio::select! {
                biased;
                Some(event) = rm.recv() => DriverInput::Rm(event),
                Some(event) = executors.recv() => DriverInput::Executor(event),
                Some(event) = submitters.recv() => DriverInput::Submitter(event),
                Some(event) = self.commits.next() => DriverInput::Committed(event),
                Ok(()) = stops.changed() => DriverInput::StopRequest(*stops.borrow_and_update()),
                Some(Ok(event)) = self.measuring.join_next() => DriverInput::Measured(event),
                () = until(timer) => DriverInput::Timer,
                () = until(speak) => DriverInput::Speak,
                () = until(flush) => DriverInput::Flush,
            };
            self.process_input(heard, url)?;
            for _ in 0..BATCH {
                let more = rm
                    .try_recv()
                    .map(DriverInput::Rm)
                    .or_else(|_| executors.try_recv().map(DriverInput::Executor))
                    .or_else(|_| submitters.try_recv().map(DriverInput::Submitter));
                let Ok(more) = more else { break };
                self.process_input(more, url)?;
            }
            self.carry_out().await?;
            self.submitters.flush(&mut self.core);
            let over = self.session.is_over();
            if over || *stops.borrow() == StopRequest::Leave {
                self.farewell().await;
                return Ok(self.session.outcome().cloned().filter(|_| over));
            }
        }
    }

    fn moment(&self, tick: Tick) -> Instant {
        self.started + Duration::from_millis(tick.0)
    }

    fn now(&self) -> EventTimestamp {
        EventTimestamp {
            tick: Tick(0).plus(self.started.elapsed()),
            unix: std::time::SystemTime::now().into(),
        }
    }

    fn step(&mut self, event: MasterEvent) {
        let now = self.now();
        self.core.step(now, event, &mut self.effects);
        for fault in self.core.take_illegal() {
            tracing::error!(%fault, "refused an illegal state change; the state is kept");
        }
    }

    fn process_input(&mut self, heard: DriverInput, url: &str) -> Result<(), MasterRunError> {
        match heard {
            DriverInput::Executor(event) => self.hear_executor(event),
            DriverInput::Submitter(event) => self.hear_submitter(event),
            DriverInput::Flush => {}
            DriverInput::Rm(event) => return self.hear_rm(event, url),
            DriverInput::Committed(event) => self.step(event),
            DriverInput::Timer => self.step(MasterEvent::Timer),
            DriverInput::Measured(event) => self.step(event),
            DriverInput::StopRequest(StopRequest::Stop) => self.step(MasterEvent::Stop),
            DriverInput::StopRequest(StopRequest::GoOn | StopRequest::Leave) => {}
            DriverInput::Speak => self.make_due_call(),
        }
        Ok(())
    }

    fn hear_executor(&mut self, event: ExecutorLinkEvent) {
        match event {
            ExecutorLinkEvent::Up {
                connection,
                hello,
                sender,
                writer,
            } => {
                tracing::info!(container = %hello.container, slots = hello.slots, running = hello.running.len(), "executor connected");
                self.lines.insert(
                    hello.container.clone(),
                    ExecutorWriter {
                        connection,
                        sender,
                        writer,
                    },
                );
                self.step(MasterEvent::Hello(hello));
            }
            ExecutorLinkEvent::Heard {
                connection,
                container,
                message,
            } => {
                if self
                    .lines
                    .get(&container)
                    .is_some_and(|line| line.connection == connection)
                {
                    self.on_executor_message(container, *message);
                }
            }
            ExecutorLinkEvent::Down {
                connection,
                container,
            } => {
                if self
                    .lines
                    .get(&container)
                    .is_some_and(|line| line.connection == connection)
                {
                    self.lines.remove(&container);
                    self.step(MasterEvent::LineDown { container });
                }
            }
        }
    }

    fn hear_submitter(&mut self, event: SubmitterLinkEvent) {
        match event {
            SubmitterLinkEvent::Up {
                connection,
                client,
                after,
                sender,
                writer,
            } => {
                tracing::info!(client, after, "a client connected");
                self.submitters.add(connection, after, sender, writer);
                self.step(MasterEvent::SubmitterJoined {
                    connection,
                    client,
                    after,
                });
            }
            SubmitterLinkEvent::Heard {
                connection,
                message,
            } if self.submitters.contains(connection) => {
                self.step(MasterEvent::Submission {
                    connection,
                    message,
                });
            }
            SubmitterLinkEvent::Heard { .. } => {}
            SubmitterLinkEvent::Down { connection } => {
                if self.submitters.remove(connection) {
                    self.step(MasterEvent::SubmitterLeft { connection });
                }
            }
        }
    }

    fn on_executor_message(&mut self, container: ContainerId, message: FromExecutor) {
        match message {
            FromExecutor::Started { attempt, at: _ } => {
                self.step(MasterEvent::Started { container, attempt })
            }
            FromExecutor::Usage { tasks } => self.step(MasterEvent::Usage { container, tasks }),
            FromExecutor::Ended { report } => self.step(MasterEvent::Ended { container, report }),
            FromExecutor::Pressure {
                attempt,
                limit,
                current: _,
            } => self.step(MasterEvent::Pressure {
                container,
                attempt,
                limit,
            }),
            FromExecutor::Resized {
                attempt,
                limit,
                frozen_us,
                error,
            } => {
                let set = Box::new(TaskLimitResult {
                    attempt,
                    limit,
                    frozen_us,
                    error,
                });
                self.step(MasterEvent::LimitSet { container, set });
            }
            FromExecutor::Leftover { memory, left_by } => {
                self.step(MasterEvent::Leftover {
                    container,
                    left: Unattributed { memory, left_by },
                });
            }
            FromExecutor::Hello { .. } | FromExecutor::Alive => {}
        }
    }

    /// Carries out effects: first the records, then the starts that may follow the write, and all
    /// others when the records are durable.
    async fn carry_out(&mut self) -> Result<(), MasterRunError> {
        while !self.effects.is_empty() {
            let batch = EffectBatch::new(std::mem::take(&mut self.effects));
            if batch.records.is_empty() {
                self.send_all(batch.starts);
            } else {
                let ended = self.traces.find_ended(&batch.records);
                self.commit(batch.records, batch.starts).await?;
                self.traces.queue_spans(&self.core, &ended, self.now().unix);
            }
            for effect in batch.rest {
                match effect {
                    MasterEffect::Record(_) => {}
                    MasterEffect::Send { container, message } => self.send(container, *message),
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
            self.carry_out_session();
        }
        if self.core.has_unreported_changes() {
            self.session.sync_soon(self.now().tick);
        }
        Ok(())
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

    /// Writes records outside of the runtime's threads, because the write waits for the disk. Sends
    /// `starts` when they are written, and returns when they are durable.
    async fn commit(
        &mut self,
        records: Vec<JournalRecord>,
        starts: Vec<(ContainerId, ToExecutor)>,
    ) -> Result<(), JournalError> {
        let Some(mut journal) = self.journal.take() else {
            self.send_all(starts);
            return Ok(());
        };
        let (written, is_written) = oneshot::channel();
        let durable = tokio::task::spawn_blocking(move || {
            let result = journal.write(&records).and_then(|()| {
                let _ = written.send(()); // fails only if the loop has ended
                journal.sync()
            });
            (journal, result)
        });
        if is_written.await.is_ok() {
            self.send_all(starts);
        }
        match durable.await {
            Ok((journal, result)) => {
                self.journal = Some(journal);
                result
            }
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    fn send_all(&mut self, messages: Vec<(ContainerId, ToExecutor)>) {
        for (container, message) in messages {
            self.send(container, message);
        }
    }

    /// Sends a message to an executor. An executor that does not read is disconnected; it
    /// reconnects and reports its state.
    fn send(&mut self, container: ContainerId, message: ToExecutor) {
        let Some(line) = self.lines.get(&container) else {
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
        let ended = self.submitters.end(&mut self.core, &outcome);
        self.ending.extend(ended);
        self.traces.queue_job_span(&self.core, &outcome, now.unix);
        self.session.finish(now.tick, outcome);
    }

    /// Waits for the last messages to be sent.
    async fn farewell(&mut self) {
        self.commits.last(SHUTDOWN_TIMEOUT).await;
        let mut writers = std::mem::take(&mut self.ending);
        let lines = std::mem::take(&mut self.lines).into_values();
        writers.extend(lines.map(|line| line.writer));
        let all = async {
            for writer in writers {
                let _ = writer.await;
            }
        };
        if timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::debug!("some executors did not receive the last message");
        }
        self.traces.finish().await;
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
