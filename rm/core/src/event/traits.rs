//! Node properties for placement, and their changes by an operator.
//!
//! Plain data.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::Name;

/// Node properties for placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeProperties {
    /// Rack; nodes of one rack fail together.
    pub rack: Option<Name>,
    /// Labels that a request can require.
    pub labels: BTreeSet<Name>,
    /// Whether only requests that require one of the labels are placed on this node.
    pub exclusive: Exclusive,
    /// Attributes that a request can compare.
    pub attributes: BTreeMap<Name, String>,
    /// Taints; a request must tolerate all of them. The value may be empty.
    pub taints: BTreeMap<Name, String>,
}

impl NodeProperties {
    /// True when the node accepts a request without any placement rules.
    pub fn takes_all(&self) -> bool {
        self.exclusive == Exclusive::No && self.taints.is_empty()
    }
}

/// Whether a node only accepts requests that require one of its labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclusive {
    /// All requests are accepted.
    #[default]
    No,
    /// Only requests that require one of its labels are accepted.
    Yes,
}

/// Change of a node's tags by an operator. Everything that is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagChange {
    /// Cordon or uncordon.
    pub cordon: Option<CordonState>,
    /// Labels to add.
    pub labels: BTreeSet<Name>,
    /// Labels to remove.
    pub drop_labels: BTreeSet<Name>,
    /// Attributes to set; `None` to remove one.
    pub attributes: BTreeMap<Name, Option<String>>,
    /// Taints to set; `None` to remove one.
    pub taints: BTreeMap<Name, Option<String>>,
}

/// Cordon of a node by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CordonState {
    /// No new containers, for this reason; running containers stay.
    On(String),
    /// New containers are allowed.
    Off,
}
