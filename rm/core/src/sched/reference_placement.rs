//! Reference placement: inspects every node, for the comparison with the search of the index.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Name, NodeId, RequestId};

use super::container_locations::ContainersPerNode;
use super::fit::PlacementNeed;
use super::index::IndexedNode;
use super::node_ix::NodeNumber;
use crate::app::ClusterApplication;
use crate::event::Exclusive;
use crate::placement::{
    AntiAffinityRule, AttributeMatch, LocalityLevel, PlacementLevel, RelaxationPolicy,
};

/// What a placement depends on, beside the need itself.
#[derive(Clone, Debug)]
pub(crate) struct PlacementFacts<'a> {
    /// All member nodes.
    pub(crate) nodes: BTreeMap<NodeNumber, &'a IndexedNode>,
    /// Nodes of the application's live containers, by request.
    pub(crate) containers: BTreeMap<RequestId, ContainersPerNode>,
}

impl PlacementFacts<'_> {
    /// The node for the next container of `need`. `None` if no node is suitable.
    pub(crate) fn choose(&self, need: PlacementNeed<'_>) -> Option<NodeNumber> {
        let farthest = match need.reach {
            LocalityLevel::Nodes => 0,
            LocalityLevel::Racks => 1,
            LocalityLevel::Anywhere => 2,
        };
        let rows = self.nodes.iter().filter_map(|(ix, slot)| {
            let room = slot.room.as_ref().filter(|room| need.size.fits(room))?;
            let rack = slot.traits.rack.as_ref();
            let avoided = need.avoid.contains(&slot.node)
                || rack.is_some_and(|rack| need.place.avoid_racks.contains(rack));
            let distance = self.distance(need, slot);
            let crowd = match (need.place.spread, need.of) {
                (Some(level), Some((_, request))) => self.count(request, *ix, level),
                (None, _) | (_, None) => 0,
            };
            let suitable = self.allows(need, *ix, slot) && distance <= farthest;
            suitable.then_some((avoided, distance, crowd, room.memory, *ix))
        });
        rows.min().map(|(.., ix)| ix)
    }

    fn rack(&self, ix: NodeNumber) -> Result<&Name, NodeNumber> {
        let slot = self.nodes.get(&ix);
        slot.and_then(|slot| slot.traits.rack.as_ref()).ok_or(ix)
    }

    /// Number of containers of a request on a node, or in its rack.
    fn count(&self, request: &RequestId, ix: NodeNumber, level: PlacementLevel) -> u32 {
        let same = |other: &NodeNumber| match level {
            PlacementLevel::Node => *other == ix,
            PlacementLevel::Rack => self.rack(*other) == self.rack(ix),
        };
        let on = self.containers.get(request).into_iter().flatten();
        on.filter(|(other, _)| same(other)).map(|(_, n)| n).sum()
    }

    fn allows(&self, need: PlacementNeed<'_>, ix: NodeNumber, slot: &IndexedNode) -> bool {
        let (place, traits) = (need.place, &slot.traits);
        let rack = traits.rack.as_ref();
        let in_rack = rack.is_some_and(|rack| place.racks.contains(rack));
        let attributes = place.attributes.iter().all(|(name, wanted)| {
            let has = traits.attributes.get(name);
            match wanted {
                AttributeMatch::Exists => has.is_some(),
                AttributeMatch::Absent => has.is_none(),
                AttributeMatch::OneOf(values) => has.is_some_and(|has| values.contains(has)),
                AttributeMatch::NoneOf(values) => !has.is_some_and(|has| values.contains(has)),
            }
        });
        let tolerated = traits.taints.iter().all(|(name, value)| {
            let toleration = place.tolerate.get(name);
            toleration.is_some_and(|of| of.as_ref().is_none_or(|of| of == value))
        });
        let open = traits.exclusive == Exclusive::No || !traits.labels.is_disjoint(&place.labels);
        let apart = need.of.is_none_or(|(app, request)| {
            let others: BTreeSet<&RequestId> =
                app.requests.keys().chain(self.containers.keys()).collect();
            let meets = |other: &RequestId| self.meets(app, request, other, ix);
            !others.into_iter().any(meets)
        });
        (place.nodes.is_empty() || place.nodes.contains(&slot.node))
            && (place.racks.is_empty() || in_rack)
            && place.labels.is_subset(&traits.labels)
            && open
            && tolerated
            && attributes
            && apart
    }

    /// True when anti-affinity, of one of both requests, keeps a container of `request` away from
    /// the containers of `other` at this node.
    fn meets(
        &self,
        app: &ClusterApplication,
        request: &RequestId,
        other: &RequestId,
        ix: NodeNumber,
    ) -> bool {
        let rule = |of: &RequestId| app.requests.get(of)?.ask.place.apart.as_ref();
        let names = |rule: &AntiAffinityRule, of: &RequestId, named: &RequestId| {
            if rule.from.is_empty() {
                of == named
            } else {
                rule.from.contains(named)
            }
        };
        let own = rule(request).filter(|rule| names(rule, request, other));
        let theirs = rule(other).filter(|rule| names(rule, other, request));
        let levels = own.into_iter().chain(theirs).map(|rule| rule.level);
        levels
            .into_iter()
            .any(|level| self.count(other, ix, level) > 0)
    }

    /// Distance of a node from the preference: 0 preferred, 1 in a preferred rack, 2 elsewhere.
    fn distance(&self, need: PlacementNeed<'_>, slot: &IndexedNode) -> u8 {
        if need.prefer.contains(&slot.node) {
            return 0;
        }
        let Some(rack) = &slot.traits.rack else {
            return 2;
        };
        let prefers = |node: &NodeId| need.place.prefer_nodes.contains(node);
        let of_nodes = need.place.relax != RelaxationPolicy::Never
            && self
                .nodes
                .values()
                .any(|other| prefers(&other.node) && other.traits.rack.as_ref() == Some(rack));
        if need.place.prefer_racks.contains(rack) || of_nodes {
            1
        } else {
            2
        }
    }
}

#[cfg(test)]
#[path = "reference_placement_tests.rs"]
mod tests;
