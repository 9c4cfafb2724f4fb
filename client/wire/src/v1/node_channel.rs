//! Lines of the connection between a node agent and the resource manager, in both directions.
//!
//! `POST /v1/nodes/{node}/register` with the header `Upgrade: headroom-node/1` changes the protocol
//! of its connection: afterwards each side sends JSON objects, one per line, the resource manager
//! first the answer to the registration. A registered node opens another such connection with `GET
//! /v1/nodes/{node}/desired` and the same header.
//!
//! Without the header, and from a resource manager of an earlier version, the responses are
//! [`NodeRegistered`] and a stream of [`DesiredStateLine`], and reports are calls.

use serde::{Deserialize, Serialize};

use super::error::ProblemDetails;
use super::nodes::{DesiredStateLine, NodeRegistered, NodeReport, NodeReportReply};

/// Name of the protocol in the header `Upgrade`.
pub const NODE_CHANNEL_PROTOCOL: &str = "headroom-node/1";
/// Longest line of a node agent. Bytes.
pub const MAX_REPORT_LINE_BYTES: usize = 16 << 20;

/// Line of the node agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeChannelReport {
    /// Number of the report; the reply repeats it. An agent waits for the reply before it sends the
    /// next report.
    pub number: u64,
    /// The report.
    pub report: NodeReport,
}

/// Line of the resource manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeChannelLine {
    /// Answer to the registration that opened the connection. The first line.
    Registered(NodeRegistered),
    /// Desired state.
    Desired(DesiredStateLine),
    /// Reply to a report.
    Reply {
        /// Number of the report.
        number: u64,
        /// What became of it.
        outcome: NodeReportOutcome,
    },
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReportOutcome {
    /// It was processed.
    Received(NodeReportReply),
    /// It was refused, as a call with it would have been.
    Refused(ProblemDetails),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_these_forms() {
        let reply = NodeReportReply {
            received: vec!["job.1.e1.c2".parse().expect("id")],
            heartbeat_ms: Some(1000),
        };
        let line = NodeChannelLine::Reply {
            number: 7,
            outcome: NodeReportOutcome::Received(reply),
        };
        let text = r#"{"reply":{"number":7,"outcome":{"received":{"received":["job.1.e1.c2"],"heartbeat_ms":1000}}}}"#;
        assert_eq!(serde_json::to_string(&line).expect("JSON"), text);
        let registered = r#"{"registered":{"epoch":3,"acked":[]}}"#;
        let line: NodeChannelLine = serde_json::from_str(registered).expect("a line");
        assert_eq!(serde_json::to_string(&line).expect("JSON"), registered);
        let desired = r#"{"desired":{"epoch":3,"full":false,"containers":[]}}"#;
        let line: NodeChannelLine = serde_json::from_str(desired).expect("a line");
        assert_eq!(serde_json::to_string(&line).expect("JSON"), desired);
    }
}
