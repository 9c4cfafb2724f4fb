//! The load of a fleet during faults: tasks that run until they are released, and jobs with tasks
//! that are killed for memory.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{COMMAND, Fleet, NAMES, PERSON, WORKERS};

/// The host on which the user types commands.
pub const USER_HOST: usize = WORKERS[0];

/// A process of a container. Host, pid and start time together identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    host: usize,
    /// Its cgroup, relative to the cgroup of all containers.
    pub container: String,
    pid: u32,
    /// Start time. Ticks since the boot of its kernel.
    start: u64,
}

/// The reasons of failed attempts, by attempt, as the cluster reports them.
pub type Verdicts = BTreeMap<String, String>;

/// Lists `CGROUP PID START` of all processes in containers, with one program for all of them. The
/// `sleep` processes of the waiting tasks are left out, since they change all the time.
const PROCESSES: &str = "cd /sys/fs/cgroup/headroom.slice/headroom-containers.service/containers 2>/dev/null || exit 0
find . -name cgroup.procs -exec grep -H . {} + | awk -F: '{
    file = \"/proc/\" $2 \"/stat\"
    if ((getline line < file) > 0 && line !~ /[(]sleep[)]/) { n = split(line, a, \") \"); split(a[n], f, \" \"); print $1, $2, f[20] }
    close(file) }'";

/// A job with tasks that wait for a file.
const STAYING: &str = "cat > stay.toml <<'END'
version = 1
name = \"stay\"
[profiles.exec]
memory = \"MEMORYMiB\"
cpus = 0.5
[executors.main]
profile = \"exec\"
count = 2
slots = 2
reserve = \"96MiB\"
[[stage]]
name = \"wait\"
count = 4
command = [\"sh\", \"-c\", \"echo start $HEADROOM_TASK >> /srv/ada/$HEADROOM_APP; while [ ! -e /srv/ada/gate ]; do sleep 1; done; echo end $HEADROOM_TASK >> /srv/ada/$HEADROOM_APP\"]
END
rmctl submit stay.toml -o name";

/// A job with two tasks, one of which exceeds its share of 40 MiB. Each finished task writes one
/// line.
const EATING: &str = "cat > eat.toml <<'END'
version = 1
name = \"eat\"
[profiles.exec]
memory = \"176MiB\"
cpus = 0.5
[executors.main]
profile = \"exec\"
slots = 2
reserve = \"96MiB\"
[[stage]]
name = \"eat\"
count = 2
grow = false
command = [\"sh\", \"-c\", \"if [ {index} = 1 ]; then head -c 60m /dev/zero | tail > /dev/null; fi; sleep 2; echo $HEADROOM_APP/{index} >> /srv/ada/effects\"]
END
rmctl submit eat.toml -o name";

impl Fleet {
    /// Starts four tasks on two executors with `mib` MiB each, and waits until all run. Returns the
    /// job's id.
    pub fn stay(&self, mib: u32) -> Result<String> {
        let app = self
            .person(USER_HOST, &STAYING.replace("MEMORY", &mib.to_string()))?
            .trim()
            .to_owned();
        self.until("four tasks to run", COMMAND, |fleet| {
            let job = fleet.job(&app)?;
            let ended = ["failed", "finished", "killed"]
                .iter()
                .any(|state| job["state"] == *state);
            ensure!(!ended, "{app} has ended: {}", job["diagnostics"]);
            Ok((job["job"]["totals"]["running"] == 4).then_some(()))
        })
        .with_context(|| self.witness())?;
        Ok(app)
    }

    /// Releases the waiting tasks.
    pub fn release(&self) -> Result<()> {
        WORKERS
            .into_iter()
            .try_for_each(|host| self.person(host, "touch gate").map(drop))
    }

    /// Submits a job of which one task is killed for memory. Returns its id.
    pub fn eat(&self) -> Result<String> {
        let ran = self.person_tried(USER_HOST, EATING)?;
        ensure!(
            ran.code == 0,
            "a submission ended with {}: {}{}",
            ran.code,
            ran.stdout,
            ran.stderr
        );
        Ok(ran.stdout.trim().to_owned())
    }

    /// The cluster's view of a job.
    pub fn job(&self, app: &str) -> Result<Value> {
        let ran = self.person_tried(USER_HOST, &format!("rmctl ps {app} -o json"))?;
        ensure!(
            ran.code == 0,
            "rmctl ps {app} ended with {}: {}",
            ran.code,
            ran.stderr
        );
        serde_json::from_str(&ran.stdout).context("the output of rmctl ps")
    }

    /// The number of running tasks of a job.
    pub fn running(&self, app: &str) -> Result<u64> {
        Ok(self.job(app)?["job"]["totals"]["running"]
            .as_u64()
            .unwrap_or(0))
    }

    /// Waits for the end of a job, which must be `finished`, and returns its view.
    pub fn finished(&self, app: &str) -> Result<Value> {
        let ran = self.person_tried(USER_HOST, &format!("rmctl wait {app} --timeout 90s"))?;
        let job = self.job(app)?;
        ensure!(
            ran.code == 0 && job["state"] == "finished",
            "{app}: {} {}\n{}",
            ran.stdout,
            ran.stderr,
            self.witness()
        );
        Ok(job)
    }

    /// All processes in containers of a job, or of all.
    pub fn processes(&self, app: Option<&str>) -> Result<BTreeSet<Process>> {
        let mut all = BTreeSet::new();
        for host in WORKERS {
            let listed = self.tried(host, PROCESSES)?.stdout;
            let process = |line: &str| {
                let mut words = line.split_whitespace();
                let container = words
                    .next()?
                    .trim_start_matches("./")
                    .trim_end_matches("/cgroup.procs")
                    .to_owned();
                Some(Process {
                    host,
                    container,
                    pid: words.next()?.parse().ok()?,
                    start: words.next()?.parse().ok()?,
                })
            };
            let wanted =
                |one: &Process| app.is_none_or(|app| one.container.starts_with(&format!("{app}.")));
            all.extend(listed.lines().filter_map(process).filter(wanted));
        }
        Ok(all)
    }

    /// The number of occurrences of each line in a file of the user, summed over both workers.
    pub fn lines(&self, file: &str) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for host in WORKERS {
            let text = self
                .person_tried(host, &format!("cat {file} 2>/dev/null; true"))?
                .stdout;
            text.lines()
                .for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
        }
        Ok(counts)
    }

    /// The hosts and containers of these processes.
    pub fn where_is(&self, processes: &BTreeSet<Process>) -> BTreeSet<(&'static str, String)> {
        let top = |one: &Process| {
            one.container
                .split('/')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        processes
            .iter()
            .map(|one| (NAMES[one.host], top(one)))
            .collect()
    }

    /// Home directory of the user.
    pub fn home() -> String {
        format!("/srv/{PERSON}")
    }
}

/// The failed attempts of a job and their reasons.
pub fn verdicts(job: &Value) -> Verdicts {
    let tasks = job["job"]["tasks"].as_array().into_iter().flatten();
    let attempts = tasks.flat_map(|task| task["attempts"].as_array().into_iter().flatten());
    let failed = attempts.filter(|one| !one["reason"].is_null() && one["reason"]["code"] != 0);
    failed
        .map(|one| {
            (
                one["attempt"].as_str().unwrap_or_default().to_owned(),
                format!("{} {}", one["reason"], one["dimension"]),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failed_attempts_have_verdicts() {
        let job = serde_json::json!({"job": {"tasks": [{"attempts": [
            {"attempt": "eat/1@1", "reason": {"kind": "memory_oom"}, "dimension": "memory"},
            {"attempt": "eat/1@2", "reason": {"kind": "exit", "code": 0}, "dimension": null},
            {"attempt": "eat/1@3", "reason": null, "dimension": null},
            {"attempt": "eat/1@4", "reason": {"kind": "exit", "code": 7}, "dimension": null},
        ]}]}});
        let found: Vec<String> = verdicts(&job).into_keys().collect();
        assert_eq!(found, ["eat/1@1", "eat/1@4"]);
    }
}
