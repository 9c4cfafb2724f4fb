//! `/v1/containers`: look at, stop, and their logs by way of their nodes.

use std::str::FromStr;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use headroom_rm_core::{Call, Refusal};
use headroom_types::{AppId, ContainerId};
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::v1::error::{Code, Problem};
use serde::Deserialize;

use super::Web;
use super::error::Failure;
use super::parse::{Id, Ids, Params};
use crate::input::{Input, Query};
use crate::outgoing;

/// Parameters of the list.
#[derive(Debug, Deserialize)]
pub(crate) struct Of {
    app: Option<AppId>,
}

/// `GET /v1/containers`.
pub(crate) async fn list(State(web): State<Web>, Params(of): Params<Of>) -> Result<Json<Vec<ContainerView>>, Failure> {
    Ok(Json(web.handle.ask(|reply| Input::Query(Query::Containers(of.app, reply))).await?))
}

/// `GET /v1/containers/{id}`.
pub(crate) async fn one(State(web): State<Web>, Id(id): Id<ContainerId>) -> Result<Json<ContainerView>, Failure> {
    find(&web, &id).await.map(Json)
}

async fn find(web: &Web, id: &ContainerId) -> Result<ContainerView, Failure> {
    let found = web.handle.ask(|reply| Input::Query(Query::Container(id.clone(), reply))).await?;
    found.ok_or_else(|| outgoing::problem(&Refusal::NoSuchContainer(id.clone())).into())
}

/// `POST /v1/containers/{id}/stop`.
pub(crate) async fn stop(State(web): State<Web>, Id(id): Id<ContainerId>) -> Result<Json<ContainerView>, Failure> {
    web.handle.call(Call::Stop { container: id.clone() }).await?;
    find(&web, &id).await.map(Json)
}

/// Name of a log file: one plain path component.
#[derive(Debug)]
pub(crate) struct LogFile(String);

impl FromStr for LogFile {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if text.is_empty() || text.len() > 200 || text.starts_with('.') || !text.chars().all(plain) {
            return Err(format!("{text:?} is not a log; ask for stdout, stderr, or TASK.out or TASK.err"));
        }
        Ok(LogFile(text.to_owned()))
    }
}

/// Parameters of a log.
#[derive(Debug, Deserialize)]
pub(crate) struct End {
    tail: Option<u64>,
}

/// `GET /v1/containers/{id}/logs/{file}`: passed on to the node that has it, as its answer comes.
pub(crate) async fn log(
    State(web): State<Web>,
    Ids(id, file): Ids<ContainerId, LogFile>,
    Params(end): Params<End>,
) -> Result<Response, Failure> {
    let node = find(&web, &id).await?.node;
    let view = web.handle.view().await?.node(&node, web.clock.now());
    let silent = |what: String| Problem::new(Code::HR0503, what).hint("the log is on that node's disk");
    let Some(view) = view else { return Err(silent(format!("node {node} has not registered")).into()) };
    let tail = end.tail.map(|n| format!("?tail={n}")).unwrap_or_default();
    let url = format!("{}/v1/containers/{id}/logs/{}{tail}", view.url.trim_end_matches('/'), file.0);
    let answer = web.http.get(&url).send().await.map_err(|error| {
        tracing::debug!(url, error = &error as &dyn std::error::Error, "a node does not answer");
        silent(format!("node {node} does not answer at {}", view.url))
    })?;
    let mut response = Response::builder().status(answer.status());
    if let Some(kind) = answer.headers().get(header::CONTENT_TYPE) {
        response = response.header(header::CONTENT_TYPE, kind);
    }
    let passed_on = response.body(Body::from_stream(answer.bytes_stream()));
    passed_on.map_err(|_| Problem::new(Code::HR0500, "the node's answer cannot be passed on").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_cannot_leave_its_directory() {
        for name in ["stdout", "stderr", "map-7-2.out"] {
            assert!(name.parse::<LogFile>().is_ok(), "{name}");
        }
        for name in ["", "..", "../x", "a/b", "a?b", "a b", ".hidden"] {
            assert!(name.parse::<LogFile>().is_err(), "{name}");
        }
    }
}
