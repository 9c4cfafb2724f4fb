//! Lifecycle of a container and of a master, over real sockets.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use fakes::*;
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::application_master::PlacementVerdict;
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_granted_run_reported_and_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 1024).await;
    let mut master = FakeMaster::submit(&client, "job").await;

    let verdicts = master
        .sync(vec![master.ask("main", mib(256), 2)])
        .await
        .expect("asks");
    assert_eq!(verdicts[0].verdict, PlacementVerdict::Fits);
    let containers = node.until_orders(2).await;
    assert_eq!(node.orders[&containers[0]].launch, launch());
    master
        .until("two grants", |m| (m.granted.len() == 2).then_some(()))
        .await;

    node.run_all().await;
    master
        .until("both running", |m| (m.running.len() == 2).then_some(()))
        .await;
    let seen = client.container(&containers[0]).await.expect("known");
    assert_eq!(
        (seen.state.as_str(), seen.used),
        ("running", Some(Bytes::from_mib(7)))
    );

    node.end(&containers[0], ExitReason::OverheadOom);
    node.report().await.expect("reports");
    let report = master
        .until("the verdict", |m| m.ended.get(&containers[0]).cloned())
        .await;
    assert_eq!(
        (report.reason, report.log_tail.as_str()),
        (ExitReason::OverheadOom, "the end")
    );
    node.report().await.expect("reports");
    assert!(
        node.exits.contains_key(&containers[0]),
        "kept until the master has it"
    );
    master.sync(Vec::new()).await.expect("acknowledges");
    node.until("forget", |n| {
        (!n.exits.contains_key(&containers[0])).then_some(())
    })
    .await;

    let status = client.status().await.expect("answers");
    assert_eq!(
        (status.nodes_ready, status.containers, status.oom_1h),
        (1, 1, 1)
    );
    assert_eq!(
        (status.allocated, status.used),
        (Bytes::from_mib(256), Bytes::from_mib(7))
    );
    let view = client.app(master.app()).await.expect("known");
    assert_eq!(
        (view.state, view.containers, view.pending),
        (AppState::Running, 1, 0),
        "a request counts its ended containers"
    );
    running.shutdown().await.expect("ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_application_leaves_no_containers() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 1024).await;
    let master = FakeMaster::submit(&client, "job").await;
    master
        .sync(vec![master.ask("main", mib(256), 3)])
        .await
        .expect("asks");
    node.until_orders(3).await;
    node.run_all().await;
    let view = master.finish(None).await;
    assert_eq!(view.state, AppState::Finishing);
    node.until("three stops", |n| (n.exits.len() == 3).then_some(()))
        .await;
    node.report().await.expect("reports");
    node.until("forget", |n| n.has.is_empty().then_some(()))
        .await;
    let view = app_state(&client, master.app(), AppState::Finished).await;
    assert_eq!((view.diagnostics.as_str(), view.containers), ("done", 0));
    let over = client.containers(Some(master.app())).await.expect("lists");
    assert!(
        over.len() == 3 && over.iter().all(|c| c.reason == Some(ExitReason::Stopped)),
        "{over:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_managed_master_is_relaunched_with_more_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 1024).await;
    let submitted = client
        .submit(&managed("job", mib(128), 2))
        .await
        .expect("submits");
    let first = node.until_orders(1).await[0].clone();
    assert_eq!(
        node.orders[&first]
            .launch
            .env
            .get("HEADROOM_ATTEMPT")
            .map(String::as_str),
        Some("1")
    );
    node.run_all().await;
    let mut master = FakeMaster::of(&client, submitted.attempt.clone());
    master.register().await;
    app_state(&client, &submitted.app, AppState::Running).await;

    master
        .sync(vec![master.ask("main", mib(64), 1)])
        .await
        .expect("asks");
    node.until_orders(2).await;
    node.run_all().await;
    node.end(&first, ExitReason::OverheadOom);
    node.report().await.expect("reports");
    node.until_orders(3).await;
    let again = node
        .orders
        .iter()
        .filter(|(id, o)| o.request.is_none() && **id != first)
        .map(|(_, o)| o)
        .next()
        .expect("again");
    assert_eq!(again.resource.memory, Bytes::from_mib(256));
    assert_eq!(
        again.launch.env.get("HEADROOM_ATTEMPT").map(String::as_str),
        Some("2")
    );
    assert_eq!(again.launch.heap, Some(Bytes::from_mib(128)));
    assert_eq!(client.app(&submitted.app).await.expect("known").attempt, 2);

    let refused = master
        .sync(Vec::new())
        .await
        .expect_err("the attempt was replaced");
    assert_eq!(refused.code(), Some(ErrorCode::HR0409), "{refused}");
    node.run_all().await;
    let mut second = FakeMaster::of(
        &client,
        headroom_types::AttemptId {
            app: submitted.app.clone(),
            attempt: 2,
        },
    );
    second.register().await;
    assert_eq!(
        second.granted.len(),
        1,
        "the container of the first attempt is kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_an_application_stops_its_master() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = FakeMaster::submit(&client, "job").await;
    client
        .kill(master.app(), Some("not needed".into()))
        .await
        .expect("kills");
    let view = app_state(&client, master.app(), AppState::Killed).await;
    assert_eq!(view.diagnostics, "not needed");
    let body = headroom_wire::v1::application_master::MasterSync {
        attempt: master.attempt.clone(),
        epoch: master.epoch,
        ack: 0,
        asks: Vec::new(),
        drop: Vec::new(),
        release: Vec::new(),
        job: None,
    };
    assert!(
        client
            .sync_master(master.app(), &body)
            .await
            .expect("answers")
            .stop
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_request_is_explained_and_granted_on_a_new_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _small = FakeNode::join(&client, "small", 512).await;
    let mut master = FakeMaster::submit(&client, "job").await;
    let verdicts = master
        .sync(vec![master.ask("main", mib(400), 2)])
        .await
        .expect("asks");
    assert!(
        matches!(verdicts[0].verdict, PlacementVerdict::Waits { .. }),
        "{verdicts:?}"
    );
    let why = client.why(master.app()).await.expect("answers");
    assert_eq!((why.len(), why[0].missing), (1, 1));
    assert!(
        why[0].sentence.contains("small") && why[0].nodes[0].node == id("small"),
        "{why:?}"
    );
    assert!(
        client
            .status()
            .await
            .expect("answers")
            .longest_wait
            .expect("a request waits")
            .contains("main")
    );
    let mut large = FakeNode::join(&client, "large", 1024).await;
    large.until_orders(1).await;
    master
        .until("both grants", |m| (m.granted.len() == 2).then_some(()))
        .await;
    assert!(client.why(master.app()).await.expect("answers").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_master_is_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let submitted = client
        .submit(&managed("job", mib(128), 2))
        .await
        .expect("submits");
    let why = client.why(&submitted.app).await.expect("answers");
    assert_eq!(
        (why.len(), why[0].request.as_str(), why[0].sentence.as_str()),
        (1, "master", "no node has registered")
    );
    let view = client.app(&submitted.app).await.expect("known");
    assert_eq!(
        (view.pending, view.diagnostics.as_str()),
        (1, "its master waits: no node has registered")
    );
}

/// The cause is in the part of the sentence that `rmctl ps` shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_not_started_names_the_cause() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    for (orders, max_attempts, rest) in [
        (1, 1, "its master failed 1 times"),
        (2, 2, "the next attempt starts in "),
    ] {
        let submitted = client
            .submit(&managed("job", mib(128), max_attempts))
            .await
            .expect("submits");
        let ordered = node.until_orders(orders).await;
        let container = ordered.iter().find(|c| c.app == submitted.app);
        let cause = "root may not run programs on this node";
        node.end_not_started(container.expect("an order"), cause);
        node.report().await.expect("reports");
        let view = until("the end of the attempt", || async {
            let view = client.app(&submitted.app).await.expect("known");
            (!view.diagnostics.is_empty()).then_some(view)
        })
        .await;
        let not_started = "not started on n1: root may not run programs on this node";
        let (found, after) = view.diagnostics.split_once("; ").expect("two parts");
        assert_eq!(found, not_started);
        assert!(after.starts_with(rest), "{after}");
        assert_eq!(view.attempts[0].diagnostics, not_started);
        if max_attempts > 1 {
            let why = client.why(&submitted.app).await.expect("answers");
            assert!(why[0].sentence.starts_with(not_started), "{why:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_stopped_and_a_request_is_withdrawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut node = FakeNode::join(&client, "n1", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    let asked: headroom_wire::v1::application_master::PlacementResponse = client
        .post(
            &format!("/v1/apps/{}/requests", master.app()),
            &serde_json::json!({ "ask": master.ask("main", mib(300), 2) }),
        )
        .await
        .expect("asks");
    assert!(
        matches!(asked.verdict, PlacementVerdict::Waits { .. }),
        "{asked:?}"
    );
    let asks: Vec<headroom_wire::v1::application_master::PlacementRequest> = client
        .get(&format!("/v1/apps/{}/requests", master.app()))
        .await
        .expect("lists");
    assert_eq!(asks, [master.ask("main", mib(300), 2)]);
    let container = node.until_orders(1).await[0].clone();
    node.run_all().await;
    let path = format!("/v1/containers/{container}/stop");
    let seen: headroom_wire::v1::apps::ContainerView =
        client.post(&path, &()).await.expect("stops");
    assert_eq!(seen.state, "stopping");
    node.until("the stop", |n| {
        n.exits.contains_key(&container).then_some(())
    })
    .await;
    let path = format!("/v1/apps/{}/requests/main", master.app());
    let view: headroom_wire::v1::apps::AppView = client.delete(&path).await.expect("withdraws");
    assert_eq!(view.pending, 0);
    node.report().await.expect("reports");
    let again: Result<headroom_wire::v1::apps::AppView, _> = client.delete(&path).await;
    assert_eq!(
        again.expect_err("the request was withdrawn").code(),
        Some(ErrorCode::HR0404)
    );
    assert_eq!(node.orders.len(), 1, "no further container was granted");
}
