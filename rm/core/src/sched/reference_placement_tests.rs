//! The index finds the same node as the reference, for any nodes and requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headroom_types::{Bytes, Cpus, Name, NodeId, RequestId, Resource, Tick, UnixMillis};
use proptest::prelude::*;

use super::PlacementFacts;
use crate::app::ClusterApplication;
use crate::event::{AppSubmission, Exclusive, MasterKind, NodeProperties};
use crate::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, PlacementRules, RelaxationPolicy,
};
use crate::request::PendingRequest;
use crate::sched::container_locations::{ContainerLocations, ContainersPerNode};
use crate::sched::fit::{self, PlacementNeed};
use crate::sched::index::{FreeIndex, IndexedNode};
use crate::sched::node_ix::NodeNumber;
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
    containers: BTreeMap<RequestId, ContainersPerNode>,
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
    let mut spots = ContainerLocations::default();
    for (request, (place, size)) in REQUESTS.into_iter().zip(asks) {
        let mut ask = ask(request, 1, size);
        spots.says(&id(request), Some(&place));
        ask.place = place.into();
        let counts = app.tallies.row_or_default(&id(request));
        app.requests
            .insert(id(request), PendingRequest::new(ask, counts, 0, Tick(0)));
    }
    let mut counts: BTreeMap<RequestId, ContainersPerNode> = BTreeMap::new();
    for (request, n) in containers {
        if let Some(ix) = index.ix(&node(*n)) {
            let request = id(REQUESTS[*request]);
            spots.came(&request, ix);
            *counts.entry(request).or_default().entry(ix).or_default() += 1;
        }
    }
    app.spots = Some(spots);
    World {
        index,
        app,
        plain,
        containers: counts,
    }
}

impl World {
    /// The node that the reference chooses.
    fn scan(&self, need: PlacementNeed<'_>) -> Option<NodeNumber> {
        let facts = PlacementFacts {
            nodes: self.plain.iter().map(|(ix, slot)| (*ix, slot)).collect(),
            containers: self.containers.clone(),
        };
        facts.choose(need)
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
            prop_assert_eq!(name(fit::choose(&world.index, need)), name(world.scan(need)), "{}", request);
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
