//! `GET /v1/containers/{id}/logs/{file}`: the end of a log, a range of it, or a stream of new
//! bytes.
//!
//! Positions count all bytes that were ever written, including those no longer kept. A reader that
//! was disconnected continues with `Range: bytes=N-` and misses no byte that is still kept.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use headroom_wire::v1::error::ErrorCode;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::handler_state::{AgentHandlerState, parse};
use super::refusal::{RefusedRequest, refuse};
use crate::disk::file;
use crate::logs::{self, ContainerLog};

/// Maximum number of followed logs at once.
pub(super) const FOLLOWED: usize = 256;
/// Interval between reads of a followed log.
const LOOK: Duration = Duration::from_millis(200);
/// Maximum bytes in one piece while following.
const PIECE: u64 = 64 << 10;
/// Header: position after the last byte of the log, independent of the returned part.
const END: HeaderName = HeaderName::from_static("headroom-log-end");
/// Header: position of the first kept byte.
const START: HeaderName = HeaderName::from_static("headroom-log-start");

#[derive(Debug, Deserialize)]
pub(super) struct LogReadQuery {
    /// Return only the last `tail` bytes.
    tail: Option<u64>,
    /// Stream new bytes until the container has ended.
    #[serde(default)]
    follow: bool,
}

pub(super) async fn log(
    State(shared): State<AgentHandlerState>,
    Path((id, name)): Path<(String, String)>,
    Query(query): Query<LogReadQuery>,
    headers: HeaderMap,
) -> Result<Response, RefusedRequest> {
    let id = parse(&id)?;
    if logs::place(&name).is_none() {
        return Err(refuse(
            ErrorCode::HR0400,
            format!("{name:?} is not a log; the logs are stdout, stderr, TASK.out and TASK.err"),
        ));
    }
    let range = LogByteRange::of(&headers)?;
    let file = Arc::new(LogLocation {
        dir: shared.layout.container(&id),
        name: name.clone(),
    });
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::NotFound {
            refuse(
                ErrorCode::HR0404,
                format!("container {id} has no log {name} on this node"),
            )
        } else {
            refuse(
                ErrorCode::HR0500,
                format!("the log {name} of {id} cannot be read: {error}"),
            )
        }
    };
    if query.follow {
        let (from, start) = file.first(range, query.tail).await.map_err(failed)?;
        let busy = |_| {
            refuse(
                ErrorCode::HR0503,
                format!("{FOLLOWED} logs are followed on this node, its limit; try later"),
            )
        };
        let permit = Arc::clone(&shared.followers)
            .try_acquire_owned()
            .map_err(busy)?;
        return Ok(follow(file, from.max(start), permit));
    }
    let reader = Arc::clone(&file);
    let read = tokio::task::spawn_blocking(move || reader.read(range, query.tail)).await;
    let piece = read
        .map_err(io::Error::other)
        .and_then(|read| read)
        .map_err(failed)?;
    Ok(piece.into_response(range))
}

/// A log by its container's directory and name.
#[derive(Debug)]
struct LogLocation {
    dir: PathBuf,
    name: String,
}

/// A part of a log.
#[derive(Debug)]
struct LogExcerpt {
    from: u64,
    bytes: Vec<u8>,
    start: u64,
    end: u64,
}

impl LogLocation {
    fn read(&self, range: Option<LogByteRange>, tail: Option<u64>) -> io::Result<LogExcerpt> {
        let log = ContainerLog::open(&self.dir, &self.name)?;
        let (from, most) = span(&log, range, tail);
        self.excerpt(&log, from, most)
    }

    fn excerpt(&self, log: &ContainerLog, from: u64, most: u64) -> io::Result<LogExcerpt> {
        let (from, bytes) = log.read(from, most)?;
        if !bytes.is_empty() && log.is_of_other_task(&self.dir, &self.name) {
            return Ok(LogExcerpt {
                from: 0,
                bytes: Vec::new(),
                start: 0,
                end: 0,
            });
        }
        Ok(LogExcerpt {
            from,
            bytes,
            start: log.start,
            end: log.end,
        })
    }

    /// The first requested position, and the first kept position of the log.
    async fn first(
        self: &Arc<Self>,
        range: Option<LogByteRange>,
        tail: Option<u64>,
    ) -> io::Result<(u64, u64)> {
        let source = Arc::clone(self);
        let job = move || {
            ContainerLog::open(&source.dir, &source.name)
                .map(|log| (span(&log, range, tail).0.min(log.end), log.start))
        };
        tokio::task::spawn_blocking(job)
            .await
            .map_err(io::Error::other)?
    }

    /// The bytes from `from` on, and whether the container had ended before they were read.
    fn more(&self, from: u64) -> io::Result<(LogExcerpt, bool)> {
        // A container whose report could not be written is forgotten without one.
        let over = !self.dir.exists()
            || [file::REPORT, file::FORGOTTEN]
                .iter()
                .any(|name| self.dir.join(name).exists());
        let log = ContainerLog::open(&self.dir, &self.name)?;
        Ok((self.excerpt(&log, from, PIECE)?, over))
    }
}

/// First position and maximum number of bytes.
fn span(log: &ContainerLog, range: Option<LogByteRange>, tail: Option<u64>) -> (u64, u64) {
    match range {
        Some(LogByteRange::From(from, to)) => (
            from,
            to.map_or(logs::MOST, |to| {
                (to + 1).saturating_sub(from.max(log.start))
            }),
        ),
        Some(LogByteRange::Last(most)) => (log.end.saturating_sub(most), most),
        None => {
            let most = tail.unwrap_or(logs::SERVED).min(logs::MOST);
            (log.end.saturating_sub(most), most)
        }
    }
}

impl LogExcerpt {
    fn into_response(self, range: Option<LogByteRange>) -> Response {
        let LogExcerpt {
            from,
            bytes,
            start,
            end,
        } = self;
        let kind = (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned());
        let facts = [
            kind,
            (header::ACCEPT_RANGES, "bytes".to_owned()),
            (START, start.to_string()),
            (END, end.to_string()),
        ];
        match range {
            // A cut character becomes `U+FFFD` in displayed text; a range returns the exact bytes.
            None => (facts, String::from_utf8_lossy(&bytes).into_owned()).into_response(),
            Some(_) if bytes.is_empty() => (
                StatusCode::RANGE_NOT_SATISFIABLE,
                [(header::CONTENT_RANGE, format!("bytes */{end}"))],
                facts,
            )
                .into_response(),
            Some(_) => {
                let last = from + bytes.len() as u64 - 1;
                let part = [(header::CONTENT_RANGE, format!("bytes {from}-{last}/{end}"))];
                (StatusCode::PARTIAL_CONTENT, part, facts, bytes).into_response()
            }
        }
    }
}

/// One requested range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogByteRange {
    /// From a position to another one, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl LogByteRange {
    /// Parses the `LogByteRange` header of a call.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<LogByteRange>, RefusedRequest> {
        let wrong = || {
            refuse(
                ErrorCode::HR0400,
                "Range must be bytes=FROM-, bytes=FROM-TO or bytes=-LAST",
            )
        };
        let asked = headers.get(header::RANGE).map(|value| {
            value
                .to_str()
                .ok()
                .and_then(LogByteRange::parse)
                .ok_or_else(wrong)
        });
        asked.transpose()
    }

    fn parse(text: &str) -> Option<LogByteRange> {
        let (from, to) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
        match (from.trim(), to.trim()) {
            ("", last) => last.parse().ok().map(LogByteRange::Last),
            (from, "") => from.parse().ok().map(|from| LogByteRange::From(from, None)),
            (from, to) => {
                let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
                (from <= to && to < u64::MAX).then_some(LogByteRange::From(from, Some(to)))
            }
        }
    }
}

/// Streams new bytes until the container has ended and all of them are sent.
fn follow(source: Arc<LogLocation>, first: u64, permit: OwnedSemaphorePermit) -> Response {
    let pieces = stream::unfold(
        (source, first, permit),
        |(source, from, permit)| async move {
            let mut looks = tokio::time::interval(LOOK);
            loop {
                looks.tick().await;
                let reader = Arc::clone(&source);
                let (piece, over) = tokio::task::spawn_blocking(move || reader.more(from))
                    .await
                    .ok()?
                    .ok()?;
                if !piece.bytes.is_empty() {
                    let next = piece.from + piece.bytes.len() as u64;
                    return Some((
                        Ok::<_, io::Error>(Bytes::from(piece.bytes)),
                        (source, next, permit),
                    ));
                }
                if over {
                    return None;
                }
            }
        },
    );
    // The position of the first byte of the stream.
    let facts = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (START, first.to_string()),
    ];
    (facts, Body::from_stream(pieces)).into_response()
}

/// Permits for followers.
pub(super) fn followers() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(FOLLOWED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_a_report_or_forgotten_has_ended() {
        let dir = tempfile::tempdir().expect("dir");
        let log = LogLocation {
            dir: dir.path().to_owned(),
            name: file::STDOUT.to_owned(),
        };
        std::fs::write(dir.path().join(file::STDOUT), "text").expect("writes");
        for name in [file::REPORT, file::FORGOTTEN] {
            let (part, over) = log.more(1).expect("reads");
            assert_eq!((part.bytes.as_slice(), over), (b"ext".as_slice(), false));
            std::fs::write(dir.path().join(name), "").expect("writes");
            assert!(log.more(1).expect("reads").1, "{name}");
            std::fs::remove_file(dir.path().join(name)).expect("removes");
        }
    }

    #[test]
    fn ranges_of_the_range_header_are_parsed() {
        assert_eq!(
            LogByteRange::parse("bytes=5-"),
            Some(LogByteRange::From(5, None))
        );
        assert_eq!(
            LogByteRange::parse("bytes=5-9"),
            Some(LogByteRange::From(5, Some(9)))
        );
        assert_eq!(LogByteRange::parse("bytes=-9"), Some(LogByteRange::Last(9)));
        for wrong in [
            "",
            "bytes",
            "bytes=-",
            "bytes=9-5",
            "bytes=1-2,4-5",
            "lines=1-",
            "bytes=a-",
        ] {
            assert_eq!(LogByteRange::parse(wrong), None, "{wrong:?}");
        }
    }
}
