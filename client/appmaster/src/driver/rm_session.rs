//! The session with the resource manager: registration, a synchronisation each second and at once
//! after a change, and the report of the end.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_client::retry::Backoff;
use headroom_client::{CallFailureKind, ClientError};
use headroom_types::{AttemptId, ContainerId, Epoch, RequestId, Resource};
use headroom_wire::v1::application_master::{
    ApplicationUpdateKind, FinishApp, MasterRegistered, MasterSync, MasterSyncReply,
    PlacementRequest, PlacementVerdict, RegisterMaster,
};
use headroom_wire::v1::job::JobPatch;
use tokio::time::Instant;

use super::MasterDriver;
use crate::event::{JobEndKind, MasterEvent};
use crate::rm_link::{ManagerCall, RmEvent, RmLink, StreamPosition};
use crate::run_error::RunError;
use crate::spec::ExecutorEnvironment;

/// Interval between two synchronisations.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between reports of the job.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout for the first answer of the resource manager.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for which the end of a job is reported to a resource manager that does not answer.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);

/// The phase of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    /// The resource manager does not know this run yet.
    Registering,
    /// This run is registered.
    Known(Epoch),
    /// The end was reported, or the resource manager refused the report.
    Over,
}

/// The session with the resource manager.
pub(super) struct ManagerSession {
    link: RmLink,
    greeting: ExecutorEnvironment,
    attempt: AttemptId,
    stage: SessionPhase,
    /// A call is in progress.
    waiting: bool,
    next: Instant,
    backoff: Backoff,
    last_sync: Option<Instant>,
    silent_since: Instant,
    ever_known: bool,
    /// Requests that the resource manager accepted in this epoch.
    asked: BTreeMap<RequestId, PlacementRequest>,
    /// The requests of the synchronisation in progress.
    asking: Vec<PlacementRequest>,
    /// Requests that are sent again although they are unchanged, until a synchronisation is
    /// answered that acknowledges this cursor. The resource manager counts an acknowledged end
    /// again until it receives the master's own count. A synchronisation without an answer may or
    /// may not have been processed.
    owed: BTreeMap<RequestId, u64>,
    /// The cursor that the synchronisation in progress acknowledges.
    acking: u64,
    /// The patch of the report of the end in progress.
    last_patch: Option<JobPatch>,
}

impl ManagerSession {
    pub(super) fn new(link: RmLink, greeting: ExecutorEnvironment, attempt: AttemptId) -> Self {
        let now = Instant::now();
        ManagerSession {
            link,
            greeting,
            attempt,
            stage: SessionPhase::Registering,
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
        self.stage = SessionPhase::Registering;
        self.waiting = true;
        let body = RegisterMaster {
            attempt: self.attempt.clone(),
            master_url: Some(self.greeting.master_url.clone()),
        };
        self.link.call(ManagerCall::Register(body));
    }

    /// Time of the next call; `None` while an answer is pending.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting && self.stage != SessionPhase::Over).then_some(self.next)
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == SessionPhase::Over
    }

    /// Makes a call due at once, because requests have changed.
    pub(super) fn sync_now(&mut self) {
        self.next = Instant::now();
    }

    /// Makes a call due soon, because the job's view has changed.
    pub(super) fn has_news(&mut self) {
        let soon = self
            .last_sync
            .map_or_else(Instant::now, |at| at + REPORT_INTERVAL);
        self.next = self.next.min(soon);
    }

    /// Requests another size of a container; only a refusal is reported by an event.
    pub(super) fn resize(&self, container: ContainerId, resource: Resource) {
        self.link.resize(container, resource);
    }

    fn answered(&mut self) {
        self.waiting = false;
        self.backoff.reset();
        self.silent_since = Instant::now();
    }

    /// Marks all requests to be sent again, because the resource manager may not have the last
    /// ones.
    fn forget_asked(&mut self) {
        for request in std::mem::take(&mut self.asked).into_keys() {
            self.owed.entry(request).or_insert(0);
        }
    }

    /// Schedules a retry of the last call.
    fn again_later(&mut self) {
        self.waiting = false;
        self.next = Instant::now() + self.backoff.wait();
    }

    fn silent_for(&self) -> Duration {
        self.silent_since.elapsed()
    }
}

impl MasterDriver {
    /// Makes the call that is due.
    pub(super) fn make_due_call(&mut self) {
        match self.dialog.stage {
            SessionPhase::Registering => self.dialog.register(),
            SessionPhase::Known(epoch) => {
                let mut patch = self.core.take_patch();
                patch.totals.spans_dropped = self.traces.dropped();
                let last = self.outcome.is_some() && !self.core.has_unreported_changes();
                if last {
                    self.say_end(patch)
                } else {
                    self.say_sync(epoch, patch)
                }
            }
            SessionPhase::Over => {}
        }
    }

    fn say_sync(&mut self, epoch: Epoch, patch: JobPatch) {
        let asks = self.core.open_requests(&self.dialog.greeting);
        let d = &mut self.dialog;
        d.acking = self.core.acknowledged_cursor();
        let news = |ask: &PlacementRequest| {
            d.owed.contains_key(&ask.request) || d.asked.get(&ask.request) != Some(ask)
        };
        let changed: Vec<PlacementRequest> = asks.into_iter().filter(news).collect();
        let spent = self.core.spent_requests();
        let drop: Vec<RequestId> = spent
            .into_iter()
            .filter(|r| d.owed.contains_key(r) || d.asked.contains_key(r))
            .collect();
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
        d.next = Instant::now() + SYNC_INTERVAL;
        d.link.call(ManagerCall::Sync(Box::new(body)));
    }

    fn say_end(&mut self, patch: JobPatch) {
        let Some(outcome) = self.outcome.clone() else {
            return;
        };
        let d = &mut self.dialog;
        d.last_patch = Some(patch.clone());
        d.waiting = true;
        let succeeded = outcome.ending == JobEndKind::Succeeded;
        let body = FinishApp {
            attempt: d.attempt.clone(),
            succeeded,
            diagnostics: outcome.diagnostics,
            job: Some(patch),
        };
        d.link.call(ManagerCall::Finish(Box::new(body)));
    }

    pub(super) fn hear_rm(&mut self, event: RmEvent, url: &str) -> Result<(), RunError> {
        match event {
            RmEvent::Registered(Ok(registered)) => self.on_registered(registered),
            RmEvent::Registered(Err(error)) => return self.on_not_registered(error, url),
            RmEvent::Synced(Ok(reply)) => self.on_synced(reply),
            RmEvent::Synced(Err((error, patch))) => {
                if let Some(patch) = patch {
                    self.core.restore_patch(*patch);
                }
                self.on_sync_failed(&error);
            }
            RmEvent::Finished(Ok(())) => self.dialog.stage = SessionPhase::Over,
            RmEvent::Finished(Err(error)) => self.on_finish_failed(&error),
            RmEvent::Update(epoch, update) => {
                if self.dialog.stage == SessionPhase::Known(epoch) {
                    let what = update.what;
                    if let ApplicationUpdateKind::Exited { request, .. } = &what {
                        self.dialog.owed.insert(request.clone(), update.cursor);
                    }
                    if !matches!(what, ApplicationUpdateKind::Alive) {
                        tracing::debug!(cursor = update.cursor, ?what, "update");
                    }
                    self.step(MasterEvent::Update {
                        cursor: update.cursor,
                        what,
                    });
                }
            }
            RmEvent::NotResized(container, refusal) => {
                tracing::debug!(%container, ?refusal, "the container keeps its size for now");
                self.step(MasterEvent::ResizeRefused { container, refusal });
            }
            RmEvent::Stale(epoch) => {
                if self.dialog.stage == SessionPhase::Known(epoch) && !self.dialog.waiting {
                    self.dialog.register();
                } else if self.dialog.stage == SessionPhase::Known(epoch) {
                    // The answer in progress finds the new phase, and triggers the registration.
                    self.dialog.stage = SessionPhase::Registering;
                }
            }
        }
        Ok(())
    }

    fn on_registered(&mut self, registered: MasterRegistered) {
        let MasterRegistered {
            epoch,
            largest,
            containers,
            cursor,
            known,
            traces,
        } = registered;
        tracing::info!(%epoch, %largest, containers = containers.len(), "registered with the resource manager");
        self.traces.select_collector(traces.as_deref());
        let d = &mut self.dialog;
        d.answered();
        (d.stage, d.ever_known) = (SessionPhase::Known(epoch), true);
        d.asked.clear();
        d.owed.values_mut().for_each(|cursor| *cursor = 0); // a new epoch restarts the numbering of updates
        d.next = Instant::now();
        d.link.listen(StreamPosition { epoch, cursor });
        if let Some(family) = known {
            self.step(MasterEvent::Known(family));
        }
        self.step(MasterEvent::Registered {
            epoch,
            largest,
            containers,
            cursor,
        });
    }

    fn on_not_registered(&mut self, error: ClientError, url: &str) -> Result<(), RunError> {
        let never = error.code().is_some_and(|code| !code.retryable());
        if never {
            return Err(RunError::Refused(error));
        }
        if !self.dialog.ever_known
            && self.dialog.silent_for() > FIRST_ANSWER_TIMEOUT
            && error.code().is_none()
        {
            return Err(RunError::Unreachable {
                url: url.to_owned(),
                source: error,
            });
        }
        tracing::debug!(%error, "not registered yet");
        self.dialog.again_later();
        Ok(())
    }

    fn on_synced(&mut self, reply: MasterSyncReply) {
        self.dialog.answered();
        if self.dialog.stage == SessionPhase::Registering {
            self.dialog.register();
            return;
        }
        if reply.stop && self.outcome.is_none() {
            tracing::warn!("the application was killed");
            self.step(MasterEvent::Stop);
        }
        let acked = self.dialog.acking;
        self.dialog.owed.retain(|_, cursor| *cursor > acked);
        let asking = std::mem::take(&mut self.dialog.asking);
        for ask in asking {
            let verdict = reply
                .verdicts
                .iter()
                .find(|v| v.request == ask.request)
                .map(|v| v.verdict.clone());
            match verdict {
                Some(PlacementVerdict::Never { sentence, largest }) => {
                    tracing::warn!(request = %ask.request, "the resource manager refused an infeasible request: {sentence}");
                    self.step(MasterEvent::Refused {
                        request: ask.request,
                        sentence,
                        largest,
                    });
                }
                Some(PlacementVerdict::Fits | PlacementVerdict::Waits { .. }) | None => {
                    self.dialog.asked.insert(ask.request.clone(), ask);
                }
            }
        }
    }

    fn on_sync_failed(&mut self, error: &ClientError) {
        self.dialog.asking.clear();
        match error.failure_kind() {
            CallFailureKind::Stale => {
                tracing::info!("the resource manager restarted, registering again");
                self.dialog.register();
            }
            CallFailureKind::Gone => {
                tracing::warn!(%error, "the resource manager no longer knows this master, ending");
                self.step(MasterEvent::Stop);
                self.dialog.stage = SessionPhase::Over;
            }
            CallFailureKind::TooOld | CallFailureKind::Refused => {
                tracing::warn!(%error, "the resource manager refused a sync, retrying");
                self.dialog.forget_asked();
                self.dialog.again_later();
            }
            CallFailureKind::Silent => {
                tracing::debug!(%error, "the resource manager does not answer, retrying");
                self.dialog.forget_asked();
                self.dialog.again_later();
                if self.outcome.is_some() && self.dialog.silent_for() > FINISH_TIMEOUT {
                    self.dialog.stage = SessionPhase::Over;
                }
            }
        }
        if self.dialog.stage == SessionPhase::Registering && !self.dialog.waiting {
            self.dialog.register();
        }
    }

    fn on_finish_failed(&mut self, error: &ClientError) {
        if let Some(patch) = self.dialog.last_patch.take() {
            self.core.restore_patch(patch);
        }
        match error.failure_kind() {
            CallFailureKind::Stale => self.dialog.register(),
            CallFailureKind::Gone => self.dialog.stage = SessionPhase::Over,
            CallFailureKind::TooOld | CallFailureKind::Refused | CallFailureKind::Silent
                if self.dialog.silent_for() > FINISH_TIMEOUT =>
            {
                tracing::error!(%error, "cannot report the end of the job");
                self.dialog.stage = SessionPhase::Over;
            }
            CallFailureKind::TooOld | CallFailureKind::Refused | CallFailureKind::Silent => {
                self.dialog.again_later()
            }
        }
    }
}
