//! Shims that have no container any more and serve another one.
//!
//! A shim whose exit record is read offers itself to its launcher: a packet with a socket for one
//! request, and its pidfd. The launcher passes the next container to the newest such shim, which costs
//! neither a fork nor the end of a process. A shim that is not needed ends after [`IDLE`]. One whose
//! launcher is gone ends at once.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use headroom_container_shim::launcher_protocol::{LauncherRequest, MAX_PACKET_BYTES};
use headroom_node_process::fd_passing;

use crate::sys;

/// Time that a shim leaves to other ends, before it syncs the exit record and serves again or ends.
/// The end of a hundred shims costs as much as a third of their reports.
const OTHER_ENDS: Duration = Duration::from_millis(50);
/// Maximum time that a shim waits for another container.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum number of shims that wait. Each has less than 100 KiB of its own.
const MAX_SPARES: usize = 64;
/// The packet of an offer.
const OFFER: &[u8] = b"spare\n";

/// A request for a shim, with its files.
pub(crate) struct ShimOrder {
    /// Directory of the container.
    pub(crate) dir: PathBuf,
    /// The socket for the answers.
    pub(crate) conversation: OwnedFd,
    /// The file for error messages.
    pub(crate) words: OwnedFd,
    /// The agent's lock.
    pub(crate) lock: Option<File>,
}

/// The container of a shim that has taken its order.
pub(crate) struct AssignedContainer {
    pub(crate) dir: PathBuf,
    /// The agent's lock, held until the directory names the shim.
    pub(crate) lock: Option<File>,
}

impl ShimOrder {
    /// The order of a request. `None` for any other packet.
    pub(crate) fn of(packet: &[u8], files: Vec<OwnedFd>) -> Option<ShimOrder> {
        let Some(LauncherRequest::Run(dir)) = LauncherRequest::decode(packet) else {
            return None;
        };
        let mut files = files.into_iter();
        Some(ShimOrder {
            dir,
            conversation: files.next()?,
            words: files.next()?,
            lock: files.next().map(File::from),
        })
    }

    /// Makes the socket standard input and output, and the file standard error.
    pub(crate) fn accept(self) -> Result<AssignedContainer, i32> {
        let (conversation, words) = (File::from(self.conversation), File::from(self.words));
        sys::place(&conversation, 0)?;
        sys::place(&conversation, 1)?;
        sys::place(&words, 2)?;
        Ok(AssignedContainer {
            dir: self.dir,
            lock: self.lock,
        })
    }
}

/// The shims that wait, in their launcher.
pub(crate) struct SpareShims {
    offers: OwnedFd,
    to_launcher: OwnedFd,
    waiting: VecDeque<SpareShim>,
}

struct SpareShim {
    requests: OwnedFd,
    pidfd: OwnedFd,
}

impl SpareShims {
    pub(crate) fn new() -> io::Result<SpareShims> {
        let (offers, to_launcher) = fd_passing::pair()?;
        Ok(SpareShims {
            offers,
            to_launcher,
            waiting: VecDeque::new(),
        })
    }

    /// Passes a request to a waiting shim. Returns the pidfd of that shim, or `None` if none waits.
    pub(crate) fn pass(&mut self, packet: &[u8], files: &[BorrowedFd<'_>]) -> Option<OwnedFd> {
        self.collect();
        // The newest first: the oldest are the next to end. A shim that has ended refuses.
        while let Some(spare) = self.waiting.pop_back() {
            if fd_passing::send(&spare.requests, packet, files).is_ok() {
                return Some(spare.pidfd);
            }
        }
        None
    }

    /// Reads the offers. They wait in the socket until a container needs them.
    fn collect(&mut self) {
        let mut room = [0; OFFER.len()];
        while let Ok((1.., files)) = fd_passing::receive(&self.offers, &mut room) {
            let mut files = files.into_iter();
            if let (Some(requests), Some(pidfd)) = (files.next(), files.next()) {
                self.waiting.push_back(SpareShim { requests, pidfd });
            }
            if self.waiting.len() > MAX_SPARES {
                self.waiting.pop_front();
            }
        }
    }

    /// The part of a forked shim. It closes the rest, so that a launcher that ends is noticed.
    pub(crate) fn into_line(self) -> LauncherLine {
        LauncherLine(self.to_launcher)
    }
}

/// The connection of a shim to its launcher.
pub(crate) struct LauncherLine(OwnedFd);

impl LauncherLine {
    /// Syncs the exit record of a container that has ended, and waits for the next container.
    /// Without one, ends this process.
    pub(crate) fn next_order(&self, record: File) -> ShimOrder {
        sys::sleep(OTHER_ENDS);
        let synced = record.sync_all();
        drop(record);
        if synced.is_ok()
            && !sys::has_children()
            && let Some(order) = self.offer()
        {
            return order;
        }
        sys::yield_to_others();
        // Exit handlers would only touch memory that is then freed.
        sys::exit_now(i32::from(synced.is_err()))
    }

    fn offer(&self) -> Option<ShimOrder> {
        let (own, theirs) = fd_passing::pair().ok()?;
        let pidfd = sys::pidfd(sys::own_pid()).ok()?;
        // A full socket means that more shims wait than a launcher keeps.
        fd_passing::send(&self.0, OFFER, &[theirs.as_fd(), pidfd.as_fd()]).ok()?;
        drop((theirs, pidfd));
        sys::await_input(&own, IDLE);
        // From here on the launcher's send fails. What it has sent before is received below.
        sys::refuse_input(&own);
        let mut room = [0; MAX_PACKET_BYTES];
        let (length, files) = fd_passing::receive(&own, &mut room).ok()?;
        ShimOrder::of(room.get(..length)?, files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shim that waits, with the socket on which it receives its request.
    fn offer(to: &SpareShims) -> OwnedFd {
        let (own, theirs) = fd_passing::pair().expect("a pair");
        fd_passing::send(&to.to_launcher, OFFER, &[theirs.as_fd(), theirs.as_fd()])
            .expect("offers");
        own
    }

    fn received(by: &OwnedFd) -> Option<Vec<u8>> {
        let mut room = [0; 64];
        let (length, _) = fd_passing::receive(by, &mut room).ok()?;
        (length > 0).then(|| room[..length].to_vec())
    }

    #[test]
    fn the_newest_shim_that_still_waits_gets_the_request() {
        let mut spares = SpareShims::new().expect("sockets");
        assert!(spares.pass(b"run /a", &[]).is_none(), "none waits");
        let (oldest, older, newest) = (offer(&spares), offer(&spares), offer(&spares));
        drop(newest);
        sys::refuse_input(&older);
        assert!(spares.pass(b"run /a", &[]).is_some());
        assert_eq!(received(&oldest).as_deref(), Some(&b"run /a"[..]));
        assert_eq!(received(&older), None);
        assert!(spares.pass(b"run /b", &[]).is_none(), "each serves once");
    }

    #[test]
    fn a_request_that_was_sent_before_the_end_of_the_wait_is_received() {
        let mut spares = SpareShims::new().expect("sockets");
        let waits = offer(&spares);
        assert!(spares.pass(b"run /a", &[]).is_some());
        sys::refuse_input(&waits);
        assert_eq!(received(&waits).as_deref(), Some(&b"run /a"[..]));
    }

    #[test]
    fn the_oldest_of_too_many_shims_are_refused() {
        let mut spares = SpareShims::new().expect("sockets");
        let waiting: Vec<_> = (0..=MAX_SPARES).map(|_| offer(&spares)).collect();
        spares.collect();
        assert_eq!(spares.waiting.len(), MAX_SPARES);
        let mut room = [0; 64];
        let (length, _) = fd_passing::receive(&waiting[0], &mut room).expect("the end");
        assert_eq!(length, 0, "its socket is closed");
    }
}
