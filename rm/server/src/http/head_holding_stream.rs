//! The stream of a connection. On request it holds back the head of one response, until the first
//! bytes of the protocol that follows: both are then one write, and one packet for the peer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A request of a handler to hold back the head of its response. Only for a response that changes
/// the protocol, and a handler that writes first: otherwise the caller waits for the head.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadHold(Arc<AtomicBool>);

impl HeadHold {
    /// Holds back the bytes of the next write.
    pub(crate) fn hold_next_write(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        // Almost always false: then a plain read is enough.
        self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel)
    }
}

/// A stream that may hold back one write.
#[derive(Debug)]
pub(super) struct HeadHoldingStream<S> {
    stream: S,
    hold: HeadHold,
    /// Bytes of the write that is held back, or their rest. Empty otherwise.
    held: Vec<u8>,
}

impl<S> HeadHoldingStream<S> {
    /// Wraps a stream, for which `hold` is the request.
    pub(super) fn new(stream: S, hold: HeadHold) -> Self {
        HeadHoldingStream {
            stream,
            hold,
            held: Vec::new(),
        }
    }
}

impl<S: AsyncWrite + Unpin> HeadHoldingStream<S> {
    /// Writes the held bytes, and `next` in the same call. Returns how many bytes of `next` are
    /// written.
    fn poll_release(&mut self, cx: &mut Context<'_>, next: &[u8]) -> Poll<io::Result<usize>> {
        while !self.held.is_empty() {
            let both = [IoSlice::new(&self.held), IoSlice::new(next)];
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &both))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if let Some(of_next) = written.checked_sub(self.held.len()) {
                self.held = Vec::new();
                if of_next > 0 {
                    return Poll::Ready(Ok(of_next));
                }
            } else {
                self.held.drain(..written);
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadHoldingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadHoldingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.hold.take() {
            self.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        if !self.held.is_empty() {
            let written = ready!(self.poll_release(cx, bytes))?;
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// Bytes that are held back stay, because a flush follows each head.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx, &[]))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.hold.take() {
            let before = self.held.len();
            pieces
                .iter()
                .for_each(|piece| self.held.extend_from_slice(piece));
            return Poll::Ready(Ok(self.held.len() - before));
        }
        if !self.held.is_empty() {
            let first = pieces.iter().find(|piece| !piece.is_empty());
            let written = ready!(self.poll_release(cx, first.map_or(&[], |piece| piece)))?;
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Duration, timeout};

    use super::*;

    /// A stream with its request, and its peer.
    async fn pair() -> (HeadHoldingStream<TcpStream>, HeadHold, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address");
        let peer = TcpStream::connect(address).await.expect("connects");
        let (stream, _) = listener.accept().await.expect("accepts");
        let hold = HeadHold::default();
        (HeadHoldingStream::new(stream, hold.clone()), hold, peer)
    }

    async fn send(stream: &mut HeadHoldingStream<TcpStream>, text: &str) {
        stream.write_all(text.as_bytes()).await.expect("writes");
        stream.flush().await.expect("flushes");
    }

    #[tokio::test]
    async fn a_held_head_and_the_next_bytes_arrive_together() {
        let (mut stream, hold, mut peer) = pair().await;
        send(&mut stream, "before ").await;
        let mut received = [0; 64];
        let length = peer.read(&mut received).await.expect("reads");
        assert_eq!(&received[..length], b"before ", "nothing is held back");

        hold.hold_next_write();
        send(&mut stream, "head ").await;
        let early = timeout(Duration::from_millis(20), peer.read(&mut received)).await;
        assert!(early.is_err(), "the head is held back");
        send(&mut stream, "line").await;
        let length = peer.read(&mut received).await.expect("reads");
        assert_eq!(&received[..length], b"head line");
        send(&mut stream, " after").await;
        let length = peer.read(&mut received).await.expect("reads");
        assert_eq!(&received[..length], b" after");
    }

    #[tokio::test]
    async fn pieces_are_held_too_and_the_end_releases_them() {
        let (mut stream, hold, mut peer) = pair().await;
        hold.hold_next_write();
        let pieces = [IoSlice::new(b"two "), IoSlice::new(b"pieces")];
        let written = stream.write_vectored(&pieces).await.expect("writes");
        assert_eq!(written, 10);
        stream.shutdown().await.expect("ends");
        let mut received = String::new();
        peer.read_to_string(&mut received).await.expect("reads");
        assert_eq!(received, "two pieces");
    }

    #[tokio::test]
    async fn a_short_write_keeps_the_order() {
        let (near, mut peer) = tokio::io::duplex(3);
        let hold = HeadHold::default();
        let mut stream = HeadHoldingStream::new(near, hold.clone());
        hold.hold_next_write();
        let writing = tokio::spawn(async move {
            stream.write_all(b"a head").await.expect("writes");
            stream.write_all(b" and a line").await.expect("writes");
        });
        let mut received = String::new();
        peer.read_to_string(&mut received).await.expect("reads");
        writing.await.expect("ends");
        assert_eq!(received, "a head and a line");
    }
}
