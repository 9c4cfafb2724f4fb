//! `rmctl operator state` as a process: output, exit codes, and files on disk.

#![allow(missing_docs)] // tests are read, not imported

use std::path::Path;
use std::process::{Command, Output};

use headroom_rm_core::DurableRecord;
use headroom_rm_store::open;
use headroom_types::StoreBackend;
use serde_json::Value;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn state(verb: &str, dir: &Path, more: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmctl"));
    command
        .args(["operator", "state", verb, "--state"])
        .arg(dir)
        .args(more)
        .env_remove("HEADROOM_OUTPUT");
    run(command)
}

fn doctor(state: &Path, format: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmctl"));
    command
        .args([
            "doctor",
            "-o",
            format,
            "--addr",
            "http://127.0.0.1:1",
            "--state",
        ])
        .arg(state)
        .env_remove("HEADROOM_OUTPUT");
    run(command)
}

fn run(mut command: Command) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("runs");
    let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
    Ran {
        code: status.code().expect("an exit code"),
        out: text(stdout),
        err: text(stderr),
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err))
}

fn filled(dir: &Path) {
    let mut opened = open(dir, StoreBackend::Sled).expect("opens");
    for n in 0..5 {
        opened
            .journal
            .append(&DurableRecord::Node(format!("n{n}").parse().expect("id")))
            .expect("appends");
    }
    opened.commit().expect("commits");
}

#[test]
fn check_backup_restore_and_the_other_store() {
    let place = tempfile::tempdir().expect("a directory");
    let (dir, file) = (place.path().join("state"), place.path().join("backup"));
    let file_text = file.to_str().expect("text");
    filled(&dir);
    let seen = state("check", &dir, &["-o", "json"]);
    assert_eq!((seen.code, seen.err.as_str()), (0, ""));
    let report = json(&seen);
    assert_eq!(
        (
            report["backend"].as_str(),
            report["records"]["nodes"].as_u64()
        ),
        (Some("sled"), Some(5))
    );
    assert_eq!(
        (report["commit"].as_u64(), report["epoch"].as_u64()),
        (Some(3), Some(1))
    );
    let kept = state("backup", &dir, &["--to", file_text, "-o", "json"]);
    assert_eq!((kept.code, json(&kept)["records"].as_u64()), (0, Some(6)));
    let again = state("backup", &dir, &["--to", file_text]);
    assert_eq!(again.code, 4, "{}", again.err);
    let refused = state("restore", &dir, &["--from", file_text]);
    assert!(
        refused.code == 4 && refused.err.contains("--replace"),
        "{}",
        refused.err
    );
    let moved = state(
        "restore",
        &dir,
        &[
            "--from",
            file_text,
            "--store",
            "redb",
            "--replace",
            "-o",
            "json",
        ],
    );
    assert_eq!(moved.code, 0, "{}", moved.err);
    assert!(
        json(&moved)["aside"]
            .as_str()
            .is_some_and(|aside| Path::new(aside).join("store").is_dir())
    );
    let restored = open(&dir, StoreBackend::Redb).expect("opens").restored;
    assert_eq!(
        (restored.nodes.len(), restored.epoch.0),
        (5, 1002),
        "the next epoch is above all earlier epochs"
    );
}

#[test]
fn locked_missing_and_damaged_states_have_their_own_codes() {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("state");
    assert_eq!(state("check", &dir, &[]).code, 3);
    assert!(!dir.exists(), "a check creates no file");
    filled(&dir);
    let held = open(&dir, StoreBackend::Sled).expect("opens");
    for (verb, more) in [
        ("check", vec![]),
        ("backup", vec!["--to", "/nonexistent/file"]),
    ] {
        let refused = state(verb, &dir, &more);
        assert!(
            refused.code == 4
                && refused
                    .err
                    .contains(&format!("process {}", std::process::id())),
            "{}",
            refused.err
        );
    }
    drop(held);
    std::fs::write(dir.join("store/db"), b"not a database").expect("writes");
    let damaged = state("check", &dir, &[]);
    assert!(
        damaged.code == 1 && damaged.out.contains("✗") && damaged.err.is_empty(),
        "{}{}",
        damaged.out,
        damaged.err
    );
    assert_eq!(
        state(
            "restore",
            &dir,
            &["--from", "/nonexistent/file", "--replace"]
        )
        .code,
        1
    );
    assert_eq!(
        state("restore", &dir, &["--from", "x", "--store", "mysql"]).code,
        2
    );
}

#[test]
fn the_doctor_checks_this_host_without_a_daemon() {
    let place = tempfile::tempdir().expect("a directory");
    let state = place.path().join("not-there-yet");
    let seen = doctor(&state, "json");
    let findings = json(&seen).as_array().expect("a list").clone();
    let named = |code: &str| {
        findings
            .iter()
            .find(|f| f["code"] == code)
            .unwrap_or_else(|| panic!("{code} in {findings:?}"))
            .clone()
    };
    assert_eq!(
        (
            named("pidfd")["state"].as_str(),
            named("memory")["fix"].is_null()
        ),
        (Some("ok"), true)
    );
    let open_files = named("open_files")["found"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(
        open_files == "no limit" || open_files.parse::<u64>().is_ok_and(|n| n > 0),
        "{open_files}"
    );
    let has = |state: &str| findings.iter().any(|f| f["state"] == state);
    let code = if has("fail") {
        1
    } else if has("warn") {
        10
    } else {
        0
    };
    assert_eq!(
        (seen.code, seen.err.as_str()),
        (code, ""),
        "the worst finding is the exit code"
    );
    assert!(!state.exists(), "a check creates no file");
    let table = doctor(&state, "table");
    assert!(
        findings
            .iter()
            .all(|f| table.out.contains(f["code"].as_str().expect("text"))),
        "{}",
        table.out
    );
    // Not even root can write there.
    let ill = doctor(Path::new("/proc/headroom"), "jsonl");
    assert!(
        ill.code == 1 && ill.out.contains(r#""code":"disk","state":"fail""#),
        "{}",
        ill.out
    );
}
