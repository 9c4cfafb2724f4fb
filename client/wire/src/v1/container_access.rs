//! Container access: signals, files and programs in a running container. `rmctl` and the resource
//! manager use the same messages as the resource manager and the node agent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headroom_types::{Signal, UnixMillis, word_enum};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Header with the secret that authenticates the resource manager at a node.
pub const NODE_KEY_HEADER: &str = "headroom-key";
/// Maximum standard input of a program. Bytes.
pub const MAX_EXEC_INPUT_BYTES: usize = 512 << 10;
/// Maximum run time of a program. Milliseconds.
pub const MAX_EXEC_TIMEOUT_MS: u64 = 3_600_000;
/// Default run time of a program. Milliseconds.
pub const DEFAULT_EXEC_TIMEOUT_MS: u64 = 60_000;
/// Maximum output of a program, both streams together. Bytes.
pub const MAX_EXEC_OUTPUT_BYTES: u64 = 64 << 20;

/// `POST /v1/containers/{id}/signal`: send a signal to the program of a container. Response:
/// [`SignalDelivered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalContainer {
    /// Signal name or number: `SIGUSR1`, `USR1`, `10`.
    pub signal: Signal,
    /// True for all processes of the container, not only its program.
    #[serde(default)]
    pub all: bool,
    /// Reason, for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The response to a delivered signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignalDelivered {
    /// The signal.
    pub signal: Signal,
    /// Number of processes that received it.
    pub processes: u32,
}

word_enum! {
    /// The type of a directory entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum FileEntryKind: "is not a type of a directory entry; use" {
        /// A file.
        File = "file",
        /// A directory.
        Directory = "directory",
        /// A symbolic link.
        Link = "link",
        /// A pipe, a socket, a device.
        Other = "other",
    }
}

/// An entry of a container directory, in the response to `GET /v1/containers/{id}/files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerFileEntry {
    /// Path below the directory of the container: `work/part-0`. Bytes that are not UTF-8 appear as
    /// `U+FFFD`.
    pub path: String,
    /// Type of the entry.
    pub kind: FileEntryKind,
    /// Size. Bytes.
    pub bytes: u64,
    /// Time of the last change.
    pub modified: UnixMillis,
    /// Target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `POST /v1/containers/{id}/exec`: run another program in the cgroup of a container. Response:
/// lines of [`ExecOutputLine`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecContainer {
    /// Program and arguments. A program without a slash is found as for the container's own
    /// program.
    pub command: Vec<String>,
    /// Standard input, at most 512 KiB; empty if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<TextOrBytes>,
    /// Maximum run time, at most one hour; one minute if omitted. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A piece of data: text if it is UTF-8, otherwise base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextOrBytes {
    /// UTF-8 text.
    Text(String),
    /// Other data, in base64.
    Base64(String),
}

impl TextOrBytes {
    /// A piece with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => TextOrBytes::Text(text.to_owned()),
            Err(_) => TextOrBytes::Base64(STANDARD.encode(bytes)),
        }
    }

    /// The bytes, or the decoding error.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            TextOrBytes::Text(text) => Ok(text.clone().into_bytes()),
            TextOrBytes::Base64(text) => STANDARD
                .decode(text)
                .map_err(|error| format!("not base64: {error}")),
        }
    }
}

/// A line about a program that runs in a container. The last line is `ended`; without it the
/// response is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExecOutputLine {
    /// Standard output.
    Stdout {
        /// Data.
        data: TextOrBytes,
    },
    /// Standard error.
    Stderr {
        /// Data.
        data: TextOrBytes,
    },
    /// The program ended.
    Ended {
        /// End of the program.
        end: ExecExitStatus,
    },
}

/// The end of a program that was run in a container. The container's own program is not affected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ExecExitStatus {
    /// The program exited by itself.
    Exit {
        /// Exit code.
        code: i32,
    },
    /// A signal ended it, including a memory kill of the kernel.
    Signal {
        /// Number of the signal.
        signal: i32,
    },
    /// The program does not exist.
    NotFound {
        /// Error of the kernel.
        why: String,
    },
    /// The program could not be started.
    NotStarted {
        /// Error of the kernel.
        why: String,
    },
    /// Ended at its maximum run time.
    Timeout,
    /// Ended because its output exceeded the maximum.
    TooMuchOutput,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_utf8_bytes_are_sent_as_text() {
        assert_eq!(
            TextOrBytes::of("grün\n".as_bytes()),
            TextOrBytes::Text("grün\n".into())
        );
        for bytes in [&b"plain"[..], b"\xff\x00\xfe", b"", b"half \xc3"] {
            let text = serde_json::to_string(&TextOrBytes::of(bytes)).expect("writes");
            let read: TextOrBytes = serde_json::from_str(&text).expect("reads");
            assert_eq!(read.bytes().expect("bytes"), bytes, "{text}");
        }
        assert!(TextOrBytes::Base64("*".into()).bytes().is_err());
    }
}
