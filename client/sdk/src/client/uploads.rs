//! Calls about uploaded files.

use std::time::Duration;

use futures_util::StreamExt as _;
use headroom_types::Sha256;
use headroom_wire::v1::error::{ErrorCode, ProblemReason};
use headroom_wire::v1::uploads::UploadedFile;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Method, StatusCode};
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;

use super::{Client, success};
use crate::ClientError;
use crate::log::LogStream;
use crate::retry::ExponentialBackoff;
use crate::upload_source::{FileUploadError, UploadSource};

/// Pieces in which a file is sent. Bytes.
const PIECE: usize = 256 << 10;
/// Slowest upload. Bytes per second.
const MIN_RATE: u64 = 64 << 10;
/// Time for an upload of any size.
const BASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of attempts when the resource manager does not answer or is overloaded.
const TRIES: u32 = 4;

impl Client {
    /// Returns whether the resource manager has the uploaded file, and marks it as used.
    pub async fn has_upload(&self, sha256: Sha256) -> Result<bool, ClientError> {
        let call = self.request(Method::HEAD, &format!("/v1/uploads/{sha256}"));
        self.exchange(call, async |url, response| {
            if response.status() == StatusCode::NOT_FOUND {
                return Ok(false);
            }
            success(&url, response).await.map(|_| true)
        })
        .await
    }

    /// Uploads a file, unless the resource manager has it. `sent` is called with the number of
    /// bytes that were sent so far. Returns whether it was sent.
    ///
    /// # Errors
    /// The file changed, the resource manager accepts no uploads, or the call failed.
    pub async fn upload(
        &self,
        source: &UploadSource,
        sent: impl Fn(u64) + Clone + Send + Sync + 'static,
    ) -> Result<bool, FileUploadError> {
        let mut backoff = ExponentialBackoff::usual();
        let mut tries = 1;
        loop {
            match self.upload_once(source, sent.clone()).await {
                Err(FileUploadError::Call(error))
                    if error.retryable() && !self.is_refused(&error) && tries < TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(backoff.wait()).await;
                }
                done => return done,
            }
        }
    }

    /// True if no resource manager listens. Of several, another one may listen.
    fn is_refused(&self, error: &ClientError) -> bool {
        match error {
            ClientError::NoLeader { .. } => error.connection_refused(),
            ClientError::Address(_)
            | ClientError::Trust { .. }
            | ClientError::Unreachable { .. }
            | ClientError::Problem(_)
            | ClientError::NotSent
            | ClientError::Answer { .. } => !self.has_several() && error.connection_refused(),
        }
    }

    async fn upload_once(
        &self,
        source: &UploadSource,
        sent: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<bool, FileUploadError> {
        if self.has_upload(source.sha256()).await? {
            return Ok(false);
        }
        match self.put_upload(source, sent).await {
            Ok(_) => Ok(true),
            Err(FileUploadError::Call(_)) if source.changed() => Err(source.changed_error()),
            Err(FileUploadError::Call(ClientError::Problem(problem)))
                if problem.reason == Some(ProblemReason::DigestMismatch) =>
            {
                Err(source.changed_error())
            }
            Err(FileUploadError::Call(ClientError::Problem(problem)))
                if problem.code == ErrorCode::HR0404 =>
            {
                let address = self.base.clone();
                Err(FileUploadError::Unsupported { address })
            }
            Err(error) => Err(error),
        }
    }

    async fn put_upload(
        &self,
        source: &UploadSource,
        sent: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<UploadedFile, FileUploadError> {
        let size = source.size().get();
        let file = tokio::fs::File::from_std(source.reader()?);
        let mut position = 0;
        // A file that grows is sent up to its former size, and refused for its digest.
        let pieces = ReaderStream::with_capacity(file.take(size), PIECE).inspect(move |piece| {
            position += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            sent(position);
        });
        let longest = BASE_TIMEOUT + Duration::from_secs(size / MIN_RATE);
        let path = format!("/v1/uploads/{}", source.sha256());
        let call = self
            .stream(Method::PUT, &path)
            .within(longest)
            .with(|request| {
                request
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .header(CONTENT_LENGTH, size)
                    .body(Body::wrap_stream(pieces))
            });
        Ok(self.fetch(call).await?)
    }

    /// Streams an uploaded file, and marks it as used.
    pub async fn uploaded_file(&self, sha256: Sha256) -> Result<LogStream, ClientError> {
        let call = self.stream(Method::GET, &format!("/v1/uploads/{sha256}"));
        let (url, response) = self.send(call).await?;
        Ok(LogStream::new(url, response, 0))
    }
}
