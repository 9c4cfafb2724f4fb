//! Event log and job view, from the perspective of readers.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use fakes::*;
use headroom_client::FollowMode;
use headroom_types::UnixMillis;
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use headroom_wire::v1::job::{JobEvent, JobTotals, JobViewPatch, TaskRow, TaskState};

async fn words(client: &headroom_client::Client, cursor: u64) -> Vec<LoggedEvent> {
    let mut lines = client
        .events_of(None, cursor, FollowMode::No)
        .await
        .expect("answers");
    let mut all = Vec::new();
    while let Some(event) = soon("the end of the log", lines.next()).await {
        all.push(event.expect("an event"));
    }
    all
}

fn patch(full: bool, tasks: Vec<TaskRow>, events: &[&str]) -> JobViewPatch {
    let event = |reason: &&str| JobEvent {
        time: UnixMillis(1),
        level: EventLevel::Warning,
        reason: (*reason).to_owned(),
        object: "map/0@1".into(),
        message: "reported by the master".into(),
    };
    JobViewPatch {
        full,
        totals: JobTotals::default(),
        tasks,
        events: events.iter().map(event).collect(),
        ..JobViewPatch::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_continue_from_a_cursor_and_follow() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let before = words(&client, 0).await;
    let reasons: Vec<&str> = before.iter().map(|e| e.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["ResourceManagerStarted", "NodeJoined", "NodeReady"]
    );
    assert!(before.windows(2).all(|w| w[1].index == w[0].index + 1));
    let last = before.last().expect("events").index;

    let mut following = client.events(last).await.expect("answers");
    let master = FakeMaster::submit(&client, "job").await;
    for reason in ["JobSubmitted", "AppRunning"] {
        let event = soon(reason, following.next())
            .await
            .expect("open")
            .expect("an event");
        assert_eq!(
            (event.reason.as_str(), event.app.as_ref()),
            (reason, Some(master.app()))
        );
    }
    master
        .sync_with(Vec::new(), Some(patch(true, Vec::new(), &["Escalated"])))
        .await
        .expect("syncs");
    let event = soon("the master's own event", following.next())
        .await
        .expect("open")
        .expect("an event");
    assert_eq!(
        (event.reason.as_str(), event.message.as_str(), event.level),
        ("Escalated", "reported by the master", EventLevel::Warning)
    );

    let of_app = client
        .events_of(Some(master.app()), 0, FollowMode::No)
        .await
        .expect("answers")
        .next()
        .await;
    assert_eq!(
        of_app.expect("an event").expect("an event").reason,
        "JobSubmitted"
    );
    assert_eq!(words(&client, event.index).await, []);
    running.shutdown().await.expect("ends");
    assert!(
        soon("the end of the stream", following.next())
            .await
            .is_none(),
        "a stream ends with the daemon"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_receive_server_sent_events_and_resume() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let _node = FakeNode::join(&client, "n1", 512).await;
    let second = words(&client, 0).await[1].index;
    let request = reqwest::Client::new()
        .get(format!("{}/v1/events", client.base()))
        .header("accept", "text/event-stream")
        .header("last-event-id", second.to_string());
    let mut answer = soon("a response", request.send()).await.expect("answers");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let chunk = soon("an event", answer.chunk())
        .await
        .expect("reads")
        .expect("open");
    let text = String::from_utf8(chunk.to_vec()).expect("text");
    assert!(
        text.starts_with(&format!("id: {}\nevent: NodeReady\ndata: {{", second + 1)),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_of_a_job_is_merged_and_survives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let app = {
        let (running, client) = resource_manager(dir.path()).await;
        let master = FakeMaster::submit(&client, "job").await;
        assert_eq!(client.app(master.app()).await.expect("known").job, None);
        let first = patch(
            true,
            vec![
                row("map/0", TaskState::Running),
                row("map/1", TaskState::Pending),
            ],
            &[],
        );
        master
            .sync_with(Vec::new(), Some(first))
            .await
            .expect("syncs");
        master
            .sync_with(
                Vec::new(),
                Some(patch(false, vec![row("map/1", TaskState::Running)], &[])),
            )
            .await
            .expect("syncs");
        let job = client
            .app(master.app())
            .await
            .expect("known")
            .job
            .expect("the rows were reported");
        assert_eq!(
            job.tasks,
            [
                row("map/0", TaskState::Running),
                row("map/1", TaskState::Running)
            ]
        );
        assert_eq!(
            client.apps().await.expect("lists")[0].job,
            None,
            "lists omit the rows"
        );
        let last = patch(
            true,
            vec![row("map/0", TaskState::Done), row("map/1", TaskState::Done)],
            &["TaskFinished"],
        );
        master.finish(Some(last)).await;
        app_state(&client, master.app(), AppState::Finished).await;
        running.shutdown().await.expect("ends");
        master.app().clone()
    };
    let (_running, client) = resource_manager(dir.path()).await;
    let view = client.app(&app).await.expect("known");
    assert_eq!(view.state, AppState::Finished);
    assert_eq!(
        view.job.expect("kept").tasks,
        [row("map/0", TaskState::Done), row("map/1", TaskState::Done)]
    );
}

/// A master that learns of a restart only by its last call must report its other rows again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_before_the_end_of_a_job_loses_no_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    let (done, running) = (TaskState::Done, TaskState::Running);
    let last = patch(false, vec![row("map/1", done)], &[]);
    let attempt = {
        let (manager, client) = resource_manager(dir.path()).await;
        let master = FakeMaster::submit(&client, "job").await;
        let rows = vec![row("map/0", done), row("map/1", running)];
        let first = patch(true, rows, &[]);
        let reported = master.sync_with(Vec::new(), Some(first)).await;
        reported.expect("syncs");
        manager.shutdown().await.expect("ends");
        master.attempt
    };
    let all = [row("map/0", done), row("map/1", done)];
    {
        let (manager, client) = resource_manager(dir.path()).await;
        let mut master = FakeMaster::of(&client, attempt.clone());
        let refused = master.try_finish(Some(last.clone())).await;
        let refused = refused.expect_err("the other rows are missing");
        assert_eq!(refused.code(), Some(ErrorCode::HR0410), "{refused}");
        master.register().await;
        master.finish(Some(patch(true, all.to_vec(), &[]))).await;
        app_state(&client, master.app(), AppState::Finished).await;
        manager.shutdown().await.expect("ends");
    }
    // The answer was lost, and the master repeats the call.
    let (_manager, client) = resource_manager(dir.path()).await;
    let master = FakeMaster::of(&client, attempt);
    master.finish(Some(last)).await;
    let view = client.app(master.app()).await.expect("known");
    assert_eq!(view.job.expect("kept").tasks, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_refused_call_are_discarded() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut master = FakeMaster::submit(&client, "job").await;
    master.epoch = headroom_types::Epoch(99);
    let stale = patch(true, vec![row("map/0", TaskState::Failed)], &["TaskFailed"]);
    master
        .sync_with(Vec::new(), Some(stale))
        .await
        .expect_err("stale");
    assert_eq!(client.app(master.app()).await.expect("known").job, None);
    assert!(
        words(&client, 0)
            .await
            .iter()
            .all(|e| e.reason != "TaskFailed")
    );
}

/// Silent streams send keep-alive messages, well before the timeout of a reader.
#[tokio::test(flavor = "multi_thread")]
async fn silent_streams_send_keep_alive_messages() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let node = FakeNode::join(&client, "n1", 512).await;
    let master = FakeMaster::submit(&client, "job").await;
    let mut desired = client.desired(&node.id, node.epoch).await.expect("listens");
    let first = soon("the first line", desired.next()).await;
    let first = first.expect("open").expect("a line");
    assert_eq!((first.epoch, first.containers.len()), (node.epoch, 0));
    let mut updates = client
        .updates(master.app(), master.epoch, 0)
        .await
        .expect("listens");
    let first = soon("the current cursor", updates.next())
        .await
        .expect("open")
        .expect("an update");
    assert_eq!(
        (first.cursor, first.what),
        (
            0,
            headroom_wire::v1::application_master::ApplicationUpdateKind::Alive
        )
    );
    let alive = soon("a keep-alive message", desired.next())
        .await
        .expect("open")
        .expect("a line");
    assert!(!alive.full && alive.containers.is_empty());
    let alive = soon("a keep-alive message", updates.next())
        .await
        .expect("open")
        .expect("an update");
    assert_eq!(
        alive.what,
        headroom_wire::v1::application_master::ApplicationUpdateKind::Alive
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_job_are_selected_by_page_or_by_memory_kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = FakeMaster::submit(&client, "job").await;
    let mut rows: Vec<TaskRow> = (0..250)
        .map(|n| row(&format!("map/{n}"), TaskState::Done))
        .collect();
    let attempt = serde_json::json!({
        "attempt": "map/7@1", "profile": {"heap": 1, "overhead": 0, "cpus": 1000}, "slots": 1, "rung": 1, "container": "job.1.e1.c1",
        "node": "n1", "started": 1, "ended": 2, "reason": {"kind": "task_oom"}, "peak": null, "dimension": "native", "decision": "again",
        "timeline": [], "log_tail": "", "used": null, "evidence": null,
    });
    (rows[249].state, rows[200].state) = (TaskState::Failed, TaskState::Running);
    rows[7].attempts = vec![serde_json::from_value(attempt).expect("an attempt")];
    master
        .sync_with(Vec::new(), Some(patch(true, rows, &[])))
        .await
        .expect("syncs");
    let ask = async |query: &str| {
        let url = format!("{}/v1/apps/{}?{query}", client.base(), master.app());
        let answer = soon(query, reqwest::get(url)).await.expect("answers");
        let link = answer
            .headers()
            .get("link")
            .map(|link| link.to_str().expect("text").to_owned());
        let body: serde_json::Value = answer.json().await.expect("JSON");
        (body, link)
    };
    let tasks = |body: &serde_json::Value| -> Vec<String> {
        let rows = body["job"]["tasks"].as_array().expect("rows");
        rows.iter()
            .map(|row| row["task"].as_str().expect("an id").to_owned())
            .collect()
    };
    let (all, _) = ask("tasks=all").await;
    assert_eq!(
        (tasks(&all).len(), tasks(&ask("tasks=none").await.0).len()),
        (250, 0)
    );
    assert_eq!(
        ask("tasks=none").await.0["job"]["totals"],
        all["job"]["totals"],
        "the totals include all tasks"
    );
    assert_eq!(tasks(&ask("tasks=kills").await.0), ["map/7"]);
    let first = tasks(&ask("tasks=first").await.0);
    assert_eq!(
        (first.len(), first[0].as_str(), first[1].as_str()),
        (100, "map/249", "map/200"),
        "failed, then running"
    );
    let (mut seen, mut query) = (Vec::new(), "tasks=1".to_owned());
    loop {
        let (page, link) = ask(&query).await;
        assert!(tasks(&page).len() <= 100);
        seen.extend(tasks(&page));
        let Some(link) = link else { break };
        query = link
            .split(['?', '>'])
            .nth(1)
            .expect("an address")
            .to_owned();
    }
    assert_eq!(seen, tasks(&all), "pages cover every row once");
    for wrong in ["tasks=0", "tasks=some", "task=1"] {
        assert_eq!(ask(wrong).await.0["code"], "HR0400", "{wrong}");
    }
}
