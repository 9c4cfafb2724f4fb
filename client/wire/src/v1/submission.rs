//! The submission channel between a client and the master of a live job: version 1.
//!
//! A live job (`live = true` in its job file) accepts stages and tasks while it runs. The client
//! opens the channel with `POST /v1/apps/{app}/channel` (`Upgrade: headroom-submission/1`) at the
//! resource manager, which forwards the bytes to the master. Both sides send one JSON object per
//! line, at most [`MAX_LINE_BYTES`] bytes long. The client sends first.
//!
//! Everything that the client sends is idempotent: a stage by its name, a batch by its id, a task
//! by its key. After a lost connection the client connects again, repeats what was not answered,
//! and receives every result after its cursor. `docs/submission-protocol.md` describes both sides.
//! Within a version, kinds and fields are only added. A reader ignores unknown kinds and fields.

use std::collections::BTreeMap;

use headroom_types::exit::{Dimension, ExitReason};
use headroom_types::{Bytes, Name, NodeId, TaskId, UnixMillis};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::ProblemDetails;
use super::job::{AttemptRow, TaskState};
use super::task::{LineError, read};

/// Version of this protocol.
pub const VERSION: u32 = 1;
/// The protocol's name in the `Upgrade` header.
pub const UPGRADE: &str = "headroom-submission/1";
/// Maximum length of a line. Bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Maximum number of tasks in a batch.
pub const MAX_BATCH_TASKS: usize = 1000;
/// Maximum length of the `input` of a task. Bytes.
pub const MAX_INPUT_BYTES: usize = 64 << 10;
/// Maximum length of the `value` of a task. Bytes.
pub const MAX_VALUE_BYTES: usize = 16 << 10;
/// Maximum number of tasks of a job that have not ended.
pub const MAX_OPEN_TASKS: u32 = 10_000;

/// A message from the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromSubmitter {
    /// The first line of a connection.
    Submitter {
        /// [`VERSION`].
        version: u32,
        /// The secret of the channel. The resource manager adds it to a forwarded channel.
        #[serde(default)]
        token: String,
        /// The client's name for itself, the same on every connection. At most 64 characters.
        client: String,
        /// Cursor of the last result that the client has processed; 0 at first.
        #[serde(default)]
        after: u64,
    },
    /// Declares a stage. Repeating the same declaration changes nothing.
    Stage {
        /// Name of the stage.
        name: Name,
        /// The keys of a `[[stage]]` table of a job file, without `name`, `array`, `after`, `output`
        /// and `input`.
        spec: serde_json::Value,
    },
    /// Adds tasks. Repeating a batch changes nothing.
    Tasks {
        /// The batch; at most 64 characters, unique in the job.
        batch: String,
        /// The stage of all tasks.
        stage: Name,
        /// At most [`MAX_BATCH_TASKS`].
        items: Vec<SubmittedTask>,
    },
    /// Cancels tasks: waiting ones end at once, running ones are stopped.
    Cancel {
        /// Their keys; unknown ones and ended ones are ignored.
        keys: Vec<String>,
    },
    /// Cancels all tasks that have not ended.
    CancelAll,
    /// No more tasks follow. The job ends when all tasks have ended.
    Close,
    /// The results up to this cursor are processed; the master forgets them.
    Ack {
        /// Cursor of the last processed result.
        cursor: u64,
    },
    /// The client needs no more results, and the master forgets it. The last message.
    Leave,
    /// Heartbeat: at least one message in 10 s.
    Alive,
}

/// One task of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedTask {
    /// The client's name of the task; at most 128 characters, unique in the job.
    pub key: String,
    /// Arguments after the command of the stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables, in addition to those of the stage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Text for the program, which reads it from the file `HEADROOM_INPUT_FILE`. At most
    /// [`MAX_INPUT_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Memory of its first attempt in place of the stage's. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Tasks of a higher priority start first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Keys of earlier tasks that must succeed before. The task is cancelled if one of them fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Labels for displays. At most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

/// A message to the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToSubmitter {
    /// The answer to the first line.
    Welcome {
        /// [`VERSION`].
        version: u32,
        /// Number of tasks that the job accepts at present.
        credit: u32,
        /// Cursor of the last result so far.
        cursor: u64,
        /// True if the job is closed.
        closed: bool,
    },
    /// The stage is durable.
    StageAccepted {
        /// Its name.
        name: Name,
    },
    /// The batch is durable; it survives every process.
    Accepted {
        /// The batch.
        batch: String,
        /// Number of tasks that the job accepts at present.
        credit: u32,
    },
    /// The message is refused and has changed nothing.
    Refused {
        /// The refused batch or stage; `None` if the whole connection is refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// The error, with its code and remedy.
        error: Box<ProblemDetails>,
    },
    /// The number of tasks that the job accepts has grown.
    Credit {
        /// Number of tasks.
        credit: u32,
    },
    /// Attempts have started or changed, at most ten messages per second.
    States {
        /// The last state of each task since the previous message.
        tasks: Vec<SubmittedTaskState>,
    },
    /// A task has ended. Sent on every connection until acknowledged.
    Ended(Box<SubmittedTaskResult>),
    /// The job has ended. The last message.
    Over {
        /// True if all tasks have succeeded.
        succeeded: bool,
        /// The diagnostics, for users.
        diagnostics: String,
    },
    /// Heartbeat: at least one message in 5 s.
    Alive,
}

/// The state of a task that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedTaskState {
    /// Its key.
    pub key: String,
    /// Its state.
    pub state: TaskState,
    /// Number of its attempts so far.
    pub attempts: u32,
    /// Size of its present or next attempt. Bytes.
    pub memory: Bytes,
    /// Node of its running attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
}

/// The kind of a task's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmittedTaskOutcome {
    /// An attempt succeeded.
    Succeeded,
    /// Given up after failed attempts.
    Failed,
    /// Cancelled by the client, by a user, or because a task that it follows has failed.
    Cancelled,
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedTaskResult {
    /// Position in the stream of results, from 1.
    pub cursor: u64,
    /// Its key.
    pub key: String,
    /// Its id in the job, for `rmctl diagnose` and `rmctl logs`.
    pub task: TaskId,
    /// The kind of its end.
    pub outcome: SubmittedTaskOutcome,
    /// The value that the program wrote into the file `HEADROOM_VALUE_FILE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Size of that file if it is larger than [`MAX_VALUE_BYTES`]; `value` is absent then. Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_too_large: Option<Bytes>,
    /// Reason of the last attempt's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ExitReason>,
    /// The quantity that ran out, for memory failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimension: Option<Dimension>,
    /// The sentence for users, for failed and cancelled tasks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The end of standard error of the last attempt, for failed tasks. At most 4 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_tail: String,
    /// All attempts, the first one first; without evidence for those that succeeded.
    pub attempts: Vec<AttemptRow>,
}

/// `POST /v1/apps/{app}/channel-token`: access to the master of a live job, for a client that can
/// reach the master itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmissionChannelAccess {
    /// Address of the master: `tcp://HOST:PORT`, or `tls://HOST:PORT#` and the SHA-256 hash of its
    /// certificate. A restarted master has another address.
    pub url: String,
    /// The `token` of the first line. Secret.
    pub token: String,
    /// End of its validity; `None` if it is valid while the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<UnixMillis>,
}

headroom_types::debug_fields!(SubmissionChannelAccess { url, expires });

/// The part of a client's first line that is the same in every version: version and secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct SubmitterPreamble {
    /// Always `submitter`.
    kind: String,
    /// Version of all following messages.
    pub version: u32,
    /// The secret of the channel.
    #[serde(default)]
    pub token: String,
}

impl SubmitterPreamble {
    /// Parses the first line of a connection; `None` if it is not that of a client of any version.
    pub fn read(line: &str) -> Option<SubmitterPreamble> {
        serde_json::from_str(line)
            .ok()
            .filter(|first: &SubmitterPreamble| first.kind == "submitter")
    }
}

// Omits the secret.
headroom_types::debug_fields!(SubmitterPreamble { version });

impl FromSubmitter {
    /// All kinds of this version.
    pub const KINDS: [&'static str; 9] = [
        "submitter",
        "stage",
        "tasks",
        "cancel",
        "cancel_all",
        "close",
        "ack",
        "leave",
        "alive",
    ];

    /// Parses one line.
    pub fn read(line: &str) -> Result<Self, LineError> {
        read(line, &Self::KINDS)
    }
}

impl ToSubmitter {
    /// All kinds of this version.
    pub const KINDS: [&'static str; 9] = [
        "welcome",
        "stage_accepted",
        "accepted",
        "refused",
        "credit",
        "states",
        "ended",
        "over",
        "alive",
    ];

    /// Parses one line.
    pub fn read(line: &str) -> Result<Self, LineError> {
        read(line, &Self::KINDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_tasks_needs_keys_only() {
        let line = r#"{"kind":"tasks","batch":"b1","stage":"map","items":[{"key":"a"},{"key":"b","args":["7"],"memory":67108864}]}"#;
        let read = FromSubmitter::read(line).expect("reads");
        let FromSubmitter::Tasks { batch, items, .. } = &read else {
            panic!("{read:?}")
        };
        assert_eq!((batch.as_str(), items.len()), ("b1", 2));
        assert_eq!(items[1].memory, Some(Bytes::new(64 << 20)));
        assert_eq!(serde_json::to_string(&read).expect("writes"), line);
    }

    #[test]
    fn an_unknown_kind_is_told_from_an_invalid_message() {
        assert!(matches!(
            FromSubmitter::read(r#"{"kind":"later"}"#),
            Err(LineError::Unknown(kind)) if kind == "later"
        ));
        assert!(matches!(
            FromSubmitter::read(r#"{"kind":"tasks"}"#),
            Err(LineError::Wrong { kind, .. }) if kind == "tasks"
        ));
    }
}
