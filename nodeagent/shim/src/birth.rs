//! What the node agent and its launcher say to each other, in packets on a Unix socket.
//!
//! The launcher says [`READY`] first; a `container-shim` of a release that has no launcher ends instead. The agent hands its lock over with
//! [`LOCK`] and one descriptor, and asks for a shim with [`run`] and two: the conversation with that shim, and where its complaints
//! go. All else is said in the conversation: by the launcher that the shim is there, with its descriptor, or why it is not; by the shim its
//! one [`Answer`]. A conversation that ends before either spoke, with nothing in the container's directory that names a shim, means that
//! none was made. Pure: nothing is sent here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::record::Answer;

/// The launcher's first word, with the version of what follows.
pub const READY: &[u8] = b"ready 1\n";
/// The lock of the agent's state directory: who adopts what an agent has left waits until no newborn shim holds it any more.
pub const LOCK: &[u8] = b"lock\n";
/// Longest packet. Bytes.
pub const LONGEST: usize = 4096 + 16;

const RUN: &[u8] = b"run ";
const BORN: &[u8] = b"born\n";
const REFUSED: &str = "refused ";

/// Asks for a shim for the container in `dir`.
pub fn run(dir: &Path) -> Vec<u8> {
    [RUN, dir.as_os_str().as_bytes()].concat()
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To hold the lock.
    Lock,
    /// To make a shim.
    Run(PathBuf),
}

impl Wish {
    /// `None` for anything else: an agent of a later release.
    pub fn decode(packet: &[u8]) -> Option<Wish> {
        match packet.strip_prefix(RUN) {
            Some(dir) if dir.starts_with(b"/") => Some(Wish::Run(OsStr::from_bytes(dir).into())),
            Some(_) => None,
            None => (packet == LOCK).then_some(Wish::Lock),
        }
    }
}

/// One packet of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The launcher: the shim is there; its descriptor comes along.
    Born,
    /// The launcher: it could not be made.
    Refused {
        /// The kernel's answer.
        errno: i32,
    },
    /// The shim itself.
    Answer(Answer),
}

impl Word {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Word::Born => BORN.to_vec(),
            Word::Refused { errno } => format!("{REFUSED}{errno}\n").into_bytes(),
            Word::Answer(answer) => answer.encode().into_bytes(),
        }
    }

    /// `None` for anything else.
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
