//! Placement constraints: the properties that a node must have, independent of its free resources.
//!
//! Pure functions: they compare a placement with the properties of a node and return mismatches.
//! They never read free resources, containers or the time.

use std::collections::BTreeSet;
use std::fmt;

use headroom_types::{Name, NodeId, Resource};

use super::index::{FreeIndex, IndexedNode};
use super::node_ix::NodeNumber;
use crate::event::{Exclusive, NodeProperties};
use crate::phrase::{either, pair};
pub(crate) use crate::placement::ANYWHERE;
use crate::placement::{AttributeMatch, PlacementRules, RelaxationPolicy};

/// Reason why a placement excludes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintMismatch<'a> {
    /// The placement names other nodes.
    NotNamed,
    /// The placement names other racks.
    Rack(Option<&'a Name>),
    /// The preference is a constraint, and the node is not preferred.
    NotPreferred,
    /// The node does not have this label.
    Label(&'a Name),
    /// The node only accepts requests that require one of its labels.
    Exclusive(&'a BTreeSet<Name>),
    /// The node has a taint that the placement does not tolerate.
    Taint {
        /// The taint.
        name: &'a Name,
        /// Value of the taint; may be empty.
        value: &'a str,
    },
    /// The node's attribute does not satisfy the condition.
    Attribute {
        /// The attribute.
        name: &'a Name,
        /// Required condition.
        wanted: &'a AttributeMatch,
        /// Actual value.
        has: Option<&'a str>,
    },
}

/// First mismatch of a node. `None` when the placement allows the node.
pub fn misfit<'a>(
    place: &'a PlacementRules,
    slot: &'a IndexedNode,
) -> Option<ConstraintMismatch<'a>> {
    if !place.nodes.is_empty() && !place.nodes.contains(&slot.node) {
        return Some(ConstraintMismatch::NotNamed);
    }
    of_traits(place, &slot.traits).or_else(|| of_preference(place, &slot.node, &slot.traits))
}

/// First permanent mismatch of a node. Taints are not permanent, like drains: a request may wait
/// for their removal.
pub(crate) fn lasting_misfit<'a>(
    place: &'a PlacementRules,
    slot: &'a IndexedNode,
) -> Option<ConstraintMismatch<'a>> {
    misfits(place, slot)
        .into_iter()
        .find(|misfit| !matches!(misfit, ConstraintMismatch::Taint { .. }))
}

/// All mismatches of a node.
pub fn misfits<'a>(
    place: &'a PlacementRules,
    slot: &'a IndexedNode,
) -> Vec<ConstraintMismatch<'a>> {
    let named = place.nodes.is_empty() || place.nodes.contains(&slot.node);
    let mut all: Vec<ConstraintMismatch<'a>> = (!named)
        .then_some(ConstraintMismatch::NotNamed)
        .into_iter()
        .collect();
    let traits = &slot.traits;
    all.extend(of_rack(place, traits));
    all.extend(of_labels(place, traits));
    all.extend(of_exclusive(place, traits));
    all.extend(of_taints(place, traits));
    all.extend(of_attributes(place, traits));
    all.extend(of_preference(place, &slot.node, traits));
    all
}

/// True when a placement allows only some nodes.
pub(crate) fn has_rules(place: &PlacementRules) -> bool {
    let insists = place.relax == RelaxationPolicy::Never
        && place.prefer_nodes.len() + place.prefer_racks.len() > 0;
    insists
        || place.nodes.len() + place.racks.len() + place.labels.len() + place.attributes.len() > 0
}

/// True when a placement allows other nodes than those that are open to all requests: fewer or
/// more.
pub(crate) fn is_choosy(place: &PlacementRules) -> bool {
    has_rules(place) || !place.tolerate.is_empty()
}

/// Smallest group of members that contains all nodes that a placement allows and that could ever
/// hold the size.
pub(crate) fn candidates<'a>(
    index: &'a FreeIndex,
    place: &'a PlacementRules,
    size: &Resource,
) -> Box<dyn Iterator<Item = &'a IndexedNode> + 'a> {
    let member = |ix: NodeNumber| index.slot(ix).filter(|slot| slot.offers.is_some());
    if !place.nodes.is_empty() {
        return Box::new(
            place
                .nodes
                .iter()
                .filter_map(|node| index.ix(node))
                .filter_map(member),
        );
    }
    let mut sets: Vec<Vec<&BTreeSet<NodeNumber>>> = Vec::new();
    let of_racks = |racks: &[Name]| {
        racks
            .iter()
            .filter_map(|rack| index.racks.get(rack))
            .map(|group| &group.members)
            .collect()
    };
    if !place.racks.is_empty() {
        sets.push(of_racks(&place.racks));
    }
    sets.extend(place.labels.iter().map(|label| {
        index
            .labels
            .get(label)
            .map(|group| &group.members)
            .into_iter()
            .collect()
    }));
    let extras = size.extra.iter().filter(|(_, pieces)| **pieces > 0);
    sets.extend(extras.map(|(name, _)| {
        index
            .extras
            .get(name)
            .map(|extra| &extra.members)
            .into_iter()
            .collect()
    }));
    for (name, wanted) in &place.attributes {
        if let AttributeMatch::OneOf(values) = wanted {
            let known = index.attributes.get(name);
            sets.push(
                values
                    .iter()
                    .filter_map(|value| known?.get(value))
                    .collect(),
            );
        }
    }
    let smallest = sets
        .into_iter()
        .min_by_key(|sets| sets.iter().map(|set| set.len()).sum::<usize>());
    match smallest {
        Some(sets) => Box::new(sets.into_iter().flatten().copied().filter_map(member)),
        None => Box::new(index.members().iter().copied().filter_map(member)),
    }
}

fn of_traits<'a>(
    place: &'a PlacementRules,
    traits: &'a NodeProperties,
) -> Option<ConstraintMismatch<'a>> {
    let rack = of_rack(place, traits).or_else(|| of_labels(place, traits).next());
    let kept = rack
        .or_else(|| of_exclusive(place, traits))
        .or_else(|| of_taints(place, traits).next());
    kept.or_else(|| of_attributes(place, traits).next())
}

fn of_rack<'a>(
    place: &'a PlacementRules,
    traits: &'a NodeProperties,
) -> Option<ConstraintMismatch<'a>> {
    let wrong = !place.racks.is_empty()
        && !traits
            .rack
            .as_ref()
            .is_some_and(|rack| place.racks.contains(rack));
    wrong.then_some(ConstraintMismatch::Rack(traits.rack.as_ref()))
}

fn of_labels<'a>(
    place: &'a PlacementRules,
    traits: &'a NodeProperties,
) -> impl Iterator<Item = ConstraintMismatch<'a>> {
    place
        .labels
        .iter()
        .filter(|label| !traits.labels.contains(*label))
        .map(ConstraintMismatch::Label)
}

fn of_exclusive<'a>(
    place: &'a PlacementRules,
    traits: &'a NodeProperties,
) -> Option<ConstraintMismatch<'a>> {
    match traits.exclusive {
        Exclusive::No => None,
        Exclusive::Yes => traits
            .labels
            .is_disjoint(&place.labels)
            .then_some(ConstraintMismatch::Exclusive(&traits.labels)),
    }
}

fn of_taints<'a>(
    place: &'a PlacementRules,
    traits: &'a NodeProperties,
) -> impl Iterator<Item = ConstraintMismatch<'a>> {
    let refused = traits
        .taints
        .iter()
        .filter(|(name, value)| !place.tolerates(name, value));
    refused.map(|(name, value)| ConstraintMismatch::Taint { name, value })
}

fn of_attributes<'a>(
    place: &'a PlacementRules,
    traits: &'a NodeProperties,
) -> impl Iterator<Item = ConstraintMismatch<'a>> {
    place.attributes.iter().filter_map(|(name, wanted)| {
        let has = traits.attributes.get(name).map(String::as_str);
        (!compares(wanted, has)).then_some(ConstraintMismatch::Attribute { name, wanted, has })
    })
}

fn of_preference<'a>(
    place: &'a PlacementRules,
    node: &NodeId,
    traits: &'a NodeProperties,
) -> Option<ConstraintMismatch<'a>> {
    match place.relax {
        RelaxationPolicy::AtOnce | RelaxationPolicy::After { .. } => None,
        RelaxationPolicy::Never
            if place.prefer_nodes.is_empty() && place.prefer_racks.is_empty() =>
        {
            None
        }
        RelaxationPolicy::Never => {
            let near = traits
                .rack
                .as_ref()
                .is_some_and(|rack| place.prefer_racks.contains(rack));
            (!near && !place.prefer_nodes.contains(node))
                .then_some(ConstraintMismatch::NotPreferred)
        }
    }
}

fn compares(wanted: &AttributeMatch, has: Option<&str>) -> bool {
    match wanted {
        AttributeMatch::Exists => has.is_some(),
        AttributeMatch::Absent => has.is_none(),
        AttributeMatch::OneOf(values) => has.is_some_and(|has| values.contains(has)),
        AttributeMatch::NoneOf(values) => has.is_none_or(|has| !values.contains(has)),
    }
}

impl fmt::Display for ConstraintMismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstraintMismatch::NotNamed => write!(f, "not among the named nodes"),
            ConstraintMismatch::Rack(None) => write!(f, "in no rack"),
            ConstraintMismatch::Rack(Some(rack)) => {
                write!(f, "in rack {rack}, which the request does not name")
            }
            ConstraintMismatch::NotPreferred => write!(f, "not among the required preferences"),
            ConstraintMismatch::Label(label) => write!(f, "does not have label {label}"),
            ConstraintMismatch::Exclusive(labels) if labels.is_empty() => {
                write!(f, "exclusive, and has no label")
            }
            ConstraintMismatch::Exclusive(labels) => write!(
                f,
                "exclusive for requests with label {}",
                either(labels.iter())
            ),
            ConstraintMismatch::Taint { name, value } => write!(
                f,
                "has taint {}, which it does not tolerate",
                pair(name, value)
            ),
            ConstraintMismatch::Attribute { name, wanted, has } => {
                match has {
                    Some(has) => write!(f, "attribute {name} is {has}")?,
                    None => write!(f, "has no attribute {name}")?,
                }
                match wanted {
                    AttributeMatch::Exists => Ok(()),
                    AttributeMatch::Absent => write!(f, ", required none"),
                    AttributeMatch::OneOf(values) => {
                        write!(f, ", required {}", either(values.iter()))
                    }
                    AttributeMatch::NoneOf(values) => {
                        write!(f, ", required any but {}", either(values.iter()))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testkit::id;

    fn slot(
        rack: Option<&str>,
        labels: &[&str],
        exclusive: Exclusive,
        zone: Option<&str>,
    ) -> IndexedNode {
        let attributes = zone
            .map(|zone| (id("zone"), zone.to_owned()))
            .into_iter()
            .collect();
        let labels = labels.iter().map(|l| id(l)).collect();
        let traits = NodeProperties {
            rack: rack.map(id),
            labels,
            exclusive,
            attributes,
            taints: BTreeMap::new(),
        };
        IndexedNode {
            node: id("n1"),
            traits,
            offers: None,
            room: None,
        }
    }
    fn with(change: impl FnOnce(&mut PlacementRules)) -> PlacementRules {
        let mut place = PlacementRules::default();
        change(&mut place);
        place
    }
    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(ToString::to_string).collect()
    }

    /// One row per rule: the placement, and its mismatch with a node in rack `r1` with label `ssd`
    /// and zone `a`.
    #[test]
    fn each_rule_excludes_nodes_that_violate_the_rule() {
        let node = slot(Some("r1"), &["ssd"], Exclusive::No, Some("a"));
        let rows: [(PlacementRules, Option<&str>); 13] = [
            (PlacementRules::default(), None),
            (with(|p| p.nodes = vec![id("n1")]), None),
            (
                with(|p| p.nodes = vec![id("n2")]),
                Some("not among the named nodes"),
            ),
            (with(|p| p.racks = vec![id("r2"), id("r1")]), None),
            (
                with(|p| p.racks = vec![id("r2")]),
                Some("in rack r1, which the request does not name"),
            ),
            (with(|p| p.labels = [id("ssd")].into()), None),
            (
                with(|p| p.labels = [id("gpu"), id("ssd")].into()),
                Some("does not have label gpu"),
            ),
            (
                with(|p| p.attributes = [(id("zone"), AttributeMatch::Exists)].into()),
                None,
            ),
            (
                with(|p| p.attributes = [(id("zone"), AttributeMatch::Absent)].into()),
                Some("attribute zone is a, required none"),
            ),
            (
                with(|p| {
                    p.attributes = [(id("zone"), AttributeMatch::OneOf(set(&["b", "c"])))].into()
                }),
                Some("attribute zone is a, required b or c"),
            ),
            (
                with(|p| p.attributes = [(id("zone"), AttributeMatch::NoneOf(set(&["a"])))].into()),
                Some("attribute zone is a, required any but a"),
            ),
            (
                with(|p| {
                    p.attributes = [(id("kernel"), AttributeMatch::NoneOf(set(&["5"])))].into()
                }),
                None,
            ),
            (
                with(|p| p.attributes = [(id("kernel"), AttributeMatch::Exists)].into()),
                Some("has no attribute kernel"),
            ),
        ];
        for (place, reason) in rows {
            assert_eq!(
                misfit(&place, &node).map(|m| m.to_string()).as_deref(),
                reason,
                "{place:?}"
            );
        }
    }

    #[test]
    fn an_exclusive_node_accepts_only_requests_with_one_of_its_labels() {
        let node = slot(None, &["gpu", "big"], Exclusive::Yes, None);
        assert_eq!(
            misfit(&PlacementRules::default(), &node)
                .map(|m| m.to_string())
                .as_deref(),
            Some("exclusive for requests with label big or gpu")
        );
        assert!(
            misfit(&with(|p| p.nodes = vec![id("n1")]), &node).is_some(),
            "a request that only names the node is excluded"
        );
        assert_eq!(
            misfit(&with(|p| p.labels = [id("gpu")].into()), &node),
            None
        );
        let exclusive = slot(None, &[], Exclusive::Yes, None);
        assert!(misfit(&PlacementRules::default(), &exclusive).is_some());
    }

    #[test]
    fn a_tainted_node_accepts_only_requests_that_tolerate_every_taint() {
        let mut node = slot(None, &[], Exclusive::No, None);
        node.traits.taints = [(id("etl"), String::new()), (id("user"), "ada".to_owned())].into();
        let tolerating = |pairs: &[(&str, Option<&str>)]| {
            with(|p| {
                p.tolerate = pairs
                    .iter()
                    .map(|(name, value)| (id(name), value.map(str::to_owned)))
                    .collect()
            })
        };
        let said = |place: &PlacementRules| misfit(place, &node).map(|m| m.to_string());
        assert_eq!(
            said(&PlacementRules::default()).as_deref(),
            Some("has taint etl, which it does not tolerate")
        );
        assert_eq!(
            said(&tolerating(&[("etl", None)])).as_deref(),
            Some("has taint user=ada, which it does not tolerate")
        );
        assert!(
            said(&tolerating(&[("etl", None), ("user", Some("bob"))])).is_some(),
            "a toleration of another value"
        );
        assert_eq!(
            said(&tolerating(&[("etl", None), ("user", Some("ada"))])),
            None
        );
        assert_eq!(
            said(&tolerating(&[
                ("etl", None),
                ("user", None),
                ("spot", None)
            ])),
            None,
            "tolerations of any value, and of a missing taint"
        );
        assert_eq!(misfits(&PlacementRules::default(), &node).len(), 2);
    }

    #[test]
    fn a_preference_that_is_never_relaxed_is_a_constraint() {
        let node = slot(Some("r1"), &[], Exclusive::No, None);
        let never = |nodes: &[&str], racks: &[&str]| {
            with(|p| {
                p.relax = RelaxationPolicy::Never;
                p.prefer_nodes = nodes.iter().map(|n| id(n)).collect();
                p.prefer_racks = racks.iter().map(|r| id(r)).collect();
            })
        };
        assert_eq!(misfit(&never(&[], &[]), &node), None);
        assert_eq!(misfit(&never(&["n1"], &[]), &node), None);
        assert_eq!(misfit(&never(&["n2"], &["r1"]), &node), None);
        assert_eq!(
            misfit(&never(&["n2"], &["r2"]), &node),
            Some(ConstraintMismatch::NotPreferred)
        );
        assert_eq!(
            misfits(
                &with(|p| (p.nodes, p.racks) = (vec![id("x")], vec![id("y")])),
                &node
            )
            .len(),
            2
        );
    }
}
