//! Limits that a task has by hand: in its command, in its environment, or as limits of its processes.
//!
//! A script may set a limit for a part of itself only, and a wrapper may add a flag, so the processes are looked at while they run. The
//! limits of the main process stay readable until it is reaped.

use std::time::{Duration, Instant};

use headroom_node_core::OwnLimits;
use headroom_types::{OwnLimit, OwnLimitKind, Remedy};
use headroom_wire::v1::task::TaskStart;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// So long every look is taken: many programs that are refused memory end at once.
const FIRST: Duration = Duration::from_secs(1);
/// Most processes that are looked at.
const MAX_PROCESSES: usize = 16;
/// The remedies of an attempt, by name, with commas between them.
pub(crate) const REMEDIES: &str = "HEADROOM_REMEDIES";

/// What one task has set.
#[derive(Clone, Debug)]
pub(crate) struct LimitWatch {
    limits: OwnLimits,
    born: Instant,
    at: Option<Instant>,
    /// The code cache is bounded by a remedy, and not by hand.
    code_cache_is_ours: bool,
}

impl LimitWatch {
    /// What the start of a task says of it.
    pub(crate) fn new(born: Instant, start: Option<&TaskStart>) -> LimitWatch {
        let mut limits = OwnLimits::default();
        if let Some(start) = start {
            limits.add_environment(start.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            limits.add_command(start.command.iter().map(String::as_str));
        }
        let code_cache_is_ours = start.is_some_and(|start| has_remedy(start, Remedy::SmallCodeCache));
        LimitWatch { limits, born, at: None, code_cache_is_ours }
    }

    /// Looks at the processes that are there, when it is time to.
    pub(crate) fn look(&mut self, pids: impl FnOnce() -> Vec<i32>) {
        if self.born.elapsed() < FIRST || self.at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.at = Some(Instant::now());
            pids().into_iter().take(MAX_PROCESSES).for_each(|pid| self.take(pid));
        }
    }

    /// The last look: its main process has ended and is not reaped.
    pub(crate) fn last(&mut self, main: i32) {
        self.take(main);
    }

    fn take(&mut self, pid: i32) {
        // One that has ended meanwhile has nothing to read.
        if let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/limits")) {
            self.limits.add_limits_file(&text);
        }
        if let Ok(bytes) = std::fs::read(format!("/proc/{pid}/cmdline")) {
            self.limits.add_command([String::from_utf8_lossy(&bytes).as_ref()]);
        }
    }

    /// All that was seen.
    pub(crate) fn into_vec(self) -> Vec<OwnLimit> {
        let ours = |limit: &OwnLimit| self.code_cache_is_ours && limit.kind == OwnLimitKind::CodeCache;
        self.limits.into_vec().into_iter().filter(|limit| !ours(limit)).collect()
    }
}

/// True when the master asks for this remedy.
pub(crate) fn has_remedy(start: &TaskStart, remedy: Remedy) -> bool {
    start.env.get(REMEDIES).is_some_and(|names| names.split(',').any(|name| name == remedy.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_and_is_not_reaped_shows_its_limits() {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", "ulimit -v 102400; exit 1"]).spawn().expect("starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let ended = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ended() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::yield_now();
        }
        let mut watch = LimitWatch::new(Instant::now(), None);
        watch.last(pid);
        let found: Vec<String> = watch.into_vec().iter().map(ToString::to_string).collect();
        assert!(found.contains(&"ulimit -v (RLIMIT_AS) = 100 MiB".to_owned()), "{found:?}");
        child.wait().expect("reaped");
    }
}
