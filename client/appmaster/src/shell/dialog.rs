//! What is said to the resource manager, and when: registration, one sync a second and at once on a change, and the end.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_client::{ClientError, Standing};
use headroom_types::{AttemptId, ContainerId, Epoch, RequestId, Resource};
use headroom_wire::v1::am::{Ask, AskVerdict, FinishApp, MasterSync, MasterSyncReply, RegisterMaster, Registered, UpdateKind};
use headroom_wire::v1::job::JobPatch;
use tokio::time::Instant;

use super::Shell;
use crate::event::{Ending, Event};
use crate::rm_link::{Call, From, RmEvent, RmLink};
use crate::run::RunError;
use crate::spec::Greeting;

/// The usual time between two syncs.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// News of the job is told no more often than this.
const NEWS: Duration = Duration::from_millis(200);
/// A resource manager that never answered is waited for this long.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// The end of a job is told for this long to a resource manager that does not answer.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// Where the conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It does not know this run yet.
    Registering,
    /// It does.
    Known(Epoch),
    /// It was told the end, or does not want to hear it.
    Over,
}

/// The conversation with the resource manager.
pub(super) struct Dialog {
    link: RmLink,
    greeting: Greeting,
    attempt: AttemptId,
    stage: Stage,
    /// A call is under way.
    waiting: bool,
    next: Instant,
    backoff: Backoff,
    last_sync: Option<Instant>,
    silent_since: Instant,
    ever_known: bool,
    /// What it was asked for in this epoch.
    asked: BTreeMap<RequestId, Ask>,
    /// The asks of the sync under way.
    asking: Vec<Ask>,
    /// Requests that are told again although nothing has changed, until a sync is answered that acknowledges so much: the resource
    /// manager counts an end once more when it is acknowledged, until it hears the master's own count with it. What a sync without
    /// an answer told may or may not have been taken in.
    owed: BTreeMap<RequestId, u64>,
    /// What the sync under way acknowledges.
    acking: u64,
    /// The patch of the end under way.
    last_patch: Option<JobPatch>,
}

impl Dialog {
    pub(super) fn new(link: RmLink, greeting: Greeting, attempt: AttemptId) -> Self {
        let now = Instant::now();
        Dialog {
            link,
            greeting,
            attempt,
            stage: Stage::Registering,
            waiting: false,
            next: now,
            backoff: Backoff::usual(),
            last_sync: None,
            silent_since: now,
            ever_known: false,
            asked: BTreeMap::new(),
            asking: Vec::new(),
            owed: BTreeMap::new(),
            acking: 0,
            last_patch: None,
        }
    }

    pub(super) fn register(&mut self) {
        self.stage = Stage::Registering;
        self.waiting = true;
        let body = RegisterMaster { attempt: self.attempt.clone(), master_url: Some(self.greeting.master_url.clone()) };
        self.link.call(Call::Register(body));
    }

    /// When to speak next; `None` while an answer is awaited.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting && self.stage != Stage::Over).then_some(self.next)
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Wishes have changed: speak at once.
    pub(super) fn hurry(&mut self) {
        self.next = Instant::now();
    }

    /// The job's view has changed: speak soon.
    pub(super) fn has_news(&mut self) {
        let soon = self.last_sync.map_or_else(Instant::now, |at| at + NEWS);
        self.next = self.next.min(soon);
    }

    /// Another size for a container; the answer is told by an event only when it is a refusal.
    pub(super) fn resize(&self, container: ContainerId, resource: Resource) {
        self.link.resize(container, resource);
    }

    fn answered(&mut self) {
        self.waiting = false;
        self.backoff.reset();
        self.silent_since = Instant::now();
    }

    /// What it was asked for may not be so any more: everything is told again.
    fn forget_asked(&mut self) {
        for request in std::mem::take(&mut self.asked).into_keys() {
            self.owed.entry(request).or_insert(0);
        }
    }

    /// No use was made of the last call: later again.
    fn again_later(&mut self) {
        self.waiting = false;
        self.next = Instant::now() + self.backoff.wait();
    }

    fn silent_for(&self) -> Duration {
        self.silent_since.elapsed()
    }
}

impl Shell {
    /// The time to speak has come.
    pub(super) fn speak(&mut self) {
        match self.dialog.stage {
            Stage::Registering => self.dialog.register(),
            Stage::Known(epoch) => {
                let mut patch = self.core.take_patch();
                patch.totals.spans_dropped = self.traces.dropped();
                let last = self.outcome.is_some() && !self.core.has_news();
                if last { self.say_end(patch) } else { self.say_sync(epoch, patch) }
            }
            Stage::Over => {}
        }
    }

    fn say_sync(&mut self, epoch: Epoch, patch: JobPatch) {
        let asks = self.core.asks(&self.dialog.greeting);
        let d = &mut self.dialog;
        d.acking = self.core.acknowledged();
        let news = |ask: &Ask| d.owed.contains_key(&ask.request) || d.asked.get(&ask.request) != Some(ask);
        let changed: Vec<Ask> = asks.into_iter().filter(news).collect();
        let spent = self.core.spent_requests();
        let drop: Vec<RequestId> = spent.into_iter().filter(|r| d.owed.contains_key(r) || d.asked.contains_key(r)).collect();
        for request in &drop {
            d.asked.remove(request);
            d.owed.entry(request.clone()).or_insert(0);
        }
        let body = MasterSync {
            attempt: d.attempt.clone(),
            epoch,
            ack: d.acking,
            asks: changed.clone(),
            drop,
            release: self.core.releases(),
            job: Some(patch),
        };
        d.asking = changed;
        d.waiting = true;
        d.last_sync = Some(Instant::now());
        d.next = Instant::now() + HEARTBEAT;
        d.link.call(Call::Sync(Box::new(body)));
    }

    fn say_end(&mut self, patch: JobPatch) {
        let Some(outcome) = self.outcome.clone() else { return };
        let d = &mut self.dialog;
        d.last_patch = Some(patch.clone());
        d.waiting = true;
        let succeeded = outcome.ending == Ending::Succeeded;
        let body = FinishApp { attempt: d.attempt.clone(), succeeded, diagnostics: outcome.diagnostics, job: Some(patch) };
        d.link.call(Call::Finish(Box::new(body)));
    }

    pub(super) fn hear_rm(&mut self, event: RmEvent, url: &str) -> Result<(), RunError> {
        match event {
            RmEvent::Registered(Ok(registered)) => self.on_registered(registered),
            RmEvent::Registered(Err(error)) => return self.on_not_registered(error, url),
            RmEvent::Synced(Ok(reply)) => self.on_synced(reply),
            RmEvent::Synced(Err((error, patch))) => {
                if let Some(patch) = patch {
                    self.core.put_back(*patch);
                }
                self.on_sync_failed(&error);
            }
            RmEvent::Finished(Ok(())) => self.dialog.stage = Stage::Over,
            RmEvent::Finished(Err(error)) => self.on_finish_failed(&error),
            RmEvent::Update(epoch, update) => {
                if self.dialog.stage == Stage::Known(epoch) {
                    let what = update.what;
                    if let UpdateKind::Exited { request, .. } = &what {
                        self.dialog.owed.insert(request.clone(), update.cursor);
                    }
                    if !matches!(what, UpdateKind::Alive) {
                        tracing::debug!(cursor = update.cursor, ?what, "update");
                    }
                    self.step(Event::Update { cursor: update.cursor, what });
                }
            }
            RmEvent::NotResized(container, refusal) => {
                tracing::debug!(%container, ?refusal, "the container keeps its size for now");
                self.step(Event::ResizeRefused { container, refusal });
            }
            RmEvent::Stale(epoch) => {
                if self.dialog.stage == Stage::Known(epoch) && !self.dialog.waiting {
                    self.dialog.register();
                } else if self.dialog.stage == Stage::Known(epoch) {
                    // The answer under way goes to a stage that is over: it will ask for a registration itself.
                    self.dialog.stage = Stage::Registering;
                }
            }
        }
        Ok(())
    }

    fn on_registered(&mut self, registered: Registered) {
        let Registered { epoch, largest, containers, cursor, known, traces } = registered;
        tracing::info!(%epoch, %largest, containers = containers.len(), "registered with the resource manager");
        self.traces.told(traces.as_deref());
        let d = &mut self.dialog;
        d.answered();
        (d.stage, d.ever_known) = (Stage::Known(epoch), true);
        d.asked.clear();
        d.owed.values_mut().for_each(|cursor| *cursor = 0); // another life counts its updates anew
        d.next = Instant::now();
        d.link.listen(From { epoch, cursor });
        if let Some(family) = known {
            self.step(Event::Known(family));
        }
        self.step(Event::Registered { epoch, largest, containers, cursor });
    }

    fn on_not_registered(&mut self, error: ClientError, url: &str) -> Result<(), RunError> {
        let never = error.code().is_some_and(|code| !code.retryable());
        if never {
            return Err(RunError::Refused(error));
        }
        if !self.dialog.ever_known && self.dialog.silent_for() > FIRST_ANSWER && error.code().is_none() {
            return Err(RunError::Unreachable { url: url.to_owned(), source: error });
        }
        tracing::debug!(%error, "not registered yet");
        self.dialog.again_later();
        Ok(())
    }

    fn on_synced(&mut self, reply: MasterSyncReply) {
        self.dialog.answered();
        if self.dialog.stage == Stage::Registering {
            self.dialog.register();
            return;
        }
        if reply.stop && self.outcome.is_none() {
            tracing::warn!("the application was killed");
            self.step(Event::Stop);
        }
        let acked = self.dialog.acking;
        self.dialog.owed.retain(|_, cursor| *cursor > acked);
        let asking = std::mem::take(&mut self.dialog.asking);
        for ask in asking {
            let verdict = reply.verdicts.iter().find(|v| v.request == ask.request).map(|v| v.verdict.clone());
            match verdict {
                Some(AskVerdict::Never { sentence, largest }) => {
                    tracing::warn!(request = %ask.request, "refused for ever: {sentence}");
                    self.step(Event::Refused { request: ask.request, sentence, largest });
                }
                Some(AskVerdict::Fits | AskVerdict::Waits { .. }) | None => {
                    self.dialog.asked.insert(ask.request.clone(), ask);
                }
            }
        }
    }

    fn on_sync_failed(&mut self, error: &ClientError) {
        self.dialog.asking.clear();
        match error.standing() {
            Standing::Stale => {
                tracing::info!("the resource manager has begun another life, registering again");
                self.dialog.register();
            }
            Standing::Gone => {
                tracing::warn!(%error, "the resource manager does not know this master any more, ending");
                self.step(Event::Stop);
                self.dialog.stage = Stage::Over;
            }
            Standing::TooOld | Standing::Refused => {
                tracing::warn!(%error, "the resource manager did not take a sync, trying again");
                self.dialog.forget_asked();
                self.dialog.again_later();
            }
            Standing::Silent => {
                tracing::debug!(%error, "the resource manager does not answer, trying again");
                self.dialog.forget_asked();
                self.dialog.again_later();
                if self.outcome.is_some() && self.dialog.silent_for() > LAST_WORDS {
                    self.dialog.stage = Stage::Over;
                }
            }
        }
        if self.dialog.stage == Stage::Registering && !self.dialog.waiting {
            self.dialog.register();
        }
    }

    fn on_finish_failed(&mut self, error: &ClientError) {
        if let Some(patch) = self.dialog.last_patch.take() {
            self.core.put_back(patch);
        }
        match error.standing() {
            Standing::Stale => self.dialog.register(),
            Standing::Gone => self.dialog.stage = Stage::Over,
            Standing::TooOld | Standing::Refused | Standing::Silent if self.dialog.silent_for() > LAST_WORDS => {
                tracing::error!(%error, "the end of the job could not be told");
                self.dialog.stage = Stage::Over;
            }
            Standing::TooOld | Standing::Refused | Standing::Silent => self.dialog.again_later(),
        }
    }
}
