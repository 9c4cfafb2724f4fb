//! Processes of other processes that become children of this one. The file is a program of its own,
//! because it adopts all orphans of its process.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use headroom_node_exec::adoption::{adopt, become_subreaper, ended_child, reap_child};
use headroom_node_exec::{ExecArguments, ProcessEnd, SpawnCommand, spawn};

/// Runs a script that prints the pid of a background process. Returns the pid.
fn pid_of(script: &str) -> i32 {
    let (reader, writer) = io::pipe().expect("a pipe");
    let writer = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
    let arguments = ExecArguments::new(["/bin/sh", "-c", script], &[]).expect("no NUL");
    let child = spawn(&SpawnCommand {
        stdout: Some(&writer),
        ..SpawnCommand::new(&arguments, Path::new("/"))
    })
    .expect("starts");
    drop(writer);
    assert_eq!(child.wait().expect("waits"), ProcessEnd::Code(0));
    let text = io::read_to_string(reader).expect("reads");
    text.trim().parse().expect("a pid")
}

#[test]
fn an_orphan_is_adopted_and_reaped() {
    become_subreaper().expect("becomes");
    let pid = pid_of("sleep 600 > /dev/null & echo $!");
    let child = adopt(pid).expect("adopts");
    assert_eq!(child.pid, pid);
    assert_eq!(child.try_wait().expect("runs"), None);
    child.signal(15).expect("signals");
    assert_eq!(child.wait().expect("waits"), ProcessEnd::Signal(15));
    let error = adopt(pid).expect_err("it is gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let error = adopt(1).expect_err("no child of this process");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);

    // A process that ends before the shell could be reaped by the shell.
    let pid = pid_of("sleep 600 > /dev/null & echo $!");
    adopt(pid).expect("adopts").signal(15).expect("signals");
    let deadline = Instant::now() + Duration::from_secs(60);
    while ended_child().expect("waits") != Some(pid) {
        assert!(Instant::now() < deadline, "the process does not end");
        std::thread::yield_now();
    }
    assert_eq!(ended_child().expect("waits"), Some(pid), "it is not reaped");
    assert!(reap_child(pid).expect("reaps"));
    assert_eq!(ended_child().expect("waits"), None);
    assert!(!reap_child(pid).expect("no child"));
}
