//! Messages between the executor and a fork server: pure. `docs/fork-server-protocol.md` describes
//! both sides.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use headroom_types::TaskAttemptId;
use serde::{Deserialize, Serialize};

/// The variable with the number of the fork server's descriptor.
pub(crate) const CHANNEL_VARIABLE: &str = "HEADROOM_FORK_SERVER_FD";
/// Maximum length of a message. Bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 128 << 10;
/// The first message of a prepared process on its gate.
pub(crate) const GATE_READY: &[u8] = b"ready";
/// Start of the message of a process that could not be prepared; the reason follows.
pub(crate) const GATE_FAILED: &[u8] = b"failed ";
/// The message that lets a prepared process run its code.
pub(crate) const GATE_RUN: &[u8] = b"run";
/// The message of a process whose attempt ended as with exit code 0, and that can serve another one.
pub(crate) const GATE_DONE: &[u8] = b"done";

/// The purpose of a descriptor in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DescriptorRole {
    /// Standard output of the process.
    Stdout,
    /// Standard error of the process.
    Stderr,
    /// The socket on which the process waits for the executor.
    Gate,
    /// A file into which the process writes `0` to join a cgroup.
    Cgroup,
}

/// A request for a process. The descriptors follow as `SCM_RIGHTS`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename = "fork")]
pub(crate) struct ForkRequest<'a> {
    /// The task attempt.
    pub(crate) attempt: &'a TaskAttemptId,
    /// The code to run, as the fork server understands it.
    pub(crate) command: &'a [String],
    /// The whole environment.
    pub(crate) env: BTreeMap<&'a str, &'a str>,
    /// Working directory.
    pub(crate) cwd: &'a Path,
    /// Value for `/proc/self/oom_score_adj`.
    pub(crate) oom_score_adj: i32,
    /// Time between SIGTERM and SIGKILL when the attempt is stopped. Milliseconds.
    pub(crate) grace_ms: u64,
    /// Purpose of each descriptor, in their order.
    pub(crate) descriptors: Vec<DescriptorRole>,
}

/// The error of a request that cannot be sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForkRequestError {
    /// The message exceeds its maximum length.
    #[error(
        "the command and the environment take {0} bytes, at most {MAX_MESSAGE_BYTES} fit into a request to a fork server; pass large data as `input` or in files"
    )]
    TooLong(usize),
    /// A text is not Unicode.
    #[error("the request cannot be written as JSON: {0}")]
    NotUnicode(String),
}

impl ForkRequest<'_> {
    /// The message in its wire form.
    pub(crate) fn to_packet(&self) -> Result<Vec<u8>, ForkRequestError> {
        let packet =
            serde_json::to_vec(self).map_err(|e| ForkRequestError::NotUnicode(e.to_string()))?;
        if packet.len() > MAX_MESSAGE_BYTES {
            return Err(ForkRequestError::TooLong(packet.len()));
        }
        Ok(packet)
    }
}

/// The variables that JSON can contain; others are left out.
pub(crate) fn unicode_variables(env: &[(OsString, OsString)]) -> BTreeMap<&str, &str> {
    env.iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
        .collect()
}

/// A message of a fork server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ForkServerMessage {
    /// It is ready for requests.
    Ready {
        /// Version of the protocol.
        version: u32,
        /// Sentences for the log of the executor.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// The process exists, and its parent has ended.
    Forked {
        /// The attempt of the request.
        attempt: TaskAttemptId,
        /// Its pid.
        pid: i32,
    },
    /// The process could not be created.
    Failed {
        /// The attempt of the request.
        attempt: TaskAttemptId,
        /// The error, for users.
        error: String,
    },
}

/// Version of this protocol.
pub(crate) const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_descriptors() {
        let attempt = "map/7@2".parse().expect("id");
        let request = ForkRequest {
            attempt: &attempt,
            command: &["headroom.call:main".to_owned()],
            env: BTreeMap::from([("LANG", "C.UTF-8")]),
            cwd: Path::new("/work"),
            oom_score_adj: 300,
            grace_ms: 2000,
            descriptors: vec![
                DescriptorRole::Stdout,
                DescriptorRole::Stderr,
                DescriptorRole::Gate,
                DescriptorRole::Cgroup,
            ],
        };
        let packet = request.to_packet().expect("fits");
        assert_eq!(
            String::from_utf8_lossy(&packet),
            r#"{"kind":"fork","attempt":"map/7@2","command":["headroom.call:main"],"env":{"LANG":"C.UTF-8"},"cwd":"/work","oom_score_adj":300,"grace_ms":2000,"descriptors":["stdout","stderr","gate","cgroup"]}"#
        );
        let long = "x".repeat(MAX_MESSAGE_BYTES);
        let request = ForkRequest {
            env: BTreeMap::from([("LONG", long.as_str())]),
            ..request
        };
        let error = request.to_packet().expect_err("too long");
        assert!(matches!(error, ForkRequestError::TooLong(bytes) if bytes > MAX_MESSAGE_BYTES));
    }

    #[test]
    fn messages_are_parsed_and_unknown_fields_ignored() {
        let read = |text: &str| serde_json::from_str::<ForkServerMessage>(text);
        assert_eq!(
            read(r#"{"kind":"ready","version":1,"later":2}"#).expect("reads"),
            ForkServerMessage::Ready {
                version: 1,
                warnings: Vec::new()
            }
        );
        assert_eq!(
            read(r#"{"kind":"forked","attempt":"map/7@2","pid":7}"#).expect("reads"),
            ForkServerMessage::Forked {
                attempt: "map/7@2".parse().expect("id"),
                pid: 7
            }
        );
        assert!(read(r#"{"kind":"forked","attempt":"map/7@2"}"#).is_err());
    }

    const PAGE: &str = include_str!("../../../docs/fork-server-protocol.md");

    /// The JSON blocks of the page.
    fn examples() -> Vec<serde_json::Value> {
        let blocks = PAGE.split("```json").skip(1);
        blocks
            .filter_map(|block| block.split("```").next())
            .map(|text| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}")))
            .collect()
    }

    #[test]
    fn every_example_of_the_page_is_a_message() {
        let mut kinds = Vec::new();
        for example in examples() {
            let kind = example["kind"].as_str().expect("a kind").to_owned();
            if kind == "fork" {
                let attempt = "calls/12@1".parse().expect("id");
                let request = ForkRequest {
                    attempt: &attempt,
                    command: &[],
                    env: BTreeMap::new(),
                    cwd: Path::new("/"),
                    oom_score_adj: 0,
                    grace_ms: 0,
                    descriptors: Vec::new(),
                };
                let written = serde_json::to_value(&request).expect("writes");
                let fields = |value: &serde_json::Value| {
                    let object = value.as_object().expect("an object");
                    object.keys().cloned().collect::<Vec<_>>()
                };
                assert_eq!(fields(&example), fields(&written));
                for field in fields(&written).iter().filter(|field| *field != "kind") {
                    assert!(
                        PAGE.contains(&format!("| `{field}` |")),
                        "{field} has no row"
                    );
                }
            } else {
                let read = serde_json::from_value::<ForkServerMessage>(example);
                read.unwrap_or_else(|e| panic!("{kind}: {e}"));
            }
            kinds.push(kind);
        }
        assert_eq!(kinds, ["ready", "fork", "forked", "failed"]);
        assert!(PAGE.contains(&format!("Version of this protocol: **{VERSION}**")));
        assert!(PAGE.contains("131,072 bytes") && MAX_MESSAGE_BYTES == 131_072);
    }
}
