//! Errors of this interface in the format of YARN.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::yarn::error::{RemoteError, YarnErrorKind};

/// The result of a call.
pub(crate) type YarnResult<T> = Result<T, YarnError>;

/// A failed call.
#[derive(Debug)]
pub(crate) struct YarnError {
    kind: YarnErrorKind,
    what: String,
}

impl YarnError {
    pub(crate) fn new(kind: YarnErrorKind, what: impl Into<String>) -> Self {
        YarnError {
            kind,
            what: what.into(),
        }
    }
    /// The call is invalid.
    pub(crate) fn bad(what: impl Into<String>) -> Self {
        YarnError::new(YarnErrorKind::BadRequest, what)
    }
    /// The object does not exist.
    pub(crate) fn none(what: impl Into<String>) -> Self {
        YarnError::new(YarnErrorKind::NotFound, what)
    }
}

impl From<ProblemDetails> for YarnError {
    fn from(problem: ProblemDetails) -> Self {
        let kind = match problem.code {
            ErrorCode::HR0400
            | ErrorCode::HR0410
            | ErrorCode::HR0411
            | ErrorCode::HR0413
            | ErrorCode::HR0416
            | ErrorCode::HR0422
            | ErrorCode::HR0426 => YarnErrorKind::BadRequest,
            ErrorCode::HR0404 => YarnErrorKind::NotFound,
            ErrorCode::HR0401
            | ErrorCode::HR0403
            | ErrorCode::HR0409
            | ErrorCode::HR0418
            | ErrorCode::HR0419 => YarnErrorKind::Forbidden,
            ErrorCode::HR0421 | ErrorCode::HR0429 | ErrorCode::HR0503 | ErrorCode::HR0507 => {
                YarnErrorKind::Unavailable
            }
            ErrorCode::HR0500 => YarnErrorKind::Internal,
        };
        let hints = problem.hints.iter().map(|hint| format!("; {hint}"));
        YarnError::new(kind, problem.detail.clone() + &hints.collect::<String>())
    }
}

impl IntoResponse for YarnError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(RemoteError::new(self.kind, &self.what))).into_response()
    }
}

/// Features of YARN that this interface lacks, by the path segment after `/ws/v1/cluster`.
const NOT_HERE: [(&str, &str); 13] = [
    (
        "reservation",
        "time reservations are not supported; use a queue with a guarantee",
    ),
    (
        "delegation-token",
        "YARN's delegation tokens are not supported; create a token with POST /v1/acl/tokens",
    ),
    ("scheduler-conf", "change queues with PUT /v1/queues"),
    (
        "get-node-labels",
        "labels of nodes are set in the configuration of their agents, and shown in /ws/v1/cluster/nodes",
    ),
    (
        "add-node-labels",
        "labels of nodes are set in the configuration of their agents",
    ),
    (
        "remove-node-labels",
        "labels of nodes are set in the configuration of their agents",
    ),
    (
        "replace-node-to-labels",
        "labels of nodes are set in the configuration of their agents",
    ),
    ("federation", "the resource manager has a single cluster"),
    (
        "nodes",
        "the configuration of its agent sets the resources of a node",
    ),
    (
        "scheduler",
        "/ws/v1/cluster/scheduler/app-activities/{app} explains why an application waits",
    ),
    (
        "scheduler-overview",
        "/ws/v1/cluster/scheduler shows the queues",
    ),
    (
        "queues",
        "GET /v1/acl/self returns the rights of the caller, also those for a queue",
    ),
    ("userinfo", "GET /v1/acl/self returns the caller"),
];

/// Response for an unknown path, or for a feature that is left out on purpose.
///
/// The body is read first: a connection with an unread part of a request cannot serve the next
/// request.
pub(crate) async fn no_route(uri: Uri, body: Result<Bytes, BytesRejection>) -> YarnError {
    drop(body);
    let path = uri.path();
    let first = path
        .strip_prefix("/ws/v1/cluster/")
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_default();
    match NOT_HERE.iter().find(|(word, _)| *word == first) {
        Some((_, instead)) => YarnError::new(
            YarnErrorKind::NotImplemented,
            format!("{path} is not supported: {instead}"),
        ),
        None => YarnError::none(format!("there is nothing at {path}")),
    }
}

/// Response for a known path with an unsupported method.
pub(crate) async fn no_method(
    method: Method,
    uri: Uri,
    body: Result<Bytes, BytesRejection>,
) -> YarnError {
    drop(body);
    YarnError::new(
        YarnErrorKind::NotAllowed,
        format!("{} does not take {method}", uri.path()),
    )
}

/// Response for a caller that accepts only XML, which is not supported.
pub(crate) fn not_acceptable() -> YarnError {
    YarnError::new(
        YarnErrorKind::NotAcceptable,
        "responses are application/json only; omit Accept, or name that type",
    )
}
