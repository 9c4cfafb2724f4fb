//! The daemon on a full disk: it ends with a reason, and the next incarnation has all accepted
//! applications.
//!
//! Each test runs again in its own mount namespace, on a small tmpfs.

#![allow(missing_docs)] // tests are read, not imported

#[path = "../../server/tests/fakes/mod.rs"]
mod fakes;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fakes::*;
use headroom_client::Client;
use headroom_types::{AppId, StoreBackend};

/// Environment variable with the path of the small disk, for the inner test.
const DISK: &str = "HEADROOM_TEST_DISK";

#[test]
fn sled_refuses_calls_on_a_full_disk_without_loss() {
    on_a_small_disk(
        "sled_refuses_calls_on_a_full_disk_without_loss",
        StoreBackend::Sled,
    );
}

#[test]
fn redb_refuses_calls_on_a_full_disk_without_loss() {
    on_a_small_disk(
        "redb_refuses_calls_on_a_full_disk_without_loss",
        StoreBackend::Redb,
    );
}

#[allow(clippy::print_stdout)] // the runner counts skipped tests
fn on_a_small_disk(name: &str, store: StoreBackend) {
    if let Some(disk) = std::env::var_os(DISK) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        return runtime.block_on(fills_up(&PathBuf::from(disk), store));
    }
    let disk = tempfile::tempdir().expect("a directory");
    let inside = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs -o size=24m small \"$0\" && exec \"$@\"",
        ]);
        command
            .arg(disk.path())
            .args(program)
            .env(DISK, disk.path())
            .output()
            .expect("unshare, of util-linux, is installed")
    };
    let possible = inside(&["true"]);
    if !possible.status.success() {
        println!(
            "SKIPPED: this host allows no private mounts: {}",
            String::from_utf8_lossy(&possible.stderr).trim()
        );
        return;
    }
    let exe = std::env::current_exe().expect("this program");
    let again = inside(&[exe.to_str().expect("text"), "--exact", name, "--nocapture"]);
    let output = String::from_utf8_lossy(&again.stdout);
    assert!(
        again.status.success() && output.contains("1 passed"),
        "{output}\n{}",
        String::from_utf8_lossy(&again.stderr)
    );
}

fn daemon(state: &Path, port: u16, store: StoreBackend) -> Child {
    Command::new(env!("CARGO_BIN_EXE_resourcemanager"))
        .args([
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--store",
            store.as_str(),
            "--state",
        ])
        .arg(state)
        .env("HEADROOM_LOG", "warn")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

async fn fills_up(disk: &Path, store: StoreBackend) {
    let (state, port) = (disk.join("state"), free_port());
    let client = Client::new(&format!("http://127.0.0.1:{port}")).expect("address");
    let mut child = daemon(&state, port, store);
    until("the daemon to answer", || async {
        client.get_text("/readyz").await.ok()
    })
    .await;
    // Fills most of the disk.
    fs::write(disk.join("ballast"), vec![1; 17 << 20]).expect("fits");
    let mut accepted = BTreeSet::new();
    let mut big = unmanaged("job");
    big.user = Some("u".repeat(60));
    for n in 0.. {
        big.idempotency_key = Some(format!("{n:05}-{}", "k".repeat(50)));
        match client.submit(&big).await {
            Ok(submitted) => accepted.insert(submitted.app),
            Err(_) => break,
        };
        fs::write(disk.join(format!("more-{n}")), vec![1; 128 << 10]).ok();
    }
    let ended = until("the daemon to end", || {
        std::future::ready(child.try_wait().expect("the daemon is a child process"))
    })
    .await;
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut said)
        .expect("text");
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(
        said.contains("nothing more is accepted") && said.contains("is full"),
        "{said}"
    );
    assert!(
        said.contains(state.to_str().expect("text")) && said.contains("free some space"),
        "{said}"
    );
    for entry in fs::read_dir(disk).expect("reads") {
        let path = entry.expect("reads").path();
        if path.is_file() {
            fs::remove_file(path).expect("removes");
        }
    }
    let next = Daemon::start_with(&state, port, store).await;
    let known: BTreeSet<AppId> = next
        .client
        .apps()
        .await
        .expect("lists")
        .into_iter()
        .map(|a| a.id)
        .collect();
    assert!(
        !accepted.is_empty() && accepted.is_subset(&known),
        "accepted {}, known {}",
        accepted.len(),
        known.len()
    );
    next.client
        .submit(&unmanaged("after"))
        .await
        .expect("the daemon accepts calls again");
}
