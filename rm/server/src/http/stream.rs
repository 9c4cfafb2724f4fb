//! Answers without an end: one line of JSON each, and a sign of life when there is nothing to tell.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream::{self, Stream};
use headroom_rm_core::Update;
use headroom_types::{AttemptId, Epoch};
use headroom_wire::v1::acl::Secret;
use headroom_wire::v1::am;
use headroom_wire::v1::nodes::{Desired, Want};
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use crate::access::Access;
use crate::outgoing;

/// How long a line may be silent.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// What a stream is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON object a line.
    Lines,
    /// Server-sent events.
    Sse,
}

impl Format {
    /// What a caller accepts; lines when it does not say.
    pub(crate) fn wanted(headers: &HeaderMap) -> Format {
        let accept = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
        if accept.into_iter().any(|a| a.contains("text/event-stream")) { Format::Sse } else { Format::Lines }
    }
}

/// Where a browser that lost its connection stood; it says so itself.
pub(crate) fn last_seen(headers: &HeaderMap) -> Option<u64> {
    headers.get(HeaderName::from_static("last-event-id"))?.to_str().ok()?.trim().parse().ok()
}

/// A sign of life.
pub(crate) fn alive(format: Format) -> Bytes {
    match format {
        Format::Lines => Bytes::from_static(b"\n"),
        Format::Sse => Bytes::from_static(b": alive\n\n"),
    }
}

/// One message with its number and its word.
pub(crate) fn numbered<T: Serialize>(out: &mut Vec<u8>, format: Format, number: u64, word: &str, message: &T) {
    match format {
        Format::Lines => line(out, message),
        Format::Sse => {
            out.extend_from_slice(format!("id: {number}\nevent: {word}\ndata: ").as_bytes());
            line(out, message);
            out.push(b'\n');
        }
    }
}

/// An answer that goes on for as long as `chunks` does.
pub(crate) fn endless(format: Format, chunks: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    use futures_util::StreamExt as _;
    let kind = match format {
        Format::Lines => "application/x-ndjson",
        Format::Sse => "text/event-stream",
    };
    let mut response = Response::new(Body::from_stream(chunks.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must not gather lines.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// One line. A message of ours can always be written; an empty line is a sign of life to every reader.
pub(crate) fn line<T: Serialize>(out: &mut Vec<u8>, message: &T) {
    if serde_json::to_writer(&mut *out, message).is_ok() {
        out.push(b'\n');
    }
}

/// What a node should have; with tokens for what it is to start, where callers are asked who they are.
pub(crate) fn desired(epoch: Epoch, mailbox: mpsc::Receiver<Desired>, tokens: Option<watch::Receiver<Arc<Access>>>) -> Response {
    let alive = Desired { epoch, full: false, containers: Vec::new() };
    let chunks = stream::unfold((mailbox, alive, tokens), |(mut mailbox, alive, tokens)| async {
        let message = tokio::time::timeout(ALIVE_EVERY, mailbox.recv()).await;
        let mut out = Vec::new();
        match message {
            Ok(message) => {
                let mut message = message?;
                if let Some(tokens) = &tokens {
                    give_tokens(&mut message, &tokens.borrow());
                }
                line(&mut out, &message);
            }
            Err(_) => line(&mut out, &alive),
        }
        Some((Bytes::from(out), (mailbox, alive, tokens)))
    });
    endless(Format::Lines, chunks)
}

/// A master may all that its application may, whatever else runs for it only asks where the master is.
fn give_tokens(desired: &mut Desired, access: &Access) {
    for wanted in &mut desired.containers {
        let Want::Run(order) = &mut wanted.want else { continue };
        let token = match order.request {
            None => access.master_token(&AttemptId { app: order.app.clone(), attempt: order.attempt }),
            Some(_) => access.reader_token(&order.app),
        };
        order.token = Some(Secret(token));
    }
}

/// What happens to an application's containers, after `cursor`. Says at once where it stands.
pub(crate) fn updates(format: Format, cursor: u64, mailbox: mpsc::Receiver<Vec<Update>>) -> Response {
    let chunks = stream::unfold((mailbox, cursor), move |(mut mailbox, mut cursor)| async move {
        let updates = match tokio::time::timeout(ALIVE_EVERY, mailbox.recv()).await {
            Ok(updates) => updates?,
            Err(_) => Vec::new(),
        };
        let mut out = Vec::new();
        for update in updates {
            cursor = update.cursor;
            let update = outgoing::update(update);
            numbered(&mut out, format, cursor, word(&update.what), &update);
        }
        if out.is_empty() {
            let alive = am::Update { cursor, what: am::UpdateKind::Alive };
            numbered(&mut out, format, cursor, word(&alive.what), &alive);
        }
        Some((Bytes::from(out), (mailbox, cursor)))
    });
    endless(format, chunks)
}

/// The word by which a listener tells updates apart; `kind` in the JSON.
fn word(what: &am::UpdateKind) -> &'static str {
    match what {
        am::UpdateKind::Allocated(_) => "allocated",
        am::UpdateKind::Running { .. } => "running",
        am::UpdateKind::Exited { .. } => "exited",
        am::UpdateKind::Resized { .. } => "resized",
        am::UpdateKind::ResizeFailed { .. } => "resize_failed",
        am::UpdateKind::PreemptSoon { .. } => "preempt_soon",
        am::UpdateKind::NodeDraining { .. } => "node_draining",
        am::UpdateKind::Expired { .. } => "expired",
        am::UpdateKind::Order(_) => "order",
        am::UpdateKind::Scale(_) => "scale",
        am::UpdateKind::Alive => "alive",
    }
}
