//! Waiting times of requests: relaxation of preferences and deadlines.
//!
//! The cluster owns both. They are timers, so that they take effect when nothing else happens. A
//! repeated request restarts neither.

use std::time::Duration;

use headroom_types::{AppId, Reason, RequestId, Tick};

use crate::cluster::Cluster;
use crate::event::{LogSeverity, UpdateKind};
use crate::placement::LocalityLevel;
use crate::step_context::StepContext;
use crate::table::RowPosition;
use crate::timer::TimerKey;

impl Cluster {
    /// Starts the wait for the next container of a request.
    pub(crate) fn begin_wait(&mut self, app: RowPosition, request: RowPosition, now: Tick) {
        let served = self.allocations.latest();
        let Some(app) = self.apps.at_mut(app) else {
            return;
        };
        let Some(asked) = app.requests.at_mut(request) else {
            return;
        };
        (asked.waiting, asked.served) = (now, served);
        asked.reach = LocalityLevel::first(&asked.ask.place);
        if asked.reach.next(&asked.ask.place).is_some() {
            let (app, request) = (app.id.clone(), asked.ask.request.clone());
            self.arm_reach(&app, &request, now);
        }
    }

    /// Restarts a request that needs more containers after all were granted. The caller sets its
    /// deadline.
    pub(crate) fn want_again(&mut self, app: RowPosition, request: RowPosition, now: Tick) {
        let record = self.apps.at_mut(app);
        if let Some(asked) = record.and_then(|app| app.requests.at_mut(request)) {
            (asked.wanting, asked.before) = (now, Duration::ZERO);
        }
        self.begin_wait(app, request, now);
    }

    /// Sets the deadline timer, counted from the time when the request began to wait for
    /// containers.
    pub(crate) fn arm_deadline(&mut self, app: RowPosition, request: RowPosition) {
        let Some(app) = self.apps.at(app) else {
            return;
        };
        let Some((request, asked)) = app.requests.entry_at(request) else {
            return;
        };
        let key = TimerKey::Deadline(app.id.clone(), request.clone());
        match asked.ask.deadline.filter(|_| asked.expired.is_none()) {
            Some(after) => self
                .timers
                .set(key, asked.wanting.plus(after.saturating_sub(asked.before))),
            None => self.timers.cancel(&key),
        }
    }

    pub(crate) fn arm_reach(&mut self, app_id: &AppId, request: &RequestId, now: Tick) {
        let Some(app) = self.apps.get(app_id) else {
            return;
        };
        let Some(asked) = app.requests.get(request) else {
            return;
        };
        let next = asked
            .reach
            .next(&asked.ask.place)
            .filter(|_| app.missing(request) > 0);
        if let Some((_, wait)) = next {
            self.timers.set(
                TimerKey::Reach(app_id.clone(), request.clone()),
                now.plus(wait),
            );
        }
    }

    /// Relaxes the preference of a request by one level and tries to place it again.
    pub(crate) fn relax_preference(
        &mut self,
        app_id: &AppId,
        request: &RequestId,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(app) = self.apps.get_mut(app_id) else {
            return;
        };
        let missing = app.missing(request);
        let Some(asked) = app.requests.get_mut(request).filter(|_| missing > 0) else {
            return;
        };
        let Some((farther, _)) = asked.reach.next(&asked.ask.place) else {
            return;
        };
        asked.reach = farther;
        self.arm_reach(app_id, request, ctx.now);
        self.try_again(app_id, request);
    }

    /// Expires a request: its missing containers are not granted any more.
    pub(crate) fn deadline_over(
        &mut self,
        app_id: &AppId,
        request: &RequestId,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(app) = self.apps.get(app_id) else {
            return;
        };
        let missing = app.missing(request);
        let Some(asked) = app
            .requests
            .get(request)
            .filter(|asked| missing > 0 && asked.ask.deadline.is_some())
        else {
            return;
        };
        let why = self.sentence(app, request, ctx.now).unwrap_or_default();
        let waited = ctx
            .now
            .since(asked.wanting)
            .saturating_add(asked.before)
            .as_secs_f64();
        let message = format!(
            "{request}: {missing} of {} containers were not granted within {waited} s: {why}",
            asked.ask.count
        );
        if let Some(asked) = self.apps.request_mut(app_id, request) {
            asked.expired = Some(ctx.now);
        }
        self.requeue(app_id, request);
        ctx.log_app(
            LogSeverity::Warning,
            Reason::RequestExpired,
            app_id,
            message,
        );
        self.apps.update(
            app_id,
            UpdateKind::Expired {
                request: request.clone(),
                why,
            },
            ctx,
        );
    }
}
