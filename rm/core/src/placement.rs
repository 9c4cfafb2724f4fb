//! Placement rules of a request: constraints, preferences, and the levels by which a preference is
//! relaxed.
//!
//! Plain data of the request. This module knows neither the nodes nor the containers;
//! [`crate::sched`] applies the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{Name, NodeId, RequestId};

/// Placement rules of a request: constraints and preferences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementRules {
    /// Allowed nodes; empty for all.
    pub nodes: Vec<NodeId>,
    /// Allowed racks; empty for all.
    pub racks: Vec<Name>,
    /// Nodes that are used only while no other node fits.
    pub avoid_nodes: Vec<NodeId>,
    /// Racks that are used only while no other rack fits.
    pub avoid_racks: Vec<Name>,
    /// Preferred nodes.
    pub prefer_nodes: Vec<NodeId>,
    /// Preferred racks; considered after the preferred nodes.
    pub prefer_racks: Vec<Name>,
    /// Relaxation of the preference when the preferred nodes have no free capacity.
    pub relax: RelaxPolicy,
    /// Labels that the node must have, all of them.
    pub labels: BTreeSet<Name>,
    /// Conditions on the node's attributes.
    pub attributes: BTreeMap<Name, AttributeCondition>,
    /// Tolerated taints, with the required value; `None` for any value.
    pub tolerate: BTreeMap<Name, Option<String>>,
    /// Anti-affinity.
    pub apart: Option<AntiAffinity>,
    /// Even distribution over nodes or racks, instead of dense packing.
    pub spread: Option<PlacementScope>,
}

impl PlacementRules {
    /// True when the request tolerates the taint.
    pub fn tolerates(&self, taint: &Name, value: &str) -> bool {
        self.tolerate
            .get(taint)
            .is_some_and(|wanted| wanted.as_deref().is_none_or(|wanted| wanted == value))
    }
}

/// Time after which a preference is relaxed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelaxPolicy {
    /// Relaxed immediately.
    #[default]
    AtOnce,
    /// Relaxed after a container has waited this long: first from node to rack, after the same time
    /// again to any node.
    After(Duration),
    /// Never relaxed: the preference is a constraint.
    Never,
}

/// Condition on an attribute of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeCondition {
    /// The attribute exists, with any value.
    Exists,
    /// The attribute does not exist.
    Absent,
    /// The value is one of these.
    OneOf(BTreeSet<String>),
    /// The attribute does not exist, or its value is none of these.
    NoneOf(BTreeSet<String>),
}

/// Scope of a placement rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementScope {
    /// One node.
    Node,
    /// One rack; a node without a rack is a rack by itself.
    Rack,
}

/// Anti-affinity: no common node or rack with containers of these requests of the same application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AntiAffinity {
    /// Requests to keep away from; empty for the request's own containers.
    pub from: Vec<RequestId>,
    /// Scope of the rule.
    pub level: PlacementScope,
}

/// Locality level: how far from its preference a container may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalityLevel {
    /// Preferred nodes only.
    Nodes,
    /// Also preferred racks, and the racks of preferred nodes.
    Racks,
    /// Any node.
    Anywhere,
}

impl LocalityLevel {
    /// Level at the start of a wait.
    pub fn first(place: &PlacementRules) -> Self {
        match place.relax {
            RelaxPolicy::AtOnce => LocalityLevel::Anywhere,
            RelaxPolicy::After(_) if !place.prefer_nodes.is_empty() => LocalityLevel::Nodes,
            RelaxPolicy::After(_) if !place.prefer_racks.is_empty() => LocalityLevel::Racks,
            RelaxPolicy::After(_) => LocalityLevel::Anywhere,
            RelaxPolicy::Never
                if place.prefer_nodes.is_empty() && place.prefer_racks.is_empty() =>
            {
                LocalityLevel::Anywhere
            }
            RelaxPolicy::Never => LocalityLevel::Racks,
        }
    }
    /// Next level, and the wait until then. `None` when the level does not change any more.
    pub fn next(self, place: &PlacementRules) -> Option<(LocalityLevel, Duration)> {
        let RelaxPolicy::After(wait) = place.relax else {
            return None;
        };
        match self {
            LocalityLevel::Nodes => Some((LocalityLevel::Racks, wait)),
            LocalityLevel::Racks => Some((LocalityLevel::Anywhere, wait)),
            LocalityLevel::Anywhere => None,
        }
    }
}
