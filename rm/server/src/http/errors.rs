//! `/v1/errors`: explanations of error codes.

use axum::Json;
use headroom_types::spelling::did_you_mean;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::explain::Explanation;

use super::describe::{Bad, Missing};
use super::error::HandlerResult;
use super::parse::{EmptyQuery, PathId, QueryParams};

/// Lists all error codes with their causes and remedies.
#[utoipa::path(get, path = "/v1/errors", tag = "cluster", responses((status = 200, body = Vec<Explanation>), Bad))]
pub(crate) async fn list(
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Json<Vec<Explanation>> {
    Json(
        ErrorCode::ALL
            .into_iter()
            .map(ErrorCode::explanation)
            .collect(),
    )
}

/// Explains one error code: its meaning, causes and remedies.
#[utoipa::path(get, path = "/v1/errors/{code}", tag = "cluster", params(("code" = String, Path, description = "Such as HR0404.")),
    responses((status = 200, body = Explanation), Bad, Missing))]
pub(crate) async fn one(
    PathId(code): PathId<String>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> HandlerResult<Json<Explanation>> {
    let found: Result<ErrorCode, String> = code.parse();
    found.map(|code| Json(code.explanation())).map_err(|what| {
        let problem = ProblemDetails::not_found(what);
        let near = did_you_mean(
            &code.to_ascii_uppercase(),
            ErrorCode::ALL.map(|c| c.to_string()),
        );
        problem
            .hint(near.unwrap_or_else(|| "GET /v1/errors lists all codes".to_owned()))
            .into()
    })
}
