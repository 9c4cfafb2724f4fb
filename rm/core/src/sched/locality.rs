//! Nodes and racks that the preference, the anti-affinity and the spread of a request select or
//! exclude.
//!
//! Computed from the index and the application's record, which own the data. A timer of the cluster
//! relaxes a preference, not the clock itself, so that a stall of the event loop does not relax
//! preferences.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Name, NodeId, RequestId};

use super::container_locations::{ContainerLocations, ContainersPerNode};
use super::index::FreeIndex;
use super::node_ix::NodeNumber;
use crate::allocations::Allocations;
use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::placement::{PlacementLevel, PlacementRules, RelaxationPolicy};

/// Preferred racks, including the racks of preferred nodes.
pub(crate) fn preferred_racks<'a>(
    index: &'a FreeIndex,
    place: &'a PlacementRules,
) -> BTreeSet<&'a Name> {
    let of_nodes = match place.relax {
        RelaxationPolicy::AtOnce | RelaxationPolicy::After { .. } => place.prefer_nodes.as_slice(),
        RelaxationPolicy::Never => &[],
    };
    let of_nodes = of_nodes
        .iter()
        .filter_map(|node| index.slot(index.ix(node)?)?.traits.rack.as_ref());
    place.prefer_racks.iter().chain(of_nodes).collect()
}

impl Cluster {
    /// Updates the placement data of a request after it was accepted, changed or dropped.
    pub(crate) fn place_changed(&mut self, app_id: &AppId, request: &RequestId) {
        let Some(app) = self.apps.get(app_id) else {
            return;
        };
        let place = app.requests.get(request).map(|r| &r.ask.place);
        let wanted = place.is_some_and(|place| looks_around(place));
        if app.spots.is_none() && !wanted {
            return; // the usual case
        }
        let fresh = (app.spots.is_none() && wanted).then(|| locations_of(app, &self.allocations));
        let Some(app) = self.apps.get_mut(app_id) else {
            return;
        };
        let Some(spots) = app.spots.as_mut() else {
            app.spots = fresh;
            return;
        };
        // a request that it excluded may fit now
        if spots.is_shy(request) {
            self.queue.note_room();
        }
        let asked = app.requests.get(request);
        spots.says(request, asked.map(|asked| &*asked.ask.place));
    }
}

/// Computes the nodes of an application's live containers.
pub(crate) fn locations_of(
    app: &ClusterApplication,
    allocations: &Allocations,
) -> ContainerLocations {
    let mut spots = ContainerLocations::default();
    for c in allocations.among(&app.containers) {
        if let (Some(request), true) = (&c.request, c.state.is_alive()) {
            spots.came(request, c.node_number);
        }
    }
    for (request, asked) in app.requests.iter() {
        spots.says(request, Some(&asked.ask.place));
    }
    spots
}

/// True when a placement depends on the nodes of other containers.
pub(crate) fn looks_around(place: &PlacementRules) -> bool {
    place.apart.is_some() || place.spread.is_some()
}

/// Nodes and racks that anti-affinity excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExcludedPlaces<'a> {
    /// Excluded nodes.
    pub(crate) nodes: BTreeSet<NodeNumber>,
    /// Excluded racks.
    pub(crate) racks: BTreeSet<&'a Name>,
}

impl<'a> ExcludedPlaces<'a> {
    /// Nodes and racks that anti-affinity excludes for a request, in both directions.
    pub(crate) fn apart(
        index: &'a FreeIndex,
        app: &'a ClusterApplication,
        request: &RequestId,
        place: &'a PlacementRules,
    ) -> Self {
        let mut barred = ExcludedPlaces::default();
        let Some(spots) = &app.spots else {
            return barred;
        };
        if let Some(apart) = &place.apart {
            let own = std::slice::from_ref(request);
            let from = if apart.from.is_empty() {
                own
            } else {
                apart.from.as_slice()
            };
            for other in from {
                barred.add(index, spots.of(other), apart.level);
            }
        }
        // anti-affinity applies in both directions
        for shy in spots.shy().filter(|shy| *shy != request) {
            let Some(apart) = app
                .requests
                .get(shy)
                .and_then(|r| r.ask.place.apart.as_ref())
            else {
                continue;
            };
            if apart.from.contains(request) {
                barred.add(index, spots.of(shy), apart.level);
            }
        }
        barred
    }
    /// Also excludes the nodes or racks of `spots`.
    pub(crate) fn add(
        &mut self,
        index: &'a FreeIndex,
        spots: Option<&ContainersPerNode>,
        level: PlacementLevel,
    ) {
        for ix in spots.into_iter().flat_map(BTreeMap::keys) {
            match (
                level,
                index.slot(*ix).and_then(|slot| slot.traits.rack.as_ref()),
            ) {
                (PlacementLevel::Rack, Some(rack)) => {
                    self.racks.insert(rack);
                }
                (PlacementLevel::Rack, None) | (PlacementLevel::Node, _) => {
                    self.nodes.insert(*ix);
                }
            }
        }
    }
    /// Also excludes these nodes and racks.
    pub(crate) fn avoid(&mut self, index: &'a FreeIndex, nodes: &[NodeId], racks: &'a [Name]) {
        self.nodes
            .extend(nodes.iter().filter_map(|node| index.ix(node)));
        self.racks.extend(racks);
    }
    /// True when the node or its rack is excluded.
    pub(crate) fn bars(&self, ix: NodeNumber, rack: Option<&Name>) -> bool {
        self.nodes.contains(&ix) || rack.is_some_and(|rack| self.racks.contains(rack))
    }
}

/// Nodes or racks of a request's containers, grouped by the number of containers, smallest first.
pub(crate) fn places_by_count<'a>(
    index: &'a FreeIndex,
    spots: &ContainersPerNode,
    level: PlacementLevel,
) -> BTreeMap<u32, ExcludedPlaces<'a>> {
    let mut racks: BTreeMap<&'a Name, u32> = BTreeMap::new();
    let mut by_count: BTreeMap<u32, ExcludedPlaces<'a>> = BTreeMap::new();
    for (ix, count) in spots {
        match (
            level,
            index.slot(*ix).and_then(|slot| slot.traits.rack.as_ref()),
        ) {
            (PlacementLevel::Rack, Some(rack)) => {
                let sum = racks.entry(rack).or_default();
                *sum = sum.saturating_add(*count);
            }
            (PlacementLevel::Rack, None) | (PlacementLevel::Node, _) => {
                by_count.entry(*count).or_default().nodes.insert(*ix);
            }
        }
    }
    for (rack, count) in racks {
        by_count.entry(count).or_default().racks.insert(rack);
    }
    by_count
}
