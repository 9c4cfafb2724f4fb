//! Scenario tests of preemption: a queue gets its guarantee from queues above theirs, also for
//! escalating jobs.

use std::time::Duration;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{QueueDefinition, QueuePreemption, QueueShare, ShareOrAmount};
use headroom_rm_core::testkit::{ClusterScenario, ask, id, size};
use headroom_rm_core::{
    AppSubmission, CallAnswer, ClusterCall, ClusterSettings, MasterKind, UpdateKind,
};
use headroom_types::{AppId, ContainerId, ExitReason, LaunchSpec, RequestId, UnixMillis};
use proptest::prelude::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn sure(thousandths: u32) -> QueueDefinition {
    let guaranteed = QueueShare {
        memory: Some(ShareOrAmount::Part(thousandths)),
        ..QueueShare::default()
    };
    QueueDefinition {
        guaranteed,
        ..QueueDefinition::default()
    }
}
fn tree(leaves: Vec<(&str, QueueDefinition)>) -> QueueTree {
    let children = leaves
        .into_iter()
        .map(|(name, spec)| (id(name), spec))
        .collect();
    QueueTree::new(QueueDefinition {
        children,
        ..QueueDefinition::default()
    })
    .expect("a valid tree")
}
/// Warning of 5 s, one round per second, no limit per round.
fn settings(queues: QueueTree) -> ClusterSettings {
    ClusterSettings {
        queues,
        preempt_warning: secs(5),
        preempt_every: secs(1),
        preempt_part: 1000,
        ..ClusterSettings::default()
    }
}
fn halves() -> QueueTree {
    tree(vec![("a", sure(500)), ("b", sure(500))])
}
fn app(s: &mut ClusterScenario, queue: &str, master: MasterKind) -> AppId {
    let spec = AppSubmission {
        name: id("job"),
        queue: id(queue),
        priority: 0,
        user: "u".into(),
        lifetime: None,
        master,
        key: None,
    };
    let Ok(CallAnswer::Submitted { app, .. }) = s.call(ClusterCall::Submit(Box::new(spec))) else {
        panic!("the submission is refused")
    };
    s.settle();
    s.master(&app).expect("registers");
    app
}
/// Two nodes of 8 GiB; `a` uses all of it, in containers of 2 GiB; nothing is free for `b`.
fn full_cluster(settings: ClusterSettings) -> (ClusterScenario, AppId, AppId) {
    let mut s = ClusterScenario::with(settings);
    s.node("n1", size(8, 32)).node("n2", size(8, 32));
    let (a, b) = (
        app(&mut s, "a", MasterKind::Unmanaged),
        app(&mut s, "b", MasterKind::Unmanaged),
    );
    s.ask(&a, "task", 8, size(2, 1)).expect("asks");
    s.settle();
    (s, a, b)
}
/// Advances the time in steps of half a second; nodes and masters send heartbeats.
fn live(s: &mut ClusterScenario, time: Duration, apps: &[&AppId]) {
    for _ in 0..time.as_millis() / 500 {
        s.after(Duration::from_millis(500));
        s.settle();
        for app in apps {
            let last = s.cluster.app(app).expect("app").updates.last();
            s.sync(app, last, vec![]).expect("syncs");
        }
    }
}
fn has(s: &ClusterScenario, app: &AppId) -> u64 {
    let sizes = s
        .alive(app)
        .into_iter()
        .filter_map(|c| s.cluster.container(&c))
        .map(|c| c.resource.memory.get() >> 30);
    sizes.sum()
}
fn warned(s: &ClusterScenario, app: &AppId) -> Vec<(ContainerId, UnixMillis)> {
    let all = s.updates.get(app).map(|u| u.iter()).into_iter().flatten();
    let soon = all.filter_map(|(_, u)| match &u.what {
        UpdateKind::PreemptSoon { container, at, .. } => Some((container.clone(), *at)),
        UpdateKind::Allocated(_)
        | UpdateKind::Running { .. }
        | UpdateKind::Exited { .. }
        | UpdateKind::Resized { .. }
        | UpdateKind::ResizeFailed { .. }
        | UpdateKind::NodeDraining { .. }
        | UpdateKind::Expired { .. }
        | UpdateKind::Order(_) => None,
    });
    soon.collect()
}
fn ended(s: &ClusterScenario, app: &AppId) -> Vec<(ContainerId, ExitReason)> {
    s.cluster
        .history()
        .iter()
        .filter(|f| f.container.app == *app)
        .map(|f| (f.container.clone(), f.reason))
        .collect()
}
fn one(s: &ClusterScenario, app: &AppId, request: &str) -> ContainerId {
    let request: RequestId = id(request);
    let mine = s.alive(app).into_iter().find(|c| {
        s.cluster
            .container(c)
            .is_some_and(|c| c.request == Some(request.clone()))
    });
    mine.expect("a container of this request")
}

#[test]
fn an_escalating_job_gets_its_guarantee_after_each_step() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    for (n, gib) in [(1, 2u64), (2, 4), (3, 8)] {
        let request = format!("try-{n}");
        let sentence = s.ask_waits(&b, &request, 1, size(gib, 1));
        assert!(sentence.contains("needs"), "{sentence}");
        live(&mut s, secs(1), &[&a, &b]);
        if n == 1 {
            let why = s.cluster.why(&b, s.now).expect("app")[0].sentence.clone();
            assert_eq!(
                why,
                "preemption frees resources on n2: it stops 1 container of other queues in 5 s"
            );
        }
        // one interval, the warning, and one second
        live(&mut s, secs(6), &[&a, &b]);
        assert_eq!(has(&s, &b), gib, "after {n} tries");
        assert!(has(&s, &a) >= 8, "a keeps its guarantee");
        let mine = one(&s, &b, &request);
        s.exit(&mine, ExitReason::HeapOom);
        s.ask(&a, "task", 8 + 4 * n, size(2, 1))
            .expect("a requests the free resources again");
        s.settle();
    }
    assert!(
        ended(&s, &a)
            .iter()
            .all(|(_, reason)| *reason == ExitReason::Preempted)
    );
    s.check();
}

#[test]
fn only_the_needed_victims_are_stopped_after_the_warning() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask_waits(&b, "work", 1, size(3, 1));
    live(&mut s, secs(2), &[&a, &b]);
    let soon = warned(&s, &a);
    assert_eq!(
        soon.len(),
        2,
        "two victims of 2 GiB for a container of 3 GiB"
    );
    let nodes: Vec<_> = soon
        .iter()
        .filter_map(|(c, _)| s.cluster.container(c))
        .map(|c| c.node.clone())
        .collect();
    assert_eq!(nodes[0], nodes[1], "both victims are on one node");
    assert_eq!(soon[0].1, UnixMillis(1000 + 5000));
    live(&mut s, secs(3), &[&a, &b]);
    assert_eq!((ended(&s, &a), has(&s, &a)), (vec![], 16));
    live(&mut s, secs(2), &[&a, &b]);
    let mut gone: Vec<ContainerId> = ended(&s, &a).into_iter().map(|(c, _)| c).collect();
    let mut warned_containers: Vec<ContainerId> = soon.into_iter().map(|(c, _)| c).collect();
    gone.sort();
    warned_containers.sort();
    assert_eq!((gone, has(&s, &b)), (warned_containers, 3));
    live(&mut s, secs(30), &[&a, &b]);
    assert_eq!(
        (has(&s, &a), has(&s, &b)),
        (12, 3),
        "no more victims are stopped"
    );
    s.check();
}

#[test]
fn the_least_escalated_and_then_the_newest_containers_are_victims() {
    let mut s = ClusterScenario::with(settings(halves()));
    s.node("n1", size(16, 32));
    let (a, b) = (
        app(&mut s, "a", MasterKind::Unmanaged),
        app(&mut s, "b", MasterKind::Unmanaged),
    );
    for (request, gib) in [
        ("first", 2),
        ("escalated", 4),
        ("second", 2),
        ("third", 2),
        ("grown", 2),
        ("again", 4),
    ] {
        s.ask(&a, request, 1, size(gib, 1)).expect("asks");
        s.settle().after(Duration::from_millis(10));
    }
    let order: Vec<ContainerId> = ["third", "second", "first"]
        .iter()
        .map(|r| one(&s, &a, r))
        .collect();
    // a container that was resized has escalated too
    let grown = one(&s, &a, "grown");
    let third = one(&s, &a, "third");
    s.call(ClusterCall::Stop {
        container: third.clone(),
    })
    .expect("stops");
    s.settle();
    let to = headroom_rm_core::ContainerSize {
        resource: size(4, 1),
        heap: None,
    };
    s.call(ClusterCall::Resize {
        container: grown.clone(),
        version: None,
        size: to,
        how: headroom_rm_core::DryRun::Really,
    })
    .expect("grows");
    s.settle();
    s.ask_waits(&b, "work", 1, size(4, 1));
    live(&mut s, secs(2), &[&a, &b]);
    let warned_containers: Vec<ContainerId> = warned(&s, &a).into_iter().map(|(c, _)| c).collect();
    assert_eq!(
        warned_containers,
        [order[2].clone(), order[1].clone()],
        "victims are ordered by id; the three escalated containers stay"
    );
    live(&mut s, secs(6), &[&a, &b]);
    assert_eq!(has(&s, &b), 4);
    s.check();
}

#[test]
fn containers_of_lower_request_priority_are_preempted_first() {
    let mut s = ClusterScenario::with(settings(halves()));
    s.node("n1", size(8, 32));
    let (a, b) = (
        app(&mut s, "a", MasterKind::Unmanaged),
        app(&mut s, "b", MasterKind::Unmanaged),
    );
    let asked = |name: &str, priority: i32| {
        let mut asked = ask(name, 2, size(2, 1));
        asked.priority = priority;
        asked
    };
    s.sync(&a, 0, vec![asked("idle", -5), asked("vital", 5)])
        .expect("asks");
    s.settle();
    s.ask_waits(&b, "work", 1, size(2, 1));
    live(&mut s, secs(7), &[&a, &b]);
    let left: Vec<_> = s
        .alive(&a)
        .iter()
        .filter_map(|c| s.cluster.container(c)?.request.clone())
        .collect();
    assert_eq!(left, [id("vital"), id("vital"), id("idle")]);
    s.check();
}

#[test]
fn masters_are_never_preempted() {
    let mut s = ClusterScenario::with(settings(halves()));
    s.node("n1", size(8, 32));
    let launch = std::sync::Arc::new(LaunchSpec {
        command: vec!["am".into()],
        ..LaunchSpec::default()
    });
    let masters: Vec<AppId> = (0..4)
        .map(|_| {
            app(
                &mut s,
                "a",
                MasterKind::Managed {
                    resource: size(2, 1),
                    launch: launch.clone(),
                    max_attempts: 2,
                    growth: None,
                    start_timeout: None,
                    first_request: None,
                },
            )
        })
        .collect();
    let b = app(&mut s, "b", MasterKind::Unmanaged);
    s.ask_waits(&b, "work", 1, size(2, 1));
    let mut all: Vec<&AppId> = masters.iter().collect();
    all.push(&b);
    live(&mut s, secs(20), &all);
    assert_eq!((has(&s, &b), s.logged("PreemptionWarning")), (0, 0));
    s.check();
}

#[test]
fn a_waiting_master_gets_a_claim() {
    let launch = std::sync::Arc::new(LaunchSpec {
        command: vec!["am".into()],
        ..LaunchSpec::default()
    });
    let (mut s, a, _b) = full_cluster(settings(halves()));
    let master = MasterKind::Managed {
        resource: size(2, 1),
        launch,
        max_attempts: 2,
        growth: None,
        start_timeout: None,
        first_request: None,
    };
    let spec = AppSubmission {
        name: id("late"),
        queue: id("b"),
        priority: 0,
        user: "u".into(),
        lifetime: None,
        master,
        key: None,
    };
    let Ok(CallAnswer::Submitted { app: late, .. }) = s.call(ClusterCall::Submit(Box::new(spec)))
    else {
        panic!("the submission is refused")
    };
    live(&mut s, secs(7), &[&a]);
    assert_eq!(has(&s, &late), 2);
    s.check();
}

#[test]
fn a_round_preempts_at_most_its_share() {
    // a quarter of 16 GiB: two containers of 2 GiB per round
    let (mut s, a, b) = full_cluster(ClusterSettings {
        preempt_part: 250,
        preempt_every: secs(3),
        ..settings(halves())
    });
    s.ask(&b, "work", 4, size(2, 1)).expect("asks");
    live(&mut s, secs(3), &[&a, &b]);
    assert_eq!(warned(&s, &a).len(), 2);
    live(&mut s, Duration::from_millis(2500), &[&a, &b]);
    assert_eq!(warned(&s, &a).len(), 2);
    live(&mut s, Duration::from_millis(500), &[&a, &b]);
    assert_eq!(warned(&s, &a).len(), 4);
    live(&mut s, secs(30), &[&a, &b]);
    assert_eq!(
        (has(&s, &a), has(&s, &b), warned(&s, &a).len()),
        (8, 8, 4),
        "a keeps its guarantee"
    );
    s.check();
}

#[test]
fn rounds_add_up_for_a_container_that_is_larger_than_a_round() {
    // a tenth of 16 GiB is less than any running container
    let (mut s, a, b) = full_cluster(ClusterSettings {
        preempt_part: 100,
        preempt_every: secs(3),
        ..settings(halves())
    });
    s.ask_waits(&b, "work", 1, size(4, 1));
    live(&mut s, secs(6), &[&a, &b]);
    assert_eq!(warned(&s, &a).len(), 0, "two rounds allow 3.2 GiB");
    live(&mut s, secs(3), &[&a, &b]);
    assert_eq!(warned(&s, &a).len(), 2, "three rounds allow 4.8 GiB");
    s.check();
}

#[test]
fn no_container_is_preempted_when_preemption_is_off_or_not_allowed() {
    let guarded = QueueDefinition {
        preemptable: QueuePreemption::No,
        ..sure(500)
    };
    let shielded = tree(vec![("a", guarded), ("b", sure(500))]);
    let unsure = tree(vec![
        ("a", QueueDefinition::default()),
        ("b", QueueDefinition::default()),
    ]);
    let off = ClusterSettings {
        preempt_part: 0,
        ..settings(halves())
    };
    for settings in [off, settings(shielded), settings(unsure)] {
        let (mut s, a, b) = full_cluster(settings);
        s.ask_waits(&b, "work", 2, size(2, 1));
        live(&mut s, secs(30), &[&a, &b]);
        assert_eq!(
            (has(&s, &a), has(&s, &b), s.logged("PreemptionWarning")),
            (16, 0, 0)
        );
        s.check();
    }
}

#[test]
fn a_queue_at_its_guarantee_gets_no_claim() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask(&b, "work", 5, size(2, 1)).expect("asks");
    live(&mut s, secs(30), &[&a, &b]);
    assert_eq!((has(&s, &a), has(&s, &b)), (8, 8));
    let why = s.cluster.why(&b, s.now).expect("app")[0].sentence.clone();
    assert!(why.contains("needs 2 GiB"), "{why}");
    s.check();
}

#[test]
fn a_release_on_the_same_node_spares_the_victim() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask_waits(&b, "work", 1, size(2, 1));
    live(&mut s, secs(2), &[&a, &b]);
    let (victim, _) = warned(&s, &a)[0].clone();
    let node = s.cluster.container(&victim).expect("alive").node.clone();
    let mut others = s.alive(&a).into_iter().filter(|c| *c != victim);
    let other = others
        .find(|c| s.cluster.container(c).is_some_and(|c| c.node == node))
        .expect("another container on the node");
    s.call(ClusterCall::Stop { container: other })
        .expect("releases");
    s.settle();
    assert_eq!(
        has(&s, &b),
        2,
        "the claim is granted before the end of the warning"
    );
    live(&mut s, secs(10), &[&a, &b]);
    assert!(s.alive(&a).contains(&victim));
    assert!(s.cluster.claims().is_empty());
    s.check();
}

#[test]
fn a_claim_is_cancelled_when_its_request_is_withdrawn_or_granted() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask_waits(&b, "work", 1, size(2, 1));
    live(&mut s, secs(2), &[&a, &b]);
    assert_eq!(s.cluster.claims().len(), 1);
    s.call(ClusterCall::Withdraw {
        app: b.clone(),
        request: id("work"),
    })
    .expect("withdraws");
    live(&mut s, secs(10), &[&a, &b]);
    assert_eq!(
        (
            has(&s, &a),
            s.logged("PreemptionCancelled"),
            s.cluster.claims().len()
        ),
        (16, 1, 0)
    );
    // a new node with enough free resources also cancels the claim
    s.ask_waits(&b, "more", 1, size(2, 1));
    live(&mut s, secs(2), &[&a, &b]);
    s.node("n3", size(8, 8));
    assert_eq!(has(&s, &b), 2);
    live(&mut s, secs(10), &[&a, &b]);
    assert_eq!((has(&s, &a), s.logged("PreemptionCancelled")), (16, 2));
    s.check();
}

#[test]
fn freed_resources_go_to_the_claim() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    // `a` always requests more containers that fit into the smallest gap
    s.ask(&a, "crumbs", 50, size(1, 1)).expect("asks");
    s.ask_waits(&b, "work", 1, size(6, 1));
    live(&mut s, secs(2), &[&a, &b]);
    let (first, _) = warned(&s, &a)[0].clone();
    s.exit(&first, ExitReason::Exit { code: 0 });
    let why = s.cluster.why(&a, s.now).expect("app");
    assert!(
        why[0].sentence.contains("queue a has more than its guarantee, and 3 containers of the application will be preempted"),
        "{}",
        why[0].sentence
    );
    assert!(
        why[0]
            .nodes
            .iter()
            .any(|n| n.verdict.contains("its free resources are set aside for")),
        "{:?}",
        why[0].nodes
    );
    live(&mut s, secs(5), &[&a, &b]);
    assert_eq!(has(&s, &b), 6);
    s.check();
}

#[test]
fn a_drain_cancels_the_claim_on_the_node() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask_waits(&b, "work", 1, size(2, 1));
    live(&mut s, secs(2), &[&a, &b]);
    let node = s
        .cluster
        .claims()
        .iter()
        .next()
        .expect("a claim")
        .node
        .clone();
    let drain = ClusterCall::Drain {
        node: node.clone(),
        within: None,
        reason: "disks".into(),
        then: headroom_rm_core::AfterDrain::Stay,
    };
    s.call(drain).expect("drains");
    live(&mut s, secs(8), &[&a, &b]);
    assert_eq!((s.logged("PreemptionCancelled"), has(&s, &b)), (1, 2));
    let mine = one(&s, &b, "work");
    assert_ne!(
        s.cluster.container(&mine).expect("alive").node,
        node,
        "the container is on the other node"
    );
    s.check();
}

#[test]
fn preemption_prefers_the_nearest_queue_above_its_guarantee() {
    let inner = QueueDefinition {
        children: [(id("x"), sure(500)), (id("y"), sure(500))].into(),
        ..sure(500)
    };
    let mut s = ClusterScenario::with(settings(tree(vec![("etl", inner), ("web", sure(500))])));
    s.node("n1", size(16, 64));
    let (x, y) = (
        app(&mut s, "etl.x", MasterKind::Unmanaged),
        app(&mut s, "etl.y", MasterKind::Unmanaged),
    );
    let web = app(&mut s, "web", MasterKind::Unmanaged);
    s.ask(&web, "w", 4, size(2, 1)).expect("asks");
    s.ask(&x, "t", 4, size(2, 1)).expect("asks");
    s.settle();
    s.ask(&y, "t", 4, size(2, 1)).expect("asks");
    live(&mut s, secs(20), &[&x, &y, &web]);
    assert_eq!(
        (has(&s, &x), has(&s, &y), has(&s, &web)),
        (4, 4, 8),
        "web keeps its guarantee"
    );
    s.check();
}

#[test]
fn claims_are_created_again_after_a_restart() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask_waits(&b, "work", 1, size(2, 1));
    live(&mut s, secs(2), &[&a, &b]);
    s.restart().register("n1").register("n2").settle();
    s.master(&a).expect("registers");
    s.master(&b).expect("registers");
    s.sync(&b, 0, vec![ask("work", 1, size(2, 1))])
        .expect("repeats the request");
    live(&mut s, secs(8), &[&a, &b]);
    assert_eq!((has(&s, &a), has(&s, &b)), (14, 2));
    s.check();
}

#[test]
fn free_memory_of_a_reserved_node_reduces_the_victims() {
    let (mut s, a, b) = full_cluster(settings(halves()));
    s.ask(&b, "first", 2, size(2, 1)).expect("asks");
    live(&mut s, secs(10), &[&a, &b]);
    assert_eq!((has(&s, &a), has(&s, &b)), (12, 4));
    // `a` requests small containers while `b` starves; `b` gets a reservation on a node with 2 GiB
    // free, so one victim of 2 GiB is enough
    s.ask(&b, "large", 1, size(3, 1)).expect("asks");
    let lost = s.alive(&a).into_iter().next().expect("alive");
    s.exit(&lost, ExitReason::OverheadOom);
    s.ask(&a, "crumbs", 2, size(1, 1)).expect("asks");
    live(&mut s, secs(20), &[&a, &b]);
    assert_eq!(has(&s, &b), 7);
    assert!(has(&s, &a) >= 8);
    s.check();
}

/// One step: requesting application, size, count, and the container that fails.
type Moment = (bool, u64, u32, Option<usize>);

fn any_moment() -> impl Strategy<Value = Moment> {
    (
        any::<bool>(),
        1u64..5,
        1u32..4,
        proptest::option::weighted(0.3, 0usize..100),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// Safety: no queue is preempted below its guarantee. Liveness: at the end no request waits
    /// that fits into its guarantee while the other queue has more than one container above its
    /// own.
    #[test]
    fn queues_keep_and_reach_their_guarantees(moments in proptest::collection::vec(any_moment(), 1..20)) {
        play(moments);
    }
}

#[test]
fn reservations_above_a_guarantee_do_not_block_a_queue_below_its_own() {
    // both nodes become reserved for the first queue, which has 12 GiB of the 16
    play(vec![
        (true, 2, 3, None),
        (false, 1, 1, None),
        (true, 3, 1, None),
        (false, 3, 2, Some(8)),
        (false, 3, 1, Some(32)),
    ]);
}

#[test]
fn small_victims_do_not_prevent_a_larger_one_that_is_enough() {
    // The first queue has 3 + 3 + 2 and 2 + 2 GiB on the nodes. The second has 4 of its 8 GiB and
    // waits for 3 GiB, and for 4 on its reserved node.
    play(vec![
        (true, 3, 1, None),
        (false, 3, 2, None),
        (true, 3, 1, None),
        (true, 1, 1, None),
        (true, 3, 1, Some(7)),
        (false, 1, 1, Some(88)),
        (true, 2, 1, Some(66)),
        (false, 3, 2, None),
        (false, 4, 1, None),
        (false, 3, 1, Some(88)),
    ]);
}

#[test]
fn a_small_and_a_large_victim_are_enough_where_three_are_too_many() {
    // The second queue has 12 of its 8 GiB: 3 + 3 and 1 + 2 + 3 GiB on the nodes. The first waits
    // for 4 GiB: only 1 + 3 GiB of the second node leave the guarantee intact.
    play(vec![
        (true, 4, 1, Some(16)),
        (false, 3, 2, None),
        (false, 2, 1, None),
        (false, 3, 1, Some(56)),
        (false, 3, 1, None),
        (false, 1, 1, None),
        (false, 1, 1, Some(49)),
    ]);
}

#[test]
fn a_queue_that_grows_after_a_reservation_ended_gives_its_excess_back() {
    // The reservation of the first queue on one node ends after 30 s without progress, and the
    // second queue takes the rest of that node.
    play(vec![
        (false, 2, 3, None),
        (false, 3, 2, None),
        (false, 2, 1, None),
        (false, 2, 1, Some(88)),
        (false, 4, 1, Some(7)),
        (true, 4, 1, Some(0)),
    ]);
}

/// Runs these steps and half a minute more with two queues that are guaranteed half of the cluster
/// each. One of them uses all of it at the start. A reservation may end in the last second and let
/// the other queue grow; preemption has a warning of 5 s, so it corrects that within 10 s.
fn play(moments: Vec<Moment>) {
    let (mut s, a, b) = full_cluster(settings(halves()));
    for (n, (who, gib, count, fails)) in moments.into_iter().enumerate() {
        let _ = s.ask(
            if who { &a } else { &b },
            &format!("r{n}"),
            count,
            size(gib, 1),
        );
        for _ in 0..4 {
            no_container_is_taken_below(&mut s, &a, &b);
        }
        let all: Vec<ContainerId> = s.alive(&a).into_iter().chain(s.alive(&b)).collect();
        if let Some(c) = fails.and_then(|fails| all.get(fails % all.len().max(1))) {
            s.exit(c, ExitReason::OverheadOom);
        }
    }
    for _ in 0..60 {
        no_container_is_taken_below(&mut s, &a, &b);
    }
    for _ in 0..20 {
        if unmet_guarantee(&s, &a, &b).is_none() {
            break;
        }
        no_container_is_taken_below(&mut s, &a, &b);
    }
    assert_eq!(unmet_guarantee(&s, &a, &b), None);
    s.check();
}

/// An application that waits for a container within its guarantee, while the other one has more
/// than a container above its own.
fn unmet_guarantee(s: &ClusterScenario, a: &AppId, b: &AppId) -> Option<String> {
    [(a, b), (b, a)].into_iter().find_map(|(mine, other)| {
        let app = s.cluster.app(mine).expect("app");
        let waiting = app
            .requests
            .iter()
            .filter(|(request, _)| app.missing(request) > 0);
        let waits = waiting.map(|(_, r)| r.ask.resource.memory.get() >> 30);
        let fits = waits.min().is_some_and(|least| has(s, mine) + least <= 8);
        let (has, others) = (has(s, mine), has(s, other));
        (fits && others >= 8 + 4).then(|| {
            format!("{mine} has {has} GiB and waits, the other application has {others} GiB")
        })
    })
}

fn no_container_is_taken_below(s: &mut ClusterScenario, a: &AppId, b: &AppId) {
    let taken = |s: &ClusterScenario, app| {
        ended(s, app)
            .iter()
            .filter(|(_, reason)| *reason == ExitReason::Preempted)
            .count()
    };
    let before = (taken(s, a), taken(s, b));
    live(s, Duration::from_millis(500), &[a, b]);
    assert!(
        taken(s, a) == before.0 || has(s, a) >= 8,
        "a is preempted to {} GiB",
        has(s, a)
    );
    assert!(
        taken(s, b) == before.1 || has(s, b) >= 8,
        "b is preempted to {} GiB",
        has(s, b)
    );
}
