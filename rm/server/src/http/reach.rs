//! `/v1/containers/{id}/signal`, `files` and `exec`: into a container, by way of its node.
//!
//! Who asked is recorded here, as a call that changes something and as an event; the node does it, and knows us by the word it gave when it
//! registered. What the node refuses is passed on as it said it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use headroom_types::{ContainerId, NodeId, Reason, UnixMillis};
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::events::{Event, EventLevel};
use headroom_wire::v1::nodes::Reload;
use headroom_wire::v1::reach::{ExecIn, ExecLine, FileRow, KEY, SignalContainer, Signalled};
use serde::Deserialize;
use utoipa::IntoParams;

use super::containers::{address, find, unanswered};
use super::describe::{Bad, Beyond, Conflict, Missing, TooLarge, TooMany};
use super::error::Failure;
use super::parse::{Body, Id, Nothing, Params};
use super::passing::pass_on;
use super::{Web, limits};
use crate::audit::Changed;
use crate::incoming::cut;

/// Longest word that a node may give. Bytes.
const LONGEST_KEY: usize = 128;
/// Longest reason that is kept. Bytes.
const LONGEST_REASON: usize = 1024;
/// Longest command in events and in the record of changes. Bytes.
const LONGEST_COMMAND: usize = 200;

/// What nodes have told us about themselves that nobody else needs: the words by which they know us, from their registrations, and
/// when they last read their configuration again.
#[derive(Debug, Default)]
pub(crate) struct NodeKeys(Mutex<BTreeMap<NodeId, String>>, Mutex<BTreeMap<NodeId, UnixMillis>>);

impl NodeKeys {
    /// A node has registered. One that gave no word lets nobody in.
    pub(crate) fn told(&self, node: NodeId, key: Option<String>) {
        // Whoever panicked here left whole words behind.
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match key.filter(|key| key.len() <= LONGEST_KEY) {
            Some(key) => drop(keys.insert(node, key)),
            None => drop(keys.remove(&node)),
        }
    }

    /// An event of a configuration that was read again, unless it was told before.
    pub(crate) fn reloaded(&self, node: &NodeId, reload: Reload, now: UnixMillis) -> Option<Event> {
        let before = self.1.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), reload.at);
        if before == Some(reload.at) {
            return None;
        }
        let (reason, level) = match reload.refused {
            false => (Reason::ConfigReloaded, EventLevel::Normal),
            true => (Reason::ConfigRefused, EventLevel::Warning),
        };
        Some(Event {
            index: 0,
            time: now,
            level,
            reason: reason.as_str().to_owned(),
            object: node.to_string(),
            app: None,
            node: Some(node.clone()),
            message: cut(reload.message, LONGEST_REASON),
        })
    }

    fn of(&self, node: &NodeId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }
}

/// A signal for the program of a container that runs. SIGKILL ends the container as one that was asked to end, without its grace.
#[utoipa::path(post, path = "/v1/containers/{id}/signal", tag = "containers", params(("id" = ContainerId, Path)),
    request_body = SignalContainer, responses((status = 200, body = Signalled), Bad, Missing, Conflict, TooLarge, TooMany))]
pub(crate) async fn signal(
    State(web): State<Web>,
    Id(id): Id<ContainerId>,
    Params(Nothing {}): Params<Nothing>,
    Body(mut body): Body<SignalContainer>,
) -> Result<Response, Failure> {
    let view = running(&web, &id).await?;
    body.reason = body.reason.map(|reason| cut(reason, LONGEST_REASON)).filter(|reason| !reason.trim().is_empty());
    let (base, key) = door(&web, &view.node).await?;
    let request = web.nodes.usual().post(format!("{base}/v1/containers/{id}/signal")).header(KEY, key).json(&body);
    let answer = success(request.send().await.map_err(|error| unanswered(&view.node, &base, &error))?).await?;
    let done: Signalled = answer.json().await.map_err(|error| unanswered(&view.node, &base, &error))?;
    let to = if body.all { format!("all {} of its processes", done.processes) } else { "its program".to_owned() };
    let why = body.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    tell(&web, &view, Reason::ContainerSignalled, format!("{} to {to}{why}", done.signal));
    let changed = Changed { before: view.state, after: format!("{} to {to}", done.signal) };
    Ok((Extension(changed), Json(done)).into_response())
}

/// Which place in a container.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct At {
    /// A place below the container's directory, such as `work/part-0`; the directory itself when left out.
    #[serde(default)]
    path: String,
}

impl At {
    /// The address of a node with this place in it, whatever characters that has.
    fn below(&self, address: &str) -> Result<reqwest::Url, Failure> {
        let odd = |_| Failure(Problem::new(Code::HR0503, format!("the node gave an address that is none: {address}")));
        reqwest::Url::parse_with_params(address, [("path", &self.path)]).map_err(odd)
    }
}

/// What is in a directory of a container: its `work`, `tmp` and `tasks`, and its two logs. By name, at most 10000 entries.
#[utoipa::path(get, path = "/v1/containers/{id}/files", tag = "containers", params(("id" = ContainerId, Path), At),
    responses((status = 200, body = Vec<FileRow>), Bad, Missing, TooLarge, TooMany))]
pub(crate) async fn files(State(web): State<Web>, Id(id): Id<ContainerId>, Params(at): Params<At>) -> Result<Response, Failure> {
    let node = find(&web, &id).await?.node;
    let (base, key) = door(&web, &node).await?;
    let request = web.nodes.usual().get(at.below(&format!("{base}/v1/containers/{id}/files"))?).header(KEY, key);
    let answer = success(request.send().await.map_err(|error| unanswered(&node, &base, &error))?).await?;
    pass_on(&web, answer, &PASSED_ON, None)
}

/// A file of a container, or a range of it, as it comes from its node. Also of one that has ended, for as long as its node keeps it.
#[utoipa::path(get, path = "/v1/containers/{id}/files/content", tag = "containers", params(
    ("id" = ContainerId, Path), At,
    ("Range" = Option<String>, Header, description = "bytes=FROM-, bytes=FROM-TO or bytes=-LAST"),
), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
    (status = 206, body = Vec<u8>, content_type = "application/octet-stream", description = "The range that was asked for."),
    Bad, Missing, Beyond, TooMany,
))]
pub(crate) async fn content(
    State(web): State<Web>,
    Id(id): Id<ContainerId>,
    Params(at): Params<At>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let seat = limits::place(&web.streams)?;
    let node = find(&web, &id).await?.node;
    let (base, key) = door(&web, &node).await?;
    let mut request = web.nodes.usual().get(at.below(&format!("{base}/v1/containers/{id}/files/content"))?);
    if let Some(range) = headers.get(header::RANGE) {
        request = request.header(header::RANGE, range);
    }
    let answer = request.header(KEY, key).send().await.map_err(|error| unanswered(&node, &base, &error))?;
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        let problem = Problem::new(Code::HR0416, format!("{} is not as long as that", at.path));
        return Err(problem.hint("list it: rmctl container files ls").into());
    }
    pass_on(&web, success(answer).await?, &PASSED_ON, Some(seat))
}

/// Runs a program in a container that runs, beside its own: in its cgroup, as its user, with its environment and directory. Its memory
/// counts in the container, whose limit may end both. Each line of the answer is an `ExecLine`; the last one says how it ended.
#[utoipa::path(post, path = "/v1/containers/{id}/exec", tag = "containers", params(("id" = ContainerId, Path)),
    request_body = ExecIn, responses(
        (status = 200, body = ExecLine, content_type = "application/x-ndjson", description = "One line for each piece of output, then its end."),
        Bad, Missing, Conflict, TooLarge, TooMany,
))]
pub(crate) async fn exec(
    State(web): State<Web>,
    Id(id): Id<ContainerId>,
    Params(Nothing {}): Params<Nothing>,
    Body(body): Body<ExecIn>,
) -> Result<Response, Failure> {
    let seat = limits::place(&web.streams)?;
    let view = running(&web, &id).await?;
    let (base, key) = door(&web, &view.node).await?;
    let request = web.nodes.patient().post(format!("{base}/v1/containers/{id}/exec")).header(KEY, key).json(&body);
    let answer = success(request.send().await.map_err(|error| unanswered(&view.node, &base, &error))?).await?;
    let command = cut(body.command.join(" "), LONGEST_COMMAND);
    tell(&web, &view, Reason::ContainerEntered, command.clone());
    let changed = Changed { before: view.state, after: command };
    Ok((Extension(changed), pass_on(&web, answer, &PASSED_ON, Some(seat))?).into_response())
}

/// A container whose program runs, as far as is known here.
async fn running(web: &Web, id: &ContainerId) -> Result<ContainerView, Failure> {
    let view = find(web, id).await?;
    if view.state == "running" || view.state == "stopping" {
        return Ok(view);
    }
    let problem = Problem::new(Code::HR0409, format!("container {id} does not run: it is {}", view.state));
    Err(problem.hint(format!("rmctl container show {id}")).into())
}

/// Where a node answers, and the word it wants.
async fn door(web: &Web, node: &NodeId) -> Result<(String, String), Failure> {
    let base = address(web, node).await?;
    let closed = || {
        let problem = Problem::new(Code::HR0503, format!("node {node} has not said how its containers are reached into"));
        Failure(problem.hint("its agent may be of an earlier release, or about to register again: try again in a moment"))
    };
    Ok((base, web.keys.of(node).ok_or_else(closed)?))
}

/// What a node refuses is refused here, in its words.
async fn success(answer: reqwest::Response) -> Result<reqwest::Response, Failure> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let text = answer.text().await.unwrap_or_default();
    let odd = |what: String| Problem::new(Code::HR0503, what).hint("try again in a moment");
    let said = serde_json::from_str::<Problem>(&text).unwrap_or_else(|_| odd(format!("the node answered with status {status}")));
    // Whom it does not know is us, not whoever asks us: it has another word since it was started again.
    let ours = said.code == Code::HR0403;
    Err(if ours {
        odd("the node does not know this resource manager; its agent is about to register again".into())
    } else {
        said
    }
    .into())
}

/// What of a node's answer is passed on beside its bytes.
const PASSED_ON: [HeaderName; 4] = [header::CONTENT_TYPE, header::CONTENT_RANGE, header::ACCEPT_RANGES, header::CONTENT_LENGTH];

fn tell(web: &Web, view: &ContainerView, reason: Reason, message: String) {
    let (app, node) = (Some(view.id.app.clone()), Some(view.node.clone()));
    let (reason, object) = (reason.as_str().to_owned(), view.id.to_string());
    let time = web.clock.unix_now();
    web.shared.events.push([Event { index: 0, time, level: EventLevel::Normal, reason, object, app, node, message }]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_is_told_once_however_often_it_is_repeated() {
        let (keys, node) = (NodeKeys::default(), "n1".parse::<NodeId>().expect("name"));
        let reload = |at, refused| Reload { at: UnixMillis(at), refused, message: "logs.count: 4 → 7".into() };
        let told = |at, refused| keys.reloaded(&node, reload(at, refused), UnixMillis(9)).map(|event| event.reason);
        assert_eq!(told(1, false).as_deref(), Some("ConfigReloaded"));
        assert_eq!(told(1, false), None);
        assert_eq!(told(2, true).as_deref(), Some("ConfigRefused"));
    }
}
