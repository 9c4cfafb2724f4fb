//! Answers without an end: one line of JSON each, and a sign of life when there is nothing to tell.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream::{self, Stream};
use headroom_rm_core::Update;
use headroom_types::Epoch;
use headroom_wire::v1::am;
use headroom_wire::v1::nodes::Desired;
use serde::Serialize;
use tokio::sync::mpsc;

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

/// What a node should have.
pub(crate) fn desired(epoch: Epoch, mailbox: mpsc::Receiver<Desired>) -> Response {
    let alive = Desired { epoch, full: false, containers: Vec::new() };
    let chunks = stream::unfold((mailbox, alive), |(mut mailbox, alive)| async {
        let message = tokio::time::timeout(ALIVE_EVERY, mailbox.recv()).await;
        let mut out = Vec::new();
        match message {
            Ok(message) => line(&mut out, &message?),
            Err(_) => line(&mut out, &alive),
        }
        Some((Bytes::from(out), (mailbox, alive)))
    });
    endless(Format::Lines, chunks)
}

/// What happens to an application's containers, after `cursor`. Says at once where it stands.
pub(crate) fn updates(cursor: u64, mailbox: mpsc::Receiver<Vec<Update>>) -> Response {
    let chunks = stream::unfold((mailbox, cursor), |(mut mailbox, mut cursor)| async move {
        let updates = match tokio::time::timeout(ALIVE_EVERY, mailbox.recv()).await {
            Ok(updates) => updates?,
            Err(_) => Vec::new(),
        };
        let mut out = Vec::new();
        for update in updates {
            cursor = update.cursor;
            line(&mut out, &outgoing::update(update));
        }
        if out.is_empty() {
            line(&mut out, &am::Update { cursor, what: am::UpdateKind::Alive });
        }
        Some((Bytes::from(out), (mailbox, cursor)))
    });
    endless(Format::Lines, chunks)
}
