//! Newline-delimited JSON as it arrives.

use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes as Chunk;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use serde::de::DeserializeOwned;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use crate::error::AnswerDefect;
use crate::{ClientError, ClientResult};

/// Longest accepted line, in bytes.
const MAX_LINE: usize = 8 << 20;

type ResponseChunks = Pin<Box<dyn Stream<Item = ClientResult<Chunk>> + Send>>;

/// A stream of JSON objects of one type, one per line.
pub struct JsonLineStream<T> {
    url: String,
    chunks: ResponseChunks,
    buffer: Vec<u8>,
    silence: Duration,
    kind: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for JsonLineStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> JsonLineStream<T> {
    pub(crate) fn new(url: String, response: reqwest::Response, silence: Duration) -> Self {
        let of = url.clone();
        let lost = move |source| ClientError::Unreachable {
            url: of.clone(),
            source,
        };
        JsonLineStream::of_chunks(url, response.bytes_stream().map_err(lost), silence)
    }

    /// The lines of a connection whose protocol has changed.
    pub(crate) fn of_connection(
        url: String,
        connection: impl AsyncRead + Send + 'static,
        silence: Duration,
    ) -> Self {
        let of = url.clone();
        let lost = move |error: std::io::Error| ClientError::Answer {
            url: of.clone(),
            defect: AnswerDefect::Malformed(format!("the connection is lost: {error}")),
        };
        JsonLineStream::of_chunks(url, ReaderStream::new(connection).map_err(lost), silence)
    }

    fn of_chunks(
        url: String,
        chunks: impl Stream<Item = ClientResult<Chunk>> + Send + 'static,
        silence: Duration,
    ) -> Self {
        JsonLineStream {
            url,
            chunks: Box::pin(chunks),
            buffer: Vec::new(),
            silence,
            kind: PhantomData,
        }
    }

    /// Returns the next line. `None` if the server ended the stream; an error if the server was
    /// silent for too long. Cancel-safe.
    pub async fn next(&mut self) -> Option<ClientResult<T>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                if line.len() == 1 {
                    continue;
                }
                return Some(
                    serde_json::from_slice(&line)
                        .map_err(|e| self.odd(AnswerDefect::Malformed(e.to_string()))),
                );
            }
            if self.buffer.len() > MAX_LINE {
                return Some(Err(self.odd(AnswerDefect::Malformed(
                    "a line longer than 8 MiB".to_owned(),
                ))));
            }
            match tokio::time::timeout(self.silence, self.chunks.next()).await {
                Ok(Some(Ok(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Some(Err(error))) => return Some(Err(error)),
                Ok(None) => return None,
                Err(_) => return Some(Err(self.odd(AnswerDefect::Silent(self.silence)))),
            }
        }
    }

    fn odd(&self, defect: AnswerDefect) -> ClientError {
        ClientError::Answer {
            url: self.url.clone(),
            defect,
        }
    }
}
