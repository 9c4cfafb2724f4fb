//! The task channel between an application master and its executors: version 1.
//!
//! The executor opens one TCP connection to its master. Both sides send one JSON object per line,
//! at most [`MAX_LINE_BYTES`] bytes long. The executor sends first. It repeats a result on every
//! new connection until the master acknowledges it, so no result is lost when either side restarts.
//! A start of a known attempt is ignored.
//!
//! `docs/executor-protocol.md` describes both sides. Within a version, kinds and fields are only
//! added. A reader ignores unknown kinds and fields.

use std::collections::BTreeMap;

use headroom_types::exit::{LeftoverOwner, TaskReport};
use headroom_types::{Bytes, ContainerId, TaskAttemptId, UnixMillis};
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};

/// Version of this protocol.
pub const VERSION: u32 = 1;
/// The oldest supported version.
pub const OLDEST_VERSION: u32 = 1;
/// Maximum length of a line. Bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Maximum number of bytes that are kept of a hello before authentication. A longer hello must
/// contain its `token` within this limit. The large fields, `running` and `unacked`, come after it.
pub const MAX_UNAUTHENTICATED_BYTES: usize = 16 << 10;

/// A message from the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromExecutor {
    /// The first line of a connection.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The container it runs in.
        container: ContainerId,
        /// The secret from `HEADROOM_APP_TOKEN`.
        token: String,
        /// Number of slots of the executor.
        slots: u32,
        /// True if each task has its own cgroup.
        task_groups: bool,
        /// True if it writes the `input` of a start to a file and reports values.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inputs: bool,
        /// True if it starts attempts by their `fork_server`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fork_servers: bool,
        /// Attempts that have not ended, or whose result follows as `ended`.
        running: Vec<TaskAttemptId>,
        /// Results that no master has acknowledged.
        unacked: Vec<TaskReport>,
    },
    /// The process of a task runs in its cgroup.
    Started {
        /// The task attempt.
        attempt: TaskAttemptId,
        /// Start time.
        at: UnixMillis,
    },
    /// Memory use of the running tasks. Sent about once per second, and at once when a task passes
    /// 90 % of its limit.
    Usage {
        /// One entry per running task.
        tasks: Vec<TaskUsage>,
    },
    /// A task ended. Repeated until acknowledged.
    Ended {
        /// The executor's verdict.
        report: Box<TaskReport>,
    },
    /// A growable task is frozen near its limit. Sent at once, and on every new connection while it
    /// is frozen.
    Pressure {
        /// The task attempt.
        attempt: TaskAttemptId,
        /// Current limit. Bytes.
        limit: Bytes,
        /// Charged memory. Bytes.
        current: Bytes,
    },
    /// The result of a new limit.
    Resized {
        /// The task attempt.
        attempt: TaskAttemptId,
        /// Current limit. Bytes.
        limit: Bytes,
        /// From memory pressure to the new limit in the kernel; `None` if the task was not frozen.
        /// Microseconds.
        frozen_us: Option<u64>,
        /// Reason that the requested limit is not in force, for users.
        error: Option<String>,
    },
    /// Memory that ended tasks left charged to the container and that no running task holds: files
    /// on a tmpfs, shared memory. Sent when it changes, and on every new connection while it is not
    /// zero.
    Leftover {
        /// Amount, a lower bound. Bytes.
        memory: Bytes,
        /// The tasks that left it, largest first; at most five.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_by: Vec<LeftoverOwner>,
    },
    /// Heartbeat.
    Alive,
}

/// Memory use of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// The task attempt.
    pub attempt: TaskAttemptId,
    /// Charged memory. Bytes.
    pub current: Bytes,
    /// Largest use so far. Bytes.
    pub peak: Bytes,
    /// Heap in use, as reported by its runtime. Bytes.
    pub heap: Option<Bytes>,
    /// True if its runtime spends its time in garbage collection of a heap that is too small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starved: bool,
}

/// A message to the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToExecutor {
    /// Start a task attempt.
    Start(Box<TaskStart>),
    /// End a task attempt: SIGTERM, then SIGKILL.
    Stop {
        /// The task attempt.
        attempt: TaskAttemptId,
    },
    /// Change the limit of a running attempt. Idempotent.
    Resize {
        /// The task attempt.
        attempt: TaskAttemptId,
        /// The whole limit. Bytes.
        limit: Bytes,
    },
    /// No more memory is available: release the frozen attempt.
    Unfreeze {
        /// The task attempt.
        attempt: TaskAttemptId,
    },
    /// The result is recorded: forget it.
    Ack {
        /// The task attempt.
        attempt: TaskAttemptId,
    },
    /// End when no task runs.
    Shutdown,
    /// Last message before the master closes the connection of an authenticated executor that it
    /// cannot understand.
    Refused {
        /// The error, for users.
        why: String,
        /// Oldest version of the master.
        oldest: u32,
        /// Newest version of the master. An executor without a common version must not retry.
        newest: u32,
    },
    /// Heartbeat.
    Alive,
}

impl FromExecutor {
    /// All kinds of this version.
    pub const KINDS: [&'static str; 8] = [
        "hello", "started", "usage", "ended", "pressure", "resized", "leftover", "alive",
    ];

    /// Parses one line.
    pub fn read(line: &str) -> Result<Self, LineError> {
        read(line, &Self::KINDS)
    }
}

impl ToExecutor {
    /// All kinds of this version.
    pub const KINDS: [&'static str; 8] = [
        "start", "stop", "resize", "unfreeze", "ack", "shutdown", "refused", "alive",
    ];

    /// Parses one line.
    pub fn read(line: &str) -> Result<Self, LineError> {
        read(line, &Self::KINDS)
    }
}

/// The error of a rejected line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A kind that this version does not know; the reader ignores the line.
    #[error("unknown message kind `{0}`")]
    Unknown(String),
    /// A known kind with invalid contents.
    #[error("invalid message of kind `{kind}`: {what}")]
    Wrong {
        /// The kind.
        kind: String,
        /// The error.
        what: String,
    },
    /// Not a message of this protocol.
    #[error("the line is not a JSON object with a `kind`: {0}")]
    NoMessage(String),
}

/// Parses a line. Only an invalid line is parsed a second time, for its kind.
pub(super) fn read<T: DeserializeOwned>(line: &str, kinds: &[&str]) -> Result<T, LineError> {
    #[derive(Deserialize)]
    struct LineKind {
        kind: String,
    }
    serde_json::from_str(line).map_err(|wrong| match serde_json::from_str::<LineKind>(line) {
        Ok(LineKind { kind }) if kinds.contains(&kind.as_str()) => LineError::Wrong {
            kind,
            what: wrong.to_string(),
        },
        Ok(LineKind { kind }) => LineError::Unknown(kind),
        Err(e) => LineError::NoMessage(e.to_string()),
    })
}

/// The part of a hello that is the same in every version: version and token.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct HelloPreamble {
    /// Always `hello`.
    kind: String,
    /// Version of all following messages.
    pub version: u32,
    /// The secret from `HEADROOM_APP_TOKEN`.
    pub token: String,
}

impl HelloPreamble {
    /// Parses the first line of a connection; `None` if it is not a hello of any version.
    pub fn read(line: &str) -> Option<HelloPreamble> {
        serde_json::from_str(line)
            .ok()
            .filter(|hello: &HelloPreamble| hello.kind == "hello")
    }
}

/// The `token` of a partially received hello; `None` if it is not received yet. Invalid JSON is
/// detected only with the complete line.
#[must_use]
pub fn hello_token(beginning: &[u8]) -> Option<String> {
    let mut token = None;
    // The parse always fails at the end, because the rest of the line is missing.
    let _ =
        serde_json::Deserializer::from_slice(beginning).deserialize_map(TokenVisitor(&mut token));
    token
}

/// A visitor that extracts the token only.
struct TokenVisitor<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for TokenVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "token" {
                *self.0 = Some(map.next_value()?);
                break;
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

// Omits the secret.
headroom_types::debug_fields!(HelloPreamble { version });

/// A start of a task attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStart {
    /// The task attempt.
    pub attempt: TaskAttemptId,
    /// Program and arguments, with templates filled in.
    pub command: Vec<String>,
    /// Environment variables, added to the executor's minimal environment.
    pub env: BTreeMap<String, String>,
    /// Working directory; that of the container if absent.
    pub cwd: Option<String>,
    /// Number of slots that the attempt takes.
    pub slots: u32,
    /// Limit of its cgroup; `None` for no limit besides the executor's own. Bytes.
    pub limit: Option<Bytes>,
    /// Heap budget of its runtime; `None` without a declared runtime. Bytes.
    pub heap: Option<Bytes>,
    /// Exit codes by which its runtime reports a full heap.
    pub heap_exit_codes: Vec<i32>,
    /// Maximum run time. Milliseconds.
    pub timeout_ms: Option<u64>,
    /// Maximum time of a freeze. Set for a task that may grow: near its limit the executor freezes
    /// it and reports pressure to the master. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze_timeout_ms: Option<u64>,
    /// Output directory of this attempt. The executor creates it with its parents before the
    /// program starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Text for the program: content of the file `HEADROOM_INPUT_FILE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Program and arguments of the fork server that starts the attempt in place of `command`; see
    /// `docs/fork-server-protocol.md`. Empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fork_server: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variant names that serde lists in its error about an unknown variant.
    fn expected<T: DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
        let words = serde_json::from_str::<T>(r#"{"kind":"?"}"#)
            .expect_err("no such kind")
            .to_string();
        words
            .split('`')
            .skip(3)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_lists_of_kinds_are_complete() {
        assert_eq!(expected::<FromExecutor>(), FromExecutor::KINDS);
        assert_eq!(expected::<ToExecutor>(), ToExecutor::KINDS);
    }

    #[test]
    fn unknown_kinds_and_invalid_lines_are_different_errors() {
        let stop = ToExecutor::Stop {
            attempt: "map/7@2".parse().expect("id"),
        };
        assert_eq!(
            ToExecutor::read(r#"{"kind":"stop","attempt":"map/7@2","later":[1]}"#),
            Ok(stop)
        );
        assert_eq!(
            ToExecutor::read(r#"{"kind":"stopp"}"#),
            Err(LineError::Unknown("stopp".into()))
        );
        for (line, says) in [
            (r#"{"kind":"stop"}"#, "attempt"),
            (r#"{"kind":"stop","attempt":"map"}"#, "map/7@2"),
        ] {
            let error = ToExecutor::read(line).expect_err(line);
            assert!(
                matches!(&error, LineError::Wrong { kind, .. } if kind == "stop"),
                "{error}"
            );
            assert!(error.to_string().contains(says), "{error}");
        }
        for line in ["", "[]", "{}", r#"{"kind":7}"#, "GET / HTTP/1.1"] {
            assert!(
                matches!(FromExecutor::read(line), Err(LineError::NoMessage(_))),
                "{line}"
            );
        }
    }

    #[test]
    fn the_preamble_of_a_later_version_is_readable() {
        let hello =
            HelloPreamble::read(r#"{"kind":"hello","version":9,"token":"s","slots":{"cores":4}}"#)
                .expect("a hello");
        assert_eq!((hello.version, hello.token.as_str()), (9, "s"));
        assert!(!format!("{hello:?}").contains("\"s\""));
        assert_eq!(
            HelloPreamble::read(r#"{"kind":"started","version":9,"token":"s"}"#),
            None
        );
    }

    #[test]
    fn the_token_is_found_in_an_incomplete_hello() {
        let hello = FromExecutor::Hello {
            version: VERSION,
            container: "job.1.e1.c1".parse().expect("id"),
            token: "se\"cret".into(),
            slots: 1024,
            task_groups: true,
            inputs: false,
            fork_servers: false,
            running: (1..2000)
                .map(|n| format!("map/{n}@1").parse().expect("id"))
                .collect(),
            unacked: Vec::new(),
        };
        let line = serde_json::to_vec(&hello).expect("writes");
        let shown = line
            .windows(7)
            .position(|w| w == b"\"slots\"")
            .expect("follows the token");
        for end in 0..line.len().min(MAX_UNAUTHENTICATED_BYTES) {
            let found = hello_token(&line[..end]);
            assert!(
                found.is_none() || found.as_deref() == Some("se\"cret"),
                "{found:?} in {end} bytes"
            );
            assert_eq!(found.is_some(), end >= shown - 1, "in {end} bytes");
        }
        assert!(
            shown < 1024 && line.len() > MAX_UNAUTHENTICATED_BYTES,
            "a long hello has the token in its first bytes"
        );
        assert_eq!(
            hello_token(br#"{"running":[{"token":"a"}],"slots":{"token":["b"]},"token":"c","#)
                .as_deref(),
            Some("c")
        );
        for none in [
            "",
            "[",
            r#"["token","a"]"#,
            r#"{"token":7}"#,
            r#"{"tokens":"a""#,
            "token",
            &"[".repeat(MAX_UNAUTHENTICATED_BYTES),
        ] {
            assert_eq!(hello_token(none.as_bytes()), None, "{none:.40}");
        }
    }
}
