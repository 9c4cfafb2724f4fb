//! Lifetime of an application, counted from its submission, and the end at its expiry.
//!
//! The application's own lifetime and the maximum of its leaf both count; the earlier end applies.
//! The end is a wall-clock time, so it holds across restarts. The leaf's maximum is read when the
//! application is submitted, changed or moved. A later change of the queue tree does not shorten a
//! lifetime that has started, and a move can only shorten it.

use std::time::Duration;

use headroom_types::{AppId, ContainerId, Reason, StopCause, Tick, UnixMillis, millis};

use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::event::{ApplicationLifetime, ApplicationOutcome, LogSeverity};
use crate::queue::SchedulerQueues;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

impl Cluster {
    /// Sets the end of an application's lifetime after a change of the lifetime or leaf. `None`
    /// keeps the current end. The caller saves the application.
    pub(crate) fn set_lifetime(&mut self, id: &AppId, given: Option<ApplicationLifetime>) {
        let Some(app) = self.apps.get(id).filter(|app| !app.state.is_ending()) else {
            return;
        };
        let given = match given {
            Some(ApplicationLifetime::AtMost(time)) => Some(end_of(app, time)),
            Some(ApplicationLifetime::Unbounded) => None,
            None => app.until,
        };
        let longest = longest_life(&self.queue, app).map(|longest| end_of(app, longest));
        let until = given.into_iter().chain(longest).min();
        if let Some(app) = self.apps.get_mut(id) {
            app.until = until;
        }
        self.watch_lifetime(id);
    }

    /// Sets the timer for the end of the lifetime.
    pub(crate) fn watch_lifetime(&mut self, id: &AppId) {
        let key = TimerKey::Lifetime(id.clone());
        match self.apps.get(id).and_then(|app| app.until) {
            Some(until) => self.timers.set(
                key,
                Tick(until.0.saturating_sub(self.settings.unix_at_zero.0)),
            ),
            None => self.timers.cancel(&key),
        }
    }

    /// Kills an application whose lifetime has expired.
    pub(crate) fn lifetime_over(&mut self, id: &AppId, ctx: &mut StepContext<'_>) {
        let Some(app) = self.apps.get(id).filter(|app| !app.state.is_ending()) else {
            return;
        };
        let lived = ctx.wall.since(app.submitted);
        let of_queue = longest_life(&self.queue, app)
            .is_some_and(|longest| app.until == Some(end_of(app, longest)));
        let whose = if of_queue {
            format!("the limit of queue {}", app.queue.short())
        } else {
            "the limit of the application".into()
        };
        let why = format!("its lifetime expired after {} s: {whose}", lived.as_secs());
        let message = why.clone();
        ctx.log_app(LogSeverity::Warning, Reason::LifetimeExceeded, id, message);
        let containers = self.allocations.in_order(&app.containers);
        let containers: Vec<ContainerId> = containers.map(|c| c.id.clone()).collect();
        for container in &containers {
            self.stop(container, StopCause::Timeout, ctx);
        }
        if let Some(app) = self.apps.get_mut(id) {
            app.diagnostics = why;
        }
        self.end_app(id, ApplicationOutcome::Killed, ctx);
    }
}

fn longest_life(queue: &SchedulerQueues, app: &ClusterApplication) -> Option<Duration> {
    let leaf = queue.slot(queue.leaf_of(&app.id)?)?;
    leaf.spec.max_lifetime_ms.map(Duration::from_millis)
}

fn end_of(app: &ClusterApplication, life: Duration) -> UnixMillis {
    let life = millis(life);
    UnixMillis(app.submitted.0.saturating_add(life))
}
