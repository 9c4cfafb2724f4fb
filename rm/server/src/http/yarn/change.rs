//! An application's queue, priority and the end of its time.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use headroom_rm_core::{Call, Lifetime};
use headroom_types::QueuePath;
use headroom_wire::yarn::ids::YarnApp;
use headroom_wire::yarn::time;
use serde::{Deserialize, Serialize};

use super::super::Web;
use super::apps::{self, Timeout, Timeouts};
use super::error::Fault;
use super::filter::word;
use super::{At, Sent, app};

/// `{"queue":…}`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Queue {
    queue: String,
}

/// `{"priority":…}`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Priority {
    priority: i32,
}

/// `{"timeouts":…}`.
#[derive(Debug, Serialize)]
pub(crate) struct All {
    timeouts: Timeouts,
}

/// `{"timeout":…}`.
#[derive(Debug, Serialize)]
pub(crate) struct One {
    timeout: Timeout,
}

/// The time-out that is wanted.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    timeout: Expiry,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expiry {
    #[serde(rename = "type")]
    kind: String,
    expiry_time: String,
}

/// The only kind there is.
fn lifetime_only(kind: &str) -> Result<(), Fault> {
    word("type", &[("LIFETIME", ())], kind)
}

/// `GET …/queue`.
pub(crate) async fn queue(State(web): State<Web>, At(id): At<YarnApp>) -> Result<Json<Queue>, Fault> {
    Ok(Json(Queue { queue: app(&web, id).await?.queue.short().to_owned() }))
}

/// `PUT …/queue`.
pub(crate) async fn move_to(
    State(web): State<Web>,
    At(id): At<YarnApp>,
    Sent(wanted): Sent<Queue>,
) -> Result<Json<Queue>, Fault> {
    let queue: QueuePath = wanted.queue.parse().map_err(|e| Fault::bad(format!("queue: {e}")))?;
    let found = app(&web, id).await?;
    web.handle.call(Call::ChangeApp { app: found.id, queue: Some(queue), priority: None, lifetime: None }).await?;
    self::queue(State(web), At(id)).await
}

/// `GET …/priority`.
pub(crate) async fn priority(State(web): State<Web>, At(id): At<YarnApp>) -> Result<Json<Priority>, Fault> {
    Ok(Json(Priority { priority: app(&web, id).await?.priority }))
}

/// `PUT …/priority`.
pub(crate) async fn prioritise(
    State(web): State<Web>,
    At(id): At<YarnApp>,
    Sent(wanted): Sent<Priority>,
) -> Result<Json<Priority>, Fault> {
    let found = app(&web, id).await?;
    let priority = Some(wanted.priority);
    web.handle.call(Call::ChangeApp { app: found.id, queue: None, priority, lifetime: None }).await?;
    self::priority(State(web), At(id)).await
}

/// `GET …/timeouts`.
pub(crate) async fn timeouts(State(web): State<Web>, At(id): At<YarnApp>) -> Result<Json<All>, Fault> {
    Ok(Json(All { timeouts: Timeouts::of(&app(&web, id).await?, web.clock.unix_now().0) }))
}

/// `GET …/timeouts/LIFETIME`.
pub(crate) async fn timeout(State(web): State<Web>, At((id, kind)): At<(YarnApp, String)>) -> Result<Json<One>, Fault> {
    lifetime_only(&kind)?;
    Ok(Json(One { timeout: apps::lifetime(&app(&web, id).await?, web.clock.unix_now().0) }))
}

/// `PUT …/timeout`.
pub(crate) async fn expire(State(web): State<Web>, At(id): At<YarnApp>, Sent(wanted): Sent<Wanted>) -> Result<Json<One>, Fault> {
    let Expiry { kind, expiry_time } = wanted.timeout;
    lifetime_only(&kind)?;
    let found = app(&web, id).await?;
    let lifetime = if expiry_time == "UNLIMITED" {
        Lifetime::Unbounded
    } else {
        let until = time::read(&expiry_time);
        let until = until
            .ok_or_else(|| Fault::bad(format!("expiryTime: {expiry_time:?} is no moment like 2030-01-31T09:30:00.000+0000")))?;
        if until <= web.clock.unix_now() {
            return Err(Fault::bad(format!("expiryTime: {expiry_time} has passed")));
        }
        Lifetime::AtMost(Duration::from_millis(until.0.saturating_sub(found.submitted.0)))
    };
    web.handle.call(Call::ChangeApp { app: found.id, queue: None, priority: None, lifetime: Some(lifetime) }).await?;
    timeout(State(web), At((id, kind))).await
}
