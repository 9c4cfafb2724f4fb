//! The connection to the master: lost, reconnected, moved to another address, lost forever.

mod world;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headroom_node_exec::ProcessEnd;
use headroom_types::ExitReason;
use headroom_wire::v1::task::ToExecutor;
use world::{ExecutorHarness, HarnessSetup, Master, task, until};

#[test]
fn a_result_is_repeated_until_acknowledged() {
    let world = ExecutorHarness::new("repeat");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sh", "-c", "exit 4"]));
    let first = master.unacked_result("a/0@1");
    drop(master);
    let (master, hello) = world.accept();
    assert_eq!(hello.unacked, std::slice::from_ref(&first));
    drop(master);
    let (mut master, hello) = world.accept();
    assert_eq!(hello.unacked, std::slice::from_ref(&first));
    master.ack(&first.attempt);
    master.start(task("b/0@1", &["true"])); // answered after the acknowledgement is handled
    master.result("b/0@1");
    master.start(task("c/0@1", &["true"]));
    master.result("c/0@1");
    drop(master);
    let (_master, hello) = world.accept();
    assert!(
        hello.unacked.iter().all(|r| r.attempt != first.attempt),
        "{:?}",
        hello.unacked
    );
}

#[test]
fn tasks_continue_without_a_master() {
    let world = ExecutorHarness::new("gone");
    let (mut master, _) = world.accept();
    master.start(task("short/0@1", &["true"]));
    master.start(task("long/0@1", &["sh", "-c", "sleep 2; exit 9"]));
    master.started("long/0@1");
    master.unacked_result("short/0@1");
    drop(master);
    let (mut master, hello) = world.accept();
    assert_eq!(
        hello
            .running
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["long/0@1"]
    );
    assert_eq!(hello.unacked.len(), 1);
    assert_eq!(
        master.result("long/0@1").reason,
        ExitReason::Exit { code: 9 }
    );
}

#[test]
fn an_invalid_or_too_long_line_is_ignored() {
    let world = ExecutorHarness::new("noise");
    let (mut master, _) = world.accept();
    master.raw(b"{\"kind\":\"of-the-future\"}\nnot json at all\n\n");
    master.start(task("a/0@1", &["true"]));
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
    master.raw_lossy(&vec![b'x'; 3 << 20]);
    drop(master);
    let (mut master, _) = world.accept();
    master.start(task("b/0@1", &["true"]));
    assert_eq!(master.result("b/0@1").reason, ExitReason::Exit { code: 0 });
}

#[test]
fn a_master_of_other_versions_ends_the_executor() {
    let mut world = ExecutorHarness::new("versions");
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sleep", "1000"]));
    master.started("a/0@1");
    master.send(&ToExecutor::Refused {
        why: "it speaks version 1, this master 2 to 3".into(),
        oldest: 2,
        newest: 3,
    });
    assert_eq!(world.ended(), ProcessEnd::Code(3));
    assert!(world.groups().is_empty(), "{:?}", world.groups());
}

#[test]
fn another_refusal_is_retried() {
    let args = vec!["--give-up-after-s".into(), "30".into()];
    let world = ExecutorHarness::with(
        "refusing",
        &HarnessSetup {
            args,
            ..HarnessSetup::default()
        },
    );
    for _ in 0..2 {
        let (mut master, _) = world.accept();
        master.send(&ToExecutor::Refused {
            why: "its first line is not right".into(),
            oldest: 1,
            newest: 1,
        });
    }
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["true"]));
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
}

/// A fake resource manager that reports the address of the master of `job.1`, or the end of the
/// application.
fn resource_manager(master_url: String, ended: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let n = stream.read(&mut request).unwrap_or(0);
            let text = String::from_utf8_lossy(&request[..n]);
            assert!(
                text.starts_with("GET /v1/apps/job.1/master?wait="),
                "{text}"
            );
            let state = if ended.load(Ordering::SeqCst) {
                "finished"
            } else {
                "running"
            };
            let body = serde_json::json!({ "state": state, "master_url": master_url }).to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

#[test]
fn a_restarted_master_is_found_at_its_new_address() {
    let second = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ended = Arc::new(AtomicBool::new(false));
    let rm = resource_manager(
        format!("tcp://{}", second.local_addr().expect("an address")),
        ended.clone(),
    );
    let mut world = ExecutorHarness::with(
        "moved",
        &HarnessSetup {
            rm: Some(rm),
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sh", "-c", "exit 5"]));
    let result = master.unacked_result("a/0@1");
    drop(master);
    let (mut master, hello) = Master::accept(&second);
    assert_eq!(hello.unacked, [result]);
    master.start(task("b/0@1", &["sleep", "1000"]));
    master.started("b/0@1");
    ended.store(true, Ordering::SeqCst);
    drop(master);
    assert_eq!(
        world.ended(),
        ProcessEnd::Code(0),
        "the application has ended, so no master needs the results"
    );
    assert!(world.groups().is_empty(), "{:?}", world.groups());
}

#[test]
fn an_executor_without_an_address_gets_that_of_the_first_master() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let rm = resource_manager(
        format!("tcp://{}", listener.local_addr().expect("an address")),
        Arc::default(),
    );
    let world = ExecutorHarness::with(
        "first",
        &HarnessSetup {
            rm: Some(rm),
            knows_master: false,
            ..HarnessSetup::default()
        },
    );
    let (mut master, hello) = Master::accept(&listener);
    assert_eq!((hello.running.len(), hello.unacked.len()), (0, 0));
    master.start(task("a/0@1", &["true"]));
    let silent = master.result("a/0@1");
    master.start(task("b/0@1", &["sh", "-c", "echo 1 >&2"]));
    let loud = master.result("b/0@1");
    assert_eq!((silent.silent, loud.silent), (true, false));
    drop(world);
}

#[test]
fn an_executor_whose_master_never_comes_ends_with_the_application() {
    let ended = Arc::new(AtomicBool::new(true));
    let mut world = ExecutorHarness::with(
        "first-over",
        &HarnessSetup {
            rm: Some(resource_manager(String::new(), ended)),
            knows_master: false,
            ..HarnessSetup::default()
        },
    );
    assert_eq!(world.ended(), ProcessEnd::Code(0));
}

#[test]
fn a_silent_master_is_left_for_the_one_that_the_resource_manager_names() {
    let second = TcpListener::bind("127.0.0.1:0").expect("a port");
    let rm = resource_manager(
        format!("tcp://{}", second.local_addr().expect("an address")),
        Arc::default(),
    );
    let world = ExecutorHarness::with(
        "silent",
        &HarnessSetup {
            rm: Some(rm),
            ..HarnessSetup::default()
        },
    );
    // As a paused process: its kernel accepts the connection, and nothing follows.
    let (_paused, _) = world.accept();
    let (mut master, _) = Master::accept(&second);
    master.start(task("a/0@1", &["true"]));
    assert_eq!(master.result("a/0@1").reason, ExitReason::Exit { code: 0 });
}

#[test]
fn without_a_master_the_executor_stops_its_tasks_and_ends() {
    let args = vec!["--give-up-after-s".into(), "1".into()];
    let mut world = ExecutorHarness::with(
        "lonely",
        &HarnessSetup {
            args,
            ..HarnessSetup::default()
        },
    );
    let (mut master, _) = world.accept();
    master.start(task("a/0@1", &["sleep", "1000"]));
    master.started("a/0@1");
    master.send(&ToExecutor::Alive);
    drop(master);
    world.close_listener();
    assert_eq!(world.ended(), ProcessEnd::Code(1));
    until("the tasks have ended", || world.groups().is_empty());
}

#[test]
fn a_master_that_always_disconnects_counts_as_absent() {
    let args = vec!["--give-up-after-s".into(), "2".into()];
    let mut world = ExecutorHarness::with(
        "rejecting",
        &HarnessSetup {
            args,
            ..HarnessSetup::default()
        },
    );
    let (master, _) = world.accept();
    drop(master);
    world.hang_up_on_everybody();
    assert_eq!(world.ended(), ProcessEnd::Code(1));
}

#[test]
fn each_missing_or_invalid_variable_is_reported_in_one_line() {
    let run = |vars: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_executor"));
        let output = command
            .env_clear()
            .envs(vars.iter().copied())
            .output()
            .expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, output) = run(&[("HEADROOM_SLOTS", "many")]);
    assert_eq!(code, Some(2), "{output}");
    assert!(
        output.contains("HEADROOM_SLOTS: \"many\" is not a number from 1 to 1024"),
        "{output}"
    );
    assert!(
        output.contains("HEADROOM_MASTER_URL: not set; expected an address such as"),
        "{output}"
    );
    let vars = [
        ("HEADROOM_MASTER_URL", "tcp://127.0.0.1:1"),
        ("HEADROOM_APP_TOKEN", "t"),
        ("HEADROOM_SLOTS", "1"),
        ("HEADROOM_APP", "job.1"),
        ("HEADROOM_CONTAINER", "job.1.e1.c1"),
        ("HEADROOM_CONTAINER_DIR", "/tmp"),
        ("HEADROOM_ENFORCER", "cgroup2"),
        ("HEADROOM_CGROUP", "/no/such/cgroup"),
    ];
    let (code, output) = run(&vars);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("/no/such/cgroup"), "{output}");
}
