//! Socket activation: listeners that the service manager holds, so that callers wait during a
//! restart instead of being refused.
//!
//! `headroom-resourcemanager.socket` names them. Without that unit the daemon opens its own
//! listeners. The permissions of a caller depend on the listener, as without activation; nothing is
//! decided here.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

/// Listeners that the service manager passed.
#[derive(Debug, Default)]
pub(crate) struct ActivatedListeners {
    /// TCP listener.
    pub(crate) port: Option<TcpListener>,
    /// Unix socket listener.
    pub(crate) socket: Option<UnixListener>,
}

/// The passed descriptors cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    /// A descriptor is neither a TCP nor a Unix listener.
    #[error(
        "descriptor {0} from the service manager (LISTEN_FDS) is neither a TCP nor a Unix listener"
    )]
    Strange(usize),
    /// More than one listener of a kind.
    #[error(
        "the service manager passed more than one {0} (LISTEN_FDS): name one in headroom-resourcemanager.socket"
    )]
    TooMany(&'static str),
    /// The configuration names another address or path.
    #[error(
        "the service manager listens on {given}, but the configuration has {key} = \"{configured}\": give both the same value; \
         `systemctl edit headroom-resourcemanager.socket` changes the former (an empty ListenStream= first clears the list)"
    )]
    Elsewhere {
        /// Key of the configuration.
        key: &'static str,
        /// Address or path of the passed listener.
        given: String,
        /// Value of the key.
        configured: String,
    },
    /// Error of the kernel.
    #[error("the descriptors from the service manager (LISTEN_FDS) cannot be used as listeners")]
    Io(#[from] io::Error),
}

/// Takes the passed listeners, if they match the configuration. A second call returns none.
pub(crate) fn take(
    listen: SocketAddr,
    socket: Option<&Path>,
) -> Result<ActivatedListeners, ActivationError> {
    let given = all(ListenFd::from_env())?;
    if let Some(port) = &given.port {
        at_the_same_port(port.local_addr()?, listen)?;
    }
    if let Some(held) = &given.socket {
        at_the_same_path(held.local_addr()?.as_pathname().map(Path::to_owned), socket)?;
    }
    Ok(given)
}

fn all(mut handed: ListenFd) -> Result<ActivatedListeners, ActivationError> {
    let mut given = ActivatedListeners::default();
    for number in 0..handed.len() {
        if let Ok(Some(socket)) = handed.take_unix_listener(number) {
            socket.set_nonblocking(true)?;
            if given
                .socket
                .replace(UnixListener::from_std(socket)?)
                .is_some()
            {
                return Err(ActivationError::TooMany("socket"));
            }
        } else if let Ok(Some(port)) = handed.take_tcp_listener(number) {
            port.set_nonblocking(true)?;
            if given.port.replace(TcpListener::from_std(port)?).is_some() {
                return Err(ActivationError::TooMany("port"));
            }
        } else {
            return Err(ActivationError::Strange(number));
        }
    }
    Ok(given)
}

/// Compares two addresses. The unspecified addresses of IPv4 and IPv6 count as equal.
fn at_the_same_port(given: SocketAddr, configured: SocketAddr) -> Result<(), ActivationError> {
    let everywhere = given.ip().is_unspecified() && configured.ip().is_unspecified();
    if given.port() == configured.port() && (everywhere || given.ip() == configured.ip()) {
        return Ok(());
    }
    Err(ActivationError::Elsewhere {
        key: "listen",
        given: given.to_string(),
        configured: configured.to_string(),
    })
}

/// Compares two socket paths. A configuration without a path accepts any socket.
fn at_the_same_path(
    given: Option<PathBuf>,
    configured: Option<&Path>,
) -> Result<(), ActivationError> {
    match configured {
        Some(configured) if given.as_deref() != Some(configured) => {
            let given = given.map_or_else(
                || "a socket without a name".to_owned(),
                |path| path.display().to_string(),
            );
            Err(ActivationError::Elsewhere {
                key: "socket",
                given,
                configured: configured.display().to_string(),
            })
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_passed_listener_must_match_the_configuration() {
        assert!(at_the_same_port(at("127.0.0.1:7070"), at("127.0.0.1:7070")).is_ok());
        assert!(
            at_the_same_port(at("[::]:7070"), at("0.0.0.0:7070")).is_ok(),
            "both are unspecified addresses"
        );
        for (given, configured) in [
            ("127.0.0.1:7070", "0.0.0.0:7070"),
            ("[::]:7070", "127.0.0.1:7070"),
            ("127.0.0.1:7070", "127.0.0.1:7071"),
        ] {
            let said = at_the_same_port(at(given), at(configured))
                .expect_err("the addresses differ")
                .to_string();
            assert!(
                said.contains(given) && said.contains(&format!("listen = \"{configured}\"")),
                "{said}"
            );
        }
    }

    #[test]
    fn a_passed_socket_needs_no_configured_path() {
        let path = Path::new("/run/headroom/resourcemanager.sock");
        assert!(at_the_same_path(Some(path.to_owned()), None).is_ok());
        assert!(at_the_same_path(Some(path.to_owned()), Some(path)).is_ok());
        let said = at_the_same_path(None, Some(path))
            .expect_err("the addresses differ")
            .to_string();
        assert!(
            said.contains("without a name") && said.contains("socket = \"/run/headroom"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_process_without_passed_descriptors_has_no_listeners() {
        let given = all(ListenFd::empty()).expect("no descriptor is invalid");
        assert!(given.port.is_none() && given.socket.is_none());
    }
}
