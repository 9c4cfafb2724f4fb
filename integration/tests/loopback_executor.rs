//! Jobs with a third-party executor: the example in Python, on real daemons.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::Path;

use headroom_types::{Bytes, EnforcerKind, ExitCharge, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::TaskRow;
use integration::cluster::Cluster;
use integration::jobs::JobFile;

fn python() -> [&'static str; 2] {
    [
        "python3",
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../client/executor/examples/executor.py"
        ),
    ]
}

fn rows<'a>(app: &'a AppView, stage: &str) -> Vec<&'a TaskRow> {
    let tasks = &app.job.as_ref().expect("a job").tasks;
    tasks
        .iter()
        .filter(|t| t.task.stage.as_str() == stage)
        .collect()
}

fn reasons(row: &TaskRow) -> Vec<ExitReason> {
    row.attempts.iter().filter_map(|a| a.reason).collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Twelve tasks each sum a part; the sixth fails once with exit code 3. A last task adds the sums.
#[test]
fn twelve_tasks_compute_the_right_result() {
    let cluster = Cluster::of_one().expect("a cluster");
    let out = cluster.dir().join("sums");
    fs::create_dir(&out).expect("a directory");
    let (there, first) = (
        out.display(),
        "[ $HEADROOM_TASK@$HEADROOM_ATTEMPT = part/5@1 ] && exit 3",
    );
    let part = format!(
        "{first}; n=$HEADROOM_INDEX; s=0; for i in $(seq $((n*100+1)) $((n*100+100))); do s=$((s+i)); done; echo $s > {there}/$n"
    );
    let total =
        format!("s=0; for n in $(cat {there}/*); do s=$((s+n)); done; echo $s > {there}.total");
    let job = JobFile::new("python-sum", 2, 4, Bytes::from_mib(32)).executor(&python());
    let job = job.stage("part", 12, &["/bin/sh", "-c", &part], "").stage(
        "total",
        1,
        &["/bin/sh", "-c", &total],
        "after = [\"part\"]",
    );
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    assert_eq!(
        text(&cluster.dir().join("sums.total")),
        format!("{}\n", (1..=1200).sum::<u32>())
    );
    let well = ExitReason::Exit { code: 0 };
    for row in rows(&end, "part") {
        let wanted = if row.task.index == 5 {
            vec![ExitReason::Exit { code: 3 }, well]
        } else {
            vec![well]
        };
        assert_eq!(reasons(row), wanted, "{}", row.task);
    }
    let failed = rows(&end, "part")[5].attempts[0]
        .evidence
        .clone()
        .expect("evidence of the failure");
    assert_eq!(
        (failed.enforcer, failed.exit_code),
        (EnforcerKind::Poll, Some(3)),
        "the executor in Python has no cgroups"
    );
    assert_eq!(end.job.as_ref().expect("a job").totals.memory_kills, 0);
}

/// A task that needs its own container runs there with the same executor.
#[test]
fn the_python_executor_runs_an_escalated_task() {
    let cluster = Cluster::of_one().expect("a cluster");
    let hog = "import time; held = bytearray(100 << 20); held[::4096] = b'x' * (100 << 8); time.sleep(1.5)";
    let job = JobFile::new("python-hog", 1, 2, Bytes::from_mib(32)).executor(&python());
    let job = job.stage("small", 2, &["/bin/sleep", "0.2"], "").stage(
        "hog",
        1,
        &["python3", "-c", hog],
        "",
    );
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let hog = rows(&end, "hog")[0];
    let (last, killed) = hog.attempts.split_last().expect("attempts");
    assert!(
        !killed.is_empty()
            && killed
                .iter()
                .all(|a| a.reason.map(|r| r.charge()) == Some(ExitCharge::Memory)),
        "{:?}",
        reasons(hog)
    );
    assert_eq!(last.reason, Some(ExitReason::Exit { code: 0 }));
    assert!(
        last.profile.memory() >= Bytes::from_mib(100),
        "{}",
        last.profile
    );
    assert!(
        killed.iter().all(|a| a.container != last.container),
        "the task had its own container"
    );
    assert!(
        last.peak.is_some_and(|peak| peak >= Bytes::from_mib(100)),
        "{:?}",
        last.peak
    );
    assert!(
        rows(&end, "small")
            .iter()
            .all(|row| row.attempts.len() == 1),
        "its neighbours are not affected"
    );
}
