//! Changes of an application: queue, priority and timeout.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use headroom_rm_core::ApplicationLifetime;
use headroom_rm_reports::{ApplicationChange, SharedCluster};
use headroom_types::QueuePath;
use headroom_wire::yarn::ids::YarnApplicationId;
use headroom_wire::yarn::time;
use serde::{Deserialize, Serialize};

use crate::application::{Tagged, app, tagged, to_change};
use crate::apps::{self, Timeout};
use crate::error::{YarnError, YarnResult};
use crate::field::{Field, field};
use crate::filter::word;
use crate::request::{YarnJsonBody, YarnPathParams};

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

/// Requested timeout.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestedTimeout {
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
fn lifetime_only(kind: &str) -> YarnResult<()> {
    word("type", &[("LIFETIME", ())], kind)
}

/// `GET …/queue`.
pub(crate) async fn queue(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
) -> YarnResult<Tagged<Queue>> {
    let found = app(&cluster, id).await?;
    Ok(tagged(
        &cluster,
        &found,
        Queue {
            queue: found.queue.short().to_owned(),
        },
    ))
}

/// `PUT …/queue`.
pub(crate) async fn move_to(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<Queue>,
) -> YarnResult<Tagged<Queue>> {
    let queue: QueuePath = wanted
        .queue
        .parse()
        .map_err(|e| YarnError::bad(format!("queue: {e}")))?;
    let locked = to_change(&cluster, &headers, id).await?;
    cluster
        .change(locked.report.id.clone(), ApplicationChange::Queue(queue))
        .await?;
    drop(locked);
    self::queue(State(cluster), YarnPathParams(id)).await
}

/// `GET …/priority`.
pub(crate) async fn priority(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
) -> YarnResult<Tagged<Priority>> {
    let found = app(&cluster, id).await?;
    Ok(tagged(
        &cluster,
        &found,
        Priority {
            priority: found.priority,
        },
    ))
}

/// `PUT …/priority`.
pub(crate) async fn prioritise(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<Priority>,
) -> YarnResult<Tagged<Priority>> {
    let locked = to_change(&cluster, &headers, id).await?;
    let change = ApplicationChange::Priority(wanted.priority);
    cluster.change(locked.report.id.clone(), change).await?;
    drop(locked);
    self::priority(State(cluster), YarnPathParams(id)).await
}

/// `GET …/timeouts`.
pub(crate) async fn timeouts(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
) -> YarnResult<Tagged<Field<Field<Vec<Timeout>>>>> {
    let found = app(&cluster, id).await?;
    let all = apps::timeouts(&found, cluster.time().unix_now().0);
    Ok(tagged(&cluster, &found, field("timeouts", all)))
}

/// `GET …/timeouts/LIFETIME`.
pub(crate) async fn timeout(
    State(cluster): State<SharedCluster>,
    YarnPathParams((id, kind)): YarnPathParams<(YarnApplicationId, String)>,
) -> YarnResult<Tagged<Field<Timeout>>> {
    lifetime_only(&kind)?;
    let found = app(&cluster, id).await?;
    let lifetime = apps::lifetime(&found, cluster.time().unix_now().0);
    Ok(tagged(&cluster, &found, field("timeout", lifetime)))
}

/// `PUT …/timeout`.
pub(crate) async fn expire(
    State(cluster): State<SharedCluster>,
    YarnPathParams(id): YarnPathParams<YarnApplicationId>,
    headers: HeaderMap,
    YarnJsonBody(wanted): YarnJsonBody<RequestedTimeout>,
) -> YarnResult<Tagged<Field<Timeout>>> {
    let Expiry { kind, expiry_time } = wanted.timeout;
    lifetime_only(&kind)?;
    let locked = to_change(&cluster, &headers, id).await?;
    let lifetime = if expiry_time == "UNLIMITED" {
        ApplicationLifetime::Unbounded
    } else {
        let until = time::parse_timestamp(&expiry_time);
        let until = until.ok_or_else(|| {
            YarnError::bad(format!(
                "expiryTime: {expiry_time:?} is not a time such as 2030-01-31T09:30:00.000+0000"
            ))
        })?;
        if until <= cluster.time().unix_now() {
            return Err(YarnError::bad(format!(
                "expiryTime: {expiry_time} has passed"
            )));
        }
        ApplicationLifetime::AtMost(Duration::from_millis(
            until.0.saturating_sub(locked.report.submitted.0),
        ))
    };
    cluster
        .change(
            locked.report.id.clone(),
            ApplicationChange::Lifetime(lifetime),
        )
        .await?;
    drop(locked);
    timeout(State(cluster), YarnPathParams((id, kind))).await
}
