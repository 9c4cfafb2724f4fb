//! The whole master over real sockets: with a fake resource manager and fake executors, and a
//! journal on a real disk.

mod fake;

use std::time::Duration;

use fake::{Cluster, JOB};
use headroom_appmaster::event::JobEndKind;
use headroom_appmaster::record::JournalRecord;
use headroom_appmaster::run::{MasterOptions, MasterResult, MasterRunError, StopRequest};
use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::job::{DataLocality, InputGap, TaskState};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

fn options(
    cluster: &Cluster,
    dir: &std::path::Path,
) -> (MasterOptions, watch::Sender<StopRequest>) {
    fake::options(cluster, JOB, dir)
}

async fn finished(options: MasterOptions) -> MasterResult {
    timeout(SOON, fake::run_job(options))
        .await
        .expect("in time")
        .expect("runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_from_submission_to_its_end() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, _wish) = options(&cluster, dir.path());
    let end = finished(options).await;
    assert_eq!(
        (end.app.to_string().as_str(), end.exit_code()),
        ("fake.1", 0)
    );
    let seen = cluster.seen();
    assert_eq!(seen.finished, Some(true));
    assert_eq!(seen.rows.len(), 7);
    assert!(seen.rows.values().all(|r| r.state == TaskState::Done));
    let heavy: Vec<u64> = seen.rows["map/2"]
        .attempts
        .iter()
        .map(|a| a.profile.memory().whole_mib())
        .collect();
    assert_eq!(heavy, [64, 128, 192]);
    assert_eq!(
        seen.rows["map/2"].attempts[0].reason,
        Some(ExitReason::TaskOom)
    );
    assert_eq!(seen.totals.done, 7);
    let reasons: Vec<&str> = seen.events.iter().map(|e| e.reason.as_str()).collect();
    for wanted in [
        "JobStarted",
        "OomKilled",
        "Escalated",
        "TaskFinished",
        "JobFinished",
    ] {
        assert!(reasons.contains(&wanted), "{wanted}: {reasons:?}");
    }
    assert_eq!(seen.environment["HEADROOM_PREVIOUS_REASON"], "task_oom");
    assert_eq!(seen.command, ["prog", "--part=2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_of_a_stage_are_measured_by_the_master_and_recorded() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut options, _wish) = options(&cluster, dir.path());
    let text = JOB.replacen("command = ", "input = \"part-{index}\"\ncommand = ", 1);
    std::fs::write(
        &options.job,
        text.replacen("name = ", "sizes = \"shadow\"\nname = ", 1),
    )
    .expect("writes");
    std::fs::write(dir.path().join("part-1"), vec![0u8; 4711]).expect("writes");
    std::fs::create_dir(dir.path().join("part-2")).expect("makes");
    options.base_dir = Some(dir.path().to_owned());
    assert_eq!(finished(options).await.exit_code(), 0);
    let journal = std::fs::read_to_string(dir.path().join("state/appmaster/fake.1/journal.ndjson"))
        .expect("reads");
    let inputs = journal.lines().filter_map(|line| {
        let JournalRecord::Inputs { stage, sizes } = serde_json::from_str(line).expect("a record")
        else {
            return None;
        };
        Some((stage, sizes))
    });
    let inputs: Vec<_> = inputs.collect();
    let [(0, sizes)] = inputs.as_slice() else {
        panic!("measured once, for the stage that names inputs: {inputs:?}")
    };
    assert_eq!(
        (sizes[0], sizes[1], sizes[2]),
        (None, Some(Bytes::new(4711)), None),
        "missing, a file, and no file"
    );
    assert!(
        cluster.seen().totals.shadow.is_some(),
        "the shadow is reported"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_survives_restarts_of_the_resource_manager() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, _wish) = options(&cluster, dir.path());
    let running = tokio::spawn(finished(options));
    cluster.until("tasks run", |s| s.started >= 2).await;
    cluster.begin_new_life();
    cluster.until("more tasks run", |s| s.started >= 5).await;
    cluster.begin_new_life();
    let end = running.await.expect("runs");
    let seen = cluster.seen();
    assert_eq!(
        (end.exit_code(), seen.totals.done, seen.registrations),
        (0, 7, 3)
    );
    assert_eq!(seen.totals.transient, 0, "no attempt was lost");
    assert_eq!(
        seen.started,
        7 + 2,
        "only the two killed attempts ran twice"
    );
}

/// Two connections with the hello of the same executor: the later one counts, the earlier one is
/// closed, and no task is lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_later_connection_of_an_executor_replaces_the_earlier() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, _wish) = options(&cluster, dir.path());
    let running = tokio::spawn(finished(options));
    cluster.until("tasks run", |s| s.started >= 2).await;
    let (mut twin, container) = cluster.twin().await;
    cluster
        .until("the executor to be disconnected and to reconnect", |s| {
            s.hellos[&container] >= 2
        })
        .await;
    let mut words = Vec::new();
    let _ = timeout(SOON, twin.read_to_end(&mut words))
        .await
        .expect("is disconnected in turn"); // a reset is an end too
    let end = running.await.expect("runs");
    let seen = cluster.seen();
    assert_eq!(
        (end.exit_code(), seen.totals.done, seen.totals.transient),
        (0, 7, 0)
    );
    assert_eq!(
        seen.started,
        7 + 2,
        "only the two killed attempts ran twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_run_continues_the_job() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut first, stop) = options(&cluster, dir.path());
    let app = fake::submit_job(&mut first).await.expect("submits");
    let (mut second, _keep) = options(&cluster, dir.path());
    second.app = Some(app);
    let running = tokio::spawn(finished(first));
    cluster
        .until("a task was killed and others run", |s| s.started >= 4)
        .await;
    stop.send(StopRequest::Leave).expect("is heard");
    let left = running.await.expect("runs");
    assert!(
        left.outcome.is_none() && cluster.seen().finished.is_none(),
        "the job is not over"
    );
    let end = finished(second).await;
    let seen = cluster.seen();
    assert_eq!(
        (end.exit_code(), seen.totals.done, seen.totals.transient),
        (0, 7, 0)
    );
    assert_eq!(
        seen.started,
        7 + 2,
        "running tasks were adopted and not run again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_run_reports_a_recorded_end() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut first, _wish) = options(&cluster, dir.path());
    let app = fake::submit_job(&mut first).await.expect("submits");
    finished(first).await;
    let started = cluster.seen().started;
    cluster.forget_the_end();
    let (mut second, _keep) = options(&cluster, dir.path());
    second.app = Some(app);
    let end = finished(second).await;
    let seen = cluster.seen();
    assert_eq!(
        (end.exit_code(), seen.finished, seen.rows.len()),
        (0, Some(true), 7)
    );
    assert_eq!(seen.started, started, "no task ran again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_application_ends_its_master() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, _wish) = options(&cluster, dir.path());
    let running = tokio::spawn(finished(options));
    cluster.until("tasks run", |s| s.started >= 2).await;
    cluster.kill();
    let end = running.await.expect("runs");
    assert_eq!(end.outcome.map(|o| o.ending), Some(JobEndKind::Stopped));
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_the_job_file_are_reported_before_a_submission() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, _wish) = options(&cluster, dir.path());
    std::fs::write(&options.job, "version = 1\nname = \"x y\"\n").expect("writes");
    let error = fake::run_job(options).await.expect_err("mistakes");
    assert!(
        matches!(&error, MasterRunError::Job(p) if p.len() >= 3),
        "{error}"
    );
    assert_eq!((error.exit_code(), cluster.seen().registrations), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_nodes_are_requested_and_read_bytes_are_shown() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (options, _wish) = options(&cluster, dir.path());
    let sizes = ["\"160MiB\""; 6].join(", ");
    let inputs = format!("count = 6\ninput_hosts = [\"node-7\"]\ninput = [{sizes}]");
    std::fs::write(&options.job, JOB.replace("count = 6", &inputs)).expect("writes");
    assert_eq!(finished(options).await.exit_code(), 0);
    let seen = cluster.seen();
    assert_eq!(
        (&seen.preferred["set-main"], &seen.preferred["own-map-2-r3"]),
        (&vec!["node-7".into()], &vec!["node-7".into()])
    );
    let input = |task: &str| {
        seen.rows[task]
            .attempts
            .last()
            .and_then(|a| a.input.clone())
            .expect("an input")
    };
    assert_eq!(
        (input("map/0").locality, input("map/0").gap),
        (Some(DataLocality::Local), None)
    );
    assert_eq!(
        (input("map/2").planned, input("map/2").read),
        (Some(Bytes::from_mib(160)), Some(Bytes::from_mib(1520)))
    );
    assert_eq!(input("map/2").gap, Some(InputGap::More));
    assert!(
        seen.rows["reduce/0"].attempts[0].input.is_none(),
        "the stage has no input"
    );
    assert_eq!(
        seen.events
            .iter()
            .filter(|e| e.reason == "InputGap")
            .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_jobs_journal_is_refused() {
    let (cluster, dir) = (
        Cluster::start().await,
        tempfile::tempdir().expect("directory"),
    );
    let (mut first, stop) = options(&cluster, dir.path());
    let app = fake::submit_job(&mut first).await.expect("submits");
    let running = tokio::spawn(finished(first));
    cluster.until("tasks run", |s| s.started >= 1).await;
    stop.send(StopRequest::Leave).expect("is heard");
    running.await.expect("runs");
    let (mut second, _keep) = options(&cluster, dir.path());
    second.app = Some(app);
    std::fs::write(&second.job, JOB.replace("count = 6", "count = 5")).expect("writes");
    let error = fake::run_job(second).await.expect_err("another job");
    assert!(matches!(error, MasterRunError::Journal(_)), "{error}");
}
