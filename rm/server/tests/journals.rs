//! Journals of masters in the state: what may be appended, that nothing acknowledged is lost, and
//! that nothing remains of an ended application.

#![allow(missing_docs)] // tests are read, not imported

mod fakes;

use std::path::Path;

use fakes::*;
use headroom_client::{Client, ClientError};
use headroom_rm_server::{ManagerOptions, RunningManager, start};
use headroom_rm_store::check::check;
use headroom_types::{AppId, AttemptId, Bytes, ExitReason, StoreBackend};
use headroom_wire::v1::application_master::{
    AppendToJournal, JOURNAL_GROUP_OVERHEAD, StoredJournal,
};
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;

async fn append(
    client: &Client,
    attempt: &AttemptId,
    offset: u64,
    records: &str,
) -> Result<u64, ClientError> {
    let body = AppendToJournal {
        attempt: attempt.clone(),
        offset,
        records: records.to_owned(),
        moved: false,
    };
    let appended = client.append_to_journal(&attempt.app, &body).await?;
    Ok(appended.end)
}

async fn read(client: &Client, attempt: &AttemptId) -> Result<StoredJournal, ClientError> {
    client.master_journal(&attempt.app, attempt.attempt).await
}

fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Option<ErrorCode> {
    answer.expect_err("it is refused").code()
}

fn second(app: &AppId) -> AttemptId {
    AttemptId {
        app: app.clone(),
        attempt: 2,
    }
}

/// Number of groups of journals in the state of a resource manager that has ended.
fn groups_in(state: &Path) -> usize {
    let report = check(state).expect("the state is free");
    assert_eq!(report.problems, []);
    let groups = report.records.get("groups in journals of masters");
    groups.copied().unwrap_or_default()
}

/// An application with a managed master that runs, and its node.
async fn with_managed_master(client: &Client) -> (FakeNode, AttemptId) {
    let mut node = FakeNode::join(client, "n1", 512).await;
    let submitted = client
        .submit(&managed("job", mib(64), 3))
        .await
        .expect("submits");
    node.until_orders(1).await;
    node.run_all().await;
    FakeMaster::of(client, submitted.attempt.clone())
        .register()
        .await;
    (node, submitted.attempt)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_attempt_reads_all_groups_and_an_earlier_one_appends_nothing_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_running, client) = resource_manager(dir.path()).await;
    let (mut node, first) = with_managed_master(&client).await;
    assert_eq!(read(&client, &first).await.expect("reads").records, "");
    // An append needs no registration, so it is possible during a recovery.
    assert_eq!(append(&client, &first, 0, "a\n").await.expect("new"), 2);
    assert_eq!(append(&client, &first, 0, "a\n").await.expect("again"), 2);
    let long = format!("{}\n", "b".repeat(20_000));
    let end = append(&client, &first, 2, &long).await.expect("new");
    for (offset, records) in [(0, "a\n"), (2, "c\n"), (end + 1, "c\n")] {
        let refused = append(&client, &first, offset, records).await;
        assert_eq!(code(refused), Some(ErrorCode::HR0409), "{offset}");
    }
    assert_eq!(
        code(append(&client, &first, end, "no line feed").await),
        Some(ErrorCode::HR0400)
    );
    let early = append(&client, &second(&first.app), 0, "x\n").await;
    assert_eq!(
        code(early),
        Some(ErrorCode::HR0409),
        "there is no attempt 2"
    );

    let master = node.orders.keys().next().expect("the master").clone();
    node.end(&master, ExitReason::Exit { code: 1 });
    node.report().await.expect("reports");
    node.until_orders(2).await;
    let late = append(&client, &first, end, "late\n").await;
    assert_eq!(code(late), Some(ErrorCode::HR0409), "it was replaced");
    let later = second(&first.app);
    let journal = read(&client, &later).await.expect("reads");
    assert_eq!(journal.records, format!("a\n{long}"));
    assert_eq!(journal.limit, Bytes::from_mib(1));
    assert_eq!(append(&client, &later, 0, "d\n").await.expect("new"), 2);
    assert_eq!(
        code(read(&client, &later).await),
        Some(ErrorCode::HR0409),
        "a second process with the same attempt"
    );
    let other: AppId = id("job.77");
    assert_eq!(
        code(read(&client, &second(&other)).await),
        Some(ErrorCode::HR0404)
    );
}

async fn start_limited(state: &Path, store: StoreBackend) -> (RunningManager, Client) {
    let mut options =
        ManagerOptions::new("127.0.0.1:0".parse().expect("address"), state.to_owned());
    options.config.store = store;
    options.config.journals.max_journal = Bytes::from_kib(2);
    options.config.journals.max_total = Bytes::from_kib(3);
    let running = start(options).await.expect("starts");
    let client = Client::new(&running.url).expect("address");
    (running, client)
}

/// A group that fills this part of a journal.
fn group(bytes: u64) -> String {
    let length = usize::try_from(bytes - JOURNAL_GROUP_OVERHEAD).expect("small");
    format!("{}\n", "x".repeat(length - 1))
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_are_bounded_and_an_ended_application_frees_its_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let (running, client) = start_limited(dir.path(), StoreBackend::default()).await;
    let one = FakeMaster::submit(&client, "one").await;
    let two = FakeMaster::submit(&client, "two").await;
    let end = append(&client, &one.attempt, 0, &group(2048))
        .await
        .expect("exactly the limit");
    assert_eq!(
        code(append(&client, &one.attempt, end, "x\n").await),
        Some(ErrorCode::HR0413)
    );
    let extent = read(&client, &two.attempt).await.expect("reads");
    assert_eq!(extent.limit, Bytes::from_kib(1), "the rest of the total");
    assert_eq!(
        code(append(&client, &two.attempt, 0, &group(1025)).await),
        Some(ErrorCode::HR0413)
    );
    append(&client, &two.attempt, 0, &group(1024))
        .await
        .expect("the rest");

    one.finish(None).await;
    app_state(&client, one.app(), AppState::Finished).await;
    append(&client, &one.attempt, end, "after the end\n")
        .await
        .expect("nothing depends on it");
    assert_eq!(
        code(read(&client, &one.attempt).await),
        Some(ErrorCode::HR0409),
        "no attempt continues an ended application"
    );
    let end = append(&client, &two.attempt, 768, &group(1024))
        .await
        .expect("the space is free");

    let mark = AppendToJournal {
        attempt: two.attempt.clone(),
        offset: end,
        records: String::new(),
        moved: true,
    };
    for _ in 0..2 {
        let moved = client.append_to_journal(two.app(), &mark).await;
        moved.expect("the mark needs no space, and may be repeated");
    }
    assert_eq!(
        code(append(&client, &two.attempt, end, "x\n").await),
        Some(ErrorCode::HR0409)
    );
    let moved = read(&client, &two.attempt).await.expect("reads");
    assert_eq!((moved.moved, moved.records.as_str()), (true, ""));
    running.shutdown().await.expect("ends");
    assert_eq!(groups_in(dir.path()), 1, "the mark");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_resource_manager_has_the_journal_and_its_end() {
    for store in StoreBackend::ALL {
        let dir = tempfile::tempdir().expect("a directory");
        let (running, client) = start_limited(dir.path(), store).await;
        let master = FakeMaster::submit(&client, "job").await;
        let attempt = master.attempt.clone();
        append(&client, &attempt, 0, "a\n").await.expect("new");
        append(&client, &attempt, 2, "b\n").await.expect("new");
        running.shutdown().await.expect("ends");
        assert_eq!(groups_in(dir.path()), 2);

        let (running, client) = start_limited(dir.path(), store).await;
        // Before the master has registered again.
        assert_eq!(append(&client, &attempt, 2, "b\n").await.expect("again"), 4);
        assert_eq!(
            code(append(&client, &attempt, 2, "c\n").await),
            Some(ErrorCode::HR0409)
        );
        assert_eq!(append(&client, &attempt, 4, "c\n").await.expect("new"), 6);
        let mut master = FakeMaster::of(&client, attempt);
        master.register().await;
        master.finish(None).await;
        app_state(&client, master.app(), AppState::Finished).await;
        running.shutdown().await.expect("ends");
        assert_eq!(groups_in(dir.path()), 0, "the application has ended");
    }
}
