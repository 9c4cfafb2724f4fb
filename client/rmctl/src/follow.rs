//! Follows one application: events as they occur, and its view four times per second and after its
//! last event. For the output of its tasks, the view has their rows, and is also read soon after an
//! event that may have changed them.
//!
//! Survives a restart of the resource manager. Gives up after [`SERVER_SILENCE_TIMEOUT`] without an
//! answer.

use std::time::Duration;

use headroom_client::{Client, ClientError, EventFollower, TaskRowScope};
use headroom_transport::deadline;
use headroom_types::AppId;
use headroom_wire::v1::apps::{AppView, PendingExplanation};
use headroom_wire::v1::events::LoggedEvent;
use tokio::time::Instant;

/// Longest time without an answer of the resource manager.
pub(crate) const SERVER_SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Polling interval of the view.
const LOOK: Duration = Duration::from_millis(250);
/// Wait between two reads of the view that look for the end after the last event.
const SOON: Duration = Duration::from_millis(5);
/// First wait for rows after an event that may change them. It doubles up to [`LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Longest wait for late events after the end.
const LINGER: Duration = Duration::from_millis(500);

/// Time without events after which the reason of the wait is reported.
const QUIET: Duration = Duration::from_secs(2);

/// An observation about the application.
#[derive(Debug)]
pub(crate) enum JobObservation<'a> {
    /// An event.
    Event(&'a LoggedEvent),
    /// The present view.
    View(&'a AppView),
    /// No event occurs, because this request waits. Reported once for each reason.
    Waits(&'a PendingExplanation),
}

/// What a follower needs of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FollowScope {
    /// The counts of its job until it has ended; then all rows.
    Counts,
    /// The rows of its tasks, until this function finds the job over.
    Rows(fn(&AppView) -> bool),
}

impl FollowScope {
    async fn view(self, client: &Client, app: &AppId, ended: bool) -> Result<AppView, ClientError> {
        match self {
            FollowScope::Counts if !ended => {
                let view = client.app_with(app, TaskRowScope::None).await?;
                if !view.state.is_final() {
                    return Ok(view);
                }
            }
            FollowScope::Counts | FollowScope::Rows(_) => {}
        }
        client.app(app).await
    }

    fn is_over(self, view: &AppView) -> bool {
        match self {
            FollowScope::Counts => view.state.is_final(),
            FollowScope::Rows(is_over) => view.state.is_final() || is_over(view),
        }
    }

    fn first_look(self) -> LookSchedule {
        match self {
            FollowScope::Counts => LookSchedule::new(Duration::ZERO, LOOK),
            FollowScope::Rows(_) => LookSchedule::new(FIRST_LOOK, FIRST_LOOK),
        }
    }

    /// The change of the schedule after an event.
    fn look_after(self, event: &LoggedEvent) -> Option<LookSchedule> {
        match (self, event.reason.as_str()) {
            _ if is_last(event) => Some(LookSchedule::new(Duration::ZERO, SOON)),
            (FollowScope::Counts, _) => None,
            (FollowScope::Rows(_), "JobFinished") => {
                Some(LookSchedule::new(Duration::ZERO, FIRST_LOOK))
            }
            (FollowScope::Rows(_), _) => Some(LookSchedule::new(FIRST_LOOK, FIRST_LOOK)),
        }
    }
}

/// When the view is read next.
#[derive(Clone, Copy, Debug)]
struct LookSchedule {
    at: Instant,
    pace: Duration,
}

impl LookSchedule {
    fn new(first: Duration, pace: Duration) -> Self {
        let at = Instant::now() + first;
        LookSchedule { at, pace }
    }

    /// The next look. The pace of looks for an end that has been announced does not fall.
    fn again(self, has_ended: bool) -> Self {
        let pace = if has_ended {
            self.pace
        } else {
            LOOK.min(self.pace * 2)
        };
        LookSchedule::new(self.pace, pace)
    }
}

/// Passes every observation to `see` until the application has ended, and returns its last view.
pub(crate) async fn follow(
    client: &Client,
    app: &AppId,
    see: impl FnMut(JobObservation<'_>),
) -> Result<AppView, ClientError> {
    follow_in(client, app, FollowScope::Counts, see).await
}

/// Passes every observation in `scope` to `see`, and returns the last view.
pub(crate) async fn follow_in(
    client: &Client,
    app: &AppId,
    scope: FollowScope,
    mut see: impl FnMut(JobObservation<'_>),
) -> Result<AppView, ClientError> {
    let mut events =
        EventFollower::new(client.clone(), Some(app.clone()), 0, SERVER_SILENCE_TIMEOUT);
    let mut look = scope.first_look();
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
                has_ended |= is_last(&event);
                if let Some(next) = scope.look_after(&event) {
                    // Frequent events do not put off the next look.
                    look = LookSchedule { at: next.at.min(look.at), ..next };
                }
            }
            () = deadline::reached(look.at) => match scope.view(client, app, has_ended).await {
                Ok(view) => {
                    silent = None;
                    see(JobObservation::View(&view));
                    if scope.is_over(&view) {
                        if !has_ended && view.state.is_final() {
                            drain(&mut events, &mut see).await;
                        }
                        return Ok(view);
                    }
                    look = look.again(has_ended);
                    lull.explain(client, &view, &mut see).await;
                }
                Err(e) if e.retryable() && silent.get_or_insert_with(Instant::now).elapsed() < SERVER_SILENCE_TIMEOUT => {
                    look = LookSchedule::new(LOOK, LOOK);
                }
                Err(e) => return Err(e),
            },
        }
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
