//! `rmctl task kill`, `retry` and `set` on real daemons: each order takes effect, and only on its
//! task.

use headroom_types::{AppId, Bytes, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{TaskRow, TaskState};
use integration::cluster::{Cluster, ProgramOutput, SOON};
use integration::jobs::JobFile;

fn row<'a>(app: &'a AppView, id: &str) -> &'a TaskRow {
    app.job
        .iter()
        .flat_map(|job| &job.tasks)
        .find(|row| row.task.to_string() == id)
        .expect("a task")
}

fn ordered(cluster: &Cluster, arguments: &[&str]) -> ProgramOutput {
    cluster
        .rmctl(&[&["task"], arguments].concat())
        .expect("runs")
}

/// Sets a size, and gives orders that change nothing.
fn sizes_are_set_only_for_waiting_tasks(cluster: &Cluster, app: &AppId) {
    let set = ordered(
        cluster,
        &["set", &format!("{app}/nap/3"), "--memory", "60MiB"],
    );
    assert_eq!(
        (set.code, set.stdout.contains("will get 6")),
        (0, true),
        "{}{}",
        set.stdout,
        set.stderr
    );
    let runs = ordered(
        cluster,
        &["set", &format!("{app}/nap/1"), "--memory", "60MiB"],
    );
    assert_eq!(
        (runs.code, runs.stderr.contains("its size cannot change")),
        (4, true),
        "{}",
        runs.stderr
    );
    let unknown = ordered(cluster, &["kill", &format!("{app}/nap/9")]);
    assert_eq!(unknown.code, 3, "{}", unknown.stderr);
    let dry = ordered(cluster, &["kill", &format!("{app}/nap/1"), "--dry-run"]);
    assert!(
        dry.stderr.contains("would end") || dry.stdout.contains("would end"),
        "{}{}",
        dry.stdout,
        dry.stderr
    );
}

/// The rows of the ended job show each order and its reason.
fn orders_are_in_the_rows(end: &AppView) {
    for n in 0..4 {
        let row = row(end, &format!("nap/{n}"));
        assert_eq!(
            (row.state, row.note.as_str()),
            (
                TaskState::Failed,
                &*format!("nap/{n} cancelled on request: wrong day")
            )
        );
    }
    let first = &row(end, "nap/0").attempts;
    assert_eq!(
        (first.len(), first[0].reason),
        (2, Some(ExitReason::Stopped)),
        "{first:?}"
    );
    assert!(
        first[0].decision.contains("not charged"),
        "{}",
        first[0].decision
    );
    assert!(
        row(end, "nap/3").profile.memory() >= Bytes::from_mib(60),
        "{:?}",
        row(end, "nap/3").profile
    );
}

#[test]
fn tasks_are_cancelled_retried_and_resized() {
    let cluster = Cluster::of_one().expect("a cluster");
    let job =
        JobFile::new("orders", 1, 2, Bytes::from_mib(32)).stage("nap", 4, &["sleep", "600"], "");
    let app = cluster.submit(job.text()).expect("submits");
    let both = |view: &AppView| {
        view.job
            .as_ref()
            .filter(|job| job.totals.running == 2)
            .map(|_| ())
    };
    cluster
        .until_app(&app, "two tasks to run", SOON, both)
        .expect("running tasks");

    let retried = ordered(
        &cluster,
        &[
            "retry",
            &format!("{app}/nap/0"),
            "--reason",
            "stuck on a lock",
        ],
    );
    assert_eq!(retried.code, 0, "{}", retried.stderr);
    assert!(
        retried
            .stdout
            .contains("is tried again at 32 MiB, charged to no budget"),
        "{}",
        retried.stdout
    );

    sizes_are_set_only_for_waiting_tasks(&cluster, &app);
    for n in 0..4 {
        let killed = ordered(
            &cluster,
            &["kill", &format!("{app}/nap/{n}"), "--reason", "wrong day"],
        );
        assert_eq!(killed.code, 0, "{}{}", killed.stdout, killed.stderr);
    }
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Failed);
    orders_are_in_the_rows(&end);
    let late = ordered(&cluster, &["kill", &format!("{app}/nap/0")]);
    assert_eq!(
        (late.code, late.stderr.contains("was given up")),
        (4, true),
        "{}",
        late.stderr
    );
}
