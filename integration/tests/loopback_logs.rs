//! Output of jobs, as `rmctl run` and `rmctl logs` print it, with real daemons: all of it, unchanged,
//! and while the job runs.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, NodeShape, SOON};
use integration::programs;

fn cluster() -> Cluster {
    Cluster::start(&[NodeShape::default()]).expect("starts")
}

/// More than the agent sends in one response.
const NUMBERS: usize = 1_000_000;

fn numbers() -> String {
    (1..=NUMBERS).map(|n| format!("{n}\n")).collect()
}

#[test]
fn run_and_logs_print_the_whole_output() {
    let cluster = cluster();
    let (last, expected) = (NUMBERS.to_string(), numbers());
    let ran = cluster.rmctl(&["run", "--", "seq", &last]).expect("runs");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout == expected,
        "{} of {} bytes are printed",
        ran.stdout.len(),
        expected.len()
    );
    let job = &cluster.call(cluster.client().apps()).expect("lists")[0].id;
    for follow in [&[][..], &["--follow"]] {
        let id = job.to_string();
        let arguments = [&["logs", &id, "--no-prefix"][..], follow].concat();
        let logs = cluster.rmctl(&arguments).expect("prints");
        assert!(
            logs.stdout == expected,
            "{arguments:?}: {} of {} bytes are printed",
            logs.stdout.len(),
            expected.len()
        );
    }
}

#[test]
fn run_passes_on_bytes_that_are_no_text() {
    let cluster = cluster();
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let file = cluster.dir().join("bytes");
    fs::write(&file, &bytes).expect("writes");
    let output = Command::new(programs::path("rmctl").expect("the program"))
        .args(["run", "--", "cat"])
        .arg(&file)
        .env("HEADROOM_ADDR", cluster.url())
        .env(programs::DIR_VARIABLE, programs::dir().expect("programs"))
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == bytes, "{} bytes", output.stdout.len());
}

/// A job whose output has no reader any more is ended, as a local program is by SIGPIPE.
#[test]
fn run_ends_a_job_whose_output_is_lost() {
    let cluster = cluster();
    let run = |output: Stdio| {
        Command::new(programs::path("rmctl").expect("the program"))
            .args([
                "run",
                "--",
                "sh",
                "-c",
                "while echo line; do sleep 0.01; done",
            ])
            .env("HEADROOM_ADDR", cluster.url())
            .env(programs::DIR_VARIABLE, programs::dir().expect("programs"))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::piped())
            .output()
            .expect("runs")
    };
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    for (output, code) in [(writer.into(), 141), (full.expect("opens").into(), 125)] {
        let ran = run(output);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
    }
    for app in cluster.call(cluster.client().apps()).expect("lists") {
        assert!(
            matches!(app.state, AppState::Killed | AppState::Finishing),
            "{app:?}"
        );
    }
}

/// The second task waits for a file that the test creates when the output of the first one is printed.
#[test]
fn followed_logs_are_printed_while_the_job_runs() {
    let cluster = cluster();
    let gate = cluster.dir().join("gate");
    let script = format!(
        "case $HEADROOM_INDEX in 0) echo first;; *) while ! [ -e {} ]; do sleep 0.05; done; echo second;; esac",
        gate.display()
    );
    let job = format!(
        "version = 1\nname = \"two\"\n[profiles.exec]\nmemory = \"64MiB\"\ncpus = 1\n\
         [executors.main]\nprofile = \"exec\"\ncount = 1\nslots = 1\n\
         [[stage]]\nname = \"map\"\narray = \"0-1\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    );
    let app = cluster.submit(&job).expect("accepted");
    let mut logs = Command::new(programs::path("rmctl").expect("the program"))
        .args(["logs", "--follow", "--no-prefix"])
        .arg(app.to_string())
        .env("HEADROOM_ADDR", cluster.url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let output = BufReader::new(logs.stdout.take().expect("its output"));
    let mut lines = output.lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("first"));
    let view = cluster.app(&app).expect("is there");
    assert_eq!(view.state, AppState::Running, "the second task waits");
    fs::write(&gate, "").expect("writes");
    assert_eq!(lines.next().as_deref(), Some("second"));
    assert_eq!(lines.next(), None);
    assert!(logs.wait().expect("ends").success());
    cluster
        .until_app(&app, "the end", SOON, |app| {
            (app.state == AppState::Finished).then_some(())
        })
        .expect("finishes");
}
