//! Placement rules of a request: constraints, preferences, and the levels by which a preference is
//! relaxed.
//!
//! Plain data of the request. This module knows neither the nodes nor the containers;
//! [`crate::sched`] applies the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};
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

/// A placement without rules.
pub(crate) static ANYWHERE: PlacementRules = PlacementRules {
    nodes: Vec::new(),
    racks: Vec::new(),
    avoid_nodes: Vec::new(),
    avoid_racks: Vec::new(),
    prefer_nodes: Vec::new(),
    prefer_racks: Vec::new(),
    relax: RelaxationPolicy::AtOnce,
    labels: BTreeSet::new(),
    attributes: BTreeMap::new(),
    tolerate: BTreeMap::new(),
    apart: None,
    spread: None,
};

/// Placement rules as a request stores them. Without rules, which is the usual case, they take one
/// machine word.
#[derive(Clone, Default)]
pub struct RequestPlacement(Option<Box<PlacementRules>>);

impl Deref for RequestPlacement {
    type Target = PlacementRules;
    #[inline]
    fn deref(&self) -> &PlacementRules {
        self.0.as_deref().unwrap_or(&ANYWHERE)
    }
}
impl DerefMut for RequestPlacement {
    fn deref_mut(&mut self) -> &mut PlacementRules {
        self.0.get_or_insert_default()
    }
}
impl From<PlacementRules> for RequestPlacement {
    fn from(rules: PlacementRules) -> Self {
        RequestPlacement((rules != ANYWHERE).then(|| Box::new(rules)))
    }
}
impl PartialEq for RequestPlacement {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.0.is_none() && other.0.is_none()) || **self == **other
    }
}
impl Eq for RequestPlacement {}
impl fmt::Debug for RequestPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_without_rules_takes_no_memory_and_equals_the_default() {
        assert_eq!(PlacementRules::default(), ANYWHERE);
        let mut place = RequestPlacement::from(PlacementRules::default());
        assert!(place.0.is_none());
        place.spread = Some(PlacementLevel::Node);
        assert!(place.0.is_some() && place != RequestPlacement::default());
        place.spread = None;
        assert_eq!(place, RequestPlacement::default());
    }
}
