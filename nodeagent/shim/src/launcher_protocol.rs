//! Protocol between the node agent and its launcher: packets on a Unix socket.
//!
//! The launcher sends [`READY`] first; a `container-shim` of a release without launcher exits
//! instead. The agent passes its lock with [`LOCK`] and one descriptor. It requests a shim with
//! [`encode_fork_request`] and two descriptors: the socket for the replies of that shim, and the
//! file for its error messages.
//!
//! All replies come through that socket. The launcher reports that the container has a shim, with its
//! pidfd, or why the fork failed. The shim sends its one [`StartResult`]. If the socket closes
//! without that, and the container's directory names no shim, then nothing was started. Pure: this
//! module sends nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::record::StartResult;

/// The first packet of the launcher, with the protocol version.
pub const READY: &[u8] = b"ready 2\n";
/// The packet that passes the lock of the agent's state directory. A shim with a new container holds
/// the lock until its directory names it. The next agent waits for the lock before it adopts containers, so
/// it finds every shim.
pub const LOCK: &[u8] = b"lock\n";
/// Maximum length of a packet. Bytes.
pub const MAX_PACKET_BYTES: usize = 4096 + 16;

const RUN: &[u8] = b"run ";
const FORKED: &[u8] = b"forked\n";
const REFUSED: &str = "refused ";

/// Encodes the request for a shim for the container in `dir`.
pub fn encode_fork_request(dir: &Path) -> Vec<u8> {
    [RUN, dir.as_os_str().as_bytes()].concat()
}

/// A request of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LauncherRequest {
    /// Hold the lock.
    Lock,
    /// Give the container in this directory a shim.
    Run(PathBuf),
}

impl LauncherRequest {
    /// Decodes a request. Returns `None` for any other packet, such as one of a later release.
    pub fn decode(packet: &[u8]) -> Option<LauncherRequest> {
        match packet.strip_prefix(RUN) {
            Some(dir) if dir.starts_with(b"/") => {
                Some(LauncherRequest::Run(OsStr::from_bytes(dir).into()))
            }
            Some(_) => None,
            None => (packet == LOCK).then_some(LauncherRequest::Lock),
        }
    }
}

/// One reply packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LauncherPacket {
    /// From the launcher: the container has a shim, forked or spare. The packet carries its pidfd.
    Forked,
    /// From the launcher: the fork failed.
    Refused {
        /// The errno of the kernel.
        errno: i32,
    },
    /// From the shim itself.
    Answer(StartResult),
}

impl LauncherPacket {
    /// Encodes the packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            LauncherPacket::Forked => FORKED.to_vec(),
            LauncherPacket::Refused { errno } => format!("{REFUSED}{errno}\n").into_bytes(),
            LauncherPacket::Answer(answer) => answer.encode().into_bytes(),
        }
    }

    /// Decodes a packet. Returns `None` for any other packet.
    pub fn decode(packet: &[u8]) -> Option<LauncherPacket> {
        if packet == FORKED {
            return Some(LauncherPacket::Forked);
        }
        let text = std::str::from_utf8(packet).ok()?;
        match text.strip_prefix(REFUSED) {
            Some(errno) => Some(LauncherPacket::Refused {
                errno: errno.trim_end().parse().ok()?,
            }),
            None => StartResult::decode(text).map(LauncherPacket::Answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_round_trip() {
        assert_eq!(LauncherRequest::decode(LOCK), Some(LauncherRequest::Lock));
        assert_eq!(
            LauncherRequest::decode(&encode_fork_request(Path::new("/a b/c"))),
            Some(LauncherRequest::Run("/a b/c".into()))
        );
        for strange in [&b"run relative"[..], b"run ", b"sing\n", b""] {
            assert_eq!(LauncherRequest::decode(strange), None, "{strange:?}");
        }
        let answer = LauncherPacket::Answer(StartResult::Failed {
            step: crate::LaunchStep::Exec,
            errno: 2,
        });
        for word in [
            LauncherPacket::Forked,
            LauncherPacket::Refused { errno: 11 },
            answer,
        ] {
            assert_eq!(LauncherPacket::decode(&word.encode()), Some(word));
        }
        assert_eq!(LauncherPacket::decode(b"refused why\n"), None);
    }
}
