//! A log of a container as bytes with positions: the end of it, and all that is still to come.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

use crate::ClientError;

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;

/// Bytes of a log as they arrive.
pub struct LogStream {
    url: String,
    chunks: Chunks,
    position: u64,
}

impl std::fmt::Debug for LogStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStream").field("url", &self.url).field("position", &self.position).finish_non_exhaustive()
    }
}

impl LogStream {
    /// From the answer to a request for what comes after `from`. What is not kept any more is left out.
    pub(crate) fn new(url: String, response: reqwest::Response, from: u64) -> Self {
        let position = number(&response, "headroom-log-start").map_or(from, |start| start.max(from));
        LogStream { url, chunks: Box::pin(response.bytes_stream()), position }
    }

    /// Position behind the last byte that was given.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next bytes. `None` when the container has ended and all of it was given. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        match self.chunks.next().await? {
            Ok(chunk) => {
                self.position += chunk.len() as u64;
                Some(Ok(chunk))
            }
            Err(source) => Some(Err(ClientError::Unreachable { url: self.url.clone(), source })),
        }
    }
}

/// A number in a header of the answer.
pub(crate) fn number(response: &reqwest::Response, name: &str) -> Option<u64> {
    response.headers().get(name)?.to_str().ok()?.parse().ok()
}
