//! `/v1/leader`: the resource managers of the cluster.

use axum::Json;
use axum::extract::State;
use headroom_wire::v1::operator::{LeaderView, ManagerRole, ManagerView};

use super::describe::Bad;
use super::parse::{EmptyQuery, QueryParams};
use super::web::WebHandlerState;

/// Shows the resource managers of the cluster, and which of them leads.
///
/// A standby answers this call too. Without an election, the only manager is `single`.
#[utoipa::path(get, path = "/v1/leader", tag = "cluster", responses((status = 200, body = LeaderView), Bad))]
pub(crate) async fn leader(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Json<LeaderView> {
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
