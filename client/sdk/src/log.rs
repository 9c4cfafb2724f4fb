//! A container log as bytes with positions: its tail, and all bytes that follow.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

use crate::{ClientError, ClientResult};

type LogByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;

/// Bytes of a log as they arrive.
pub struct LogStream {
    url: String,
    chunks: LogByteStream,
    position: u64,
}

headroom_types::debug_fields!(LogStream { url, position });

impl LogStream {
    /// The stream of a response to a request from position `from`. Bytes that are no longer stored
    /// are skipped.
    pub(crate) fn new(url: String, response: reqwest::Response, from: u64) -> Self {
        let position =
            number(&response, "headroom-log-start").map_or(from, |start| start.max(from));
        LogStream {
            url,
            chunks: Box::pin(response.bytes_stream()),
            position,
        }
    }

    /// Position after the last byte that was returned.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next bytes. `None` after the container has ended and all bytes were returned.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<ClientResult<Bytes>> {
        match self.chunks.next().await? {
            Ok(chunk) => {
                self.position += chunk.len() as u64;
                Some(Ok(chunk))
            }
            Err(source) => Some(Err(ClientError::Unreachable {
                url: self.url.clone(),
                source,
            })),
        }
    }
}

/// The value of a numeric response header.
pub(crate) fn number(response: &reqwest::Response, name: &str) -> Option<u64> {
    response.headers().get(name)?.to_str().ok()?.parse().ok()
}
