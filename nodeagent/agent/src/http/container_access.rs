//! Container access: signals, files, and programs inside a running container. Only the resource
//! manager of this node may call it. The node gives it a key at registration, and each call carries
//! that key. The resource manager decides and records permissions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use headroom_types::{ContainerId, Signal};
use headroom_wire::v1::container_access::{
    ContainerFileEntry, DEFAULT_EXEC_TIMEOUT_MS, ExecContainer, ExecOutputLine,
    MAX_EXEC_INPUT_BYTES, MAX_EXEC_TIMEOUT_MS, NODE_KEY_HEADER, SignalContainer, SignalDelivered,
    TextOrBytes,
};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::nodes::NodeContainerPhase;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::handler_state::{AgentHandlerState, ask, parse};
use super::logs::LogByteRange;
use super::refusal::{RefusedRequest, refuse};
use crate::agent_input::AgentInput;
use crate::agent_query::{AccessTarget, AgentQuery};
use crate::exec::{self, ExecOutput, ExecRequest};
use crate::files::{self, ContainerPath};
use crate::stop::{self, SignalTarget};

/// Maximum number of files that are read at once.
pub(super) const READ: usize = 64;
/// Maximum bytes in one piece.
const PIECE: usize = 64 << 10;
/// Interval of keep-alive lines while a program prints nothing.
const ALIVE: Duration = Duration::from_secs(5);

fn admit(shared: &AgentHandlerState, headers: &HeaderMap) -> Result<(), RefusedRequest> {
    let given = headers
        .get(NODE_KEY_HEADER)
        .map(axum::http::HeaderValue::as_bytes)
        .unwrap_or_default();
    let own = shared.key.as_bytes();
    // All bytes are compared, so that the duration reveals nothing about the key.
    let differs = own
        .iter()
        .zip(given)
        .fold(usize::from(given.len() != own.len()), |sum, (a, b)| {
            sum | usize::from(a ^ b)
        });
    if differs == 0 {
        return Ok(());
    }
    let mut problem = ProblemDetails::new(
        ErrorCode::HR0403,
        "only the resource manager of this node may make this call",
    );
    problem
        .hints
        .push("call the resource manager: rmctl container".to_owned());
    Err(RefusedRequest(Box::new(problem)))
}

/// The data of a container whose program runs.
async fn running(
    shared: &AgentHandlerState,
    id: &ContainerId,
) -> Result<Box<AccessTarget>, RefusedRequest> {
    let found = ask(shared, |reply| AgentQuery::Inside(id.clone(), reply)).await?;
    let found = found.ok_or_else(|| {
        refuse(
            ErrorCode::HR0404,
            format!("container {id} is not on this node"),
        )
    })?;
    match found.phase {
        NodeContainerPhase::Running | NodeContainerPhase::Stopping => Ok(found),
        NodeContainerPhase::Preparing | NodeContainerPhase::Starting => Err(refuse(
            ErrorCode::HR0409,
            format!("container {id} does not run yet"),
        )),
        NodeContainerPhase::Exited => Err(refuse(
            ErrorCode::HR0409,
            format!("container {id} has ended"),
        )),
    }
}

fn body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, RefusedRequest> {
    body.map(|Json(body)| body).map_err(|error| {
        refuse(
            ErrorCode::HR0400,
            format!("the body: {}", error.body_text()),
        )
    })
}

/// Sends a signal.
pub(super) async fn signal(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
    headers: HeaderMap,
    asked: Result<Json<SignalContainer>, JsonRejection>,
) -> Result<Json<SignalDelivered>, RefusedRequest> {
    admit(&shared, &headers)?;
    let (id, asked) = (parse(&id)?, body(asked)?);
    let found = running(&shared, &id).await?;
    let over = || refuse(ErrorCode::HR0409, format!("container {id} has ended"));
    tracing::info!(container_id = %id, signal = %asked.signal, all = asked.all, "a caller requests a signal");
    if asked.signal == Signal::KILL {
        let group = found.group.clone();
        let living = spawn_blocking(move || {
            group
                .and_then(|group| group.pids().ok())
                .map_or(1, |pids| pids.len())
        });
        let processes = u32::try_from(living.await.unwrap_or(1)).unwrap_or(u32::MAX);
        let (reply, killed) = oneshot::channel();
        shared
            .inputs
            .send(AgentInput::Kill(id.clone(), reply))
            .await
            .map_err(|_| over())?;
        return if killed.await.unwrap_or(false) {
            Ok(Json(SignalDelivered {
                signal: asked.signal,
                processes,
            }))
        } else {
            Err(over())
        };
    }
    let (site, of, whom) = (
        Arc::clone(&shared.site),
        id.clone(),
        if asked.all {
            SignalTarget::All
        } else {
            SignalTarget::Program
        },
    );
    let sent = spawn_blocking(move || {
        stop::deliver(
            &site,
            &of,
            found.group.as_deref(),
            asked.signal.number(),
            whom,
        )
    })
    .await;
    match sent {
        Ok(Ok(0)) => Err(over()),
        Ok(Ok(processes)) => Ok(Json(SignalDelivered {
            signal: asked.signal,
            processes,
        })),
        Ok(Err(error)) => Err(refuse(
            ErrorCode::HR0500,
            format!("{} for container {id}: {error:#}", asked.signal),
        )),
        Err(_) => Err(refuse(
            ErrorCode::HR0500,
            "the signal was not sent; see the log of the node agent",
        )),
    }
}

/// The requested path.
#[derive(Debug, Deserialize)]
pub(super) struct PathQuery {
    #[serde(default)]
    path: String,
}

fn place(at: &PathQuery) -> Result<ContainerPath, RefusedRequest> {
    at.path
        .parse()
        .map_err(|why: String| refuse(ErrorCode::HR0400, why))
}

fn unread(id: &ContainerId, at: &PathQuery, error: &io::Error) -> RefusedRequest {
    let path = if at.path.is_empty() {
        "files"
    } else {
        &at.path
    };
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    if is(&[io::ErrorKind::NotFound, io::ErrorKind::NotADirectory]) {
        return refuse(
            ErrorCode::HR0404,
            format!("container {id} has no {path} on this node"),
        );
    }
    let (code, problem) = if is(&[io::ErrorKind::PermissionDenied]) {
        (ErrorCode::HR0400, "is not accessible")
    } else if is(&[io::ErrorKind::FileTooLarge]) {
        (ErrorCode::HR0413, "is not listed")
    } else if is(&[io::ErrorKind::ResourceBusy]) {
        (ErrorCode::HR0503, "cannot be read now")
    } else {
        (ErrorCode::HR0500, "cannot be read")
    };
    refuse(code, format!("{path} of container {id} {problem}: {error}"))
}

/// Lists a directory of a container.
pub(super) async fn list(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
    Query(at): Query<PathQuery>,
    headers: HeaderMap,
) -> Result<Json<Vec<ContainerFileEntry>>, RefusedRequest> {
    admit(&shared, &headers)?;
    let (id, place) = (parse(&id)?, place(&at)?);
    let dir = shared.site.layout.container(&id);
    let listed = spawn_blocking(move || files::list(&dir, &place))
        .await
        .map_err(io::Error::other)
        .and_then(|listed| listed);
    listed.map(Json).map_err(|error| unread(&id, &at, &error))
}

/// Returns a file of a container, or a range of it, up to its length when it was opened.
pub(super) async fn content(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
    Query(at): Query<PathQuery>,
    headers: HeaderMap,
) -> Result<Response, RefusedRequest> {
    admit(&shared, &headers)?;
    let (id, place, range) = (parse(&id)?, place(&at)?, LogByteRange::of(&headers)?);
    let busy = |_| {
        refuse(
            ErrorCode::HR0503,
            format!("{READ} files are read on this node, its limit; try later"),
        )
    };
    let seat = Arc::clone(&shared.readers)
        .try_acquire_owned()
        .map_err(busy)?;
    let dir = shared.site.layout.container(&id);
    let opened = spawn_blocking(move || files::open(&dir, &place))
        .await
        .map_err(io::Error::other)
        .and_then(|opened| opened);
    let (file, length) = opened.map_err(|error| unread(&id, &at, &error))?;
    let (from, to) = match range {
        None => (0, length),
        Some(LogByteRange::From(from, to)) => (from, to.map_or(length, |to| (to + 1).min(length))),
        Some(LogByteRange::Last(most)) => (length.saturating_sub(most), length),
    };
    let kind = (header::CONTENT_TYPE, "application/octet-stream".to_owned());
    if range.is_some() && from >= to {
        let facts = [kind, (header::CONTENT_RANGE, format!("bytes */{length}"))];
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, facts).into_response());
    }
    let facts = [
        kind,
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::CONTENT_LENGTH, (to - from).to_string()),
    ];
    let sent = Body::from_stream(pieces(Arc::new(file), from, to, seat));
    Ok(match range {
        None => (facts, sent).into_response(),
        Some(_) => {
            let part = [(
                header::CONTENT_RANGE,
                format!("bytes {from}-{}/{length}", to - 1),
            )];
            (StatusCode::PARTIAL_CONTENT, part, facts, sent).into_response()
        }
    })
}

/// The bytes between two positions. If the file becomes shorter meanwhile, the response ends early.
fn pieces(
    file: Arc<File>,
    from: u64,
    to: u64,
    seat: OwnedSemaphorePermit,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    stream::unfold((file, from, seat), move |(file, at, seat)| async move {
        if at >= to {
            return None;
        }
        let reader = Arc::clone(&file);
        let read = spawn_blocking(move || {
            let mut room = vec![0; usize::try_from(to - at).unwrap_or(PIECE).min(PIECE)];
            let n = reader.read_at(&mut room, at)?;
            room.truncate(n);
            Ok::<_, io::Error>(room)
        });
        let read = read.await.map_err(io::Error::other).and_then(|read| read);
        let read = read.and_then(|bytes| {
            if bytes.is_empty() {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(bytes)
            }
        });
        match read {
            Ok(bytes) => {
                let next = at + bytes.len() as u64;
                Some((Ok(Bytes::from(bytes)), (file, next, seat)))
            }
            Err(error) => Some((Err(error), (file, to, seat))),
        }
    })
}

/// Runs a program in a container and streams its output and end as lines.
pub(super) async fn run(
    State(shared): State<AgentHandlerState>,
    Path(id): Path<String>,
    headers: HeaderMap,
    asked: Result<Json<ExecContainer>, JsonRejection>,
) -> Result<Response, RefusedRequest> {
    admit(&shared, &headers)?;
    let (id, asked) = (parse(&id)?, body(asked)?);
    let input = checked(&asked)?;
    let found = running(&shared, &id).await?;
    if found.phase == NodeContainerPhase::Stopping {
        return Err(refuse(
            ErrorCode::HR0409,
            format!("container {id} is about to end"),
        ));
    }
    let (Some(order), Some(group)) = (found.order, found.group) else {
        return Err(refuse(
            ErrorCode::HR0409,
            format!("the launch of container {id} is not known any more"),
        ));
    };
    let busy = |_| {
        refuse(
            ErrorCode::HR0503,
            format!(
                "{} exec programs run on this node, its limit; try later",
                exec::AT_ONCE
            ),
        )
    };
    let seat = Arc::clone(&shared.execs)
        .try_acquire_owned()
        .map_err(busy)?;
    let time = Duration::from_millis(asked.timeout_ms.unwrap_or(DEFAULT_EXEC_TIMEOUT_MS));
    tracing::info!(container_id = %id, program = asked.command.first(), "a caller runs an exec program");
    let request = ExecRequest {
        id: id.clone(),
        order,
        group,
        command: asked.command,
        input,
        time,
    };
    let words = exec::run(Arc::clone(&shared.site), request, seat).await;
    let words = words.map_err(|error| {
        refuse(
            ErrorCode::HR0500,
            format!("no program was started in container {id}: {error:#}"),
        )
    })?;
    Ok((
        [(header::CONTENT_TYPE, "application/x-ndjson")],
        Body::from_stream(lines(words)),
    )
        .into_response())
}

fn checked(asked: &ExecContainer) -> Result<Option<Vec<u8>>, RefusedRequest> {
    if asked.command.first().is_none_or(String::is_empty) {
        return Err(refuse(ErrorCode::HR0400, "command: the program is missing"));
    }
    if asked.command.iter().any(|word| word.contains('\0')) {
        return Err(refuse(
            ErrorCode::HR0400,
            "command: an argument contains a NUL character",
        ));
    }
    if asked
        .timeout_ms
        .is_some_and(|ms| ms == 0 || ms > MAX_EXEC_TIMEOUT_MS)
    {
        return Err(refuse(
            ErrorCode::HR0400,
            format!("timeout_ms: write a number from 1 to {MAX_EXEC_TIMEOUT_MS}"),
        ));
    }
    let input = asked.input.as_ref().map(TextOrBytes::bytes).transpose();
    let input = input.map_err(|why| refuse(ErrorCode::HR0400, format!("input: {why}")))?;
    if input
        .as_ref()
        .is_some_and(|input| input.len() > MAX_EXEC_INPUT_BYTES)
    {
        return Err(refuse(
            ErrorCode::HR0413,
            format!("input: longer than {MAX_EXEC_INPUT_BYTES} bytes"),
        ));
    }
    Ok(input)
}

/// One line for each piece, and an empty line as keep-alive.
fn lines(words: mpsc::Receiver<ExecOutput>) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    stream::unfold(words, |mut words| async move {
        let word = match tokio::time::timeout(ALIVE, words.recv()).await {
            Err(_) => return Some((Ok(Bytes::from_static(b"\n")), words)),
            Ok(word) => word?,
        };
        let line = match word {
            ExecOutput::Stdout(bytes) => ExecOutputLine::Stdout {
                data: TextOrBytes::of(&bytes),
            },
            ExecOutput::Stderr(bytes) => ExecOutputLine::Stderr {
                data: TextOrBytes::of(&bytes),
            },
            ExecOutput::Ended(end) => ExecOutputLine::Ended { end },
        };
        let text = serde_json::to_vec(&line)
            .map_err(io::Error::other)
            .map(|mut text| {
                text.push(b'\n');
                Bytes::from(text)
            });
        Some((text, words))
    })
}

/// Semaphore with that number of permits.
pub(super) fn room(places: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(places))
}
