//! `/v1/events`: the event log, as it is or as it grows.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures_util::stream;
use headroom_types::AppId;
use headroom_wire::v1::error::{Code, Problem};
use headroom_wire::v1::events::Event;
use serde::Deserialize;
use tokio::sync::watch;

use super::Web;
use super::error::Failure;
use super::parse::Params;
use super::stream::{ALIVE_EVERY, Format, endless, line};
use crate::eventlog::{EventLog, Place, TooOld};

/// Parameters of the call.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    /// Only what came after this number.
    cursor: Option<u64>,
    /// Wait for more.
    #[serde(default)]
    follow: bool,
    /// Only of this application.
    app: Option<AppId>,
}

/// A reader.
struct Reader {
    log: Arc<EventLog>,
    place: Place,
    news: watch::Receiver<u64>,
    follow: bool,
    format: Format,
    first: Option<Vec<Arc<Event>>>,
    closing: tokio_util::sync::CancellationToken,
}

/// `GET /v1/events`.
pub(crate) async fn events(
    State(web): State<Web>,
    Params(wanted): Params<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let header = |name| headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok());
    let sse = header(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
    // A browser that lost its connection says itself where it stood.
    let last_seen = header(header::HeaderName::from_static("last-event-id")).and_then(|id| id.parse().ok());
    let cursor = last_seen.or(wanted.cursor).unwrap_or(0);
    let mut place = Place { cursor, app: wanted.app };
    let log = web.shared.events.clone();
    let news = log.watch();
    let first = log.read(&mut place).map_err(|old| too_old(cursor, &old))?;
    let format = if sse { Format::Sse } else { Format::Lines };
    let reader = Reader { log, place, news, follow: wanted.follow || sse, format, first: Some(first), closing: web.closing };
    Ok(endless(format, stream::unfold(reader, next)))
}

fn too_old(cursor: u64, old: &TooOld) -> Failure {
    let detail = format!("events after {cursor} are asked for, and the oldest that is kept is {}", old.oldest);
    Problem::new(Code::HR0411, detail).hint("start from cursor 0 to get all that is kept").into()
}

async fn next(mut reader: Reader) -> Option<(Bytes, Reader)> {
    let events = match reader.first.take() {
        Some(first) => first,
        // A reader that is so slow that events went by is cut off, and told when it comes back.
        None => reader.log.read(&mut reader.place).ok()?,
    };
    if !events.is_empty() {
        return Some((render(reader.format, &events), reader));
    }
    if !reader.follow {
        return None;
    }
    let closing = reader.closing.clone();
    tokio::select! {
        () = closing.cancelled() => None,
        changed = tokio::time::timeout(ALIVE_EVERY, reader.news.changed()) => match changed {
            Ok(Ok(())) => {
                let events = reader.log.read(&mut reader.place).ok()?;
                let chunk = render(reader.format, &events);
                // Events of other applications only: nothing to say, but a word does no harm.
                Some((if chunk.is_empty() { alive(reader.format) } else { chunk }, reader))
            }
            Ok(Err(_)) => None,
            Err(_) => Some((alive(reader.format), reader)),
        },
    }
}

fn alive(format: Format) -> Bytes {
    match format {
        Format::Lines => Bytes::from_static(b"\n"),
        Format::Sse => Bytes::from_static(b": alive\n\n"),
    }
}

fn render(format: Format, events: &[Arc<Event>]) -> Bytes {
    let mut out = Vec::new();
    for event in events {
        match format {
            Format::Lines => line(&mut out, &**event),
            Format::Sse => {
                out.extend_from_slice(format!("id: {}\nevent: {}\ndata: ", event.index, event.reason).as_bytes());
                line(&mut out, &**event);
                out.push(b'\n');
            }
        }
    }
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::UnixMillis;
    use headroom_wire::v1::events::EventLevel;

    #[test]
    fn a_server_sent_event_has_its_number_and_its_word() {
        let event = Event {
            index: 7,
            time: UnixMillis(1),
            level: EventLevel::Warning,
            reason: "OomKilled".into(),
            object: "map/7@1".into(),
            app: None,
            node: None,
            message: "one\nline".into(),
        };
        let text = String::from_utf8(render(Format::Sse, &[Arc::new(event)]).to_vec()).expect("text");
        assert!(text.starts_with("id: 7\nevent: OomKilled\ndata: {") && text.ends_with("}\n\n"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }
}
