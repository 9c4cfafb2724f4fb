//! Users' mistakes and the responses to them: one clear sentence, the right exit code, and no
//! damage.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use headroom_types::Bytes;
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, ProgramOutput, ran, rmctl};
use integration::jobs::JobFile;
use integration::programs;

fn contains_all(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
}

/// Runs a daemon that should refuse to start.
fn daemon(program: &str, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(programs::path(program).expect("built"));
    command.args(arguments).env("HEADROOM_LOG", "error");
    ran(command).expect("runs")
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn all_mistakes_of_a_job_file_are_reported_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("bad.toml");
    let text = "version = 1\nname = \"a b\"\nmode = \"bold\"\n[profiles.p]\nheap = \"lots\"\noverheads = \"1MiB\"\ncpus = 1\n\
                [executors.main]\nprofile = \"q\"\nslots = 0\n[[stage]]\nname = \"s\"\ncommand = []\nafter = [\"t\"]\n";
    fs::write(&file, text).expect("writes");
    let output = rmctl("http://127.0.0.1:9", &["submit", path_text(&file)]).expect("runs");
    assert_eq!(output.code, 2, "{}{}", output.stdout, output.stderr);
    contains_all(
        &output.stderr,
        &[
            "bad.toml:2",
            "bold",
            "lots",
            "overheads",
            "slots",
            "command",
            "\"t\"",
        ],
    );
    assert!(
        output.stdout.is_empty(),
        "mistakes go to standard error: {}",
        output.stdout
    );
}

#[test]
fn unreadable_files_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let (missing, binary) = (
        dir.path().join("missing.toml"),
        dir.path().join("binary.toml"),
    );
    fs::write(&binary, [0xff, 0xfe, 0x00]).expect("writes");
    for file in [missing.as_path(), dir.path(), binary.as_path()] {
        let output = rmctl("http://127.0.0.1:9", &["submit", path_text(file)]).expect("runs");
        assert!(
            [2, 3].contains(&output.code),
            "{}: {} {}",
            file.display(),
            output.code,
            output.stderr
        );
        contains_all(&output.stderr, &[path_text(file)]);
    }
}

#[test]
fn an_unreachable_resource_manager_is_named() {
    let port = integration::cluster::free_port().expect("a port");
    let url = format!("http://127.0.0.1:{port}");
    let output = rmctl(&url, &["status"]).expect("runs");
    assert_eq!(output.code, 6, "{}", output.stderr);
    contains_all(&output.stderr, &[&url]);
}

#[test]
fn a_port_in_use_is_reported_without_a_panic() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("address").to_string();
    let state = tempfile::tempdir().expect("a directory");
    for (program, more) in [
        ("resourcemanager", vec![]),
        (
            "nodeagent",
            vec!["--name", "n", "--rm", "http://127.0.0.1:9"],
        ),
    ] {
        let mut arguments = vec!["--listen", &listen, "--state", path_text(state.path())];
        arguments.extend(more);
        let output = daemon(program, &arguments);
        assert_eq!(output.code, 1, "{program}: {}", output.stderr);
        contains_all(&output.stderr, &[&listen]);
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}

fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("reads").flatten() {
        if entry.path().is_dir() {
            found.extend(contents(&entry.path()));
        } else {
            found.insert(entry.path(), fs::read(entry.path()).expect("reads"));
        }
    }
    found
}

#[test]
fn a_corrupt_store_is_not_changed() {
    let mut cluster = Cluster::of_one().expect("a cluster");
    let job = JobFile::new("kept", 1, 1, Bytes::from_mib(32)).stage("s", 1, &["/bin/true"], "");
    let app = cluster.submit(job.text()).expect("submits");
    cluster.until_ended(&app).expect("ends");
    cluster.kill_daemon("resourcemanager").expect("kills");
    let state = cluster.state("resourcemanager");
    for file in contents(&state).into_keys() {
        fs::write(&file, b"too short to be valid contents").expect("destroys");
    }
    let before = contents(&state);
    let output = daemon(
        "resourcemanager",
        &["--listen", "127.0.0.1:0", "--state", path_text(&state)],
    );
    assert_eq!(output.code, 1, "{}", output.stderr);
    contains_all(&output.stderr, &[path_text(&state)]);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    let after = contents(&state);
    for (path, bytes) in &before {
        assert!(
            after.get(path) == Some(bytes),
            "{} was changed",
            path.display()
        );
    }
}

#[test]
fn a_configuration_with_mistakes_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("daemon.toml");
    fs::write(&file, "listen = \"nowhere\"\nsttae = \"/tmp\"\n").expect("writes");
    for program in ["resourcemanager", "nodeagent"] {
        let output = daemon(program, &["--config", path_text(&file), "--check-config"]);
        assert_eq!(output.code, 2, "{program}: {}", output.stderr);
        contains_all(&output.stderr, &["daemon.toml", "listen", "sttae"]);
    }
}

#[test]
fn an_infeasible_job_is_refused_with_the_largest_node() {
    let cluster = Cluster::of_one().expect("a cluster");
    let file = cluster.dir().join("huge.toml");
    let job = JobFile::new("huge", 1, 1, Bytes::from_gib(900)).stage("s", 1, &["/bin/true"], "");
    fs::write(&file, job.text()).expect("writes");
    let output = cluster.rmctl(&["submit", path_text(&file)]).expect("runs");
    assert_eq!(output.code, 7, "{}{}", output.stdout, output.stderr);
    contains_all(&output.stderr, &["node-1", "huge"]);
    assert!(
        cluster
            .call(cluster.client().apps())
            .expect("answers")
            .is_empty(),
        "nothing was submitted"
    );
}

#[test]
fn a_missing_program_is_named_in_the_diagnosis() {
    let cluster = Cluster::of_one().expect("a cluster");
    let job =
        JobFile::new("missing", 1, 1, Bytes::from_mib(32)).stage("s", 1, &["/no/such/program"], "");
    let app = cluster.submit(job.text()).expect("submits");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Failed);
    let output = cluster
        .rmctl(&["diagnose", &format!("{app}/s/0")])
        .expect("runs");
    contains_all(&(output.stdout + &output.stderr), &["/no/such/program"]);
}

#[test]
fn unknown_jobs_are_not_found() {
    let cluster = Cluster::of_one().expect("a cluster");
    for arguments in [
        ["ps", "nothing.9"],
        ["kill", "nothing.9"],
        ["diagnose", "nothing.9"],
        ["logs", "nothing.9"],
    ] {
        let output = cluster.rmctl(&arguments).expect("runs");
        assert_eq!(output.code, 3, "{arguments:?}: {}", output.stderr);
        contains_all(&output.stderr, &["nothing.9"]);
    }
}
