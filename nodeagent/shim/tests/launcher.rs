//! The launcher as the agent uses it: requests on a socket, and the replies of launcher and shims.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use headroom_container_shim::launcher_protocol::{
    LauncherPacket, MAX_PACKET_BYTES, READY, encode_fork_request,
};
use headroom_container_shim::record::{ExitRecord, ProcessIdentity, ProgramEnd, ProgramSpec};
use headroom_node_process::fd_passing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Number of containers that have one shim after the other, until one has an earlier shim.
const MOST: usize = 200;

struct Launcher {
    socket: OwnedFd,
    process: Child,
    dir: tempfile::TempDir,
    containers: usize,
}

/// A container whose program has ended.
struct Ended {
    shim: i32,
    pidfd: OwnedFd,
    dir: PathBuf,
}

impl Launcher {
    fn start() -> Launcher {
        let (socket, theirs) = fd_passing::pair().expect("a pair");
        let process = Command::new(env!("CARGO_BIN_EXE_container-shim"))
            .args(["--launcher", "test", &"-".repeat(160)])
            .stdin(Stdio::from(theirs))
            .spawn()
            .expect("the launcher starts");
        let (ready, _) = receive(&socket).expect("a packet");
        assert_eq!(ready, READY);
        Launcher {
            socket,
            process,
            dir: tempfile::tempdir().expect("a directory"),
            containers: 0,
        }
    }

    /// Runs a container to the end of its program.
    fn run(&mut self, script: &str) -> Ended {
        self.containers += 1;
        let dir = self.dir.path().join(format!("c{}", self.containers));
        std::fs::create_dir(&dir).expect("creates");
        let spec = ProgramSpec {
            argv: ["/bin/sh", "-c", script].map(OsString::from).into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: dir.clone(),
            stdout: dir.join("stdout"),
            stderr: dir.join("stderr"),
            ..ProgramSpec::default()
        };
        std::fs::write(dir.join("spec"), spec.encode()).expect("writes");
        let words = File::create(dir.join("shim.err")).expect("creates");
        let (conversation, theirs) = fd_passing::pair().expect("a pair");
        let files = [theirs.as_fd(), words.as_fd()];
        fd_passing::send(&self.socket, &encode_fork_request(&dir), &files).expect("sends");
        drop(theirs);
        let mut pidfd = None;
        while let Some((packet, files)) = receive(&conversation).filter(|(p, _)| !p.is_empty()) {
            match LauncherPacket::decode(&packet).expect("a packet") {
                LauncherPacket::Forked => pidfd = files.into_iter().next(),
                LauncherPacket::Answer(_) => {}
                LauncherPacket::Refused { errno } => panic!("{errno}"),
            }
        }
        let identity = std::fs::read_to_string(dir.join("shim.pid")).expect("an identity");
        let shim = ProcessIdentity::decode(&identity).expect("whole").pid;
        let record = std::fs::read(dir.join("exit")).expect("a record");
        let record = ExitRecord::decode(&record).expect("whole");
        assert_eq!(record.how, ProgramEnd::Code(0), "{script}");
        Ended {
            shim,
            pidfd: pidfd.expect("a pidfd"),
            dir,
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The next packet with its files; an empty one at the end. `None` if nothing comes for a minute.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut room = vec![0; MAX_PACKET_BYTES];
    loop {
        match fd_passing::receive(socket, &mut room) {
            Ok((length, files)) => {
                room.truncate(length);
                return Some((room, files));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                is_readable_within_a_minute(socket).then_some(())?;
            }
            Err(_) => return None,
        }
    }
}

fn is_readable_within_a_minute(file: &OwnedFd) -> bool {
    let minute = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&minute)).expect("waits") > 0
}

#[test]
fn a_shim_serves_one_container_after_the_other() {
    let mut launcher = Launcher::start();
    let mut shims = BTreeSet::new();
    let again = (0..MOST).any(|n| {
        let ended = launcher.run(&format!("echo {n}"));
        let output = std::fs::read_to_string(ended.dir.join("stdout")).expect("reads");
        assert_eq!(output, format!("{n}\n"));
        !shims.insert(ended.shim)
    });
    assert!(again, "{MOST} containers had a shim each");
}

#[test]
fn a_shim_with_processes_of_its_container_serves_no_other() {
    let mut launcher = Launcher::start();
    // Without a cgroup that is killed, the process stays, and becomes a child of the shim.
    let ended = launcher.run("sleep 300 >/dev/null 2>&1 & echo $! > left");
    while !is_ended(&ended.pidfd) {
        let other = launcher.run("true");
        assert_ne!(other.shim, ended.shim);
    }
    let left = std::fs::read_to_string(ended.dir.join("left")).expect("reads");
    let left = rustix::process::Pid::from_raw(left.trim().parse().expect("a pid"));
    rustix::process::kill_process(left.expect("a pid"), rustix::process::Signal::KILL)
        .expect("the process has outlived its shim");
}

fn is_ended(pidfd: &OwnedFd) -> bool {
    let now = Timespec::default();
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)).expect("looks") > 0
}

#[test]
fn a_killed_shim_is_not_used() {
    let mut launcher = Launcher::start();
    let mut killed = BTreeSet::new();
    for _ in 0..10 {
        let ended = launcher.run("true");
        assert!(
            !killed.contains(&ended.shim),
            "a pid is not used again so soon"
        );
        // Before or after its offer.
        rustix::process::pidfd_send_signal(&ended.pidfd, rustix::process::Signal::KILL).ok();
        assert!(is_readable_within_a_minute(&ended.pidfd), "it ends");
        killed.insert(ended.shim);
    }
}

#[test]
fn shims_end_with_their_launcher() {
    let mut launcher = Launcher::start();
    let ended: Vec<_> = (0..3).map(|_| launcher.run("true")).collect();
    drop(launcher);
    for ended in ended {
        assert!(is_readable_within_a_minute(&ended.pidfd), "it ends");
    }
}
