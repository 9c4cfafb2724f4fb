//! The first line on standard output of a daemon with `--attached`, for its parent program.

use headroom_types::{EnforcerKind, NodeId, Resource};
use serde::{Deserialize, Serialize};

use super::nodes::NodeHealthState;

/// The result of the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartReport<T> {
    /// The daemon accepts calls.
    Ready(T),
    /// The daemon ends.
    Failed {
        /// The error with its causes.
        error: String,
        /// True if another process listens at the address.
        address_in_use: bool,
    },
}

/// A resource manager that accepts calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerReady {
    /// Its address: `http://127.0.0.1:7070`.
    pub url: String,
}

/// A node agent that accepts calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReady {
    /// Its address: `http://127.0.0.1:41033`.
    pub url: String,
    /// The node.
    pub node: NodeId,
    /// The enforcer of its limits.
    pub enforcer: EnforcerKind,
    /// Result of the enforcer's self-test.
    pub health: NodeHealthState,
    /// Reason for the choice of the enforcer, and the missing requirements of better ones.
    pub notes: Vec<String>,
    /// Resources of the node.
    pub offers: Resource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reports_round_trip() {
        let ready = StartReport::Ready(ManagerReady {
            url: "http://127.0.0.1:7070".into(),
        });
        let text = serde_json::to_string(&ready).expect("a line");
        assert_eq!(text, r#"{"ready":{"url":"http://127.0.0.1:7070"}}"#);
        assert_eq!(
            serde_json::from_str::<StartReport<ManagerReady>>(&text).expect("reads"),
            ready
        );
        let text = r#"{"failed":{"error":"no space","address_in_use":false}}"#;
        let failed = StartReport::Failed {
            error: "no space".into(),
            address_in_use: false,
        };
        assert_eq!(
            serde_json::from_str::<StartReport<NodeReady>>(text).expect("reads"),
            failed
        );
    }
}
