//! The refusal of a call: a problem as JSON.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};

pub(super) struct RefusedRequest(pub(super) Box<ProblemDetails>);

impl IntoResponse for RefusedRequest {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (
            status,
            [(header::CONTENT_TYPE, "application/problem+json")],
            Json(self.0),
        )
            .into_response()
    }
}

pub(super) fn refuse(code: ErrorCode, detail: impl Into<String>) -> RefusedRequest {
    RefusedRequest(Box::new(ProblemDetails::new(code, detail)))
}
