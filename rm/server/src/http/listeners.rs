//! Listeners, and the authentication of their connections: TCP, or a Unix socket whose peer the
//! kernel identifies.

use std::ffi::CString;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headroom_config::AnonymousAccess;
use headroom_identity::{AccessRights, CertificateRole, Principal};
use headroom_transport::{AcceptedStream, PeerIdentity, ReloadingKeys, accept_handshake};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Group of the host whose members are administrators, like root.
pub(crate) const ADMINISTRATORS: &str = "headroom-admin";
/// User name of unauthenticated callers who may read.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// A listener.
pub(crate) trait ServerListener: Send + Sync + 'static {
    /// Accepted connection before authentication.
    type Raw: Send + 'static;
    /// Connection after authentication.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection, and returns its address.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Raw, IpAddr)>> + Send;

    /// Authenticates a connection. Runs in its own task, so that it does not delay other
    /// connections.
    fn authenticate(
        &self,
        raw: Self::Raw,
    ) -> impl Future<Output = io::Result<(Self::Stream, ConnectionIdentity)>> + Send;
}

/// Identity of a connection, before any request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionIdentity {
    pub(crate) principal: Principal,
    /// Name of a user, from the host or from a certificate, to which policies apply.
    pub(crate) account: Option<String>,
    /// Groups of the user, if it connected through the Unix socket.
    pub(crate) groups: Arc<[String]>,
}

/// TCP listener, with the permissions of unauthenticated callers.
#[derive(Debug)]
pub(crate) struct TcpServerListener {
    pub(crate) listener: TcpListener,
    pub(crate) anonymous: AnonymousAccess,
    /// Certificate and key; plain HTTP without.
    pub(crate) keys: Option<Arc<ReloadingKeys>>,
}

impl TcpServerListener {
    fn visitor(&self, caller: PeerIdentity) -> ConnectionIdentity {
        let account = if let PeerIdentity::Known(CertificateRole::User(name)) = &caller {
            Some(name.clone())
        } else {
            None
        };
        let principal = match (caller, self.anonymous) {
            (PeerIdentity::Known(CertificateRole::Manager), _) => Principal::Manager,
            (PeerIdentity::Known(CertificateRole::Node(node)), _) => Principal::Node(node),
            (PeerIdentity::Known(CertificateRole::User(name)), _) => {
                user(name, AccessRights::user_default())
            }
            (PeerIdentity::Unasked | PeerIdentity::Nobody, AnonymousAccess::All) => Principal::Open,
            (PeerIdentity::Unasked | PeerIdentity::Nobody, AnonymousAccess::Read) => {
                user(ANONYMOUS.to_owned(), AccessRights::read_only())
            }
            (PeerIdentity::Unasked | PeerIdentity::Nobody, AnonymousAccess::Nothing) => {
                Principal::Anonymous
            }
        };
        ConnectionIdentity {
            principal,
            account,
            groups: Arc::default(),
        }
    }
}

fn user(name: String, rights: AccessRights) -> Principal {
    Principal::User {
        name,
        token: None,
        rights,
        groups: Arc::default(),
    }
}

/// Time after which a connection without a byte is closed.
const SILENCE: Duration = Duration::from_secs(10);
/// Kind of the error of such a connection. A load balancer checks a listener that way, and a standby
/// the process of the leader.
pub(crate) const SILENT: io::ErrorKind = io::ErrorKind::ConnectionAborted;

impl ServerListener for TcpServerListener {
    type Raw = TcpStream;
    type Stream = AcceptedStream;

    async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        // Messages are short and must be sent without delay.
        let _ = stream.set_nodelay(true);
        if let Err(error) = keep_alive(&stream) {
            tracing::debug!(%error, "cannot set the keep-alive of a connection");
        }
        Ok((stream, peer.ip()))
    }

    async fn authenticate(
        &self,
        raw: TcpStream,
    ) -> io::Result<(AcceptedStream, ConnectionIdentity)> {
        if self.keys.is_some() {
            let first = tokio::time::timeout(SILENCE, raw.peek(&mut [0])).await;
            if !matches!(first, Ok(Ok(1..))) {
                return Err(io::Error::new(SILENT, "the peer sent nothing"));
            }
        }
        let (stream, caller) =
            accept_handshake(raw, self.keys.as_ref().map(|keys| keys.server())).await?;
        Ok((stream, self.visitor(caller)))
    }
}

/// Lets the kernel end a connection whose peer has vanished, 4 s after its last packet.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 2)
}

/// Unix socket listener. Its file is removed on drop, unless the service manager holds it.
#[derive(Debug)]
pub(crate) struct UnixSocketListener {
    listener: UnixListener,
    own: Option<PathBuf>,
}

impl UnixSocketListener {
    /// Wraps a socket that the service manager created and keeps.
    pub(crate) fn held(listener: UnixListener) -> Self {
        UnixSocketListener {
            listener,
            own: None,
        }
    }

    /// Creates the socket. It replaces one that an earlier incarnation left behind, but not one
    /// with a listener.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process listens there",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "the path exists and is not a socket",
                    ));
                }
                std::fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        // Any user of the host may connect; the user decides the permissions.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        Ok(UnixSocketListener {
            listener,
            own: Some(path.to_owned()),
        })
    }
}

impl Drop for UnixSocketListener {
    fn drop(&mut self) {
        if let Some(path) = &self.own {
            // If this fails, the next incarnation removes the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl ServerListener for UnixSocketListener {
    type Raw = UnixStream;
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, IpAddr)> {
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    async fn authenticate(&self, raw: UnixStream) -> io::Result<(UnixStream, ConnectionIdentity)> {
        let peer = raw.peer_cred()?;
        let (uid, gid) = (Uid::from_raw(peer.uid()), Gid::from_raw(peer.gid()));
        // The user lookup may use a slow file or service.
        let visitor = tokio::task::spawn_blocking(move || account(uid, gid))
            .await
            .map_err(io::Error::other)?;
        Ok((raw, visitor))
    }
}

/// Identity of a user of the host. Root, the daemon's own user and the administrators' group have
/// all rights. Other users may read and run their own jobs, unless a policy differs.
fn account(uid: Uid, gid: Gid) -> ConnectionIdentity {
    let known = User::from_uid(uid).ok().flatten();
    let name = known
        .as_ref()
        .map_or_else(|| format!("uid-{uid}"), |user| user.name.clone());
    let groups = groups(&name, gid);
    let administrates = uid.is_root()
        || uid == Uid::effective()
        || groups.iter().any(|group| group == ADMINISTRATORS);
    let rights = if administrates {
        AccessRights::all()
    } else {
        AccessRights::user_default()
    };
    let account = Some(name.clone());
    ConnectionIdentity {
        principal: user(name, rights),
        account,
        groups: groups.into(),
    }
}

/// Current groups of a user. A login session that began before a user joined a group has that group
/// too.
fn groups(user: &str, gid: Gid) -> Vec<String> {
    let all = CString::new(user)
        .ok()
        .and_then(|user| getgrouplist(&user, gid).ok())
        .unwrap_or_else(|| vec![gid]);
    all.into_iter()
        .filter_map(|gid| Some(Group::from_gid(gid).ok()??.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_abandoned_socket_is_replaced_and_a_used_socket_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("run/rm.sock");
        let first = UnixSocketListener::bind(&path).expect("binds");
        let mode = std::fs::metadata(&path)
            .expect("the socket exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o666);
        assert_eq!(
            UnixSocketListener::bind(&path)
                .expect_err("the socket is in use")
                .kind(),
            io::ErrorKind::AddrInUse
        );
        drop(first);
        assert!(!path.exists(), "the socket file is removed");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("binds")); // as a killed incarnation leaves it
        assert!(path.exists());
        drop(UnixSocketListener::bind(&path).expect("the abandoned socket is replaced"));
        std::fs::write(&path, "another file").expect("writes");
        assert_eq!(
            UnixSocketListener::bind(&path)
                .expect_err("the file is not a socket")
                .kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(
            std::fs::read_to_string(&path).expect("reads"),
            "another file",
            "a file that is not a socket is kept"
        );
    }

    #[tokio::test]
    async fn the_kernel_identifies_the_caller() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("rm.sock");
        let socket = UnixSocketListener::bind(&path).expect("binds");
        let _caller = UnixStream::connect(&path).await.expect("connects");
        let (raw, from) = socket.accept().await.expect("the connection is accepted");
        let (
            _,
            ConnectionIdentity {
                principal, groups, ..
            },
        ) = socket.authenticate(raw).await.expect("the peer is known");
        assert!(!groups.is_empty(), "each user is in a group");
        let me = User::from_uid(Uid::effective())
            .expect("the user database is readable")
            .expect("the user exists")
            .name;
        assert!(from.is_loopback());
        assert_eq!(
            principal,
            user(me, AccessRights::all()),
            "the user of the daemon has all rights"
        );
    }

    #[test]
    fn an_unknown_user_has_default_rights() {
        let stranger = account(Uid::from_raw(3_999_999_999), Gid::from_raw(3_999_999_999));
        let expected = user("uid-3999999999".into(), AccessRights::user_default());
        assert_eq!(stranger.principal, expected);
    }
}
