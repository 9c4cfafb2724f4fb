//! `/v1/apps/{app}/master`: the address of a master, for executors.
//!
//! An executor that starts along with its master waits here until the master has registered.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use headroom_types::AppId;
use headroom_wire::v1::apps::MasterAddressView;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::describe::{Bad, Missing, TooMany};
use super::error::HandlerResult;
use super::limits;
use super::parse::{PathId, QueryParams};
use super::wait::WaitDuration;
use super::web::WebHandlerState;

/// Longest time between a registration and the response to a waiting executor.
const MAX_DELAY: Duration = Duration::from_millis(100);
/// Shortest pause between two reads. A shorter one only costs time.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// How long an executor waits.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MasterAddressQuery {
    /// Respond only when the master has registered or the application has ended, or after this time,
    /// such as `30s`; at most `60s`.
    #[param(value_type = Option<String>)]
    wait: Option<WaitDuration>,
}

/// Shows the address of the master.
///
/// `master_url` is absent before the current attempt has registered.
#[utoipa::path(get, path = "/v1/apps/{app}/master", tag = "application masters", params(("app" = AppId, Path), MasterAddressQuery),
    responses((status = 200, body = MasterAddressView), Bad, Missing, TooMany))]
pub(crate) async fn show(
    State(web): State<WebHandlerState>,
    PathId(app): PathId<AppId>,
    QueryParams(asked): QueryParams<MasterAddressQuery>,
) -> HandlerResult<Json<MasterAddressView>> {
    // Created first, so that it sees every batch after the first read.
    let mut batches = web.reader.handle.batches();
    let started = Instant::now();
    let until = started + asked.wait.map_or(Duration::ZERO, WaitDuration::time);
    let mut found = address(&web, &app).await?;
    if !is_awaited(&found) || asked.wait.is_none() {
        return Ok(Json(found));
    }
    let _place = limits::place(&web.streams)?;
    while is_awaited(&found) && Instant::now() < until {
        tokio::select! {
            () = web.closing.cancelled() => break,
            () = tokio::time::sleep_until(until) => {}
            news = batches.changed() => if news.is_err() { break },
        }
        found = address(&web, &app).await?;
        // The first reads follow each batch. The address of a master that starts slowly is read
        // less often.
        let pause = (started.elapsed() / 16).min(MAX_DELAY);
        if is_awaited(&found) && pause > MIN_PAUSE {
            tokio::time::sleep_until(until.min(Instant::now() + pause)).await;
        }
    }
    Ok(Json(found))
}

async fn address(web: &WebHandlerState, app: &AppId) -> HandlerResult<MasterAddressView> {
    let view = web.reader.app(app).await?;
    Ok(MasterAddressView {
        state: view.state,
        master_url: view.master_url,
    })
}

/// Whether a later registration can be expected.
fn is_awaited(found: &MasterAddressView) -> bool {
    found.master_url.is_none() && !found.state.is_final()
}
