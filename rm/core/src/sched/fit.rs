//! Choice of a node for one container. Pure: reads a need and the index, returns a node.
//!
//! Criteria in order: constraints; not an avoided node or rack; as close to the preference as the
//! locality level allows; with `spread`, the fewest containers of the request; the least remaining
//! memory; the lowest node number.

use headroom_types::{NodeId, RequestId, Resource};

use super::constraint::{ANYWHERE, misfit};
use super::container_locations::ContainersPerNode;
use super::free_memory_index::FreeMemoryIndex;
use super::index::{FreeIndex, IndexedNode, fits};
use super::locality::{ExcludedPlaces, looks_around, places_by_count, preferred_racks};
use super::node_ix::NodeNumber;
use crate::app::ClusterApplication;
use crate::placement::{AttributeMatch, LocalityLevel, PlacementRules};
use crate::request::PendingRequest;
use crate::table::RowPosition;

/// Requirements of one container.
#[derive(Clone, Copy, Debug)]
pub struct PlacementNeed<'a> {
    /// Size.
    pub size: &'a Resource,
    /// Placement rules.
    pub place: &'a PlacementRules,
    /// Nodes that are used only while no other node fits.
    pub avoid: &'a [NodeId],
    /// Nodes that are used first.
    pub prefer: &'a [NodeId],
    /// Current locality level.
    pub reach: LocalityLevel,
    /// Application and request; `None` for a master, which has no anti-affinity.
    pub of: Option<(&'a ClusterApplication, &'a RequestId)>,
}

impl<'a> PlacementNeed<'a> {
    /// Requirements of the next container of a request, or of the master when no request is named.
    /// `None` when the request does not exist or the master is unmanaged.
    pub fn of(app: &'a ClusterApplication, request: Option<&RequestId>) -> Option<Self> {
        let Some(request) = request else {
            let size = &app.master.as_ref()?.resource;
            let (avoid, prefer) = (app.master_avoid.as_slice(), app.master_node.as_slice());
            return Some(PlacementNeed {
                size,
                place: &ANYWHERE,
                avoid,
                prefer,
                reach: LocalityLevel::Anywhere,
                of: None,
            });
        };
        let (request, asked) = app.requests.get_key_value(request)?;
        Some(PlacementNeed::of_asked(app, request, asked))
    }
    /// Like [`PlacementNeed::of`], for the row of a request.
    pub(crate) fn at(app: &'a ClusterApplication, request: Option<RowPosition>) -> Option<Self> {
        let Some(row) = request else {
            return PlacementNeed::of(app, None);
        };
        let (request, asked) = app.requests.entry_at(row)?;
        Some(PlacementNeed::of_asked(app, request, asked))
    }
    /// Requirements of the next container of a request that the caller has looked up.
    #[inline]
    pub(crate) fn of_asked(
        app: &'a ClusterApplication,
        request: &'a RequestId,
        asked: &'a PendingRequest,
    ) -> Self {
        let place = &asked.ask.place;
        PlacementNeed {
            size: &asked.ask.resource,
            place,
            avoid: place.avoid_nodes.as_slice(),
            prefer: place.prefer_nodes.as_slice(),
            reach: asked.reach,
            of: Some((app, request)),
        }
    }
    /// True when every schedulable node with enough free resources is suitable. If such a need does
    /// not fit, no larger one fits.
    pub fn is_anywhere(&self) -> bool {
        let p = self.place;
        if std::ptr::eq(p, &ANYWHERE) {
            return self.reach == LocalityLevel::Anywhere && !self.has_shy_neighbours();
        }
        let rules =
            p.nodes.len() + p.racks.len() + p.labels.len() + p.attributes.len() + p.tolerate.len();
        rules == 0
            && self.reach == LocalityLevel::Anywhere
            && p.apart.is_none()
            && !self.has_shy_neighbours()
    }
    /// True when only the size decides.
    pub(crate) fn is_plain(&self) -> bool {
        let p = self.place;
        if std::ptr::eq(p, &ANYWHERE) {
            return self.avoid.len() + self.prefer.len() == 0 && self.is_anywhere();
        }
        let preferences =
            self.avoid.len() + self.prefer.len() + p.avoid_racks.len() + p.prefer_racks.len();
        preferences == 0 && self.is_anywhere() && p.spread.is_none()
    }
    /// Nodes and racks that anti-affinity excludes.
    pub(crate) fn excluded(&self, index: &'a FreeIndex) -> ExcludedPlaces<'a> {
        self.of
            .map(|(app, request)| ExcludedPlaces::apart(index, app, request, self.place))
            .unwrap_or_default()
    }
    fn has_shy_neighbours(&self) -> bool {
        self.of
            .and_then(|(app, _)| app.spots.as_ref())
            .is_some_and(|spots| spots.has_shy())
    }
    fn spots(&self) -> Option<&'a ContainersPerNode> {
        let (app, request) = self.of?;
        app.spots.as_ref()?.of(request)
    }
}

/// Node for the container, if one has enough free resources now.
pub fn choose(index: &FreeIndex, need: PlacementNeed<'_>) -> Option<NodeNumber> {
    if need.is_plain() {
        return index.best_fit(need.size);
    }
    let apart = need
        .of
        .filter(|_| looks_around(need.place) || need.has_shy_neighbours());
    let barred = apart
        .map(|(app, request)| ExcludedPlaces::apart(index, app, request, need.place))
        .unwrap_or_default();
    let stages = stages(index, &need);
    let place = |barred: &ExcludedPlaces<'_>| {
        stages
            .iter()
            .find_map(|stage| NodeSearch { index, need, stage }.spread(barred))
    };
    if need.avoid.is_empty() && need.place.avoid_racks.is_empty() {
        return place(&barred);
    }
    let mut shy = barred.clone();
    shy.avoid(index, need.avoid, &need.place.avoid_racks);
    place(&shy).or_else(|| place(&barred))
}

/// One level of a preference.
enum PreferenceLevel<'a> {
    Nodes(&'a [NodeId]),
    Racks(Vec<&'a headroom_types::Name>),
    Anywhere,
}

fn stages<'a>(index: &'a FreeIndex, need: &PlacementNeed<'a>) -> Vec<PreferenceLevel<'a>> {
    let mut stages = Vec::with_capacity(3);
    if !need.prefer.is_empty() {
        stages.push(PreferenceLevel::Nodes(need.prefer));
    }
    if need.reach >= LocalityLevel::Racks {
        let racks: Vec<_> = preferred_racks(index, need.place).into_iter().collect();
        if !racks.is_empty() {
            stages.push(PreferenceLevel::Racks(racks));
        }
    }
    if need.reach == LocalityLevel::Anywhere {
        stages.push(PreferenceLevel::Anywhere);
    }
    stages
}

/// Nodes to search: single nodes, and indexes in their order.
#[derive(Default)]
struct CandidateNodes<'a> {
    nodes: Vec<NodeNumber>,
    shelves: Vec<&'a FreeMemoryIndex>,
}

/// Search for the best node within one level.
struct NodeSearch<'a, 'b> {
    index: &'a FreeIndex,
    need: PlacementNeed<'a>,
    stage: &'b PreferenceLevel<'a>,
}

impl<'a> NodeSearch<'a, '_> {
    /// Node with the fewest containers of the request when `spread` is set; otherwise the tightest
    /// fit.
    fn spread(&self, barred: &ExcludedPlaces<'a>) -> Option<NodeNumber> {
        let none = ContainersPerNode::new();
        let Some(level) = self.need.place.spread else {
            return self.tightest(barred, None);
        };
        let crowds = places_by_count(self.index, self.need.spots().unwrap_or(&none), level);
        let mut empty = barred.clone();
        for crowd in crowds.values() {
            empty.nodes.extend(&crowd.nodes);
            empty.racks.extend(&crowd.racks);
        }
        let tightest_used = || {
            crowds
                .values()
                .find_map(|crowd| self.tightest(barred, Some(crowd)))
        };
        self.tightest(&empty, None).or_else(tightest_used)
    }

    fn tightest(
        &self,
        barred: &ExcludedPlaces<'a>,
        only: Option<&ExcludedPlaces<'a>>,
    ) -> Option<NodeNumber> {
        let (index, size) = (self.index, self.need.size);
        let good = |ix: NodeNumber| {
            index.slot(ix).is_some_and(|slot| {
                let rack = slot.traits.rack.as_ref();
                fits(slot, size)
                    && !barred.bars(ix, rack)
                    && only.is_none_or(|only| only.bars(ix, rack))
                    && self.in_stage(slot)
                    && misfit(self.need.place, slot).is_none()
            })
        };
        let source = match only {
            Some(crowd) => CandidateNodes {
                nodes: crowd.nodes.iter().copied().collect(),
                shelves: racks(index, crowd.racks.iter().copied()),
            },
            None => self.source(barred),
        };
        let named = source.nodes.into_iter().filter(|ix| good(*ix));
        let named = named
            .filter_map(|ix| Some((index.room(ix)?.memory, ix)))
            .min();
        let shelved = source
            .shelves
            .iter()
            .filter_map(|list| list.first_fit(size.memory, size.cpus, good));
        let shelved = shelved.map(|entry| (entry.memory, entry.node)).min();
        named.into_iter().chain(shelved).min().map(|(_, ix)| ix)
    }

    fn in_stage(&self, slot: &IndexedNode) -> bool {
        match self.stage {
            PreferenceLevel::Nodes(nodes) => nodes.contains(&slot.node),
            PreferenceLevel::Racks(racks) => slot
                .traits
                .rack
                .as_ref()
                .is_some_and(|rack| racks.contains(&rack)),
            PreferenceLevel::Anywhere => true,
        }
    }

    /// Smallest group that contains every suitable node.
    fn source(&self, barred: &ExcludedPlaces<'a>) -> CandidateNodes<'a> {
        let (index, place) = (self.index, self.need.place);
        let named = match self.stage {
            PreferenceLevel::Nodes(nodes) => Some(*nodes),
            PreferenceLevel::Racks(_) | PreferenceLevel::Anywhere => {
                (!place.nodes.is_empty()).then_some(place.nodes.as_slice())
            }
        };
        if let Some(nodes) = named {
            return CandidateNodes {
                nodes: nodes.iter().filter_map(|node| index.ix(node)).collect(),
                shelves: vec![],
            };
        }
        let mut smallest = self.by_label();
        let mut offer = |shelves: Vec<&'a FreeMemoryIndex>, searches: usize| {
            let nodes: usize = shelves.iter().map(|list| list.len()).sum();
            if smallest
                .as_ref()
                .is_none_or(|(best, _)| nodes.min(searches) < *best)
            {
                smallest = Some((nodes.min(searches), shelves));
            }
        };
        let open_racks = |rack: &&headroom_types::Name| !barred.racks.contains(*rack);
        match self.stage {
            PreferenceLevel::Racks(near) => offer(
                racks(index, near.iter().copied().filter(open_racks)),
                usize::MAX,
            ),
            PreferenceLevel::Nodes(_) | PreferenceLevel::Anywhere => {}
        }
        if !place.racks.is_empty() {
            offer(
                racks(index, place.racks.iter().filter(open_racks)),
                usize::MAX,
            );
        }
        if let Some((_, shelves)) = index.rarest_extra(self.need.size) {
            offer(shelves.collect(), usize::MAX);
        }
        if place.labels.is_empty() {
            let tainted = (!place.tolerate.is_empty()).then_some(&index.tainted);
            offer(
                [&index.open].into_iter().chain(tainted).collect(),
                usize::MAX,
            );
        }
        let passed_over: usize = racks(index, barred.racks.iter().copied())
            .iter()
            .map(|list| list.len())
            .sum();
        if passed_over > SEARCH * index.racks.len() {
            let others = racks(index, index.racks.keys().filter(open_racks));
            let searches = SEARCH * others.len();
            offer(
                others.into_iter().chain([&index.rackless]).collect(),
                searches,
            );
        }
        let (size, shelves) = smallest.unwrap_or_default();
        match self.by_value() {
            Some((nodes, values)) if nodes.saturating_mul(nodes.min(SEARCH)) < size => {
                CandidateNodes {
                    nodes: values.flatten().copied().collect(),
                    shelves: vec![],
                }
            }
            Some(_) | None => CandidateNodes {
                nodes: vec![],
                shelves,
            },
        }
    }

    fn by_label(&self) -> Option<(usize, Vec<&'a FreeMemoryIndex>)> {
        let shelves = self
            .need
            .place
            .labels
            .iter()
            .map(|label| self.index.labels.get(label).map(|group| &group.free));
        let smallest = shelves.min_by_key(|list| list.map_or(0, FreeMemoryIndex::len))?;
        Some((
            smallest.map_or(0, FreeMemoryIndex::len),
            smallest.into_iter().collect(),
        ))
    }

    /// Attribute condition with the fewest nodes that have one of the values.
    fn by_value(
        &self,
    ) -> Option<(
        usize,
        impl Iterator<Item = &'a std::collections::BTreeSet<NodeNumber>>,
    )> {
        let listed = self
            .need
            .place
            .attributes
            .iter()
            .filter_map(|(name, wanted)| match wanted {
                AttributeMatch::OneOf(values) => {
                    let known = self.index.attributes.get(name);
                    let nodes = values.iter().filter_map(move |value| known?.get(value));
                    Some((
                        nodes
                            .clone()
                            .map(std::collections::BTreeSet::len)
                            .sum::<usize>(),
                        nodes,
                    ))
                }
                AttributeMatch::Exists | AttributeMatch::Absent | AttributeMatch::NoneOf(_) => None,
            });
        listed.min_by_key(|(nodes, _)| *nodes)
    }
}

/// Cost of one index search, in inspections of single nodes. Smaller in tests, which have few
/// nodes.
const SEARCH: usize = if cfg!(test) { 1 } else { 8 };

fn racks<'a>(
    index: &'a FreeIndex,
    names: impl Iterator<Item = &'a headroom_types::Name>,
) -> Vec<&'a FreeMemoryIndex> {
    names
        .filter_map(|rack| index.racks.get(rack))
        .map(|group| &group.free)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NodeProperties;
    use crate::placement::RelaxationPolicy;
    use crate::testkit::{id, size};

    fn index() -> FreeIndex {
        let mut index = FreeIndex::default();
        for (name, gib, rack) in [("big", 16, "r1"), ("mid", 8, "r2"), ("small", 4, "r1")] {
            let traits = NodeProperties {
                rack: Some(id(rack)),
                ..NodeProperties::default()
            };
            let ix = index.enter(&id(name), &traits, &size(gib, 4));
            index.put(ix, size(gib, 4));
        }
        index
    }
    fn pick(
        gib: u64,
        reach: LocalityLevel,
        change: impl FnOnce(&mut PlacementRules),
    ) -> Option<String> {
        let mut place = PlacementRules::default();
        change(&mut place);
        let need = PlacementNeed {
            size: &size(gib, 1),
            place: &place,
            avoid: &place.avoid_nodes,
            prefer: &place.prefer_nodes,
            reach,
            of: None,
        };
        let index = index();
        choose(&index, need)
            .and_then(|ix| index.id(ix))
            .map(ToString::to_string)
    }
    fn any(gib: u64, change: impl FnOnce(&mut PlacementRules)) -> Option<String> {
        pick(gib, LocalityLevel::Anywhere, change)
    }

    #[test]
    fn the_tightest_node_wins() {
        assert_eq!(any(3, |_| ()).as_deref(), Some("small"));
        assert_eq!(any(5, |_| ()).as_deref(), Some("mid"));
        assert_eq!(any(17, |_| ()), None);
    }

    #[test]
    fn an_avoided_place_is_taken_only_when_no_other_fits() {
        assert_eq!(
            any(3, |p| p.avoid_nodes = vec![id("small")]).as_deref(),
            Some("mid")
        );
        assert_eq!(
            any(9, |p| p.avoid_nodes = vec![id("big")]).as_deref(),
            Some("big")
        );
        assert_eq!(
            any(3, |p| p.avoid_racks = vec![id("r1")]).as_deref(),
            Some("mid")
        );
        assert_eq!(
            any(9, |p| p.avoid_racks = vec![id("r1")]).as_deref(),
            Some("big")
        );
    }

    #[test]
    fn named_places_are_a_constraint() {
        assert_eq!(
            any(3, |p| p.nodes = vec![id("big"), id("mid")]).as_deref(),
            Some("mid")
        );
        assert_eq!(any(9, |p| p.nodes = vec![id("mid")]), None);
        assert_eq!(any(5, |p| p.racks = vec![id("r1")]).as_deref(), Some("big"));
        let both = |p: &mut PlacementRules| {
            (p.nodes, p.avoid_nodes) = (vec![id("big"), id("mid")], vec![id("mid")])
        };
        assert_eq!(any(3, both).as_deref(), Some("big"));
    }

    #[test]
    fn a_preference_applies_up_to_its_locality_level() {
        let near = |p: &mut PlacementRules| {
            (p.prefer_nodes, p.relax) = (vec![id("small")], RelaxationPolicy::AtOnce)
        };
        assert_eq!(any(3, near).as_deref(), Some("small"));
        assert_eq!(
            any(5, near).as_deref(),
            Some("big"),
            "the rack of the preferred node comes before a tighter node elsewhere"
        );
        assert_eq!(pick(5, LocalityLevel::Nodes, near), None);
        assert_eq!(pick(5, LocalityLevel::Racks, near).as_deref(), Some("big"));
        assert_eq!(
            any(3, |p| p.prefer_racks = vec![id("r2")]).as_deref(),
            Some("mid")
        );
    }
}
