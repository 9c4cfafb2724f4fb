//! Where callers come in, and what is known of them there: a port, or a socket of the host whose kernel says who is behind it.

use std::ffi::CString;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_config::Anonymous;
use headroom_identity::{Principal, Rights, Role};
use headroom_transport::{Caller, Keys, Stream, greet};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Members of this group of the host are administrators, as root is.
pub(crate) const ADMINISTRATORS: &str = "headroom-admin";

/// A place to come in at.
pub(crate) trait Door: Send + Sync + 'static {
    /// What knocks.
    type Raw: Send + 'static;
    /// What a connection is.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one that knocks, and from where.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Raw, IpAddr)>> + Send;

    /// Finds out who it is; ends in its own time, while others come in.
    fn greet(&self, raw: Self::Raw) -> impl Future<Output = io::Result<(Self::Stream, Visitor)>> + Send;
}

/// Who has come in, before anything was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) principal: Principal,
    /// The name of an account or in a certificate, of which policies may speak.
    pub(crate) account: Option<String>,
    /// Of the host, when it came by its socket.
    pub(crate) groups: Arc<[String]>,
}

/// A port, and what those may who come in there without saying who they are.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) anonymous: Anonymous,
    /// What it shows; it speaks plain HTTP without.
    pub(crate) keys: Option<Arc<Keys>>,
}

impl Port {
    fn visitor(&self, caller: Caller) -> Visitor {
        let account = if let Caller::Known(Role::User(name)) = &caller { Some(name.clone()) } else { None };
        let principal = match (caller, self.anonymous) {
            (Caller::Known(Role::Manager), _) => Principal::Manager,
            (Caller::Known(Role::Node(node)), _) => Principal::Node(node),
            (Caller::Known(Role::User(name)), _) => user(name, Rights::working()),
            (Caller::Unasked | Caller::Nobody, Anonymous::All) => Principal::Open,
            (Caller::Unasked | Caller::Nobody, Anonymous::Read) => user("anonymous".to_owned(), Rights::reading()),
            (Caller::Unasked | Caller::Nobody, Anonymous::Nothing) => Principal::Anonymous,
        };
        Visitor { principal, account, groups: Arc::default() }
    }
}

fn user(name: String, rights: Rights) -> Principal {
    Principal::User { name, token: None, rights, groups: Arc::default() }
}

impl Door for Port {
    type Raw = TcpStream;
    type Stream = Stream;

    async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        // Lines are short and must not wait for more.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer.ip()))
    }

    async fn greet(&self, raw: TcpStream) -> io::Result<(Stream, Visitor)> {
        let (stream, caller) = greet(raw, self.keys.as_ref().map(|keys| keys.server())).await?;
        Ok((stream, self.visitor(caller)))
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
    type Raw = UnixStream;
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, IpAddr)> {
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    async fn greet(&self, raw: UnixStream) -> io::Result<(UnixStream, Visitor)> {
        let peer = raw.peer_cred()?;
        let (uid, gid) = (Uid::from_raw(peer.uid()), Gid::from_raw(peer.gid()));
        // The list of accounts may be a file or a service that is slow.
        let visitor = tokio::task::spawn_blocking(move || account(uid, gid)).await.map_err(io::Error::other)?;
        Ok((raw, visitor))
    }
}

/// Who that account is: root, whoever runs this daemon and the administrators' group may everything, others look and have jobs of
/// their own, unless a policy says otherwise.
fn account(uid: Uid, gid: Gid) -> Visitor {
    let known = User::from_uid(uid).ok().flatten();
    let name = known.as_ref().map_or_else(|| format!("uid-{uid}"), |user| user.name.clone());
    let groups = groups(&name, gid);
    let administrates = uid.is_root() || uid == Uid::effective() || groups.iter().any(|group| group == ADMINISTRATORS);
    let rights = if administrates { Rights::all() } else { Rights::working() };
    let account = Some(name.clone());
    Visitor { principal: user(name, rights), account, groups: groups.into() }
}

/// The groups of an account, as they are now: a session that began before somebody was taken into one has it too.
fn groups(user: &str, gid: Gid) -> Vec<String> {
    let all = CString::new(user).ok().and_then(|user| getgrouplist(&user, gid).ok()).unwrap_or_else(|| vec![gid]);
    all.into_iter().filter_map(|gid| Some(Group::from_gid(gid).ok()??.name)).collect()
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
        let (raw, from) = socket.accept().await.expect("comes in");
        let (_, Visitor { principal, groups, .. }) = socket.greet(raw).await.expect("the kernel knows");
        assert!(!groups.is_empty(), "everybody is in a group");
        let me = User::from_uid(Uid::effective()).expect("accounts").expect("an account").name;
        assert!(from.is_loopback());
        assert_eq!(principal, user(me, Rights::all()), "whoever runs the daemon");
    }

    #[test]
    fn somebody_else_works_with_the_cluster() {
        let stranger = account(Uid::from_raw(3_999_999_999), Gid::from_raw(3_999_999_999));
        let nobody = user("uid-3999999999".into(), Rights::working());
        assert_eq!(stranger.principal, nobody);
    }
}
