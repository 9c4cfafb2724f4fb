//! The session with the resource manager as a state machine: registration, a synchronisation each
//! second and at once after a change, the stream of updates, requests for container sizes, and the
//! report of the end.
//!
//! The session opens no socket and reads no clock. Its inputs are commands of the core, the time,
//! answers, and updates of the stream. Its effects are calls, a stream to open, and events for the
//! core. The driver and the simulation carry them out.
//!
//! ```text
//!               registered                  HR0410, or the cursor is too old
//! Registering ─────────────► Known(epoch) ───────────────────────────────────► Registering
//!      │                          │
//!      │ refused, or no answer    │ end reported; HR0404; HR0409: a later attempt, which adopts
//!      │                          │ the executors; no answer to the end for 60 s
//!      ▼                          ▼
//! SessionFailure                 Over
//! ```

mod requests;
mod stream;

use std::collections::VecDeque;
use std::time::Duration;

use headroom_client::retry::ExponentialBackoff;
use headroom_client::{CallFailureKind, ClientError, LiveContainers};
use headroom_types::{AttemptId, ContainerId, Epoch, RequestId, Resource, Tick};
use headroom_wire::v1::application_master::{
    ApplicationUpdate, ApplicationUpdateKind, FinishApplicationRequest, MasterRegistered,
    MasterSync, MasterSyncReply, PlacementRequest, PlacementVerdict, RegisterMaster,
};
use headroom_wire::v1::apps::ResizeContainer;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::job::JobViewPatch;
use headroom_wire::v1::known_containers::ContainerNumbers;

use crate::core::MasterCore;
use crate::event::{JobEndKind, JobOutcome, MasterEvent, SizeRefusal};
use crate::spec::ExecutorEnvironment;
use requests::{RequestChanges, SentRequests};
use stream::UpdateStream;
pub use stream::{StreamNumber, StreamPosition};

/// Interval between two synchronisations.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between reports of the job.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout for the first answer of the resource manager.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for which the end of a job is reported to a resource manager that does not answer.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of waiting size requests.
const MAX_QUEUED_RESIZES: usize = 256;

/// A call to the resource manager.
#[derive(Debug)]
pub enum ManagerCall {
    /// Registers this master.
    Register(RegisterMaster),
    /// Sends the heartbeat and the requests.
    Sync(Box<MasterSync>),
    /// Reports the end of the job.
    Finish(Box<FinishApplicationRequest>),
}

/// An input of the session from the resource manager.
#[derive(Debug)]
pub enum SessionInput {
    /// The answer to a registration.
    Registered(Result<MasterRegistered, ClientError>),
    /// The answer to a synchronisation.
    Synced(Result<MasterSyncReply, UnacceptedReport>),
    /// The answer to the report of the end.
    Finished(Result<(), UnacceptedReport>),
    /// The answer to a size request. An update reports an accepted size.
    Resized(Result<(), ClientError>),
    /// An update of the stream.
    Update(StreamNumber, Box<ApplicationUpdate>),
    /// The stream could not be opened or has ended; `None` if it ended without an error.
    StreamClosed(StreamNumber, Option<ClientError>),
}

/// A failed report of the job, with the rows that the resource manager did not accept.
#[derive(Debug)]
pub struct UnacceptedReport {
    /// The error of the call.
    pub error: ClientError,
    /// The rows; `None` if the call had none.
    pub patch: Option<Box<JobViewPatch>>,
}

/// An action for the shell of the session. The order is binding.
#[derive(Debug)]
pub enum SessionEffect {
    /// Make this call, and report the answer. At most one call is in progress.
    Call(ManagerCall),
    /// Request another size of this container, and report the answer. At most one such request is
    /// in progress, beside the other calls.
    Resize(ContainerId, ResizeContainer),
    /// Read the stream of updates after this position, instead of any other stream.
    OpenStream(StreamNumber, StreamPosition),
    /// The core processes this event.
    Event(MasterEvent),
    /// The core restores these rows, because the resource manager did not accept them.
    RestorePatch(Box<JobViewPatch>),
    /// The OTLP/HTTP address for traces that the resource manager names; `None` without a
    /// collector.
    SelectCollector(Option<String>),
}

/// The reason why a session cannot begin.
#[derive(Debug)]
pub enum SessionFailure {
    /// The resource manager refused the registration, and a retry would not succeed.
    Refused(ClientError),
    /// The resource manager did not answer for 30 seconds.
    Unreachable(ClientError),
}

/// The state of the job that a synchronisation reports.
#[derive(Debug)]
pub struct JobReport {
    /// Changed rows.
    pub patch: JobViewPatch,
    /// True if the rows are complete: no other change waits for the next report.
    pub complete: bool,
    /// Cursor up to which all updates are recorded.
    pub acknowledged: u64,
    /// All open requests.
    pub open: Vec<PlacementRequest>,
    /// Requests that need no further containers.
    pub spent: Vec<RequestId>,
    /// Containers to stop.
    pub releases: Vec<ContainerId>,
}

impl JobReport {
    /// The report of a core. It removes the changed rows from the core.
    pub fn of(core: &mut MasterCore, environment: &ExecutorEnvironment) -> Self {
        let patch = core.take_patch();
        JobReport {
            patch,
            complete: !core.has_unreported_changes(),
            acknowledged: core.acknowledged_cursor(),
            open: core.open_requests(environment),
            spent: core.spent_requests(),
            releases: core.releases(),
        }
    }
}

/// The phase of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    /// The resource manager does not know this run yet.
    Registering,
    /// This run is registered.
    Known(Epoch),
    /// The session has ended.
    Over(SessionEnd),
}

/// The way in which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The resource manager accepted the report of the job's end.
    Accepted,
    /// A later attempt has replaced this one, or the application has ended.
    Replaced,
    /// The resource manager does not know the application, or did not answer.
    GivenUp,
}

/// The session of one master with the resource manager. All times have the same origin.
#[derive(Debug)]
pub struct ManagerSession {
    attempt: AttemptId,
    master_url: String,
    /// Secret of the submission channel of a live job.
    submission_token: Option<String>,
    phase: SessionPhase,
    /// A call is in progress.
    waiting: bool,
    next: Tick,
    backoff: ExponentialBackoff,
    /// Earliest call for changed rows: they wait for the interval, and for a retry.
    next_rows: Tick,
    silent_since: Tick,
    ever_known: bool,
    requests: SentRequests,
    containers: LiveContainers,
    /// False after a resource manager refused a registration that names containers: one of an
    /// earlier version does not know the field.
    names_containers: bool,
    stream: UpdateStream,
    /// Container of the size request in progress.
    resizing: Option<ContainerId>,
    queued_resizes: VecDeque<(ContainerId, Resource)>,
    outcome: Option<JobOutcome>,
}

impl ManagerSession {
    /// A session of this attempt, whose executors connect to `master_url`. `outcome` is that of a
    /// job that ended in an earlier run.
    pub fn new(
        attempt: AttemptId,
        master_url: String,
        outcome: Option<JobOutcome>,
        now: Tick,
    ) -> Self {
        ManagerSession {
            attempt,
            master_url,
            submission_token: None,
            phase: SessionPhase::Registering,
            waiting: false,
            next: now,
            backoff: ExponentialBackoff::usual(),
            next_rows: now,
            silent_since: now,
            ever_known: false,
            requests: SentRequests::default(),
            containers: LiveContainers::default(),
            names_containers: true,
            stream: UpdateStream::new(),
            resizing: None,
            queued_resizes: VecDeque::new(),
            outcome,
        }
    }

    /// Reports this secret of the submission channel with every registration.
    #[must_use]
    pub fn with_submission_token(self, submission_token: Option<String>) -> Self {
        ManagerSession {
            submission_token,
            ..self
        }
    }

    /// Registers this run.
    pub fn register(&mut self, out: &mut Vec<SessionEffect>) {
        self.phase = SessionPhase::Registering;
        self.waiting = true;
        let body = RegisterMaster {
            attempt: self.attempt.clone(),
            master_url: Some(self.master_url.clone()),
            submission_token: self.submission_token.clone(),
            nodes: self.containers.nodes(),
            containers: self.named_containers(),
        };
        out.push(SessionEffect::Call(ManagerCall::Register(body)));
    }

    fn named_containers(&self) -> ContainerNumbers {
        if self.names_containers {
            self.containers.numbers()
        } else {
            ContainerNumbers::default()
        }
    }

    /// Time at which [`ManagerSession::wake`] is due.
    pub fn next_timer(&self) -> Option<Tick> {
        if self.is_over() {
            return None;
        }
        let call = (!self.waiting).then_some(self.next);
        call.into_iter().chain(self.stream.next_timer()).min()
    }

    /// True once the end was reported, or the resource manager refused the report.
    pub fn is_over(&self) -> bool {
        self.end().is_some()
    }

    /// The way in which the session ended; `None` before.
    pub fn end(&self) -> Option<SessionEnd> {
        match self.phase {
            SessionPhase::Over(end) => Some(end),
            SessionPhase::Registering | SessionPhase::Known(_) => None,
        }
    }

    /// The outcome of the job, once it has ended.
    pub fn outcome(&self) -> Option<&JobOutcome> {
        self.outcome.as_ref()
    }

    /// Makes a call due at once, because requests have changed.
    pub fn sync_now(&mut self, now: Tick) {
        self.next = now;
    }

    /// Makes a call due soon, because the job's view has changed.
    pub fn sync_soon(&mut self, now: Tick) {
        self.next = self.next.min(self.next_rows.max(now));
    }

    /// Makes the report of the end due at once.
    pub fn finish(&mut self, now: Tick, outcome: JobOutcome) {
        self.outcome = Some(outcome);
        self.sync_now(now);
    }

    /// Requests another size of a container; only a refusal is reported by an event. The core
    /// repeats a request that does not fit into the queue.
    pub fn resize(
        &mut self,
        container: ContainerId,
        resource: Resource,
        out: &mut Vec<SessionEffect>,
    ) {
        if self.queued_resizes.len() >= MAX_QUEUED_RESIZES {
            tracing::warn!("the queue of resizes is full; the resize of this container waits");
            return;
        }
        self.queued_resizes.push_back((container, resource));
        self.send_next_resize(out);
    }

    fn send_next_resize(&mut self, out: &mut Vec<SessionEffect>) {
        if self.resizing.is_some() {
            return;
        }
        if let Some((container, resource)) = self.queued_resizes.pop_front() {
            self.resizing = Some(container.clone());
            let body = ResizeContainer {
                version: None,
                resource,
                heap: None,
            };
            out.push(SessionEffect::Resize(container, body));
        }
    }

    /// Opens the stream and makes the call that is due. Calls `report` if the call reports the job.
    pub fn wake(
        &mut self,
        now: Tick,
        report: impl FnOnce() -> JobReport,
        out: &mut Vec<SessionEffect>,
    ) {
        if self.is_over() {
            return;
        }
        if let Some((number, from)) = self.stream.open_due(now) {
            out.push(SessionEffect::OpenStream(number, from));
        }
        if self.waiting || self.next > now {
            return;
        }
        match self.phase {
            SessionPhase::Registering => self.register(out),
            SessionPhase::Known(epoch) => self.send_report(now, epoch, report(), out),
            SessionPhase::Over(_) => {}
        }
    }

    fn send_report(
        &mut self,
        now: Tick,
        epoch: Epoch,
        report: JobReport,
        out: &mut Vec<SessionEffect>,
    ) {
        self.waiting = true;
        self.next_rows = now.plus(REPORT_INTERVAL);
        let call = match self.outcome.clone().filter(|_| report.complete) {
            Some(outcome) => ManagerCall::Finish(Box::new(FinishApplicationRequest {
                attempt: self.attempt.clone(),
                succeeded: outcome.ending == JobEndKind::Succeeded,
                diagnostics: outcome.diagnostics,
                job: Some(report.patch),
            })),
            None => {
                let RequestChanges { changed, withdrawn } =
                    self.requests
                        .select(report.open, report.spent, report.acknowledged);
                self.next = now.plus(SYNC_INTERVAL);
                ManagerCall::Sync(Box::new(MasterSync {
                    attempt: self.attempt.clone(),
                    epoch,
                    ack: report.acknowledged,
                    asks: changed,
                    drop: withdrawn,
                    release: report.releases,
                    job: Some(report.patch),
                }))
            }
        };
        out.push(SessionEffect::Call(call));
    }

    /// Processes an input. Fails if the session cannot begin.
    pub fn take(
        &mut self,
        now: Tick,
        input: SessionInput,
        out: &mut Vec<SessionEffect>,
    ) -> Result<(), SessionFailure> {
        match input {
            SessionInput::Registered(Ok(registered)) => self.on_registered(now, registered, out),
            SessionInput::Registered(Err(error)) => return self.on_not_registered(now, error),
            SessionInput::Synced(Ok(reply)) => self.on_synced(now, reply, out),
            SessionInput::Synced(Err(UnacceptedReport { error, patch })) => {
                out.extend(patch.map(SessionEffect::RestorePatch));
                self.on_sync_failed(now, &error, out);
            }
            SessionInput::Finished(Ok(())) => self.phase = SessionPhase::Over(SessionEnd::Accepted),
            SessionInput::Finished(Err(UnacceptedReport { error, patch })) => {
                out.extend(patch.map(SessionEffect::RestorePatch));
                self.on_finish_failed(now, &error, out);
            }
            SessionInput::Resized(result) => self.on_resized(result, out),
            SessionInput::Update(number, update) => self.on_update(number, *update, out),
            SessionInput::StreamClosed(number, error) => {
                if let Some(epoch) = self.stream.on_closed(now, number, error.as_ref()) {
                    self.on_stale_stream(epoch, out);
                }
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, now: Tick) {
        self.waiting = false;
        self.backoff.reset();
        self.silent_since = now;
    }

    /// Schedules a retry of the last call.
    fn retry_later(&mut self, now: Tick) {
        self.waiting = false;
        self.next = now.plus(self.backoff.wait());
        self.next_rows = self.next;
    }

    fn on_registered(
        &mut self,
        now: Tick,
        mut registered: MasterRegistered,
        out: &mut Vec<SessionEffect>,
    ) {
        self.containers.register(&mut registered);
        let MasterRegistered {
            epoch,
            largest,
            containers,
            confirmed: _,
            cursor,
            known,
            traces,
        } = registered;
        tracing::info!(%epoch, %largest, containers = containers.len(), "registered with the resource manager");
        out.push(SessionEffect::SelectCollector(traces));
        self.on_answer(now);
        (self.phase, self.ever_known) = (SessionPhase::Known(epoch), true);
        self.requests.on_registered();
        self.next = now;
        let (number, from) = self.stream.open_at(StreamPosition { epoch, cursor });
        out.push(SessionEffect::OpenStream(number, from));
        out.extend(known.map(|history| SessionEffect::Event(MasterEvent::Known(history))));
        out.push(SessionEffect::Event(MasterEvent::Registered {
            epoch,
            largest,
            containers,
            cursor,
        }));
    }

    fn on_not_registered(&mut self, now: Tick, error: ClientError) -> Result<(), SessionFailure> {
        if error.code() == Some(ErrorCode::HR0400) && !self.named_containers().is_empty() {
            self.names_containers = false;
            self.retry_later(now);
            return Ok(());
        }
        if error.code().is_some_and(|code| !code.retryable()) {
            return Err(SessionFailure::Refused(error));
        }
        if !self.ever_known
            && now.since(self.silent_since) > FIRST_ANSWER_TIMEOUT
            && error.code().is_none()
        {
            return Err(SessionFailure::Unreachable(error));
        }
        tracing::debug!(%error, "not registered yet");
        self.retry_later(now);
        Ok(())
    }

    fn on_synced(&mut self, now: Tick, reply: MasterSyncReply, out: &mut Vec<SessionEffect>) {
        self.on_answer(now);
        if self.phase == SessionPhase::Registering {
            return self.register(out);
        }
        if reply.stop && self.outcome.is_none() {
            tracing::warn!("the application was killed");
            out.push(SessionEffect::Event(MasterEvent::Stop));
        }
        for sent in self.requests.take_answered() {
            let verdict = reply
                .verdicts
                .iter()
                .find(|v| v.request == sent.request)
                .map(|v| v.verdict.clone());
            match verdict {
                Some(PlacementVerdict::Never { sentence, largest }) => {
                    tracing::warn!(request = %sent.request, "the resource manager refused an infeasible request: {sentence}");
                    out.push(SessionEffect::Event(MasterEvent::Refused {
                        request: sent.request,
                        sentence,
                        largest,
                    }));
                }
                Some(PlacementVerdict::Fits | PlacementVerdict::Waits { .. }) | None => {
                    self.requests.accept(sent)
                }
            }
        }
    }

    fn on_sync_failed(&mut self, now: Tick, error: &ClientError, out: &mut Vec<SessionEffect>) {
        self.requests.drop_unanswered();
        match error.failure_kind() {
            CallFailureKind::Stale => {
                tracing::info!("the resource manager restarted, registering again");
                self.register(out);
            }
            CallFailureKind::Gone if error.code() == Some(ErrorCode::HR0409) => {
                // A later attempt adopts the executors; those of an ended job, the resource manager
                // stops.
                tracing::warn!(%error, "this attempt was replaced or its job has ended; it ends and leaves the executors");
                self.phase = SessionPhase::Over(SessionEnd::Replaced);
            }
            CallFailureKind::Gone => {
                tracing::warn!(%error, "the resource manager no longer knows this master, ending");
                out.push(SessionEffect::Event(MasterEvent::Stop));
                self.phase = SessionPhase::Over(SessionEnd::GivenUp);
            }
            CallFailureKind::TooOld | CallFailureKind::Refused => {
                tracing::warn!(%error, "the resource manager refused a sync, retrying");
                self.requests.send_all_again();
                self.retry_later(now);
            }
            CallFailureKind::Silent => {
                tracing::debug!(%error, "the resource manager does not answer, retrying");
                self.requests.send_all_again();
                self.retry_later(now);
                if self.outcome.is_some() && now.since(self.silent_since) > FINISH_TIMEOUT {
                    self.phase = SessionPhase::Over(SessionEnd::GivenUp);
                }
            }
        }
        if self.phase == SessionPhase::Registering && !self.waiting {
            self.register(out);
        }
    }

    fn on_finish_failed(&mut self, now: Tick, error: &ClientError, out: &mut Vec<SessionEffect>) {
        match error.failure_kind() {
            CallFailureKind::Stale => self.register(out),
            CallFailureKind::Gone => self.phase = SessionPhase::Over(SessionEnd::Replaced),
            CallFailureKind::TooOld | CallFailureKind::Refused | CallFailureKind::Silent
                if now.since(self.silent_since) > FINISH_TIMEOUT =>
            {
                tracing::error!(%error, "cannot report the end of the job");
                self.phase = SessionPhase::Over(SessionEnd::GivenUp);
            }
            CallFailureKind::TooOld | CallFailureKind::Refused | CallFailureKind::Silent => {
                self.retry_later(now)
            }
        }
    }

    fn on_resized(&mut self, result: Result<(), ClientError>, out: &mut Vec<SessionEffect>) {
        if let (Some(container), Err(error)) = (self.resizing.take(), result) {
            let words = error.to_string();
            let refusal = match error.failure_kind() {
                CallFailureKind::Silent => SizeRefusal::NoAnswer(words),
                CallFailureKind::Stale
                | CallFailureKind::TooOld
                | CallFailureKind::Gone
                | CallFailureKind::Refused => SizeRefusal::Manager(words),
            };
            tracing::debug!(%container, ?refusal, "the container keeps its size for now");
            out.push(SessionEffect::Event(MasterEvent::ResizeRefused {
                container,
                refusal,
            }));
        }
        self.send_next_resize(out);
    }

    fn on_update(
        &mut self,
        number: StreamNumber,
        update: ApplicationUpdate,
        out: &mut Vec<SessionEffect>,
    ) {
        let ApplicationUpdate { cursor, what } = update;
        let epoch = self.stream.on_update(number, cursor);
        if epoch.is_none_or(|epoch| self.phase != SessionPhase::Known(epoch)) {
            return;
        }
        self.containers.update(&what);
        if let ApplicationUpdateKind::Exited { request, .. } = &what {
            self.requests.on_container_exited(request.clone(), cursor);
        }
        if !matches!(what, ApplicationUpdateKind::Alive) {
            tracing::debug!(cursor, ?what, "update");
        }
        out.push(SessionEffect::Event(MasterEvent::Update { cursor, what }));
    }

    /// The stream belongs to an earlier epoch of the resource manager, or its start is no longer
    /// available.
    fn on_stale_stream(&mut self, epoch: Epoch, out: &mut Vec<SessionEffect>) {
        if self.phase != SessionPhase::Known(epoch) {
            return;
        }
        if self.waiting {
            // The answer in progress finds the new phase, and triggers the registration.
            self.phase = SessionPhase::Registering;
        } else {
            self.register(out);
        }
    }
}

#[cfg(test)]
mod tests;
