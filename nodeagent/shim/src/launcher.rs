//! `container-shim --launcher`: runs as long as its agent, and gives each container a shim.
//!
//! A fork of this small process costs a fraction of an exec and two moves between cgroups, which a
//! shim as a separate program needs. A shim whose container has ended serves again without a fork
//! (see `spare`). The launcher receives the packets of `launcher_protocol` on its standard input and
//! reaps shims; it decides nothing. After the agent is gone it completes the pending requests and
//! exits; the shims of running containers stay. It holds the agent's lock, and so does each shim
//! until its directory names it. The next agent waits for the lock and therefore finds every shim.

use std::fs::File;
use std::io::{ErrorKind, stdin};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use headroom_container_shim::launcher_protocol::{
    LauncherPacket, LauncherRequest, MAX_PACKET_BYTES, READY,
};
use headroom_node_process::fd_passing;

use crate::spare::{AssignedContainer, LauncherLine, ShimOrder, SpareShims};
use crate::supervise::{AgentConnection, SupervisedEnd};
use crate::sys::ArgumentMemory;
use crate::{supervise, sys};

pub(crate) fn run() -> ExitCode {
    sys::ignore_termination();
    // No container gains capabilities by a program that it executes. A drop in each child would cost as
    // much as its mounts.
    sys::empty_bounding_set(&[]);
    let arguments = ArgumentMemory::own();
    let (Ok(ended), Ok(mut spares)) = (sys::ended_children(), SpareShims::new()) else {
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
        let packet = room.get(..length).unwrap_or_default();
        if LauncherRequest::decode(packet) == Some(LauncherRequest::Lock) {
            lock = files.into_iter().next().map(File::from);
        } else if let Some(order) = ShimOrder::of(packet, files) {
            // No reply to any other packet: closing the socket ends the exchange.
            if let Some(shim) = start_shim(packet, order, &mut spares, &mut lock) {
                drop(ended);
                return run_shim(shim, &spares.into_line(), arguments);
            }
        }
    }
}

/// Passes the container to a waiting shim, or forks one. Returns the order in a forked shim, and
/// `None` in the launcher, which has sent the result.
fn start_shim(
    packet: &[u8],
    order: ShimOrder,
    spares: &mut SpareShims,
    lock: &mut Option<File>,
) -> Option<ShimOrder> {
    let mut files: Vec<BorrowedFd<'_>> = vec![order.conversation.as_fd(), order.words.as_fd()];
    files.extend(lock.as_ref().map(|lock| lock.as_fd()));
    if let Some(pidfd) = spares.pass(packet, &files) {
        tell_forked(&order.conversation, &pidfd);
        return None;
    }
    match sys::fork() {
        Ok(None) => {
            // A shim without its own session runs all the same.
            let _ = sys::new_session();
            Some(ShimOrder {
                lock: lock.take(),
                ..order
            })
        }
        Ok(Some(pid)) => {
            // Only this process reaps the shim, and later: the pid is still valid.
            if let Ok(pidfd) = sys::pidfd(pid) {
                tell_forked(&order.conversation, &pidfd);
            }
            None
        }
        Err(errno) => {
            let packet = LauncherPacket::Refused { errno }.encode();
            let _ = fd_passing::send(&order.conversation, &packet, &[]);
            None
        }
    }
}

/// Reports that a container has a shim. If the agent is gone or misses the packet, it reads the
/// directory.
fn tell_forked(conversation: &OwnedFd, pidfd: &OwnedFd) {
    let packet = LauncherPacket::Forked.encode();
    let _ = fd_passing::send(conversation, &packet, &[pidfd.as_fd()]);
}

/// Runs a forked shim, for one container after the other.
fn run_shim(
    mut order: ShimOrder,
    launcher: &LauncherLine,
    arguments: Option<ArgumentMemory>,
) -> ExitCode {
    loop {
        // Descriptor 0 was the launcher's socket. A shim must not keep it open.
        let Ok(AssignedContainer { dir, lock }) = order.accept() else {
            return ExitCode::FAILURE;
        };
        if let Some(arguments) = arguments {
            arguments.show(&dir);
        }
        match supervise::run(&dir, lock, AgentConnection::Socket) {
            SupervisedEnd::Exit(code) => return code,
            SupervisedEnd::Read(record) => order = launcher.next_order(record),
        }
    }
}
