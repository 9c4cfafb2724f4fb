//! Stays with one application until it has ended: events as they happen, its view a few times a second. Survives a resource
//! manager that is restarted meanwhile; gives up when none has answered for [`PATIENCE`].

use std::time::Duration;

use headroom_client::{Client, ClientError, EventFollower, TaskRows};
use headroom_types::AppId;
use headroom_wire::v1::apps::{AppView, WhyPending};
use headroom_wire::v1::events::Event;
use tokio::time::{Instant, MissedTickBehavior};

/// How long a resource manager may be silent before following it ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often the view is read.
const LOOK: Duration = Duration::from_millis(250);
/// How long after the end late events are still taken in.
const LINGER: Duration = Duration::from_millis(500);

/// How long nothing may happen before somebody who follows is told what is waited for.
const QUIET: Duration = Duration::from_secs(2);

/// What there is to see.
#[derive(Debug)]
pub(crate) enum Sight<'a> {
    /// Something happened.
    Event(&'a Event),
    /// How it stands; with tasks only once it has ended.
    View(&'a AppView),
    /// Nothing happens, because this request waits. Told once for each reason.
    Waits(&'a WhyPending),
}

/// Tells `see` everything until the application has ended; answers its last view.
pub(crate) async fn follow(client: &Client, app: &AppId, mut see: impl FnMut(Sight<'_>)) -> Result<AppView, ClientError> {
    let mut events = EventFollower::new(client.clone(), Some(app.clone()), 0, PATIENCE);
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent: Option<Instant> = None;
    let mut lull = Lull { since: Instant::now(), told: String::new() };
    loop {
        tokio::select! {
            event = events.next() => {
                lull.since = Instant::now();
                see(Sight::Event(&event?));
            }
            _ = ticks.tick() => match view_of(client, app).await {
                Ok(view) => {
                    silent = None;
                    see(Sight::View(&view));
                    if view.state.is_final() {
                        drain(&mut events, &mut see).await;
                        return Ok(view);
                    }
                    lull.explain(client, &view, &mut see).await;
                }
                Err(e) if e.retryable() && silent.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {}
                Err(e) => return Err(e),
            },
        }
    }
}

/// How it stands: with the figures of its job, and with all tasks once it has ended.
async fn view_of(client: &Client, app: &AppId) -> Result<AppView, ClientError> {
    let view = client.app_with(app, TaskRows::None).await?;
    if view.state.is_final() { client.app(app).await } else { Ok(view) }
}

/// A time in which nothing happens.
struct Lull {
    since: Instant,
    told: String,
}

impl Lull {
    /// Tells what the application waits for, when it has been quiet for a while and that was not told before.
    async fn explain(&mut self, client: &Client, view: &AppView, see: &mut impl FnMut(Sight<'_>)) {
        if view.pending == 0 || self.since.elapsed() < QUIET {
            return;
        }
        self.since = Instant::now();
        let Ok(reasons) = client.why(&view.id).await else { return };
        if let Some(first) = reasons.first().filter(|r| r.sentence != self.told) {
            self.told.clone_from(&first.sentence);
            see(Sight::Waits(first));
        }
    }
}

/// The end is known before its last events have come over their own connection.
async fn drain(events: &mut EventFollower, see: &mut impl FnMut(Sight<'_>)) {
    let deadline = Instant::now() + LINGER;
    while let Ok(Ok(event)) = tokio::time::timeout_at(deadline, events.next()).await {
        see(Sight::Event(&event));
        if matches!(event.reason.as_str(), "AppFinished" | "AppFailed" | "AppKilled" | "JobFinished" | "JobFailed" | "JobKilled")
        {
            return;
        }
    }
}
