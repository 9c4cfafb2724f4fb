//! The first line on standard output of a daemon that was started with `--attached`, for the program that started it.

use headroom_types::{EnforcerKind, NodeId, Resource};
use serde::{Deserialize, Serialize};

use super::nodes::Health;

/// How the start ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartReport<T> {
    /// The daemon answers.
    Ready(T),
    /// The daemon ends.
    Failed {
        /// The error with its causes.
        error: String,
        /// Another process listens at the address.
        address_in_use: bool,
    },
}

/// A resource manager that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerReady {
    /// Its address: `http://127.0.0.1:7070`.
    pub url: String,
}

/// A node agent that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReady {
    /// Its address: `http://127.0.0.1:41033`.
    pub url: String,
    /// The node.
    pub node: NodeId,
    /// The enforcer of its limits.
    pub enforcer: EnforcerKind,
    /// Whether the enforcer proved itself.
    pub health: Health,
    /// Why this enforcer, and what better ones lacked.
    pub notes: Vec<String>,
    /// What the node offers.
    pub offers: Resource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reports_read_back() {
        let ready = StartReport::Ready(ManagerReady { url: "http://127.0.0.1:7070".into() });
        let text = serde_json::to_string(&ready).expect("a line");
        assert_eq!(text, r#"{"ready":{"url":"http://127.0.0.1:7070"}}"#);
        assert_eq!(serde_json::from_str::<StartReport<ManagerReady>>(&text).expect("reads"), ready);
        let text = r#"{"failed":{"error":"no space","address_in_use":false}}"#;
        let failed = StartReport::Failed { error: "no space".into(), address_in_use: false };
        assert_eq!(serde_json::from_str::<StartReport<NodeReady>>(text).expect("reads"), failed);
    }
}
