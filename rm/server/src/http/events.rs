//! `/v1/events`: the event log, as it is or as it grows.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream::unfold;
use headroom_identity::Principal;
use headroom_types::{AppId, EventTopic, NodeId, Reason};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa::IntoParams;

use super::describe::{Bad, TooMany, TooOld as Old};
use super::error::{HandlerResult, ProblemResponse};
use super::parse::{PastTimeSpan, QueryParams};
use super::stream::{KEEP_ALIVE_INTERVAL, StreamEncoding, alive, endless, numbered};
use super::visibility::AppVisibility;
use super::web::WebHandlerState;
use super::{limits, stream};
use crate::eventlog::{EventFilter, EventLog, EventPosition, EventPositionExpired};

/// Query parameters of the events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventListQuery {
    /// Only events after this number; the header `Last-Event-ID` overrides it.
    cursor: Option<u64>,
    /// Wait for further events. Always on for server-sent events.
    #[serde(default)]
    follow: bool,
    /// Only events of this application.
    app: Option<AppId>,
    /// Only events of this topic: `cluster`, `node`, `queue`, `job`, `request`, `container` or
    /// `task`.
    #[serde(default, deserialize_with = "parsed")]
    #[param(value_type = Option<String>)]
    topic: Option<EventTopic>,
    /// Only events of this level.
    #[serde(rename = "type")]
    level: Option<EventLevel>,
    /// Only events with this reason: `OomKilled`, `NodeLost` …
    #[serde(default, deserialize_with = "parsed")]
    #[param(value_type = Option<String>)]
    reason: Option<Reason>,
    /// Only events about objects whose id starts with this text.
    object: Option<String>,
    /// Only events on this node.
    node: Option<NodeId>,
    /// Only events of the last time span, such as `1h`.
    #[param(value_type = Option<String>)]
    since: Option<PastTimeSpan>,
}

fn parsed<'de, T: FromStr<Err = String>, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<T>, D::Error> {
    String::deserialize(d)?
        .parse()
        .map(Some)
        .map_err(serde::de::Error::custom)
}

/// State of one event stream.
struct EventStreamState {
    log: Arc<EventLog>,
    place: EventPosition,
    news: watch::Receiver<u64>,
    follow: bool,
    format: StreamEncoding,
    /// Visibility filter, for a caller who may not see all applications.
    sight: Option<AppVisibility>,
    first: Option<Vec<Arc<LoggedEvent>>>,
    closing: tokio_util::sync::CancellationToken,
    /// Released when the reader ends.
    _seat: Option<OwnedSemaphorePermit>,
}

/// Returns the event log, as lines of JSON or server-sent events.
#[utoipa::path(get, path = "/v1/events", tag = "cluster", params(
    EventListQuery,
    ("Accept" = Option<String>, Header, description = "`text/event-stream` for server-sent events."),
    ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that the caller received."),
), responses(
    (status = 200, content((LoggedEvent = "application/x-ndjson"), (LoggedEvent = "text/event-stream"))), Bad, Old, TooMany,
))]
pub(crate) async fn events(
    State(web): State<WebHandlerState>,
    Extension(principal): Extension<Principal>,
    QueryParams(wanted): QueryParams<EventListQuery>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    let mut sight = AppVisibility::of(&web.reader, &principal);
    if let (Some(seen), Some(app)) = (&sight, &wanted.app) {
        seen.require_visible(app).await?;
        // The caller may see all events of the one selected application.
        sight = None;
    }
    let format = stream::StreamEncoding::wanted(&headers);
    let cursor = stream::last_seen(&headers).or(wanted.cursor).unwrap_or(0);
    let EventListQuery {
        app,
        topic,
        level,
        reason,
        object,
        node,
        since,
        ..
    } = wanted;
    let since = since.map(|age| age.before(web.reader.clock.unix_now()));
    let mut place = EventPosition {
        cursor,
        filter: EventFilter {
            app,
            topic,
            level,
            reason,
            object,
            node,
            since,
        },
    };
    let log = web.reader.shared.events.clone();
    log.restored().await;
    let news = log.watch();
    let first = log.read(&mut place).map_err(|old| {
        web.reader
            .shared
            .counters
            .dropped
            .fetch_add(1, Ordering::Relaxed);
        too_old(cursor, &old)
    })?;
    let follow = wanted.follow || format == StreamEncoding::Sse;
    let seat = if follow {
        Some(limits::place(&web.streams)?)
    } else {
        None
    };
    let reader = EventStreamState {
        log,
        place,
        news,
        follow,
        format,
        sight,
        first: Some(first),
        closing: web.closing.clone(),
        _seat: seat,
    };
    Ok(endless(format, unfold(reader, next)))
}

fn too_old(cursor: u64, old: &EventPositionExpired) -> ProblemResponse {
    let detail = format!(
        "events after {cursor} were requested, but the oldest kept event is {}",
        old.oldest
    );
    ProblemDetails::new(ErrorCode::HR0411, detail)
        .hint("start from cursor 0 to get all kept events")
        .into()
}

async fn next(mut reader: EventStreamState) -> Option<(Bytes, EventStreamState)> {
    let events = match reader.first.take() {
        Some(first) => first,
        // A reader that is so slow that it missed events is disconnected; it receives an error when
        // it reconnects.
        None => reader.log.read(&mut reader.place).ok()?,
    };
    if !events.is_empty() {
        let chunk = reader.rendered(&events);
        return Some((
            if chunk.is_empty() {
                alive(reader.format)
            } else {
                chunk
            },
            reader,
        ));
    }
    if !reader.follow {
        return None;
    }
    let closing = reader.closing.clone();
    tokio::select! {
        () = closing.cancelled() => None,
        changed = tokio::time::timeout(KEEP_ALIVE_INTERVAL, reader.news.changed()) => match changed {
            Ok(Ok(())) => {
                let events = reader.log.read(&mut reader.place).ok()?;
                let chunk = reader.rendered(&events);
                // All events belong to hidden applications: a keep-alive is sent instead.
                Some((if chunk.is_empty() { alive(reader.format) } else { chunk }, reader))
            }
            Ok(Err(_)) => None,
            Err(_) => Some((alive(reader.format), reader)),
        },
    }
}

impl EventStreamState {
    /// Writes those events that the caller may see.
    fn rendered(&self, events: &[Arc<LoggedEvent>]) -> Bytes {
        let Some(sight) = &self.sight else {
            return render(self.format, events);
        };
        let seen =
            |event: &&Arc<LoggedEvent>| event.app.as_ref().is_none_or(|app| sight.sees_id(app));
        render(
            self.format,
            &events.iter().filter(seen).cloned().collect::<Vec<_>>(),
        )
    }
}

fn render(format: StreamEncoding, events: &[Arc<LoggedEvent>]) -> Bytes {
    let mut out = Vec::new();
    for event in events {
        numbered(&mut out, format, event.index, &event.reason, &**event);
    }
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::UnixMillis;

    #[test]
    fn a_server_sent_event_has_its_number_and_reason() {
        let event = LoggedEvent {
            index: 7,
            time: UnixMillis(1),
            level: EventLevel::Warning,
            reason: "OomKilled".into(),
            object: "map/7@1".into(),
            app: None,
            node: None,
            message: "one\nline".into(),
        };
        let text = String::from_utf8(render(StreamEncoding::Sse, &[Arc::new(event)]).to_vec())
            .expect("text");
        assert!(
            text.starts_with("id: 7\nevent: OomKilled\ndata: {") && text.ends_with("}\n\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 4);
    }
}
