//! The program: its start, its refusals to start, and its end.

#![allow(missing_docs)] // tests are read, not imported

#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fakes::*;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resourcemanager"));
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end, with a timeout.
async fn ran(mut command: Command) -> Output {
    soon(
        "the program to end",
        tokio::task::spawn_blocking(move || command.output().expect("runs")),
    )
    .await
    .expect("ends")
}

fn one_sentence(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("address").to_string();
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    let mut command = program();
    command.args(["--listen", &listen, "--state"]).arg(&state);
    one_sentence(&ran(command).await, &[&listen, "in use"]);
    assert!(!state.exists(), "the state was changed");
}

#[tokio::test]
async fn an_impossible_state_directory_is_reported() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0", "--state"])
        .arg(file.path().join("state"));
    one_sentence(
        &ran(command).await,
        &[file.path().to_str().expect("text"), "Not a directory"],
    );
}

#[tokio::test]
async fn a_damaged_state_is_reported_and_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    Daemon::start(dir.path(), free_port()).await.kill();
    let file = dir.path().join("store/db");
    fs::write(&file, "this is not a database").expect("writes");
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0", "--state"])
        .arg(dir.path());
    one_sentence(
        &ran(command).await,
        &[
            dir.path().to_str().expect("text"),
            "damaged",
            "nothing was changed",
        ],
    );
    assert_eq!(fs::read(&file).expect("reads"), b"this is not a database");
}

#[tokio::test]
async fn the_configuration_check_reports_all_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("rm.toml");
    let check = |text: &str| {
        fs::write(&file, text).expect("writes");
        let mut command = program();
        command.arg("--config").arg(&file).arg("--check-config");
        command
    };
    let output = ran(check("listen = \"nowhere\"\nsttae = \"/tmp\"\n")).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("nowhere") && text.contains("sttae") && text.contains("rm.toml:1"),
        "{text}"
    );
    let output = ran(check("listen = \"127.0.0.1:0\"\n")).await;
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[tokio::test]
async fn sigterm_writes_a_snapshot_and_ends_with_exit_code_0() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let mut child = program()
        .args(["--listen", &format!("127.0.0.1:{port}"), "--state"])
        .arg(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let client =
        headroom_client::Client::new(&format!("http://127.0.0.1:{port}")).expect("address");
    until("the daemon to answer", || async {
        client.get_text("/readyz").await.ok()
    })
    .await;
    let app = client.submit(&unmanaged("job")).await.expect("submits").app;
    let mut following = client.events(0).await.expect("listens");
    assert!(soon("an event", following.next()).await.is_some());
    let kill = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .expect("kill runs");
    assert!(kill.success());
    let ended =
        tokio::task::spawn_blocking(move || (child.wait().expect("ends"), child.stderr.take()));
    let (status, _) = soon("the end", ended).await.expect("ends");
    assert_eq!(status.code(), Some(0));
    let snapshots = fs::read_dir(dir.path()).expect("lists").filter(|f| {
        let name = f.as_ref().expect("reads").file_name();
        name.to_string_lossy().starts_with("snapshot-")
    });
    assert_eq!(snapshots.count(), 2);
    // The snapshot is sufficient for a start.
    fs::remove_dir_all(dir.path().join("store")).expect("removes");
    let daemon = Daemon::start(dir.path(), port).await;
    assert_eq!(daemon.client.apps().await.expect("lists")[0].id, app);
}

#[tokio::test]
async fn a_second_daemon_on_the_same_state_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let _first = Daemon::start(dir.path(), free_port()).await;
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0", "--state"])
        .arg(dir.path());
    one_sentence(&ran(command).await, &["in use by another resource manager"]);
}

/// Incomplete headers do not delay other callers.
#[tokio::test]
async fn silent_clients_do_not_block_other_callers() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let daemon = Daemon::start(dir.path(), port).await;
    let silent: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
            stream
                .write_all(b"POST /v1/apps HTTP/1.1\r\nhost: x\r\n")
                .expect("writes");
            stream
        })
        .collect();
    let quick = tokio::time::timeout(Duration::from_secs(5), daemon.client.status())
        .await
        .expect("the daemon responds in time");
    assert_eq!(quick.expect("answers").nodes, 0);
    drop(silent);
}

/// The disk is full during a commit: the daemon ends with a reason, and all accepted applications
/// exist after the next start.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_daemon_without_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    // No file may exceed 2 MiB. The signal of the limit is ignored, so that the write fails.
    let child = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_resourcemanager"),
        ])
        .args(["--listen", &format!("127.0.0.1:{port}"), "--state"])
        .arg(dir.path())
        .env("HEADROOM_LOG", "error")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let client =
        headroom_client::Client::new(&format!("http://127.0.0.1:{port}")).expect("address");
    until("the daemon to answer", || async {
        client.get_text("/readyz").await.ok()
    })
    .await;
    let mut app = managed("job", mib(64), 1);
    if let headroom_wire::v1::apps::ApplicationMaster::Managed { launch, .. } = &mut app.master {
        launch.files.insert("big".into(), "x".repeat(200 << 10));
    }
    let mut accepted = Vec::new();
    while let Ok(submitted) = client.submit(&app).await {
        accepted.push(submitted.app);
        assert!(accepted.len() < 1000, "the size limit was never reached");
    }
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().expect("ends"));
    let output = soon("the end", ended).await.expect("ends");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("could not be saved") && !text.contains("panicked"),
        "{text}"
    );
    assert!(accepted.len() > 1, "{text}");
    let daemon = Daemon::start(dir.path(), port).await;
    let known: Vec<headroom_types::AppId> = daemon
        .client
        .apps()
        .await
        .expect("lists")
        .into_iter()
        .map(|a| a.id)
        .collect();
    assert!(
        accepted.iter().all(|app| known.contains(app)),
        "accepted {accepted:?}, known {known:?}"
    );
}
