//! Scenario tests of masters that grow after memory failures. The invariants are checked after every
//! step; each test must end with `check`.

use std::sync::Arc;
use std::time::Duration;

use headroom_rm_core::MasterKind;
use headroom_rm_core::testkit::{ClusterScenario, size};
use headroom_types::{AppId, Bytes, ContainerId, ExitReason, LaunchSpec, MasterGrowth, Reason};

/// A cluster with one node of 8 GiB, and a master of 2 GiB with a heap of 1 GiB.
fn scenario(max_attempts: u32, max_gib: u64) -> (ClusterScenario, AppId) {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let launch = LaunchSpec {
        command: vec!["spark-submit".into()],
        heap: Some(Bytes::from_gib(1)),
        ..LaunchSpec::default()
    };
    let master = MasterKind::Managed {
        resource: size(2, 1),
        launch: Arc::new(launch),
        max_attempts,
        growth: Some(MasterGrowth {
            max_memory: Bytes::from_gib(max_gib),
        }),
        start_timeout: Some(Duration::from_secs(600)),
        first_request: None,
    };
    let app = s.submit("driver", 0, master);
    s.settle();
    (s, app)
}

/// The only container of the master.
fn master(s: &ClusterScenario, app: &AppId) -> ContainerId {
    s.alive(app)[0].clone()
}

/// Memory and heap of the present container of the master, as its node is ordered to start it. GiB.
fn sizes(s: &ClusterScenario, app: &AppId) -> (u64, Option<u64>) {
    let c = s
        .cluster
        .container(&master(s, app))
        .expect("the master has a container");
    let gib = |size: Bytes| size.get() >> 30;
    (gib(c.resource.memory), c.launch.heap.map(gib))
}

/// Ends the container of the master.
fn fail(s: &mut ClusterScenario, app: &AppId, reason: ExitReason) {
    let container = master(s, app);
    s.exit(&container, reason).settle();
}

/// Charged and uncharged failures.
fn failures(s: &ClusterScenario, app: &AppId) -> (u32, u32) {
    let app = s.cluster.app(app).expect("the application is known");
    (app.charged, app.uncharged)
}

#[test]
fn a_full_heap_doubles_the_heap_only() {
    let (mut s, app) = scenario(1, 8);
    s.master(&app).expect("registers");
    let first = master(&s, &app);
    s.exit(&first, ExitReason::HeapOom).settle();
    assert_eq!(sizes(&s, &app), (3, Some(2)));
    assert_eq!(failures(&s, &app), (0, 1), "the failure is not charged");
    let line = s
        .log
        .iter()
        .find(|line| line.reason == Reason::Escalated)
        .expect("the growth is an event");
    assert_eq!(line.object.to_string(), first.to_string());
    assert_eq!(
        line.message(),
        "attempt 2 of the master gets heap 2 GiB instead of 1 GiB, memory 3 GiB instead of 2 GiB"
    );
    s.check();
}

#[test]
fn memory_outside_of_the_heap_doubles_the_overhead_only() {
    let (mut s, app) = scenario(1, 8);
    fail(&mut s, &app, ExitReason::OverheadOom);
    assert_eq!(sizes(&s, &app), (3, Some(1)));
    fail(&mut s, &app, ExitReason::StalledAtLimit);
    assert_eq!(sizes(&s, &app), (5, Some(1)));
    s.check();
}

#[test]
fn an_application_ends_when_its_master_cannot_grow() {
    let (mut s, app) = scenario(3, 4);
    fail(&mut s, &app, ExitReason::HeapOom);
    fail(&mut s, &app, ExitReason::HeapOom);
    assert_eq!(sizes(&s, &app), (4, Some(3)), "cut at the maximum");
    fail(&mut s, &app, ExitReason::HeapOom);
    assert_eq!(s.state(&app), "failed");
    let why = &s.cluster.app(&app).expect("app").diagnostics;
    assert!(
        why.ends_with("the heap is full; it has 4 GiB and cannot grow: its growth ends at 4 GiB"),
        "{why}"
    );
    assert_eq!(failures(&s, &app), (1, 2));
    s.check();
}

#[test]
fn the_largest_node_limits_the_growth() {
    let (mut s, app) = scenario(1, 64);
    for memory in [3, 5, 8] {
        fail(&mut s, &app, ExitReason::HeapOom);
        assert_eq!(sizes(&s, &app), (memory, Some(memory - 1)));
    }
    fail(&mut s, &app, ExitReason::HeapOom);
    assert_eq!(s.state(&app), "failed");
    s.check();
}

#[test]
fn other_failures_are_charged_and_keep_the_size() {
    let (mut s, app) = scenario(2, 8);
    fail(&mut s, &app, ExitReason::HeapOom);
    fail(&mut s, &app, ExitReason::Exit { code: 1 });
    assert_eq!(sizes(&s, &app), (3, Some(2)));
    assert_eq!(failures(&s, &app), (1, 1));
    fail(&mut s, &app, ExitReason::Exit { code: 1 });
    assert_eq!(s.state(&app), "failed");
    s.check();
}

#[test]
fn a_master_may_take_longer_to_start_than_between_two_heartbeats() {
    let (mut s, app) = scenario(1, 8);
    s.alive_for(Duration::from_secs(590));
    assert_eq!((s.state(&app), s.alive(&app).len()), ("accepted", 1));
    s.master(&app).expect("registers");
    s.alive_for(Duration::from_secs(31)).settle();
    assert_eq!(s.state(&app), "failed");
    let why = &s.cluster.app(&app).expect("app").diagnostics;
    assert!(why.contains("no heartbeat for 30 s"), "{why}");
    s.check();
}

#[test]
fn a_master_that_never_registers_fails() {
    let (mut s, app) = scenario(1, 8);
    s.alive_for(Duration::from_secs(605)).settle();
    let why = &s.cluster.app(&app).expect("app").diagnostics;
    assert!(why.contains("did not register within 600 s"), "{why}");
    s.check();
}

#[test]
fn a_restart_keeps_the_size_and_the_growth() {
    let (mut s, app) = scenario(1, 8);
    fail(&mut s, &app, ExitReason::HeapOom);
    s.restart().register("n1").settle();
    // The node reports the size of a container that runs, and not its launch.
    assert_eq!(sizes(&s, &app).0, 3);
    s.master(&app).expect("registers");
    fail(&mut s, &app, ExitReason::OverheadOom);
    assert_eq!(sizes(&s, &app), (4, Some(2)));
    s.check();
}
