//! `/v1/leader`: the resource managers of the cluster.

use axum::Json;
use axum::extract::State;
use headroom_wire::v1::operator::{LeaderView, ManagerRole, ManagerView};
use serde::Deserialize;
use utoipa::IntoParams;

use super::describe::Bad;
use super::parse::QueryParams;
use super::wait::WaitDuration;
use super::web::WebHandlerState;

/// Query of `GET /v1/leader`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LeaderQuery {
    /// Respond only when another manager than the one with this advertised address leads, or after
    /// `wait`.
    #[serde(default)]
    pub(crate) other_than: String,
    /// Longest wait for another leader, such as `10s`; at most `60s`. None by default.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    pub(crate) wait: WaitDuration,
}

/// Shows the resource managers of the cluster, and which of them leads.
///
/// A standby answers this call too. Without an election, the only manager is `single`.
#[utoipa::path(get, path = "/v1/leader", tag = "cluster", params(LeaderQuery), responses((status = 200, body = LeaderView), Bad))]
pub(crate) async fn leader(
    State(web): State<WebHandlerState>,
    QueryParams(query): QueryParams<LeaderQuery>,
) -> Json<LeaderView> {
    if query.other_than == web.url.as_ref() {
        // It leads until its process ends.
        tokio::select! {
            () = web.closing.cancelled() => {}
            () = tokio::time::sleep(query.wait.time()) => {}
        }
    }
    let epoch = web.reader.epoch;
    if let Some((group, clock)) = &web.election {
        return Json(group.report(Some((epoch, clock))));
    }
    let own = web.url.to_string();
    let manager = ManagerView {
        url: own.clone(),
        state: ManagerRole::Single,
        since_ms: Some(web.reader.clock.unix_at_zero()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    Json(LeaderView {
        leader: Some(own.clone()),
        own,
        state: ManagerRole::Single,
        epoch: Some(epoch),
        lease_ms: None,
        problem: None,
        managers: vec![manager],
    })
}
