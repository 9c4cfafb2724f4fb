//! Resize of a running container: scenario tests, and random sequences of sizes, refusals, ends and
//! restarts.
//!
//! Checked properties of the random sequences:
//! - Safety: at every step the ledger equals the sum of all sizes that may be in effect (the
//!   invariants), and it never exceeds a node's capacity while the node obeys.
//! - Liveness: once the nodes behave, no resize remains in progress, and node and resource manager
//!   agree on every size and version.

use std::time::Duration;

use headroom_rm_core::testkit::{ClusterScenario, FakeNode, id, size};
use headroom_rm_core::{
    CallAnswer, CallRefusal, CallResult, ClusterCall, ContainerPhase, ContainerSize, DryRun,
    UpdateKind,
};
use headroom_types::{AppId, Bytes, ContainerId, ExitReason, LaunchSpec, NodeId, Resource};
use proptest::prelude::*;

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn fake<'a>(s: &'a mut ClusterScenario, node: &str) -> &'a mut FakeNode {
    s.nodes
        .get_mut(&id::<NodeId>(node))
        .expect("a node of this scenario")
}
fn resize(
    s: &mut ClusterScenario,
    container: &ContainerId,
    version: Option<u32>,
    to: Resource,
) -> CallResult {
    let size = ContainerSize {
        resource: to,
        heap: None,
    };
    s.call(ClusterCall::Resize {
        container: container.clone(),
        version,
        size,
        how: DryRun::Really,
    })
}
/// One node of 8 GiB with one running container of 2 GiB.
fn one() -> (ClusterScenario, AppId, ContainerId) {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.app("job");
    s.ask(&app, "work", 1, size(2, 1)).expect("asks");
    s.settle();
    let c = s.alive(&app)[0].clone();
    (s, app, c)
}
fn allocated(s: &ClusterScenario, node: &str) -> Bytes {
    s.cluster
        .ledger()
        .node(&id(node))
        .expect("the node has an account")
        .allocated
        .memory
}
/// Resize updates of an application: result, size and version of each.
fn resize_updates(s: &ClusterScenario, app: &AppId) -> Vec<(&'static str, u64, u32)> {
    let all = s.updates.get(app).map(|u| u.iter()).into_iter().flatten();
    let sizes = all.filter_map(|(_, u)| match &u.what {
        UpdateKind::Resized {
            resource, version, ..
        } => Some(("resized", resource.memory.get() >> 30, *version)),
        UpdateKind::ResizeFailed {
            resource, version, ..
        } => Some(("failed", resource.memory.get() >> 30, *version)),
        UpdateKind::Allocated(_)
        | UpdateKind::Running { .. }
        | UpdateKind::Exited { .. }
        | UpdateKind::PreemptSoon { .. }
        | UpdateKind::NodeDraining { .. }
        | UpdateKind::Expired { .. }
        | UpdateKind::Order(_) => None,
    });
    sizes.collect()
}

#[test]
fn a_running_container_grows() {
    let (mut s, app, c) = one();
    assert_eq!(
        resize(&mut s, &c, Some(1), size(5, 2)),
        Ok(CallAnswer::Resizing { version: 2 })
    );
    assert_eq!(
        allocated(&s, "n1"),
        Bytes::from_gib(5),
        "a growth is allocated at once"
    );
    assert_eq!(
        s.cluster.container(&c).expect("alive").resource,
        size(2, 1),
        "the container has the size that its node reported"
    );
    s.settle();
    assert_eq!(s.cluster.container(&c).expect("alive").resource, size(5, 2));
    assert_eq!(resize_updates(&s, &app), [("resized", 5, 2)]);
    s.check();
}

#[test]
fn a_shrink_frees_memory_only_after_the_node_confirms() {
    let (mut s, app, c) = one();
    let other = s.app("other");
    fake(&mut s, "n1").connected = false;
    assert_eq!(
        resize(&mut s, &c, None, size(1, 1)),
        Ok(CallAnswer::Resizing { version: 2 })
    );
    assert_eq!(allocated(&s, "n1"), Bytes::from_gib(2));
    let waits = s.ask_waits(&other, "big", 1, size(7, 1));
    assert!(waits.contains("6 GiB free"), "{waits}");
    fake(&mut s, "n1").connected = true;
    s.after(secs(2));
    s.report_all().settle();
    assert_eq!(
        resize_updates(&s, &app),
        [("resized", 1, 2)],
        "an undelivered order is sent again"
    );
    assert_eq!(
        allocated(&s, "n1"),
        Bytes::from_gib(8),
        "the freed memory goes to the waiting request"
    );
    s.check();
}

#[test]
fn a_resize_is_idempotent_and_checks_its_version() {
    let (mut s, _app, c) = one();
    assert_eq!(
        resize(&mut s, &c, None, size(2, 1)),
        Ok(CallAnswer::Resizing { version: 1 }),
        "the same size is no change"
    );
    let Err(CallRefusal::Conflict {
        given: 9,
        current: 1,
        ..
    }) = resize(&mut s, &c, Some(9), size(3, 1))
    else {
        panic!("no conflict for another version")
    };
    assert_eq!(
        resize(&mut s, &c, Some(1), size(3, 1)),
        Ok(CallAnswer::Resizing { version: 2 })
    );
    assert_eq!(
        resize(&mut s, &c, Some(1), size(3, 1)),
        Ok(CallAnswer::Resizing { version: 2 }),
        "a repeated call is idempotent"
    );
    let Err(CallRefusal::Conflict {
        given: 1,
        current: 2,
        ..
    }) = resize(&mut s, &c, None, size(4, 1))
    else {
        panic!("no conflict with a resize in progress")
    };
    s.settle();
    let late = resize(&mut s, &c, Some(1), size(3, 1));
    assert_eq!(
        late,
        Ok(CallAnswer::Resizing { version: 2 }),
        "a late repetition is idempotent too"
    );
    let Err(CallRefusal::NotResizable { why, .. }) = resize(&mut s, &c, Some(2), size(0, 1)) else {
        panic!("a resize to no memory is accepted")
    };
    assert!(why.contains("whole size"), "{why}");
    let missing: ContainerId = id("job.1.e1.c99");
    assert_eq!(
        resize(&mut s, &missing, None, size(1, 1)),
        Err(CallRefusal::NoSuchContainer(missing))
    );
    s.check();
}

#[test]
fn a_dry_run_of_a_resize_has_no_effect() {
    let (mut s, app, c) = one();
    let mut ask = |to: Resource| {
        let call = ClusterCall::Resize {
            container: c.clone(),
            version: None,
            size: ContainerSize {
                resource: to,
                heap: None,
            },
            how: DryRun::DryRun,
        };
        s.call(call)
    };
    assert_eq!(ask(size(8, 1)), Ok(CallAnswer::Resizing { version: 2 }));
    let Err(CallRefusal::NoRoom { sentence }) = ask(size(9, 1)) else {
        panic!("a resize beyond the node is accepted")
    };
    assert_eq!(
        sentence,
        "needs 7 GiB more on n1, which has 6 GiB, 7 cpus free"
    );
    s.settle();
    assert_eq!(
        (allocated(&s, "n1"), resize_updates(&s, &app)),
        (Bytes::from_gib(2), vec![])
    );
    s.check();
}

#[test]
fn only_a_running_container_can_be_resized() {
    let (mut s, app, c) = one();
    s.ask(&app, "work", 2, size(2, 1)).expect("asks");
    let fresh = s.alive(&app)[1].clone();
    let why = |answer: CallResult| match answer {
        Err(CallRefusal::NotResizable { why, .. }) => why,
        other => panic!("was not refused: {other:?}"),
    };
    assert!(why(resize(&mut s, &fresh, None, size(3, 1))).contains("does not run yet"));
    s.call(ClusterCall::Stop {
        container: c.clone(),
    })
    .expect("stops");
    assert!(why(resize(&mut s, &c, None, size(3, 1))).contains("about to end"));
    s.settle();
    assert!(why(resize(&mut s, &c, None, size(3, 1))).contains("has ended"));
    let last = s.cluster.app(&app).expect("app").updates.last();
    s.sync(&app, last, vec![]).expect("acknowledges");
    assert!(
        why(resize(&mut s, &c, None, size(3, 1))).contains("has ended"),
        "also when the container is only in the history"
    );
    s.check();
}

#[test]
fn a_resize_that_the_node_refuses_is_rolled_back() {
    for to in [size(6, 1), size(1, 1)] {
        let (mut s, app, c) = one();
        let before = s.cluster.ledger().node(&id("n1")).cloned();
        fake(&mut s, "n1").rigid = Some("1.4 GiB are in use".into());
        resize(&mut s, &c, None, to.clone()).expect("the resize is accepted");
        s.settle();
        assert_eq!(
            s.cluster.ledger().node(&id("n1")).cloned(),
            before,
            "the account is restored exactly"
        );
        assert_eq!(resize_updates(&s, &app), [("failed", 2, 1)]);
        assert!(
            s.log.iter().any(|l| l.reason.as_str() == "ResizeFailed"
                && l.message().contains("1.4 GiB are in use")),
            "the event contains the message of the node"
        );
        // the node accepts resizes again: the next order has a new version
        fake(&mut s, "n1").rigid = None;
        assert_eq!(
            resize(&mut s, &c, Some(1), to),
            Ok(CallAnswer::Resizing { version: 3 })
        );
        s.settle();
        assert_eq!(
            resize_updates(&s, &app).last().map(|t| (t.0, t.2)),
            Some(("resized", 3))
        );
        s.check();
    }
}

#[test]
fn a_container_that_ends_during_a_resize_frees_its_allocation() {
    let (mut s, app, c) = one();
    fake(&mut s, "n1").connected = false;
    resize(&mut s, &c, None, size(6, 1)).expect("grows");
    s.exit(&c, OK);
    assert_eq!(allocated(&s, "n1"), Bytes::ZERO);
    s.after(secs(31));
    assert_eq!(
        resize_updates(&s, &app),
        [],
        "no resize update follows the end"
    );
    s.check();
}

#[test]
fn a_node_that_is_lost_during_a_resize_frees_its_allocation() {
    let (mut s, app, c) = one();
    fake(&mut s, "n1").connected = false;
    resize(&mut s, &c, None, size(6, 1)).expect("grows");
    s.after(secs(20));
    s.sync(&app, 0, vec![]).expect("the master is registered");
    s.after(secs(11));
    assert_eq!(s.unacked_exits(&app), [c]);
    assert_eq!(allocated(&s, "n1"), Bytes::ZERO);
    s.check();
}

#[test]
fn an_unanswered_resize_is_withdrawn_and_stays_allocated_until_a_report() {
    let (mut s, app, c) = one();
    fake(&mut s, "n1").connected = false;
    resize(&mut s, &c, None, size(6, 1)).expect("grows");
    for _ in 0..31 {
        s.after(secs(1));
        s.report("n1").expect("the heartbeat is accepted");
        s.sync(&app, 0, vec![]).expect("the master is registered");
    }
    assert_eq!(s.logged("ResizeOverdue"), 1);
    assert_eq!(
        allocated(&s, "n1"),
        Bytes::from_gib(6),
        "the node may still apply the order"
    );
    let Err(CallRefusal::Conflict { current: 3, .. }) = resize(&mut s, &c, None, size(4, 1)) else {
        panic!("no conflict with the withdrawal in progress")
    };
    fake(&mut s, "n1").connected = true;
    s.after(secs(2));
    s.report_all().report_all();
    assert_eq!(resize_updates(&s, &app), [("failed", 2, 3)]);
    assert_eq!(allocated(&s, "n1"), Bytes::from_gib(2));
    assert_eq!(
        resize(&mut s, &c, Some(3), size(4, 1)),
        Ok(CallAnswer::Resizing { version: 4 })
    );
    s.settle();
    assert_eq!(resize_updates(&s, &app).last(), Some(&("resized", 4, 4)));
    s.check();
}

#[test]
fn a_restart_during_a_resize_takes_the_size_from_the_node() {
    // with `heard`, the node has the order and the restarted resource manager does not know it;
    // without, no side has it
    for (heard, has) in [(true, size(6, 1)), (false, size(2, 1))] {
        let (mut s, app, c) = one();
        fake(&mut s, "n1").connected = heard;
        resize(&mut s, &c, None, size(6, 1)).expect("grows");
        s.restart().register("n1").settle();
        s.master(&app).expect("registers");
        let version = if heard { 2 } else { 1 };
        assert_eq!(
            s.cluster
                .container(&c)
                .map(|c| (c.resource.clone(), c.version)),
            Some((has.clone(), version))
        );
        assert_eq!(allocated(&s, "n1"), has.memory);
        assert_eq!(
            resize(&mut s, &c, Some(version), size(3, 1)),
            Ok(CallAnswer::Resizing {
                version: version + 1
            })
        );
        s.settle();
        assert_eq!(allocated(&s, "n1"), Bytes::from_gib(3));
        s.check();
    }
}

#[test]
fn a_late_resize_of_an_earlier_epoch_is_adopted_even_beyond_the_node() {
    let (mut s, app, c) = one();
    s.restart().register("n1").settle();
    s.master(&app).expect("registers");
    s.ask(&app, "more", 1, size(6, 1)).expect("asks");
    s.settle();
    // the earlier incarnation had ordered resources that are used now
    let held = fake(&mut s, "n1").has.get_mut(&c).expect("runs");
    (held.resource, held.version) = (size(4, 1), 2);
    s.report_all();
    assert_eq!(resize_updates(&s, &app), [("resized", 4, 2)]);
    let account = s.cluster.ledger().node(&id("n1")).expect("account");
    assert!(account.overdrawn && account.allocated.memory == Bytes::from_gib(10));
    let Err(CallRefusal::NoRoom { .. }) = resize(&mut s, &c, None, size(5, 1)) else {
        panic!("a growth on a full node is accepted")
    };
    resize(&mut s, &c, None, size(2, 1)).expect("shrinks");
    s.settle();
    assert!(
        !s.cluster
            .ledger()
            .node(&id("n1"))
            .expect("account")
            .overdrawn
    );
    s.check();
}

#[test]
fn two_orders_with_one_version_are_resolved_by_the_report_of_the_node() {
    let (mut s, app, c) = one();
    s.restart().register("n1").settle();
    s.master(&app).expect("registers");
    fake(&mut s, "n1").connected = false;
    assert_eq!(
        resize(&mut s, &c, None, size(5, 1)),
        Ok(CallAnswer::Resizing { version: 2 })
    );
    let held = fake(&mut s, "n1").has.get_mut(&c).expect("runs");
    (held.resource, held.version) = (size(3, 1), 2);
    s.report("n1").expect("reports");
    assert_eq!(resize_updates(&s, &app), [("failed", 3, 2)]);
    assert_eq!(allocated(&s, "n1"), Bytes::from_gib(3));
    s.check();
}

#[test]
fn a_silent_node_refuses_growth_and_accepts_shrinks() {
    let (mut s, _app, c) = one();
    s.after(secs(4));
    let Err(CallRefusal::NoRoom { sentence }) = resize(&mut s, &c, None, size(3, 1)) else {
        panic!("a growth on a suspect node is accepted")
    };
    assert_eq!(
        sentence,
        "n1 is suspect and cannot give containers more resources now"
    );
    resize(&mut s, &c, None, size(1, 1)).expect("a shrink is accepted");
    s.report_all().settle();
    assert_eq!(allocated(&s, "n1"), Bytes::from_gib(1));
    s.check();
}

#[test]
fn the_heap_budget_changes_with_the_size() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.app("job");
    let mut asked = headroom_rm_core::testkit::ask("work", 1, size(2, 1));
    asked.launch = std::sync::Arc::new(LaunchSpec {
        heap: Some(Bytes::from_gib(1)),
        ..LaunchSpec::default()
    });
    s.sync(&app, 0, vec![asked]).expect("asks");
    s.settle();
    let c = s.alive(&app)[0].clone();
    let heap = |s: &ClusterScenario| s.cluster.ledger().node(&id("n1")).expect("account").heap;
    assert_eq!(heap(&s), Bytes::from_gib(1));
    let grow = |gib, heap| ClusterCall::Resize {
        container: c.clone(),
        version: None,
        size: ContainerSize {
            resource: size(gib, 1),
            heap: Some(Bytes::from_gib(heap)),
        },
        how: DryRun::Really,
    };
    let Err(CallRefusal::NotResizable { .. }) = s.call(grow(4, 5)) else {
        panic!("a heap larger than the size is accepted")
    };
    s.call(grow(4, 3)).expect("grows");
    assert_eq!(heap(&s), Bytes::from_gib(3));
    s.settle();
    assert_eq!(
        s.cluster.container(&c).and_then(|c| c.launch.heap),
        Some(Bytes::from_gib(3))
    );
    s.call(grow(4, 2)).expect("the heap alone changes");
    assert_eq!(
        heap(&s),
        Bytes::from_gib(3),
        "the old heap counts until the confirmation"
    );
    s.settle();
    assert_eq!(heap(&s), Bytes::from_gib(2));
    s.check();
}

#[test]
fn countable_resources_and_processors_can_be_resized() {
    let mut s = ClusterScenario::new();
    let gpus = |n: u64| {
        let mut r = size(2, 2);
        r.extra.insert(id("gpu"), n);
        r
    };
    let mut offers = size(8, 8);
    offers.extra.insert(id("gpu"), 4);
    s.node("n1", offers);
    let app = s.app("job");
    s.ask(&app, "work", 1, gpus(1)).expect("asks");
    s.settle();
    let c = s.alive(&app)[0].clone();
    assert!(matches!(
        resize(&mut s, &c, None, gpus(5)),
        Err(CallRefusal::NoRoom { .. })
    ));
    resize(&mut s, &c, None, gpus(4)).expect("grows");
    s.settle();
    resize(&mut s, &c, None, size(2, 1)).expect("releases the GPUs");
    s.settle();
    let account = s.cluster.ledger().node(&id("n1")).expect("account");
    assert_eq!(
        (account.allocated.clone(), resize_updates(&s, &app).len()),
        (size(2, 1), 2)
    );
    s.check();
}

#[test]
fn a_resized_master_keeps_its_size_for_the_next_attempt() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.managed("job", size(1, 1), 3);
    s.settle();
    s.master(&app).expect("registers");
    let first = s.alive(&app)[0].clone();
    resize(&mut s, &first, None, size(3, 1)).expect("grows");
    s.settle();
    s.exit(&first, ExitReason::NodeOom);
    assert_eq!(
        s.cluster
            .container(&s.alive(&app)[0])
            .map(|c| c.resource.memory),
        Some(Bytes::from_gib(3))
    );
    s.check();
}

#[derive(Clone, Debug)]
enum Op {
    Resize { c: u8, gib: u8, stale: bool },
    Rigid(u8, bool),
    Deaf(u8, bool),
    Work,
    Report(u8),
    Wait(u16),
    Exit(u8),
    More,
    Restart,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<u8>(), 1u8..8, any::<bool>()).prop_map(|(c, gib, stale)| Op::Resize { c, gib, stale: stale && gib == 3 }),
        2 => (0u8..2, any::<bool>()).prop_map(|(n, on)| Op::Rigid(n, on)),
        2 => (0u8..2, any::<bool>()).prop_map(|(n, on)| Op::Deaf(n, on)),
        4 => Just(Op::Work),
        4 => (0u8..2).prop_map(Op::Report),
        4 => (0u16..9000).prop_map(Op::Wait),
        1 => any::<u8>().prop_map(Op::Exit),
        2 => Just(Op::More),
        1 => Just(Op::Restart),
    ]
}

fn run(s: &mut ClusterScenario, app: &AppId, asked: &mut u32, op: Op) {
    let name = |n: u8| format!("n{n}");
    match op {
        Op::Resize { c, gib, stale } => {
            let alive = s.alive(app);
            if let Some(c) = alive.get(usize::from(c) % alive.len().max(1)) {
                let _ = resize(s, c, stale.then_some(77), size(gib.into(), 1));
            }
        }
        Op::Rigid(n, on) => fake(s, &name(n)).rigid = on.then(|| "no".to_owned()),
        Op::Deaf(n, true) => fake(s, &name(n)).connected = false,
        Op::Deaf(n, false) => {
            s.register(&name(n)); // a new connection starts with the full desired state
        }
        Op::Work => {
            s.settle();
        }
        Op::Report(n) => {
            let _ = s.report(&name(n));
        }
        Op::Wait(ms) => {
            s.after(Duration::from_millis(ms.into()));
        }
        Op::Exit(c) => {
            let running = s
                .nodes
                .values()
                .flat_map(|n| &n.has)
                .filter(|(_, h)| h.phase == ContainerPhase::Running);
            let all: Vec<ContainerId> = running.map(|(c, _)| c.clone()).collect();
            if let Some(c) = all.get(usize::from(c) % all.len().max(1)) {
                s.exit(c, OK);
            }
        }
        Op::More => {
            *asked += 1;
            let _ = s.ask(app, "work", *asked, size(2, 1));
        }
        Op::Restart => {
            s.restart();
            heal(s, app);
        }
    }
    // as long as all nodes obey the orders of one incarnation, no resources are allocated twice
    for (node, account) in s.cluster.ledger().nodes() {
        let once = s.epoch().0 == 1;
        assert!(
            !once || account.allocated.fits(&account.offers),
            "{node}: {} of {}",
            account.allocated,
            account.offers
        );
    }
}

fn heal(s: &mut ClusterScenario, app: &AppId) {
    for n in ["n0", "n1"] {
        if !s.nodes[&id::<NodeId>(n)].connected {
            s.register(n);
        }
        fake(s, n).rigid = None;
    }
    let _ = s.master(app);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn sizes_agree_in_the_end_and_are_counted_exactly_at_each_step(ops in proptest::collection::vec(any_op(), 1..100)) {
        let mut s = ClusterScenario::new();
        s.node("n0", size(8, 16)).node("n1", size(6, 16));
        let (app, mut asked) = (s.app("job"), 0);
        for op in ops {
            run(&mut s, &app, &mut asked, op);
        }
        heal(&mut s, &app);
        for _ in 0..4 {
            s.alive_for(secs(3)).settle();
        }
        for c in s.cluster.containers().filter(|c| c.state.is_alive()) {
            prop_assert_eq!(c.sizing.order(), None, "the resize of {} never ends", c.id);
            let held = &s.nodes[&c.node].has[&c.id];
            prop_assert_eq!((&held.resource, held.version), (&c.resource, c.version), "another size on the node of {}", c.id);
        }
        s.check();
    }
}
