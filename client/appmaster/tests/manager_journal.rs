//! The whole master with its journal in a fake resource manager: lost answers, silence, a later
//! attempt on another node, and the limit.

mod fake;

use std::path::Path;
use std::time::Duration;

use fake::{Cluster, JOB};
use headroom_appmaster::journal::JournalError;
use headroom_appmaster::record::JournalRecord;
use headroom_appmaster::run::{MasterOptions, MasterResult, MasterRunError, StopRequest};
use headroom_config::JournalPlace;
use headroom_types::AppId;
use tokio::sync::watch;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

/// A master on the node with the directory `node`.
fn options(
    cluster: &Cluster,
    dir: &Path,
    node: &str,
) -> (MasterOptions, watch::Sender<StopRequest>) {
    let (options, stop) = fake::options(cluster, JOB, dir);
    let options = MasterOptions {
        state: Some(dir.join(node)),
        journals: Some(JournalPlace::ResourceManager),
        ..options
    };
    (options, stop)
}

/// A later attempt on another node.
fn later(cluster: &Cluster, dir: &Path, app: &AppId, attempt: u32) -> MasterOptions {
    let node = format!("node-{attempt}");
    let (mut options, stop) = options(cluster, dir, &node);
    // The sender lives as long as the attempt.
    std::mem::forget(stop);
    (options.app, options.attempt) = (Some(app.clone()), attempt);
    options
}

async fn ended(options: MasterOptions) -> Result<MasterResult, MasterRunError> {
    timeout(SOON, fake::run_job(options))
        .await
        .expect("in time")
}

/// The records, each of which can be read.
fn parsed(lines: &[String]) -> Vec<JournalRecord> {
    let record = |line: &String| serde_json::from_str(line).expect("a record");
    lines.iter().map(record).collect()
}

fn starts(records: &[JournalRecord]) -> u32 {
    let started = |r: &&JournalRecord| matches!(r, JournalRecord::Placed { .. });
    u32::try_from(records.iter().filter(started).count()).expect("few")
}

fn tail(dir: &Path, node: &str) -> std::path::PathBuf {
    file(dir, node).with_extension("tail")
}

fn file(dir: &Path, node: &str) -> std::path::PathBuf {
    dir.join(node).join("appmaster/fake.1/journal.ndjson")
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_and_silence_neither_lose_nor_repeat_a_record() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    cluster.change_journal(|journal| journal.loses_answers = true);
    let (options, _stop) = options(&cluster, dir.path(), "node-1");
    let running = tokio::spawn(ended(options));
    cluster.until("tasks run", |s| s.started >= 2).await;
    cluster.change_journal(|journal| journal.silent = true);
    let silent = |s: &fake::Seen| s.silent_appends >= 5;
    cluster.until("appends wait", silent).await;
    let waiting = cluster.seen();
    let copy = std::fs::read_to_string(tail(dir.path(), "node-1")).expect("a copy");
    let lines: Vec<String> = copy.lines().skip(1).map(str::to_owned).collect();
    assert!(
        waiting.finished.is_none() && waiting.started <= starts(&parsed(&lines)),
        "no task starts without its record on the node"
    );
    cluster.change_journal(|journal| journal.silent = false);
    let end = running.await.expect("runs").expect("ends");
    let (seen, journal) = (cluster.seen(), cluster.journal());
    assert_eq!((end.exit_code(), seen.totals.done), (0, 7));
    assert_eq!(seen.started, 7 + 2, "only the killed attempts ran twice");
    assert!(journal.repeated > 0, "answers were lost");
    let records = parsed(&journal.records());
    assert_eq!(starts(&records), 7 + 2, "{records:?}");
    assert!(matches!(records.first(), Some(JournalRecord::Begin(_))));
    assert!(!file(dir.path(), "node-1").exists(), "it did not move");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_on_another_node_continues_and_ends_the_earlier_one() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut first, _stop) = options(&cluster, dir.path(), "node-1");
    let app = fake::submit_job(&mut first).await.expect("submits");
    let earlier = tokio::spawn(ended(first));
    cluster.until("tasks end and run", |s| s.started >= 5).await;
    // The first attempt still runs when the next one takes over, as after a partition.
    let end = ended(later(&cluster, dir.path(), &app, 2)).await;
    let seen = cluster.seen();
    assert_eq!((end.expect("ends").exit_code(), seen.totals.done), (0, 7));
    // The earlier attempt may fill its slots once more before it is refused.
    let again = seen.started.checked_sub(7 + 2);
    assert!(
        again.is_some_and(|again| again <= fake::SLOTS),
        "finished tasks did not run again, and running ones were adopted: {} starts",
        seen.started
    );
    let error = earlier.await.expect("runs").expect_err("it is replaced");
    let refused = matches!(
        &error,
        MasterRunError::Journal(JournalError::Refused { attempt: 1, .. })
    );
    assert!(refused, "{error}");
    let attempts: Vec<u32> = cluster.journal().groups.iter().map(|g| g.0).collect();
    assert!(
        attempts.is_sorted() && attempts.ends_with(&[2]),
        "{attempts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_at_the_limit_moves_to_the_node_and_the_job_continues() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut first, stop) = options(&cluster, dir.path(), "node-1");
    let app = fake::submit_job(&mut first).await.expect("submits");
    let running = tokio::spawn(ended(first));
    cluster.until("tasks run", |s| s.started >= 2).await;
    cluster.change_journal(|journal| journal.limit = 1);
    cluster.until("the move", |s| s.journal_moved).await;
    stop.send(StopRequest::Leave).expect("is heard");
    let left = running.await.expect("runs").expect("leaves");
    assert!(left.outcome.is_none() && cluster.journal().moved);
    assert_eq!(cluster.journal().groups, [], "its space is free");
    // An attempt on the same node continues the file.
    let (mut second, _keep) = options(&cluster, dir.path(), "node-1");
    (second.app, second.attempt) = (Some(app), 2);
    let end = ended(second).await.expect("ends");
    let seen = cluster.seen();
    assert_eq!((end.exit_code(), seen.totals.done), (0, 7));
    assert_eq!(seen.started, 7 + 2, "only the killed attempts ran twice");
    let text = std::fs::read_to_string(file(dir.path(), "node-1")).expect("reads");
    let records = parsed(&text.lines().map(str::to_owned).collect::<Vec<_>>());
    assert!(matches!(records.first(), Some(JournalRecord::Begin(_))));
    let over = |r: &JournalRecord| matches!(r, JournalRecord::Over { .. });
    assert!(records.iter().any(over), "the file has all records");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_above_the_limit_keeps_its_journal_on_its_node_from_the_start() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    cluster.change_journal(|journal| journal.limit = 4 << 10);
    let (options, _stop) = options(&cluster, dir.path(), "node-1");
    let end = ended(options).await.expect("ends");
    assert_eq!((end.exit_code(), cluster.seen().totals.done), (0, 7));
    assert_eq!(cluster.journal().groups, []);
    assert!(file(dir.path(), "node-1").exists());
}
