//! The client's bookkeeping of a submission channel, without sockets, clock or randomness.
//!
//! A session survives its connections. It declares stages, sends tasks in batches within the credit
//! of the job, repeats after a lost connection what was not answered, and passes each result on
//! once. One batch at a time is unanswered, so that a task never arrives before a task that it
//! names in `after`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headroom_types::Name;
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::submission::{
    FromSubmitter, MAX_BATCH_TASKS, MAX_INPUT_BYTES, MAX_LINE_BYTES, SubmittedTask,
    SubmittedTaskResult, SubmittedTaskState, ToSubmitter, VERSION,
};

/// Maximum number of tasks and cancellations that wait in a session.
pub const MAX_QUEUED_TASKS: usize = 100_000;
/// Maximum length of a key. Characters.
const MAX_KEY_CHARS: usize = 128;
/// Maximum number of tags of a task.
const MAX_TAGS: usize = 16;
/// Maximum length of one task in a line, which leaves space for the other fields. Bytes.
const MAX_TASK_BYTES: usize = MAX_LINE_BYTES - 4096;
/// Number of processed results after which they are acknowledged at once.
const ACK_RESULTS: u64 = 100;
/// Maximum number of keys in one cancellation.
const MAX_CANCEL_KEYS: usize = 1000;
/// Number of ticks without another message after which a heartbeat follows.
const HEARTBEAT_TICKS: u32 = 3;

/// The state of one client's submissions to one live job.
#[derive(Debug)]
pub struct SubmissionSession {
    /// Name of the client, the same on every connection.
    client: String,
    /// Beginning of all batch ids; unique in the job.
    batch_prefix: String,
    /// Number of the next batch.
    next_batch: u64,
    stages: BTreeMap<Name, DeclaredStage>,
    queued: VecDeque<QueuedTask>,
    unanswered: Option<UnansweredBatch>,
    /// Accepted tasks of this session without a result.
    open: BTreeSet<String>,
    /// Keys to cancel, until their results arrive. True once sent on this connection.
    cancelled: BTreeMap<String, bool>,
    cancel_all: RepeatedMessage,
    close: RepeatedMessage,
    /// The client needs no more results.
    leaves: bool,
    connection: ConnectionPhase,
    /// Number of tasks that the job accepts.
    credit: u32,
    /// Cursor of the last result that was passed on.
    delivered: u64,
    /// Cursor of the last result that the caller has processed.
    processed: u64,
    /// Cursor of the last acknowledgement.
    acknowledged: u64,
    ack_due: bool,
    idle_ticks: u32,
}

/// A stage that this session declares.
#[derive(Debug)]
struct DeclaredStage {
    spec: serde_json::Value,
    phase: StagePhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StagePhase {
    Unsent,
    Sent,
    Accepted,
}

/// A task that is not in a batch yet.
#[derive(Debug)]
struct QueuedTask {
    stage: Name,
    task: SubmittedTask,
    /// Length of the task in a line.
    bytes: usize,
}

/// A batch without an answer. Its contents never change.
#[derive(Debug)]
struct UnansweredBatch {
    id: String,
    stage: Name,
    items: Vec<SubmittedTask>,
    /// Keys whose results arrived before the answer, which an earlier connection lost.
    ended: BTreeSet<String>,
    phase: BatchPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchPhase {
    /// To be sent on this connection.
    Unsent,
    /// Sent on this connection.
    Sent,
    /// Refused because the job accepts too few tasks at present.
    WaitsForCredit,
}

/// A message without an answer, which is repeated on every connection until its effect is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepeatedMessage {
    Unwanted,
    Unsent,
    Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    Disconnected,
    AwaitsWelcome,
    Welcomed,
    /// The job has ended.
    Over,
}

/// A message of the job to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionEvent {
    /// The master answered on a new connection.
    Connected {
        /// Cursor of the last result so far.
        cursor: u64,
        /// True if the job accepts no more tasks.
        closed: bool,
    },
    /// A stage is durable.
    StageAccepted {
        /// Its name.
        stage: Name,
    },
    /// A stage is refused; its queued tasks are dropped.
    StageRefused {
        /// Its name.
        stage: Name,
        /// Keys of the dropped tasks.
        keys: Vec<String>,
        /// The reason.
        error: Box<ProblemDetails>,
    },
    /// Tasks are durable: they survive every process.
    TasksAccepted {
        /// Their keys.
        keys: Vec<String>,
    },
    /// Tasks are refused for good and have changed nothing.
    TasksRefused {
        /// Their keys.
        keys: Vec<String>,
        /// The reason.
        error: Box<ProblemDetails>,
    },
    /// States of running and waiting tasks.
    States {
        /// One for each changed task.
        tasks: Vec<SubmittedTaskState>,
    },
    /// A task has ended. Each result arrives once.
    Ended(Box<SubmittedTaskResult>),
    /// The master refuses the connection.
    Refused {
        /// The reason.
        error: Box<ProblemDetails>,
    },
    /// The job has ended.
    Over {
        /// True if all tasks have succeeded.
        succeeded: bool,
        /// The diagnostics, for users.
        diagnostics: String,
    },
}

/// A call of the session that is refused. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionInputError {
    /// The key of a task is empty or too long.
    #[error("the key {key:?} must have 1 to {MAX_KEY_CHARS} characters")]
    KeyLength {
        /// The key.
        key: String,
    },
    /// The input of a task is too large.
    #[error(
        "the input of task {key} has {bytes} bytes; at most {MAX_INPUT_BYTES} are allowed: write it to a file that the nodes can read"
    )]
    InputTooLarge {
        /// The key.
        key: String,
        /// Length of the input. Bytes.
        bytes: usize,
    },
    /// A task has too many tags.
    #[error("task {key} has {tags} tags; at most {MAX_TAGS} are allowed")]
    TooManyTags {
        /// The key.
        key: String,
        /// Number of tags.
        tags: usize,
    },
    /// A task does not fit into a line.
    #[error(
        "task {key} has {bytes} bytes; at most {MAX_TASK_BYTES} are allowed: pass large data in a file"
    )]
    TaskTooLarge {
        /// The key.
        key: String,
        /// Length of the task as JSON. Bytes.
        bytes: usize,
    },
    /// Too many tasks or cancellations wait in the session.
    #[error("{MAX_QUEUED_TASKS} tasks wait to be sent, which is the maximum: read events first")]
    Full,
    /// The job is closed.
    #[error("the job is closed: it accepts no more tasks")]
    Closed,
    /// A stage was declared before with other keys.
    #[error("stage {stage} was declared before with other keys")]
    StageRedeclared {
        /// The stage.
        stage: Name,
    },
}

impl SubmissionSession {
    /// A session of the client `client`, which has processed the results up to `after`. All batch
    /// ids begin with `batch_prefix`, which no other session of the job may use.
    pub fn new(client: &str, batch_prefix: &str, after: u64) -> Self {
        SubmissionSession {
            client: client.chars().take(64).collect(),
            batch_prefix: batch_prefix.chars().take(40).collect(),
            next_batch: 1,
            stages: BTreeMap::new(),
            queued: VecDeque::new(),
            unanswered: None,
            open: BTreeSet::new(),
            cancelled: BTreeMap::new(),
            cancel_all: RepeatedMessage::Unwanted,
            close: RepeatedMessage::Unwanted,
            leaves: false,
            connection: ConnectionPhase::Disconnected,
            credit: 0,
            delivered: after,
            processed: after,
            acknowledged: 0,
            ack_due: false,
            idle_ticks: 0,
        }
    }

    /// Declares a stage. `spec` has the keys of a `[[stage]]` table.
    ///
    /// # Errors
    /// The job is closed, or the stage was declared with other keys.
    pub fn declare_stage(
        &mut self,
        stage: Name,
        spec: serde_json::Value,
    ) -> Result<(), SubmissionInputError> {
        self.require_open()?;
        match self.stages.get(&stage) {
            Some(known) if known.spec == spec => Ok(()),
            Some(_) => Err(SubmissionInputError::StageRedeclared { stage }),
            None => {
                let phase = StagePhase::Unsent;
                self.stages.insert(stage, DeclaredStage { spec, phase });
                Ok(())
            }
        }
    }

    /// Adds a task to a stage of the job file, or to a declared one.
    ///
    /// # Errors
    /// The task is too large, the session is full, or the job is closed.
    pub fn add_task(
        &mut self,
        stage: Name,
        task: SubmittedTask,
    ) -> Result<(), SubmissionInputError> {
        self.require_open()?;
        if self.queued.len() >= MAX_QUEUED_TASKS {
            return Err(SubmissionInputError::Full);
        }
        let bytes = checked_size(&task)?;
        self.queued.push_back(QueuedTask { stage, task, bytes });
        Ok(())
    }

    /// Cancels tasks. Queued ones are dropped, and their keys returned; they have no result.
    ///
    /// # Errors
    /// The session is full.
    pub fn cancel(
        &mut self,
        keys: impl IntoIterator<Item = String>,
    ) -> Result<Vec<String>, SubmissionInputError> {
        let keys: BTreeSet<String> = keys.into_iter().collect();
        if self.cancelled.len().saturating_add(keys.len()) > MAX_QUEUED_TASKS {
            return Err(SubmissionInputError::Full);
        }
        let dropped = self.drop_queued(|queued| keys.contains(&queued.task.key));
        for key in keys {
            if !dropped.contains(&key) {
                self.cancelled.entry(key).or_insert(false);
            }
        }
        Ok(dropped)
    }

    /// Cancels all tasks of the job. Queued ones are dropped, and their keys returned; they have no
    /// result. Tasks that are added later are sent when those of this session have ended.
    pub fn cancel_all(&mut self) -> Vec<String> {
        self.cancel_all = RepeatedMessage::Unsent;
        // A batch that was refused is not accepted, and would delay the cancellation.
        let refused = self
            .unanswered
            .take_if(|batch| batch.phase == BatchPhase::WaitsForCredit);
        let refused = refused.into_iter().flat_map(|batch| batch.items);
        let mut dropped: Vec<String> = refused.map(|task| task.key).collect();
        dropped.extend(self.drop_queued(|_| true));
        dropped
    }

    /// Closes the job after the queued tasks: no more tasks follow.
    pub fn close(&mut self) {
        if self.close == RepeatedMessage::Unwanted {
            self.close = RepeatedMessage::Unsent;
        }
    }

    /// The client needs no more results: the last message of this connection is `leave`.
    pub fn leave(&mut self) {
        self.leaves = true;
        self.ack_due = true;
    }

    /// The results up to `cursor` are processed. Results beyond the last one that was passed on are
    /// not.
    pub fn acknowledge(&mut self, cursor: u64) {
        self.processed = self.processed.max(cursor.min(self.delivered));
    }

    /// Cursor of the last processed result.
    pub fn cursor(&self) -> u64 {
        self.processed
    }

    /// Number of tasks that are not accepted yet.
    pub fn unaccepted(&self) -> usize {
        let batch = self
            .unanswered
            .as_ref()
            .map_or(0, |batch| batch.items.len());
        self.queued.len() + batch
    }

    /// Number of accepted tasks of this session without a result.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Begins a connection. Returns its first line.
    pub fn connected(&mut self) -> FromSubmitter {
        self.disconnected();
        self.connection = ConnectionPhase::AwaitsWelcome;
        FromSubmitter::Submitter {
            version: VERSION,
            token: String::new(),
            client: self.client.clone(),
            after: self.processed,
        }
    }

    /// The connection is lost: everything without an answer is sent again on the next one.
    pub fn disconnected(&mut self) {
        if self.connection != ConnectionPhase::Over {
            self.connection = ConnectionPhase::Disconnected;
        }
        for stage in self.stages.values_mut() {
            if stage.phase == StagePhase::Sent {
                stage.phase = StagePhase::Unsent;
            }
        }
        if let Some(batch) = &mut self.unanswered {
            batch.phase = BatchPhase::Unsent;
        }
        self.cancelled.values_mut().for_each(|sent| *sent = false);
        for message in [&mut self.cancel_all, &mut self.close] {
            if *message == RepeatedMessage::Sent {
                *message = RepeatedMessage::Unsent;
            }
        }
        // An acknowledgement may be lost with the connection.
        self.acknowledged = 0;
        self.idle_ticks = 0;
    }

    /// One second has passed: acknowledgements and heartbeats are due.
    pub fn tick(&mut self) {
        self.ack_due = true;
        self.idle_ticks = self.idle_ticks.saturating_add(1);
    }

    /// The next message to send on this connection, if there is one.
    pub fn next_message(&mut self) -> Option<FromSubmitter> {
        if self.connection != ConnectionPhase::Welcomed {
            return None;
        }
        let message = self
            .next_stage()
            .or_else(|| self.next_cancellation())
            .or_else(|| self.next_batch())
            .or_else(|| self.next_cancel_all())
            .or_else(|| self.next_close())
            .or_else(|| self.next_ack())
            .or_else(|| self.next_leave())
            .or_else(|| self.next_heartbeat());
        if message.is_some() {
            self.idle_ticks = 0;
        }
        message
    }

    fn next_stage(&mut self) -> Option<FromSubmitter> {
        let unsent = |(_, stage): &(&Name, &mut DeclaredStage)| stage.phase == StagePhase::Unsent;
        let (name, stage) = self.stages.iter_mut().find(unsent)?;
        stage.phase = StagePhase::Sent;
        Some(FromSubmitter::Stage {
            name: name.clone(),
            spec: stage.spec.clone(),
        })
    }

    fn next_cancellation(&mut self) -> Option<FromSubmitter> {
        // A cancellation of a task that is not accepted yet would be ignored.
        let batch = self.unanswered.as_ref();
        let is_sendable =
            |key: &str| batch.is_none_or(|batch| batch.items.iter().all(|task| task.key != key));
        let mut keys = Vec::new();
        for (key, sent) in &mut self.cancelled {
            if !*sent && keys.len() < MAX_CANCEL_KEYS && is_sendable(key) {
                *sent = true;
                keys.push(key.clone());
            }
        }
        (!keys.is_empty()).then_some(FromSubmitter::Cancel { keys })
    }

    fn next_batch(&mut self) -> Option<FromSubmitter> {
        if self.unanswered.is_none() && self.cancel_all == RepeatedMessage::Unwanted {
            self.unanswered = self.new_batch();
        }
        let credit = usize::try_from(self.credit).unwrap_or(usize::MAX);
        let batch = self.unanswered.as_mut()?;
        match batch.phase {
            BatchPhase::Sent => return None,
            BatchPhase::WaitsForCredit if credit < batch.items.len() => return None,
            // A batch of an earlier connection may be accepted already, so its credit is used.
            BatchPhase::WaitsForCredit | BatchPhase::Unsent => batch.phase = BatchPhase::Sent,
        }
        Some(FromSubmitter::Tasks {
            batch: batch.id.clone(),
            stage: batch.stage.clone(),
            items: batch.items.clone(),
        })
    }

    /// The first queued tasks of one stage as a batch within the credit and the length of a line.
    fn new_batch(&mut self) -> Option<UnansweredBatch> {
        let stage = self.queued.front()?.stage.clone();
        let declared = self.stages.get(&stage);
        if declared.is_some_and(|stage| stage.phase != StagePhase::Accepted) {
            return None;
        }
        let most = usize::try_from(self.credit)
            .unwrap_or(usize::MAX)
            .min(MAX_BATCH_TASKS);
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < most
            && let Some(next) = self.queued.front()
            && next.stage == stage
            && bytes + next.bytes < MAX_TASK_BYTES
        {
            bytes += next.bytes + 1;
            items.extend(self.queued.pop_front().map(|queued| queued.task));
        }
        if items.is_empty() {
            return None;
        }
        let id = format!("{}.{}", self.batch_prefix, self.next_batch);
        self.next_batch += 1;
        let phase = BatchPhase::Unsent;
        Some(UnansweredBatch {
            id,
            stage,
            items,
            ended: BTreeSet::new(),
            phase,
        })
    }

    fn next_cancel_all(&mut self) -> Option<FromSubmitter> {
        if self.cancel_all != RepeatedMessage::Unsent || self.unanswered.is_some() {
            return None;
        }
        // Without open tasks there is no result that shows the effect.
        self.cancel_all = if self.open.is_empty() {
            RepeatedMessage::Unwanted
        } else {
            RepeatedMessage::Sent
        };
        Some(FromSubmitter::CancelAll)
    }

    fn next_close(&mut self) -> Option<FromSubmitter> {
        if self.close != RepeatedMessage::Unsent || self.unaccepted() > 0 {
            return None;
        }
        self.close = RepeatedMessage::Sent;
        Some(FromSubmitter::Close)
    }

    fn next_ack(&mut self) -> Option<FromSubmitter> {
        let news = self.processed.saturating_sub(self.acknowledged);
        if news == 0 || (news < ACK_RESULTS && !self.ack_due) {
            return None;
        }
        self.ack_due = false;
        self.acknowledged = self.processed;
        Some(FromSubmitter::Ack {
            cursor: self.processed,
        })
    }

    fn next_leave(&mut self) -> Option<FromSubmitter> {
        std::mem::take(&mut self.leaves).then_some(FromSubmitter::Leave)
    }

    fn next_heartbeat(&mut self) -> Option<FromSubmitter> {
        (self.idle_ticks >= HEARTBEAT_TICKS).then_some(FromSubmitter::Alive)
    }

    /// Processes a message of the master.
    pub fn received(&mut self, message: ToSubmitter) -> Option<SubmissionEvent> {
        match message {
            ToSubmitter::Welcome {
                credit,
                cursor,
                closed,
                version: _,
            } => {
                self.connection = ConnectionPhase::Welcomed;
                self.credit = credit;
                Some(SubmissionEvent::Connected { cursor, closed })
            }
            ToSubmitter::StageAccepted { name } => {
                if let Some(stage) = self.stages.get_mut(&name) {
                    stage.phase = StagePhase::Accepted;
                }
                Some(SubmissionEvent::StageAccepted { stage: name })
            }
            ToSubmitter::Accepted { batch, credit } => {
                self.credit = credit;
                let accepted = self.unanswered.take_if(|sent| sent.id == batch)?;
                let keys: Vec<String> = accepted.items.into_iter().map(|task| task.key).collect();
                let open = keys.iter().filter(|key| !accepted.ended.contains(*key));
                self.open.extend(open.cloned());
                Some(SubmissionEvent::TasksAccepted { keys })
            }
            ToSubmitter::Refused { subject, error } => self.refused(subject.as_deref(), error),
            ToSubmitter::Credit { credit } => {
                self.credit = credit;
                None
            }
            ToSubmitter::States { tasks } => Some(SubmissionEvent::States { tasks }),
            ToSubmitter::Ended(result) => self.ended(result),
            ToSubmitter::Over {
                succeeded,
                diagnostics,
            } => {
                self.connection = ConnectionPhase::Over;
                Some(SubmissionEvent::Over {
                    succeeded,
                    diagnostics,
                })
            }
            ToSubmitter::Alive => None,
        }
    }

    /// Passes a result on, unless an earlier connection did.
    fn ended(&mut self, result: Box<SubmittedTaskResult>) -> Option<SubmissionEvent> {
        if result.cursor <= self.delivered {
            return None;
        }
        self.delivered = result.cursor;
        if !self.open.remove(&result.key)
            && let Some(batch) = &mut self.unanswered
            && batch.items.iter().any(|task| task.key == result.key)
        {
            batch.ended.insert(result.key.clone());
        }
        self.cancelled.remove(&result.key);
        if self.open.is_empty() && self.cancel_all == RepeatedMessage::Sent {
            self.cancel_all = RepeatedMessage::Unwanted;
        }
        Some(SubmissionEvent::Ended(result))
    }

    fn refused(
        &mut self,
        subject: Option<&str>,
        error: Box<ProblemDetails>,
    ) -> Option<SubmissionEvent> {
        let Some(subject) = subject else {
            return Some(SubmissionEvent::Refused { error });
        };
        let refused = self.unanswered.take_if(|sent| sent.id == subject);
        if let Some(mut batch) = refused {
            if error.retryable {
                // Another client has used the credit; the master reports when it has grown.
                self.credit = 0;
                batch.phase = BatchPhase::WaitsForCredit;
                self.unanswered = Some(batch);
                return None;
            }
            let keys = batch.items.into_iter().map(|task| task.key).collect();
            return Some(SubmissionEvent::TasksRefused { keys, error });
        }
        let stage: Name = subject.parse().ok()?;
        self.stages.remove(&stage)?;
        let keys = self.drop_queued(|queued| queued.stage == stage);
        Some(SubmissionEvent::StageRefused { stage, keys, error })
    }

    fn require_open(&self) -> Result<(), SubmissionInputError> {
        match self.close {
            RepeatedMessage::Unwanted => Ok(()),
            RepeatedMessage::Unsent | RepeatedMessage::Sent => Err(SubmissionInputError::Closed),
        }
    }

    fn drop_queued(&mut self, is_dropped: impl Fn(&QueuedTask) -> bool) -> Vec<String> {
        let mut dropped = Vec::new();
        self.queued.retain(|queued| {
            let is_dropped = is_dropped(queued);
            if is_dropped {
                dropped.push(queued.task.key.clone());
            }
            !is_dropped
        });
        dropped
    }
}

/// Length of a valid task as JSON.
fn checked_size(task: &SubmittedTask) -> Result<usize, SubmissionInputError> {
    let key = task.key.clone();
    if !(1..=MAX_KEY_CHARS).contains(&key.chars().count()) {
        return Err(SubmissionInputError::KeyLength { key });
    }
    let input = task.input.as_ref().map_or(0, String::len);
    if input > MAX_INPUT_BYTES {
        return Err(SubmissionInputError::InputTooLarge { key, bytes: input });
    }
    let tags = task.tags.len();
    if tags > MAX_TAGS {
        return Err(SubmissionInputError::TooManyTags { key, tags });
    }
    // A task consists of texts and numbers, so it is always valid JSON.
    let bytes = serde_json::to_string(task).map_or(usize::MAX, |text| text.len());
    if bytes >= MAX_TASK_BYTES {
        return Err(SubmissionInputError::TaskTooLarge { key, bytes });
    }
    Ok(bytes)
}
