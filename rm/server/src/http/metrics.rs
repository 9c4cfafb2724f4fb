//! `/metrics`: metrics for Prometheus.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use headroom_telemetry::ExpositionFormat;
use headroom_telemetry::names::RM_LEASE;

use super::describe::Bad;
use super::error::HandlerResult;
use super::parse::{EmptyQuery, QueryParams};
use super::web::WebHandlerState;

/// Returns all metrics, in the Prometheus text format.
///
/// A caller that accepts `application/openmetrics-text` receives OpenMetrics.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))),
    (status = 503, body = headroom_wire::v1::error::ProblemDetails, content_type = "application/problem+json",
        description = "The metrics are not available."),
    Bad,
))]
pub(crate) async fn metrics(
    State(web): State<WebHandlerState>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let format =
        ExpositionFormat::wanted(headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()));
    let mut page = crate::metrics::page(&web.reader, web.state.clone()).await?;
    if let Some((group, clock)) = &web.election {
        group.count(&mut page);
        page.number(&RM_LEASE, &[], clock.remaining().as_secs_f64());
    }
    Ok((
        [(header::CONTENT_TYPE, format.content_type())],
        page.write(format),
    )
        .into_response())
}
