//! Where callers come in, and what is known of them there: a port, or a socket of the host whose kernel says who is behind it.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use headroom_config::Anonymous;
use headroom_identity::{Principal, Rights};
use nix::unistd::{Gid, Group, Uid, User};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Members of this group of the host are administrators, as root is.
pub(crate) const ADMINISTRATORS: &str = "headroom-admin";

/// A place to come in at.
pub(crate) trait Door: Send + Sync + 'static {
    /// What a connection is.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, from where, and who it is.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, IpAddr, Principal)>> + Send;
}

/// A port, and what those may who come in there without saying who they are.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) anonymous: Anonymous,
}

impl Door for Port {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, IpAddr, Principal)> {
        let (stream, peer) = self.listener.accept().await?;
        // Lines are short and must not wait for more.
        let _ = stream.set_nodelay(true);
        let principal = match self.anonymous {
            Anonymous::All => Principal::Open,
            Anonymous::Read => Principal::User { name: "anonymous".to_owned(), token: None, rights: Rights::reading() },
            Anonymous::Nothing => Principal::Anonymous,
        };
        Ok((stream, peer.ip(), principal))
    }
}

/// A socket of the host. Removed when it is dropped, unless somebody else holds it.
#[derive(Debug)]
pub(crate) struct HostSocket {
    listener: UnixListener,
    own: Option<PathBuf>,
}

impl HostSocket {
    /// One that the service manager has made, and keeps.
    pub(crate) fn held(listener: UnixListener) -> Self {
        HostSocket { listener, own: None }
    }

    /// Takes the place; one that an earlier life left behind is taken over, one that somebody listens at is not.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody else answers there")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket lies there"));
                }
                std::fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        // Everybody may knock: who it is decides what they may.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        Ok(HostSocket { listener, own: Some(path.to_owned()) })
    }
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.own {
            // A later life takes over what is left.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Door for HostSocket {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, IpAddr, Principal)> {
        let (stream, _) = self.listener.accept().await?;
        let peer = stream.peer_cred()?;
        let (uid, gid) = (Uid::from_raw(peer.uid()), Gid::from_raw(peer.gid()));
        // The list of accounts may be a file or a service that is slow.
        let principal = tokio::task::spawn_blocking(move || account(uid, gid)).await.map_err(io::Error::other)?;
        Ok((stream, IpAddr::V4(Ipv4Addr::LOCALHOST), principal))
    }
}

/// Who that account is: root, whoever runs this daemon and the administrators' group may everything, others look and have jobs of
/// their own.
fn account(uid: Uid, gid: Gid) -> Principal {
    let known = User::from_uid(uid).ok().flatten();
    let name = known.as_ref().map_or_else(|| format!("uid-{uid}"), |user| user.name.clone());
    let administrates = uid.is_root() || uid == Uid::effective() || belongs(&name, gid);
    let rights = if administrates { Rights::all() } else { Rights::working() };
    Principal::User { name, token: None, rights }
}

fn belongs(user: &str, gid: Gid) -> bool {
    let group = Group::from_name(ADMINISTRATORS).ok().flatten();
    group.is_some_and(|group| group.gid == gid || group.mem.iter().any(|member| member == user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_was_left_behind_is_taken_over_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("run/rm.sock");
        let first = HostSocket::bind(&path).expect("binds");
        let mode = std::fs::metadata(&path).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        assert_eq!(HostSocket::bind(&path).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "nothing is left");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("binds")); // as a life that was killed leaves it
        assert!(path.exists());
        drop(HostSocket::bind(&path).expect("takes it over"));
        std::fs::write(&path, "somebody's").expect("writes");
        assert_eq!(HostSocket::bind(&path).expect_err("no socket").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), "somebody's", "what is no socket is left alone");
    }

    #[tokio::test]
    async fn the_kernel_says_who_calls() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("rm.sock");
        let socket = HostSocket::bind(&path).expect("binds");
        let _caller = UnixStream::connect(&path).await.expect("connects");
        let (_, from, principal) = socket.accept().await.expect("comes in");
        let me = User::from_uid(Uid::effective()).expect("accounts").expect("an account").name;
        assert!(from.is_loopback());
        assert_eq!(principal, Principal::User { name: me, token: None, rights: Rights::all() }, "whoever runs the daemon");
    }

    #[test]
    fn somebody_else_works_with_the_cluster() {
        let stranger = account(Uid::from_raw(3_999_999_999), Gid::from_raw(3_999_999_999));
        assert_eq!(stranger, Principal::User { name: "uid-3999999999".into(), token: None, rights: Rights::working() });
    }
}
