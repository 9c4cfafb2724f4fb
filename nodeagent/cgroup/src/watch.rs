//! Early warning: a descriptor that becomes readable when a group's memory events move.
//!
//! Owned by the sampler. Never the proof of a kill: that is read from the counters after the end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::error::Result;
use crate::group::Group;

/// A non-blocking descriptor, readable (plain `Interest::READABLE` in a tokio `AsyncFd`) after memory events of the group.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
}

#[allow(missing_docs, unused_variables)]
impl Watch {
    /// Watches `group`; `None` for a kind without such events (poll).
    pub fn open(group: &Group) -> Result<Option<Watch>> {
        unimplemented!()
    }
    /// Takes all that is pending, so that the descriptor is quiet again.
    pub fn clear(&self) -> std::io::Result<()> {
        unimplemented!()
    }
}
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
