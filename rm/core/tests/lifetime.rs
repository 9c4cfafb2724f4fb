//! Scenario tests of application lifetimes and of the records of attempts.

use std::time::Duration;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::QueueDefinition;
use headroom_rm_core::testkit::{ClusterScenario, id, size};
use headroom_rm_core::{
    AfterDrain, AppSubmission, ApplicationLifetime, ApplicationOutcome, AttemptRecord, CallAnswer,
    CallRefusal, ClusterCall, ClusterSettings, DryRun, MasterKind,
};
use headroom_types::{AppId, Bytes, ExitReason, LaunchSpec, UnixMillis};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn submit(s: &mut ClusterScenario, lifetime: Option<Duration>) -> AppId {
    submit_to(s, "default", lifetime)
}
fn submit_to(s: &mut ClusterScenario, queue: &str, lifetime: Option<Duration>) -> AppId {
    let spec = AppSubmission {
        name: id("job"),
        queue: id(queue),
        priority: 0,
        user: "u".into(),
        lifetime,
        master: MasterKind::Unmanaged,
        key: None,
    };
    let what = ClusterCall::Submit(Box::new(spec));
    let Ok(CallAnswer::Submitted { app, .. }) = s.call(what) else {
        panic!("not submitted")
    };
    s.master(&app).expect("registers");
    app
}
fn change(
    s: &mut ClusterScenario,
    app: &AppId,
    queue: Option<&str>,
    lifetime: Option<ApplicationLifetime>,
) -> Option<u64> {
    let queue = queue.map(id);
    s.call(ClusterCall::ChangeApp {
        app: app.clone(),
        queue,
        priority: None,
        lifetime,
    })
    .expect("changes");
    s.cluster
        .app(app)
        .expect("app")
        .until
        .map(|until| (until.0 - 1_000_000) / 1000)
}
/// One queue without a limit, and one with a maximum lifetime of a minute.
fn two_queues() -> ClusterScenario {
    let short = QueueDefinition {
        max_lifetime_ms: Some(60_000),
        ..QueueDefinition::default()
    };
    let children = [
        (id("long"), QueueDefinition::default()),
        (id("short"), short),
    ]
    .into();
    let queues = QueueTree::new(QueueDefinition {
        children,
        ..QueueDefinition::default()
    })
    .expect("a valid tree");
    ClusterScenario::with(ClusterSettings {
        queues,
        unix_at_zero: UnixMillis(1_000_000),
        ..ClusterSettings::default()
    })
}
/// Advances the time while nodes and the master send heartbeats.
fn live(s: &mut ClusterScenario, app: &AppId, seconds: u64) {
    for _ in 0..seconds {
        s.alive_for(secs(1));
        let _ = s.sync(app, 0, vec![]); // refused once the application ends
    }
}
fn runs(s: &ClusterScenario, app: &AppId) -> Vec<AttemptRecord> {
    s.cluster
        .app(app)
        .expect("app")
        .runs
        .iter()
        .cloned()
        .collect()
}

#[test]
fn an_application_is_killed_when_its_lifetime_expires() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = submit(&mut s, Some(secs(60)));
    s.ask(&app, "work", 1, size(1, 1)).expect("asks");
    s.settle();
    let work = s.alive(&app)[0].clone();
    assert_eq!(
        s.cluster.app(&app).and_then(|a| a.until),
        Some(UnixMillis(1_060_000))
    );
    live(&mut s, &app, 59);
    assert_eq!(s.state(&app), "running");
    live(&mut s, &app, 1);
    s.settle();
    assert_eq!(s.state(&app), "killed");
    assert_eq!(
        s.cluster.app(&app).expect("app").diagnostics,
        "its lifetime expired after 60 s: the limit of the application"
    );
    assert_eq!(
        s.cluster.history().get(&work).map(|f| f.reason),
        Some(ExitReason::Timeout)
    );
    assert_eq!(s.logged("LifetimeExceeded"), 1);
    s.check();
}

#[test]
fn the_shorter_lifetime_of_application_and_queue_applies() {
    let mut s = two_queues();
    let until = |s: &ClusterScenario, app: &AppId| {
        s.cluster
            .app(app)
            .expect("app")
            .until
            .map(|until| (until.0 - 1_000_000) / 1000)
    };
    let brief = submit_to(&mut s, "short", Some(secs(10)));
    let greedy = submit_to(&mut s, "short", Some(secs(600)));
    let silent = submit_to(&mut s, "short", None);
    let free = submit_to(&mut s, "long", None);
    let all = [&brief, &greedy, &silent, &free];
    assert_eq!(
        all.map(|app| until(&s, app)),
        [Some(10), Some(60), Some(60), None]
    );
    for _ in 0..60 {
        s.alive_for(secs(1));
        for app in all {
            let _ = s.sync(app, 0, vec![]); // some of them have ended
        }
    }
    assert_eq!(
        all.map(|app| s.state(app)),
        ["killed", "killed", "killed", "running"]
    );
    assert_eq!(
        s.cluster.app(&silent).expect("app").diagnostics,
        "its lifetime expired after 60 s: the limit of queue short"
    );
    assert_eq!(
        s.cluster.app(&brief).expect("app").diagnostics,
        "its lifetime expired after 10 s: the limit of the application"
    );
    s.check();
}

#[test]
fn a_lifetime_can_be_changed_and_a_move_can_only_shorten_the_lifetime() {
    let mut s = two_queues();
    let app = submit_to(&mut s, "long", Some(secs(100)));
    assert_eq!(
        change(
            &mut s,
            &app,
            None,
            Some(ApplicationLifetime::AtMost(secs(300)))
        ),
        Some(300)
    );
    assert_eq!(
        change(&mut s, &app, None, Some(ApplicationLifetime::Unbounded)),
        None
    );
    assert_eq!(change(&mut s, &app, Some("short"), None), Some(60));
    assert_eq!(
        change(&mut s, &app, None, Some(ApplicationLifetime::Unbounded)),
        Some(60),
        "at most the limit of the queue"
    );
    assert_eq!(change(&mut s, &app, Some("long"), None), Some(60));
    s.restart().after(secs(0));
    assert_eq!(
        s.cluster.app(&app).expect("app").until,
        Some(UnixMillis(1_060_000))
    );
    s.master(&app).expect("registers");
    live(&mut s, &app, 20);
    assert_eq!(
        change(
            &mut s,
            &app,
            None,
            Some(ApplicationLifetime::AtMost(secs(5)))
        ),
        Some(5),
        "the new lifetime has already expired"
    );
    s.after(secs(0));
    assert_eq!(s.state(&app), "killed");
    s.check();
}

#[test]
fn a_lifetime_expires_after_a_restart_and_during_downtime() {
    for away in [10, 100] {
        let mut s = ClusterScenario::new();
        s.node("n1", size(8, 8));
        let app = submit(&mut s, Some(secs(60)));
        live(&mut s, &app, 5);
        s.now = s.now.plus(secs(away));
        s.restart().register("n1").after(secs(0));
        assert_eq!(s.state(&app), if away == 10 { "running" } else { "killed" });
        if away == 10 {
            s.master(&app).expect("registers");
            live(&mut s, &app, 45);
            assert_eq!(s.state(&app), "killed");
        }
        s.check();
    }
}

#[test]
fn a_lifetime_also_expires_while_the_master_waits_for_a_container() {
    let mut s = ClusterScenario::new();
    let launch = std::sync::Arc::new(LaunchSpec::default());
    let master = MasterKind::Managed {
        resource: size(1, 1),
        launch,
        max_attempts: 2,
        growth: None,
        start_timeout: None,
        first_request: None,
    };
    let app = Box::new(AppSubmission {
        name: id("job"),
        queue: id("default"),
        priority: 0,
        user: "u".into(),
        lifetime: Some(secs(5)),
        master,
        key: None,
    });
    let Ok(CallAnswer::Submitted { app, .. }) = s.call(ClusterCall::Submit(app)) else {
        panic!("not submitted")
    };
    s.after(secs(5));
    assert_eq!(s.state(&app), "killed");
    assert_eq!(
        runs(&s, &app).last().map(|r| (r.outcome, r.charged)),
        Some((Some(ApplicationOutcome::Killed), false))
    );
    s.check();
}

#[test]
fn every_attempt_of_a_master_leaves_a_record() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.managed("job", size(1, 1), 2);
    s.settle();
    s.master(&app).expect("registers");
    let first = s.alive(&app)[0].clone();
    s.exit(&first, ExitReason::HeapOom).settle();
    s.after(secs(2));
    let second = s.alive(&app)[0].clone();
    s.exit(&second, ExitReason::Preempted).settle();
    let third = s.alive(&app)[0].clone();
    s.restart().register("n1");
    s.master(&app).expect("registers");
    s.finish(&app, ApplicationOutcome::Succeeded)
        .expect("finishes");
    s.exit(&third, OK);
    let runs = runs(&s, &app);
    let lines: Vec<_> = runs
        .iter()
        .map(|r| {
            (
                r.number,
                r.container.clone(),
                r.reason,
                r.outcome,
                r.charged,
            )
        })
        .collect();
    let expected = [
        (
            1,
            Some(first),
            Some(ExitReason::HeapOom),
            Some(ApplicationOutcome::Failed),
            true,
        ),
        (
            2,
            Some(second),
            Some(ExitReason::Preempted),
            Some(ApplicationOutcome::Failed),
            false,
        ),
        (
            3,
            Some(third),
            Some(OK),
            Some(ApplicationOutcome::Succeeded),
            false,
        ),
    ];
    assert_eq!(lines, expected);
    assert_eq!(
        runs[1].resource.as_ref().map(|r| r.memory),
        Some(Bytes::from_gib(2)),
        "the second attempt got more memory"
    );
    assert!(
        runs.iter()
            .all(|r| r.node == Some(id("n1")) && r.started.is_some() && r.ended.is_some())
    );
    assert_eq!(runs[0].why, "out of memory: the heap is full");
    s.restart();
    assert_eq!(
        s.cluster
            .app(&app)
            .expect("app")
            .runs
            .iter()
            .cloned()
            .collect::<Vec<_>>(),
        runs,
        "the records survive a restart"
    );
    s.check();
}

#[test]
fn preemption_drains_and_lost_nodes_are_not_charged() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.managed("job", size(1, 1), 1);
    s.settle();
    s.master(&app).expect("registers");
    // its container is preempted
    let first = s.alive(&app)[0].clone();
    s.exit(&first, ExitReason::Preempted).settle();
    s.master(&app).expect("registers");
    // its node is drained
    s.node("n2", size(4, 4));
    s.call(ClusterCall::Drain {
        node: id("n1"),
        within: Some(secs(0)),
        reason: "disks".into(),
        then: AfterDrain::Stay,
    })
    .expect("drains");
    s.settle().settle();
    s.master(&app).expect("registers");
    // its node is lost
    s.call(ClusterCall::Undrain { node: id("n1") })
        .expect("takes work again");
    s.nodes
        .get_mut(&id::<headroom_types::NodeId>("n2"))
        .expect("node")
        .connected = false;
    live(&mut s, &app, 31);
    s.settle();
    s.master(&app).expect("registers");
    // the resource manager restarts after its wait, and the node does not register again
    s.restart().alive_for(secs(11));
    s.node("n3", size(4, 4)).settle();
    s.master(&app).expect("registers");
    let record = s.cluster.app(&app).expect("app");
    assert_eq!(
        (record.attempt, record.charged, record.uncharged),
        (5, 0, 4)
    );
    let why: Vec<Option<ExitReason>> = runs(&s, &app).iter().map(|r| r.reason).collect();
    let (taken, lost) = (Some(ExitReason::Preempted), Some(ExitReason::NodeLost));
    assert_eq!(why, [taken, taken, lost, None, None]);
    s.check();
}

#[test]
fn the_number_of_attempt_records_is_bounded() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.managed("job", size(1, 1), 40);
    for _ in 0..30 {
        s.settle();
        let master = s.alive(&app)[0].clone();
        s.exit(&master, ExitReason::Exit { code: 1 });
    }
    let runs = runs(&s, &app);
    assert_eq!((runs.len(), runs[0].number, runs[19].number), (20, 12, 31));
    s.check();
}

#[test]
fn a_purge_removes_an_ended_application_and_no_other_records() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let (app, other) = (submit(&mut s, None), submit(&mut s, None));
    for app in [&app, &other] {
        s.ask(app, "work", 1, size(1, 1)).expect("asks");
    }
    s.settle();
    let purge = |s: &mut ClusterScenario, app: &AppId, how| {
        s.call(ClusterCall::Purge {
            app: app.clone(),
            how,
        })
    };
    let refused = purge(&mut s, &app, DryRun::Really);
    assert_eq!(
        refused,
        Err(CallRefusal::NotOver {
            app: app.clone(),
            state: "running"
        })
    );
    for app in [&app, &other] {
        s.finish(app, ApplicationOutcome::Succeeded)
            .expect("finishes");
    }
    s.settle();
    live(&mut s, &app, 10);
    let kept = |s: &ClusterScenario, app: &AppId| {
        s.cluster
            .history()
            .iter()
            .filter(|c| c.container.app == *app)
            .count()
    };
    assert_eq!(
        (s.state(&app), kept(&s, &app), kept(&s, &other)),
        ("finished", 1, 1)
    );
    assert_eq!(purge(&mut s, &app, DryRun::DryRun), Ok(CallAnswer::Done));
    assert_eq!(kept(&s, &app), 1, "a dry run removes nothing");
    assert_eq!(purge(&mut s, &app, DryRun::Really), Ok(CallAnswer::Done));
    assert_eq!(
        (
            s.cluster.app(&app).is_none(),
            kept(&s, &app),
            kept(&s, &other)
        ),
        (true, 0, 1)
    );
    assert_eq!(
        purge(&mut s, &app, DryRun::Really),
        Err(CallRefusal::NoSuchApp(app.clone()))
    );
    s.restart();
    assert_eq!(
        (
            s.cluster.app(&app).is_none(),
            kept(&s, &app),
            kept(&s, &other)
        ),
        (true, 0, 1),
        "the purge survives a restart"
    );
    assert_eq!(s.logged("JobPurged"), 1);
    s.check();
}

#[test]
fn a_master_that_cannot_be_started_is_launched_again_after_a_backoff() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let master = MasterKind::Managed {
        resource: size(1, 1),
        launch: std::sync::Arc::new(LaunchSpec::default()),
        max_attempts: 3,
        growth: None,
        start_timeout: None,
        first_request: None,
    };
    let app = s.submit("job", 0, master);
    for backoff in [1, 2] {
        let failed = s.settle().alive(&app)[0].clone();
        s.exit(&failed, ExitReason::LaunchFailed).settle();
        assert_eq!(s.alive(&app), [], "the next attempt waits");
        let application = s.cluster.app(&app).expect("app");
        let why = s.cluster.application_sentence(application, s.now);
        assert_eq!(
            why,
            format!("not started on n1; the next attempt starts in {backoff} s")
        );
        s.alive_for(secs(backoff));
        assert_eq!(s.alive(&app).len(), 1, "after {backoff} s");
    }
    let last = s.settle().alive(&app)[0].clone();
    s.exit(&last, ExitReason::LaunchFailed).settle();
    assert_eq!(s.state(&app), "failed");
    s.check();
}

#[test]
fn an_application_is_killed_during_the_backoff_of_its_master() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let master = MasterKind::Managed {
        resource: size(1, 1),
        launch: std::sync::Arc::new(LaunchSpec::default()),
        max_attempts: 3,
        growth: None,
        start_timeout: None,
        first_request: None,
    };
    let app = s.submit("job", 0, master);
    let failed = s.settle().alive(&app)[0].clone();
    s.exit(&failed, ExitReason::LaunchFailed).settle();
    s.call(ClusterCall::Kill {
        app: app.clone(),
        reason: None,
    })
    .expect("is killed");
    assert_eq!(s.state(&app), "killed");
    s.alive_for(secs(5));
    assert_eq!(s.alive(&app), []);
    s.check();
}
