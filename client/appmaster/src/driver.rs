//! The loop that owns the core: it processes messages in batches, makes records durable, and only
//! then carries out the other effects, except for starts that may follow the write of the records.
//! The loop does not wait for the disk: effects wait in a queue.

mod commits;
mod effect_batch;
mod effect_queue;
mod effects;
mod journal_threads;
mod rm_session;
mod submitters;

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_transport::deadline;
use headroom_types::exit::Unattributed;
use headroom_types::{AttemptId, ContainerId, Tick};
use headroom_wire::v1::task::{FromExecutor, ToExecutor};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::core::MasterCore;
use crate::event::{EventTimestamp, JobOutcome, MasterEffect, MasterEvent, TaskLimitResult};
use crate::executor_link::{ConnectionNumber, ExecutorLinkEvent};
use crate::job_journal::JobJournal;
use crate::journal::JournalError;
use crate::rm_link::RmLink;
use crate::run_error::MasterRunError;
use crate::session::{ManagerSession, SessionEffect, SessionEnd, SessionInput};
use crate::spec::ExecutorEnvironment;
use crate::stop_request::StopRequest;
use crate::submitter_link::SubmitterLinkEvent;
use crate::traces::JobTraceExporter;
use commits::Commits;
use effect_queue::EffectQueue;
use journal_threads::{JournalProgress, JournalThreads};
use submitters::SubmitterWriters;

/// Maximum number of messages that are processed before records are made durable.
const BATCH: usize = 256;
/// Timeout for the last messages to executors at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the last sync of the journal at the end. Nothing depends on later records yet.
const LAST_SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection of one executor.
struct ExecutorWriter {
    connection: ConnectionNumber,
    sender: mpsc::Sender<ToExecutor>,
    writer: JoinHandle<()>,
}

/// The state of the loop.
pub(crate) struct MasterDriver {
    core: MasterCore,
    journal: JournalThreads,
    /// Effects that wait for the journal.
    queue: EffectQueue,
    /// Cursor of the last result whose record is durable.
    durable_result: u64,
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
    Journal(JournalProgress),
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
        journal: JobJournal,
        link: RmLink,
        (environment, attempt): (ExecutorEnvironment, AttemptId),
        submission_token: Option<String>,
        traces: JobTraceExporter,
    ) -> Result<Self, JournalError> {
        let url = environment.master_url.clone();
        let session = ManagerSession::new(attempt, url, core.outcome().cloned(), Tick(0))
            .with_submission_token(submission_token);
        Ok(MasterDriver {
            durable_result: core.last_result(),
            core,
            journal: JournalThreads::start(journal)?,
            queue: EffectQueue::default(),
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
        })
    }

    /// True if the resource manager accepted the report of the job's end.
    pub(crate) fn is_end_accepted(&self) -> bool {
        self.session.end() == Some(SessionEnd::Accepted)
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
            let has_room = self.queue.has_room();
            let heard = tokio::select! {
                biased;
                progress = self.journal.progress() => DriverInput::Journal(progress),
                Ok(()) = stops.changed() => DriverInput::StopRequest(*stops.borrow_and_update()),
                Some(event) = rm.recv(), if has_room => DriverInput::Rm(event),
                Some(event) = executors.recv(), if has_room => DriverInput::Executor(event),
                Some(event) = submitters.recv(), if has_room => DriverInput::Submitter(event),
                Some(event) = self.commits.next(), if has_room => DriverInput::Committed(event),
                Some(Ok(event)) = self.measuring.join_next(), if has_room => {
                    DriverInput::Measured(event)
                }
                () = deadline::ticked(timer), if has_room => DriverInput::Timer,
                () = deadline::reached(speak) => DriverInput::Speak,
                () = deadline::ticked(flush) => DriverInput::Flush,
            };
            self.process_input(heard, url)?;
            for _ in 0..BATCH {
                if !has_room {
                    break;
                }
                let more = rm
                    .try_recv()
                    .map(DriverInput::Rm)
                    .or_else(|_| executors.try_recv().map(DriverInput::Executor))
                    .or_else(|_| submitters.try_recv().map(DriverInput::Submitter));
                let Ok(more) = more else { break };
                self.process_input(more, url)?;
            }
            self.carry_out();
            self.submitters.flush(&mut self.core, self.durable_result);
            let over = self.session.is_over();
            if over || *stops.borrow() == StopRequest::Leave {
                if self.session.end() != Some(SessionEnd::Replaced) {
                    self.finish_effects().await?;
                }
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
            DriverInput::Journal(progress) => self.hear_journal(progress)?,
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
