//! Request parsing: bodies, paths and query parameters. A parse error results in a problem that
//! names the location.

use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use headroom_rm_core::DryRun;
use headroom_rm_reports::IfMatch;
use headroom_types::{AppId, TaskId, UnixMillis, millis};
use headroom_wire::v1::error::{ProblemDetails, ProblemResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::error::{HandlerResult, ProblemResponse};

/// A JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, state: &S) -> HandlerResult<Self> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        serde_json::from_slice(&bytes)
            .map(JsonBody)
            .map_err(|e| ProblemDetails::bad_request(format!("the body: {e}")).into())
    }
}

fn unread(rejection: BytesRejection) -> ProblemResponse {
    let problem = if rejection.status().as_u16() == 413 {
        ProblemDetails::too_large("the body is larger than this call allows")
            .hint("send less in one call")
    } else {
        ProblemDetails::bad_request(format!(
            "the body did not arrive: {}",
            rejection.body_text()
        ))
    };
    problem.into()
}

/// Query parameters.
#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HandlerResult<Self> {
        let parsed = Query::<T>::from_request_parts(parts, state).await;
        parsed
            .map(|Query(t)| QueryParams(t))
            .map_err(|e| mistaken(&e.body_text()).into())
    }
}

/// Query parameter for a dry run.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DryRunQuery {
    /// Only check the change, and return its result.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

impl DryRunQuery {
    /// Whether the core makes the change.
    pub(crate) fn mode(&self) -> DryRun {
        if self.dry_run {
            DryRun::DryRun
        } else {
            DryRun::Really
        }
    }

    /// Status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        if self.dry_run {
            StatusCode::ACCEPTED
        } else {
            StatusCode::OK
        }
    }
}

/// Time span before now, such as `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastTimeSpan(Duration);

impl PastTimeSpan {
    /// Time that is this span before `now`.
    pub(crate) fn before(self, now: UnixMillis) -> UnixMillis {
        UnixMillis(now.0.saturating_sub(millis(self.0)))
    }
}

impl<'de> serde::Deserialize<'de> for PastTimeSpan {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(d)?;
        let time = headroom_config::toml_reader::parse_duration(&text)
            .map_err(|e| format!("{e}; write an age such as 1h"));
        time.map(PastTimeSpan).map_err(serde::de::Error::custom)
    }
}

/// Parses `If-Match`.
pub(crate) fn if_match(headers: &HeaderMap) -> ProblemResult<IfMatch> {
    IfMatch::of(
        headers
            .get_all(header::IF_MATCH)
            .iter()
            .map(|value| value.to_str().ok()),
    )
}

/// Query without parameters.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyQuery {}

/// Problem for a wrong query parameter. For an unknown one it suggests the most similar known
/// parameter.
fn mistaken(what: &str) -> ProblemDetails {
    let problem = ProblemDetails::bad_request(format!("the parameters: {what}"));
    let mut words = what.split('`').skip(1).step_by(2);
    match words.next().filter(|_| what.contains("unknown field")) {
        None => problem,
        Some(written) => {
            let known: Vec<&str> = words.collect();
            let problem = ProblemDetails::bad_request(format!(
                "the parameters: there is no parameter {written:?} here"
            ));
            match headroom_config::toml_reader::closest_name(written, &known) {
                Some(near) => problem.hint(format!("did you mean {near:?}?")),
                None if known.is_empty() => problem.hint("this call has no parameters"),
                None => problem.hint(format!("the parameters are {}", known.join(", "))),
            }
        }
    }
}

/// The only id in the path.
#[derive(Debug)]
pub(crate) struct PathId<T>(pub(crate) T);

impl<T: FromStr<Err: std::fmt::Display>, S: Send + Sync> FromRequestParts<S> for PathId<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HandlerResult<Self> {
        let Path(text) = path::<String, S>(parts, state).await?;
        Ok(PathId(id(&text)?))
    }
}

/// An id and a second segment in the path.
#[derive(Debug)]
pub(crate) struct PathIdPair<T, U>(pub(crate) T, pub(crate) U);

impl<T, U, S> FromRequestParts<S> for PathIdPair<T, U>
where
    T: FromStr<Err: std::fmt::Display>,
    U: FromStr<Err: std::fmt::Display>,
    S: Send + Sync,
{
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HandlerResult<Self> {
        let Path((first, second)) = path::<(String, String), S>(parts, state).await?;
        Ok(PathIdPair(id(&first)?, id(&second)?))
    }
}

/// A task of an application in the path.
#[derive(Debug)]
pub(crate) struct TaskPath(pub(crate) AppId, pub(crate) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for TaskPath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HandlerResult<Self> {
        let Path((app, stage, index)) = path::<(String, String, String), S>(parts, state).await?;
        Ok(TaskPath(id(&app)?, id(&format!("{stage}/{index}"))?))
    }
}

async fn path<T: DeserializeOwned + Send, S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> HandlerResult<Path<T>> {
    let wrong =
        |what: String| ProblemResponse(ProblemDetails::bad_request(format!("the address: {what}")));
    Path::<T>::from_request_parts(parts, state)
        .await
        .map_err(|e| wrong(e.body_text()))
}

/// Parses an id of the path.
pub(crate) fn id<T: FromStr<Err: std::fmt::Display>>(text: &str) -> ProblemResult<T> {
    text.parse()
        .map_err(|e| ProblemDetails::bad_request(format!("the address: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        #[allow(dead_code)] // only the field name is used
        limit: Option<u32>,
        #[allow(dead_code)]
        after: Option<String>,
    }

    fn problem_of<T: DeserializeOwned + std::fmt::Debug>(query: &str) -> ProblemDetails {
        let uri: axum::http::Uri = format!("/x?{query}").parse().expect("an address");
        mistaken(&Query::<T>::try_from_uri(&uri).expect_err(query).body_text())
    }

    #[test]
    fn an_unknown_parameter_is_answered_with_the_closest_name() {
        let problem = problem_of::<Asked>("lmit=3");
        assert!(
            problem.detail.contains("\"lmit\"") && problem.hints == ["did you mean \"limit\"?"],
            "{problem:?}"
        );
        assert_eq!(
            problem_of::<Asked>("colour=3").hints,
            ["the parameters are limit, after"]
        );
        assert_eq!(
            problem_of::<EmptyQuery>("colour=3").hints,
            ["this call has no parameters"]
        );
        assert!(
            problem_of::<Asked>("limit=many").detail.contains("limit"),
            "{:?}",
            problem_of::<Asked>("limit=many")
        );
    }
}
