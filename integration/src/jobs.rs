//! Job files for tests, and the log that their workload writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use headroom_types::Bytes;

use crate::programs;

/// Reserve for the executor itself, of a debug build.
const RESERVE: Bytes = Bytes::from_mib(96);

/// A job file under construction.
#[derive(Clone, Debug)]
pub struct JobFile {
    text: String,
}

impl JobFile {
    /// A job with `count` executors of `slots` slots, `share` of memory for each slot.
    pub fn new(name: &str, count: u32, slots: u32, share: Bytes) -> Self {
        let memory = RESERVE.saturating_add(share.mul_ratio(u64::from(slots), 1));
        let text = format!(
            "version = 1\nname = \"{name}\"\n\
             [profiles.exec]\nheap = \"{}B\"\noverhead = \"0B\"\ncpus = 0.5\n\
             [executors.main]\nprofile = \"exec\"\ncount = {count}\nslots = {slots}\nreserve = \"{}B\"\n",
            memory.get(),
            RESERVE.get()
        );
        JobFile { text }
    }

    /// Sets whole processors of each executor instead of 0.5.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.text = self
            .text
            .replacen("cpus = 0.5", &format!("cpus = {cpus}"), 1);
        self
    }

    /// Makes the job live: clients add its tasks while it runs. `lease` is a time such as `60s`.
    #[must_use]
    pub fn live(mut self, lease: &str) -> Self {
        let keys = format!("version = 1\nlive = true\nlease = \"{lease}\"");
        self.text = self.text.replacen("version = 1", &keys, 1);
        self
    }

    /// Adds a stage whose tasks clients add; their arguments follow `command`.
    #[must_use]
    pub fn live_stage(mut self, name: &str, command: &[&str]) -> Self {
        let _ = write!(
            self.text,
            "[[stage]]\nname = \"{name}\"\ncommand = {command:?}\n"
        );
        self
    }

    /// Replaces Headroom's own executor with this program. Call it before the first stage.
    #[must_use]
    pub fn executor(mut self, program: &[&str]) -> Self {
        let _ = writeln!(self.text, "program = {program:?}");
        self
    }

    /// Adds a stage of `count` tasks that run `command`; `more` is TOML for the rest of the stage.
    #[must_use]
    pub fn stage(mut self, name: &str, count: u32, command: &[&str], more: &str) -> Self {
        let _ = write!(
            self.text,
            "[[stage]]\nname = \"{name}\"\ncount = {count}\ncommand = {command:?}\n{more}\n"
        );
        self
    }

    /// Adds a stage of `count` tasks that run the workload, which logs to `log`.
    pub fn workload(self, name: &str, count: u32, log: &Path, arguments: &[&str]) -> Result<Self> {
        let program = programs::path("workload")?;
        let words = [program.to_str(), Some("run"), Some("--log"), log.to_str()];
        let mut command: Vec<&str> = words
            .into_iter()
            .collect::<Option<_>>()
            .context("paths must be UTF-8")?;
        command.extend(arguments);
        Ok(self.stage(name, count, &command, ""))
    }

    /// Disables growth for the last stage: its tasks are killed at their limit.
    #[must_use]
    pub fn without_growth(mut self) -> Self {
        self.text.push_str("grow = false\n");
        self
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The log that the workloads of one job write.
#[derive(Clone, Debug)]
pub struct WorkLog(PathBuf);

/// Number of runs by task.
pub type Counts = BTreeMap<String, u32>;

impl WorkLog {
    /// The log at `path`; it need not exist yet.
    pub fn at(path: PathBuf) -> Self {
        WorkLog(path)
    }
    /// Path of the log.
    pub fn path(&self) -> &Path {
        &self.0
    }
    fn lines(&self, what: &str) -> Vec<(String, i32)> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let is_it = words.next()? == what;
            let (task, _attempt, pid) = (words.next()?, words.next()?, words.next()?);
            is_it.then_some((task.to_owned(), pid.parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    }
    /// Process ids of all started tasks, in order.
    pub fn started(&self) -> Vec<i32> {
        self.lines("start")
            .into_iter()
            .map(|(_, pid)| pid)
            .collect()
    }
    /// Number of starts of each task.
    pub fn starts(&self) -> Counts {
        count(self.lines("start"))
    }
    /// Number of completed runs of each task.
    pub fn ends(&self) -> Counts {
        count(self.lines("end"))
    }
}

fn count(lines: Vec<(String, i32)>) -> Counts {
    lines
        .into_iter()
        .fold(Counts::new(), |mut counts, (task, _)| {
            *counts.entry(task).or_default() += 1;
            counts
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_counted_by_task() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = WorkLog::at(dir.path().join("log"));
        assert!(log.starts().is_empty(), "a missing log counts as empty");
        std::fs::write(
            log.path(),
            "start a/0 1 10\nstart a/1 1 11\nend a/0 1 10\nstart a/1 2 12\n",
        )
        .expect("writes");
        assert_eq!(log.started(), [10, 11, 12]);
        assert_eq!(
            log.starts(),
            Counts::from([("a/0".into(), 1), ("a/1".into(), 2)])
        );
        assert_eq!(log.ends(), Counts::from([("a/0".into(), 1)]));
    }

    #[test]
    fn an_executor_has_its_slots_and_its_reserve() {
        let text = JobFile::new("j", 1, 4, Bytes::from_mib(32))
            .stage("s", 2, &["a", "b c"], "")
            .text()
            .to_owned();
        assert!(
            text.contains(&format!("heap = \"{}B\"", Bytes::from_mib(96 + 128).get())),
            "{text}"
        );
        assert!(text.contains("command = [\"a\", \"b c\"]"), "{text}");
    }
}
