//! Changes of an application: queue, priority and timeout.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use headroom_rm_core::{ClusterCall, Lifetime};
use headroom_types::QueuePath;
use headroom_wire::yarn::ids::YarnApp;
use headroom_wire::yarn::time;
use serde::{Deserialize, Serialize};

use super::super::web::Web;
use super::application::{Tagged, app, tagged, to_change};
use super::apps::{self, Timeout, Timeouts};
use super::error::YarnError;
use super::filter::word;
use super::request::{YarnJsonBody, YarnPathParams};

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

/// Requested timeout.
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

/// Checks the type of a timeout: the lifetime is the only one.
fn lifetime_only(kind: &str) -> Result<(), YarnError> {
    word("type", &[("LIFETIME", ())], kind)
}

/// `GET …/queue`.
pub(crate) async fn queue(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
) -> Result<Tagged<Queue>, YarnError> {
    let found = app(&web, id).await?;
    Ok(tagged(
        &found,
        Queue {
            queue: found.queue.short().to_owned(),
        },
    ))
}

/// `PUT …/queue`.
pub(crate) async fn move_to(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<Queue>,
) -> Result<Tagged<Queue>, YarnError> {
    let queue: QueuePath = wanted
        .queue
        .parse()
        .map_err(|e| YarnError::bad(format!("queue: {e}")))?;
    let (turn, found) = to_change(&web, &headers, id).await?;
    web.reader
        .handle
        .call(ClusterCall::ChangeApp {
            app: found.id,
            queue: Some(queue),
            priority: None,
            lifetime: None,
        })
        .await?;
    drop(turn);
    self::queue(State(web), YarnPathParams(id)).await
}

/// `GET …/priority`.
pub(crate) async fn priority(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
) -> Result<Tagged<Priority>, YarnError> {
    let found = app(&web, id).await?;
    Ok(tagged(
        &found,
        Priority {
            priority: found.priority,
        },
    ))
}

/// `PUT …/priority`.
pub(crate) async fn prioritise(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<Priority>,
) -> Result<Tagged<Priority>, YarnError> {
    let (turn, found) = to_change(&web, &headers, id).await?;
    let priority = Some(wanted.priority);
    web.reader
        .handle
        .call(ClusterCall::ChangeApp {
            app: found.id,
            queue: None,
            priority,
            lifetime: None,
        })
        .await?;
    drop(turn);
    self::priority(State(web), YarnPathParams(id)).await
}

/// `GET …/timeouts`.
pub(crate) async fn timeouts(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
) -> Result<Tagged<All>, YarnError> {
    let found = app(&web, id).await?;
    Ok(tagged(
        &found,
        All {
            timeouts: Timeouts::of(&found, web.reader.clock.unix_now().0),
        },
    ))
}

/// `GET …/timeouts/LIFETIME`.
pub(crate) async fn timeout(
    State(web): State<Web>,
    YarnPathParams((id, kind)): YarnPathParams<(YarnApp, String)>,
) -> Result<Tagged<One>, YarnError> {
    lifetime_only(&kind)?;
    let found = app(&web, id).await?;
    Ok(tagged(
        &found,
        One {
            timeout: apps::lifetime(&found, web.reader.clock.unix_now().0),
        },
    ))
}

/// `PUT …/timeout`.
pub(crate) async fn expire(
    State(web): State<Web>,
    YarnPathParams(id): YarnPathParams<YarnApp>,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<Wanted>,
) -> Result<Tagged<One>, YarnError> {
    let Expiry { kind, expiry_time } = wanted.timeout;
    lifetime_only(&kind)?;
    let (turn, found) = to_change(&web, &headers, id).await?;
    let lifetime = if expiry_time == "UNLIMITED" {
        Lifetime::Unbounded
    } else {
        let until = time::parse_timestamp(&expiry_time);
        let until = until.ok_or_else(|| {
            YarnError::bad(format!(
                "expiryTime: {expiry_time:?} is not a time such as 2030-01-31T09:30:00.000+0000"
            ))
        })?;
        if until <= web.reader.clock.unix_now() {
            return Err(YarnError::bad(format!(
                "expiryTime: {expiry_time} has passed"
            )));
        }
        Lifetime::AtMost(Duration::from_millis(
            until.0.saturating_sub(found.submitted.0),
        ))
    };
    web.reader
        .handle
        .call(ClusterCall::ChangeApp {
            app: found.id,
            queue: None,
            priority: None,
            lifetime: Some(lifetime),
        })
        .await?;
    drop(turn);
    timeout(State(web), YarnPathParams((id, kind))).await
}
