//! Wall clocks that are wrong by an hour. Leases, deadlines and verdicts use monotonic time and are
//! not affected. Certificates use the wall clock: a peer to which a certificate is not valid yet
//! reports that, keeps its containers, and continues after the correction.

use std::time::Duration;

use headroom_types::Bytes;
use headroom_wire::v1::apps::{AppState, AppView};
use integration::cluster::{Cluster, NodeShape, ProgramOutput, SOON, ran, until};
use integration::jobs::JobFile;
use integration::programs;
use integration::skew::Skew;

fn cluster() -> Cluster {
    Cluster::start_secured(&[NodeShape {
        memory: Bytes::from_mib(768),
        ..NodeShape::default()
    }])
    .expect("a cluster")
}

fn running(view: &AppView) -> Option<()> {
    view.job
        .as_ref()
        .filter(|job| job.totals.running == 1)
        .map(|_| ())
}

/// Runs `rmctl node list` with a wrong clock.
fn asks(cluster: &Cluster, skew: Skew) -> ProgramOutput {
    let papers = cluster.papers().expect("certificates");
    let mut command = std::process::Command::new(programs::path("rmctl").expect("built"));
    command
        .args(["--addr", &cluster.url(), "node", "list"])
        .env("HEADROOM_CACERT", papers.ca());
    command.env("HEADROOM_TOKEN_FILE", papers.token());
    skew.put(&mut command, cluster.dir()).expect("made");
    ran(command).expect("runs")
}

#[test]
fn an_agent_with_a_wrong_clock_keeps_its_tasks() {
    let mut cluster = cluster();
    let go = cluster.dir().join("go");
    let wait = [
        "sh",
        "-c",
        &format!("until test -e {}; do sleep 0.1; done", go.display()),
    ];
    let job = JobFile::new("patient", 1, 1, Bytes::from_mib(64)).stage("wait", 1, &wait, "");
    let app = cluster.submit(job.text()).expect("submits");
    cluster
        .until_app(&app, "its task to run", SOON, running)
        .expect("runs");
    let first = cluster.app(&app).expect("answers").attempts.len();

    // Ahead: the certificates are still valid, and no wait ends an hour early.
    cluster.set_clock("node-1", Skew::hours(1));
    cluster.kill_daemon("node-1").expect("runs");
    cluster.start_node("node-1").expect("starts");
    until("the agent to register again", SOON, || {
        Ok(cluster.log("node-1").matches(" ready ").nth(1).map(|_| ()))
    })
    .expect("a second registration");
    cluster.until_ready().expect("ready");
    cluster
        .until_app(&app, "its task to run on", SOON, running)
        .expect("runs");

    // Behind: the manager's certificate is not valid yet.
    cluster.set_clock("node-1", Skew::hours(-1));
    cluster.kill_daemon("node-1").expect("runs");
    cluster.start_node("node-1").expect("starts");
    let refused = || {
        Ok(cluster
            .log("node-1")
            .lines()
            .find(|line| line.contains("not valid yet"))
            .map(str::to_owned))
    };
    let line =
        until("the agent to report the invalid certificate", SOON, refused).expect("a log line");
    assert!(line.contains("clock"), "the line names the clock: {line}");

    cluster.set_clock("node-1", Skew::hours(0));
    cluster.kill_daemon("node-1").expect("runs");
    cluster.start_node("node-1").expect("starts");
    cluster.until_ready().expect("ready");
    std::fs::write(&go, "").expect("writes");
    let ended = cluster.until_ended(&app).expect("ends");
    assert_eq!(ended.state, AppState::Finished, "{}", ended.diagnostics);
    assert_eq!(
        ended.attempts.len(),
        first,
        "its master was not started again"
    );
    let attempts: Vec<_> = ended
        .job
        .iter()
        .flat_map(|job| &job.tasks)
        .flat_map(|row| &row.attempts)
        .collect();
    assert_eq!(attempts.len(), 1, "the task ran once: {attempts:?}");
}

#[test]
fn a_job_runs_on_a_node_with_a_clock_ahead() {
    let mut cluster = cluster();
    cluster.set_clock("node-1", Skew::hours(1));
    cluster.kill_daemon("node-1").expect("runs");
    cluster.start_node("node-1").expect("starts");
    cluster.until_ready().expect("ready");
    let job = JobFile::new("short", 1, 1, Bytes::from_mib(64)).stage("say", 3, &["true"], "");
    let app = cluster.submit(job.text()).expect("submits");
    let ended = cluster.until_ended(&app).expect("ends");
    assert_eq!(ended.state, AppState::Finished, "{}", ended.diagnostics);
    let took = ended
        .job
        .iter()
        .flat_map(|job| &job.tasks)
        .flat_map(|row| &row.attempts);
    let took: Vec<Duration> = took
        .filter_map(|a| a.ended.map(|ended| ended.since(a.started)))
        .collect();
    assert!(
        took.len() == 3 && took.iter().all(|t| *t < Duration::from_secs(600)),
        "an hour is in none of their times: {took:?}"
    );
}

#[test]
fn a_client_with_a_wrong_clock_gets_an_answer_or_a_reason() {
    let cluster = cluster();
    let ahead = asks(&cluster, Skew::hours(1));
    assert_eq!(
        (ahead.code, ahead.stdout.contains("node-1")),
        (0, true),
        "{}",
        ahead.stderr
    );
    let behind = asks(&cluster, Skew::hours(-1));
    assert!(
        behind.code != 0
            && behind.stderr.contains("not valid yet")
            && behind.stderr.contains("clock"),
        "{}",
        behind.stderr
    );
    let late = asks(&cluster, Skew::hours(24 * 365 * 30));
    assert!(
        late.code != 0 && late.stderr.contains("expired") && late.stderr.contains("clock"),
        "{}",
        late.stderr
    );
}
