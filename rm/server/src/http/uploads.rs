//! `/v1/uploads`: files that users upload for their applications, and that nodes fetch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use headroom_types::{LaunchSpec, Sha256};
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::uploads::UploadedFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use super::describe::{Bad, Missing, TooLarge, TooMany, UploadsFull};
use super::error::ProblemResponse;
use super::parse::{EmptyQuery, PathId, QueryParams};
use super::web::WebHandlerState;
use crate::upload_sweep::sweep;
use crate::uploads::{UploadError, UploadOutcome, UploadWriter, named};

/// Pieces of a body that wait for the disk.
const PIECES: usize = 8;
/// Size of the pieces in which a file is sent. Bytes.
const PIECE: usize = 256 << 10;
/// Time for an upload of any size.
const BASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Slowest upload. Bytes per second.
const MIN_RATE: u64 = 64 << 10;
/// Time for which the body of a refused upload is read and discarded. A caller that is still
/// sending would otherwise not read the response.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Stores a file by its SHA-256.
///
/// The body is the file. The response arrives when the file is durable. A file that the store has
/// is verified again. A file is removed some time after its last use, unless an application that
/// has not ended names it.
#[utoipa::path(put, path = "/v1/uploads/{sha256}", tag = "uploads", params(("sha256" = Sha256, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, body = UploadedFile, description = "The store had the file already."),
    (status = 201, body = UploadedFile, description = "The file is new."),
    Bad, TooLarge, TooMany, UploadsFull,
))]
pub(crate) async fn put(
    State(web): State<WebHandlerState>,
    PathId(sha256): PathId<Sha256>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ProblemResponse> {
    let mut body = body.into_data_stream();
    let stored = match begin(&web, sha256, &headers).await {
        Ok((slot, writer, size)) => {
            let received = receive(&mut body, writer, size).await;
            drop(slot);
            received.map(|outcome| (outcome, size))
        }
        Err(problem) => Err(problem),
    };
    match stored {
        Ok((outcome, size)) => {
            let status = match outcome {
                UploadOutcome::Stored => StatusCode::CREATED,
                UploadOutcome::Known => StatusCode::OK,
            };
            let size = headroom_types::Bytes::new(size);
            Ok((status, Json(UploadedFile { sha256, size })).into_response())
        }
        Err(problem) => {
            tokio::spawn(timeout(DISCARD_TIMEOUT, discard(body)));
            Err(problem.into())
        }
    }
}

/// Reserves a slot and the space of an upload. Returns them with its size in bytes.
async fn begin(
    web: &WebHandlerState,
    sha256: Sha256,
    headers: &HeaderMap,
) -> Result<(OwnedSemaphorePermit, UploadWriter, u64), ProblemDetails> {
    let size = size(headers)?;
    let slot = slot(&web.uploads.uploads)?;
    let writer = match begin_writer(web, sha256, size).await? {
        Err(UploadError::StoreFull { .. }) => {
            sweep(&web.uploads, &web.reader).await;
            begin_writer(web, sha256, size).await?
        }
        opened => opened,
    };
    Ok((slot, writer?, size))
}

/// Size of a body. Bytes.
fn size(headers: &HeaderMap) -> Result<u64, ProblemDetails> {
    let named = headers.get(header::CONTENT_LENGTH);
    // Without both headers there is no body.
    if named.is_none() && !headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(0);
    }
    let size = named.and_then(|size| size.to_str().ok()?.parse().ok());
    size.ok_or_else(|| {
        ProblemDetails::bad_request("an upload needs the header Content-Length")
            .hint("send the size of the file in bytes; curl -T FILE does")
    })
}

async fn begin_writer(
    web: &WebHandlerState,
    sha256: Sha256,
    size: u64,
) -> Result<Result<UploadWriter, UploadError>, ProblemDetails> {
    let store = web.uploads.clone();
    on_disk(move || store.begin(sha256, size)).await
}

fn slot(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ProblemDetails> {
    slots.clone().try_acquire_owned().map_err(|_| {
        let detail = "the number of files that are sent at once is at its limit";
        ProblemDetails::new(ErrorCode::HR0429, detail).hint("try again in a moment")
    })
}

/// Runs a function that blocks.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ProblemDetails> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| failed())
}

fn failed() -> ProblemDetails {
    ProblemDetails::internal("the store of uploads failed; the log has the details")
}

/// Passes the body to the disk. If that fails, the rest of the body is unread.
async fn receive(
    body: &mut BodyDataStream,
    writer: UploadWriter,
    size: u64,
) -> Result<UploadOutcome, ProblemDetails> {
    let (pieces, received) = mpsc::channel(PIECES);
    let written = tokio::task::spawn_blocking(move || store(writer, received));
    let longest = BASE_TIMEOUT + Duration::from_secs(size / MIN_RATE);
    // The future owns the sender, so its end is the end of the body for the writer.
    let sent = timeout(longest, forward(body, pieces)).await;
    let stored = written.await.map_err(|_| failed())?;
    match sent {
        Ok(Ok(())) => Ok(stored?),
        Ok(Err(problem)) => Err(problem),
        Err(_) => {
            let detail = format!("the file did not arrive within {} s", longest.as_secs());
            Err(ProblemDetails::bad_request(detail).hint("send it over a faster connection"))
        }
    }
}

async fn forward(
    body: &mut BodyDataStream,
    pieces: mpsc::Sender<Bytes>,
) -> Result<(), ProblemDetails> {
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| {
            ProblemDetails::bad_request(format!("the body did not arrive: {error}"))
                .hint("send the file again")
        })?;
        if pieces.send(piece).await.is_err() {
            // The writer has failed and reports the reason.
            break;
        }
    }
    Ok(())
}

/// Writes a body to the disk.
fn store(
    mut writer: UploadWriter,
    mut pieces: mpsc::Receiver<Bytes>,
) -> Result<UploadOutcome, UploadError> {
    while let Some(piece) = pieces.blocking_recv() {
        writer.write(&piece)?;
    }
    writer.finish()
}

async fn discard(mut body: BodyDataStream) {
    while let Some(Ok(_)) = body.next().await {}
}

/// Returns an uploaded file, and marks it as used.
///
/// HEAD reports whether the store has the file, and marks it as used too.
#[utoipa::path(get, path = "/v1/uploads/{sha256}", tag = "uploads", params(("sha256" = Sha256, Path)), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"), Bad, Missing, TooMany,
))]
pub(crate) async fn get(
    State(web): State<WebHandlerState>,
    PathId(sha256): PathId<Sha256>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Result<Response, ProblemResponse> {
    let slot = slot(&web.uploads.downloads)?;
    let store = web.uploads.clone();
    let found = on_disk(move || store.read(sha256)).await?;
    let Some((file, size)) = found
        .map_err(UploadError::from)
        .map_err(ProblemDetails::from)?
    else {
        return Err(missing(sha256).into());
    };
    // The slot is released with the last byte, or when the caller stops reading.
    let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE)
        .inspect(move |_| {
            let _held = &slot;
        })
        .take_until(web.closing.clone().cancelled_owned());
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, size)
        .body(Body::from_stream(pieces));
    response.map_err(|_| ProblemDetails::internal("the file cannot be sent").into())
}

fn missing(sha256: Sha256) -> ProblemDetails {
    ProblemDetails::not_found(format!("there is no uploaded file {sha256}")).hint(
        "upload it again: a file that no application needs is removed after keep under [uploads] \
         in resourcemanager.toml",
    )
}

/// Checks that the store has all uploads that a launch names, and marks them as used.
pub(super) async fn check(
    web: &WebHandlerState,
    launch: &LaunchSpec,
) -> Result<(), ProblemDetails> {
    let sums: BTreeSet<Sha256> = named(launch).collect();
    if sums.is_empty() {
        return Ok(());
    }
    let store = web.uploads.clone();
    let absent = on_disk(move || store.missing(&sums)).await?;
    match absent.map_err(UploadError::from)? {
        Some(sum) => {
            let mut problem = missing(sum);
            let mut files = launch.fetch.iter();
            if let Some(file) = files.find(|file| file.upload() == Some(sum)) {
                problem.detail = format!("launch.fetch: {}: {}", file.name, problem.detail);
            }
            Err(problem)
        }
        None => Ok(()),
    }
}
