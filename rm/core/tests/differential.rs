//! Random histories over random queue trees, in which each grant of a pass is compared with the
//! reference that sorts all waiters and inspects all nodes each time ([`Cluster::compare_passes`]; every
//! [`ClusterScenario`] does).
//!
//! [`Cluster::compare_passes`]: headroom_rm_core::Cluster::compare_passes

use std::time::Duration;

use headroom_rm_core::placement::{
    AntiAffinityRule, PlacementLevel, PlacementRules, RelaxationPolicy,
};
use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{
    LeafOrder, QueueDefinition, QueueShare, QueueState, ShareOrAmount,
};
use headroom_rm_core::request::ContainerRequest;
use headroom_rm_core::testkit::{ClusterScenario, ask, id, size};
use headroom_rm_core::{
    AppSubmission, CallAnswer, ClusterCall, ClusterSettings, DryRun, MasterKind,
};
use headroom_types::{AppId, ExitReason, NodeId};
use proptest::prelude::*;

const LEAVES: [&str; 5] = ["default", "etl", "adhoc", "lab.a", "lab.b"];
const USERS: [&str; 3] = ["ann", "ben", "cid"];
const REQUESTS: [&str; 3] = ["x", "y", "z"];
const NODES: u8 = 6;

/// Settings of one queue. Shares in tenths of the parent's resources.
#[derive(Clone, Debug)]
struct AnyQueue {
    guaranteed: Option<u32>,
    maximum: Option<u32>,
    weight: Option<u32>,
    priority: i32,
    fair: bool,
    user_limit: Option<u32>,
    master_share: Option<u32>,
    max_running: Option<u32>,
}

fn any_queue() -> impl Strategy<Value = AnyQueue> {
    let shares = (
        proptest::option::of(1u32..4),
        proptest::option::of(4u32..10),
        proptest::option::of(1u32..4),
    );
    let limits = (
        proptest::option::weighted(0.3, 3u32..10),
        proptest::option::weighted(0.3, 1u32..5),
        proptest::option::weighted(0.3, 1u32..4),
    );
    (shares, limits, -1i32..2, any::<bool>()).prop_map(|(shares, limits, priority, fair)| {
        AnyQueue {
            guaranteed: shares.0,
            maximum: shares.1,
            weight: shares.2,
            priority,
            fair,
            user_limit: limits.0,
            master_share: limits.1,
            max_running: limits.2,
        }
    })
}

impl AnyQueue {
    fn definition(&self, is_leaf: bool) -> QueueDefinition {
        let share = |tenths: Option<u32>| QueueShare {
            memory: tenths.map(|n| ShareOrAmount::Part(n * 100)),
            ..QueueShare::default()
        };
        let in_leaf = |value: Option<u32>| value.filter(|_| is_leaf);
        QueueDefinition {
            // Four children may be guaranteed a quarter each.
            guaranteed: share(self.guaranteed.map(|n| n.min(2))),
            maximum: share(self.maximum),
            weight: self.weight,
            priority: self.priority,
            order: if self.fair && is_leaf {
                LeafOrder::Fair
            } else {
                LeafOrder::Fifo
            },
            user_limit: in_leaf(self.user_limit).map(|n| n * 100),
            master_share: in_leaf(self.master_share).map(|n| n * 100),
            max_running: in_leaf(self.max_running),
            ..QueueDefinition::default()
        }
    }
}

fn any_tree() -> impl Strategy<Value = QueueTree> {
    proptest::array::uniform6(any_queue()).prop_map(|[etl, adhoc, lab, a, b, default]| {
        let below = [("a", a), ("b", b)].map(|(name, queue)| (id(name), queue.definition(true)));
        let lab = QueueDefinition {
            children: below.into(),
            ..lab.definition(false)
        };
        let children = [
            (id("etl"), etl.definition(true)),
            (id("adhoc"), adhoc.definition(true)),
            (id("default"), default.definition(true)),
            (id("lab"), lab),
        ];
        QueueTree::new(QueueDefinition {
            children: children.into(),
            ..QueueDefinition::default()
        })
        .expect("a valid tree")
    })
}

#[derive(Clone, Debug)]
enum Op {
    Node(u8),
    Cut(u8),
    Submit {
        leaf: usize,
        user: usize,
        priority: i32,
        managed: bool,
    },
    Ask {
        app: u8,
        request: usize,
        count: u32,
        gib: u64,
        cores: u32,
        priority: i32,
        rules: u8,
        node: u8,
    },
    Work,
    Exit(u8),
    Acknowledge(u8),
    Wait(u64),
    Tree(QueueTree),
    Move {
        app: u8,
        leaf: usize,
        priority: i32,
    },
    Pause {
        leaf: usize,
        paused: bool,
    },
    Kill(u8),
    Restart,
}

fn any_op() -> impl Strategy<Value = Op> {
    let asked = (0usize..3, 0u32..9, 1u64..6, 1u32..4);
    let rules = (-1i32..2, 0u8..10, 0..NODES);
    prop_oneof![
        3 => (0..NODES).prop_map(Op::Node),
        1 => (0..NODES).prop_map(Op::Cut),
        4 => (0usize..5, 0usize..3, -1i32..2, any::<bool>())
            .prop_map(|(leaf, user, priority, managed)| Op::Submit { leaf, user, priority, managed }),
        12 => (any::<u8>(), asked, rules).prop_map(|(app, (request, count, gib, cores), (priority, rules, node))| {
            Op::Ask { app, request, count, gib, cores, priority, rules, node }
        }),
        4 => Just(Op::Work),
        10 => any::<u8>().prop_map(Op::Exit),
        4 => any::<u8>().prop_map(Op::Acknowledge),
        3 => (0u64..4000).prop_map(Op::Wait),
        1 => any_tree().prop_map(Op::Tree),
        2 => (any::<u8>(), 0usize..5, -1i32..2).prop_map(|(app, leaf, priority)| Op::Move { app, leaf, priority }),
        2 => (0usize..5, any::<bool>()).prop_map(|(leaf, paused)| Op::Pause { leaf, paused }),
        1 => any::<u8>().prop_map(Op::Kill),
        1 => Just(Op::Restart),
    ]
}

struct World {
    s: ClusterScenario,
    apps: Vec<AppId>,
}

impl World {
    fn app(&self, n: u8) -> Option<AppId> {
        let count = self.apps.len();
        (count > 0).then(|| self.apps[usize::from(n) % count].clone())
    }

    /// Refusals are part of a history: of an ended application, of a queue that admits none.
    fn run(&mut self, op: Op) {
        match op {
            Op::Node(n) => {
                let name = format!("n{n}");
                if self.s.nodes.contains_key(&id::<NodeId>(&name)) {
                    let _ = self.s.try_register(&name);
                } else {
                    self.s.node(&name, size(4 + 3 * u64::from(n), 8));
                }
            }
            Op::Cut(n) => {
                if let Some(node) = self.s.nodes.get_mut(&id::<NodeId>(&format!("n{n}"))) {
                    node.connected = false;
                }
            }
            Op::Submit {
                leaf,
                user,
                priority,
                managed,
            } => self.submit(leaf, USERS[user], priority, managed),
            Op::Ask {
                app,
                request,
                count,
                gib,
                cores,
                priority,
                rules,
                node,
            } => {
                let asked = asked((request, count, gib, cores), (priority, rules, node));
                self.ask(app, asked);
            }
            Op::Work => {
                self.s.settle();
            }
            Op::Exit(n) => {
                let alive: Vec<_> = self.apps.iter().flat_map(|app| self.s.alive(app)).collect();
                let on_node = |c: &_| self.s.nodes.values().any(|node| node.has.contains_key(c));
                let alive: Vec<_> = alive.into_iter().filter(on_node).collect();
                if !alive.is_empty() {
                    let container = alive[usize::from(n) % alive.len()].clone();
                    self.s.exit(&container, ExitReason::Exit { code: 0 });
                }
            }
            Op::Acknowledge(n) => {
                let Some(app) = self.app(n) else { return };
                let updates = self.s.updates.get(&app).map(Vec::as_slice);
                let last = updates.unwrap_or_default().iter().rev();
                let mut last = last.filter(|(epoch, _)| *epoch == self.s.epoch());
                let cursor = last.next().map_or(0, |(_, update)| update.cursor);
                let _ = self.s.sync(&app, cursor, vec![]);
            }
            Op::Wait(ms) => {
                self.s.after(Duration::from_millis(ms));
            }
            Op::Tree(_) | Op::Move { .. } | Op::Pause { .. } | Op::Kill(_) => self.operate(op),
            Op::Restart => self.restart(),
        }
    }

    fn operate(&mut self, op: Op) {
        match op {
            Op::Tree(tree) => {
                let _ = self.s.call(ClusterCall::SetQueues {
                    tree: Box::new(tree),
                    generation: None,
                    how: DryRun::Really,
                });
            }
            Op::Move {
                app,
                leaf,
                priority,
            } => {
                let Some(app) = self.app(app) else { return };
                let _ = self.s.call(ClusterCall::ChangeApp {
                    app,
                    queue: Some(queue(leaf)),
                    priority: Some(priority),
                    lifetime: None,
                });
            }
            Op::Pause { leaf, paused } => {
                let state = if paused {
                    QueueState::Paused
                } else {
                    QueueState::Running
                };
                let _ = self.s.call(ClusterCall::SetQueueState {
                    queue: queue(leaf),
                    state,
                });
            }
            Op::Kill(n) => {
                let Some(app) = self.app(n) else { return };
                let _ = self.s.call(ClusterCall::Kill { app, reason: None });
            }
            Op::Node(_)
            | Op::Cut(_)
            | Op::Submit { .. }
            | Op::Ask { .. }
            | Op::Work
            | Op::Exit(_)
            | Op::Acknowledge(_)
            | Op::Wait(_)
            | Op::Restart => {}
        }
    }

    fn ask(&mut self, app: u8, asked: ContainerRequest) {
        let Some(app) = self.app(app) else { return };
        let _ = self.s.call(ClusterCall::Ask {
            app,
            ask: Box::new(asked),
            how: DryRun::Really,
        });
    }

    fn restart(&mut self) {
        self.s.restart();
        let names: Vec<String> = self.s.nodes.keys().map(ToString::to_string).collect();
        for name in names {
            let _ = self.s.try_register(&name);
        }
        for app in self.apps.clone() {
            let _ = self.s.master(&app);
        }
    }

    fn submit(&mut self, leaf: usize, user: &str, priority: i32, managed: bool) {
        let master = if managed {
            MasterKind::Managed {
                resource: size(1, 1),
                launch: Default::default(),
                max_attempts: 3,
                growth: None,
                start_timeout: None,
                first_request: self
                    .apps
                    .len()
                    .is_multiple_of(2)
                    .then(|| Box::new(ask("first", 1, size(1, 1)))),
            }
        } else {
            MasterKind::Unmanaged
        };
        let spec = AppSubmission {
            name: id("job"),
            queue: queue(leaf),
            priority,
            user: user.to_owned(),
            lifetime: None,
            master,
            key: None,
        };
        let answer = self.s.call(ClusterCall::Submit(Box::new(spec)));
        if let Ok(CallAnswer::Submitted { app, .. }) = answer {
            let _ = self.s.master(&app);
            self.apps.push(app);
        }
    }
}

fn asked(
    (request, count, gib, cores): (usize, u32, u64, u32),
    (priority, rules, node): (i32, u8, u8),
) -> ContainerRequest {
    let mut asked = ask(REQUESTS[request], count, size(gib, cores));
    asked.priority = priority;
    asked.place = placement(rules, node).into();
    asked
}

fn queue(leaf: usize) -> headroom_types::QueuePath {
    id(&format!("root.{}", LEAVES[leaf]))
}

fn placement(rules: u8, node: u8) -> PlacementRules {
    let node = vec![id(&format!("n{node}"))];
    let apart = |from: &[&str]| {
        Some(AntiAffinityRule {
            from: from.iter().map(|request| id(request)).collect(),
            level: PlacementLevel::Node,
        })
    };
    match rules {
        0 => PlacementRules {
            nodes: node,
            ..PlacementRules::default()
        },
        1 => PlacementRules {
            prefer_nodes: node,
            relax: RelaxationPolicy::After { ms: 1000 },
            ..PlacementRules::default()
        },
        2 => PlacementRules {
            avoid_nodes: node,
            spread: Some(PlacementLevel::Node),
            ..PlacementRules::default()
        },
        3 => PlacementRules {
            apart: apart(&[]),
            ..PlacementRules::default()
        },
        4 => PlacementRules {
            apart: apart(&["x", "y"]),
            ..PlacementRules::default()
        },
        _ => PlacementRules::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// For any history, each grant is the one that the reference chooses.
    #[test]
    fn each_grant_is_that_of_the_reference(tree in any_tree(), ops in proptest::collection::vec(any_op(), 20..160)) {
        let settings = ClusterSettings { queues: tree, ..ClusterSettings::default() };
        let mut world = World { s: ClusterScenario::with(settings), apps: Vec::new() };
        for n in 0..3 {
            world.run(Op::Node(n));
        }
        for op in ops {
            world.run(op);
        }
        world.s.check();
    }
}
