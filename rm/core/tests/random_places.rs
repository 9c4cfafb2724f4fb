//! Random requests with all placement rules, on nodes that register and disconnect. Checked
//! properties:
//!
//! - Safety: the invariants hold after every event, so no request waits that could be placed, with
//!   regard to reservations and preferences. No container is on a node that its request does not
//!   allow, or next to a container that its anti-affinity excludes.
//! - Liveness: when containers end and no new requests arrive, every request that a node can hold
//!   gets all its containers, regardless of reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_rm_core::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, PlacementRules, RelaxationPolicy,
};
use headroom_rm_core::request::ContainerRequest;
use headroom_rm_core::sched::constraint::misfit;
use headroom_rm_core::sched::index::IndexedNode;
use headroom_rm_core::testkit::{ClusterScenario, FakeNode, ask, id, size};
use headroom_rm_core::{ClusterCall, ClusterSettings, DryRun, Exclusive, NodeProperties};
use headroom_types::{AppId, ContainerId, ExitReason, NodeId, RequestId, Resource};
use proptest::prelude::*;

const APPS: u8 = 3;
const REQUESTS: u8 = 4;
const NODES: u8 = 6;

#[derive(Clone, Debug)]
enum Op {
    Node(u8),
    Cut(u8),
    Ask { app: u8, request: u8, more: u8 },
    Withdraw { app: u8, request: u8 },
    Exit(u8),
    Work,
    Wait(u16),
    Restart,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..NODES).prop_map(Op::Node),
        1 => (0..NODES).prop_map(Op::Cut),
        8 => (0..APPS, 0..REQUESTS, 1u8..4).prop_map(|(app, request, more)| Op::Ask { app, request, more }),
        1 => (0..APPS, 0..REQUESTS).prop_map(|(app, request)| Op::Withdraw { app, request }),
        6 => any::<u8>().prop_map(Op::Exit),
        3 => Just(Op::Work),
        4 => (0u16..1500).prop_map(Op::Wait),
        1 => Just(Op::Restart),
    ]
}

fn any_traits() -> impl Strategy<Value = NodeProperties> {
    let taint = proptest::option::weighted(0.2, 0u8..2);
    (
        proptest::option::of(0u8..3),
        any::<bool>(),
        0u8..5,
        proptest::option::of(0u8..2),
        taint,
    )
        .prop_map(|(rack, ssd, exclusive, zone, taint)| NodeProperties {
            taints: taint
                .map(|n| (id("etl"), format!("t{n}")))
                .into_iter()
                .collect(),
            rack: rack.map(|n| id(&format!("r{n}"))),
            labels: ssd.then(|| id("ssd")).into_iter().collect(),
            exclusive: if exclusive == 0 {
                Exclusive::Yes
            } else {
                Exclusive::No
            },
            attributes: zone
                .map(|n| (id("zone"), format!("z{n}")))
                .into_iter()
                .collect(),
        })
}

fn any_node() -> impl Strategy<Value = (NodeProperties, Resource)> {
    (any_traits(), 2u64..9, proptest::option::of(1u64..4)).prop_map(|(traits, gib, gpus)| {
        let mut offers = size(gib, 4);
        offers.extra.extend(gpus.map(|n| (id("gpu"), n)));
        (traits, offers)
    })
}

fn any_place() -> impl Strategy<Value = PlacementRules> {
    let rack = |n: u8| id(&format!("r{n}"));
    let node = |n: u8| id(&format!("n{n}"));
    let wait = (0u64..1500).prop_map(|ms| RelaxationPolicy::After { ms });
    let relax = prop_oneof![1 => Just(RelaxationPolicy::AtOnce), 2 => wait, 1 => Just(RelaxationPolicy::Never)];
    let level = || prop_oneof![Just(PlacementLevel::Node), Just(PlacementLevel::Rack)];
    let from = proptest::sample::subsequence(vec![0u8, 1, 2, 3], 0..3);
    let apart = proptest::option::weighted(0.3, (from, level()));
    let zone = proptest::option::weighted(
        0.2,
        prop_oneof![
            Just(AttributeMatch::Exists),
            Just(AttributeMatch::Absent),
            Just(AttributeMatch::OneOf(["z1".to_owned()].into()))
        ],
    );
    let tolerated = proptest::option::weighted(0.4, proptest::option::of(0u8..2));
    let hard = (
        proptest::option::weighted(0.2, 0u8..3),
        proptest::bool::weighted(0.2),
        zone,
        tolerated,
    );
    let near = proptest::collection::vec(0..NODES, 0..3);
    let soft = (
        near,
        proptest::option::weighted(0.3, 0u8..3),
        relax,
        proptest::option::weighted(0.2, 0u8..3),
    );
    (hard, soft, apart, proptest::option::weighted(0.3, level())).prop_map(
        move |(hard, soft, apart, spread)| PlacementRules {
            racks: hard.0.map(rack).into_iter().collect(),
            labels: hard.1.then(|| id("ssd")).into_iter().collect(),
            attributes: hard.2.map(|m| (id("zone"), m)).into_iter().collect(),
            tolerate: hard
                .3
                .map(|value| (id("etl"), value.map(|n| format!("t{n}"))))
                .into_iter()
                .collect(),
            prefer_nodes: soft.0.into_iter().map(node).collect(),
            prefer_racks: soft.1.map(rack).into_iter().collect(),
            relax: soft.2,
            avoid_racks: soft.3.map(rack).into_iter().collect(),
            apart: apart.map(|(from, level)| AntiAffinityRule {
                from: from.into_iter().map(|n| id(&format!("q{n}"))).collect(),
                level,
            }),
            spread,
            ..PlacementRules::default()
        },
    )
}

fn any_ask() -> impl Strategy<Value = (PlacementRules, Resource)> {
    (
        any_place(),
        1u64..8,
        0u32..3,
        proptest::option::weighted(0.2, 1u64..3),
    )
        .prop_map(|(place, gib, cores, gpus)| {
            let mut size = size(gib, cores);
            size.extra.extend(gpus.map(|n| (id("gpu"), n)));
            (place, size)
        })
}

struct World {
    s: ClusterScenario,
    nodes: Vec<(NodeProperties, Resource)>,
    asks: Vec<(PlacementRules, Resource)>,
    apps: Vec<AppId>,
    counts: BTreeMap<(u8, u8), u32>,
    seen: BTreeSet<ContainerId>,
}

impl World {
    fn begin(
        nodes: Vec<(NodeProperties, Resource)>,
        asks: Vec<(PlacementRules, Resource)>,
    ) -> Self {
        let mut s = ClusterScenario::with(ClusterSettings {
            reserve_after: Duration::from_millis(500),
            ..ClusterSettings::default()
        });
        let apps = (0..APPS).map(|n| s.app(&format!("job-{n}"))).collect();
        let mut world = World {
            s,
            nodes,
            asks,
            apps,
            counts: BTreeMap::new(),
            seen: BTreeSet::new(),
        };
        world.node(0);
        world
    }
    fn node(&mut self, n: u8) {
        let name: NodeId = id(&format!("n{n}"));
        let (traits, offers) = self.nodes[usize::from(n)].clone();
        self.s
            .nodes
            .entry(name.clone())
            .or_insert_with(|| FakeNode {
                offers,
                traits,
                ..FakeNode::default()
            });
        self.s.register(name.as_str());
    }
    fn named(&self, n: u8) -> ContainerRequest {
        let (place, size) = self.asks[usize::from(n)].clone();
        ContainerRequest {
            place: place.into(),
            ..ask(&format!("q{n}"), 0, size)
        }
    }
    fn masters(&mut self) {
        for app in self.apps.clone() {
            let ack = self.s.cluster.app(&app).expect("app").updates.last();
            self.s.sync(&app, ack, vec![]).expect("syncs");
        }
    }
    fn run(&mut self, op: &Op) {
        match op {
            Op::Node(n) => self.node(*n),
            Op::Cut(n) => {
                if let Some(node) = self.s.nodes.get_mut(&id::<NodeId>(&format!("n{n}"))) {
                    node.connected = false;
                }
            }
            Op::Ask { app, request, more } => {
                let count = self.counts.entry((*app, *request)).or_default();
                *count += u32::from(*more);
                let ask = ContainerRequest {
                    count: *count,
                    ..self.named(*request)
                };
                // infeasible requests are refused and repeated later
                let _ = self.s.call(ClusterCall::Ask {
                    app: self.apps[usize::from(*app)].clone(),
                    ask: Box::new(ask),
                    how: DryRun::Really,
                });
            }
            Op::Withdraw { app, request } => {
                let _ = self.s.call(ClusterCall::Withdraw {
                    app: self.apps[usize::from(*app)].clone(),
                    request: id(&format!("q{request}")),
                });
                self.counts.remove(&(*app, *request));
            }
            Op::Exit(n) => {
                let all: Vec<ContainerId> = self
                    .s
                    .nodes
                    .values()
                    .filter(|n| n.connected)
                    .flat_map(|n| n.has.keys().cloned())
                    .collect();
                if let Some(container) = all.get(usize::from(*n) % all.len().max(1)) {
                    self.s.exit(container, ExitReason::Exit { code: 0 });
                }
            }
            Op::Work => {
                self.s.settle();
            }
            Op::Wait(ms) => {
                self.s.alive_for(Duration::from_millis(u64::from(*ms)));
            }
            Op::Restart => self.restart(),
        }
        self.masters_alive();
        self.where_they_may();
    }
    fn restart(&mut self) {
        self.s.restart();
        let names: Vec<String> = self.s.nodes.keys().map(ToString::to_string).collect();
        for name in names {
            self.s.register(&name);
        }
        self.s.alive_for(Duration::from_secs(11));
        for app in self.apps.clone() {
            self.s.master(&app).expect("registers");
        }
    }
    fn masters_alive(&mut self) {
        let due = self.s.now.0 / 5000;
        if due > 0 {
            self.masters();
        }
    }
    fn slot(&self, node: &NodeId) -> IndexedNode {
        let fake = &self.s.nodes[node];
        IndexedNode {
            node: node.clone(),
            traits: fake.traits.clone(),
            offers: None,
            room: None,
        }
    }
    /// Checks that every container granted since the last call is on an allowed node and violates
    /// no anti-affinity.
    fn where_they_may(&mut self) {
        let place =
            |request: &RequestId| &self.asks[usize::from(request.as_str().as_bytes()[1] - b'0')].0;
        let alive: Vec<_> = self
            .s
            .cluster
            .containers()
            .filter(|c| c.state.is_alive())
            .collect();
        for c in &alive {
            let request = c.request.as_ref().expect("the test has no managed masters");
            let fit = misfit(place(request), &self.slot(&c.node)).map(|m| m.to_string());
            assert_eq!(fit, None, "{} of {request} on {}", c.id, c.node);
            let Some(apart) = &place(request).apart else {
                continue;
            };
            for other in alive
                .iter()
                .filter(|o| o.id != c.id && o.id.app == c.id.app)
            {
                let theirs = other
                    .request
                    .as_ref()
                    .expect("the test has no managed masters");
                let named = if apart.from.is_empty() {
                    theirs == request
                } else {
                    apart.from.contains(theirs)
                };
                let rack = |node: &NodeId| self.s.nodes[node].traits.rack.clone();
                let together = match (apart.level, rack(&c.node)) {
                    (PlacementLevel::Rack, Some(rack_of_c)) => rack(&other.node) == Some(rack_of_c),
                    (PlacementLevel::Rack, None) | (PlacementLevel::Node, _) => {
                        c.node == other.node
                    }
                };
                let fresh = !self.seen.contains(&c.id) || !self.seen.contains(&other.id);
                let asked = self
                    .s
                    .cluster
                    .app(&c.id.app)
                    .is_some_and(|app| app.requests.contains_key(request));
                assert!(
                    !(named && together && fresh && asked),
                    "{} of {request} violates anti-affinity with {} of {theirs}",
                    c.id,
                    other.id
                );
            }
        }
        self.seen.extend(alive.iter().map(|c| c.id.clone()));
    }
    fn could_hold(&self, request: u8) -> bool {
        let (place, size) = &self.asks[usize::from(request)];
        self.s.nodes.iter().any(|(name, node)| {
            size.fits(&node.offers) && misfit(place, &self.slot(name)).is_none()
        })
    }
    /// Ends all running containers repeatedly, without new requests.
    fn heal(&mut self) {
        for n in 0..NODES {
            self.node(n);
            self.where_they_may();
        }
        for ((app, request), count) in self.counts.clone() {
            let ask = ContainerRequest {
                count,
                ..self.named(request)
            };
            let _ = self.s.call(ClusterCall::Ask {
                app: self.apps[usize::from(app)].clone(),
                ask: Box::new(ask),
                how: DryRun::Really,
            });
            // checked after each request: after a restart, anti-affinity of requests that are not
            // repeated yet is unknown
            self.where_they_may();
        }
        for _ in 0..60 {
            self.s.settle();
            let all: Vec<ContainerId> = self
                .s
                .cluster
                .containers()
                .filter(|c| c.state.is_alive())
                .map(|c| c.id.clone())
                .collect();
            for container in all {
                self.s.exit(&container, ExitReason::Exit { code: 0 });
                self.where_they_may();
            }
            self.s.alive_for(Duration::from_secs(1));
            self.masters();
        }
        for (app, request) in self.counts.keys() {
            let record = self
                .s
                .cluster
                .app(&self.apps[usize::from(*app)])
                .expect("app");
            let missing = record.missing(&id(&format!("q{request}")));
            let why = || self.s.cluster.why(&record.id, self.s.now);
            assert!(
                missing == 0 || !self.could_hold(*request),
                "{}/q{request} still waits for {missing}: {:?}",
                record.id,
                why()
            );
        }
        assert_eq!(
            self.s.cluster.reservations().count(),
            0,
            "a reservation without a waiting request"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn placement_rules_hold_and_no_request_starves(nodes in proptest::collection::vec(any_node(), 6),
                                                   asks in proptest::collection::vec(any_ask(), 4),
                                                   ops in proptest::collection::vec(any_op(), 1..60)) {
        let mut world = World::begin(nodes, asks);
        for op in &ops {
            world.run(op);
        }
        world.heal();
        world.s.check();
    }
}
