//! Protocol between the node agent and its launcher: packets on a Unix socket.
//!
//! The launcher sends [`READY`] first; a `container-shim` of a release without launcher exits
//! instead. The agent passes its lock with [`LOCK`] and one descriptor. It requests a shim with
//! [`run`] and two descriptors: the socket for the replies of that shim, and the file for its error
//! messages.
//!
//! All replies come through that socket. The launcher reports that the shim is forked, with its
//! pidfd, or why the fork failed. The shim sends its one [`Answer`]. If the socket closes without a
//! reply, and the container's directory names no shim, then no shim was forked. Pure: this module
//! sends nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::record::Answer;

/// The first packet of the launcher, with the protocol version.
pub const READY: &[u8] = b"ready 1\n";
/// The packet that passes the lock of the agent's state directory. A forked shim holds the lock
/// until its directory names it. The next agent waits for the lock before it adopts containers, so
/// it finds every shim.
pub const LOCK: &[u8] = b"lock\n";
/// Maximum length of a packet. Bytes.
pub const LONGEST: usize = 4096 + 16;

const RUN: &[u8] = b"run ";
const BORN: &[u8] = b"born\n";
const REFUSED: &str = "refused ";

/// Encodes the request for a shim for the container in `dir`.
pub fn run(dir: &Path) -> Vec<u8> {
    [RUN, dir.as_os_str().as_bytes()].concat()
}

/// A request of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Hold the lock.
    Lock,
    /// Fork a shim.
    Run(PathBuf),
}

impl Wish {
    /// Decodes a request. Returns `None` for any other packet, such as one of a later release.
    pub fn decode(packet: &[u8]) -> Option<Wish> {
        match packet.strip_prefix(RUN) {
            Some(dir) if dir.starts_with(b"/") => Some(Wish::Run(OsStr::from_bytes(dir).into())),
            Some(_) => None,
            None => (packet == LOCK).then_some(Wish::Lock),
        }
    }
}

/// One reply packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// From the launcher: the shim is forked. The packet carries its pidfd.
    Born,
    /// From the launcher: the fork failed.
    Refused {
        /// The errno of the kernel.
        errno: i32,
    },
    /// From the shim itself.
    Answer(Answer),
}

impl Word {
    /// Encodes the packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Word::Born => BORN.to_vec(),
            Word::Refused { errno } => format!("{REFUSED}{errno}\n").into_bytes(),
            Word::Answer(answer) => answer.encode().into_bytes(),
        }
    }

    /// Decodes a packet. Returns `None` for any other packet.
    pub fn decode(packet: &[u8]) -> Option<Word> {
        if packet == BORN {
            return Some(Word::Born);
        }
        let text = std::str::from_utf8(packet).ok()?;
        match text.strip_prefix(REFUSED) {
            Some(errno) => Some(Word::Refused { errno: errno.trim_end().parse().ok()? }),
            None => Answer::decode(text).map(Word::Answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        assert_eq!(Wish::decode(LOCK), Some(Wish::Lock));
        assert_eq!(Wish::decode(&run(Path::new("/a b/c"))), Some(Wish::Run("/a b/c".into())));
        for strange in [&b"run relative"[..], b"run ", b"sing\n", b""] {
            assert_eq!(Wish::decode(strange), None, "{strange:?}");
        }
        let answer = Word::Answer(Answer::Failed { step: "exec".into(), errno: 2 });
        for word in [Word::Born, Word::Refused { errno: 11 }, answer] {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        assert_eq!(Word::decode(b"refused why\n"), None);
    }
}
