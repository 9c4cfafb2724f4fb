//! Infeasible requests: no node matches, no node is large enough, and which node is closest.

use headroom_types::{NodeId, Resource};

use super::place::rules;
use crate::node_table::NodeTable;
use crate::phrase::either;
use crate::placement::{AttributeMatch, PlacementRules, RelaxationPolicy};
use crate::sched::constraint::{
    ANYWHERE, candidates, has_rules, is_choosy, lasting_misfit, misfits,
};
use crate::sched::index::IndexedNode;

impl NodeTable {
    /// Checks whether a container is infeasible. Returns the reason and the largest capacity of a
    /// matching node. `None` while nothing is certain: without nodes, or during recovery.
    pub(crate) fn infeasible_reason(
        &self,
        size: &Resource,
        place: &PlacementRules,
    ) -> Option<(String, Resource)> {
        if !self.has_all_nodes() {
            return None;
        }
        let could = |slot: &&IndexedNode| lasting_misfit(place, slot).is_none();
        let holds = |slot: &IndexedNode| slot.offers.as_ref().is_some_and(|o| size.fits(o));
        if !has_rules(place) && size.extra.is_empty() {
            // usually the first node is large enough
            let mut members = self.by_offered_memory();
            if members.any(|slot| holds(slot) && could(&slot)) {
                return None;
            }
        }
        let named = place.nodes.iter().chain(
            place
                .prefer_nodes
                .iter()
                .filter(|_| place.relax == RelaxationPolicy::Never),
        );
        if named
            .into_iter()
            .any(|node| self.slot_of(node).is_none_or(|slot| slot.offers.is_none()))
        {
            return None; // the node may still register
        }
        let group = || candidates(self.index(), place, size);
        if group().filter(could).any(holds) {
            return None;
        }
        let largest =
            |slots: &mut dyn Iterator<Item = &IndexedNode>| -> Option<(NodeId, Resource)> {
                let sized = slots.filter_map(|slot| Some((slot.offers.clone()?, &slot.node)));
                sized
                    .max_by_key(|(offers, node)| (offers.memory, offers.cpus, *node))
                    .map(|(offers, node)| (node.clone(), offers))
            };
        let kind = largest(&mut group().filter(could));
        let sentence = self.no_node_has(place, size).or_else(|| match &kind {
            Some((node, offers)) => Some(too_small(size, place, node, offers)),
            None => self.closest(place),
        })?;
        let most = kind
            .map(|(_, offers)| offers)
            .or_else(|| self.largest().map(|(_, largest)| largest.clone()));
        Some((sentence, most.unwrap_or_default()))
    }

    /// First required property that no node has.
    fn no_node_has(&self, place: &PlacementRules, size: &Resource) -> Option<String> {
        let index = self.index();
        if let Some(label) = place
            .labels
            .iter()
            .find(|label| !index.labels.contains_key(*label))
        {
            return Some(format!("no node has label {label}"));
        }
        if !place.racks.is_empty()
            && !place
                .racks
                .iter()
                .any(|rack| index.racks.contains_key(rack))
        {
            return Some(format!("no node is in rack {}", either(place.racks.iter())));
        }
        if let Some(name) = size
            .extra
            .iter()
            .find(|(name, n)| **n > 0 && !index.extras.contains_key(*name))
            .map(|(name, _)| name)
        {
            return Some(format!("no node has {name}"));
        }
        place
            .attributes
            .iter()
            .find_map(|(name, wanted)| match wanted {
                AttributeMatch::OneOf(values) => {
                    let known = index.attributes.get(name);
                    let no_node = !values
                        .iter()
                        .any(|value| known.is_some_and(|known| known.contains_key(value)));
                    no_node.then(|| format!("no node has {name} {}", either(values.iter())))
                }
                AttributeMatch::Exists | AttributeMatch::Absent | AttributeMatch::NoneOf(_) => None,
            })
    }

    /// Reason when no node matches the rules: names the working node with the fewest mismatches.
    fn closest(&self, place: &PlacementRules) -> Option<String> {
        let memory = |slot: &IndexedNode| {
            std::cmp::Reverse(slot.offers.as_ref().map(|offers| offers.memory))
        };
        let working = candidates(self.index(), &ANYWHERE, &Resource::default())
            .filter(|slot| self.works(&slot.node));
        let rows = working.map(|slot| (misfits(place, slot), slot));
        let best = rows.min_by_key(|(against, slot)| (against.len(), memory(slot)));
        let kind = if is_choosy(place) {
            rules(place)
        } else {
            "open to all requests".into()
        };
        let Some((against, slot)) = best else {
            return Some(format!("no node is {kind}, and none takes work now"));
        };
        let reasons: Vec<String> = against.iter().map(ToString::to_string).collect();
        Some(format!(
            "no node is {kind}; closest is {}: {}",
            slot.node,
            reasons.join(", ")
        ))
    }
}

fn too_small(size: &Resource, place: &PlacementRules, node: &NodeId, offers: &Resource) -> String {
    if !is_choosy(place) {
        return format!("needs {size} on one node; the largest node is {node} with {offers}");
    }
    let only_named = PlacementRules {
        nodes: place.nodes.clone(),
        ..PlacementRules::default()
    };
    if rules(&only_named) == rules(place) {
        return format!(
            "needs {size} on one of the {} named nodes; the largest of them is {node} with {offers}",
            place.nodes.len()
        );
    }
    format!(
        "needs {size} on a node {}; the largest of those is {node} with {offers}",
        rules(place)
    )
}
