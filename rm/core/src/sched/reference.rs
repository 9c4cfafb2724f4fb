//! Reference placement that inspects every node, for the test that the index finds the same node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headroom_types::{Bytes, Cpus, Name, NodeId, RequestId, Resource, Tick, UnixMillis};
use proptest::prelude::*;

use super::fit::{self, PlacementNeed};
use super::index::{FreeIndex, IndexedNode};
use super::node_ix::NodeNumber;
use crate::app::ClusterApplication;
use crate::event::{AppSubmission, Exclusive, MasterKind, NodeProperties};
use crate::placement::{
    AntiAffinityRule, AttributeMatch, LocalityLevel, PlacementLevel, PlacementRules,
    RelaxationPolicy,
};
use crate::request::PendingRequest;
use crate::testkit::{ask, id};

const RACKS: [&str; 3] = ["r0", "r1", "r2"];
const LABELS: [&str; 3] = ["ssd", "gpu", "big"];
const TAINTS: [&str; 2] = ["etl", "spot"];
const VALUES: [&str; 3] = ["a", "b", "c"];
const REQUESTS: [&str; 3] = ["x", "y", "z"];
const NODES: u32 = 12;

fn node(n: u32) -> NodeId {
    id(&format!("n{n:02}"))
}

fn any_room() -> impl Strategy<Value = Resource> {
    (0u64..6, 0u32..4, proptest::option::of(0u64..20)).prop_map(|(gib, cores, gpu)| {
        let mut room = Resource::new(Bytes::from_gib(gib), Cpus::from_cores(cores));
        room.extra.extend(gpu.map(|n| (id::<Name>("gpu"), n)));
        room
    })
}

fn some_of<T: std::str::FromStr<Err: std::fmt::Debug> + Ord + std::fmt::Debug>(
    words: &'static [&'static str],
    most: usize,
) -> impl Strategy<Value = BTreeSet<T>> {
    proptest::sample::subsequence(words, 0..=most)
        .prop_map(|words| words.into_iter().map(id).collect())
}

fn any_taints() -> impl Strategy<Value = BTreeMap<Name, String>> {
    let one = (
        proptest::sample::select(&TAINTS[..]),
        proptest::sample::select(&VALUES[..2]),
    );
    let some = proptest::collection::vec(one, 1..3);
    let some = some.prop_map(|pairs| {
        pairs
            .into_iter()
            .map(|(name, value)| (id(name), value.to_owned()))
            .collect()
    });
    prop_oneof![2 => Just(BTreeMap::new()), 1 => some]
}

fn any_tolerated() -> impl Strategy<Value = BTreeMap<Name, Option<String>>> {
    let value = proptest::option::of(proptest::sample::select(&VALUES[..2]));
    let some = proptest::collection::vec((proptest::sample::select(&TAINTS[..]), value), 0..3);
    some.prop_map(|pairs| {
        pairs
            .into_iter()
            .map(|(name, value)| (id(name), value.map(str::to_owned)))
            .collect()
    })
}

fn any_traits() -> impl Strategy<Value = NodeProperties> {
    let rack = proptest::option::of(proptest::sample::select(&RACKS[..]));
    let zone = proptest::option::of(proptest::sample::select(&VALUES[..]));
    (rack, some_of(&LABELS, 3), 0u8..4, zone, any_taints()).prop_map(
        |(rack, labels, exclusive, zone, taints)| NodeProperties {
            taints,
            rack: rack.map(id),
            labels,
            exclusive: if exclusive == 0 {
                Exclusive::Yes
            } else {
                Exclusive::No
            },
            attributes: zone
                .map(|zone| (id("zone"), zone.to_owned()))
                .into_iter()
                .collect(),
        },
    )
}

fn any_match() -> impl Strategy<Value = AttributeMatch> {
    prop_oneof![
        Just(AttributeMatch::Exists),
        Just(AttributeMatch::Absent),
        some_of::<String>(&VALUES, 2).prop_map(AttributeMatch::OneOf),
        some_of::<String>(&VALUES, 2).prop_map(AttributeMatch::NoneOf),
    ]
}

fn some_nodes() -> impl Strategy<Value = Vec<NodeId>> {
    prop_oneof![2 => Just(vec![]), 1 => proptest::collection::vec((0..NODES + 2).prop_map(node), 1..4)]
}

fn some_racks() -> impl Strategy<Value = Vec<Name>> {
    prop_oneof![2 => Just(vec![]), 1 => some_of::<Name>(&RACKS, 2).prop_map(|racks| racks.into_iter().collect())]
}

fn any_level() -> impl Strategy<Value = PlacementLevel> {
    prop_oneof![Just(PlacementLevel::Node), Just(PlacementLevel::Rack)]
}

fn any_place() -> impl Strategy<Value = PlacementRules> {
    let relax = prop_oneof![
        Just(RelaxationPolicy::AtOnce),
        Just(RelaxationPolicy::After { ms: 1000 }),
        Just(RelaxationPolicy::Never)
    ];
    let labels = prop_oneof![2 => Just(BTreeSet::new()), 1 => some_of::<Name>(&LABELS, 2)];
    let attributes = prop_oneof![2 => Just(None), 1 => any_match().prop_map(Some)];
    let apart = proptest::option::of((some_of::<RequestId>(&REQUESTS, 2), any_level()));
    let soft = (
        some_nodes(),
        some_racks(),
        some_nodes(),
        some_racks(),
        relax,
    );
    let hard = (
        some_nodes(),
        some_racks(),
        labels,
        attributes,
        any_tolerated(),
    );
    (hard, soft, apart, proptest::option::of(any_level())).prop_map(
        |(hard, soft, apart, spread)| PlacementRules {
            nodes: hard.0,
            racks: hard.1,
            labels: hard.2,
            attributes: hard.3.map(|m| (id("zone"), m)).into_iter().collect(),
            tolerate: hard.4,
            avoid_nodes: soft.0,
            avoid_racks: soft.1,
            prefer_nodes: soft.2,
            prefer_racks: soft.3,
            relax: soft.4,
            apart: apart.map(|(from, level)| AntiAffinityRule {
                from: from.into_iter().collect(),
                level,
            }),
            spread,
        },
    )
}

/// Containers of an application: request number and node number.
type Containers = Vec<(usize, u32)>;

#[derive(Debug)]
struct World {
    index: FreeIndex,
    app: ClusterApplication,
    plain: BTreeMap<NodeNumber, IndexedNode>,
}

fn world(
    nodes: &[(u32, NodeProperties, Resource, bool)],
    asks: [(PlacementRules, Resource); 3],
    containers: &Containers,
) -> World {
    let mut index = FreeIndex::default();
    let mut plain = BTreeMap::new();
    for (n, traits, room, works) in nodes {
        let ix = index.enter(&node(*n), traits, room);
        index.put(ix, room.clone());
        if !works {
            index.remove(ix);
        }
        let room = works.then(|| room.clone());
        plain.insert(
            ix,
            IndexedNode {
                node: node(*n),
                traits: traits.clone(),
                offers: None,
                room,
            },
        );
    }
    let spec = AppSubmission {
        name: id("job"),
        queue: id("default"),
        priority: 0,
        user: "test".into(),
        lifetime: None,
        master: MasterKind::Unmanaged,
        key: None,
    };
    let mut app = ClusterApplication::new(id("job.1"), Arc::new(spec), UnixMillis(0));
    let mut spots = super::container_locations::ContainerLocations::default();
    for (request, (place, size)) in REQUESTS.into_iter().zip(asks) {
        let mut ask = ask(request, 1, size);
        spots.says(&id(request), Some(&place));
        ask.place = place.into();
        let counts = app.tallies.row_or_default(&id(request));
        app.requests
            .insert(id(request), PendingRequest::new(ask, counts, 0, Tick(0)));
    }
    for (request, n) in containers {
        if let Some(ix) = index.ix(&node(*n)) {
            spots.came(&id(REQUESTS[*request]), ix);
        }
    }
    app.spots = Some(spots);
    World { index, app, plain }
}

impl World {
    fn rack(&self, ix: NodeNumber) -> Result<&Name, NodeNumber> {
        self.plain
            .get(&ix)
            .and_then(|s| s.traits.rack.as_ref())
            .ok_or(ix)
    }
    fn count(&self, request: &RequestId, ix: NodeNumber, level: PlacementLevel) -> u32 {
        let spots = self
            .app
            .spots
            .as_ref()
            .and_then(|s| s.of(request))
            .cloned()
            .unwrap_or_default();
        let same = |other: &NodeNumber| match level {
            PlacementLevel::Node => *other == ix,
            PlacementLevel::Rack => self.rack(*other) == self.rack(ix),
        };
        spots
            .iter()
            .filter(|(other, _)| same(other))
            .map(|(_, n)| n)
            .sum()
    }
    fn allowed(&self, request: &RequestId, place: &PlacementRules, slot: &IndexedNode) -> bool {
        let t = &slot.traits;
        let in_racks = |racks: &[Name]| t.rack.as_ref().is_some_and(|r| racks.contains(r));
        let compares =
            place
                .attributes
                .iter()
                .all(|(name, wanted)| match (wanted, t.attributes.get(name)) {
                    (AttributeMatch::Exists, has) => has.is_some(),
                    (AttributeMatch::Absent, has) => has.is_none(),
                    (AttributeMatch::OneOf(values), has) => has.is_some_and(|h| values.contains(h)),
                    (AttributeMatch::NoneOf(values), has) => {
                        !has.is_some_and(|h| values.contains(h))
                    }
                });
        let ix = self.index.ix(&slot.node).expect("the node is in the index");
        let beside = |asking: &RequestId, other: &RequestId| {
            let Some(apart) = self
                .app
                .requests
                .get(asking)
                .and_then(|r| r.ask.place.apart.as_ref())
            else {
                return false;
            };
            let named = if apart.from.is_empty() {
                asking == other
            } else {
                apart.from.contains(other)
            };
            (named, apart.level).0
        };
        let level = |of: &RequestId| {
            self.app
                .requests
                .get(of)
                .expect("asked")
                .ask
                .place
                .apart
                .as_ref()
                .map_or(PlacementLevel::Node, |a| a.level)
        };
        let lonely = self.app.requests.keys().all(|other| {
            let mine = beside(request, other) && self.count(other, ix, level(request)) > 0;
            let theirs = beside(other, request) && self.count(other, ix, level(other)) > 0;
            !mine && !theirs
        });
        (place.nodes.is_empty() || place.nodes.contains(&slot.node))
            && (place.racks.is_empty() || in_racks(&place.racks))
            && place.labels.is_subset(&t.labels)
            && (t.exclusive == Exclusive::No || !t.labels.is_disjoint(&place.labels))
            && t.taints
                .iter()
                .all(|(name, value)| match place.tolerate.get(name) {
                    Some(Some(wanted)) => wanted == value,
                    Some(None) => true,
                    None => false,
                })
            && compares
            && lonely
    }
    /// Distance of a node from its preference: 0 preferred, 1 in a preferred rack, 2 elsewhere.
    fn distance(&self, place: &PlacementRules, slot: &IndexedNode) -> u8 {
        let Some(rack) = &slot.traits.rack else {
            return if place.prefer_nodes.contains(&slot.node) {
                0
            } else {
                2
            };
        };
        let of_nodes = self
            .plain
            .values()
            .filter(|s| place.prefer_nodes.contains(&s.node))
            .any(|s| s.traits.rack.as_ref() == Some(rack));
        let near = place.prefer_racks.contains(rack)
            || (of_nodes && place.relax != RelaxationPolicy::Never);
        match (place.prefer_nodes.contains(&slot.node), near) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    }
    fn scan(&self, request: &RequestId) -> Option<NodeNumber> {
        let asked = self.app.requests.get(request).expect("asked");
        let place = &asked.ask.place;
        let farthest = match asked.reach {
            LocalityLevel::Nodes => 0,
            LocalityLevel::Racks => 1,
            LocalityLevel::Anywhere => 2,
        };
        let rows = self.plain.iter().filter_map(|(ix, slot)| {
            let room = slot
                .room
                .as_ref()
                .filter(|room| asked.ask.resource.fits(room))?;
            let avoided = place.avoid_nodes.contains(&slot.node)
                || slot
                    .traits
                    .rack
                    .as_ref()
                    .is_some_and(|r| place.avoid_racks.contains(r));
            let distance = self.distance(place, slot);
            let crowd = place
                .spread
                .map_or(0, |level| self.count(request, *ix, level));
            (self.allowed(request, place, slot) && distance <= farthest).then_some((
                avoided,
                distance,
                crowd,
                room.memory,
                *ix,
            ))
        });
        rows.min().map(|(.., ix)| ix)
    }
}

type AnyNode = (u32, NodeProperties, Resource, bool);

fn any_node() -> impl Strategy<Value = AnyNode> {
    (
        0..NODES,
        any_traits(),
        any_room(),
        (0u8..6).prop_map(|n| n > 0),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// For any nodes and requests, the index finds the same node as a scan of all nodes.
    #[test]
    fn the_index_finds_the_same_node_as_a_scan(nodes in proptest::collection::vec(any_node(), 0..30),
                                               asks in proptest::array::uniform3((any_place(), any_room())),
                                               containers in proptest::collection::vec((0usize..3, 0..NODES), 0..10)) {
        let world = world(&nodes, asks, &containers);
        for request in REQUESTS.map(id::<RequestId>) {
            let need = PlacementNeed::of(&world.app, Some(&request)).expect("the request exists");
            let name = |ix: Option<NodeNumber>| ix.and_then(|ix| world.index.id(ix)).cloned();
            prop_assert_eq!(name(fit::choose(&world.index, need)), name(world.scan(&request)), "{}", request);
        }
    }

    /// A node that left is not found any more, and the index keeps no data of it.
    #[test]
    fn a_removed_node_leaves_no_data_in_the_index(nodes in proptest::collection::vec(any_node(), 0..30)) {
        let mut index = world(&nodes, Default::default(), &vec![]).index;
        for ix in index.members().clone() {
            index.leave(ix);
        }
        let shelves = index.open.len() + index.tainted.len() + index.rackless.len();
        let groups = index.labels.len() + index.racks.len() + index.extras.len() + index.attributes.len();
        prop_assert_eq!((shelves, groups, index.rooms().count()), (0, 0, 0));
    }
}
