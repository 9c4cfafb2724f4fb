//! A connection between two programs of one application. The listener creates its own certificate,
//! and its hash is part of its address: `tls://10.0.0.7:4711#<64 hexadecimal digits>`.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use headroom_identity::files::{self, FileReaders, OverwritePolicy};
use headroom_identity::token::Sha256Digest;
use headroom_identity::{certificates, tls};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// The subject name in such a certificate. Peers do not check it.
const NAME: &str = "headroom-master";

/// The certificate of a listener.
#[derive(Clone, Debug)]
pub struct ListenerIdentity {
    /// The TLS configuration of the listener.
    pub server: Arc<ServerConfig>,
    /// The hash of the certificate.
    pub pin: CertificatePin,
}

/// The hash of a listener's certificate, by which peers authenticate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificatePin(Sha256Digest);

impl fmt::Display for CertificatePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CertificatePin {
    type Err = headroom_identity::ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(CertificatePin)
    }
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

impl ListenerIdentity {
    /// Reads the certificate that an earlier incarnation wrote to `path`, or creates one there.
    /// Only the owner can read the file.
    ///
    /// # Errors
    /// The file can be neither read nor created, or other users can read it.
    pub fn at(path: &Path) -> io::Result<Self> {
        if !path.exists() {
            let key = KeyPair::generate().map_err(other)?;
            let params = CertificateParams::new(vec![NAME.to_owned()]).map_err(other)?;
            let cert = params.self_signed(&key).map_err(other)?;
            let text = format!("{}{}", cert.pem(), key.serialize_pem());
            files::write(path, &text, FileReaders::Owner, OverwritePolicy::Replace)
                .map_err(other)?;
        }
        let text = files::read_secret(path).map_err(other)?;
        let cert = certificates(&text).map_err(other)?;
        let pin = cert
            .first()
            .map(|der| CertificatePin(Sha256Digest::of(der)))
            .ok_or_else(|| other("no certificate"))?;
        let server = Arc::new(tls::plain_server(&text, &text).map_err(other)?);
        Ok(ListenerIdentity { server, pin })
    }
}

/// Address of a master: `tcp://HOST:PORT`, or `tls://HOST:PORT#PIN` if other hosts can connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterAddress {
    /// `HOST:PORT`.
    pub at: String,
    /// The hash of the certificate, if the connection is encrypted.
    pub pin: Option<CertificatePin>,
}

impl fmt::Display for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pin {
            Some(pin) => write!(f, "tls://{}#{pin}", self.at),
            None => write!(f, "tcp://{}", self.at),
        }
    }
}

/// The text is not a valid address of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a master's address is written tcp://HOST:PORT, or tls://HOST:PORT# and 64 hexadecimal digits"
)]
pub struct ParseAddressError;

impl FromStr for MasterAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let (place, pin) = match (text.strip_prefix("tcp://"), text.strip_prefix("tls://")) {
            (Some(place), _) => (place.trim_end_matches('/'), None),
            (None, Some(rest)) => {
                let (place, pin) = rest.split_once('#').ok_or(ParseAddressError)?;
                (
                    place.trim_end_matches('/'),
                    Some(pin.parse().map_err(|_| ParseAddressError)?),
                )
            }
            (None, None) => return Err(ParseAddressError),
        };
        let (host, port) = place.rsplit_once(':').ok_or(ParseAddressError)?;
        if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
            return Err(ParseAddressError);
        }
        Ok(MasterAddress {
            at: place.to_owned(),
            pin,
        })
    }
}

/// The client side of a connection.
pub type MasterConnection = Either<TcpStream, TlsStream<TcpStream>>;

/// The reading half of a connection.
pub type ConnectionReader = Box<dyn AsyncRead + Send + Unpin>;
/// The writing half of a connection.
pub type ConnectionWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// Splits a connection into a reading and a writing half. A plain connection needs no lock for
/// that.
pub fn halves<T>(line: Either<TcpStream, T>) -> (ConnectionReader, ConnectionWriter)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match line {
        Either::Left(plain) => {
            let (read, write) = plain.into_split();
            (Box::new(read), Box::new(write))
        }
        Either::Right(encrypted) => {
            let (read, write) = tokio::io::split(encrypted);
            (Box::new(read), Box::new(write))
        }
    }
}

/// Connects to `address`. With a `pin`, the connection is encrypted and the peer must have that
/// certificate.
///
/// # Errors
/// The connection fails, or the peer has another certificate.
pub async fn connect(address: &str, pin: Option<CertificatePin>) -> io::Result<MasterConnection> {
    let stream = TcpStream::connect(address).await?;
    // Messages are short and must not wait for more data. Without this option they are only slower.
    let _ = stream.set_nodelay(true);
    let Some(CertificatePin(hash)) = pin else {
        return Ok(Either::Left(stream));
    };
    let config = tls::pinned(Some(hash)).map_err(other)?;
    let name = ServerName::try_from(NAME).map_err(other)?;
    Ok(Either::Right(
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_as_text() {
        let pin = "ab".repeat(32);
        for text in [
            "tcp://127.0.0.1:4711".to_owned(),
            "tcp://[::1]:99".to_owned(),
            format!("tls://w1.example:4711#{pin}"),
        ] {
            let address: MasterAddress = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        let plain: MasterAddress = "tcp://[::1]:99/".parse().expect("an address");
        assert_eq!((plain.at.as_str(), plain.pin), ("[::1]:99", None));
        let bad = [
            "",
            "http://h:1",
            "tcp://h",
            "tcp://:1",
            "tcp://h:99999",
            "tcp://a/b:1",
            "tls://h:1",
            "tls://h:1#12",
        ];
        for bad in bad {
            assert_eq!(
                bad.parse::<MasterAddress>(),
                Err(ParseAddressError),
                "{bad}"
            );
        }
    }
}
