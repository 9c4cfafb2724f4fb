//! A minimal HTTP/1.1 client that allows 10,000 agents in one process: connections, calls, and
//! streams of lines.
//!
//! The owner is the caller that connected. It supports only the forms of response that Headroom's
//! daemons send, and it never reconnects by itself.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Timeout of a call.
const CALL: Duration = Duration::from_secs(10);
/// Longest silence of a stream; the server sends a keepalive every 5 s.
const SILENCE: Duration = Duration::from_secs(20);
/// Buffer space for one read. Bytes.
const PIECE: usize = 2048;
/// An empty buffer with a larger capacity is freed. Bytes.
const KEEP: usize = 16 << 10;
/// Largest head of a response. Bytes.
const HEAD: usize = 8 << 10;

/// An idle connection.
#[derive(Debug)]
pub struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    length: usize,
    status: u16,
    body: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Bytes(usize),
    Chunks,
}

impl HttpConnection {
    /// Connects from one of the addresses of this machine, or from the usual one.
    pub async fn connect(to: SocketAddr, from: Option<IpAddr>) -> Result<Self> {
        let socket = TcpSocket::new_v4().context("a socket")?;
        if let Some(from) = from {
            socket
                .bind(SocketAddr::new(from, 0))
                .with_context(|| format!("a port of {from}"))?;
        }
        let stream = timeout(CALL, socket.connect(to))
            .await
            .context("connecting timed out")??;
        stream.set_nodelay(true)?;
        Ok(HttpConnection {
            stream,
            buffer: Vec::new(),
            request: Vec::new(),
        })
    }

    /// `POST path` with a JSON body.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> Result<HttpResponse> {
        self.call("POST", path, body).await
    }

    /// `GET path`.
    pub async fn get(&mut self, path: &str) -> Result<HttpResponse> {
        self.call("GET", path, &[]).await
    }

    async fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<HttpResponse> {
        timeout(CALL, async {
            self.send(method, path, "", body).await?;
            let head = self.head().await?;
            let Size::Bytes(length) = head.body else {
                bail!("{path}: an unbounded response to a call")
            };
            while self.buffer.len() < head.length + length {
                self.read().await?;
            }
            let body = self
                .buffer
                .get(head.length..head.length + length)
                .unwrap_or_default()
                .to_vec();
            self.buffer.drain(..head.length + length);
            Ok(HttpResponse {
                status: head.status,
                body,
            })
        })
        .await
        .with_context(|| format!("{path}: no answer within {} s", CALL.as_secs()))?
    }

    /// `GET path` as a stream of lines. `Err` with the response if the request was refused.
    pub async fn lines(mut self, path: &str) -> Result<Result<Lines, HttpResponse>> {
        let head = timeout(CALL, async {
            self.send("GET", path, "", &[]).await?;
            self.head().await
        });
        let head = head
            .await
            .with_context(|| format!("{path}: no answer within {} s", CALL.as_secs()))??;
        match head.body {
            Size::Chunks if head.status == 200 => {
                self.buffer.drain(..head.length);
                Ok(Ok(Lines {
                    stream: self.stream,
                    raw: self.buffer,
                    text: Vec::new(),
                    taken: 0,
                }))
            }
            Size::Chunks | Size::Bytes(_) => Ok(Err(HttpResponse {
                status: head.status,
                body: Vec::new(),
            })),
        }
    }

    /// `POST path` with a change of the protocol. `Err` with the response if there was none.
    pub async fn channel(
        mut self,
        path: &str,
        protocol: &str,
        body: &[u8],
    ) -> Result<Result<LineChannel, HttpResponse>> {
        let opened = timeout(CALL, async {
            let upgrade = format!("connection: upgrade\r\nupgrade: {protocol}\r\n");
            self.send("POST", path, &upgrade, body).await?;
            self.head().await
        });
        let head = opened
            .await
            .with_context(|| format!("{path}: no answer within {} s", CALL.as_secs()))??;
        if head.status != 101 {
            return Ok(Err(HttpResponse {
                status: head.status,
                body: Vec::new(),
            }));
        }
        self.buffer.drain(..head.length);
        Ok(Ok(LineChannel {
            stream: self.stream,
            buffer: self.buffer,
        }))
    }

    /// Sends a request with these additional lines of its head.
    async fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<()> {
        self.request.clear();
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}"
        )?;
        if method == "POST" {
            write!(
                self.request,
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            )?;
        }
        self.request.extend_from_slice(b"\r\n");
        self.request.extend_from_slice(body);
        self.stream
            .write_all(&self.request)
            .await
            .context("sending")?;
        if self.request.capacity() > KEEP {
            self.request = Vec::new();
        }
        Ok(())
    }

    async fn head(&mut self) -> Result<Head> {
        loop {
            if let Some(head) = parse_head(&self.buffer)? {
                return Ok(head);
            }
            ensure!(
                self.buffer.len() < HEAD,
                "the head of a response has no end"
            );
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<()> {
        read(&mut self.stream, &mut self.buffer).await
    }
}

/// Reads once. It is cancel-safe.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    if buffer.is_empty() && buffer.capacity() > KEEP {
        *buffer = Vec::new();
    }
    buffer.reserve(PIECE);
    let n = stream.read_buf(buffer).await.context("receiving")?;
    ensure!(n > 0, "the peer closed the connection");
    Ok(())
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes.get(..end).unwrap_or_default())
        .context("the head of a response")?;
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|l| l.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let status = status.with_context(|| format!("{text:?} is not the head of a response"))?;
    let mut body = Size::Bytes(0);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            body = Size::Bytes(value.trim().parse().context("content-length")?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            body = Size::Chunks;
        }
    }
    Ok(Some(Head {
        length: end + 4,
        status,
        body,
    }))
}

/// A connection on which both sides send lines.
#[derive(Debug)]
pub struct LineChannel {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl LineChannel {
    /// The next line, without its terminator. An error if the peer disconnected or is silent for too
    /// long. Cancel-safe.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Ok(line);
            }
            timeout(SILENCE, read(&mut self.stream, &mut self.buffer))
                .await
                .context("no data for too long")??;
        }
    }

    /// Sends a line, which has its terminator.
    pub async fn send(&mut self, line: &[u8]) -> Result<()> {
        timeout(CALL, self.stream.write_all(line))
            .await
            .context("sending timed out")?
            .context("sending")
    }
}

/// A stream of lines in the body of a response.
#[derive(Debug)]
pub struct Lines {
    stream: TcpStream,
    raw: Vec<u8>,
    text: Vec<u8>,
    /// Bytes of the text that were already returned.
    taken: usize,
}

impl Lines {
    /// The next non-empty line, without its terminator. An error if the peer disconnected or the
    /// stream is silent for too long. Cancel-safe.
    pub async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            while let Some(rest) = self.text.get(self.taken..).filter(|rest| !rest.is_empty()) {
                let Some(end) = rest.iter().position(|b| *b == b'\n') else {
                    break;
                };
                let line = rest.get(..end).unwrap_or_default().to_vec();
                self.taken += end + 1;
                if !line.is_empty() {
                    return Ok(line);
                }
            }
            self.text.drain(..self.taken);
            self.taken = 0;
            if self.text.is_empty() && self.text.capacity() > KEEP {
                self.text = Vec::new();
            }
            if !self.decode()? {
                timeout(SILENCE, read(&mut self.stream, &mut self.raw))
                    .await
                    .context("no data for too long")??;
            }
        }
    }

    /// Moves one complete chunk from the raw bytes to the text. False if there is none.
    fn decode(&mut self) -> Result<bool> {
        let Some(end) = self.raw.windows(2).position(|w| w == b"\r\n") else {
            return Ok(false);
        };
        let size = std::str::from_utf8(self.raw.get(..end).unwrap_or_default()).ok();
        let size = size
            .and_then(|s| usize::from_str_radix(s, 16).ok())
            .context("a chunk without a size")?;
        ensure!(size > 0, "the peer ended the response");
        let (from, to) = (end + 2, end + 2 + size);
        if self.raw.len() < to + 2 {
            return Ok(false);
        }
        self.text
            .extend_from_slice(self.raw.get(from..to).unwrap_or_default());
        self.raw.drain(..to + 2);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_head_is_not_parsed() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx: y\r\n\r\nrest";
        assert_eq!(parse_head(&head[..20]).expect("fine"), None);
        let found = parse_head(head).expect("fine").expect("whole");
        assert_eq!(
            (found.status, found.body, &head[found.length..]),
            (200, Size::Bytes(12), &b"rest"[..])
        );
        let endless = parse_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .expect("fine")
            .expect("whole");
        assert_eq!(endless.body, Size::Chunks);
        assert!(parse_head(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[tokio::test]
    async fn lines_are_read_from_chunks_of_any_size() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let to = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut asked = [0; 512];
            let _ = stream.read(&mut asked).await.expect("a request");
            let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{}\n{\r\n3\r\n}\n\n\r\n0\r\n\r\n";
            for byte in text.as_bytes() {
                stream.write_all(&[*byte]).await.expect("writes");
            }
        });
        let wire = HttpConnection::connect(to, None).await.expect("connects");
        let mut lines = wire
            .lines("/x")
            .await
            .expect("a response")
            .expect("endless");
        assert_eq!(
            (
                lines.next().await.expect("one"),
                lines.next().await.expect("two")
            ),
            (b"{}".to_vec(), b"{}".to_vec())
        );
        assert!(
            lines.next().await.is_err(),
            "the end of the stream is not a line"
        );
        serving.await.expect("ends");
    }
}
