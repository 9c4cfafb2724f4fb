//! Placement rules of a request: constraints, preferences, and the levels by which a preference is
//! relaxed.
//!
//! Plain data of the request. This module knows neither the nodes nor the containers;
//! [`crate::sched`] applies the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use headroom_types::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, RelaxationPolicy,
};
use headroom_types::{Name, NodeId};

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
    pub relax: RelaxationPolicy,
    /// Labels that the node must have, all of them.
    pub labels: BTreeSet<Name>,
    /// Conditions on the node's attributes.
    pub attributes: BTreeMap<Name, AttributeMatch>,
    /// Tolerated taints, with the required value; `None` for any value.
    pub tolerate: BTreeMap<Name, Option<String>>,
    /// Anti-affinity.
    pub apart: Option<AntiAffinityRule>,
    /// Even distribution over nodes or racks, instead of dense packing.
    pub spread: Option<PlacementLevel>,
}

impl PlacementRules {
    /// True when the request tolerates the taint.
    pub fn tolerates(&self, taint: &Name, value: &str) -> bool {
        self.tolerate
            .get(taint)
            .is_some_and(|wanted| wanted.as_deref().is_none_or(|wanted| wanted == value))
    }
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
            RelaxationPolicy::AtOnce => LocalityLevel::Anywhere,
            RelaxationPolicy::After { .. } if !place.prefer_nodes.is_empty() => {
                LocalityLevel::Nodes
            }
            RelaxationPolicy::After { .. } if !place.prefer_racks.is_empty() => {
                LocalityLevel::Racks
            }
            RelaxationPolicy::After { .. } => LocalityLevel::Anywhere,
            RelaxationPolicy::Never
                if place.prefer_nodes.is_empty() && place.prefer_racks.is_empty() =>
            {
                LocalityLevel::Anywhere
            }
            RelaxationPolicy::Never => LocalityLevel::Racks,
        }
    }
    /// Next level, and the wait until then. `None` when the level does not change any more.
    pub fn next(self, place: &PlacementRules) -> Option<(LocalityLevel, Duration)> {
        let RelaxationPolicy::After { ms } = place.relax else {
            return None;
        };
        let wait = Duration::from_millis(ms);
        match self {
            LocalityLevel::Nodes => Some((LocalityLevel::Racks, wait)),
            LocalityLevel::Racks => Some((LocalityLevel::Anywhere, wait)),
            LocalityLevel::Anywhere => None,
        }
    }
}
