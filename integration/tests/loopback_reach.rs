//! `rmctl container signal`, `files` and `exec`, `rmctl task exec`, on real daemons.

use headroom_types::{Bytes, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use integration::cluster::{Cluster, ProgramOutput, SOON};
use integration::jobs::JobFile;

fn typed(cluster: &Cluster, arguments: &[&str]) -> ProgramOutput {
    cluster.rmctl(arguments).expect("runs")
}

/// The users in a job file's access table can use the job from its start, with a managed and with
/// an unmanaged master.
#[test]
fn a_job_is_shared_with_the_users_of_its_file() {
    let cluster = Cluster::of_one().expect("a cluster");
    let job = JobFile::new("shared", 1, 1, Bytes::from_mib(64)).stage("once", 1, &["true"], "");
    let text = format!(
        "{}\n[access]\nview = [\"bob\"]\nchange = [\"@oncall\"]\n",
        job.text()
    );
    let place = cluster.dir().join("shared.toml");
    std::fs::write(&place, &text).expect("writes");
    let launched = cluster.submit(&text).expect("submits");
    let place = place.display().to_string();
    let beside = typed(&cluster, &["submit", &place, "--unmanaged"]);
    assert_eq!(beside.code, 0, "{}{}", beside.stdout, beside.stderr);
    for app in [launched.to_string(), "shared.2".to_owned()] {
        let shared = typed(&cluster, &["app", "share", &app, "-o", "json"]);
        let shared: serde_json::Value = serde_json::from_str(&shared.stdout).expect("JSON");
        assert_eq!(
            (&shared["view"][0], &shared["change"][0]),
            (&"bob".into(), &"@oncall".into()),
            "{app}: {shared}"
        );
    }
}

fn task_exec_returns_output_and_exit_code(cluster: &Cluster, task: &str) {
    let ran = typed(
        cluster,
        &[
            "task",
            "exec",
            task,
            "--",
            "sh",
            "-c",
            "echo here > seen; echo out; echo err >&2; exit 5",
        ],
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (5, "out\n", "err\n")
    );
}

fn failed_programs_have_their_own_exit_codes(cluster: &Cluster, container: &str) {
    let missing = typed(
        cluster,
        &["container", "exec", container, "--", "no-such-program"],
    );
    assert_eq!(missing.code, 127, "{}", missing.stderr);
    let late = typed(
        cluster,
        &[
            "container",
            "exec",
            container,
            "--timeout",
            "300ms",
            "--",
            "sleep",
            "60",
        ],
    );
    assert_eq!(
        (late.code, late.stderr.contains("was ended at its timeout")),
        (125, true),
        "{}",
        late.stderr
    );
}

fn files_are_listed_and_shown(cluster: &Cluster, container: &str) {
    let listed = typed(cluster, &["container", "files", "ls", container, "work"]);
    assert!(
        listed.stdout.contains("work/seen"),
        "{}{}",
        listed.stdout,
        listed.stderr
    );
    let shown = typed(
        cluster,
        &[
            "container",
            "files",
            "cat",
            container,
            "work/seen",
            "--from",
            "1",
            "--bytes",
            "3",
        ],
    );
    assert_eq!(
        (shown.code, shown.stdout.as_str()),
        (0, "ere"),
        "{}",
        shown.stderr
    );
}

/// A copy never replaces a file, and no path leads out of the container.
fn files_are_copied_once_and_only_from_below(cluster: &Cluster, container: &str) {
    let copy = cluster.dir().join("copy");
    let got = typed(
        cluster,
        &[
            "container",
            "files",
            "get",
            container,
            "work/seen",
            &copy.display().to_string(),
        ],
    );
    assert_eq!(
        (
            got.code,
            std::fs::read_to_string(&copy).expect("a copy").as_str()
        ),
        (0, "here\n"),
        "{}",
        got.stderr
    );
    let again = typed(
        cluster,
        &[
            "container",
            "files",
            "get",
            container,
            "work/seen",
            &copy.display().to_string(),
        ],
    );
    assert_eq!(
        (again.code, again.stderr.contains("--force")),
        (4, true),
        "{}",
        again.stderr
    );
    let upwards = typed(
        cluster,
        &["container", "files", "cat", container, "work/../order.json"],
    );
    assert_eq!(
        (upwards.code, upwards.stderr.contains("contains ..")),
        (2, true),
        "{}",
        upwards.stderr
    );
}

fn signals_are_sent_by_name(cluster: &Cluster, container: &str) {
    let sent = typed(
        cluster,
        &[
            "container",
            "signal",
            container,
            "CONT",
            "--all",
            "--reason",
            "to see",
        ],
    );
    assert_eq!(
        (sent.code, sent.stdout.contains("SIGCONT was sent to")),
        (0, true),
        "{}{}",
        sent.stdout,
        sent.stderr
    );
    let wrong = typed(cluster, &["container", "signal", container, "TREM"]);
    assert_eq!(
        (wrong.code, wrong.stderr.contains("TERM")),
        (2, true),
        "{}",
        wrong.stderr
    );
}

fn access_is_in_events_and_audit_log(cluster: &Cluster, container: &str) {
    let events = typed(
        cluster,
        &["events", "--for", container, "-o", "cols=reason,message"],
    )
    .stdout;
    assert!(
        events.contains("ContainerSignalled") && events.contains(": to see"),
        "{events}"
    );
    assert!(
        events.contains("ContainerExecStarted") && events.contains("touch go"),
        "{events}"
    );
    let audit = typed(cluster, &["audit", "list", "-o", "json"]).stdout;
    assert!(
        audit.contains("POST signal")
            && audit.contains("POST exec")
            && audit.contains("SIGCONT to all"),
        "{audit}"
    );
}

#[test]
fn a_container_is_accessed_without_effect_on_its_task() {
    let cluster = Cluster::of_one().expect("a cluster");
    let wait = [
        "sh",
        "-c",
        "until ls $HEADROOM_CONTAINER_DIR/*/go 2>&1; do sleep 0.1; done; exit 0",
    ];
    let job = JobFile::new("inside", 1, 1, Bytes::from_mib(64)).stage("wait", 1, &wait, "");
    let app = cluster.submit(job.text()).expect("submits");
    let runs = |view: &AppView| {
        view.job
            .as_ref()
            .filter(|job| job.totals.running == 1)
            .map(|_| ())
    };
    cluster
        .until_app(&app, "a task to run", SOON, runs)
        .expect("a running task");
    let task = format!("{app}/wait/0");

    task_exec_returns_output_and_exit_code(&cluster, &task);
    let attempts = typed(
        &cluster,
        &[
            "task",
            "attempts",
            &task,
            "-o",
            "cols=container",
            "--no-headers",
        ],
    );
    let container = attempts.stdout.trim().to_owned();
    failed_programs_have_their_own_exit_codes(&cluster, &container);
    files_are_listed_and_shown(&cluster, &container);
    files_are_copied_once_and_only_from_below(&cluster, &container);
    signals_are_sent_by_name(&cluster, &container);
    assert_eq!(
        typed(&cluster, &["task", "exec", &task, "--", "touch", "go"]).code,
        0
    );
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let attempts = end
        .job
        .iter()
        .flat_map(|job| &job.tasks)
        .flat_map(|row| &row.attempts);
    assert!(
        attempts
            .map(|attempt| attempt.reason)
            .eq([Some(ExitReason::Exit { code: 0 })])
    );

    let over = typed(&cluster, &["container", "signal", &container, "TERM"]);
    assert_eq!(
        (over.code, over.stderr.contains("HR0409")),
        (4, true),
        "{}",
        over.stderr
    );
    access_is_in_events_and_audit_log(&cluster, &container);
}
