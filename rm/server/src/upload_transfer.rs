//! Transfer of uploaded files between the store and a connection.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use headroom_types::Sha256;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::io::ReaderStream;

use crate::uploads::{UploadError, UploadOutcome, UploadStore, UploadWriter};

/// Pieces of a body that wait for the disk.
const PIECES: usize = 8;
/// Size of the pieces in which a file is sent. Bytes.
const PIECE: usize = 256 << 10;
/// Time for a transfer of any size.
const BASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Slowest transfer. Bytes per second.
const MIN_RATE: u64 = 64 << 10;

/// Longest transfer of a file of `size` bytes.
pub(crate) fn longest(size: u64) -> Duration {
    BASE_TIMEOUT + Duration::from_secs(size / MIN_RATE)
}

/// Begins to receive a file of `size` bytes.
///
/// # Errors
/// The inner result is that of the store. The outer one fails if the store cannot run.
pub(crate) async fn begin(
    store: &Arc<UploadStore>,
    sha256: Sha256,
    size: u64,
) -> Result<Result<UploadWriter, UploadError>, ProblemDetails> {
    let store = store.clone();
    on_disk(move || store.begin(sha256, size)).await
}

/// Takes a slot for a transfer.
///
/// # Errors
/// HR0429 if all slots are in use.
pub(crate) fn slot(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ProblemDetails> {
    slots.clone().try_acquire_owned().map_err(|_| {
        let detail = "the number of files that are sent at once is at its limit";
        ProblemDetails::new(ErrorCode::HR0429, detail).hint("try again in a moment")
    })
}

/// Runs a function that blocks.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ProblemDetails> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| failed())
}

fn failed() -> ProblemDetails {
    ProblemDetails::internal("the store of uploads failed; the log has the details")
}

/// Passes a body of `size` bytes to the disk. If that fails, the rest of the body is unread.
pub(crate) async fn receive<B, E>(
    body: &mut B,
    writer: UploadWriter,
    size: u64,
) -> Result<UploadOutcome, ProblemDetails>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Display,
{
    let (pieces, received) = mpsc::channel(PIECES);
    let written = tokio::task::spawn_blocking(move || store(writer, received));
    let longest = longest(size);
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

async fn forward<B, E>(body: &mut B, pieces: mpsc::Sender<Bytes>) -> Result<(), ProblemDetails>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Display,
{
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

/// Opens a stored file, and marks it as used. Returns its content and its size in bytes; `None` if
/// the store does not have it.
pub(crate) async fn open(
    store: &Arc<UploadStore>,
    sha256: Sha256,
) -> Result<Option<(ReaderStream<tokio::fs::File>, u64)>, ProblemDetails> {
    let store = store.clone();
    let found = on_disk(move || store.read(sha256)).await?;
    let found = found.map_err(UploadError::from)?;
    Ok(found.map(|(file, size)| {
        let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PIECE);
        (pieces, size)
    }))
}
