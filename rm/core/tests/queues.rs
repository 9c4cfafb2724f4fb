//! Scenario tests of queues: shares, limits, states and moves. The invariants are checked after
//! every step; each test must end with `check`.

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{
    LeafOrder, QueueDefinition, QueueShare, QueueState, ShareOrAmount,
};
use headroom_rm_core::testkit::{ClusterScenario, id, is_never, size};
use headroom_rm_core::{
    AppSubmission, ApplicationOutcome, CallAnswer, CallRefusal, CallResult, ClusterCall,
    ClusterSettings, DryRun, MasterKind,
};
use headroom_types::{AppId, AttemptId, Bytes, Cpus, ExitReason, LaunchSpec, QueuePath, Resource};

fn part(thousandths: u32) -> QueueShare {
    QueueShare {
        memory: Some(ShareOrAmount::Part(thousandths)),
        ..QueueShare::default()
    }
}
fn gib(n: u64) -> QueueShare {
    QueueShare {
        memory: Some(ShareOrAmount::Exactly(Bytes::from_gib(n))),
        ..QueueShare::default()
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
fn scenario(queues: QueueTree) -> ClusterScenario {
    ClusterScenario::with(ClusterSettings {
        queues,
        ..ClusterSettings::default()
    })
}
fn submit(
    s: &mut ClusterScenario,
    queue: &str,
    user: &str,
    priority: i32,
) -> Result<AppId, CallRefusal> {
    let (name, queue, user) = (id("job"), id(queue), user.to_owned());
    let spec = AppSubmission {
        name,
        queue,
        priority,
        user,
        lifetime: None,
        master: MasterKind::Unmanaged,
        key: None,
    };
    let answer = s.call(ClusterCall::Submit(Box::new(spec)))?;
    let CallAnswer::Submitted { app, .. } = answer else {
        panic!("not submitted: {answer:?}")
    };
    Ok(app)
}
/// Submits an unmanaged application and registers its master.
fn app(s: &mut ClusterScenario, queue: &str, user: &str) -> AppId {
    let app = submit(s, queue, user, 0).expect("submitted");
    s.call(ClusterCall::RegisterMaster {
        attempt: AttemptId {
            app: app.clone(),
            attempt: 1,
        },
        url: None,
        nodes: None,
    })
    .expect("registers");
    app
}
fn managed(s: &mut ClusterScenario, queue: &str, resource: Resource) -> AppId {
    let launch = std::sync::Arc::new(LaunchSpec {
        command: vec!["am".into()],
        ..LaunchSpec::default()
    });
    let master = MasterKind::Managed {
        resource,
        launch,
        max_attempts: 2,
        growth: None,
        start_timeout: None,
        first_request: None,
    };
    let spec = AppSubmission {
        name: id("job"),
        queue: id(queue),
        priority: 0,
        user: "u".into(),
        lifetime: None,
        master,
        key: None,
    };
    match s.call(ClusterCall::Submit(Box::new(spec))) {
        Ok(CallAnswer::Submitted { app, .. }) => app,
        other => panic!("not submitted: {other:?}"),
    }
}
fn path(text: &str) -> QueuePath {
    id(text)
}
fn used(s: &ClusterScenario, queue: &str) -> Bytes {
    s.cluster
        .queues()
        .into_iter()
        .find(|view| *view.path == path(queue))
        .expect("the queue exists")
        .used
        .memory
}
fn why(s: &ClusterScenario, app: &AppId) -> String {
    s.cluster.why(app, s.now).expect("the application exists")[0]
        .sentence
        .clone()
}

#[test]
fn an_invalid_queue_tree_is_refused_with_all_its_problems() {
    let leaf = QueueDefinition {
        guaranteed: part(700),
        maximum: part(600),
        user_limit: Some(0),
        ..QueueDefinition::default()
    };
    let inner = QueueDefinition {
        order: LeafOrder::Fair,
        max_apps: Some(3),
        children: [(
            id("one"),
            QueueDefinition {
                weight: Some(0),
                ..QueueDefinition::default()
            },
        )]
        .into(),
        ..QueueDefinition::default()
    };
    let other = QueueDefinition {
        guaranteed: part(400),
        max_running: Some(0),
        ..QueueDefinition::default()
    };
    let children = [(id("a"), leaf), (id("b"), inner), (id("c"), other)].into();
    let problems = QueueTree::new(QueueDefinition {
        children,
        ..QueueDefinition::default()
    })
    .expect_err("the tree is invalid");
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "root: guaranteed: its child queues are guaranteed 110.0 % of its memory together; \
             lower them to at most 100 % together",
            "root: guaranteed: its child queues are guaranteed 110.0 % of its cpus together; \
             lower them to at most 100 % together",
            "root.a: maximum: less memory than is guaranteed; raise it to the guarantee, or lower the guarantee",
            "root.a: maximum: less cpus than is guaranteed; raise it to the guarantee, or lower the guarantee",
            "root.a: user_limit: is not a valid share of the queue; write more than 0 and at most 100 %",
            "root.b: order: has no effect on a queue with child queues; set it on its leaves",
            "root.b: max_apps: has no effect on a queue with child queues; set it on its leaves",
            "root.b.one: weight: is not a valid weight; write 1 to 1000000",
            "root.c: max_running: is 0; write more than 0, or stop the queue with its key state",
        ]
    );
    assert!(
        QueueTree::new(QueueDefinition::default()).is_err(),
        "a root without child queues is refused"
    );
    assert!(QueueTree::new(QueueTree::default().root().clone()).is_ok());
}

#[test]
fn exact_guarantees_must_not_exceed_that_of_their_parent() {
    let child = |n| QueueDefinition {
        guaranteed: gib(n),
        ..QueueDefinition::default()
    };
    let parent = |a, b| QueueDefinition {
        guaranteed: gib(10),
        children: [(id("x"), child(a)), (id("y"), child(b))].into(),
        ..QueueDefinition::default()
    };
    let root = |p| QueueDefinition {
        children: [(id("p"), p)].into(),
        ..QueueDefinition::default()
    };
    assert!(QueueTree::new(root(parent(4, 6))).is_ok());
    let problems = QueueTree::new(root(parent(5, 6))).expect_err("the tree is invalid");
    assert_eq!(
        problems[0].what,
        "its child queues are guaranteed more memory than the queue itself"
    );
}

#[test]
fn an_application_needs_an_existing_and_open_leaf_queue() {
    let inner = QueueDefinition {
        children: [(id("night"), QueueDefinition::default())].into(),
        ..QueueDefinition::default()
    };
    let small = QueueDefinition {
        max_apps: Some(1),
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![("etl", inner), ("small", small)]));
    assert_eq!(
        submit(&mut s, "nowhere", "u", 0),
        Err(CallRefusal::NoSuchQueue(path("nowhere")))
    );
    let leaf = path("etl.night");
    assert_eq!(
        submit(&mut s, "etl", "u", 0),
        Err(CallRefusal::NotALeaf {
            queue: path("etl"),
            leaf
        })
    );
    let first = submit(&mut s, "small", "u", 0).expect("accepts one application");
    let Err(CallRefusal::TooMany { what, most }) = submit(&mut s, "small", "u", 0) else {
        panic!("accepts a second application")
    };
    assert_eq!(
        (what.as_str(), most),
        ("applications in queue small that have not ended", 1)
    );
    s.call(ClusterCall::Kill {
        app: first,
        reason: None,
    })
    .expect("kills");
    submit(&mut s, "small", "u", 0).expect("accepts an application again");
    s.check();
}

#[test]
fn the_queue_with_the_smallest_share_of_its_guarantee_is_first() {
    let queue = |thousandths| QueueDefinition {
        guaranteed: part(thousandths),
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![("big", queue(750)), ("small", queue(250))]));
    let (big, small) = (app(&mut s, "big", "u"), app(&mut s, "small", "u"));
    s.ask_waits(&small, "w", 100, size(1, 1));
    s.ask_waits(&big, "w", 100, size(1, 1));
    s.node("n1", size(16, 16));
    assert_eq!(
        (used(&s, "big"), used(&s, "small")),
        (Bytes::from_gib(12), Bytes::from_gib(4))
    );
    assert_eq!(used(&s, "root"), Bytes::from_gib(16));
    s.check();
}

#[test]
fn the_dominant_resource_decides_between_queues() {
    let mut s = scenario(tree(vec![
        ("cpu", QueueDefinition::default()),
        ("mem", QueueDefinition::default()),
    ]));
    let (cpu, mem) = (app(&mut s, "cpu", "u"), app(&mut s, "mem", "u"));
    s.ask_waits(&cpu, "w", 100, size(1, 3));
    s.ask_waits(&mem, "w", 100, size(4, 1));
    s.node("n1", size(18, 9));
    // the example of the paper on dominant resource fairness: three containers of 1 cpu, 4 GiB
    // against two of 3 cpus, 1 GiB
    assert_eq!((s.alive(&mem).len(), s.alive(&cpu).len()), (3, 2));
    s.check();
}

#[test]
fn weight_and_priority_order_sibling_queues() {
    let heavy = QueueDefinition {
        weight: Some(3),
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![
        ("heavy", heavy),
        ("light", QueueDefinition::default()),
    ]));
    let (heavy, light) = (app(&mut s, "heavy", "u"), app(&mut s, "light", "u"));
    s.ask_waits(&light, "w", 100, size(1, 1));
    s.ask_waits(&heavy, "w", 100, size(1, 1));
    s.node("n1", size(16, 16));
    assert_eq!((s.alive(&heavy).len(), s.alive(&light).len()), (12, 4));
    s.check();
    let first = QueueDefinition {
        priority: 5,
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![
        ("a", QueueDefinition::default()),
        ("first", first),
    ]));
    let (a, first) = (app(&mut s, "a", "u"), app(&mut s, "first", "u"));
    s.ask_waits(&a, "w", 100, size(1, 1));
    s.ask_waits(&first, "w", 10, size(1, 1));
    s.node("n1", size(16, 16));
    assert_eq!((s.alive(&first).len(), s.alive(&a).len()), (10, 6));
    s.check();
}

#[test]
fn a_fair_leaf_shares_resources_and_a_fifo_leaf_does_not() {
    for (order, expected) in [(LeafOrder::Fifo, (16, 0)), (LeafOrder::Fair, (8, 8))] {
        let mut s = scenario(tree(vec![(
            "q",
            QueueDefinition {
                order,
                ..QueueDefinition::default()
            },
        )]));
        let (one, two) = (app(&mut s, "q", "u"), app(&mut s, "q", "v"));
        s.ask_waits(&one, "w", 100, size(1, 1));
        s.ask_waits(&two, "w", 100, size(1, 1));
        s.node("n1", size(16, 16));
        assert_eq!(
            (s.alive(&one).len(), s.alive(&two).len()),
            expected,
            "{order:?}"
        );
        s.check();
    }
}

#[test]
fn no_queue_exceeds_its_maximum_and_the_sentence_names_the_queue() {
    let inner = QueueDefinition {
        maximum: part(500),
        children: [
            (
                id("x"),
                QueueDefinition {
                    maximum: gib(6),
                    ..QueueDefinition::default()
                },
            ),
            (id("y"), QueueDefinition::default()),
        ]
        .into(),
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![
        ("etl", inner),
        ("rest", QueueDefinition::default()),
    ]));
    s.node("n1", size(16, 16)).node("n2", size(4, 4));
    let (x, y) = (app(&mut s, "etl.x", "u"), app(&mut s, "etl.y", "u"));
    s.ask(&x, "w", 5, size(2, 1)).expect("asks");
    assert_eq!(s.alive(&x).len(), 3);
    assert_eq!(why(&s, &x), "queue etl.x is at its maximum: 6 GiB of 6 GiB");
    s.ask(&y, "w", 5, size(3, 1)).expect("asks");
    assert_eq!(s.alive(&y).len(), 1);
    assert_eq!(
        why(&s, &y),
        "queue etl is at its maximum: 9 GiB of 10 GiB, and this needs 3 GiB"
    );
    let answer = s.ask(&x, "huge", 1, size(7, 1));
    assert!(is_never(&answer));
    let Err(CallRefusal::NeverFits { sentence, largest }) = answer else {
        unreachable!()
    };
    assert_eq!(
        sentence,
        "needs 7 GiB, and queue etl.x may never have more than 6 GiB"
    );
    assert_eq!(largest.memory, Bytes::from_gib(6));
    // the cluster grows, and so does the limit of half of it
    s.node("n3", size(16, 16));
    assert_eq!((s.alive(&x).len(), s.alive(&y).len()), (3, 4));
    s.check();
}

#[test]
fn a_wait_sentence_contains_the_use_of_the_queue() {
    let mut s = scenario(tree(vec![(
        "etl",
        QueueDefinition {
            maximum: gib(10),
            ..QueueDefinition::default()
        },
    )]));
    s.node("n1", size(8, 8));
    let a = app(&mut s, "etl", "u");
    s.ask(&a, "w", 1, size(5, 1)).expect("asks");
    let sentence = s.ask_waits(&a, "more", 1, size(4, 1));
    assert_eq!(
        sentence,
        "needs 4 GiB on one node; best is n1 with 3 GiB free; queue etl is at 50 % of its maximum"
    );
    s.check();
}

#[test]
fn users_and_masters_have_separate_limits() {
    let spec = QueueDefinition {
        user_limit: Some(250),
        master_share: Some(100),
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![("q", spec)]));
    s.node("n1", size(16, 16)).node("n2", size(4, 4));
    let (one, again, two) = (
        app(&mut s, "q", "ann"),
        app(&mut s, "q", "ann"),
        app(&mut s, "q", "bob"),
    );
    s.ask(&one, "w", 3, size(2, 1)).expect("asks");
    assert_eq!(s.alive(&one).len(), 2);
    assert_eq!(
        why(&s, &one),
        "user ann is at the user limit of queue q: 4 GiB of 5 GiB, and this needs 2 GiB"
    );
    s.ask(&again, "w", 3, size(1, 1)).expect("asks");
    s.ask(&two, "w", 2, size(2, 1)).expect("asks");
    assert_eq!((s.alive(&again).len(), s.alive(&two).len()), (1, 2));
    let masters: Vec<AppId> = (0..3).map(|_| managed(&mut s, "q", size(1, 1))).collect();
    assert_eq!(
        masters.iter().map(|m| s.alive(m).len()).collect::<Vec<_>>(),
        [1, 1, 0]
    );
    let third = s.cluster.app(&masters[2]).expect("app");
    let sentence = s.cluster.master_wait(third, s.now).expect("waits");
    assert_eq!(
        sentence.into_sentence(),
        "masters in queue q are at their limit: 2 GiB of 2 GiB"
    );
    s.check();
}

#[test]
fn max_running_limits_the_running_applications() {
    let mut s = scenario(tree(vec![(
        "q",
        QueueDefinition {
            max_running: Some(1),
            ..QueueDefinition::default()
        },
    )]));
    s.node("n1", size(16, 16));
    let (first, second) = (
        managed(&mut s, "q", size(1, 1)),
        managed(&mut s, "q", size(1, 1)),
    );
    assert_eq!((s.alive(&first).len(), s.alive(&second).len()), (1, 0));
    let waits = s.cluster.app(&second).expect("app");
    let sentence = s.cluster.master_wait(waits, s.now).expect("waits");
    assert_eq!(
        sentence.into_sentence(),
        "queue q runs 1 application, as many as max_running allows"
    );
    let free = app(&mut s, "q", "u");
    s.ask_waits(&free, "w", 1, size(1, 1));
    s.call(ClusterCall::Kill {
        app: first.clone(),
        reason: None,
    })
    .expect("kills");
    s.settle();
    assert_eq!(s.alive(&second).len(), 1);
    s.call(ClusterCall::Kill {
        app: second,
        reason: None,
    })
    .expect("kills");
    s.settle();
    assert_eq!(s.alive(&free).len(), 1);
    s.check();
}

#[test]
fn a_queue_state_blocks_grants_or_submissions_and_survives_a_restart() {
    let mut s = scenario(tree(vec![
        ("a", QueueDefinition::default()),
        ("b", QueueDefinition::default()),
    ]));
    s.node("n1", size(16, 16));
    let a = app(&mut s, "a", "u");
    let set_state = |s: &mut ClusterScenario, queue: &str, state| {
        s.call(ClusterCall::SetQueueState {
            queue: path(queue),
            state,
        })
    };
    assert_eq!(
        set_state(&mut s, "a", QueueState::Paused),
        Ok(CallAnswer::Queues { generation: 1 })
    );
    assert_eq!(
        set_state(&mut s, "a", QueueState::Paused),
        Ok(CallAnswer::Queues { generation: 1 }),
        "the same state is no change"
    );
    let sentence = s.ask_waits(&a, "w", 2, size(1, 1));
    assert_eq!(sentence, "queue a is paused and grants no containers");
    submit(&mut s, "a", "u", 0).expect("a paused queue accepts applications");
    set_state(&mut s, "a", QueueState::Draining).expect("sets");
    assert_eq!(s.alive(&a).len(), 2);
    let refused = Err(CallRefusal::QueueNotAdmitting {
        queue: path("a"),
        state: "draining",
    });
    assert_eq!(submit(&mut s, "a", "u", 0), refused);
    set_state(&mut s, "root", QueueState::Stopped).expect("sets");
    assert!(matches!(
        submit(&mut s, "b", "u", 0),
        Err(CallRefusal::QueueNotAdmitting {
            state: "stopped",
            ..
        })
    ));
    s.restart().register("n1");
    assert!(matches!(
        submit(&mut s, "b", "u", 0),
        Err(CallRefusal::QueueNotAdmitting { .. })
    ));
    assert_eq!(
        set_state(&mut s, "none", QueueState::Running),
        Err(CallRefusal::NoSuchQueue(path("none")))
    );
    assert_eq!(s.cluster.queues_generation(), 3);
    s.check();
}

/// A node with an application in each of the leaves `a` and `b`, which together use its memory.
fn two_full_leaves() -> (ClusterScenario, AppId, AppId) {
    let mut s = scenario(tree(vec![
        ("a", QueueDefinition::default()),
        ("b", QueueDefinition::default()),
    ]));
    s.node("n1", size(16, 16));
    let (a, b) = (app(&mut s, "a", "u"), app(&mut s, "b", "u"));
    s.ask(&a, "w", 4, size(2, 1)).expect("asks");
    s.ask(&b, "w", 9, size(1, 1)).expect("asks");
    (s, a, b)
}

fn set_queues(
    s: &mut ClusterScenario,
    tree: QueueTree,
    generation: Option<u64>,
    how: DryRun,
) -> CallResult {
    s.call(ClusterCall::SetQueues {
        tree: Box::new(tree),
        generation,
        how,
    })
}

/// The leaves `b` and `c`: leaf `a` is removed.
fn tree_without_a() -> QueueTree {
    tree(vec![
        ("b", QueueDefinition::default()),
        ("c", QueueDefinition::default()),
    ])
}

/// The leaves `a`, with a maximum of 6 GiB, and `b`.
fn tree_with_small_a() -> QueueTree {
    let a = QueueDefinition {
        maximum: gib(6),
        ..QueueDefinition::default()
    };
    tree(vec![("a", a), ("b", QueueDefinition::default())])
}

#[test]
fn a_new_queue_tree_is_applied_completely_or_refused() {
    let (mut s, ..) = two_full_leaves();
    let refused = set_queues(&mut s, tree_without_a(), None, DryRun::Really);
    let Err(CallRefusal::BadQueues(problems)) = refused else {
        panic!("a leaf with an application is removed")
    };
    let expected = "root.a: queues: would not be a leaf any more, and has the applications job.1; \
                move them to another leaf first, or wait for their end";
    assert_eq!(problems[0].to_string(), expected);
    let stale = CallRefusal::Conflict {
        what: "the tree of queues".into(),
        given: 7,
        current: 0,
    };
    assert_eq!(
        set_queues(&mut s, tree_with_small_a(), Some(7), DryRun::Really),
        Err(stale)
    );
    assert_eq!(
        set_queues(&mut s, tree_with_small_a(), Some(0), DryRun::DryRun),
        Ok(CallAnswer::Queues { generation: 1 })
    );
    assert_eq!(s.cluster.queues_generation(), 0);
    assert_eq!(
        set_queues(&mut s, tree_with_small_a(), Some(0), DryRun::Really),
        Ok(CallAnswer::Queues { generation: 1 })
    );
    let same = set_queues(&mut s, tree_with_small_a(), None, DryRun::Really);
    assert_eq!(
        same,
        Ok(CallAnswer::Queues { generation: 1 }),
        "the same tree is no change"
    );
    s.check();
}

#[test]
fn a_queue_above_its_new_maximum_keeps_its_containers_and_gets_no_more() {
    let (mut s, a, b) = two_full_leaves();
    set_queues(&mut s, tree_with_small_a(), None, DryRun::Really).expect("the tree is valid");
    assert_eq!((used(&s, "a"), s.alive(&b).len()), (Bytes::from_gib(8), 8));
    let c = s.settle().alive(&a)[0].clone();
    s.exit(&c, ExitReason::Exit { code: 0 });
    s.ask(&a, "w", 5, size(2, 1)).expect("asks");
    assert_eq!((used(&s, "a"), s.alive(&b).len()), (Bytes::from_gib(6), 9));
    s.restart().register("n1");
    assert_eq!(s.cluster.queue_tree(), &tree_with_small_a());
    s.call(ClusterCall::Kill {
        app: a,
        reason: None,
    })
    .expect("kills");
    s.settle();
    assert_eq!(
        set_queues(&mut s, tree_without_a(), None, DryRun::Really),
        Ok(CallAnswer::Queues { generation: 2 })
    );
    assert_eq!(
        (used(&s, "b"), used(&s, "root"), s.logged("QueuesSet")),
        (Bytes::from_gib(9), Bytes::from_gib(9), 2)
    );
    s.check();
}

#[test]
fn an_application_moves_with_its_containers_and_requests() {
    let closed = QueueDefinition {
        state: QueueState::Stopped,
        ..QueueDefinition::default()
    };
    let mut s = scenario(tree(vec![
        ("a", QueueDefinition::default()),
        ("b", QueueDefinition::default()),
        ("shut", closed),
    ]));
    s.node("n1", size(8, 16));
    let (one, two) = (app(&mut s, "a", "u"), app(&mut s, "a", "v"));
    s.ask(&one, "w", 10, size(1, 1)).expect("asks");
    s.ask_waits(&two, "w", 10, size(1, 1));
    let change = |s: &mut ClusterScenario, app: &AppId, queue: Option<&str>, priority| {
        s.call(ClusterCall::ChangeApp {
            app: app.clone(),
            queue: queue.map(path),
            priority,
            lifetime: None,
        })
    };
    assert_eq!(
        change(&mut s, &one, Some("none"), None),
        Err(CallRefusal::NoSuchQueue(path("none")))
    );
    assert!(matches!(
        change(&mut s, &one, Some("shut"), None),
        Err(CallRefusal::QueueNotAdmitting { .. })
    ));
    change(&mut s, &one, Some("b"), None).expect("moves");
    assert_eq!(
        (used(&s, "a"), used(&s, "b"), used(&s, "root")),
        (Bytes::ZERO, Bytes::from_gib(8), Bytes::from_gib(8))
    );
    let c = s.settle().alive(&one)[0].clone();
    s.exit(&c, ExitReason::Exit { code: 0 });
    let both = (used(&s, "a"), used(&s, "b"));
    assert_eq!(
        both,
        (Bytes::from_gib(1), Bytes::from_gib(7)),
        "the freed resources go to the other application"
    );
    change(&mut s, &two, None, Some(9)).expect("changes");
    s.restart().register("n1").settle();
    let two = s.cluster.app(&two).expect("app");
    let one = s.cluster.app(&one).expect("app");
    assert_eq!(
        (
            two.priority,
            two.queue.short(),
            one.priority,
            one.queue.short()
        ),
        (9, "a", 0, "b")
    );
    assert_eq!(
        (used(&s, "a"), used(&s, "b")),
        (Bytes::from_gib(1), Bytes::from_gib(7))
    );
    s.check();
}

#[test]
fn an_application_of_a_removed_queue_continues_in_the_default_queue() {
    let mut s = scenario(tree(vec![
        ("a", QueueDefinition::default()),
        ("default", QueueDefinition::default()),
    ]));
    s.node("n1", size(8, 16));
    let one = app(&mut s, "a", "u");
    s.ask(&one, "w", 2, size(1, 1)).expect("asks");
    s.settle();
    s.reconfigure(|settings| settings.queues = QueueTree::default());
    s.restart().register("n1").settle();
    assert_eq!(
        (used(&s, "default"), s.state(&one)),
        (Bytes::from_gib(2), "running")
    );
    assert_eq!(s.cluster.app(&one).expect("app").queue, path("default"));
    s.check();
}

#[test]
fn an_ended_application_uses_no_resources_of_its_queue() {
    let mut s = scenario(tree(vec![(
        "q",
        QueueDefinition {
            order: LeafOrder::Fair,
            ..QueueDefinition::default()
        },
    )]));
    s.node("n1", Resource::new(Bytes::from_gib(8), Cpus::from_cores(8)));
    let one = app(&mut s, "q", "ann");
    s.ask(&one, "w", 20, size(1, 1)).expect("asks");
    let view = |s: &ClusterScenario| {
        let views = s.cluster.queues();
        let q = views
            .iter()
            .find(|view| view.path.short() == "q")
            .expect("q");
        (
            q.used.memory.whole_mib() / 1024,
            q.pending_containers,
            q.apps,
            q.users.len(),
            q.dominant,
        )
    };
    assert_eq!(view(&s), (8, 12, 1, 1, 1000));
    s.finish(&one, ApplicationOutcome::Succeeded)
        .expect("finishes");
    s.settle();
    assert_eq!(view(&s), (0, 0, 0, 0, 0));
    s.check();
}
