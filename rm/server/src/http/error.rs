//! Every error as a problem document, those of the framework included.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headroom_wire::v1::error::{Code, Problem};

/// A problem as an answer.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Problem);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.0)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(self.0.code, Code::HR0429 | Code::HR0503) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // Whoever knows the request's id writes it in.
        response.extensions_mut().insert(self.0);
        response
    }
}

/// There is nothing at this address.
pub(crate) async fn no_route(uri: axum::http::Uri) -> Failure {
    Problem::new(Code::HR0404, format!("there is nothing at {}", uri.path())).hint("the interface begins at /v1").into()
}

/// There is something, but not for this method.
pub(crate) async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> Failure {
    Problem::new(Code::HR0400, format!("{} does not take {method}", uri.path())).into()
}

/// A handler panicked. What it said is in the log, not in the answer.
pub(crate) fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what.downcast_ref::<String>().map(String::as_str).or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(what = text.unwrap_or("unknown"), "a handler panicked; the caller was told, going on");
    Failure(Problem::new(Code::HR0500, "a fault inside the resource manager; its log says more")).into_response()
}
