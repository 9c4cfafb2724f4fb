//! Restarts of the resource manager: the state that it saved, and the state that nodes and masters
//! report again. The invariants are checked after every step; each test must end with `check`.

use std::time::Duration;

use headroom_rm_core::testkit::{ClusterScenario, ask, id, size};
use headroom_rm_core::{
    AppSubmission, ApplicationOutcome, CallAnswer, CallRefusal, ClusterCall, ContainerPhase,
    ContainerSize, DryRun, FinalRows, MasterHeartbeat, MasterKind, UpdateKind,
};
use headroom_types::{Epoch, ExitReason, NodeId};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn an_end_with_changed_rows_waits_for_the_registration() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.app("job");
    s.settle();
    s.restart();
    s.register("n1");
    let end = |s: &ClusterScenario, rows| ClusterCall::Finish {
        attempt: s.attempt(&app),
        outcome: ApplicationOutcome::Succeeded,
        diagnostics: "done".into(),
        rows,
    };
    let changed = end(&s, FinalRows::Changed);
    let refused = s.call(changed.clone()).expect_err("rows are missing");
    assert_eq!(refused, CallRefusal::MasterNotRegistered(app.clone()));
    assert_eq!(s.state(&app), "running", "the job has not ended");
    s.master(&app).expect("registers");
    s.call(changed.clone()).expect("ends");
    // The answer may be lost, also to a resource manager that then restarts.
    s.call(changed.clone()).expect("repeats");
    s.restart();
    s.call(changed).expect("the end is saved");
    s.check();
}

#[test]
fn an_end_with_all_rows_needs_no_registration() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.app("job");
    s.settle();
    s.restart();
    s.finish(&app, ApplicationOutcome::Succeeded).expect("ends");
    s.check();
}

#[test]
fn a_node_gets_commands_only_for_what_it_did_not_report_as_wanted() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.app("job");
    s.ask(&app, "work", 4, size(1, 1)).expect("asks");
    s.settle();
    let node: NodeId = id("n1");
    let commands = |s: &ClusterScenario| s.cluster.commands_for(&node);
    assert_eq!(commands(&s), [], "all four run in the size that they have");
    let [resized, stopped, ..] = &s.alive(&app)[..] else {
        panic!("no containers")
    };
    let (resized, stopped) = (resized.clone(), stopped.clone());
    s.nodes.get_mut(&node).expect("the node").connected = false;
    let size = ContainerSize {
        resource: size(2, 1),
        heap: None,
    };
    let (container, how) = (resized.clone(), DryRun::Really);
    let resize = ClusterCall::Resize {
        container,
        version: None,
        size,
        how,
    };
    s.call(resize).expect("the node has the memory");
    let container = stopped.clone();
    s.call(ClusterCall::Stop { container }).expect("it runs");
    let names: Vec<_> = commands(&s).into_iter().map(|(c, _)| c).collect();
    assert_eq!(names, [resized, stopped], "it may have missed these orders");

    s.restart();
    s.register("n1");
    assert_eq!(commands(&s), [], "the new resource manager adopts all");
    s.call(ClusterCall::Kill { app, reason: None })
        .expect("kills");
    assert_eq!(commands(&s).len(), 4);
    s.check();
}

#[test]
fn a_restart_grants_no_container_twice() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 4, size(1, 1)).expect("asks");
    s.settle();
    let all = s.alive(&app);
    let (done, unacked) = (all[0].clone(), all[1].clone());
    s.exit(&done, OK);
    let last = s.cluster.app(&app).expect("app").updates.last();
    s.sync(&app, last, vec![]).expect("syncs");
    s.exit(&unacked, ExitReason::OverheadOom);
    s.restart();
    let stale = MasterHeartbeat {
        attempt: s.attempt(&app),
        epoch: Epoch(1),
        ack: 0,
        asks: vec![],
        withdraw: vec![],
        release: vec![],
    };
    assert!(matches!(
        s.call(ClusterCall::Sync(Box::new(stale))),
        Err(CallRefusal::StaleEpoch { .. })
    ));
    let Err(CallRefusal::Recovering(sentence)) = s.master(&app) else {
        panic!("the master registers before the nodes")
    };
    assert!(
        sentence.starts_with("the resource manager has restarted and waits for n1, n2 to report"),
        "{sentence}"
    );
    s.register("n1").register("n2").settle();
    let Ok(CallAnswer::Master {
        cursor, containers, ..
    }) = s.master(&app)
    else {
        panic!("the master does not register")
    };
    assert_eq!(
        (cursor, containers.len()),
        (0, 2),
        "the cursor of updates starts at zero in each epoch"
    );
    let mut again = ask("work", 4, size(1, 1));
    again.ended = 1;
    s.sync(&app, 0, vec![again.clone()]).expect("syncs");
    assert_eq!(s.alive(&app).len(), 2);
    assert_eq!(
        s.unacked_exits(&app),
        [unacked],
        "an unacknowledged end is reported again"
    );
    assert_eq!(s.ordered.len(), 4, "no new container is granted");
    again.count = 5;
    again.ended = 2;
    let last = s.cluster.app(&app).expect("app").updates.last();
    s.sync(&app, last, vec![again]).expect("syncs");
    assert_eq!((s.alive(&app).len(), s.ordered.len()), (3, 5));
    s.check();
}

#[test]
fn a_registration_lists_what_nodes_reported_and_no_update_repeats_it() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8)).node("n2", size(8, 8));
    let app = s.app("job");
    s.ask(&app, "work", 4, size(3, 1)).expect("asks");
    s.settle().restart().register("n1").register("n2");
    let ended = s.alive(&app)[0].clone();
    s.exit(&ended, OK);
    let Ok(CallAnswer::Master {
        containers, cursor, ..
    }) = s.master(&app)
    else {
        panic!("all nodes are back")
    };
    assert_eq!(containers.len(), 3);
    assert!(containers.iter().all(|granted| granted.running));
    let updates = s.cluster.updates(&app, cursor).expect("all are kept");
    let [granted, exited] = &updates[..] else {
        panic!("only the one that ended has updates: {updates:?}")
    };
    assert!(
        matches!(&granted.what, UpdateKind::Allocated(granted) if granted.container == ended),
        "{granted:?}"
    );
    assert!(
        matches!(&exited.what, UpdateKind::Exited { report, .. } if report.container == ended),
        "{exited:?}"
    );
    s.check();
}

#[test]
fn a_master_registers_when_the_nodes_of_its_containers_have() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 1, size(3, 1)).expect("asks");
    s.settle();
    let on = s.cluster.containers().map(|c| c.node.clone());
    let (own, other) = match on.last().expect("a container").as_str() {
        "n1" => ("n1", "n2"),
        _ => ("n2", "n1"),
    };
    s.restart().register(own);
    let register = |s: &mut ClusterScenario, nodes: &[&str]| {
        let attempt = s.attempt(&app);
        s.call(ClusterCall::RegisterMaster {
            attempt,
            url: None,
            nodes: Some(nodes.iter().map(|node| id(node)).collect()),
        })
    };
    let early = register(&mut s, &[own, other]);
    assert!(
        matches!(early, Err(CallRefusal::Recovering(_))),
        "{early:?}"
    );
    let Ok(CallAnswer::Master { containers, .. }) = register(&mut s, &[own]) else {
        panic!("the lost node holds up a master without containers on it")
    };
    assert_eq!(containers.len(), 1);
    s.ask_waits(&app, "work", 2, size(3, 1));
    assert_eq!(
        s.alive(&app).len(),
        1,
        "the other node is missing, and this one is full"
    );
    s.ask(&app, "more", 1, size(1, 1)).expect("asks");
    s.settle();
    assert_eq!(
        s.alive(&app).len(),
        2,
        "grants do not wait for the other node"
    );
    s.register(other).settle();
    assert_eq!(s.alive(&app).len(), 3);
    s.check();
}

#[test]
fn recovery_waits_at_most_ten_seconds_for_a_missing_node() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 2, size(3, 1)).expect("asks");
    s.settle().restart().register("n1");
    s.alive_for(secs(9));
    assert!(matches!(s.master(&app), Err(CallRefusal::Recovering(_))));
    s.alive_for(secs(2));
    s.master(&app).expect("registers");
    s.ask_waits(&app, "work", 2, size(3, 1));
    assert_eq!(s.alive(&app).len(), 1, "n1 is full");
    s.node("n3", size(4, 4));
    assert_eq!(s.alive(&app).len(), 2);
    // n2 registers late: another container has replaced its container, which must end
    s.register("n2").settle();
    assert_eq!(s.alive(&app).len(), 2);
    assert!(
        s.nodes[&id::<NodeId>("n2")]
            .has
            .values()
            .all(|h| h.phase == ContainerPhase::Exited)
    );
    s.report_all();
    assert!(s.nodes[&id::<NodeId>("n2")].has.is_empty());
    s.check();
}

#[test]
fn the_memory_of_a_surplus_container_is_taken_until_its_end() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 2, size(3, 1)).expect("asks");
    s.settle().restart().register("n1");
    s.alive_for(secs(11));
    s.master(&app).expect("registers");
    s.ask(&app, "work", 1, size(3, 1)).expect("asks");
    // n2 registers late with a container that nothing needs any more, and that still runs.
    s.register("n2");
    s.ask_waits(&app, "more", 1, size(3, 1));
    s.report("n2").expect("reports");
    assert_eq!(s.alive(&app).len(), 1, "its container ends first");
    s.ask(&app, "small", 1, size(1, 1)).expect("asks");
    assert_eq!(s.alive(&app).len(), 2, "the rest of n2 is free");
    s.settle();
    assert_eq!(s.alive(&app).len(), 3);
    s.check();
}

#[test]
fn a_managed_master_survives_a_restart_or_is_replaced() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(8, 4));
    let stays = s.managed("stays", size(2, 1), 2);
    s.settle();
    s.master(&stays).expect("registers");
    let goes = s.managed("goes", size(5, 1), 2);
    s.settle();
    let (a, b) = (s.alive(&stays), s.alive(&goes));
    s.restart().register("n1");
    assert_eq!(s.alive(&stays), a);
    s.alive_for(secs(11)).node("n3", size(8, 4));
    s.master(&stays).expect("the same attempt registers again");
    assert_eq!(
        s.attempt(&goes).attempt,
        2,
        "its node did not register again"
    );
    assert_ne!(s.alive(&goes), b);
    let new = s.alive(&goes);
    s.register("n2").settle();
    assert_eq!(s.alive(&goes), new, "the old master is stopped");
    assert_eq!(s.attempt(&stays).attempt, 1);
    s.check();
}

#[test]
fn applications_survive_a_restart_in_every_state_and_numbers_never_repeat() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let ended = s.app("ended");
    s.finish(&ended, ApplicationOutcome::Succeeded)
        .expect("finishes");
    let ending = s.app("ending");
    s.ask(&ending, "work", 1, size(1, 1)).expect("asks");
    s.settle();
    s.call(ClusterCall::Kill {
        app: ending.clone(),
        reason: None,
    })
    .expect("kills");
    let waiting = s.managed("waiting", size(1, 1), 2);
    s.restart();
    assert_eq!(
        (s.state(&ended), s.state(&ending), s.state(&waiting)),
        ("finished", "finishing", "accepted")
    );
    s.register("n1").settle();
    assert_eq!(s.state(&ending), "killed");
    assert_eq!(s.alive(&waiting).len(), 1);
    let next = s.app("next");
    assert_eq!(next.seq(), 4);
    s.check();
}

#[test]
fn a_repeated_submission_key_returns_the_same_application() {
    let mut s = ClusterScenario::new();
    let spec = AppSubmission {
        name: id("job"),
        queue: id("default"),
        priority: 0,
        user: "u".into(),
        lifetime: None,
        master: MasterKind::Unmanaged,
        key: Some("k".into()),
    };
    let first = s.call(ClusterCall::Submit(Box::new(spec.clone())));
    s.restart();
    s.after(secs(1));
    assert_eq!(s.call(ClusterCall::Submit(Box::new(spec.clone()))), first);
    assert_eq!(s.cluster.apps().count(), 1);
    let Ok(CallAnswer::Submitted { app, .. }) = first.clone() else {
        panic!("it was submitted: {first:?}")
    };
    let other_job = AppSubmission {
        name: id("other"),
        ..spec.clone()
    };
    assert_eq!(
        s.call(ClusterCall::Submit(Box::new(other_job))),
        Err(CallRefusal::KeyTaken(app)),
        "another submission does not get the application of the first one"
    );
    let other_user = AppSubmission {
        user: "v".into(),
        ..spec
    };
    let second = s.call(ClusterCall::Submit(Box::new(other_user)));
    assert!(second.is_ok() && second != first, "keys belong to users");
    assert_eq!(s.cluster.apps().count(), 2);
    s.check();
}
