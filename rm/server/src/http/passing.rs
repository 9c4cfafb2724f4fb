//! Proxy for responses of nodes, as streams, while the caller reads.

use axum::body::Body;
use axum::http::HeaderName;
use axum::response::Response;
use futures_util::StreamExt as _;
use headroom_wire::v1::error::ProblemDetails;
use tokio::sync::OwnedSemaphorePermit;

use super::error::HandlerResult;
use super::web::WebHandlerState;

/// Passes on the status, the given headers and the body of a response. Ends when the daemon closes.
pub(super) fn pass_on(
    web: &WebHandlerState,
    answer: reqwest::Response,
    headers: &[HeaderName],
    seat: Option<OwnedSemaphorePermit>,
) -> HandlerResult<Response> {
    let mut response = Response::builder().status(answer.status());
    for name in headers {
        if let Some(value) = answer.headers().get(name) {
            response = response.header(name, value);
        }
    }
    // The stream slot is released with the last byte, or when the caller stops reading.
    let pieces = answer
        .bytes_stream()
        .inspect(move |_| {
            let _held = &seat;
        })
        .take_until(web.closing.clone().cancelled_owned());
    let passed_on = response.body(Body::from_stream(pieces));
    passed_on.map_err(|_| {
        ProblemDetails::internal("the response of the node cannot be passed on").into()
    })
}
