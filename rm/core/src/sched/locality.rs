//! The rest of a placement: where a container would rather go, and whom it keeps away from.
//!
//! Owned by the application's record. A preference gives way by steps, from nodes to racks to anywhere; what moves it is a timer of
//! the cluster, never the passing of time as such, so that a loop that stood still makes nobody hasty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::{AppId, Name, NodeId, RequestId};

use super::index::{FreeIndex, NodeIx};
use crate::app::App;
use crate::ask::{Level, Placement, Relax};
use crate::cluster::Cluster;

/// How far from its preference a container may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// To the preferred nodes.
    Nodes,
    /// To the preferred racks too, and to the racks of the preferred nodes.
    Racks,
    /// Anywhere.
    Anywhere,
}

impl Reach {
    /// Where a container begins that has just begun to wait.
    pub fn first(place: &Placement) -> Self {
        match place.relax {
            Relax::AtOnce => Reach::Anywhere,
            Relax::After(_) if !place.prefer_nodes.is_empty() => Reach::Nodes,
            Relax::After(_) if !place.prefer_racks.is_empty() => Reach::Racks,
            Relax::After(_) => Reach::Anywhere,
            Relax::Never if place.prefer_nodes.is_empty() && place.prefer_racks.is_empty() => Reach::Anywhere,
            Relax::Never => Reach::Racks,
        }
    }
    /// Where it goes on after one more wait, and how long that is. `None` when it does not move any more.
    pub fn next(self, place: &Placement) -> Option<(Reach, Duration)> {
        let Relax::After(wait) = place.relax else { return None };
        match self {
            Reach::Nodes => Some((Reach::Racks, wait)),
            Reach::Racks => Some((Reach::Anywhere, wait)),
            Reach::Anywhere => None,
        }
    }
}

/// The racks a preference points to.
pub(crate) fn preferred_racks<'a>(index: &'a FreeIndex, place: &'a Placement) -> BTreeSet<&'a Name> {
    let of_nodes = match place.relax {
        Relax::AtOnce | Relax::After(_) => place.prefer_nodes.as_slice(),
        Relax::Never => &[],
    };
    let of_nodes = of_nodes.iter().filter_map(|node| index.slot(index.ix(node)?)?.traits.rack.as_ref());
    place.prefer_racks.iter().chain(of_nodes).collect()
}

/// How many live containers of one request are on each node.
pub(crate) type Spots = BTreeMap<NodeIx, u32>;

/// Where the live containers of an application's requests are. Kept from the first ask on that wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    of: BTreeMap<RequestId, Spots>,
    /// Requests of which others keep away because they said so.
    shy: BTreeSet<RequestId>,
}

impl Whereabouts {
    /// A container came.
    pub(crate) fn came(&mut self, request: &RequestId, node: NodeIx) {
        let count = self.of.entry(request.clone()).or_default().entry(node).or_default();
        *count = count.saturating_add(1);
    }
    /// A container ended.
    pub(crate) fn went(&mut self, request: &RequestId, node: NodeIx) {
        let Some(spots) = self.of.get_mut(request) else { return };
        if let Some(count) = spots.get_mut(&node) {
            *count = count.saturating_sub(1);
        }
        spots.retain(|_, count| *count > 0);
        if spots.is_empty() {
            self.of.remove(request);
        }
    }
    /// Where one request's containers are.
    pub(crate) fn of(&self, request: &RequestId) -> Option<&Spots> {
        self.of.get(request)
    }
    /// A request was taken in, changed or dropped.
    pub(crate) fn says(&mut self, request: &RequestId, place: Option<&Placement>) {
        let shy = place.and_then(|p| p.apart.as_ref()).is_some_and(|apart| !apart.from.is_empty());
        if shy {
            self.shy.insert(request.clone());
        } else {
            self.shy.remove(request);
        }
    }
    /// True when others keep away from some request of this application because they said so.
    pub(crate) fn has_shy(&self) -> bool {
        !self.shy.is_empty()
    }
    /// True when this request keeps others away.
    pub(crate) fn is_shy(&self, request: &RequestId) -> bool {
        self.shy.contains(request)
    }
}

impl Cluster {
    /// What a request says of its place is new, or it is gone.
    pub(crate) fn place_changed(&mut self, app_id: &AppId, request: &RequestId) {
        let Some(app) = self.apps.get(app_id) else { return };
        let place = app.requests.get(request).map(|r| &r.ask.place);
        let wanted = place.is_some_and(looks_around);
        let fresh = (app.spots.is_none() && wanted).then(|| self.whereabouts(app));
        let Some(app) = self.apps.get_mut(app_id) else { return };
        let Some(spots) = app.spots.as_mut() else {
            app.spots = fresh;
            return;
        };
        // whoever was kept away may have a place now
        self.room_changed |= spots.is_shy(request);
        spots.says(request, app.requests.get(request).map(|r| &r.ask.place));
    }

    /// Where an application's live containers are, counted anew.
    pub(crate) fn whereabouts(&self, app: &App) -> Whereabouts {
        let mut spots = Whereabouts::default();
        for c in app.containers.iter().filter_map(|id| self.containers.get(id)).filter(|c| c.state.is_alive()) {
            if let (Some(request), Some(ix)) = (&c.request, self.index.ix(&c.node)) {
                spots.came(request, ix);
            }
        }
        for (request, asked) in app.requests.iter() {
            spots.says(request, Some(&asked.ask.place));
        }
        spots
    }
}

/// True when a placement asks where other containers are.
pub(crate) fn looks_around(place: &Placement) -> bool {
    place.apart.is_some() || place.spread.is_some()
}

/// Places that a container must not share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Barred<'a> {
    /// Nodes.
    pub(crate) nodes: BTreeSet<NodeIx>,
    /// Racks.
    pub(crate) racks: BTreeSet<&'a Name>,
}

impl<'a> Barred<'a> {
    /// Where a container of this request must not go, because of others that it keeps away from or that keep away from it.
    pub(crate) fn apart(index: &'a FreeIndex, app: &'a App, request: &RequestId, place: &'a Placement) -> Self {
        let mut barred = Barred::default();
        let Some(spots) = &app.spots else { return barred };
        if let Some(apart) = &place.apart {
            let own = std::slice::from_ref(request);
            let from = if apart.from.is_empty() { own } else { apart.from.as_slice() };
            for other in from {
                barred.add(index, spots.of(other), apart.level);
            }
        }
        // never beside each other holds both ways
        for shy in spots.shy.iter().filter(|shy| *shy != request) {
            let Some(apart) = app.requests.get(shy).and_then(|r| r.ask.place.apart.as_ref()) else { continue };
            if apart.from.contains(request) {
                barred.add(index, spots.of(shy), apart.level);
            }
        }
        barred
    }
    /// Also keeps away from where these are.
    pub(crate) fn add(&mut self, index: &'a FreeIndex, spots: Option<&Spots>, level: Level) {
        for ix in spots.into_iter().flat_map(BTreeMap::keys) {
            match (level, index.slot(*ix).and_then(|slot| slot.traits.rack.as_ref())) {
                (Level::Rack, Some(rack)) => {
                    self.racks.insert(rack);
                }
                (Level::Rack, None) | (Level::Node, _) => {
                    self.nodes.insert(*ix);
                }
            }
        }
    }
    /// Also keeps away from these.
    pub(crate) fn avoid(&mut self, index: &'a FreeIndex, nodes: &[NodeId], racks: &'a [Name]) {
        self.nodes.extend(nodes.iter().filter_map(|node| index.ix(node)));
        self.racks.extend(racks);
    }
    /// True for a node that is barred, by itself or with its rack.
    pub(crate) fn bars(&self, ix: NodeIx, rack: Option<&Name>) -> bool {
        self.nodes.contains(&ix) || rack.is_some_and(|rack| self.racks.contains(rack))
    }
}

/// Where containers of a request are, by place: each count, smallest first, with the places that have it.
pub(crate) fn crowds<'a>(index: &'a FreeIndex, spots: &Spots, level: Level) -> BTreeMap<u32, Barred<'a>> {
    let mut racks: BTreeMap<&'a Name, u32> = BTreeMap::new();
    let mut by_count: BTreeMap<u32, Barred<'a>> = BTreeMap::new();
    for (ix, count) in spots {
        match (level, index.slot(*ix).and_then(|slot| slot.traits.rack.as_ref())) {
            (Level::Rack, Some(rack)) => {
                let sum = racks.entry(rack).or_default();
                *sum = sum.saturating_add(*count);
            }
            (Level::Rack, None) | (Level::Node, _) => {
                by_count.entry(*count).or_default().nodes.insert(*ix);
            }
        }
    }
    for (rack, count) in racks {
        by_count.entry(count).or_default().racks.insert(rack);
    }
    by_count
}
