//! Scenario tests of a cluster. The invariants are checked after every step; each test must end
//! with `check`.

use std::time::Duration;

use headroom_rm_core::app::ApplicationState;
use headroom_rm_core::testkit::{ClusterScenario, ask, id, is_never, size};
use headroom_rm_core::{
    AppSubmission, ApplicationOutcome, CallAnswer, CallRefusal, ClusterCall, LogSeverity,
    MasterHeartbeat, MasterKind, RequestVerdict, UpdateKind,
};
use headroom_types::{AppId, AttemptId, Bytes, ContainerId, ExitReason, LaunchSpec, NodeId};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn exits(s: &ClusterScenario, app: &AppId) -> usize {
    let all = s.updates.get(app).map(|u| u.iter()).into_iter().flatten();
    all.filter(|(_, u)| matches!(u.what, UpdateKind::Exited { .. }))
        .count()
}

#[test]
fn a_container_passes_through_its_whole_life_cycle() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    let answer = s.ask(&app, "work", 2, size(1, 1));
    assert_eq!(
        answer,
        Ok(CallAnswer::Asked {
            verdict: RequestVerdict::Fits
        })
    );
    assert_eq!(s.alive(&app).len(), 2);
    s.settle();
    let first = s.alive(&app)[0].clone();
    s.exit(&first, OK);
    assert_eq!(s.unacked_exits(&app), std::slice::from_ref(&first));
    assert!(
        s.nodes[&id::<NodeId>("n1")].exits.contains_key(&first),
        "the node keeps the exit report until the acknowledgement"
    );
    let last = s.cluster.app(&app).expect("app").updates.last();
    s.sync(&app, last, vec![]).expect("syncs");
    assert!(s.nodes[&id::<NodeId>("n1")].exits.is_empty());
    assert!(s.cluster.history().get(&first).is_some());
    assert_eq!(
        s.alive(&app).len(),
        1,
        "an end is not replaced unless the count is raised"
    );
    s.ask(&app, "work", 3, size(1, 1)).expect("asks");
    assert_eq!(s.alive(&app).len(), 2);
    s.check();
}

#[test]
fn a_repeated_request_is_idempotent() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.app("job");
    for _ in 0..3 {
        s.ask(&app, "work", 2, size(1, 1)).expect("asks");
    }
    assert_eq!(s.alive(&app).len(), 2);
    s.check();
}

#[test]
fn an_infeasible_request_is_refused_at_once() {
    let mut s = ClusterScenario::new();
    let app = s.app("job");
    let sentence = s.ask_waits(&app, "early", 1, size(100, 1));
    assert_eq!(
        sentence, "no node has registered",
        "no request is infeasible without nodes"
    );
    s.node("small", size(2, 2)).node("big", size(6, 4));
    let answer = s.ask(&app, "late", 1, size(8, 1));
    assert!(is_never(&answer));
    let Err(CallRefusal::NeverFits { sentence, largest }) = answer else {
        unreachable!()
    };
    assert_eq!(
        sentence,
        "needs 8 GiB, 1 cpu on one node; the largest node is big with 6 GiB, 4 cpus"
    );
    assert_eq!(largest, size(6, 4));
    assert!(
        !s.cluster
            .app(&app)
            .expect("app")
            .requests
            .contains_key(&id("late"))
    );
    let Ok(CallAnswer::Synced { verdicts, .. }) = s.sync(
        &app,
        0,
        vec![ask("late", 1, size(8, 1)), ask("fine", 1, size(1, 1))],
    ) else {
        panic!("the heartbeat is refused")
    };
    assert!(
        matches!(verdicts[0].1, RequestVerdict::Never { .. })
            && verdicts[1].1 == RequestVerdict::Fits
    );
    s.check();
}

#[test]
fn the_wait_sentence_names_the_closest_node() {
    let mut s = ClusterScenario::new();
    s.node("worker-1", size(4, 4)).node("worker-3", size(8, 2));
    let app = s.app("job");
    s.ask(&app, "fill", 1, size(3, 1)).expect("asks");
    s.ask(&app, "fill-2", 1, size(2, 1)).expect("asks");
    let sentence = s.ask_waits(&app, "big", 1, size(7, 1));
    assert_eq!(
        sentence,
        "needs 7 GiB on one node; best is worker-3 with 6 GiB free"
    );
    let sentence = s.ask_waits(&app, "wide", 1, size(2, 4));
    assert_eq!(
        sentence,
        "needs 2 GiB, 4 cpus on one node; best is worker-3 with 6 GiB, 1 cpu free"
    );
    let why = s.cluster.why(&app, s.now).expect("app");
    assert_eq!(why.len(), 2);
    assert_eq!(why[0].nodes[0].node, id::<NodeId>("worker-3"));
    assert_eq!(why[0].nodes[0].verdict, "1 GiB of memory short");
    assert_eq!(
        why[0].nodes[1].verdict,
        "too small: offers 4 GiB, 4 cpus in all"
    );
    s.check();
}

#[test]
fn best_fit_keeps_large_nodes_free_and_placement_rules_apply() {
    let mut s = ClusterScenario::new();
    s.node("big", size(16, 8)).node("small", size(4, 8));
    let app = s.app("job");
    s.ask(&app, "a", 2, size(2, 1)).expect("asks");
    assert!(s.cluster.containers().all(|c| c.node == id("small")));
    let mut elsewhere = ask("b", 1, size(1, 1));
    elsewhere.place.avoid_nodes = vec![id("small")];
    let mut pinned = ask("c", 1, size(1, 1));
    pinned.place.nodes = vec![id("small")];
    s.sync(&app, 0, vec![elsewhere, pinned]).expect("syncs");
    let of = |s: &ClusterScenario, r: &str| {
        s.cluster
            .containers()
            .find(|c| c.request == Some(id(r)))
            .map(|c| c.node.clone())
    };
    assert_eq!(of(&s, "b"), Some(id("big")));
    assert_eq!(of(&s, "c"), None, "its only node is full");
    s.check();
}

#[test]
fn requests_are_granted_by_priority_then_by_arrival() {
    let mut s = ClusterScenario::new();
    let low = s.app("low");
    let high = s.submit("high", 10, MasterKind::Unmanaged);
    s.master(&high).expect("registers");
    s.ask_waits(&low, "work", 1, size(3, 1));
    s.ask_waits(&high, "work", 1, size(3, 1));
    s.node("n1", size(4, 4));
    assert_eq!((s.alive(&low).len(), s.alive(&high).len()), (0, 1));
    let why = s.cluster.why(&low, s.now).expect("app");
    assert_eq!(
        why[0].sentence,
        "needs 3 GiB on one node; best is n1 with 1 GiB free"
    );
    s.check();
}

#[test]
fn a_lost_node_ends_its_containers_and_must_register_again() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 2, size(3, 1)).expect("asks");
    s.settle();
    s.nodes
        .get_mut(&id::<NodeId>("n1"))
        .expect("node")
        .connected = false;
    let beat = |s: &mut ClusterScenario, n: u64| {
        for _ in 0..n {
            s.alive_for(secs(1));
            let last = s.cluster.app(&app).expect("app").updates.acked();
            s.sync(&app, last, vec![]).expect("syncs");
        }
    };
    beat(&mut s, 4);
    assert_eq!(
        s.cluster.node(&id("n1")).expect("node").state.as_str(),
        "suspect"
    );
    beat(&mut s, 7);
    assert_eq!(
        s.cluster.node(&id("n1")).expect("node").state.as_str(),
        "unreachable"
    );
    beat(&mut s, 20);
    assert_eq!(
        s.cluster.node(&id("n1")).expect("node").state.as_str(),
        "lost"
    );
    assert_eq!((s.alive(&app).len(), exits(&s, &app)), (1, 1));
    assert!(matches!(
        s.report("n1"),
        Err(CallRefusal::NodeNotRegistered(_))
    ));
    // it registers again with the running container, which must stop and is not reported a second
    // time
    s.register("n1").settle();
    assert_eq!(exits(&s, &app), 1);
    let last = s.cluster.app(&app).expect("app").updates.last();
    s.sync(&app, last, vec![]).expect("syncs");
    assert!(
        s.nodes[&id::<NodeId>("n1")].has.is_empty(),
        "the container is stopped and removed"
    );
    assert_eq!(
        s.logged("NodeSuspect") + s.logged("NodeUnreachable") + s.logged("NodeLost"),
        3
    );
    s.check();
}

#[test]
fn a_stalled_loop_does_not_suspect_nodes() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    s.now = s.now.plus(secs(600));
    s.step(headroom_rm_core::ClusterEvent::Stalled(secs(600)));
    s.step(headroom_rm_core::ClusterEvent::Time);
    assert_eq!(
        s.cluster.node(&id("n1")).expect("node").state.as_str(),
        "ready"
    );
    s.check();
}

#[test]
fn a_managed_master_gets_more_memory_after_running_out_of_memory() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(3, 4));
    let app = s.managed("job", size(1, 1), 3);
    let first = s.alive(&app)[0].clone();
    let c = s.cluster.container(&first).expect("container");
    assert_eq!(
        c.launch.env.get("HEADROOM_ATTEMPT").map(String::as_str),
        Some("1")
    );
    s.settle();
    s.master(&app).expect("registers");
    assert_eq!(s.state(&app), "running");
    s.exit(&first, ExitReason::OverheadOom);
    let second = s.alive(&app)[0].clone();
    let c = s.cluster.container(&second).expect("container");
    assert_eq!(
        (c.resource.memory, s.attempt(&app).attempt),
        (Bytes::from_gib(2), 2)
    );
    let stale = AttemptId {
        app: app.clone(),
        attempt: 1,
    };
    let answer = s.call(ClusterCall::RegisterMaster {
        attempt: stale,
        url: None,
        nodes: None,
    });
    assert!(matches!(answer, Err(CallRefusal::StaleAttempt { .. })));
    s.exit(&second, ExitReason::HeapOom);
    let third = s.alive(&app)[0].clone();
    let c = s.cluster.container(&third).expect("container");
    assert_eq!(
        c.resource.memory,
        Bytes::from_gib(3),
        "at most the size of the largest node"
    );
    s.exit(&third, OK);
    assert_eq!(s.state(&app), "failed");
    assert!(
        s.cluster
            .app(&app)
            .expect("app")
            .diagnostics
            .contains("without reporting the outcome")
    );
    s.check();
}

#[test]
fn platform_failures_are_not_charged_and_containers_survive_the_master() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4)).node("n2", size(4, 4));
    let app = s.managed("job", size(1, 1), 1);
    s.settle();
    s.master(&app).expect("registers");
    s.ask(&app, "work", 1, size(2, 1)).expect("asks");
    s.settle();
    let work = s
        .alive(&app)
        .into_iter()
        .find(|c| s.cluster.container(c).is_some_and(|c| c.request.is_some()))
        .expect("work");
    for _ in 0..3 {
        let master = s
            .cluster
            .app(&app)
            .expect("app")
            .run
            .container()
            .cloned()
            .expect("a running master");
        s.exit(&master, ExitReason::NodeOom);
        s.settle();
    }
    assert_eq!((s.attempt(&app).attempt, s.state(&app)), (4, "running"));
    let lines = s
        .log
        .iter()
        .filter(|line| line.reason.as_str() == "NodeOom");
    let nodes: Vec<bool> = lines
        .map(|line| line.node.is_some() && line.level == LogSeverity::Warning)
        .collect();
    assert_eq!(nodes, [true; 3], "each line is a warning about the node");
    assert!(s.alive(&app).contains(&work));
    let Ok(CallAnswer::Master { containers, .. }) = s.master(&app) else {
        panic!("the master does not register")
    };
    assert_eq!(
        containers
            .iter()
            .map(|g| g.container.clone())
            .collect::<Vec<_>>(),
        [work]
    );
    // the new attempt repeats the request that the old attempt's container already satisfies
    s.ask(&app, "work", 1, size(2, 1)).expect("asks");
    assert_eq!(s.alive(&app).len(), 2);
    s.check();
}

#[test]
fn a_master_without_its_journal_gets_containers_for_earlier_ends_again() {
    for (knows, gets) in [(0, 1), (1, 0)] {
        let mut s = ClusterScenario::new();
        s.node("n1", size(8, 8));
        let app = s.managed("job", size(1, 1), 3);
        s.settle();
        s.master(&app).expect("registers");
        s.sync(&app, 0, vec![ask("work", 1, size(1, 1))])
            .expect("syncs");
        s.settle();
        let work = s
            .alive(&app)
            .into_iter()
            .find(|c| s.cluster.container(c).is_some_and(|c| c.request.is_some()))
            .expect("work");
        s.exit(&work, OK);
        let last = s.cluster.app(&app).expect("app").updates.last();
        s.sync(&app, last, vec![]).expect("acknowledges");
        let master = s
            .cluster
            .app(&app)
            .expect("app")
            .run
            .container()
            .cloned()
            .expect("a running master");
        s.exit(&master, ExitReason::KilledExternally);
        s.settle();
        s.master(&app).expect("the next attempt registers");
        let mut again = ask("work", 1, size(1, 1));
        again.ended = knows;
        s.sync(&app, last, vec![again]).expect("syncs");
        assert_eq!(
            s.alive(&app).len(),
            1 + gets,
            "the master knows {knows} ends"
        );
        s.check();
    }
}

#[test]
fn an_undelivered_command_is_sent_to_the_node_again() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 1, size(1, 1)).expect("asks");
    s.settle();
    let work = s.alive(&app)[0].clone();
    s.exit(&work, OK);
    s.nodes
        .get_mut(&id::<NodeId>("n1"))
        .expect("node")
        .connected = false;
    let last = s.cluster.app(&app).expect("app").updates.last();
    s.sync(&app, last, vec![]).expect("acknowledges");
    assert!(
        s.nodes[&id::<NodeId>("n1")].has.contains_key(&work),
        "the node has not received the command to forget"
    );
    s.nodes
        .get_mut(&id::<NodeId>("n1"))
        .expect("node")
        .connected = true;
    s.report_all();
    assert!(s.nodes[&id::<NodeId>("n1")].has.is_empty());
    s.check();
}

#[test]
fn a_silent_master_is_replaced_or_ends_its_application() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 4));
    let managed = s.managed("managed", size(1, 1), 2);
    s.settle();
    s.master(&managed).expect("registers");
    let unmanaged = s.app("unmanaged");
    let never = s.submit("never", 0, MasterKind::Unmanaged);
    s.ask(&unmanaged, "work", 1, size(1, 1)).expect("asks");
    s.settle().alive_for(secs(31)).settle();
    assert_eq!(s.attempt(&managed).attempt, 2);
    assert_eq!((s.state(&unmanaged), s.state(&never)), ("failed", "failed"));
    assert!(s.alive(&unmanaged).is_empty());
    s.check();
}

#[test]
fn finish_stops_all_containers_and_lets_the_master_exit_by_itself() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 4));
    let app = s.managed("job", size(1, 1), 2);
    s.settle();
    s.master(&app).expect("registers");
    s.ask(&app, "work", 2, size(1, 1)).expect("asks");
    s.settle();
    let master = s
        .cluster
        .app(&app)
        .expect("app")
        .run
        .container()
        .cloned()
        .expect("a running master");
    s.finish(&app, ApplicationOutcome::Succeeded)
        .expect("finishes");
    s.finish(&app, ApplicationOutcome::Succeeded)
        .expect("a repeated finish is accepted");
    s.settle();
    assert_eq!(
        s.alive(&app),
        std::slice::from_ref(&master),
        "the master may exit by itself"
    );
    assert_eq!(s.state(&app), "finishing");
    s.exit(&master, OK);
    assert_eq!(s.state(&app), "finished");
    assert!(s.nodes[&id::<NodeId>("n1")].has.is_empty());
    // a master that does not end by itself is stopped
    let app = s.managed("slow", size(1, 1), 2);
    s.settle();
    s.master(&app).expect("registers");
    s.finish(&app, ApplicationOutcome::Failed)
        .expect("finishes");
    s.alive_for(secs(6)).settle();
    assert_eq!(s.state(&app), "failed");
    s.check();
}

#[test]
fn kill_orders_the_master_to_stop_and_ends_all_containers() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 4));
    let app = s.app("job");
    s.ask(&app, "work", 2, size(1, 1)).expect("asks");
    s.settle();
    s.call(ClusterCall::Kill {
        app: app.clone(),
        reason: Some("enough".into()),
    })
    .expect("kills");
    assert_eq!(s.state(&app), "finishing");
    assert!(matches!(
        s.sync(&app, 0, vec![ask("more", 1, size(1, 1))]),
        Ok(CallAnswer::Synced { stop: true, .. })
    ));
    assert!(matches!(
        s.ask(&app, "more", 1, size(1, 1)),
        Err(CallRefusal::AppEnding { .. })
    ));
    s.settle();
    assert_eq!(
        s.cluster.app(&app).expect("app").state,
        ApplicationState::Ended {
            outcome: ApplicationOutcome::Killed
        }
    );
    assert_eq!(s.cluster.app(&app).expect("app").diagnostics, "enough");
    assert!(matches!(
        s.sync(&app, 0, vec![]),
        Ok(CallAnswer::Synced { stop: true, .. })
    ));
    s.check();
}

#[test]
fn a_container_that_is_stopped_before_its_start_ends() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 4));
    s.nodes
        .get_mut(&id::<NodeId>("n1"))
        .expect("node")
        .connected = false;
    let app = s.app("job");
    s.ask(&app, "work", 1, size(1, 1)).expect("asks");
    let c = s.alive(&app)[0].clone();
    s.call(ClusterCall::Stop {
        container: c.clone(),
    })
    .expect("stops");
    // the node never received the order; it only sends heartbeats
    for _ in 0..11 {
        s.after(secs(1));
        s.report("n1").expect("reports");
    }
    assert_eq!(s.unacked_exits(&app), [c]);
    s.check();
}

#[test]
fn a_late_master_heartbeat_withdraws_no_requests() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(1, 1));
    let (app, other) = (s.app("job"), s.app("other"));
    s.sync(&app, 0, vec![ask("work", 1, size(1, 1))])
        .expect("syncs");
    s.settle();
    s.sync(&other, 0, vec![ask("work", 1, size(1, 1))])
        .expect("syncs");
    let first = s.alive(&app)[0].clone();
    s.exit(&first, ExitReason::LaunchFailed);
    s.settle();
    let between = s.alive(&other)[0].clone();
    // The master has processed the end and requests another container. Then the network delivers
    // its first heartbeat again, and an older one.
    let last = s.cluster.app(&app).expect("app").updates.last();
    let mut again = ask("work", 2, size(1, 1));
    again.ended = 1;
    s.sync(&app, last, vec![again]).expect("syncs");
    s.sync(&app, 0, vec![ask("work", 1, size(1, 1))])
        .expect("the late heartbeat is accepted");
    let (attempt, epoch) = (s.attempt(&app), s.cluster.epoch());
    let withdraw = vec!["work".parse().expect("a name")];
    let older = MasterHeartbeat {
        attempt,
        epoch,
        ack: 0,
        asks: vec![],
        withdraw,
        release: vec![],
    };
    s.call(ClusterCall::Sync(Box::new(older)))
        .expect("the late heartbeat is accepted");
    s.exit(&between, OK);
    s.settle();
    assert_eq!(
        s.alive(&app).len(),
        1,
        "the second container is still requested"
    );
    s.check();
}

#[test]
fn a_late_node_registration_ends_no_containers() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    // Two agents register in turn without containers; the first registration arrives late.
    assert!(s.register_empty("n1", 7_000).is_ok());
    let app = s.app("job");
    s.ask(&app, "work", 2, size(1, 1)).expect("asks");
    s.settle();
    let alive = s.alive(&app);
    for late in [6_000, 7_000] {
        let Err(CallRefusal::Overtaken { given, latest, .. }) = s.register_empty("n1", late) else {
            panic!("the late registration {late} is accepted")
        };
        assert_eq!((given, latest), (late, 7_000));
    }
    assert_eq!((s.alive(&app), alive.len()), (alive, 2));
    // A registration without a number is always accepted.
    s.register("n1").settle();
    assert_eq!(s.alive(&app).len(), 2);
    s.check();
}

#[test]
fn a_master_too_large_for_any_node_is_refused() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let spec = AppSubmission {
        name: id("job"),
        queue: id("default"),
        priority: 0,
        user: "u".into(),
        lifetime: None,
        master: MasterKind::Managed {
            resource: size(5, 1),
            launch: std::sync::Arc::new(LaunchSpec {
                command: vec!["am".into()],
                ..LaunchSpec::default()
            }),
            max_attempts: 2,
            growth: None,
            start_timeout: None,
            first_request: None,
        },
        key: None,
    };
    assert!(is_never(&s.call(ClusterCall::Submit(Box::new(spec)))));
    assert_eq!(s.cluster.apps().count(), 0);
    s.check();
}

#[test]
fn the_history_is_bounded() {
    let settings = headroom_rm_core::ClusterSettings {
        keep_apps: 3,
        keep_containers: 4,
        ..headroom_rm_core::ClusterSettings::default()
    };
    let mut s = ClusterScenario::with(settings);
    s.node("n1", size(4, 4));
    for _ in 0..6 {
        let app = s.app("job");
        s.ask(&app, "work", 2, size(1, 1)).expect("asks");
        s.settle();
        s.finish(&app, ApplicationOutcome::Succeeded)
            .expect("finishes");
        s.settle();
    }
    assert_eq!(
        (s.cluster.apps().count(), s.cluster.history().iter().count()),
        (3, 4)
    );
    s.restart();
    assert_eq!(
        (s.cluster.apps().count(), s.cluster.history().iter().count()),
        (3, 4)
    );
    let none: Option<&ContainerId> = s.ordered.iter().find(|c| c.app.seq() > 6);
    assert!(none.is_none());
    s.check();
}

#[test]
fn applications_that_ended_long_ago_are_removed() {
    let settings = headroom_rm_core::ClusterSettings {
        keep_age: secs(3600),
        ..headroom_rm_core::ClusterSettings::default()
    };
    let mut s = ClusterScenario::with(settings);
    s.node("n1", size(4, 4));
    let old = s.app("old");
    s.finish(&old, ApplicationOutcome::Succeeded)
        .expect("finishes");
    s.settle();
    s.after(secs(3000));
    let young = s.app("young");
    s.finish(&young, ApplicationOutcome::Succeeded)
        .expect("finishes");
    s.settle();
    assert_eq!(s.cluster.apps().count(), 2);
    s.after(secs(700));
    let left: Vec<String> = s.cluster.apps().map(|app| app.id.to_string()).collect();
    assert_eq!(left, [young.to_string()]);
    s.check();
}
