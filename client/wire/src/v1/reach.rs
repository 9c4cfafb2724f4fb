//! Into a container: a signal, its files, a program beside its own. The same messages between `rmctl` and the resource manager, and between
//! that and the node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headroom_types::{Signal, UnixMillis};
use serde::{Deserialize, Serialize};

/// Header with the word by which a node knows the resource manager it has registered with.
pub const KEY: &str = "headroom-key";
/// Longest standard input of a program that is run beside another. Bytes.
pub const LONGEST_INPUT: usize = 512 << 10;
/// The longest such a program may run. Milliseconds.
pub const LONGEST_RUN_MS: u64 = 3_600_000;
/// How long it may run where nothing is said. Milliseconds.
pub const USUAL_RUN_MS: u64 = 60_000;
/// The most it may print, on both streams together. Bytes.
pub const MOST_OUTPUT: u64 = 64 << 20;

/// `POST /v1/containers/{id}/signal`: a signal for the program of a container. Answer: [`Signalled`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalContainer {
    /// Its name or number: `SIGUSR1`, `USR1`, `10`.
    pub signal: Signal,
    /// For every process of the container, not only for its program.
    #[serde(default)]
    pub all: bool,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// It was delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Signalled {
    /// Which signal.
    pub signal: Signal,
    /// How many processes it was sent to.
    pub processes: u32,
}

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl EntryKind {
    /// The word on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Link => "link",
            EntryKind::Other => "other",
        }
    }
}

/// One entry of a directory of a container: an element of the answer to `GET /v1/containers/{id}/files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileRow {
    /// Its place below the directory of the container: `work/part-0`. What is no text in it is shown as `U+FFFD`.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// How long it is. Bytes.
    pub bytes: u64,
    /// When it was changed last.
    pub modified: UnixMillis,
    /// What a link leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /v1/containers/{id}/exec`: run a program beside the container's own, in its cgroup. Answer: lines of [`ExecLine`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecIn {
    /// The program and its arguments. One without a slash is looked for as that of the container was.
    pub command: Vec<String>,
    /// What it reads from its standard input; nothing when left out. At most 512 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Piece>,
    /// How long it may run, at most an hour; a minute when left out. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Some bytes: as text where they are text, else as base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// Text.
    Text(String),
    /// Anything else.
    Base64(String),
}

impl Piece {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Piece::Text(text.to_owned()),
            Err(_) => Piece::Base64(STANDARD.encode(bytes)),
        }
    }

    /// The bytes; what is wrong with it otherwise.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Piece::Text(text) => Ok(text.clone().into_bytes()),
            Piece::Base64(text) => STANDARD.decode(text).map_err(|error| format!("no base64: {error}")),
        }
    }
}

/// One line about a program that runs beside that of a container. The last one is `ended`; without it the line was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExecLine {
    /// It wrote to its standard output.
    Stdout {
        /// What.
        data: Piece,
    },
    /// It wrote to its standard error.
    Stderr {
        /// What.
        data: Piece,
    },
    /// It is over.
    Ended {
        /// How.
        end: ExecEnd,
    },
}

/// How a program ended that ran beside that of a container. It says nothing about the container's own program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ExecEnd {
    /// By itself.
    Exit {
        /// Its code.
        code: i32,
    },
    /// By a signal, that of the kernel for the memory of the container included.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// There is no such program.
    NotFound {
        /// What the kernel said.
        why: String,
    },
    /// It could not be started.
    NotStarted {
        /// What the kernel said.
        why: String,
    },
    /// Ended because its time was over.
    Timeout,
    /// Ended because it printed more than is passed on.
    TooMuchOutput,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_where_they_can_be() {
        assert_eq!(Piece::of("grün\n".as_bytes()), Piece::Text("grün\n".into()));
        for bytes in [&b"plain"[..], b"\xff\x00\xfe", b"", b"half \xc3"] {
            let text = serde_json::to_string(&Piece::of(bytes)).expect("writes");
            let read: Piece = serde_json::from_str(&text).expect("reads");
            assert_eq!(read.bytes().expect("bytes"), bytes, "{text}");
        }
        assert!(Piece::Base64("*".into()).bytes().is_err());
    }
}
