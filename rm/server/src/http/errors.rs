//! `/v1/errors`: explanations of error codes.

use axum::Json;
use headroom_rm_core::CallRefusal;
use headroom_types::spelling::did_you_mean;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::explain::Explanation;

use super::Web;
use super::describe::{Bad, Missing};
use super::error::ProblemResponse;
use super::parse::{EmptyQuery, Id, Params};
use crate::view::View;

/// Lists all error codes with their causes and remedies.
#[utoipa::path(get, path = "/v1/errors", tag = "cluster", responses((status = 200, body = Vec<Explanation>), Bad))]
pub(crate) async fn list(Params(EmptyQuery {}): Params<EmptyQuery>) -> Json<Vec<Explanation>> {
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
    Id(code): Id<String>,
    Params(EmptyQuery {}): Params<EmptyQuery>,
) -> Result<Json<Explanation>, ProblemResponse> {
    let found: Result<ErrorCode, String> = code.parse();
    found.map(|code| Json(code.explanation())).map_err(|what| {
        let problem = ProblemDetails::new(ErrorCode::HR0404, what);
        let near = did_you_mean(
            &code.to_ascii_uppercase(),
            ErrorCode::ALL.map(|c| c.to_string()),
        );
        problem
            .hint(near.unwrap_or_else(|| "GET /v1/errors lists all codes".to_owned()))
            .into()
    })
}

impl Web {
    /// Problem for an object that does not exist, with the most similar name.
    pub(crate) async fn missing(&self, refusal: CallRefusal) -> ProblemResponse {
        self.handle.refused(&refusal).await.into()
    }
}

/// Adds the most similar name to a problem, if the refusal is about an object that does not exist.
pub(crate) fn with_nearest(
    view: &View,
    refusal: &CallRefusal,
    problem: ProblemDetails,
) -> ProblemDetails {
    let near = if let CallRefusal::NoSuchApp(app) = refusal {
        did_you_mean(&app.to_string(), view.apps.keys().map(ToString::to_string))
    } else if let CallRefusal::NoSuchNode(node) = refusal {
        did_you_mean(node.as_str(), view.nodes.keys().map(|n| n.as_str()))
    } else if let CallRefusal::NoSuchQueue(queue) = refusal {
        let all: Vec<&str> = view
            .queues
            .root
            .walk()
            .into_iter()
            .map(|q| q.path.as_str())
            .collect();
        let near = did_you_mean(queue.as_str(), &all);
        Some(near.unwrap_or_else(|| "rmctl queue list shows all queues".to_owned()))
    } else {
        None
    };
    match near {
        Some(near) => problem.hint(near),
        None => problem,
    }
}
