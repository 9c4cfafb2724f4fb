//! Parts of the placement rules of a request.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RequestId;

/// Relaxation of a preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "when", rename_all = "snake_case", deny_unknown_fields)]
pub enum RelaxationPolicy {
    /// At once.
    #[default]
    AtOnce,
    /// After a waiting time: first from node to rack, after the same time again to any node.
    After {
        /// Milliseconds.
        ms: u64,
    },
    /// Never: the preference is a constraint.
    Never,
}

/// A condition on an attribute of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AttributeMatch {
    /// The attribute exists, with any value.
    Exists,
    /// The attribute does not exist.
    Absent,
    /// The value is one of these.
    OneOf(BTreeSet<String>),
    /// The attribute does not exist, or has none of these values.
    NoneOf(BTreeSet<String>),
}

/// The level of a spread or an anti-affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementLevel {
    /// A node.
    Node,
    /// A rack; a node without a rack counts as a rack of its own.
    Rack,
}

/// Anti-affinity to containers of requests of the same application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AntiAffinityRule {
    /// The requests; empty for the request itself.
    #[serde(default)]
    pub from: Vec<RequestId>,
    /// Node or rack.
    pub level: PlacementLevel,
}
