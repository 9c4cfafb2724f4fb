//! Stays with one application until it has ended: events as they happen, its view a few times a second. Survives a resource
//! manager that is restarted meanwhile; gives up when none has answered for [`PATIENCE`].

use std::time::Duration;

use headroom_client::{Client, ClientError, EventFollower};
use headroom_types::AppId;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::events::Event;
use tokio::time::{Instant, MissedTickBehavior};

/// How long a resource manager may be silent before following it ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often the view is read.
const LOOK: Duration = Duration::from_millis(250);
/// How long after the end late events are still taken in.
const LINGER: Duration = Duration::from_millis(500);

/// What there is to see.
#[derive(Debug)]
pub(crate) enum Sight<'a> {
    /// Something happened.
    Event(&'a Event),
    /// How it stands.
    View(&'a AppView),
}

/// Tells `see` everything until the application has ended; answers its last view.
pub(crate) async fn follow(client: &Client, app: &AppId, mut see: impl FnMut(Sight<'_>)) -> Result<AppView, ClientError> {
    let mut events = EventFollower::new(client.clone(), Some(app.clone()), 0, PATIENCE);
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent: Option<Instant> = None;
    loop {
        tokio::select! {
            event = events.next() => see(Sight::Event(&event?)),
            _ = ticks.tick() => match client.app(app).await {
                Ok(view) => {
                    silent = None;
                    see(Sight::View(&view));
                    if view.state.is_final() {
                        drain(&mut events, &mut see).await;
                        return Ok(view);
                    }
                }
                Err(e) if e.retryable() && silent.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {}
                Err(e) => return Err(e),
            },
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
