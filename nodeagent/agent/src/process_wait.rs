//! Waits for the end of processes, blocking with a time limit or in the async runtime.
//!
//! It owns no process and sends no signal, except to a child whose time is over.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use headroom_node_exec::{ChildProcess, ProcessEnd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;

/// Whether the child ends within `wait`. It is not reaped.
pub(crate) fn ends_within(child: &ChildProcess, wait: Duration) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(child, PollFlags::IN)];
    let wait = Timespec::try_from(wait).context("the wait is too long")?;
    match poll(&mut fds, Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("the child cannot be watched"),
    }
}

/// Waits for the end of the child. `None` if the time is over; the child is then killed. It is
/// reaped in both cases.
pub(crate) fn end_within(child: &ChildProcess, most: Duration) -> io::Result<Option<ProcessEnd>> {
    let deadline = Instant::now() + most;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if ends_within(child, left.min(Duration::from_secs(1))).map_err(io::Error::other)? {
            return child.wait().map(Some);
        }
        if left.is_zero() {
            // The child has its own session, so processes that it started there are killed too.
            if let Some(group) = rustix::process::Pid::from_raw(child.pid) {
                rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
            }
            child.signal(9)?;
            return child.wait().map(|_| None);
        }
    }
}

/// Waits until `process` has ended, then reaps it.
pub(crate) async fn ended<F: AsRawFd>(
    process: F,
    reap: fn(&F) -> io::Result<()>,
) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "the replacement is unsafe to call; ChildProcess and WatchedProcess own their descriptor and never change it"
    )]
    let process = AsyncFd::with_interest(process, tokio::io::Interest::READABLE)?;
    process.readable().await?.retain_ready();
    reap(process.get_ref())
}
