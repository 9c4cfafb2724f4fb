//! Scenario tests of draining nodes.

use std::time::Duration;

use headroom_rm_core::testkit::{ClusterScenario, id, size};
use headroom_rm_core::{AfterDrain, CallAnswer, CallRefusal, CallResult, ClusterCall, UpdateKind};
use headroom_types::{AppId, ContainerId, ExitReason, NodeId, UnixMillis};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn drain(s: &mut ClusterScenario, node: &str, within: Option<u64>, then: AfterDrain) -> CallResult {
    s.call(ClusterCall::Drain {
        node: id(node),
        within: within.map(secs),
        reason: "new disks".into(),
        then,
    })
}
fn undrain(s: &mut ClusterScenario, node: &str) -> CallResult {
    s.call(ClusterCall::Undrain { node: id(node) })
}
fn standing(s: &ClusterScenario, node: &str) -> &'static str {
    s.cluster
        .node_table()
        .displayed_state(s.cluster.node(&id(node)).expect("a node"))
}
fn nodes_of(s: &ClusterScenario, app: &AppId) -> Vec<String> {
    s.alive(app)
        .iter()
        .filter_map(|c| s.cluster.container(c))
        .map(|c| c.node.to_string())
        .collect()
}
/// Drain updates that masters received: node and deadline.
fn drain_updates(s: &ClusterScenario, app: &AppId) -> Vec<(NodeId, Option<UnixMillis>)> {
    let all = s.updates.get(app).map(|u| u.iter()).into_iter().flatten();
    all.filter_map(|(_, u)| match &u.what {
        UpdateKind::NodeDraining { node, until } => Some((node.clone(), *until)),
        UpdateKind::Allocated(_)
        | UpdateKind::Running { .. }
        | UpdateKind::Exited { .. }
        | UpdateKind::Resized { .. }
        | UpdateKind::ResizeFailed { .. }
        | UpdateKind::PreemptSoon { .. }
        | UpdateKind::Expired { .. }
        | UpdateKind::Order(_) => None,
    })
    .collect()
}
fn hear(s: &mut ClusterScenario, app: &AppId) {
    let last = s.cluster.app(app).expect("app").updates.last();
    s.sync(app, last, vec![]).expect("syncs");
}
/// Advances the time while masters and nodes send heartbeats.
fn live(s: &mut ClusterScenario, apps: &[&AppId], seconds: u64) {
    for _ in 0..seconds {
        s.alive_for(secs(1));
        for app in apps {
            hear(s, app);
        }
    }
}
/// Two nodes of 4 GiB; the application has two containers on n1 and none on n2.
fn two() -> (ClusterScenario, AppId, Vec<ContainerId>) {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 2, size(2, 1)).expect("asks");
    s.settle().node("n2", size(4, 4));
    let work = s.alive(&app);
    (s, app, work)
}

#[test]
fn a_draining_node_gets_no_containers_and_becomes_drained() {
    let (mut s, app, work) = two();
    assert_eq!(
        drain(&mut s, "n1", None, AfterDrain::Stay),
        Ok(CallAnswer::Done)
    );
    assert_eq!(drain_updates(&s, &app), [(id("n1"), None)]);
    s.exit(&work[0], OK);
    s.ask(&app, "work", 4, size(2, 1)).expect("asks");
    assert_eq!(nodes_of(&s, &app), ["n1", "n2", "n2"]);
    assert_eq!(standing(&s, "n1"), "draining");
    s.exit(&work[1], OK);
    assert_eq!(
        standing(&s, "n1"),
        "draining",
        "an unacknowledged end keeps the node draining"
    );
    hear(&mut s, &app);
    assert_eq!(standing(&s, "n1"), "drained");
    assert_eq!((s.logged("NodeDraining"), s.logged("NodeDrained")), (1, 1));
    let sentence = s.ask_waits(&app, "more", 1, size(2, 1));
    assert!(sentence.contains("best is n2"), "{sentence}");
    assert_eq!(undrain(&mut s, "n1"), Ok(CallAnswer::Done));
    assert_eq!(
        undrain(&mut s, "n1"),
        Ok(CallAnswer::Done),
        "a second undrain changes nothing"
    );
    assert_eq!(
        nodes_of(&s, &app),
        ["n2", "n2", "n1"],
        "the waiting container is placed on n1 at once"
    );
    s.check();
}

#[test]
fn at_the_deadline_the_remaining_containers_are_preempted() {
    let (mut s, app, _) = two();
    drain(&mut s, "n1", Some(20), AfterDrain::Stay).expect("drains");
    assert_eq!(
        drain_updates(&s, &app),
        [(id("n1"), Some(UnixMillis(1_020_000)))]
    );
    live(&mut s, &[&app], 19);
    assert_eq!(s.alive(&app).len(), 2);
    live(&mut s, &[&app], 1);
    s.settle();
    let reasons: Vec<ExitReason> = s
        .cluster
        .containers()
        .filter_map(|c| c.state.report())
        .map(|r| r.reason)
        .collect();
    assert_eq!(reasons, [ExitReason::Preempted; 2]);
    assert_eq!(
        standing(&s, "n1"),
        "drained",
        "after the deadline the node does not wait for acknowledgements"
    );
    s.check();
}

#[test]
fn a_later_drain_replaces_the_deadline() {
    let (mut s, app, _) = two();
    drain(&mut s, "n1", Some(5), AfterDrain::Stay).expect("drains");
    drain(&mut s, "n1", Some(15), AfterDrain::Stay).expect("drains longer");
    live(&mut s, &[&app], 10);
    assert_eq!(s.alive(&app).len(), 2);
    drain(&mut s, "n1", None, AfterDrain::Stay).expect("drains without a deadline");
    live(&mut s, &[&app], 20);
    assert_eq!(s.alive(&app).len(), 2);
    drain(&mut s, "n1", Some(0), AfterDrain::Stay).expect("drains now");
    s.settle();
    assert_eq!(s.alive(&app).len(), 0);
    s.check();
}

#[test]
fn a_managed_master_is_launched_again_elsewhere_and_not_charged() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.managed("job", size(1, 1), 1);
    s.settle();
    s.master(&app).expect("registers");
    s.node("n2", size(4, 4));
    drain(&mut s, "n1", Some(10), AfterDrain::Stay).expect("drains");
    assert_eq!(
        drain_updates(&s, &app).len(),
        1,
        "the master receives the drain of its own node too"
    );
    live(&mut s, &[&app], 9);
    s.alive_for(secs(2)).settle();
    assert_eq!(nodes_of(&s, &app), ["n2"]);
    let record = s.cluster.app(&app).expect("app");
    assert_eq!(
        (record.attempt, record.charged, record.uncharged),
        (2, 0, 1)
    );
    assert_eq!(standing(&s, "n1"), "drained");
    s.check();
}

#[test]
fn a_decommissioned_node_cannot_register_before_an_undrain() {
    let (mut s, app, work) = two();
    drain(&mut s, "n1", None, AfterDrain::Decommission).expect("drains");
    s.restart().register("n1").register("n2");
    s.master(&app).expect("registers");
    assert_eq!(
        standing(&s, "n1"),
        "draining",
        "the node drains while containers run there"
    );
    assert_eq!(
        drain_updates(&s, &app).last(),
        Some(&(id("n1"), None)),
        "the next epoch repeats the update"
    );
    s.exit(&work[0], OK).exit(&work[1], OK);
    hear(&mut s, &app);
    assert_eq!(standing(&s, "n1"), "decommissioned");
    assert!(matches!(
        s.report("n1"),
        Err(CallRefusal::NodeNotRegistered(_))
    ));
    assert_eq!(
        s.try_register("n1"),
        Err(CallRefusal::Decommissioned(id("n1")))
    );
    assert_eq!(
        s.cluster
            .node_table()
            .largest()
            .map(|(n, _)| n.to_string())
            .as_deref(),
        Some("n2")
    );
    s.restart();
    assert_eq!(
        s.cluster.node_table().recovery().map(|r| r.waiting.len()),
        Some(1),
        "the recovery waits only for n2"
    );
    assert_eq!(
        s.try_register("n1"),
        Err(CallRefusal::Decommissioned(id("n1")))
    );
    s.register("n2");
    assert_eq!(undrain(&mut s, "n1"), Ok(CallAnswer::Done));
    s.register("n1");
    assert_eq!(standing(&s, "n1"), "ready");
    s.restart().register("n1").register("n2");
    assert_eq!(s.cluster.node_table().marks().count(), 0);
    s.check();
}

#[test]
fn a_drained_node_can_be_decommissioned_and_return_drained() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    drain(&mut s, "n1", Some(60), AfterDrain::Stay).expect("drains");
    assert_eq!(
        standing(&s, "n1"),
        "drained",
        "an empty node is drained at once"
    );
    drain(&mut s, "n1", None, AfterDrain::Decommission).expect("decommissions");
    assert_eq!(
        (standing(&s, "n1"), s.logged("NodeDecommissioned")),
        ("decommissioned", 1)
    );
    drain(&mut s, "n1", None, AfterDrain::Stay).expect("may register again, drained");
    s.register("n1");
    assert_eq!(standing(&s, "n1"), "drained");
    assert_eq!(
        undrain(&mut s, "n9"),
        Err(CallRefusal::NoSuchNode(id("n9")))
    );
    assert_eq!(
        drain(&mut s, "n9", None, AfterDrain::Stay),
        Err(CallRefusal::NoSuchNode(id("n9")))
    );
    s.check();
}

#[test]
fn the_deadline_holds_across_a_restart() {
    let (mut s, app, _) = two();
    drain(&mut s, "n1", Some(20), AfterDrain::Stay).expect("drains");
    live(&mut s, &[&app], 5);
    s.restart().register("n1").register("n2");
    s.master(&app).expect("registers");
    live(&mut s, &[&app], 14);
    assert_eq!(s.alive(&app).len(), 2);
    live(&mut s, &[&app], 2);
    s.settle();
    assert_eq!(s.alive(&app).len(), 0);
    s.check();
}

#[test]
fn a_deadline_that_passed_during_downtime_takes_effect_at_registration() {
    let (mut s, app, _) = two();
    drain(&mut s, "n1", Some(20), AfterDrain::Stay).expect("drains");
    s.now = s.now.plus(secs(30));
    s.restart().register("n1").register("n2").settle();
    assert_eq!(s.alive(&app).len(), 0);
    s.check();
}

#[test]
fn a_node_that_is_lost_while_draining_is_drained() {
    let (mut s, app, work) = two();
    drain(&mut s, "n1", None, AfterDrain::Decommission).expect("drains");
    s.nodes
        .get_mut(&id::<NodeId>("n1"))
        .expect("node")
        .connected = false;
    live(&mut s, &[&app], 31);
    assert_eq!(standing(&s, "n1"), "decommissioned");
    let over = s
        .cluster
        .history()
        .get(&work[0])
        .map(|f| (f.reason, f.why.as_str()));
    assert_eq!(
        over,
        Some((ExitReason::NodeLost, "n1 sent no heartbeat for 30 s"))
    );
    s.check();
}

#[test]
fn a_node_that_does_not_register_after_a_restart_is_drained() {
    let (mut s, app, _) = two();
    drain(&mut s, "n1", None, AfterDrain::Decommission).expect("drains");
    s.restart().register("n2");
    s.alive_for(secs(11));
    assert!(
        s.cluster
            .node_table()
            .mark(&id("n1"))
            .is_some_and(|mark| mark.drained)
    );
    assert_eq!(
        s.try_register("n1"),
        Err(CallRefusal::Decommissioned(id("n1")))
    );
    s.master(&app).expect("registers");
    s.check();
}

#[test]
fn a_drained_node_that_registers_with_containers_is_draining_again() {
    let (mut s, app, _) = two();
    drain(&mut s, "n1", None, AfterDrain::Stay).expect("drains");
    s.nodes
        .get_mut(&id::<NodeId>("n1"))
        .expect("node")
        .connected = false;
    for _ in 0..31 {
        s.alive_for(secs(1));
        s.sync(&app, 0, vec![])
            .expect("the master is registered and acknowledges no end");
    }
    assert!(
        s.cluster
            .node_table()
            .mark(&id("n1"))
            .is_some_and(|mark| mark.drained)
    );
    s.restart().register("n1").register("n2");
    assert_eq!((standing(&s, "n1"), s.alive(&app).len()), ("draining", 2));
    s.check();
}
