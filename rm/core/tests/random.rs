//! Random sequences of events. Checked properties:
//!
//! - Safety: the invariants hold after every event; no container is granted twice; no request gets
//!   more containers than it asked for, over all incarnations of the resource manager.
//! - Liveness: once nodes and masters behave again, every end reaches its master, every node may
//!   remove it, and every request that fits has all its containers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{QueueDefinition, QueueShare, ShareOrAmount};
use headroom_rm_core::request::ContainerRequest;
use headroom_rm_core::testkit::{ClusterScenario, ask, id, size};
use headroom_rm_core::{
    AfterDrain, AppSubmission, ApplicationOutcome, CallAnswer, CallRefusal, ClusterCall,
    ClusterSettings, ContainerSize, CordonState, DryRun, MasterKind, TagChange, UpdateKind,
};
use headroom_types::{AppId, ContainerId, ExitReason, LaunchSpec, NodeId, RequestId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Node(u8),
    Cut(u8),
    Report(u8),
    Work,
    Exit(u8, u8),
    Wait(u16),
    Restart,
    Submit(bool),
    Ask {
        app: u8,
        request: u8,
        more: u8,
        gib: u8,
    },
    Listen(u8),
    Sync(u8),
    Release(u8, u8),
    Kill(u8),
    Finish(u8),
    Resize {
        app: u8,
        container: u8,
        gib: u8,
    },
    Drain {
        node: u8,
        within: Option<u8>,
        leaves: bool,
    },
    Undrain(u8),
    Tag {
        node: u8,
        cordon: bool,
        label: bool,
        taint: Option<bool>,
    },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0u8..4).prop_map(Op::Node),
        1 => (0u8..4).prop_map(Op::Cut),
        4 => (0u8..4).prop_map(Op::Report),
        4 => Just(Op::Work),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(c, r)| Op::Exit(c, r)),
        4 => (0u16..4000).prop_map(Op::Wait),
        1 => Just(Op::Restart),
        2 => any::<bool>().prop_map(Op::Submit),
        6 => (any::<u8>(), 0u8..3, 0u8..4, 1u8..5).prop_map(|(app, request, more, gib)| Op::Ask { app, request, more, gib }),
        4 => any::<u8>().prop_map(Op::Listen),
        6 => any::<u8>().prop_map(Op::Sync),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(a, c)| Op::Release(a, c)),
        1 => any::<u8>().prop_map(Op::Kill),
        1 => any::<u8>().prop_map(Op::Finish),
        3 => (any::<u8>(), any::<u8>(), 1u8..6).prop_map(|(app, container, gib)| Op::Resize { app, container, gib }),
        1 => (0u8..4, proptest::option::of(0u8..20), any::<bool>()).prop_map(|(node, within, leaves)| Op::Drain { node, within, leaves }),
        1 => (0u8..4).prop_map(Op::Undrain),
        1 => (0u8..4, any::<bool>(), any::<bool>(), proptest::option::of(any::<bool>()))
            .prop_map(|(node, cordon, label, taint)| Op::Tag { node, cordon, label, taint }),
    ]
}

/// Master with a journal that survives all failures.
#[derive(Debug, Default)]
struct Model {
    asks: BTreeMap<RequestId, ContainerRequest>,
    heard: u64,
    ended: BTreeMap<RequestId, BTreeSet<ContainerId>>,
    given: BTreeMap<RequestId, BTreeSet<ContainerId>>,
}

#[derive(Debug)]
struct World {
    s: ClusterScenario,
    masters: BTreeMap<AppId, Model>,
    /// True once a node was silent for too long, or left at its deadline: its containers were given
    /// up or replaced.
    gone: bool,
}

const REASONS: [ExitReason; 5] = [
    ExitReason::Exit { code: 0 },
    ExitReason::OverheadOom,
    ExitReason::NodeOom,
    ExitReason::LaunchFailed,
    ExitReason::Signal { signal: 11 },
];

impl World {
    fn pick<T: Clone>(from: &[T], n: u8) -> Option<T> {
        if from.is_empty() {
            None
        } else {
            Some(from[usize::from(n) % from.len()].clone())
        }
    }
    fn apps(&self) -> Vec<AppId> {
        self.masters.keys().cloned().collect()
    }
    fn name(n: u8) -> String {
        format!("n{n}")
    }

    /// Registers the master; a new attempt continues with the state of the journal.
    fn master(&mut self, app: &AppId) {
        let Ok(CallAnswer::Master {
            cursor, containers, ..
        }) = self.s.master(app)
        else {
            return;
        };
        let Some(m) = self.masters.get_mut(app) else {
            return;
        };
        m.heard = cursor;
        // every container that is not live has ended: a grant that was lost with the resource
        // manager, or an end that the master will receive
        let alive: BTreeSet<&ContainerId> = containers.iter().map(|g| &g.container).collect();
        for (request, given) in &m.given {
            let over = given.iter().filter(|c| !alive.contains(c)).cloned();
            m.ended.entry(request.clone()).or_default().extend(over);
        }
        for g in containers {
            m.given.entry(g.request).or_default().insert(g.container);
        }
    }
    fn listen(&mut self, app: &AppId) {
        let Some(m) = self.masters.get_mut(app) else {
            return;
        };
        let Some(updates) = self.s.cluster.updates(app, m.heard) else {
            return;
        };
        for update in updates {
            m.heard = update.cursor;
            match update.what {
                UpdateKind::Allocated(g) => {
                    m.given.entry(g.request).or_default().insert(g.container);
                }
                UpdateKind::Running { .. }
                | UpdateKind::Resized { .. }
                | UpdateKind::ResizeFailed { .. }
                | UpdateKind::PreemptSoon { .. }
                | UpdateKind::NodeDraining { .. }
                | UpdateKind::Expired { .. }
                | UpdateKind::Order(_) => {}
                UpdateKind::Exited { request, report } => {
                    m.ended
                        .entry(request)
                        .or_default()
                        .insert(report.container.clone());
                }
            }
        }
    }
    fn sync(&mut self, app: &AppId) {
        let Some(m) = self.masters.get(app) else {
            return;
        };
        let asks = m.asks.values().cloned().map(|mut ask| {
            ask.ended = m
                .ended
                .get(&ask.request)
                .map_or(0, |e| u32::try_from(e.len()).expect("small"));
            ask
        });
        let (heard, asks) = (m.heard, asks.collect());
        let answer = self.s.sync(app, heard, asks);
        if answer.is_err() {
            self.master(app);
        }
    }
    fn register_all(&mut self) {
        let names: Vec<String> = self
            .s
            .nodes
            .iter()
            .filter(|(_, n)| !n.connected)
            .map(|(n, _)| n.to_string())
            .collect();
        for name in names {
            self.s
                .try_register(&name)
                .unwrap_or_else(only_when_decommissioned);
        }
    }

    fn with_app(&mut self, n: u8, what: impl FnOnce(&mut World, &AppId)) {
        if let Some(app) = World::pick(&self.apps(), n) {
            what(self, &app);
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Node(n) => {
                let name = World::name(n);
                if self.s.nodes.contains_key(&id::<NodeId>(&name)) {
                    self.s
                        .try_register(&name)
                        .unwrap_or_else(only_when_decommissioned);
                } else {
                    self.s.node(&name, size(4 + u64::from(n), 8));
                }
            }
            Op::Cut(n) => {
                if let Some(node) = self.s.nodes.get_mut(&id::<NodeId>(&World::name(n))) {
                    node.connected = false;
                }
            }
            Op::Report(n) => {
                if self.s.nodes.contains_key(&id::<NodeId>(&World::name(n))) {
                    let _ = self.s.report(&World::name(n));
                }
            }
            Op::Work => {
                self.s.settle();
            }
            Op::Exit(c, r) => {
                let all: Vec<ContainerId> = self
                    .s
                    .nodes
                    .values()
                    .flat_map(|n| n.has.keys().cloned())
                    .collect();
                if let (Some(c), Some(reason)) = (World::pick(&all, c), World::pick(&REASONS, r)) {
                    self.s.exit(&c, reason);
                }
            }
            Op::Wait(ms) => {
                self.s.after(Duration::from_millis(u64::from(ms)));
            }
            Op::Restart => {
                self.s.restart();
                self.register_all();
                for app in self.apps() {
                    self.master(&app);
                }
            }
            Op::Submit(managed) => self.submit(managed),
            Op::Ask {
                app,
                request,
                more,
                gib,
            } => self.ask(app, request, more, gib),
            Op::Listen(a) => self.with_app(a, World::listen),
            Op::Sync(a) => self.with_app(a, World::sync),
            Op::Release(a, c) => self.with_app(a, |w, app| {
                if let Some(container) = World::pick(&w.s.alive(app), c) {
                    w.s.call(ClusterCall::Stop { container })
                        .expect("the container exists");
                }
            }),
            Op::Kill(a) => self.with_app(a, |w, app| {
                w.s.call(ClusterCall::Kill {
                    app: app.clone(),
                    reason: None,
                })
                .expect("the application exists");
            }),
            Op::Finish(a) => self.with_app(a, |w, app| {
                w.s.finish(app, ApplicationOutcome::Succeeded)
                    .expect("the application exists");
            }),
            Op::Resize { .. } | Op::Drain { .. } | Op::Undrain(_) | Op::Tag { .. } => {
                self.operate(op)
            }
        }
        self.gone |= self.s.logged("NodeLost") + self.s.logged("NodeMissing") > 0
            || self.left_with_something();
        self.no_more_than_asked();
    }
    fn operate(&mut self, op: Op) {
        match op {
            Op::Resize {
                app,
                container,
                gib,
            } => self.with_app(app, |w, app| {
                if let Some(container) = World::pick(&w.s.alive(app), container) {
                    let size = ContainerSize {
                        resource: size(u64::from(gib), 1),
                        heap: None,
                    };
                    // many are refused
                    let _ = w.s.call(ClusterCall::Resize {
                        container,
                        version: None,
                        size,
                        how: DryRun::Really,
                    });
                }
            }),
            Op::Drain {
                node,
                within,
                leaves,
            } => {
                let within = within.map(|s| Duration::from_secs(u64::from(s)));
                let then = if leaves {
                    AfterDrain::Decommission
                } else {
                    AfterDrain::Stay
                };
                let _ = self.s.call(ClusterCall::Drain {
                    node: id(&World::name(node)),
                    within,
                    reason: "test".into(),
                    then,
                });
            }
            Op::Undrain(n) => {
                let _ = self.s.call(ClusterCall::Undrain {
                    node: id(&World::name(n)),
                });
            }
            Op::Tag {
                node,
                cordon,
                label,
                taint,
            } => self.tag(node, cordon, label, taint),
            Op::Node(_)
            | Op::Cut(_)
            | Op::Report(_)
            | Op::Work
            | Op::Exit(..)
            | Op::Wait(_)
            | Op::Restart
            | Op::Submit(_)
            | Op::Ask { .. }
            | Op::Listen(_)
            | Op::Sync(_)
            | Op::Release(..)
            | Op::Kill(_)
            | Op::Finish(_) => {}
        }
    }
    fn tag(&mut self, node: u8, cordon: bool, label: bool, taint: Option<bool>) {
        let (ssd, etl) = (id("ssd"), id("etl"));
        let (labels, drop_labels) = if label {
            ([ssd].into(), [].into())
        } else {
            ([].into(), [ssd].into())
        };
        let change = TagChange {
            cordon: Some(if cordon {
                CordonState::On("test".into())
            } else {
                CordonState::Off
            }),
            labels,
            drop_labels,
            taints: taint
                .map(|on| (etl, on.then(String::new)))
                .into_iter()
                .collect(),
            ..TagChange::default()
        };
        let node = id(&World::name(node));
        let _ = self.s.call(ClusterCall::Tag {
            node,
            change: Box::new(change),
            how: DryRun::Really,
        });
    }
    fn submit(&mut self, managed: bool) {
        if self.masters.len() >= 4 {
            return;
        }
        // every second application is in a queue with a guarantee, which preempts containers of the
        // others
        let queue = if self.masters.len().is_multiple_of(2) {
            "default"
        } else {
            "sure"
        };
        let launch = Arc::new(LaunchSpec::default());
        let managed = managed && self.s.nodes.len() > 1;
        let first =
            (managed && self.masters.len().is_multiple_of(3)).then(|| ask("r0", 1, size(1, 1)));
        let master = if managed {
            MasterKind::Managed {
                resource: size(1, 1),
                launch,
                max_attempts: 3,
                growth: None,
                start_timeout: None,
                first_request: first.clone().map(Box::new),
            }
        } else {
            MasterKind::Unmanaged
        };
        let (name, queue, user) = (id("job"), id(queue), "test".to_owned());
        let spec = AppSubmission {
            name,
            queue,
            priority: 0,
            user,
            lifetime: None,
            master,
            key: None,
        };
        let Ok(CallAnswer::Submitted { app, .. }) =
            self.s.call(ClusterCall::Submit(Box::new(spec)))
        else {
            return;
        };
        self.master(&app);
        let asks = first.map(|ask| (ask.request.clone(), ask));
        let model = Model {
            asks: asks.into_iter().collect(),
            ..Model::default()
        };
        self.masters.insert(app, model);
    }
    fn ask(&mut self, app: u8, request: u8, more: u8, gib: u8) {
        let Some(app) = World::pick(&self.apps(), app) else {
            return;
        };
        let Some(m) = self.masters.get_mut(&app) else {
            return;
        };
        let request = format!("r{request}");
        let slot = m
            .asks
            .entry(id(&request))
            .or_insert_with(|| ask(&request, 0, size(u64::from(gib), 1)));
        slot.count += u32::from(more);
        self.sync(&app);
    }

    /// True when a node left at its drain deadline before it received the stop orders.
    fn left_with_something(&self) -> bool {
        let left = |name: &NodeId| {
            self.s.cluster.node_table().marks().any(|(marked, mark)| {
                marked == name && mark.drained && mark.then == AfterDrain::Decommission
            })
        };
        self.s
            .nodes
            .iter()
            .filter(|(_, node)| !node.has.is_empty())
            .any(|(name, _)| left(name))
    }
    fn no_more_than_asked(&self) {
        for (app, model) in &self.masters {
            let mut given: BTreeMap<&RequestId, BTreeSet<&ContainerId>> = BTreeMap::new();
            for (container, request) in self
                .s
                .nodes
                .values()
                .flat_map(|n| &n.ever)
                .filter(|(c, _)| c.app == *app)
            {
                if let Some(request) = request {
                    given.entry(request).or_default().insert(container);
                }
            }
            for (request, containers) in given {
                let asked = model.asks.get(request).map_or(0, |a| a.count);
                let count = u32::try_from(containers.len()).expect("small");
                assert!(
                    self.gone || count <= asked,
                    "{app}/{request}: requested {asked}, got {containers:?}"
                );
            }
        }
    }

    /// Makes all nodes and masters behave until nothing changes any more.
    fn heal(&mut self) {
        let marked: Vec<NodeId> = self
            .s
            .cluster
            .node_table()
            .marks()
            .map(|(node, _)| node.clone())
            .collect();
        for node in marked {
            self.s
                .call(ClusterCall::Undrain { node })
                .expect("the node has a mark");
        }
        for node in (0u8..4).map(|n| id(&World::name(n))) {
            let taints = [(id("etl"), None)].into();
            let change = TagChange {
                cordon: Some(CordonState::Off),
                drop_labels: [id("ssd")].into(),
                taints,
                ..TagChange::default()
            };
            // some nodes were never registered
            let _ = self.s.call(ClusterCall::Tag {
                node,
                change: Box::new(change),
                how: DryRun::Really,
            });
        }
        for node in self.s.nodes.values_mut() {
            node.connected = false; // a refused node registers again
        }
        for _ in 0..40 {
            self.register_all();
            let apps = self.apps();
            for app in &apps {
                let registered = self
                    .s
                    .cluster
                    .app(app)
                    .is_some_and(|a| a.run.is_registered());
                if !registered {
                    self.master(app);
                }
                self.listen(app);
                self.sync(app);
            }
            self.s.settle();
            self.s.alive_for(Duration::from_secs(1));
        }
    }
    fn sizes_agree(&self) {
        for c in self
            .s
            .cluster
            .containers()
            .filter(|c| c.state == headroom_rm_core::container::ContainerState::Running)
        {
            let held = &self.s.nodes[&c.node].has[&c.id];
            assert_eq!(
                (&held.resource, held.version, None),
                (&c.resource, c.version, c.sizing.order()),
                "{}",
                c.id
            );
        }
    }
    fn has_master(&self, app: &AppId) -> bool {
        self.s
            .cluster
            .app(app)
            .is_none_or(|a| a.run.is_registered() || a.state.is_ending())
    }
    fn everything_is_told(&self) {
        for (name, node) in &self.s.nodes {
            let kept = node
                .exits
                .keys()
                .filter(|c| self.has_master(&c.app))
                .collect::<Vec<_>>();
            assert!(kept.is_empty(), "{name} still keeps {kept:?}");
        }
        for (app, model) in &self.masters {
            let Some(record) = self.s.cluster.app(app).filter(|a| !a.state.is_ending()) else {
                assert!(
                    self.s.cluster.app(app).is_none_or(|a| a.state.is_over()),
                    "{app} never ends"
                );
                continue;
            };
            if !self.has_master(app) {
                continue; // its master waits for a container; it receives the updates later
            }
            assert!(
                record.updates.is_empty(),
                "{app} has unacknowledged updates"
            );
            for (request, ask) in &model.asks {
                if self.gone || !record.requests.contains_key(request) {
                    continue; // refused, or with counts that only a lost node knew
                }
                let (given, ended) = (model.given.get(request), model.ended.get(request));
                let (given, ended) = (
                    given.map_or(0, BTreeSet::len),
                    ended.map_or(0, BTreeSet::len),
                );
                let live = record.tallies.get(request).map_or(0, |t| t.live);
                assert_eq!(
                    usize::try_from(live).expect("small") + ended,
                    given,
                    "{app}/{request}: an end was never reported"
                );
                let waits = self.s.cluster.sentence(record, request, self.s.now);
                let all = given == usize::try_from(ask.count).expect("small");
                assert!(
                    all || waits.is_some(),
                    "{app}/{request}: {given} of {} granted, and the request does not wait",
                    ask.count
                );
            }
        }
    }
}

fn only_when_decommissioned(refusal: CallRefusal) {
    assert!(
        matches!(refusal, CallRefusal::Decommissioned(_)),
        "{refusal:?}"
    );
}

fn with_a_guarantee() -> ClusterSettings {
    let guaranteed = QueueShare {
        memory: Some(ShareOrAmount::Part(500)),
        ..QueueShare::default()
    };
    let sure = QueueDefinition {
        guaranteed,
        ..QueueDefinition::default()
    };
    let children = [
        (id("default"), QueueDefinition::default()),
        (id("sure"), sure),
    ]
    .into();
    let queues = QueueTree::new(QueueDefinition {
        children,
        ..QueueDefinition::default()
    })
    .expect("a valid tree");
    let second = Duration::from_secs(1);
    ClusterSettings {
        queues,
        preempt_every: second,
        preempt_warning: 2 * second,
        preempt_part: 1000,
        ..ClusterSettings::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn no_container_is_lost_or_granted_twice(ops in proptest::collection::vec(any_op(), 1..120)) {
        let mut world = World { s: ClusterScenario::with(with_a_guarantee()), masters: BTreeMap::new(), gone: false };
        world.s.node("n0", size(4, 8));
        for op in ops {
            world.run(op);
        }
        world.heal();
        world.no_more_than_asked();
        world.everything_is_told();
        world.sizes_agree();
        world.s.check();
    }
}
