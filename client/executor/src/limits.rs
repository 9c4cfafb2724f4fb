//! Manual limits of a task: in its command, in its environment, or as rlimits of its processes.
//!
//! A script may set a limit for one of its parts only, and a wrapper may add a flag. The processes
//! are therefore sampled while they run. The limits of the main process are readable until it is
//! reaped.

use std::time::{Duration, Instant};

use headroom_node_core::OwnLimits;
use headroom_types::{OwnLimit, OwnLimitKind, Remedy};
use headroom_wire::v1::task::TaskStart;

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time after the start in which every sample is taken, because many programs exit at once when an
/// allocation fails.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum number of sampled processes.
const MAX_PROCESSES: usize = 16;
/// Variable with the names of an attempt's remedies, separated by commas.
pub(crate) const REMEDIES: &str = "HEADROOM_REMEDIES";

/// The manual limits of one task.
#[derive(Clone, Debug)]
pub(crate) struct ManualLimits {
    limits: OwnLimits,
    started_at: Instant,
    at: Option<Instant>,
    /// True if a remedy limits the code cache; then its limit is not a manual one.
    code_cache_is_ours: bool,
}

impl ManualLimits {
    /// Reads the limits from the start of a task.
    pub(crate) fn new(started_at: Instant, start: Option<&TaskStart>) -> ManualLimits {
        let mut limits = OwnLimits::default();
        if let Some(start) = start {
            limits.add_environment(
                start
                    .env
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            limits.add_command(start.command.iter().map(String::as_str));
        }
        let code_cache_is_ours =
            start.is_some_and(|start| has_remedy(start, Remedy::SmallCodeCache));
        ManualLimits {
            limits,
            started_at,
            at: None,
            code_cache_is_ours,
        }
    }

    /// Samples the live processes if the interval has passed.
    pub(crate) fn look(&mut self, pids: impl FnOnce() -> Vec<i32>) {
        if self.started_at.elapsed() < FIRST
            || self.at.is_none_or(|at| at.elapsed() >= SAMPLE_INTERVAL)
        {
            self.at = Some(Instant::now());
            pids()
                .into_iter()
                .take(MAX_PROCESSES)
                .for_each(|pid| self.take(pid));
        }
    }

    /// Takes the last sample. The main process has ended and is not reaped.
    pub(crate) fn last(&mut self, main: i32) {
        self.take(main);
    }

    fn take(&mut self, pid: i32) {
        // The files of an ended process are not readable.
        if let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/limits")) {
            self.limits.add_limits_file(&text);
        }
        if let Ok(bytes) = std::fs::read(format!("/proc/{pid}/cmdline")) {
            self.limits
                .add_command([String::from_utf8_lossy(&bytes).as_ref()]);
        }
    }

    /// All limits found.
    pub(crate) fn into_vec(self) -> Vec<OwnLimit> {
        let ours =
            |limit: &OwnLimit| self.code_cache_is_ours && limit.kind == OwnLimitKind::CodeCache;
        self.limits
            .into_vec()
            .into_iter()
            .filter(|limit| !ours(limit))
            .collect()
    }
}

/// True if the start requests any remedy.
pub(crate) fn has_remedies(start: &TaskStart) -> bool {
    start.env.contains_key(REMEDIES)
}

/// True if the start requests this remedy.
pub(crate) fn has_remedy(start: &TaskStart, remedy: Remedy) -> bool {
    start
        .env
        .get(REMEDIES)
        .is_some_and(|names| names.split(',').any(|name| name == remedy.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_zombie_are_read() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "ulimit -v 102400; exit 1"])
            .spawn()
            .expect("starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        let ended = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains(") Z "))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ended() {
            assert!(Instant::now() < deadline, "the process does not end");
            std::thread::yield_now();
        }
        let mut watch = ManualLimits::new(Instant::now(), None);
        watch.last(pid);
        let found: Vec<String> = watch.into_vec().iter().map(ToString::to_string).collect();
        assert!(
            found.contains(&"ulimit -v (RLIMIT_AS) = 100 MiB".to_owned()),
            "{found:?}"
        );
        child.wait().expect("reaped");
    }
}
