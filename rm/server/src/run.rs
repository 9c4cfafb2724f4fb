//! The loop: owns the cluster, the journal and the mailboxes, and is the only place where any of them changes.
//!
//! One turn takes in what has come, saves what follows, and only then lets anything out: answers, lines to nodes and masters,
//! the event log. Questions are answered last, so that they see what was answered before. While a batch is being written, the
//! next one gathers in the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core::{Answered, CallId, Cluster, Effect, Event, Level, LogLine, Save, SavedStage, Settings};
use headroom_rm_store::{DiskStore, Journal, MAX_VALUE, Opened, StoreError};
use headroom_types::{AppId, Tick};
use headroom_wire::v1::events;
use headroom_wire::v1::job::JobPatch;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::dispatch::Dispatch;
use crate::eventlog::EventLog;
use crate::input::{Input, Published, Query};
use crate::jobs::{Jobs, Snapshot, Start};
use crate::notify::Watchdog;
use crate::outgoing;
use crate::query;
use crate::view::View;

/// Most inputs of one batch.
const BATCH: usize = 512;
/// The loop turns at least so often.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A turn that comes later than this was held up from outside: silence of others in that time proves nothing.
const HELD_UP: Duration = Duration::from_secs(3);
/// After a view was made, the next one waits for so many times as long as this one took.
const VIEW_RESTS: u32 = 4;
/// How often a copy of the records is written beside the database.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(600);

/// Why the loop ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// What had to be saved could not be.
    #[error("the state could not be saved, so nothing more is accepted")]
    Store(#[from] StoreError),
    /// The thread that writes is gone.
    #[error("the thread that writes the state ended by itself, so nothing more is accepted")]
    Writer,
}

/// What the loop shares with readers.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) published: Arc<Published>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) jobs: Arc<Jobs>,
}

/// The owner of everything.
#[derive(Debug)]
pub(crate) struct Owner {
    clock: Clock,
    cluster: Cluster,
    /// Away only while a batch is written.
    journal: Option<Journal<DiskStore>>,
    inputs: mpsc::Receiver<Input>,
    shared: Shared,
    dispatch: Dispatch,
    watchdog: Watchdog,
    effects: Vec<Effect>,
    waiting: BTreeMap<CallId, Waiting>,
    /// Answered after the batch.
    later: Vec<Input>,
    calls: u64,
    last_turn: Tick,
    next_snapshot: Tick,
    /// Readers wait for a view.
    view_wanted: bool,
    /// The next one is made then at the earliest.
    next_view: Tick,
}

/// Somebody waits for an answer.
#[derive(Debug)]
struct Waiting {
    reply: oneshot::Sender<Answered>,
    job: Option<Box<(AppId, JobPatch)>>,
}

/// Whether the loop goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    GoOn,
    End,
}

impl Owner {
    /// Takes over what was saved.
    pub(crate) fn new(opened: Opened, settings: Settings, clock: Clock, inputs: mpsc::Receiver<Input>, shared: Shared) -> Self {
        let now = clock.now();
        let epoch = opened.restored.epoch;
        Owner {
            clock,
            cluster: Cluster::new(settings, opened.restored, now),
            journal: Some(opened.journal),
            inputs,
            shared,
            dispatch: Dispatch::new(epoch),
            watchdog: Watchdog::from_environment(),
            effects: Vec::new(),
            waiting: BTreeMap::new(),
            later: Vec::new(),
            calls: 0,
            last_turn: now,
            next_snapshot: now.plus(SNAPSHOT_EVERY),
            view_wanted: false,
            next_view: now,
        }
    }

    /// Runs until it is told to stop, or can no longer save.
    pub(crate) async fn run(mut self) -> Result<(), Ended> {
        self.begin();
        self.settle().await?;
        loop {
            let first = self.next_input().await;
            let turn = self.take_in(first);
            self.settle().await?;
            self.chores().await?;
            if turn == Turn::End {
                return self.end().await;
            }
        }
    }

    fn begin(&mut self) {
        let message = format!("life {} of the resource manager begins", self.cluster.epoch());
        let object = "resourcemanager".to_owned();
        let line = LogLine { level: Level::Normal, reason: "ResourceManagerStarted", object, app: None, node: None, message };
        self.effects.push(Effect::Log(line));
        self.cluster.step(self.clock.now(), Event::Time, &mut self.effects);
    }

    /// Waits for something to do: an input, a deadline, or the heartbeat.
    async fn next_input(&mut self) -> Option<Input> {
        let beat = self.clock.now().plus(HEARTBEAT);
        let mut until = self.cluster.next_deadline().map_or(beat, |deadline| deadline.min(beat));
        if self.view_wanted {
            until = until.min(self.next_view);
        }
        tokio::time::timeout_at(self.clock.instant(until), self.inputs.recv()).await.map_or(None, |input| {
            // Nobody is left who could ask for anything.
            Some(input.unwrap_or(Input::Stop))
        })
    }

    /// One batch: what has come, and the deadlines that are due.
    fn take_in(&mut self, first: Option<Input>) -> Turn {
        let now = self.clock.now();
        let gap = now.since(self.last_turn);
        self.last_turn = now;
        if gap > HELD_UP {
            warn!(seconds = gap.as_secs_f32(), "the loop was held up; deadlines of others are moved by as much");
            self.cluster.step(now, Event::Stalled(gap), &mut self.effects);
        }
        let mut turn = Turn::GoOn;
        let mut next = first;
        for _ in 0..BATCH {
            let Some(input) = next.take() else { break };
            turn = self.input(now, input);
            if turn == Turn::End {
                break;
            }
            next = self.inputs.try_recv().ok();
        }
        if let Some(input) = next {
            turn = self.input(now, input);
        }
        if self.cluster.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.cluster.step(now, Event::Time, &mut self.effects);
        }
        turn
    }

    fn input(&mut self, now: Tick, input: Input) -> Turn {
        match input {
            Input::Call { what, job, reply } => {
                self.calls += 1;
                let call = CallId(self.calls);
                self.waiting.insert(call, Waiting { reply, job });
                self.cluster.step(now, Event::Call { call, what: *what }, &mut self.effects);
                Turn::GoOn
            }
            Input::WatchNode { .. } | Input::WatchApp { .. } | Input::Query(_) => {
                self.later.push(input);
                Turn::GoOn
            }
            Input::Stop => Turn::End,
        }
    }

    /// Saves what must be saved, then lets the rest out, in order.
    async fn settle(&mut self) -> Result<(), Ended> {
        let effects = std::mem::take(&mut self.effects);
        if !effects.is_empty() {
            self.shared.published.outdate();
            let (events, touched) = self.merge_jobs(&effects);
            self.save(&effects, touched).await?;
            self.carry_out(effects);
            self.dispatch.send();
            self.shared.events.push(events);
        }
        for input in std::mem::take(&mut self.later) {
            self.answer_later(input);
        }
        self.show();
        Ok(())
    }

    /// Rows that came with calls the core accepted. Their events, and the applications whose end is decided.
    fn merge_jobs(&mut self, effects: &[Effect]) -> (Vec<events::Event>, BTreeSet<AppId>) {
        let (mut all, mut touched) = (Vec::new(), BTreeSet::new());
        for effect in effects {
            let Effect::Answer { call, answer: Ok(_) } = effect else { continue };
            let Some(job) = self.waiting.get_mut(call).and_then(|w| w.job.take()) else { continue };
            let (app, patch) = *job;
            let state = self.cluster.app(&app).map(|a| a.state);
            let start = if state.is_some_and(|s| s.is_over()) { Start::WithAllRows } else { Start::Allowed };
            let (events, taken) = self.shared.jobs.merge(&app, patch, start);
            all.extend(events);
            if taken && state.is_some_and(|s| s.is_ending()) {
                touched.insert(app);
            }
        }
        (all, touched)
    }

    /// Writes the batch in a thread that may block. The runtime goes on, and so does the gathering of the next batch.
    async fn save(&mut self, effects: &[Effect], mut touched: BTreeSet<AppId>) -> Result<(), Ended> {
        let Some(mut journal) = self.journal.take() else { return Err(Ended::Writer) };
        for effect in effects {
            let Effect::Save(save) = effect else { continue };
            if let Save::State { app, state } = save {
                match state.stage {
                    SavedStage::Finishing(_) | SavedStage::Ended(_) => {
                        touched.insert(app.clone());
                    }
                    SavedStage::Accepted | SavedStage::Running => {}
                }
            }
            journal.append(save)?;
        }
        touched.retain(|app| self.cluster.app(app).is_some());
        let documents: Vec<(AppId, Snapshot)> =
            touched.into_iter().filter_map(|app| Some((app.clone(), self.shared.jobs.snapshot(&app)?))).collect();
        if journal.is_empty() && documents.is_empty() {
            self.journal = Some(journal);
            return Ok(());
        }
        let written = tokio::task::spawn_blocking(move || {
            let apps: Vec<AppId> = documents.iter().map(|(app, _)| app.clone()).collect();
            for (app, snapshot) in documents {
                journal.append_document(&app, snapshot.encode(MAX_VALUE))?;
            }
            journal.commit().map(|()| (journal, apps))
        });
        let (journal, apps) = written.await.map_err(|_| Ended::Writer)??;
        self.journal = Some(journal);
        for app in apps.iter().filter(|app| self.cluster.app(app).is_none_or(|a| a.state.is_over())) {
            self.shared.jobs.forget(app);
        }
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Save(Save::AppGone(app)) => self.shared.jobs.forget(&app),
                Effect::Save(_) => {}
                Effect::Answer { call, answer } => {
                    if let Some(waiting) = self.waiting.remove(&call) {
                        // The caller may have given up; what was done stays done.
                        let _ = waiting.reply.send(answer);
                    }
                }
                Effect::Tell { node, container, want } => self.dispatch.tell(node, container, want),
                Effect::Update { app, update } => self.dispatch.update(app, update),
                Effect::UpdatesEnd { app } => self.dispatch.close_app(&app),
                Effect::Log(line) => self.log(line),
                Effect::Illegal { what } => {
                    error!(what, "a state machine was given an event it has no answer to; nothing changed")
                }
            }
        }
    }

    fn log(&self, line: LogLine) {
        let LogLine { level, reason, object, app, node, message } = line;
        match level {
            Level::Normal => info!(object, "{reason}: {message}"),
            Level::Warning => warn!(object, "{reason}: {message}"),
        }
        let (level, reason, time) = (outgoing::level(level), reason.to_owned(), self.clock.unix_now());
        self.shared.events.push([events::Event { index: 0, time, level, reason, object, app, node, message }]);
    }

    /// Lines are opened and questions answered from what is durable.
    fn answer_later(&mut self, input: Input) {
        match input {
            Input::WatchNode { node, epoch, reply } => {
                let allowed = query::may_watch_node(&self.cluster, &node, epoch);
                // Whoever does not wait any more does not listen either.
                let _ = reply.send(allowed.map(|()| self.dispatch.open_node(node.clone(), self.cluster.desired(&node))));
            }
            Input::WatchApp { app, epoch, cursor, reply } => {
                let missed = query::missed_updates(&self.cluster, &app, epoch, cursor);
                // As above.
                let _ = reply.send(missed.map(|missed| self.dispatch.open_app(app, missed)));
            }
            Input::Query(Query::Refresh) => self.view_wanted = true,
            Input::Query(other) => query::answer(&self.cluster, self.clock.now(), other),
            Input::Call { .. } | Input::Stop => {} // never put off
        }
    }

    /// Makes a view when somebody waits for one. The larger the cluster, the longer that takes; whatever readers ask for, it takes
    /// a part of the loop's time only, and they wait a little longer instead.
    fn show(&mut self) {
        let begun = self.clock.now();
        if !self.view_wanted || begun < self.next_view {
            return;
        }
        self.view_wanted = false;
        if !self.shared.published.is_fresh() {
            self.publish();
            let ended = self.clock.now();
            self.next_view = ended.plus(ended.since(begun) * VIEW_RESTS);
        }
    }

    fn publish(&self) {
        let (batch, last) = (self.shared.published.batches(), self.shared.published.last());
        self.shared.published.publish(View::of(&self.cluster, self.clock.now(), batch, Some(&last)));
    }

    /// What is due by the clock alone.
    async fn chores(&mut self) -> Result<(), Ended> {
        let now = self.clock.now();
        let (published, cluster) = (&self.shared.published, &self.cluster);
        self.watchdog.feed(now, || View::of(cluster, now, published.batches(), None).line());
        if now >= self.next_snapshot {
            self.next_snapshot = now.plus(SNAPSHOT_EVERY);
            self.snapshot().await?;
        }
        Ok(())
    }

    async fn snapshot(&mut self) -> Result<(), Ended> {
        let Some(mut journal) = self.journal.take() else { return Err(Ended::Writer) };
        let written = tokio::task::spawn_blocking(move || (journal.snapshot(), journal));
        let (path, journal) = written.await.map_err(|_| Ended::Writer)?;
        self.journal = Some(journal);
        if let Err(error) = path {
            warn!(error = &error as &dyn std::error::Error, "no copy of the state was written, going on");
        }
        Ok(())
    }

    /// Nothing is owed to anybody any more: all that was accepted is saved. Lines end when this does.
    async fn end(mut self) -> Result<(), Ended> {
        self.snapshot().await
    }
}
