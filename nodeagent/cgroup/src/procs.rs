//! Processes by pid: sizes, descendants and kills.
//!
//! `v1`, `v2` and `poll` use it. A process is signalled through its pidfd, which is opened before
//! its membership is checked again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use headroom_types::Bytes;
use headroom_types::exit::VictimProcess;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use procfs::FromRead as _;
use procfs::process::Stat;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{CgroupError, Result};
use crate::parse;
use crate::tree::page_size;

/// Maximum time for processes to end after SIGKILL. Freeing memory costs about 65 µs per MiB, so
/// this suffices for 100 GiB.
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of `/proc/PID/stat`; `None` when the process is gone.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    Stat::from_file(format!("/proc/{pid}/stat")).ok()
}

/// True for an ended process that is not reaped yet.
pub(crate) fn ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

/// Resident memory.
fn rss(stat: &Stat) -> Bytes {
    Bytes::new(stat.rss.saturating_mul(page_size()))
}

/// The `n` largest of `pids` by resident memory, largest first.
pub(crate) fn largest(pids: &[i32], n: usize) -> Vec<VictimProcess> {
    let mut all: Vec<VictimProcess> = pids
        .iter()
        .filter_map(|pid| stat(*pid))
        .filter(|s| !ended(s))
        .map(|s| VictimProcess {
            pid: s.pid,
            rss: rss(&s),
            name: s.comm,
        })
        .collect();
    all.sort_by(|a, b| b.rss.cmp(&a.rss).then(a.pid.cmp(&b.pid)));
    all.truncate(n);
    all
}

/// All processes of the host.
pub(crate) fn all_processes() -> BTreeMap<i32, Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// Sends SIGKILL to all processes that `members` returns, until it returns none.
pub(crate) fn kill_all(
    group: &str,
    within: Duration,
    mut members: impl FnMut() -> Result<Vec<i32>>,
) -> Result<()> {
    let deadline = Instant::now() + within;
    loop {
        let now = members()?;
        if now.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CgroupError::Unkillable {
                group: group.to_owned(),
                left: now,
                within,
            });
        }
        let dying = signal_members(&now, &mut members)?;
        await_ends(&dying, deadline);
    }
}

/// Sends SIGKILL to `pids`, as far as `members` still returns them. Returns the descriptors of the
/// dying processes.
pub(crate) fn signal_members(
    pids: &[i32],
    members: impl FnOnce() -> Result<Vec<i32>>,
) -> Result<Vec<OwnedFd>> {
    let mut dying = Vec::new();
    let held: Vec<(i32, OwnedFd)> = pids
        .iter()
        .filter_map(|pid| Some((*pid, open(*pid)?)))
        .collect();
    // A process that is still a member after its pidfd was opened cannot be a process with a reused
    // pid.
    let still = members()?;
    for (pid, fd) in held.into_iter().filter(|(pid, _)| still.contains(pid)) {
        match pidfd_send_signal(&fd, Signal::KILL) {
            Ok(()) => dying.push(fd),
            Err(rustix::io::Errno::SRCH) => {}
            Err(e) => {
                return Err(CgroupError::Signal {
                    pid,
                    source: e.into(),
                });
            }
        }
    }
    Ok(dying)
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Waits until all have ended, for at most 50 ms (a member may fork meanwhile) and not beyond the
/// deadline.
fn await_ends(dying: &[OwnedFd], deadline: Instant) {
    let round = (Instant::now() + Duration::from_millis(50)).min(deadline);
    let mut waiting: Vec<&OwnedFd> = dying.iter().collect();
    if waiting.is_empty() {
        // A member without a pidfd is just ending: wait 1 ms and check again.
        let _ = poll(&mut [], PollTimeout::from(1u8));
    }
    while !waiting.is_empty() {
        let left = round.saturating_duration_since(Instant::now());
        let Ok(timeout) = PollTimeout::try_from(left) else {
            return;
        };
        let mut set: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
            .collect();
        if poll(&mut set, timeout).unwrap_or(0) == 0 {
            return;
        }
        let over: Vec<bool> = set.iter().map(|p| p.any().unwrap_or(true)).collect();
        waiting = waiting
            .into_iter()
            .zip(over)
            .filter(|(_, over)| !over)
            .map(|(fd, _)| fd)
            .collect();
    }
}

/// Processes that the kernel of this host has killed for memory since boot.
pub(crate) fn host_oom_kills() -> Option<u64> {
    // The file stays open: its two hundred lines are read twice for each container.
    static VMSTAT: OnceLock<Option<File>> = OnceLock::new();
    let file = VMSTAT
        .get_or_init(|| File::open("/proc/vmstat").ok())
        .as_ref()?;
    let mut text = Vec::with_capacity(8 * 1024);
    let mut room = [0; 8 * 1024];
    loop {
        match file
            .read_at(&mut room, u64::try_from(text.len()).ok()?)
            .ok()?
        {
            0 => break,
            length => text.extend_from_slice(room.get(..length)?),
        }
    }
    parse::keyed(std::str::from_utf8(&text).ok()?, "oom_kill")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_the_largest_of_itself() {
        let me = i32::try_from(std::process::id()).expect("a pid");
        let found = largest(&[me, i32::MAX], 3);
        assert_eq!(found.len(), 1);
        assert!(found[0].pid == me && found[0].rss > Bytes::from_kib(100));
    }

    #[test]
    fn kill_all_ends_exactly_the_members() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("spawns");
        let pid = i32::try_from(child.id()).expect("a pid");
        kill_all("test", KILL_TIMEOUT, || {
            Ok(stat(pid)
                .filter(|s| !ended(s))
                .map(|s| s.pid)
                .into_iter()
                .collect())
        })
        .expect("dies");
        let status = child.wait().expect("reaps");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
    }

    #[test]
    fn the_host_counts_its_kills() {
        assert!(host_oom_kills().is_some());
    }
}
