//! Problem documents for all errors, including those of the framework.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::submission;

use crate::to_wire;

/// The result of a handler, or of a part of one.
pub(crate) type HandlerResult<T> = Result<T, ProblemResponse>;

/// A problem as a response.
#[derive(Debug)]
pub(crate) struct ProblemResponse(pub(crate) ProblemDetails);

impl From<ProblemDetails> for ProblemResponse {
    fn from(problem: ProblemDetails) -> Self {
        ProblemResponse(problem)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.0)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if matches!(self.0.code, ErrorCode::HR0429 | ErrorCode::HR0503) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.0.code == ErrorCode::HR0426 {
            headers.insert(
                header::UPGRADE,
                HeaderValue::from_static(submission::UPGRADE),
            );
        }
        // The trace layer adds the id of the request to it.
        response.extensions_mut().insert(self.0);
        response
    }
}

/// Response for an unknown path.
pub(crate) async fn no_route(uri: axum::http::Uri) -> ProblemResponse {
    ProblemDetails::not_found(format!("there is nothing at {}", uri.path()))
        .hint("the interface begins at /v1")
        .into()
}

/// Response for a known path with an unsupported method.
pub(crate) async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> ProblemResponse {
    ProblemDetails::bad_request(format!("{} does not take {method}", uri.path())).into()
}

/// Response after a panic of a handler. The message of the panic is in the log, not in the
/// response.
pub(crate) fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(
        what = text.unwrap_or("unknown"),
        "a handler panicked; the caller received an internal error"
    );
    ProblemResponse(to_wire::internal_error()).into_response()
}

/// A result that only a bug can cause.
pub(crate) fn unexpected() -> ProblemResponse {
    tracing::error!("an unexpected result; the caller received an internal error");
    to_wire::internal_error().into()
}
