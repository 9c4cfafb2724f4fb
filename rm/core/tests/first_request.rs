//! Scenario tests of the first request of a master, which comes with the submission. The invariants
//! are checked after every step; each test must end with `check`.

use std::sync::Arc;

use headroom_rm_core::testkit::{ClusterScenario, ask, id, is_never, size};
use headroom_rm_core::{AppSubmission, CallAnswer, CallResult, ClusterCall, MasterKind};
use headroom_types::{AppId, ContainerId, ExitReason, LaunchSpec, Resource};

fn master(first: Resource) -> MasterKind {
    let launch = LaunchSpec {
        command: vec!["appmaster".into()],
        ..LaunchSpec::default()
    };
    MasterKind::Managed {
        resource: size(1, 0),
        launch: Arc::new(launch),
        max_attempts: 3,
        growth: None,
        start_timeout: None,
        first_request: Some(Box::new(ask("set-main", 1, first))),
    }
}

fn submission(first: Resource) -> ClusterCall {
    ClusterCall::Submit(Box::new(AppSubmission {
        name: id("job"),
        queue: id("default"),
        priority: 0,
        user: "test".into(),
        lifetime: None,
        master: master(first),
        key: None,
    }))
}

/// Containers of the request, as the registration of the master lists them.
fn listed(registered: CallResult) -> Vec<ContainerId> {
    let Ok(CallAnswer::Master { containers, .. }) = registered else {
        panic!("not registered: {registered:?}")
    };
    containers.into_iter().map(|c| c.container).collect()
}

/// Live containers of an application that are not its master.
fn executors(s: &ClusterScenario, app: &AppId) -> Vec<ContainerId> {
    let of_request = |id: &ContainerId| {
        let container = s.cluster.container(id);
        container.is_some_and(|c| c.request.is_some())
    };
    s.alive(app).into_iter().filter(of_request).collect()
}

#[test]
fn its_container_starts_along_with_the_master() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.submit("job", 0, master(size(2, 1)));
    assert_eq!(s.ordered.len(), 2, "the node is ordered to run both");
    let first = executors(&s, &app);
    assert_eq!(first.len(), 1);
    s.settle();
    assert_eq!(listed(s.master(&app)), first);
    // The master takes the request over: its counts include the container.
    s.sync(&app, 0, vec![ask("set-main", 1, size(2, 1))])
        .expect("syncs");
    assert_eq!(executors(&s, &app), first);
    s.sync(&app, 0, vec![ask("set-main", 3, size(2, 1))])
        .expect("syncs");
    assert_eq!(executors(&s, &app).len(), 3);
    s.check();
}

#[test]
fn it_waits_for_room_and_the_master_may_take_it_over_first() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    let app = s.submit("job", 0, master(size(3, 1)));
    let other = s.submit("other", 0, master(size(3, 1)));
    s.settle();
    assert_eq!((s.alive(&app).len(), executors(&s, &other).len()), (2, 0));
    s.node("n2", size(2, 8)).settle();
    assert_eq!(
        s.alive(&other).len(),
        1,
        "the master runs, the request waits"
    );
    assert!(listed(s.master(&other)).is_empty());
    s.sync(&other, 0, vec![ask("set-main", 1, size(3, 1))])
        .expect("syncs");
    s.node("n3", size(4, 8)).settle();
    assert_eq!(executors(&s, &other).len(), 1);
    s.check();
}

#[test]
fn a_submission_whose_first_request_never_fits_is_refused() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    assert!(is_never(&s.call(submission(size(5, 1)))));
    assert_eq!(s.cluster.apps().count(), 0);
    assert!(s.call(submission(size(3, 1))).is_ok());
    s.check();
}

#[test]
fn it_is_made_once_and_not_for_later_attempts() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.submit("job", 0, master(size(2, 1)));
    s.settle();
    let first = executors(&s, &app);
    let container = s.alive(&app).into_iter().find(|c| !first.contains(c));
    s.exit(&container.expect("a master"), ExitReason::Exit { code: 1 })
        .settle();
    assert_eq!(s.attempt(&app).attempt, 2);
    assert_eq!(executors(&s, &app), first, "no second one");
    assert_eq!(
        listed(s.master(&app)),
        first,
        "the next attempt learns of it, and ends it if it does not know its tasks"
    );
    s.check();
}

#[test]
fn a_restart_before_the_placement_leaves_it_to_the_master() {
    let mut s = ClusterScenario::new();
    let app = s.submit("job", 0, master(size(2, 1)));
    s.restart();
    s.node("n1", size(8, 8)).settle();
    assert_eq!((s.alive(&app).len(), executors(&s, &app).len()), (1, 0));
    assert!(listed(s.master(&app)).is_empty());
    s.sync(&app, 0, vec![ask("set-main", 1, size(2, 1))])
        .expect("syncs");
    assert_eq!(executors(&s, &app).len(), 1);
    s.check();
}

#[test]
fn a_killed_application_stops_its_container() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 8));
    let app = s.submit("job", 0, master(size(2, 1)));
    let waiting = s.submit("later", 0, master(size(7, 1)));
    s.settle();
    for app in [&app, &waiting] {
        let (app, reason) = (app.clone(), None);
        s.call(ClusterCall::Kill { app, reason }).expect("kills");
    }
    s.settle();
    assert_eq!((s.state(&app), s.state(&waiting)), ("killed", "killed"));
    assert!(executors(&s, &app).is_empty());
    s.check();
}
