//! A line between two programs of one application: the listening one makes a certificate for itself, and its hash travels with its
//! address, `tls://10.0.0.7:4711#<64 hexadecimal digits>`.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use headroom_identity::files::{self, Over, Readers};
use headroom_identity::token::Hash;
use headroom_identity::{certificates, tls};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// The name in such a certificate; nobody looks at it.
const NAME: &str = "headroom-master";

/// What the listening end has.
#[derive(Clone, Debug)]
pub struct Lock {
    /// What it shows.
    pub server: Arc<ServerConfig>,
    /// How it is known.
    pub pin: Pin,
}

/// How a listener is known: the hash of its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(Hash);

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pin {
    type Err = headroom_identity::ParseTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Pin)
    }
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

impl Lock {
    /// The one that an earlier life left at `path`, or a new one, which is left there. Only its owner can read it.
    ///
    /// # Errors
    /// It can be neither read nor made, or others can read it.
    pub fn at(path: &Path) -> io::Result<Self> {
        if !path.exists() {
            let key = KeyPair::generate().map_err(other)?;
            let params = CertificateParams::new(vec![NAME.to_owned()]).map_err(other)?;
            let cert = params.self_signed(&key).map_err(other)?;
            let text = format!("{}{}", cert.pem(), key.serialize_pem());
            files::write(path, &text, Readers::Owner, Over::Replace).map_err(other)?;
        }
        let text = files::read_secret(path).map_err(other)?;
        let cert = certificates(&text).map_err(other)?;
        let pin = cert.first().map(|der| Pin(Hash::of(der))).ok_or_else(|| other("no certificate"))?;
        let server = Arc::new(tls::plain_server(&text, &text).map_err(other)?);
        Ok(Lock { server, pin })
    }
}

/// Where a master listens: `tcp://HOST:PORT`, or `tls://HOST:PORT#PIN` where other hosts reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `HOST:PORT`.
    pub at: String,
    /// How it is known, where it encrypts.
    pub pin: Option<Pin>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pin {
            Some(pin) => write!(f, "tls://{}#{pin}", self.at),
            None => write!(f, "tcp://{}", self.at),
        }
    }
}

/// Why a text is no address of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a master's address is written tcp://HOST:PORT, or tls://HOST:PORT# and 64 hexadecimal digits")]
pub struct ParseAddressError;

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let (place, pin) = match (text.strip_prefix("tcp://"), text.strip_prefix("tls://")) {
            (Some(place), _) => (place.trim_end_matches('/'), None),
            (None, Some(rest)) => {
                let (place, pin) = rest.split_once('#').ok_or(ParseAddressError)?;
                (place.trim_end_matches('/'), Some(pin.parse().map_err(|_| ParseAddressError)?))
            }
            (None, None) => return Err(ParseAddressError),
        };
        let (host, port) = place.rsplit_once(':').ok_or(ParseAddressError)?;
        if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
            return Err(ParseAddressError);
        }
        Ok(Address { at: place.to_owned(), pin })
    }
}

/// The calling end of a line.
pub type Line = Either<TcpStream, TlsStream<TcpStream>>;

/// What comes over one of them.
pub type Reading = Box<dyn AsyncRead + Send + Unpin>;
/// What goes over one of them.
pub type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// Reading and writing apart; a plain connection needs no lock for that.
pub fn halves<T>(line: Either<TcpStream, T>) -> (Reading, Writing)
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

/// Calls `address`, which must have the certificate of `pin`; not encrypted without one.
///
/// # Errors
/// Nobody answers, or somebody else.
pub async fn connect(address: &str, pin: Option<Pin>) -> io::Result<Line> {
    let stream = TcpStream::connect(address).await?;
    // Lines are short and must not wait for more; without it they are only slower.
    let _ = stream.set_nodelay(true);
    let Some(Pin(hash)) = pin else { return Ok(Either::Left(stream)) };
    let config = tls::pinned(Some(hash)).map_err(other)?;
    let name = ServerName::try_from(NAME).map_err(other)?;
    Ok(Either::Right(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let pin = "ab".repeat(32);
        for text in ["tcp://127.0.0.1:4711".to_owned(), "tcp://[::1]:99".to_owned(), format!("tls://w1.example:4711#{pin}")] {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
        let plain: Address = "tcp://[::1]:99/".parse().expect("an address");
        assert_eq!((plain.at.as_str(), plain.pin), ("[::1]:99", None));
        let bad = ["", "http://h:1", "tcp://h", "tcp://:1", "tcp://h:99999", "tcp://a/b:1", "tls://h:1", "tls://h:1#12"];
        for bad in bad {
            assert_eq!(bad.parse::<Address>(), Err(ParseAddressError), "{bad}");
        }
    }
}
