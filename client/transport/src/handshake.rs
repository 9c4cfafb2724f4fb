//! The TLS handshake of an accepted connection, before its first request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use headroom_identity::{Certificate, CertificateRole};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// A connection, encrypted or not.
pub type AcceptedStream = Either<TcpStream, TlsStream<TcpStream>>;

/// The peer of an accepted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The listener has no certificate, so the peer was not authenticated.
    Unasked,
    /// The peer presented no certificate.
    Nobody,
    /// The peer presented a certificate of this role.
    Known(CertificateRole),
}

/// Timeout of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// First byte of a TLS handshake record. No HTTP request begins with it.
const RECORD: u8 = 0x16;
/// The response to a peer that does not encrypt.
const PLAIN: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\ncontent-length: ";
const WHY: &str = r#"{"type":"https://headroom.dev/errors/HR0400","title":"bad request","status":400,"code":"HR0400","detail":"this port requires TLS: write https:// instead of http://","retryable":false}"#;

/// Authenticates the peer of a connection. A peer that does not encrypt at a TLS listener gets an
/// HTTP 400 response and is disconnected.
///
/// # Errors
/// The handshake failed, took too long, or the certificate is of another authority or names no
/// role.
pub async fn accept_handshake(
    stream: TcpStream,
    server: Option<Arc<ServerConfig>>,
) -> io::Result<(AcceptedStream, PeerIdentity)> {
    let Some(server) = server else {
        return Ok((Either::Left(stream), PeerIdentity::Unasked));
    };
    match timeout(HANDSHAKE, shake(stream, server)).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the handshake timed out",
        )),
    }
}

async fn shake(
    mut stream: TcpStream,
    server: Arc<ServerConfig>,
) -> io::Result<(AcceptedStream, PeerIdentity)> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first != [RECORD] {
        let answer = format!("{PLAIN}{}\r\n\r\n{WHY}", WHY.len());
        stream.write_all(answer.as_bytes()).await?;
        let _ = stream.shutdown().await;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not encrypted"));
    }
    let stream = TlsAcceptor::from(server).accept(stream).await?;
    let shown = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first);
    let caller = match shown.map(|der| Certificate::from_der(der)) {
        None => PeerIdentity::Nobody,
        Some(Ok(Certificate {
            role: Some(role), ..
        })) => PeerIdentity::Known(role),
        Some(Ok(_)) => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its certificate contains no role",
            ));
        }
        Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    Ok((Either::Right(stream), caller))
}
