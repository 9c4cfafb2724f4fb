//! Orders about one task: an order that the state does not allow is refused, others are passed on
//! to the master.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use fakes::*;
use headroom_types::{Bytes, TaskId, TaskOrder, TaskOrderAction};
use headroom_wire::v1::application_master::ApplicationUpdateKind;
use headroom_wire::v1::apps::ResizeTaskRequest;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::job::{JobTotals, JobViewPatch, TaskState};

/// An application whose master has reported a task in each of four states.
async fn master_with_tasks(client: &headroom_client::Client) -> FakeMaster {
    let master = FakeMaster::submit(client, "job").await;
    let states = [
        TaskState::Running,
        TaskState::Pending,
        TaskState::Done,
        TaskState::Failed,
    ];
    let tasks = states
        .into_iter()
        .enumerate()
        .map(|(n, state)| row(&format!("map/{n}"), state))
        .collect();
    let patch = JobViewPatch {
        full: true,
        totals: JobTotals::default(),
        tasks,
        events: Vec::new(),
        ..JobViewPatch::default()
    };
    master
        .sync_with(Vec::new(), Some(patch))
        .await
        .expect("syncs");
    master
}

fn code<T: std::fmt::Debug>(answer: Result<T, headroom_client::ClientError>) -> Option<ErrorCode> {
    answer.expect_err("the order is refused").code()
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_the_task_state_forbids_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = master_with_tasks(&client).await;
    let app = master.app();
    let task = |n: u32| -> TaskId { id(&format!("map/{n}")) };
    let more = |memory| ResizeTaskRequest {
        memory,
        reason: None,
    };
    assert_eq!(
        code(client.kill_task(app, &task(9), None).await),
        Some(ErrorCode::HR0404)
    );
    assert_eq!(
        code(client.kill_task(&id("other.1"), &task(0), None).await),
        Some(ErrorCode::HR0404)
    );
    for over in [2, 3] {
        assert_eq!(
            code(client.kill_task(app, &task(over), None).await),
            Some(ErrorCode::HR0409)
        );
        assert_eq!(
            code(client.retry_task(app, &task(over), None).await),
            Some(ErrorCode::HR0409)
        );
    }
    assert_eq!(
        code(client.retry_task(app, &task(1), None).await),
        Some(ErrorCode::HR0409),
        "it does not run"
    );
    assert_eq!(
        code(
            client
                .resize_task(app, &task(0), &more(Bytes::from_mib(64)))
                .await
        ),
        Some(ErrorCode::HR0409),
        "it runs"
    );
    assert_eq!(
        code(
            client
                .resize_task(app, &task(1), &more(Bytes::new(1)))
                .await
        ),
        Some(ErrorCode::HR0400)
    );
    assert_eq!(
        client.task(app, &task(1)).await.expect("a row").state,
        TaskState::Pending
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_orders_reach_the_master_in_sequence() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let mut master = master_with_tasks(&client).await;
    let (app, runs, waits): (_, TaskId, TaskId) = (master.app().clone(), id("map/0"), id("map/1"));
    client
        .kill_task(&app, &runs, Some("wrong day".into()))
        .await
        .expect("the order is accepted");
    let body = ResizeTaskRequest {
        memory: Bytes::from_mib(128),
        reason: Some("  ".into()),
    };
    client
        .resize_task(&app, &waits, &body)
        .await
        .expect("the order is accepted");
    let line = master.line.as_mut().expect("listens");
    let mut orders = Vec::new();
    while orders.len() < 2 {
        let update = soon("an order", line.next())
            .await
            .expect("open")
            .expect("an update");
        if let ApplicationUpdateKind::Order(order) = update.what {
            orders.push(order);
        }
    }
    let resize = TaskOrderAction::Resize {
        memory: Bytes::from_mib(128),
    };
    let expected = [
        TaskOrder {
            task: runs,
            action: TaskOrderAction::Cancel,
            reason: Some("wrong day".into()),
        },
        TaskOrder {
            task: waits,
            action: resize,
            reason: None,
        },
    ];
    assert_eq!(orders, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_undelivered_orders_is_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let master = master_with_tasks(&client).await;
    for _ in 0..256 {
        client
            .kill_task(master.app(), &id("map/0"), None)
            .await
            .expect("the order is accepted");
    }
    assert_eq!(
        code(client.kill_task(master.app(), &id("map/0"), None).await),
        Some(ErrorCode::HR0429)
    );
}
