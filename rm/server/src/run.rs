//! Main loop: it owns the cluster, the journal and the mailboxes, and is the only place that
//! changes them.
//!
//! One turn processes the inputs, saves the changes, and only then sends the effects: results,
//! messages to nodes and masters, events. Queries come last, so that they see the changes of all
//! results that were sent.
//!
//! While a batch of records is on its way to the disk, the loop prepares further turns. Their
//! records form the next batch, and the effects of all turns leave in order. Whoever reads the
//! state sees only durable changes: the loop takes no inputs between a query and its reply.
//!
//! The loop has its own thread. Among ten thousand connections on a shared runtime it would run
//! only after all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_config::JournalLimits;
use headroom_rm_core::{
    CallId, CallRefusal, CallResult, Cluster, ClusterCall, ClusterEffect, ClusterEvent,
    ClusterSettings, DurableRecord, EventLogLine, LogMessage, LogObject, LogSeverity, SavedStage,
};
use headroom_rm_etcd::LeaseClock;
use headroom_rm_store::{MAX_VALUE, OpenedStore, RecordJournal, StoreError};
use headroom_types::{AppId, AttemptId, EventTopic, Reason, Tick};
use headroom_wire::v1::events;
use headroom_wire::v1::job::JobViewPatch;
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use crate::clock::ManagerClock;
use crate::commit_thread::{CommitResult, CommitThread};
use crate::dispatch::MailboxDispatcher;
use crate::durable_documents::{DocumentWrite, DurableDocuments};
use crate::eventlog;
use crate::inbox::{InputBatch, MainLoopInbox};
use crate::input::{ClusterQuery, LoopInput};
use crate::jobs::RowCreation;
use crate::journal_table::JournalUse;
use crate::metrics::ContainerDecision;
use crate::notify::ManagerWatchdog;
use crate::query;
use crate::reason_log::log_reason;
use crate::shared_state::SharedState;
use crate::starving::StarvingRequests;
use crate::to_wire;
use crate::view::ClusterSnapshot;

/// Maximum time between two turns.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Interval between two looks at the streams of nodes. The main loop wakes up as often.
const STREAMS_INTERVAL: Duration = Duration::from_millis(950);
/// A longer gap between two turns means that the process was stopped or starved. Missing heartbeats
/// in that time are no evidence against a node or master.
const HELD_UP: Duration = Duration::from_secs(3);
/// Pause after making a view, as a multiple of the time that the view took.
const VIEW_RESTS: u32 = 4;
/// Interval of the check for starving requests.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Interval of the checks whether the lease is certain again.
const UNCERTAIN: Duration = Duration::from_millis(10);
/// Interval between snapshots of the journal.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of turns whose effects wait for the disk.
const MAX_UNSAVED: usize = 8;

/// Reason why the loop ended without an order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManagerLoopError {
    /// The state could not be saved.
    #[error("the state could not be saved, so nothing more is accepted")]
    Store(#[from] StoreError),
    /// The lease has ended, or is not certain any more; with the write that could not be confirmed
    /// meanwhile.
    #[error(
        "this resource manager leads no longer: its lease was not renewed in time, so another one may lead now"
    )]
    Deposed(#[source] Option<StoreError>),
    /// The thread that writes the state has panicked.
    #[error("the thread that saves the state has ended, so nothing more is accepted")]
    CommitThreadEnded,
}

/// Owner of all state.
#[derive(Debug)]
pub(crate) struct ManagerLoop {
    clock: ManagerClock,
    cluster: Cluster,
    journal: RecordJournal,
    commits: CommitThread,
    /// Turns whose effects wait until their records are durable, oldest first.
    unsaved: VecDeque<PreparedTurn>,
    /// Number of the oldest turns whose records are in the batch on its way to the disk; 0 without
    /// a batch.
    committing: usize,
    inbox: MainLoopInbox,
    shared: SharedState,
    dispatch: MailboxDispatcher,
    watchdog: ManagerWatchdog,
    /// The lease of this manager; `None` without an election.
    lease: Option<Arc<LeaseClock>>,
    effects: Vec<ClusterEffect>,
    waiting: BTreeMap<CallId, PendingCall>,
    /// Inputs that are processed after the batch.
    later: Vec<LoopInput>,
    documents: DurableDocuments,
    calls: u64,
    last_turn: Tick,
    next_snapshot: Tick,
    /// Whether readers wait for a view.
    view_wanted: bool,
    /// Earliest time of the next view.
    next_view: Tick,
    starving: StarvingRequests,
    next_look: Tick,
    /// Next time at which the streams of nodes are reported to the core.
    next_streams: Tick,
}

/// A turn whose effects wait until its records are durable.
#[derive(Debug)]
struct PreparedTurn {
    began: Instant,
    effects: Vec<ClusterEffect>,
    /// Events of accepted rows of jobs.
    events: Vec<events::LoggedEvent>,
    /// Applications that have ended: their rows are then only on disk.
    ended: Vec<AppId>,
    writes: Vec<DocumentWrite>,
    /// Inputs that are processed after the effects.
    later: Vec<LoopInput>,
}

impl PreparedTurn {
    /// Whether its effects show the state to readers, so that no other turn may change it before.
    fn shows_state(&self) -> bool {
        !self.later.is_empty() || self.writes.iter().any(DocumentWrite::is_published)
    }
}

/// What the loop waited for.
enum LoopWake {
    Committed(Option<CommitResult>),
    Inputs(InputBatch),
}

/// A call that waits for its result.
#[derive(Debug)]
struct PendingCall {
    reply: oneshot::Sender<CallResult>,
    job: Option<Box<(AppId, JobViewPatch)>>,
}

/// Whether the loop continues after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopControl {
    GoOn,
    End,
}

impl ManagerLoop {
    /// Creates the owner from the saved state.
    pub(crate) fn new(
        opened: OpenedStore,
        settings: ClusterSettings,
        clock: ManagerClock,
        inbox: MainLoopInbox,
        (shared, lease): (SharedState, Option<Arc<LeaseClock>>),
        journals: JournalLimits,
    ) -> std::io::Result<Self> {
        let now = clock.now();
        let epoch = opened.restored.epoch;
        Ok(ManagerLoop {
            clock,
            cluster: Cluster::new(settings, opened.restored, now),
            journal: opened.journal,
            commits: CommitThread::start(opened.store)?,
            unsaved: VecDeque::new(),
            committing: 0,
            inbox,
            documents: DurableDocuments::restored(&shared, &opened.journals, journals),
            shared,
            dispatch: MailboxDispatcher::new(epoch),
            watchdog: ManagerWatchdog::from_environment(),
            lease,
            effects: Vec::new(),
            waiting: BTreeMap::new(),
            later: Vec::new(),
            calls: 0,
            last_turn: now,
            next_snapshot: now.plus(SNAPSHOT_EVERY),
            view_wanted: false,
            next_view: now,
            starving: StarvingRequests::default(),
            next_look: now,
            next_streams: now,
        })
    }

    /// Runs until it receives a stop, or can no longer save.
    pub(crate) async fn run(mut self) -> Result<(), ManagerLoopError> {
        self.begin();
        self.prepare(Instant::now())?;
        self.save_and_apply_all().await?;
        loop {
            let batch = match self.wake().await {
                LoopWake::Inputs(batch) => batch,
                LoopWake::Committed(result) => {
                    self.committed(result).await?;
                    self.save_or_apply().await?;
                    continue;
                }
            };
            let began = Instant::now();
            let turn = self.take_in(batch);
            self.prepare(began)?;
            if turn == LoopControl::End || self.must_wait_for_the_disk() {
                self.save_and_apply_all().await?;
            } else {
                self.save_or_apply().await?;
            }
            self.run_periodic_work();
            if turn == LoopControl::End {
                // All accepted calls are saved and have their results. Streams end with the loop.
                self.commits.snapshot();
                return Ok(());
            }
        }
    }

    fn begin(&mut self) {
        let message = format!(
            "the resource manager starts with epoch {}",
            self.cluster.epoch()
        );
        let (reason, object, words) = (
            Reason::ResourceManagerStarted,
            LogObject::Manager,
            LogMessage::Text(message),
        );
        let line = EventLogLine {
            level: LogSeverity::Normal,
            reason,
            object,
            node: None,
            words,
        };
        self.effects.push(ClusterEffect::Log(line));
        self.cluster
            .step(self.clock.now(), ClusterEvent::Time, &mut self.effects);
    }

    /// Waits for the batch on its way to the disk, an input, a deadline, or the end of the maximum
    /// time between turns.
    async fn wake(&mut self) -> LoopWake {
        let beat = self.clock.now().plus(HEARTBEAT);
        let mut until = self
            .cluster
            .next_deadline()
            .map_or(beat, |deadline| deadline.min(beat));
        if self.view_wanted {
            until = until.min(self.next_view);
        }
        let (clock, is_committing) = (self.clock, self.committing > 0);
        let (commits, inbox) = (&mut self.commits, &mut self.inbox);
        let inputs = tokio::time::timeout_at(clock.instant(until), inbox.batch(|| clock.now()));
        tokio::select! {
            biased;
            result = commits.result(), if is_committing => LoopWake::Committed(result),
            batch = inputs => LoopWake::Inputs(batch.unwrap_or_default()),
        }
    }

    /// Processes one batch, and the deadlines that are due.
    fn take_in(&mut self, batch: InputBatch) -> LoopControl {
        let now = self.clock.now();
        let gap = now.since(self.last_turn);
        self.last_turn = now;
        let held_up = Some(gap).filter(|gap| *gap > HELD_UP);
        if let Some(by) = held_up.max(batch.behind) {
            warn!(
                seconds = by.as_secs_f32(),
                "the main loop was delayed; deadlines of nodes and masters move by this time"
            );
            self.cluster
                .step(now, ClusterEvent::Stalled(by), &mut self.effects);
        }
        self.look_at_streams(now);
        let mut turn = LoopControl::GoOn;
        for input in batch.inputs {
            if self.input(now, input) == LoopControl::End {
                turn = LoopControl::End;
            }
        }
        if self
            .cluster
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.cluster
                .step(now, ClusterEvent::Time, &mut self.effects);
        }
        turn
    }

    /// Reports the streams of nodes to the core, where they show which nodes are alive, and
    /// publishes the interval of heartbeats.
    fn look_at_streams(&mut self, now: Tick) {
        if now < self.next_streams {
            return;
        }
        self.next_streams = now.plus(STREAMS_INTERVAL);
        self.shared.set_heartbeat(self.cluster.heartbeat_interval());
        let (open, ended) = self.dispatch.node_streams();
        if self.cluster.counts_streams() {
            let events = [
                ClusterEvent::StreamsEnded(ended),
                ClusterEvent::StreamsOpen(open),
            ];
            for event in events {
                self.cluster.step(now, event, &mut self.effects);
            }
        }
    }

    fn input(&mut self, now: Tick, input: LoopInput) -> LoopControl {
        match input {
            LoopInput::Call { what, job, reply } => {
                self.call(now, *what, PendingCall { reply, job });
            }
            LoopInput::JoinNode { node, what, reply } => {
                let (send, result) = oneshot::channel();
                let pending = PendingCall {
                    reply: send,
                    job: None,
                };
                self.call(now, *what, pending);
                self.later.push(LoopInput::WatchJoinedNode {
                    node,
                    result,
                    reply,
                });
            }
            LoopInput::Document(change) => {
                let is_kept = |app: &AppId| self.cluster.app(app).is_some();
                self.documents
                    .change(change, self.clock.host_time(), is_kept);
            }
            LoopInput::Journal(call) => {
                let (app, attempt) = call.attempt();
                let journal_use = self.journal_use(app, attempt);
                let journal_use = journal_use.map_err(|refusal| to_wire::problem(&refusal));
                self.documents.call_journal(call, journal_use);
            }
            LoopInput::WatchNode { .. }
            | LoopInput::WatchJoinedNode { .. }
            | LoopInput::WatchApp { .. }
            | LoopInput::Query(_) => self.later.push(input),
            LoopInput::Stop => return LoopControl::End,
        }
        LoopControl::GoOn
    }

    /// Makes a call of the core. Its result is sent when it is durable.
    fn call(&mut self, now: Tick, what: ClusterCall, pending: PendingCall) {
        self.calls += 1;
        let call = CallId(self.calls);
        self.waiting.insert(call, pending);
        let event = ClusterEvent::Call { call, what };
        self.cluster.step(now, event, &mut self.effects);
    }

    /// Whether a later attempt may need the journal of this attempt. Only the current one has one.
    fn journal_use(&self, app: &AppId, attempt: u32) -> Result<JournalUse, CallRefusal> {
        let known = self.cluster.app(app);
        let known = known.ok_or_else(|| CallRefusal::NoSuchApp(app.clone()))?;
        if known.attempt != attempt {
            let given = AttemptId {
                app: app.clone(),
                attempt,
            };
            return Err(CallRefusal::StaleAttempt {
                given,
                current: known.attempt,
            });
        }
        Ok(if known.state.is_ending() {
            JournalUse::Ended
        } else {
            JournalUse::Needed
        })
    }

    /// Appends the records of the turn to the journal, and queues its effects.
    fn prepare(&mut self, began: Instant) -> Result<(), ManagerLoopError> {
        let effects = std::mem::take(&mut self.effects);
        let (events, touched) = self.merge_jobs(&effects);
        if !effects.is_empty() {
            self.shared.published.outdate();
        }
        let ended = self.append_records(&effects, touched)?;
        let writes = self.documents.append(&mut self.journal)?;
        self.unsaved.push_back(PreparedTurn {
            began,
            effects,
            events,
            ended,
            writes,
            later: std::mem::take(&mut self.later),
        });
        Ok(())
    }

    /// Whether the loop takes no more inputs before all turns are durable.
    fn must_wait_for_the_disk(&self) -> bool {
        self.unsaved.len() >= MAX_UNSAVED
            || self.unsaved.back().is_some_and(PreparedTurn::shows_state)
            || self.is_view_due()
    }

    /// Sends the records of all turns to the disk if no batch is on its way. Without records, their
    /// effects leave at once.
    async fn save_or_apply(&mut self) -> Result<(), ManagerLoopError> {
        if self.committing > 0 {
            return Ok(());
        }
        if let Some(batch) = self.journal.take_batch() {
            self.commits.commit(batch);
            self.committing = self.unsaved.len();
            return Ok(());
        }
        self.apply(self.unsaved.len()).await
    }

    /// Waits until all turns are durable and their effects have left.
    async fn save_and_apply_all(&mut self) -> Result<(), ManagerLoopError> {
        loop {
            self.save_or_apply().await?;
            if self.committing == 0 {
                return Ok(());
            }
            let result = self.commits.result().await;
            self.committed(result).await?;
        }
    }

    /// Sends the effects of the turns whose records are durable now.
    async fn committed(&mut self, result: Option<CommitResult>) -> Result<(), ManagerLoopError> {
        let result = result.ok_or(ManagerLoopError::CommitThreadEnded)?;
        let took = result.map_err(|error| {
            let leads = self.lease.as_ref();
            if leads.is_some_and(|lease| lease.remaining_grace().is_zero()) {
                ManagerLoopError::Deposed(Some(error))
            } else {
                ManagerLoopError::Store(error)
            }
        })?;
        self.shared.counters.writes.observe(took.as_secs_f64());
        let durable = std::mem::take(&mut self.committing);
        self.apply(durable).await
    }

    /// Sends the effects of the oldest turns, in order.
    async fn apply(&mut self, turns: usize) -> Result<(), ManagerLoopError> {
        // Grants are not in the journal, so its fence does not stop them.
        self.wait_until_certain().await?;
        for turn in self.unsaved.drain(..turns).collect::<Vec<_>>() {
            turn.ended
                .iter()
                .for_each(|app| self.shared.jobs.forget(app));
            self.log_all(&turn.effects, turn.events);
            self.carry_out(turn.effects);
            self.dispatch.send();
            self.documents.answer(turn.writes, &self.shared);
            self.shared
                .published
                .recovered(self.cluster.node_table().recovery().is_none());
            for input in turn.later {
                self.answer_later(input);
            }
            let took = turn.began.elapsed();
            self.shared.counters.turns.observe(took.as_secs_f64());
        }
        if self.unsaved.is_empty() {
            self.show();
        }
        Ok(())
    }

    /// Waits until this manager certainly leads.
    async fn wait_until_certain(&self) -> Result<(), ManagerLoopError> {
        let Some(lease) = &self.lease else {
            return Ok(());
        };
        while !lease.is_certain() {
            if lease.remaining_grace().is_zero() {
                return Err(ManagerLoopError::Deposed(None));
            }
            tokio::time::sleep(UNCERTAIN).await;
        }
        Ok(())
    }

    /// Merges job rows of accepted calls. Returns their events, and the applications that are
    /// ending.
    fn merge_jobs(
        &mut self,
        effects: &[ClusterEffect],
    ) -> (Vec<events::LoggedEvent>, BTreeSet<AppId>) {
        let (mut all, mut touched) = (Vec::new(), BTreeSet::new());
        for effect in effects {
            let ClusterEffect::Answer {
                call,
                answer: Ok(_),
            } = effect
            else {
                continue;
            };
            let Some(job) = self.waiting.get_mut(call).and_then(|w| w.job.take()) else {
                continue;
            };
            let (app, patch) = *job;
            let state = self.cluster.app(&app).map(|a| a.state);
            // The document of an ending job has its rows; changed ones alone must not replace it.
            let start = if state.is_some_and(|s| s.is_ending()) {
                RowCreation::WithAllRows
            } else {
                RowCreation::Allowed
            };
            let (events, taken) = self.shared.jobs.merge(&app, patch, start);
            all.extend(events);
            if taken && state.is_some_and(|s| s.is_ending()) {
                touched.insert(app);
            }
        }
        (all, touched)
    }

    /// Appends the records of the batch to the journal, and the rows of ending jobs to the
    /// documents. Returns the applications that have ended: afterwards their rows are only on disk.
    fn append_records(
        &mut self,
        effects: &[ClusterEffect],
        mut touched: BTreeSet<AppId>,
    ) -> Result<Vec<AppId>, ManagerLoopError> {
        let mut over = BTreeSet::new();
        for effect in effects {
            let ClusterEffect::Save(save) = effect else {
                continue;
            };
            if let DurableRecord::State { app, state } = &**save {
                match state.stage {
                    SavedStage::Finishing(_) => {
                        self.documents.remove_journal(app);
                        touched.insert(app.clone());
                    }
                    SavedStage::Ended(_) => {
                        self.documents.remove_journal(app);
                        touched.insert(app.clone());
                        over.insert(app.clone());
                    }
                    SavedStage::Accepted | SavedStage::Running => {}
                }
            }
            self.journal.append(save)?;
        }
        let mut ended = Vec::new();
        for app in touched {
            let Some(known) = self.cluster.app(&app) else {
                continue;
            };
            let Some(snapshot) = self.shared.jobs.snapshot(&app) else {
                continue;
            };
            self.documents
                .keep_job(app.clone(), snapshot.encode(MAX_VALUE));
            if over.contains(&app) {
                let at = known.ended.unwrap_or_else(|| self.clock.unix_now());
                let (user, rows) = (&known.spec.user, snapshot.rows());
                let enlarged = snapshot.enlarged();
                let update = self
                    .shared
                    .families
                    .learn(user, app.name(), at, rows, enlarged);
                update
                    .into_iter()
                    .for_each(|update| self.documents.keep_history(update));
            }
            if known.state.is_over() {
                ended.push(app);
            }
        }
        Ok(ended)
    }

    fn carry_out(&mut self, effects: Vec<ClusterEffect>) {
        for effect in effects {
            match effect {
                ClusterEffect::Save(save) => {
                    if let DurableRecord::AppGone(app) = *save {
                        self.shared.jobs.forget(&app);
                    }
                }
                ClusterEffect::Answer { call, answer } => {
                    if let Some(waiting) = self.waiting.remove(&call) {
                        // Fails if the caller has gone; the change is made anyway.
                        let _ = waiting.reply.send(answer);
                    }
                }
                ClusterEffect::SendCommand {
                    node,
                    container,
                    want,
                } => self.dispatch.queue_order(node, container, want),
                ClusterEffect::Update { app, update } => self.dispatch.update(app, update),
                ClusterEffect::UpdatesEnd { app } => self.dispatch.close_app(&app),
                ClusterEffect::Log(_) => {} // logged before
                ClusterEffect::Illegal { what } => {
                    error!(what, "a state machine ignored an invalid event")
                }
            }
        }
    }

    /// Logs the lines of a turn and the events of its jobs.
    fn log_all(&self, effects: &[ClusterEffect], events: Vec<events::LoggedEvent>) {
        let lines = effects.iter().filter_map(|effect| match effect {
            ClusterEffect::Log(line) => Some(self.event(line)),
            ClusterEffect::Save(_)
            | ClusterEffect::Answer { .. }
            | ClusterEffect::SendCommand { .. }
            | ClusterEffect::Update { .. }
            | ClusterEffect::UpdatesEnd { .. }
            | ClusterEffect::Illegal { .. } => None,
        });
        let all: Vec<events::LoggedEvent> = lines.chain(events).collect();
        self.shared.events.push(all);
    }

    /// The event of a line. Counts it, and logs it; the usual events of requests and containers,
    /// several per container, at the level *debug*.
    fn event(&self, line: &EventLogLine) -> events::LoggedEvent {
        self.count(line);
        let (reason, object, message) = (line.reason, line.object.to_string(), line.message());
        match (line.level, reason.topic()) {
            (LogSeverity::Normal, EventTopic::Request | EventTopic::Container) => {
                debug!(object, "{reason}: {message}");
            }
            (LogSeverity::Normal, _) => log_reason!(info, reason, object, "{reason}: {message}"),
            (LogSeverity::Warning, _) => log_reason!(warn, reason, object, "{reason}: {message}"),
        }
        let (now, level) = (self.clock.unix_now(), to_wire::level(line.level));
        events::LoggedEvent {
            app: line.app().cloned(),
            node: line.node.clone(),
            ..eventlog::event(now, level, reason, object, message)
        }
    }

    /// Counts decisions about requests for the metrics.
    fn count(&self, line: &EventLogLine) {
        let (decision, waited) = match (line.reason, &line.words) {
            (Reason::RequestGranted, LogMessage::Granted(_, _, waited)) => {
                (ContainerDecision::Granted, Some(*waited))
            }
            (Reason::NodeReserved, _) => (ContainerDecision::Reserved, None),
            (Reason::PreemptionWarning, _) => (ContainerDecision::Preempted, None),
            (Reason::RequestRefused, _) => (ContainerDecision::Refused, None),
            (Reason::RequestExpired, _) => (ContainerDecision::Expired, None),
            _ => return, // not a decision about a request
        };
        if let Some(app) = line.app().and_then(|app| self.cluster.app(app)) {
            self.shared.counters.decided(&app.queue, decision, waited);
        }
    }

    /// Opens streams and processes queries, from the durable state.
    fn answer_later(&mut self, input: LoopInput) {
        match input {
            LoopInput::WatchNode { node, epoch, reply } => {
                let allowed = query::may_watch_node(&self.cluster, &node, epoch);
                // Fails if the caller has gone; the stream then ends.
                let _ = reply.send(allowed.map(|()| {
                    self.dispatch
                        .open_node(node.clone(), self.cluster.commands_for(&node))
                }));
            }
            LoopInput::WatchJoinedNode {
                node,
                mut result,
                reply,
            } => {
                // The core answers each call in the same turn.
                let Ok(result) = result.try_recv() else {
                    return;
                };
                let opened = result.map(|answer| {
                    let missed = self.cluster.commands_for(&node);
                    (answer, self.dispatch.open_node(node, missed))
                });
                // Fails if the caller has gone; the stream then ends.
                let _ = reply.send(opened);
            }
            LoopInput::WatchApp {
                app,
                epoch,
                cursor,
                reply,
            } => {
                let missed = query::missed_updates(&self.cluster, &app, epoch, cursor);
                // Fails if the caller has gone; the stream then ends.
                let _ = reply.send(missed.map(|missed| self.dispatch.open_app(app, missed)));
            }
            LoopInput::Query(ClusterQuery::Refresh) => self.view_wanted = true,
            LoopInput::Query(other) => query::answer(&self.cluster, self.clock.now(), other),
            // These are never deferred.
            LoopInput::Call { .. }
            | LoopInput::JoinNode { .. }
            | LoopInput::Document(_)
            | LoopInput::Journal(_)
            | LoopInput::Stop => {}
        }
    }

    /// Makes a view if readers wait for one. A view of a large cluster takes long. The pause after
    /// it bounds the share of the loop's time; readers wait a little longer instead.
    fn show(&mut self) {
        if !self.is_view_due() {
            return;
        }
        let started = self.clock.now();
        self.view_wanted = false;
        if !self.shared.published.is_fresh() {
            self.publish();
            let ended = self.clock.now();
            self.next_view = ended.plus(ended.since(started) * VIEW_RESTS);
        }
    }

    fn is_view_due(&self) -> bool {
        self.view_wanted && self.clock.now() >= self.next_view
    }

    fn publish(&self) {
        let (batch, last) = (
            self.shared.published.batches(),
            self.shared.published.last(),
        );
        self.shared.published.publish(ClusterSnapshot::of(
            &self.cluster,
            self.clock.now(),
            batch,
            Some(&last),
        ));
    }

    /// Periodic work.
    fn run_periodic_work(&mut self) {
        let now = self.clock.now();
        let (published, cluster) = (&self.shared.published, &self.cluster);
        self.watchdog.feed(now, || {
            ClusterSnapshot::of(cluster, now, published.batches(), None).line()
        });
        if now >= self.next_look {
            self.next_look = now.plus(LOOK_EVERY);
            let lines = self.starving.look(&self.cluster, now);
            let events: Vec<_> = lines.iter().map(|line| self.event(line)).collect();
            self.shared.events.push(events);
        }
        if now >= self.next_snapshot {
            self.next_snapshot = now.plus(SNAPSHOT_EVERY);
            self.commits.snapshot();
        }
    }
}
