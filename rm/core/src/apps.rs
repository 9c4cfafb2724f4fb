//! Applications: submission, kill, attempts and end.

use std::sync::Arc;
use std::time::Duration;

use headroom_types::{AppId, ExitCharge, ExitReason, Reason, StopCause, Tick};

use crate::app::{self, ApplicationOrigin, ApplicationState, ClusterApplication};
use crate::attempt::{self, AttemptFailure};
use crate::cluster::{Cluster, MAX_LIVE_APPS, RestoredApp};
use crate::event::{
    AppSubmission, ApplicationLifetime, ApplicationOutcome, CallAnswer, CallRefusal, DryRun,
    LogSeverity, MasterKind,
};
use crate::master_growth::{NextMasterSize, escalation_line};
use crate::queue::QueueNumber;
use crate::save::DurableRecord;
use crate::sched::constraint::ANYWHERE;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

/// Most uncharged attempts before the resource manager gives an application up.
const MAX_UNCHARGED: u32 = 20;
/// Longest backoff before the next attempt of a master that could not be started.
const MAX_RELAUNCH_BACKOFF: Duration = Duration::from_secs(30);

impl Cluster {
    pub(crate) fn submit(
        &mut self,
        mut spec: AppSubmission,
        number: Option<u32>,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let first_request = spec.master.take_first_request();
        if let Some(known) = self.apps.with_key_of(&spec) {
            return if *known.spec == spec {
                Ok(CallAnswer::Submitted {
                    app: known.id.clone(),
                    attempt: known.attempt,
                })
            } else {
                Err(CallRefusal::KeyTaken(known.id.clone()))
            };
        }
        if self.apps.live_count() >= MAX_LIVE_APPS {
            return Err(CallRefusal::TooMany {
                what: "applications that have not ended".into(),
                most: MAX_LIVE_APPS,
            });
        }
        let leaf = self.queue.admit(&spec.queue)?;
        if let MasterKind::Managed { resource, .. } = &spec.master
            && let Some((sentence, largest)) = self
                .nodes
                .infeasible_reason(resource, &ANYWHERE)
                .or_else(|| self.never_in_queue(leaf, resource))
        {
            return Err(CallRefusal::NeverFits { sentence, largest });
        }
        if let Some(ask) = &first_request
            && let Some((sentence, largest)) = self.never_granted(Some(leaf), ask)
        {
            return Err(CallRefusal::NeverFits { sentence, largest });
        }
        let id = AppId::new(spec.name.clone(), self.apps.take_number(number)?);
        let spec = Arc::new(spec);
        let mut app = ClusterApplication::new(id.clone(), spec.clone(), ctx.wall);
        app.first_request = first_request;
        ctx.save(DurableRecord::App {
            app: id.clone(),
            spec: spec.clone(),
            submitted: ctx.wall,
        });
        let managed = app.is_managed();
        self.open(&app, leaf);
        self.apps.insert(app);
        self.set_lifetime(&id, spec.lifetime.map(ApplicationLifetime::AtMost));
        self.apps.save(&id, ctx);
        let message = format!("submitted by {} to queue {}", spec.user, spec.queue);
        ctx.log_app(LogSeverity::Normal, Reason::JobSubmitted, &id, message);
        if managed {
            self.enqueue_master(&id);
        } else {
            self.expect_master(&id, ctx.now);
        }
        Ok(CallAnswer::Submitted {
            app: id,
            attempt: 1,
        })
    }

    fn open(&mut self, app: &ClusterApplication, leaf: QueueNumber) {
        self.queue.open(&app.id, leaf, app.priority);
        self.allocations
            .ledger_mut()
            .open_app(&app.id, leaf, &app.spec.user);
    }

    /// Restores an application from the store.
    pub(crate) fn restore_app(&mut self, saved: RestoredApp, now: Tick) {
        let mut app =
            ClusterApplication::restored(saved.id, saved.spec, saved.submitted, saved.state);
        let id = app.id.clone();
        let (over, run) = (app.state.is_over(), app.run.clone());
        if !over {
            // an application whose queue is gone continues in the fallback queue
            let leaf = self
                .queue
                .leaf(&app.queue)
                .unwrap_or_else(|| self.queue.fallback());
            app.queue = self
                .queue
                .slot(leaf)
                .map_or(app.queue, |slot| slot.path.clone());
            self.open(&app, leaf);
        }
        self.apps.insert(app);
        if over {
            return;
        }
        self.watch_lifetime(&id);
        match run {
            attempt::AttemptState::Scheduled => self.enqueue_master(&id),
            attempt::AttemptState::Recovering { .. } => {
                self.queue.run(&id);
                self.expect_master(&id, now);
            }
            attempt::AttemptState::Launched { .. }
            | attempt::AttemptState::Awaited
            | attempt::AttemptState::Registered { .. }
            | attempt::AttemptState::Over => {}
        }
    }

    pub(crate) fn kill(
        &mut self,
        id: &AppId,
        reason: Option<String>,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let app = self.apps.known_mut(id)?;
        if !app.state.is_ending() {
            app.diagnostics = reason.unwrap_or_else(|| "killed on request".into());
            let message = app.diagnostics.clone();
            ctx.log_app(LogSeverity::Normal, Reason::KillRequested, id, message);
        }
        self.app_event(
            id,
            app::ApplicationEvent::End(ApplicationOutcome::Killed),
            ctx,
        );
        self.stop_masters(id, ctx);
        self.maybe_over(id, ctx);
        Ok(CallAnswer::Done)
    }

    /// Applies an event to an application and carries out the resulting actions.
    pub(crate) fn app_event(
        &mut self,
        id: &AppId,
        event: app::ApplicationEvent,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(app) = self.apps.get_mut(id) else {
            return;
        };
        let mut acts = Vec::new();
        match app::next_app_state(app.state, event, &mut acts) {
            Ok(next) => app.state = next,
            Err(illegal) => return ctx.illegal(format!("{id}: {illegal}")),
        }
        for act in acts {
            match act {
                app::ApplicationAction::Started => ctx.log_app(
                    LogSeverity::Normal,
                    Reason::AppRunning,
                    id,
                    "its master has registered".into(),
                ),
                app::ApplicationAction::WindDown => self.wind_down(id, ctx),
                app::ApplicationAction::Over => self.over(id, ctx),
            }
            self.apps.save(id, ctx);
        }
    }

    /// Decides the outcome of an application.
    pub(crate) fn end_app(
        &mut self,
        id: &AppId,
        outcome: ApplicationOutcome,
        ctx: &mut StepContext<'_>,
    ) {
        self.app_event(id, app::ApplicationEvent::End(outcome), ctx);
        self.maybe_over(id, ctx);
    }

    /// Drops all requests and stops all containers; the master's container may linger for a moment.
    fn wind_down(&mut self, id: &AppId, ctx: &mut StepContext<'_>) {
        self.drop_requests(id);
        self.queue.remove(id, None);
        self.attempt_event(id, attempt::AttemptEvent::Stop, ctx);
        self.timers.cancel(&TimerKey::Relaunch(id.clone()));
        self.timers.cancel(&TimerKey::Master(id.clone()));
        self.timers.cancel(&TimerKey::Lifetime(id.clone()));
        self.ack_updates(id, u64::MAX, ctx);
        let Some(app) = self.apps.get(id) else { return };
        let containers = self.allocations.in_order(&app.containers);
        let (masters, others): (Vec<_>, Vec<_>) = containers.partition(|c| c.request.is_none());
        let lingers = !masters.is_empty();
        let others: Vec<_> = others.iter().map(|c| c.id.clone()).collect();
        if lingers {
            self.timers.set(
                TimerKey::Linger(id.clone()),
                ctx.now.plus(self.settings.master_linger),
            );
        }
        for container in others {
            self.stop(&container, StopCause::Asked, ctx);
        }
    }

    /// Stops the containers of the master that still run.
    pub(crate) fn stop_masters(&mut self, id: &AppId, ctx: &mut StepContext<'_>) {
        let Some(app) = self.apps.get(id) else { return };
        let all = self.allocations.in_order(&app.containers);
        let masters: Vec<_> = all
            .filter(|c| c.request.is_none())
            .map(|c| c.id.clone())
            .collect();
        for container in masters {
            self.stop(&container, StopCause::Asked, ctx);
        }
    }

    /// Ends an application whose last container is gone.
    pub(crate) fn maybe_over(&mut self, id: &AppId, ctx: &mut StepContext<'_>) {
        let Some(app) = self.apps.get(id) else { return };
        let known = app.origin == ApplicationOrigin::New || self.nodes.recovery().is_none();
        if known && app.state.is_ending() && !app.state.is_over() && app.containers.is_empty() {
            self.app_event(id, app::ApplicationEvent::Empty, ctx);
        }
    }

    fn over(&mut self, id: &AppId, ctx: &mut StepContext<'_>) {
        let Some(app) = self.apps.get_mut(id) else {
            return;
        };
        app.ended = Some(ctx.wall);
        if let ApplicationState::Ended { outcome } = app.state {
            app.runs.over(outcome, ctx.wall);
        }
        app.master_url = None;
        let (level, word) = match app.state {
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Succeeded,
            } => (LogSeverity::Normal, Reason::AppFinished),
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Killed,
            } => (LogSeverity::Normal, Reason::AppKilled),
            ApplicationState::Ended {
                outcome: ApplicationOutcome::Failed,
            }
            | ApplicationState::Accepted
            | ApplicationState::Running
            | ApplicationState::Finishing { .. } => (LogSeverity::Warning, Reason::AppFailed),
        };
        ctx.log_app(level, word, id, app.diagnostics.clone());
        self.timers.cancel(&TimerKey::Master(id.clone()));
        self.timers.cancel(&TimerKey::Linger(id.clone()));
        ctx.out
            .push(crate::event::ClusterEffect::UpdatesEnd { app: id.clone() });
        self.queue.close(id, self.allocations.ledger());
        self.allocations.ledger_mut().close_app(id);
        self.apps.note_end(id);
        self.forget_old(ctx);
    }

    /// Removes ended applications, oldest first, when there are too many or when they ended too
    /// long ago.
    pub(crate) fn forget_old(&mut self, ctx: &mut StepContext<'_>) {
        let (most, age) = (self.settings.keep_apps, self.settings.keep_age);
        while let Some(gone) = self.apps.pop_expired(most, age, ctx.wall) {
            ctx.save(DurableRecord::AppGone(gone));
        }
    }

    /// Removes an ended application with its containers and tasks.
    pub(crate) fn purge(
        &mut self,
        id: &AppId,
        how: DryRun,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let app = self.apps.known(id)?;
        if !app.state.is_over() {
            return Err(CallRefusal::NotOver {
                app: id.clone(),
                state: app.state.as_str(),
            });
        }
        if how == DryRun::DryRun {
            return Ok(CallAnswer::Done);
        }
        let state = app.state.as_str();
        self.apps.purge(id);
        ctx.save(DurableRecord::AppGone(id.clone()));
        for container in self.allocations.history_mut().forget(id) {
            ctx.save(DurableRecord::ContainerGone(container));
        }
        let message = format!("was {state}; its records are deleted");
        ctx.log_app(LogSeverity::Normal, Reason::JobPurged, id, message);
        Ok(CallAnswer::Done)
    }

    fn drop_requests(&mut self, id: &AppId) {
        let Some(app) = self.apps.get_mut(id) else {
            return;
        };
        app.first_request = None;
        app.spots = None; // no placement rule refers to these containers any more
        self.scheduler.reservations.mark_all_dirty();
        for row in std::mem::take(&mut app.requests).positions() {
            self.queue.remove(id, Some(row));
        }
    }

    /// Applies an event to the current attempt and carries out the resulting actions.
    pub(crate) fn attempt_event(
        &mut self,
        id: &AppId,
        event: attempt::AttemptEvent,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(app) = self.apps.get_mut(id) else {
            return;
        };
        let mut acts = Vec::new();
        match attempt::next_attempt_state(app.run.clone(), event, &mut acts) {
            Ok(next) => app.run = next,
            Err(illegal) => return ctx.illegal(format!("{id}: {illegal}")),
        }
        for act in acts {
            match act {
                attempt::AttemptAction::MasterThere => self.master_there(id, ctx),
                attempt::AttemptAction::StopContainer(container) => {
                    self.stop(&container, StopCause::Asked, ctx);
                }
                attempt::AttemptAction::Failed(failure) => self.attempt_failed(id, failure, ctx),
            }
        }
    }

    fn master_there(&mut self, id: &AppId, ctx: &mut StepContext<'_>) {
        if let Some(app) = self.apps.get_mut(id) {
            app.runs.registered(ctx.wall);
        }
        self.app_event(id, app::ApplicationEvent::MasterThere, ctx);
    }

    fn attempt_failed(&mut self, id: &AppId, failure: AttemptFailure, ctx: &mut StepContext<'_>) {
        self.timers.cancel(&TimerKey::Master(id.clone()));
        self.drop_requests(id);
        let next_size = self.next_master_size(id, failure);
        let Some(app) = self.apps.get_mut(id) else {
            return;
        };
        app.master_url = None;
        let silence = self.settings.master_silence;
        let not_started = app.runs.current().and_then(|run| run.not_started());
        let why = match not_started {
            Some(why) => why.to_owned(),
            None => describe(failure, silence, app.start_timeout().unwrap_or(silence)),
        };
        let not_started = not_started.is_some();
        ctx.log_app(
            LogSeverity::Warning,
            Reason::MasterFailed,
            id,
            format!("attempt {}: {why}", app.attempt),
        );
        let charged = !is_free(failure) && !next_size.is_grown();
        app.runs.failed(why.clone(), charged, ctx.wall);
        let escalation = escalation_line(app, &next_size);
        let limit = next_size.limit();
        if app.state.is_ending() {
            return;
        }
        match next_attempt(app, failure, next_size) {
            RelaunchDecision::Again => {
                escalation.into_iter().for_each(|line| ctx.log(line));
                app.attempt += 1;
                app.runs.next(app.attempt);
                app.run = attempt::AttemptState::Scheduled;
                // the next attempt reports the ends that it knows: it may have lost its journal
                // with its node
                app.tallies
                    .values_mut()
                    .for_each(crate::request::GrantCounts::forget_known_ends);
                match relaunch_backoff(failure, app.charged) {
                    None => self.enqueue_master(id),
                    Some(wait) => {
                        let at = ctx.now.plus(wait);
                        self.timers.set(TimerKey::Relaunch(id.clone()), at);
                    }
                }
                self.apps.save(id, ctx);
            }
            RelaunchDecision::GiveUp => {
                let times = app.charged + app.uncharged;
                app.diagnostics = match (app.is_managed(), not_started) {
                    (true, true) => format!("{why}; its master failed {times} times{limit}"),
                    (true, false) => format!(
                        "its master failed {times} times; attempt {}: {why}{limit}",
                        app.attempt
                    ),
                    (false, _) => format!("its master failed: {why}"),
                };
                self.end_app(id, ApplicationOutcome::Failed, ctx);
            }
        }
    }
}

enum RelaunchDecision {
    Again,
    GiveUp,
}

/// Charges a failed attempt, sizes the next one and chooses the node to avoid.
fn next_attempt(
    app: &mut ClusterApplication,
    failure: AttemptFailure,
    next_size: NextMasterSize,
) -> RelaunchDecision {
    let MasterKind::Managed { max_attempts, .. } = app.spec.master else {
        return RelaunchDecision::GiveUp;
    };
    if is_free(failure) || next_size.is_grown() {
        app.uncharged += 1;
    } else {
        app.charged += 1;
    }
    if app.charged >= max_attempts || app.uncharged >= MAX_UNCHARGED {
        return RelaunchDecision::GiveUp;
    }
    match next_size {
        NextMasterSize::Same => {}
        NextMasterSize::Doubled(size) | NextMasterSize::Grown(size) => app.master = Some(size),
        NextMasterSize::Exhausted(_) => return RelaunchDecision::GiveUp,
    }
    if is_of_the_node(failure) {
        app.master_avoid = app.master_node.take();
    }
    RelaunchDecision::Again
}

/// Backoff before the next attempt of a master that could not be started: one second, doubled with
/// each further charged attempt. Without it, a node that cannot start containers for a second uses
/// up all attempts. `None` after other failures: the next attempt waits for room only.
fn relaunch_backoff(failure: AttemptFailure, charged: u32) -> Option<Duration> {
    match failure {
        AttemptFailure::Exited(ExitReason::LaunchFailed) => {
            let doubled = 1 << charged.saturating_sub(1).min(5);
            Some(Duration::from_secs(doubled).min(MAX_RELAUNCH_BACKOFF))
        }
        AttemptFailure::Exited(_)
        | AttemptFailure::Lost
        | AttemptFailure::Silent
        | AttemptFailure::NotRegistered => None,
    }
}

/// True when the failure is not charged. A program that cannot be started is charged; without that
/// rule it would be retried for ever.
fn is_free(failure: AttemptFailure) -> bool {
    match failure {
        AttemptFailure::Exited(ExitReason::LaunchFailed)
        | AttemptFailure::Silent
        | AttemptFailure::NotRegistered => false,
        AttemptFailure::Exited(reason) => reason.charge() == ExitCharge::Free,
        AttemptFailure::Lost => true,
    }
}

/// True when the node may be the cause, so that another node is better.
fn is_of_the_node(failure: AttemptFailure) -> bool {
    match failure {
        AttemptFailure::Lost => true,
        AttemptFailure::Silent | AttemptFailure::NotRegistered => false,
        AttemptFailure::Exited(reason) => match reason {
            ExitReason::NodeLost
            | ExitReason::LaunchFailed
            | ExitReason::NodeOom
            | ExitReason::AncestorOom => true,
            ExitReason::HeapOom
            | ExitReason::OverheadOom
            | ExitReason::TaskOom
            | ExitReason::StalledAtLimit
            | ExitReason::KilledExternally
            | ExitReason::Stopped
            | ExitReason::Preempted
            | ExitReason::Timeout
            | ExitReason::Exit { .. }
            | ExitReason::Signal { .. } => false,
        },
    }
}

/// Reason of a failed attempt, for users, with the timeouts for heartbeats and for the start.
fn describe(failure: AttemptFailure, silence: Duration, start: Duration) -> String {
    match failure {
        AttemptFailure::Exited(ExitReason::Exit { code: 0 }) => {
            "the master ended without reporting the outcome of the application".into()
        }
        AttemptFailure::Exited(reason) => reason.sentence(),
        AttemptFailure::Silent => {
            format!("the master sent no heartbeat for {} s", silence.as_secs())
        }
        AttemptFailure::NotRegistered => format!(
            "the master did not register within {} s of the start of its container",
            start.as_secs()
        ),
        AttemptFailure::Lost => {
            "the node of the master did not register after a restart of the resource manager".into()
        }
    }
}
