//! Answers of a standby: it refers callers to the leader, and reports its own health.

use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use headroom_telemetry::names::{RM_BUILD_INFO, RM_LEADER, RM_STANDBY_BEHIND};
use headroom_telemetry::{ExpositionFormat, MetricsPage, process};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::operator::LeaderView;

use super::error::{HandlerResult, ProblemResponse};
use super::leader::LeaderQuery;
use super::parse::QueryParams;
use crate::manager_group::ManagerGroup;

/// Names the leader in an answer of a standby.
const LEADER: HeaderName = HeaderName::from_static("headroom-leader");
/// Marks the answer of a standby that knows no leader.
const STANDBY: HeaderName = HeaderName::from_static("headroom-standby");

/// Routes of a standby, with those for the other managers: they are described as those of the
/// leader.
pub(crate) fn router(group: ManagerGroup, copies: Router) -> Router {
    Router::new()
        .fallback(answer)
        .with_state(group)
        .merge(copies)
}

async fn answer(State(group): State<ManagerGroup>, request: Request) -> Response {
    match request.uri().path() {
        "/livez" => "ok\n".into_response(),
        "/v1/leader" => leader(&group, request).await.into_response(),
        "/metrics" => {
            let accepted = request.headers().get(header::ACCEPT);
            let format = ExpositionFormat::wanted(accepted.and_then(|a| a.to_str().ok()));
            metrics(&group, format).await
        }
        _ => refer(&group, &request),
    }
}

/// The managers, when another one leads than the one that the query names.
async fn leader(group: &ManagerGroup, request: Request) -> HandlerResult<Json<LeaderView>> {
    let (mut parts, _) = request.into_parts();
    let QueryParams(query) =
        QueryParams::<LeaderQuery>::from_request_parts(&mut parts, group).await?;
    let change = group.leader_other_than(&query.other_than);
    // Without a change, the answer is the same as before.
    let _ = tokio::time::timeout(query.wait.time(), change).await;
    Ok(Json(group.report(None)))
}

/// Refers a call to the leader. `/readyz` is such a call: a load balancer then prefers the leader.
fn refer(group: &ManagerGroup, request: &Request) -> Response {
    let view = group.election();
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    // Without etcd, this standby does not know whether the leader still leads.
    let known = view.problem.is_none();
    let leader = view
        .leader
        .filter(|leader| known && leader.url != group.url());
    let Some(leader) = leader else {
        let why = view
            .problem
            .unwrap_or_else(|| "the next one is being elected".to_owned());
        let problem = ProblemDetails::unavailable(format!("no resource manager leads: {why}"));
        let mut response = ProblemResponse(problem).into_response();
        response
            .headers_mut()
            .insert(STANDBY, HeaderValue::from_static("true"));
        return response;
    };
    let problem = ProblemDetails::new(
        ErrorCode::HR0421,
        format!("{} is a standby; {} leads", group.url(), leader.url),
    );
    let mut response = ProblemResponse(problem).into_response();
    if follows_redirects(request.uri().path(), request.headers()) {
        *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    }
    for (name, value) in [
        (LEADER, leader.url.clone()),
        (header::LOCATION, format!("{}{path}", leader.url)),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Whether the caller knows redirects only: a browser that opens a page, or a client of YARN.
fn follows_redirects(path: &str, headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let is_browser = accepted
        .and_then(|accepted| accepted.to_str().ok())
        .is_some_and(|accepted| accepted.contains("text/html"));
    is_browser || path.starts_with("/ws/")
}

async fn metrics(group: &ManagerGroup, format: ExpositionFormat) -> Response {
    let mut page = MetricsPage::new();
    page.count(&RM_BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
    page.count(&RM_LEADER, &[], 0);
    group.count(&mut page);
    if let Some(behind) = group.revisions_behind().await {
        page.count(&RM_STANDBY_BEHIND, &[], behind);
    }
    process::add_process_metrics(&mut page, group.started_seconds());
    (
        [(header::CONTENT_TYPE, format.content_type())],
        page.write(format),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_and_clients_of_yarn_are_redirected() {
        let accepting = |accepted: &'static str| {
            let pair = (header::ACCEPT, HeaderValue::from_static(accepted));
            HeaderMap::from_iter([pair])
        };
        let page = accepting("text/html,application/xhtml+xml,*/*;q=0.8");
        assert!(follows_redirects("/ui/", &page));
        let json = accepting("application/json");
        assert!(follows_redirects("/ws/v1/cluster/info", &json));
        assert!(!follows_redirects("/v1/status", &json));
        assert!(!follows_redirects("/v1/status", &accepting("*/*")));
        assert!(!follows_redirects("/ui/", &HeaderMap::new()));
    }
}
