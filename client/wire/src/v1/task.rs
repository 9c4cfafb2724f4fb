//! The task channel between an application master and its executors: version 1.
//!
//! One TCP connection from executor to master, one JSON object a line each way, at most [`MAX_LINE`] bytes a line. The executor
//! speaks first. A result is repeated on every new connection until the master has acknowledged it, so nothing is lost when
//! either side is restarted; a start that the executor already knows is ignored.
//!
//! Both sides are described for people in `docs/executor-protocol.md`. Within a version kinds and fields are only added: a reader
//! passes over kinds and fields that it does not know.

use std::collections::BTreeMap;

use headroom_types::exit::{LeftBy, TaskReport};
use headroom_types::{Bytes, ContainerId, TaskAttemptId, UnixMillis};
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};

/// Version of this protocol.
pub const VERSION: u32 = 1;
/// The oldest version that is still spoken.
pub const OLDEST: u32 = 1;
/// Longest line either side accepts. Bytes.
pub const MAX_LINE: usize = 1 << 20;
/// A hello that is longer has its `token` within so many bytes: before that nobody knows who speaks, and no more is kept of it. What takes
/// room in a hello, `running` and `unacked`, comes after it.
pub const MAX_UNPROVEN: usize = 16 << 10;

/// From the executor.
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
        /// How many slots it was given.
        slots: u32,
        /// Whether each task has a cgroup of its own.
        task_groups: bool,
        /// Tasks that run in it.
        running: Vec<TaskAttemptId>,
        /// Results that no master has acknowledged.
        unacked: Vec<TaskReport>,
    },
    /// The task's process runs in its cgroup.
    Started {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// When.
        at: UnixMillis,
    },
    /// What the running tasks use. About once a second, and at once when a task passes 90 % of its limit.
    Usage {
        /// One for each running task.
        tasks: Vec<TaskUsage>,
    },
    /// A task ended. Repeated until acknowledged.
    Ended {
        /// The executor's verdict.
        report: Box<TaskReport>,
    },
    /// A task that may grow is near its limit and held there. Said at once, and on every new connection for as long as it is held.
    Pressure {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// The limit it has. Bytes.
        limit: Bytes,
        /// Charged to it. Bytes.
        current: Bytes,
    },
    /// The answer to a new limit.
    Resized {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// The limit it has now. Bytes.
        limit: Bytes,
        /// From the sign of pressure to the new limit in the kernel; `None` when it was not held. Microseconds.
        held_us: Option<u64>,
        /// Why it does not have the limit that was wanted, for people.
        error: Option<String>,
    },
    /// Memory that ended tasks have left charged to the container and that no task of it holds: files on a tmpfs, shared memory. Said when it
    /// changes, and on every new connection while there is some.
    Leftover {
        /// How much: a lower bound. Bytes.
        memory: Bytes,
        /// The tasks that left it, largest first; at most five.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_by: Vec<LeftBy>,
    },
    /// The line lives.
    Alive,
}

/// What one task uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// Which attempt.
    pub attempt: TaskAttemptId,
    /// Charged to it now. Bytes.
    pub current: Bytes,
    /// Largest so far. Bytes.
    pub peak: Bytes,
    /// Heap in use, told by its runtime. Bytes.
    pub heap: Option<Bytes>,
    /// Its runtime spends its time collecting a heap that is too small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starved: bool,
}

/// To the executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToExecutor {
    /// Run this.
    Start(Box<TaskStart>),
    /// End this: SIGTERM, then SIGKILL.
    Stop {
        /// Which attempt.
        attempt: TaskAttemptId,
    },
    /// Give this another limit while it runs. A level, so that it may come twice.
    Resize {
        /// Which attempt.
        attempt: TaskAttemptId,
        /// The whole limit. Bytes.
        limit: Bytes,
    },
    /// There is no more for this: do not hold it any longer.
    LetGo {
        /// Which attempt.
        attempt: TaskAttemptId,
    },
    /// The result has been taken in: forget it.
    Ack {
        /// Which attempt.
        attempt: TaskAttemptId,
    },
    /// End as soon as no task runs.
    Shutdown,
    /// The last line before the master closes a connection whose executor knows the secret and is not understood all the same.
    Refused {
        /// What was wrong, for people.
        why: String,
        /// The oldest version that the master speaks.
        oldest: u32,
        /// The newest one. An executor that speaks none of them has no use in trying again.
        newest: u32,
    },
    /// The line lives.
    Alive,
}

impl FromExecutor {
    /// Every kind of this version.
    pub const KINDS: [&'static str; 8] = ["hello", "started", "usage", "ended", "pressure", "resized", "leftover", "alive"];

    /// Reads one line.
    pub fn read(line: &str) -> Result<Self, LineError> {
        read(line, &Self::KINDS)
    }
}

impl ToExecutor {
    /// Every kind of this version.
    pub const KINDS: [&'static str; 8] = ["start", "stop", "resize", "let_go", "ack", "shutdown", "refused", "alive"];

    /// Reads one line.
    pub fn read(line: &str) -> Result<Self, LineError> {
        read(line, &Self::KINDS)
    }
}

/// Why a line is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A kind that this version does not know: to be passed over.
    #[error("the kind `{0}` is not known here")]
    Unknown(String),
    /// A kind that is known, and is not written as it should be.
    #[error("a line of the kind `{kind}` is not right: {what}")]
    Wrong {
        /// Which kind.
        kind: String,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing of this protocol.
    #[error("the line is not a JSON object with a `kind`: {0}")]
    NoMessage(String),
}

/// The line as a message; only one that is not right is looked at twice.
fn read<T: DeserializeOwned>(line: &str, kinds: &[&str]) -> Result<T, LineError> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_str(line).map_err(|wrong| match serde_json::from_str::<Kind>(line) {
        Ok(Kind { kind }) if kinds.contains(&kind.as_str()) => LineError::Wrong { kind, what: wrong.to_string() },
        Ok(Kind { kind }) => LineError::Unknown(kind),
        Err(e) => LineError::NoMessage(e.to_string()),
    })
}

/// The part of a hello that stays as it is in every version: who speaks, and in which one.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Salute {
    /// Always `hello`.
    kind: String,
    /// The version of everything that follows.
    pub version: u32,
    /// The secret from `HEADROOM_APP_TOKEN`.
    pub token: String,
}

impl Salute {
    /// Reads the first line of a connection; `None` when it is no hello of any version.
    pub fn read(line: &str) -> Option<Salute> {
        serde_json::from_str(line).ok().filter(|salute: &Salute| salute.kind == "hello")
    }
}

/// The `token` of a hello of which only the beginning is there; `None` when it is not in it. A text that is none goes unnoticed until
/// the rest has come.
#[must_use]
pub fn token_in(beginning: &[u8]) -> Option<String> {
    let mut token = None;
    // It fails at the end in any case: the rest of the line is missing.
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(Seek(&mut token));
    token
}

/// Looks for the token, and keeps nothing else.
struct Seek<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for Seek<'_> {
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

impl std::fmt::Debug for Salute {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Salute").field("version", &self.version).finish_non_exhaustive()
    }
}

/// One task to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStart {
    /// Which attempt.
    pub attempt: TaskAttemptId,
    /// Program and arguments, templates filled in.
    pub command: Vec<String>,
    /// Added to the executor's minimal environment.
    pub env: BTreeMap<String, String>,
    /// Working directory; the container's when left out.
    pub cwd: Option<String>,
    /// How many slots it takes.
    pub slots: u32,
    /// Limit of its cgroup; `None` leaves it to the executor's own. Bytes.
    pub limit: Option<Bytes>,
    /// Heap budget of its runtime; `None` where no runtime is declared. Bytes.
    pub heap: Option<Bytes>,
    /// Exit codes by which its runtime says that the heap is full.
    pub heap_exit_codes: Vec<i32>,
    /// Longest it may run. Milliseconds.
    pub timeout_ms: Option<u64>,
    /// It may be given more while it runs: near its limit it is held, and the master is asked. Longest time to be held. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<u64>,
    /// A directory of this attempt alone: made, with those above it, before its program starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that serde expects, from its words about one that it does not know.
    fn expected<T: DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
        let words = serde_json::from_str::<T>(r#"{"kind":"?"}"#).expect_err("no such kind").to_string();
        words.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_lists_of_kinds_are_whole() {
        assert_eq!(expected::<FromExecutor>(), FromExecutor::KINDS);
        assert_eq!(expected::<ToExecutor>(), ToExecutor::KINDS);
    }

    #[test]
    fn what_is_not_known_is_told_from_what_is_wrong() {
        let stop = ToExecutor::Stop { attempt: "map/7@2".parse().expect("id") };
        assert_eq!(ToExecutor::read(r#"{"kind":"stop","attempt":"map/7@2","later":[1]}"#), Ok(stop));
        assert_eq!(ToExecutor::read(r#"{"kind":"stopp"}"#), Err(LineError::Unknown("stopp".into())));
        for (line, says) in [(r#"{"kind":"stop"}"#, "attempt"), (r#"{"kind":"stop","attempt":"map"}"#, "map/7@2")] {
            let error = ToExecutor::read(line).expect_err(line);
            assert!(matches!(&error, LineError::Wrong { kind, .. } if kind == "stop"), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        for line in ["", "[]", "{}", r#"{"kind":7}"#, "GET / HTTP/1.1"] {
            assert!(matches!(FromExecutor::read(line), Err(LineError::NoMessage(_))), "{line}");
        }
    }

    #[test]
    fn a_hello_of_a_later_version_still_says_who_speaks() {
        let salute = Salute::read(r#"{"kind":"hello","version":9,"token":"s","slots":{"cores":4}}"#).expect("a hello");
        assert_eq!((salute.version, salute.token.as_str()), (9, "s"));
        assert!(!format!("{salute:?}").contains("\"s\""));
        assert_eq!(Salute::read(r#"{"kind":"started","version":9,"token":"s"}"#), None);
    }

    #[test]
    fn the_token_is_found_in_a_hello_that_is_not_all_there() {
        let hello = FromExecutor::Hello {
            version: VERSION,
            container: "job.1.e1.c1".parse().expect("id"),
            token: "se\"cret".into(),
            slots: 1024,
            task_groups: true,
            running: (1..2000).map(|n| format!("map/{n}@1").parse().expect("id")).collect(),
            unacked: Vec::new(),
        };
        let line = serde_json::to_vec(&hello).expect("writes");
        let shown = line.windows(7).position(|w| w == b"\"slots\"").expect("it is after the token");
        for end in 0..line.len().min(MAX_UNPROVEN) {
            let found = token_in(&line[..end]);
            assert!(found.is_none() || found.as_deref() == Some("se\"cret"), "{found:?} in {end} bytes");
            assert_eq!(found.is_some(), end >= shown - 1, "in {end} bytes");
        }
        assert!(shown < 1024 && line.len() > MAX_UNPROVEN, "it is where it has to be in a long one");
        assert_eq!(token_in(br#"{"running":[{"token":"a"}],"slots":{"token":["b"]},"token":"c","#).as_deref(), Some("c"));
        for none in ["", "[", r#"["token","a"]"#, r#"{"token":7}"#, r#"{"tokens":"a""#, "token", &"[".repeat(MAX_UNPROVEN)] {
            assert_eq!(token_in(none.as_bytes()), None, "{none:.40}");
        }
    }
}
