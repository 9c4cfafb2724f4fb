//! `/v1/uploads`: files that users upload for their applications, and that nodes fetch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use headroom_types::{LaunchSpec, Sha256};
use headroom_wire::v1::error::ProblemDetails;
use headroom_wire::v1::uploads::UploadedFile;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::describe::{Bad, Missing, TooLarge, TooMany, UploadsFull};
use super::error::ProblemResponse;
use super::parse::{EmptyQuery, PathId, QueryParams};
use super::web::WebHandlerState;
use crate::upload_sweep::sweep;
use crate::upload_transfer::{self, on_disk, receive, slot};
use crate::uploads::{UploadError, UploadOutcome, UploadStore, UploadWriter, named};

/// Time for which the body of a refused upload is read and discarded. A caller that is still
/// sending would otherwise not read the response.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Stores a file by its SHA-256.
///
/// The body is the file. The response arrives when the file is durable. Of several resource
/// managers, a majority of those that run has it then. A file that the store has
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
    let begun = begin(&web, sha256, &headers).await;
    let stored = store(begun, body, sha256).await?;
    if let Some(copies) = &web.copies {
        copies.spread(sha256).await?;
    }
    Ok(stored)
}

/// Stores the body of a call, and makes its response.
pub(super) async fn store(
    begun: Result<IncomingFile, ProblemDetails>,
    body: Body,
    sha256: Sha256,
) -> Result<Response, ProblemDetails> {
    let mut body = body.into_data_stream();
    let received = match begun {
        Ok(IncomingFile { slot, writer, size }) => {
            let received = receive(&mut body, writer, size).await;
            drop(slot);
            received.map(|outcome| (outcome, size))
        }
        Err(problem) => Err(problem),
    };
    match received {
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
            Err(problem)
        }
    }
}

/// A file that is about to be received.
#[derive(Debug)]
pub(super) struct IncomingFile {
    pub(super) slot: OwnedSemaphorePermit,
    pub(super) writer: UploadWriter,
    /// Bytes.
    pub(super) size: u64,
}

/// Reserves a slot and the space of an upload.
async fn begin(
    web: &WebHandlerState,
    sha256: Sha256,
    headers: &HeaderMap,
) -> Result<IncomingFile, ProblemDetails> {
    let size = size(headers)?;
    let slot = slot(&web.uploads.uploads)?;
    let writer = match upload_transfer::begin(&web.uploads, sha256, size).await? {
        Err(UploadError::StoreFull { .. }) => {
            sweep(&web.uploads, &web.reader).await;
            upload_transfer::begin(&web.uploads, sha256, size).await?
        }
        opened => opened,
    };
    let writer = writer?;
    Ok(IncomingFile { slot, writer, size })
}

/// Size of a body. Bytes.
pub(super) fn size(headers: &HeaderMap) -> Result<u64, ProblemDetails> {
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
    method: Method,
    PathId(sha256): PathId<Sha256>,
    QueryParams(EmptyQuery {}): QueryParams<EmptyQuery>,
) -> Result<Response, ProblemResponse> {
    let sent = send(&web.uploads, sha256).await?;
    let sent = match (sent, &web.copies) {
        (None, Some(copies)) if copies.fetch(sha256).await? => send(&web.uploads, sha256).await?,
        (None, Some(copies)) if method == Method::GET && copies.may_find_later() => {
            let detail = format!("no running resource manager has the uploaded file {sha256}");
            return Err(ProblemDetails::unavailable(detail)
                .hint("others may still start; try again in a moment")
                .into());
        }
        (sent, _) => sent,
    };
    let Some(response) = sent else {
        return Err(missing(sha256).into());
    };
    let closing = web.closing.clone();
    Ok(response.map(|body| {
        Body::from_stream(
            body.into_data_stream()
                .take_until(closing.cancelled_owned()),
        )
    }))
}

/// A response with a stored file, which is marked as used; `None` if the store does not have it.
pub(super) async fn send(
    store: &Arc<UploadStore>,
    sha256: Sha256,
) -> Result<Option<Response>, ProblemDetails> {
    let slot = slot(&store.downloads)?;
    let Some((pieces, size)) = upload_transfer::open(store, sha256).await? else {
        return Ok(None);
    };
    // The slot is released with the last byte, or when the caller stops reading.
    let pieces = pieces.inspect(move |_| {
        let _held = &slot;
    });
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, size)
        .body(Body::from_stream(pieces));
    response
        .map(Some)
        .map_err(|_| ProblemDetails::internal("the file cannot be sent"))
}

pub(super) fn missing(sha256: Sha256) -> ProblemDetails {
    ProblemDetails::not_found(format!("there is no uploaded file {sha256}")).hint(
        "upload it again: a file that no application needs is removed after keep under [uploads] \
         in resourcemanager.toml",
    )
}

/// Checks that the store has all uploads that a launch names, and marks them as used. Of several
/// resource managers, a majority then has them.
pub(super) async fn check(
    web: &WebHandlerState,
    launch: &LaunchSpec,
) -> Result<(), ProblemDetails> {
    let sums: BTreeSet<Sha256> = named(launch).collect();
    if sums.is_empty() {
        return Ok(());
    }
    while let Some(sum) = absent(web, &sums).await? {
        if let Some(copies) = &web.copies
            && copies.fetch(sum).await?
        {
            continue;
        }
        let mut problem = missing(sum);
        let mut files = launch.fetch.iter();
        if let Some(file) = files.find(|file| file.upload() == Some(sum)) {
            problem.detail = format!("launch.fetch: {}: {}", file.name, problem.detail);
        }
        return Err(problem);
    }
    if let Some(copies) = &web.copies {
        for sum in sums {
            copies.spread(sum).await?;
        }
    }
    Ok(())
}

/// The first of these files that the store does not have.
async fn absent(
    web: &WebHandlerState,
    sums: &BTreeSet<Sha256>,
) -> Result<Option<Sha256>, ProblemDetails> {
    let (store, sums) = (web.uploads.clone(), sums.clone());
    let absent = on_disk(move || store.missing(&sums)).await?;
    Ok(absent.map_err(UploadError::from)?)
}
