//! Tests of the guest harness: the file systems of a guest, its results, and its failures.

#![allow(missing_docs)] // a test binary has no public API

use std::time::{Duration, Instant};

use headroom_types::Bytes;
use integration::guest::Guest;
use integration::guest_test;

#[test]
fn the_exit_code_and_both_streams_come_back() {
    let o = Guest::new()
        .run(&["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
        .expect("runs");
    assert_eq!(
        (o.code, o.stdout.as_str(), o.stderr.as_str()),
        (7, "out\n", "err\n")
    );
}

#[test]
fn a_signal_gives_the_exit_code_of_a_shell() {
    let o = Guest::new()
        .run(&["/bin/sh", "-c", "kill -9 $$"])
        .expect("runs");
    assert_eq!(o.code, 137);
}

#[test]
fn a_missing_program_is_named() {
    let o = Guest::new().run(&["/no/such/program"]).expect("runs");
    assert_eq!(o.code, 127);
    assert!(
        o.stderr.contains("/no/such/program could not be started"),
        "{}",
        o.stderr
    );
}

#[test]
fn a_hanging_guest_is_ended() {
    let started = Instant::now();
    let guest = Guest::new().timeout(Duration::from_secs(2));
    let error = guest
        .run(&["/bin/sleep", "1000"])
        .expect_err("does not end by itself");
    assert!(
        error.to_string().contains("did not end within 2 s"),
        "{error:#}"
    );
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn the_host_root_cannot_be_written() {
    let o = Guest::new()
        .run(&["/usr/bin/touch", "/etc/headroom-was-here"])
        .expect("runs");
    assert_ne!(o.code, 0);
    assert!(!std::path::Path::new("/etc/headroom-was-here").exists());
}

#[test]
fn a_directory_under_tmp_is_kept_on_demand() {
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    std::fs::write(dir.path().join("note"), "seen").expect("writes");
    let note = dir.path().join("note");
    let note = note.to_str().expect("UTF-8");
    assert_eq!(
        Guest::new()
            .keep(dir.path())
            .run(&["/bin/cat", note])
            .expect("runs")
            .stdout,
        "seen"
    );
    assert_ne!(
        Guest::new().run(&["/bin/cat", note]).expect("runs").code,
        0,
        "hidden without keep"
    );
}

guest_test!(
    a_test_runs_itself_again_in_a_guest,
    Guest::new().memory(Bytes::from_mib(256)),
    {
        let release = std::fs::read_to_string("/proc/version").expect("reads");
        assert!(
            release.contains("6.1"),
            "this is the guest's kernel: {release}"
        );
        let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")
            .expect("cgroup v2 at its usual place");
        assert!(
            controllers.split_whitespace().any(|c| c == "memory"),
            "{controllers}"
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is up");
        std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connects");
    }
);

guest_test!(
    systemd_is_process_one_in_a_guest,
    Guest::new()
        .memory(Bytes::from_mib(512))
        .systemd(Default::default(), Default::default()),
    {
        let name = std::fs::read_to_string("/proc/1/comm").expect("reads");
        assert_eq!(name, "systemd\n");
        let shown = std::process::Command::new("systemctl")
            .args(["is-active", "basic.target"])
            .output()
            .expect("systemctl runs");
        assert_eq!(String::from_utf8_lossy(&shown.stdout), "active\n");
    }
);
