//! `container-shim --launcher`: runs as long as its agent, and forks the shim of each container.
//!
//! A fork of this small process costs a fraction of an exec and two moves between cgroups, which a
//! shim as a separate program needs. The launcher receives the packets of `launcher_protocol` on
//! its standard input and reaps shims; it decides nothing. After the agent is gone it completes the
//! pending requests and exits; the shims stay. It holds the agent's lock: a forked shim holds the
//! lock until its directory names it. The next agent waits for the lock and therefore finds every
//! shim.

use std::fs::File;
use std::io::{ErrorKind, stdin};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headroom_container_shim::launcher_protocol::{
    LauncherPacket, LauncherRequest, MAX_PACKET_BYTES, READY,
};
use headroom_node_process::fd_passing;

use crate::supervise::AgentConnection;
use crate::sys::ArgumentMemory;
use crate::{supervise, sys};

pub(crate) fn run() -> ExitCode {
    sys::ignore_termination();
    // No container gains capabilities by a program that it executes. A drop in each child would cost as
    // much as its mounts.
    sys::empty_bounding_set(&[]);
    let arguments = ArgumentMemory::own();
    let Ok(ended) = sys::ended_children() else {
        return ExitCode::FAILURE;
    };
    if fd_passing::send(stdin(), READY, &[]).is_err() {
        return ExitCode::FAILURE;
    }
    let mut lock = None;
    loop {
        if sys::await_packet(&ended) == sys::LauncherEvent::Ended {
            sys::reap_all(&ended);
            continue;
        }
        let mut room = [0; MAX_PACKET_BYTES];
        let (length, files) = match fd_passing::receive(stdin(), &mut room) {
            Ok(received) => received,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                continue;
            }
            Err(_) => return ExitCode::FAILURE,
        };
        if length == 0 {
            return ExitCode::SUCCESS;
        }
        let mut files = files.into_iter();
        match (
            LauncherRequest::decode(room.get(..length).unwrap_or_default()),
            files.next(),
            files.next(),
        ) {
            (Some(LauncherRequest::Lock), file, _) => lock = file.map(File::from),
            (Some(LauncherRequest::Run(dir)), Some(conversation), Some(words)) => {
                if let Some(forked) = fork_shim(dir, conversation, words.into(), &mut lock) {
                    drop(ended);
                    return forked.run_shim(arguments);
                }
            }
            // No reply: closing the socket ends the exchange.
            (Some(LauncherRequest::Run(_)), _, _) | (None, _, _) => {}
        }
    }
}

/// A forked shim, in its own process.
struct ForkedShim {
    dir: PathBuf,
    lock: Option<File>,
}

/// Forks a shim. Returns `None` in the launcher, which has sent the result.
fn fork_shim(
    dir: PathBuf,
    conversation: OwnedFd,
    words: File,
    lock: &mut Option<File>,
) -> Option<ForkedShim> {
    match sys::fork() {
        Ok(None) => {
            // Descriptor 0 was the launcher's socket. The shim must not keep it open, and no other
            // file may take its number. If a descriptor cannot be placed, the agent receives no
            // answer and treats this shim as silent.
            let conversation = File::from(conversation);
            let placed = [(&conversation, 0), (&conversation, 1), (&words, 2)]
                .into_iter()
                .try_for_each(|(f, at)| sys::place(f, at));
            let _ = placed.and_then(|()| sys::new_session());
            Some(ForkedShim {
                dir,
                lock: lock.take(),
            })
        }
        Ok(Some(pid)) => {
            // Only this process reaps the shim, and later: the pid is still valid.
            let pidfd = sys::pidfd(pid);
            // If the agent is gone or misses the packet, it reads the directory.
            if let Ok(pidfd) = pidfd {
                let packet = LauncherPacket::Forked.encode();
                let _ = fd_passing::send(&conversation, &packet, &[pidfd.as_fd()]);
            }
            None
        }
        Err(errno) => {
            let packet = LauncherPacket::Refused { errno }.encode();
            let _ = fd_passing::send(&conversation, &packet, &[]);
            None
        }
    }
}

impl ForkedShim {
    fn run_shim(self, arguments: Option<ArgumentMemory>) -> ExitCode {
        if let Some(arguments) = arguments {
            arguments.show(&self.dir);
        }
        supervise::run(Path::new(&self.dir), self.lock, AgentConnection::Socket)
    }
}
