//! Endless responses: lines of JSON or server-sent events, with keep-alive messages.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::stream::{self, Stream};
use headroom_rm_core::MasterUpdate;
use headroom_types::{AttemptId, Epoch};
use headroom_wire::v1::acl::SecretText;
use headroom_wire::v1::application_master;
use headroom_wire::v1::nodes::{ContainerDesiredState, DesiredStateLine};
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use crate::access::AccessControl;
use crate::to_wire;

/// Interval of keep-alive messages on a silent stream.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Longest interval of keep-alive messages to nodes. They give a silent stream up after 20 s.
const MAX_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Encoding of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEncoding {
    /// One JSON object per line.
    Lines,
    /// Server-sent events.
    Sse,
}

impl StreamEncoding {
    /// Encoding that a caller accepts; lines of JSON by default.
    pub(crate) fn wanted(headers: &HeaderMap) -> StreamEncoding {
        let accept = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|v| v.to_str().ok());
        if accept.into_iter().any(|a| a.contains("text/event-stream")) {
            StreamEncoding::Sse
        } else {
            StreamEncoding::Lines
        }
    }
}

/// `Last-Event-ID`, which a browser sends when it reconnects.
pub(crate) fn last_seen(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(HeaderName::from_static("last-event-id"))?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Keep-alive message.
pub(crate) fn alive(format: StreamEncoding) -> Bytes {
    match format {
        StreamEncoding::Lines => Bytes::from_static(b"\n"),
        StreamEncoding::Sse => Bytes::from_static(b": alive\n\n"),
    }
}

/// Writes one message with its number and event type.
pub(crate) fn numbered<T: Serialize>(
    out: &mut Vec<u8>,
    format: StreamEncoding,
    number: u64,
    word: &str,
    message: &T,
) {
    match format {
        StreamEncoding::Lines => line(out, message),
        StreamEncoding::Sse => {
            out.extend_from_slice(format!("id: {number}\nevent: {word}\ndata: ").as_bytes());
            line(out, message);
            out.push(b'\n');
        }
    }
}

/// Response that lasts as long as `chunks`.
pub(crate) fn endless(
    format: StreamEncoding,
    chunks: impl Stream<Item = Bytes> + Send + 'static,
) -> Response {
    use futures_util::StreamExt as _;
    let kind = match format {
        StreamEncoding::Lines => "application/x-ndjson",
        StreamEncoding::Sse => "text/event-stream",
    };
    let mut response = Response::new(Body::from_stream(chunks.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Stops proxies from buffering lines.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// Writes one line. All messages can be serialized; an empty line would be a keep-alive message to
/// every reader.
pub(crate) fn line<T: Serialize>(out: &mut Vec<u8>, message: &T) {
    if serde_json::to_writer(&mut *out, message).is_ok() {
        out.push(b'\n');
    }
}

/// Lines of a node's desired state.
pub(crate) struct DesiredStateSource {
    /// Epoch of the resource manager.
    pub(crate) epoch: Epoch,
    /// Messages of the main loop.
    pub(crate) mailbox: mpsc::Receiver<DesiredStateLine>,
    /// Set if callers are authenticated: containers to be started then receive tokens.
    pub(crate) tokens: Option<watch::Receiver<Arc<AccessControl>>>,
    /// Interval of the heartbeats of nodes. Milliseconds.
    pub(crate) heartbeat: Arc<AtomicU64>,
}

headroom_types::debug_fields!(DesiredStateSource { epoch });

impl DesiredStateSource {
    /// Waits for the next line; a keep-alive line if there is none for as long as the interval of
    /// heartbeats. `None` if the stream has ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<DesiredStateLine> {
        let interval = Duration::from_millis(self.heartbeat.load(Ordering::Relaxed));
        let interval = interval.clamp(KEEP_ALIVE_INTERVAL, MAX_KEEP_ALIVE_INTERVAL);
        match tokio::time::timeout(interval, self.mailbox.recv()).await {
            Ok(line) => line.map(|line| self.with_tokens(line)),
            Err(_) => Some(DesiredStateLine {
                epoch: self.epoch,
                full: false,
                containers: Vec::new(),
            }),
        }
    }

    /// The next line, if there is one already.
    pub(crate) fn ready(&mut self) -> Option<DesiredStateLine> {
        let line = self.mailbox.try_recv().ok()?;
        Some(self.with_tokens(line))
    }

    fn with_tokens(&self, mut line: DesiredStateLine) -> DesiredStateLine {
        if let Some(tokens) = &self.tokens {
            give_tokens(&mut line, &tokens.borrow());
        }
        line
    }
}

/// Response with the lines of a node's desired state.
pub(crate) fn desired(source: DesiredStateSource) -> Response {
    let chunks = stream::unfold(source, async |mut source| {
        let message = source.next().await?;
        let mut out = Vec::new();
        line(&mut out, &message);
        Some((Bytes::from(out), source))
    });
    endless(StreamEncoding::Lines, chunks)
}

/// A master receives a token with all permissions of its application. Other containers receive a
/// token that only looks up the address of the master.
fn give_tokens(desired: &mut DesiredStateLine, access: &AccessControl) {
    for wanted in &mut desired.containers {
        let ContainerDesiredState::Run(order) = &mut wanted.want else {
            continue;
        };
        let token = match order.request {
            None => access.master_token(&AttemptId {
                app: order.app.clone(),
                attempt: order.attempt,
            }),
            Some(_) => access.reader_token(&order.app),
        };
        order.token = Some(SecretText(token));
    }
}

/// Stream of an application's updates after `cursor`. Keep-alive messages contain the current
/// cursor.
pub(crate) fn updates(
    format: StreamEncoding,
    cursor: u64,
    mailbox: mpsc::Receiver<Vec<MasterUpdate>>,
) -> Response {
    let chunks = stream::unfold(
        (mailbox, cursor),
        move |(mut mailbox, mut cursor)| async move {
            let updates = match tokio::time::timeout(KEEP_ALIVE_INTERVAL, mailbox.recv()).await {
                Ok(updates) => updates?,
                Err(_) => Vec::new(),
            };
            let mut out = Vec::new();
            for update in updates {
                cursor = update.cursor;
                let update = to_wire::update(update);
                numbered(&mut out, format, cursor, word(&update.what), &update);
            }
            if out.is_empty() {
                let alive = application_master::ApplicationUpdate {
                    cursor,
                    what: application_master::ApplicationUpdateKind::Alive,
                };
                numbered(&mut out, format, cursor, word(&alive.what), &alive);
            }
            Some((Bytes::from(out), (mailbox, cursor)))
        },
    );
    endless(format, chunks)
}

/// Event type of an update; `kind` in the JSON.
fn word(what: &application_master::ApplicationUpdateKind) -> &'static str {
    match what {
        application_master::ApplicationUpdateKind::Allocated(_) => "allocated",
        application_master::ApplicationUpdateKind::Running { .. } => "running",
        application_master::ApplicationUpdateKind::Exited { .. } => "exited",
        application_master::ApplicationUpdateKind::Resized { .. } => "resized",
        application_master::ApplicationUpdateKind::ResizeFailed { .. } => "resize_failed",
        application_master::ApplicationUpdateKind::PreemptSoon { .. } => "preempt_soon",
        application_master::ApplicationUpdateKind::NodeDraining { .. } => "node_draining",
        application_master::ApplicationUpdateKind::Expired { .. } => "expired",
        application_master::ApplicationUpdateKind::Order(_) => "order",
        application_master::ApplicationUpdateKind::Scale(_) => "scale",
        application_master::ApplicationUpdateKind::Alive => "alive",
    }
}
