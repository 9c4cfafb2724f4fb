//! Follows one application until it has ended: events as they occur, and its view four times per
//! second and after its last event.
//!
//! Survives a restart of the resource manager. Gives up after [`SERVER_SILENCE_TIMEOUT`] without an
//! answer.

use std::time::Duration;

use headroom_client::{Client, ClientError, EventFollower, TaskRowScope};
use headroom_types::AppId;
use headroom_wire::v1::apps::{AppView, PendingExplanation};
use headroom_wire::v1::events::LoggedEvent;
use tokio::time::{Instant, MissedTickBehavior};

/// Longest time without an answer of the resource manager.
pub(crate) const SERVER_SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval of the view.
const LOOK: Duration = Duration::from_millis(250);
/// Wait between two looks for the end after the last event.
const SOON: Duration = Duration::from_millis(5);
/// Longest wait for late events after the end.
const LINGER: Duration = Duration::from_millis(500);

/// Time without events after which the reason of the wait is reported.
const QUIET: Duration = Duration::from_secs(2);

/// An observation about the application.
#[derive(Debug)]
pub(crate) enum JobObservation<'a> {
    /// An event.
    Event(&'a LoggedEvent),
    /// The present view; with tasks only after the end.
    View(&'a AppView),
    /// No event occurs, because this request waits. Reported once for each reason.
    Waits(&'a PendingExplanation),
}

/// Passes every observation to `see` until the application has ended, and returns its last view.
pub(crate) async fn follow(
    client: &Client,
    app: &AppId,
    mut see: impl FnMut(JobObservation<'_>),
) -> Result<AppView, ClientError> {
    let mut events =
        EventFollower::new(client.clone(), Some(app.clone()), 0, SERVER_SILENCE_TIMEOUT);
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent: Option<Instant> = None;
    let mut lull = QuietPeriod {
        since: Instant::now(),
        last_sentence: String::new(),
    };
    let mut has_ended = false;
    loop {
        tokio::select! {
            event = events.next() => {
                let event = event?;
                lull.since = Instant::now();
                see(JobObservation::Event(&event));
                if is_last(&event) {
                    has_ended = true;
                    ticks.reset_immediately();
                }
            }
            _ = ticks.tick() => match view_of(client, app).await {
                Ok(view) => {
                    silent = None;
                    see(JobObservation::View(&view));
                    if view.state.is_final() {
                        if !has_ended {
                            drain(&mut events, &mut see).await;
                        }
                        return Ok(view);
                    }
                    if has_ended {
                        ticks.reset_after(SOON);
                    }
                    lull.explain(client, &view, &mut see).await;
                }
                Err(e) if e.retryable() && silent.get_or_insert_with(Instant::now).elapsed() < SERVER_SILENCE_TIMEOUT => {}
                Err(e) => return Err(e),
            },
        }
    }
}

/// The view with the counts of the job, and with all tasks after its end.
async fn view_of(client: &Client, app: &AppId) -> Result<AppView, ClientError> {
    let view = client.app_with(app, TaskRowScope::None).await?;
    if view.state.is_final() {
        client.app(app).await
    } else {
        Ok(view)
    }
}

/// A period without events.
struct QuietPeriod {
    since: Instant,
    last_sentence: String,
}

impl QuietPeriod {
    /// Reports the reason of the wait after a period without events, unless it is the reason that
    /// was reported last.
    async fn explain(
        &mut self,
        client: &Client,
        view: &AppView,
        see: &mut impl FnMut(JobObservation<'_>),
    ) {
        if view.pending == 0 || self.since.elapsed() < QUIET {
            return;
        }
        self.since = Instant::now();
        let Ok(reasons) = client.why(&view.id).await else {
            return;
        };
        if let Some(first) = reasons.first().filter(|r| r.sentence != self.last_sentence) {
            self.last_sentence.clone_from(&first.sentence);
            see(JobObservation::Waits(first));
        }
    }
}

/// Reads late events. Events have their own connection, so the end may be known before the last
/// events arrive.
async fn drain(events: &mut EventFollower, see: &mut impl FnMut(JobObservation<'_>)) {
    let deadline = Instant::now() + LINGER;
    while let Ok(Ok(event)) = tokio::time::timeout_at(deadline, events.next()).await {
        see(JobObservation::Event(&event));
        if is_last(&event) {
            return;
        }
    }
}

/// Whether the event is the last one of an application.
pub(crate) fn is_last(event: &LoggedEvent) -> bool {
    matches!(
        event.reason.as_str(),
        "AppFinished" | "AppFailed" | "AppKilled"
    )
}
