//! Repeated SIGKILL of an application master while tasks of its job escalate.
//!
//! A round is one job on a cluster of the real daemons. Some of its tasks exceed their share and
//! are killed for memory until their size suffices. A second stage sums the results of the first.
//! The master is killed after its journal records a new size of a task, or at a random time; in
//! some rounds a second time during its restart. Then the round checks that the results equal those
//! of a job without kills, and that no task was repeated after its end, started twice, or lost. All
//! random choices come from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_appmaster::policy::TaskDecision;
use headroom_appmaster::record::JournalRecord;
use headroom_appmaster::taskset::TaskPosition;
use headroom_types::{AppId, Bytes, ExitCharge};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::job::{AttemptRow, TaskState};

use crate::cluster::{Cluster, ContainerOwner, NodeShape, SOON, until};
use crate::jobs::JobFile;
use crate::simulation::random_source::RandomSource;
use crate::{clock, programs};

/// Share of one slot. MiB.
const SHARE: u64 = 32;
/// Memory of the tasks of the first stage, in MiB: most fit their share, some need two shares, and
/// two exceed an executor.
const MAP: [u32; 12] = [6, 48, 6, 6, 80, 6, 48, 6, 6, 80, 6, 6];
/// Memory of the tasks of the second stage. MiB.
const REDUCE: [u32; 3] = [6, 48, 6];
/// Duration in which a task allocates its memory. Milliseconds.
const OVER_MS: u32 = 200;
/// Timeout for the moment of a kill. A job that ends earlier is not killed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two reads of a journal.
const GLANCE: Duration = Duration::from_millis(3);

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct MasterKillResults {
    /// Jobs.
    pub rounds: u32,
    /// Kills of masters.
    pub kills: u32,
    /// Kills while a task had been given another size and had not ended since.
    pub mid_escalation: u32,
    /// Tasks that were given another size.
    pub escalations: u32,
    /// Tasks that were started again after a completed run.
    pub rerun_finished: u32,
    /// Unfinished tasks, results that differ from those without kills, and attempts that were
    /// abandoned although they ran.
    pub lost: u32,
    /// Attempts that were started twice, or before the previous attempt had ended.
    pub twice: u32,
    /// From the last kill of a round to the registration of the next master attempt. Milliseconds.
    pub recoveries_ms: Vec<u128>,
    /// Descriptions of the first failures.
    pub notes: Vec<String>,
}

/// Runs `rounds` rounds drawn from `seed`, with the journal of the master at this place, as in
/// [`Cluster::start_sharing_journals`]. `report` is called after each round.
pub fn run(
    journals: Option<&str>,
    rounds: u32,
    seed: u64,
    report: &mut dyn FnMut(u32, &MasterKillResults),
) -> Result<MasterKillResults> {
    let cluster = Cluster::start_sharing_journals(&[NodeShape::default()], "", journals)?;
    let whole = Round::begin(&cluster, "whole")?.end(&cluster)?;
    ensure!(
        whole.view.state == AppState::Finished,
        "the job fails without any kill: {}",
        whole.view.diagnostics
    );
    ensure!(
        whole.escalated() > 0,
        "no task escalates: {:?}",
        whole.view.job
    );
    let mut site = MasterKillRun {
        cluster,
        random: RandomSource::new(seed),
        results: MasterKillResults::default(),
        escalations: u64::from(whole.escalated()),
    };
    for n in 0..rounds {
        site.round(n, &whole.result)
            .with_context(|| format!("round {n} of seed {seed}"))?;
        report(n, &site.results);
    }
    site.results.rounds = rounds;
    Ok(site.results)
}

struct MasterKillRun {
    cluster: Cluster,
    random: RandomSource,
    results: MasterKillResults,
    /// Number of tasks of a job that escalate.
    escalations: u64,
}

impl MasterKillRun {
    fn round(&mut self, n: u32, wanted: &BTreeMap<String, String>) -> Result<()> {
        let round = Round::begin(&self.cluster, &format!("round-{n}"))?;
        if self.random.below(4) == 0 {
            // At a random time: during start, registration, requests or the end.
            clock::pause(Duration::from_millis(self.random.below(3000)));
        } else {
            let (nth, after) = (
                self.random.below(self.escalations),
                Duration::from_micros(self.random.below(250_000)),
            );
            round.until_escalated(&self.cluster, nth + 1)?;
            clock::pause(after);
        }
        let mut killed = self.kill(&round)?;
        if killed.is_some() && self.random.below(3) == 0 {
            let next = round.until_next_run(&self.cluster, 2)?;
            clock::pause(Duration::from_micros(self.random.below(300_000)));
            let again = if next { self.kill(&round)? } else { None };
            killed = again.or(killed.filter(|_| !next));
        }
        if let Some((at, run)) = killed {
            self.results.recoveries_ms.extend(round.until_registered(
                &self.cluster,
                run + 1,
                at,
            )?);
        }
        let end = round.end(&self.cluster)?;
        self.judge(n, &end, wanted);
        Ok(())
    }

    /// Kills the running master. Returns the time of the kill and the number of the attempt, or
    /// `None` if there is no master any more.
    fn kill(&mut self, round: &Round) -> Result<Option<(Instant, u32)>> {
        let alive = || {
            let view = self.cluster.app(&round.app)?;
            let master = self
                .cluster
                .live_containers(&round.app, ContainerOwner::Master)?
                .into_iter()
                .next();
            let pid = master.and_then(|container| self.cluster.container_pid(&container).ok());
            Ok((pid.is_some() || view.state.is_final()).then_some((pid, view.attempt)))
        };
        let (pid, run) = until("a master, or the end of the job", SOON, alive)?;
        // The master may end by itself before the kill.
        let Some(pid) = pid.filter(|pid| Cluster::kill_process(*pid).is_ok()) else {
            return Ok(None);
        };
        let at = Instant::now();
        until("the master to end", SOON, || {
            Ok((!Path::new(&format!("/proc/{pid}/exe")).exists()).then_some(()))
        })?;
        self.results.kills += 1;
        self.results.mid_escalation += u32::from(round.escalating(&self.cluster));
        Ok(Some((at, run)))
    }

    fn judge(&mut self, n: u32, end: &End, wanted: &BTreeMap<String, String>) {
        let mut wrong = Vec::new();
        let job = end.view.job.clone().unwrap_or_default();
        for task in job
            .tasks
            .iter()
            .filter(|task| task.state != TaskState::Done)
        {
            wrong.push(format!("{} is {:?}: {}", task.task, task.state, task.note));
        }
        if end.view.state != AppState::Finished {
            wrong.push(format!(
                "the job ended as {}: {}",
                end.view.state.as_str(),
                end.view.diagnostics
            ));
        }
        for (file, text) in wanted
            .iter()
            .filter(|(file, text)| end.result.get(*file) != Some(*text))
        {
            wrong.push(format!(
                "{file} is {:?}, without kills it is {text:?}",
                end.result.get(file)
            ));
        }
        let free = |a: &&AttemptRow| {
            a.reason
                .is_none_or(|reason| reason.charge() == ExitCharge::Free)
        };
        for attempt in job
            .tasks
            .iter()
            .flat_map(|task| &task.attempts)
            .filter(free)
        {
            wrong.push(format!(
                "{} was given up: {:?} {}",
                attempt.attempt, attempt.reason, attempt.log_tail
            ));
        }
        self.results.lost += u32::try_from(wrong.len()).unwrap_or(u32::MAX);
        self.results.escalations += job.totals.escalated;
        let (again, mut twice) = end.log.repeated();
        self.results.rerun_finished += u32::try_from(again.len()).unwrap_or(u32::MAX);
        wrong.extend(
            again
                .into_iter()
                .map(|task| format!("{task} ran again after its end")),
        );
        for pair in job.tasks.iter().flat_map(|task| task.attempts.windows(2)) {
            if let [first, second] = pair
                && first.ended.is_none_or(|ended| second.started < ended)
            {
                twice.push(format!(
                    "{} started before {} had ended",
                    second.attempt, first.attempt
                ));
            }
        }
        self.results.twice += u32::try_from(twice.len()).unwrap_or(u32::MAX);
        for what in wrong.into_iter().chain(twice) {
            if self.results.notes.len() < 20 {
                self.results.notes.push(format!("round {n}: {what}"));
            }
        }
    }
}

/// A running job.
struct Round {
    app: AppId,
    dir: PathBuf,
}

/// An ended job.
struct End {
    view: AppView,
    /// The files that its tasks wrote, by name.
    result: BTreeMap<String, String>,
    log: Log,
}

impl End {
    fn escalated(&self) -> u32 {
        self.view.job.as_ref().map_or(0, |job| job.totals.escalated)
    }
}

impl Round {
    fn begin(cluster: &Cluster, name: &str) -> Result<Round> {
        let dir = cluster.dir().join(name);
        fs::create_dir_all(dir.join("map")).context("a directory for the results")?;
        Ok(Round {
            app: cluster.submit(&job(name, &dir)?)?,
            dir,
        })
    }

    /// The records in the master's journal on the node; of a journal in the resource manager, those
    /// of the last attempt. An incomplete last line is left out.
    fn journal(&self, cluster: &Cluster) -> Vec<JournalRecord> {
        let app = self.app.to_string();
        let dir = cluster
            .state("node-1")
            .join("apps")
            .join(&app)
            .join("appmaster")
            .join(&app);
        let text = fs::read(dir.join("journal.ndjson"))
            .or_else(|_| fs::read(dir.join("journal.tail")))
            .unwrap_or_default();
        text.split(|byte| *byte == b'\n')
            .filter(|line| !line.starts_with(b"{\"attempt\":"))
            .map_while(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// Waits until `wanted` ends led to another size, or the job is over.
    fn until_escalated(&self, cluster: &Cluster, wanted: u64) -> Result<()> {
        let started = Instant::now();
        while (escalations(&self.journal(cluster)).count() as u64) < wanted
            && started.elapsed() < TIMEOUT
        {
            if cluster
                .app(&self.app)
                .is_ok_and(|view| view.state.is_final())
            {
                return Ok(());
            }
            clock::pause(GLANCE);
        }
        Ok(())
    }

    /// True while a task has a new size and has not ended since.
    fn escalating(&self, cluster: &Cluster) -> bool {
        let mut open: BTreeSet<TaskPosition> = BTreeSet::new();
        for record in self.journal(cluster) {
            if let JournalRecord::Ended { task, .. } = &record {
                open.remove(task);
            }
            open.extend(escalation(&record));
        }
        !open.is_empty()
    }

    /// Waits for a master attempt with this number or a later one, registered or not. False if the
    /// job ends before.
    fn until_next_run(&self, cluster: &Cluster, run: u32) -> Result<bool> {
        let see = |view: &AppView| {
            (view.state.is_final() || view.attempt >= run).then(|| !view.state.is_final())
        };
        cluster.until_app(&self.app, "the next attempt of the master", SOON, see)
    }

    /// Time from `since` to the registration of this master attempt. `None` if the job ends before.
    fn until_registered(
        &self,
        cluster: &Cluster,
        run: u32,
        since: Instant,
    ) -> Result<Option<u128>> {
        let up = |view: &AppView| {
            view.attempt >= run && view.state == AppState::Running && view.master_url.is_some()
        };
        until(
            "the next attempt of the master to register",
            TIMEOUT,
            || {
                let Ok(view) = cluster.app(&self.app) else {
                    return Ok(None);
                };
                Ok((up(&view) || view.state.is_final())
                    .then(|| up(&view).then(|| since.elapsed().as_millis())))
            },
        )
    }

    fn end(&self, cluster: &Cluster) -> Result<End> {
        let view = cluster.until_ended(&self.app)?;
        let mut result = BTreeMap::new();
        let mut add = |name: String, file: PathBuf| {
            result.insert(name, fs::read_to_string(file).unwrap_or_default())
        };
        for n in 0..MAP.len() {
            add(format!("map/{n}"), self.dir.join("map").join(n.to_string()));
        }
        for n in 0..REDUCE.len() {
            add(
                format!("reduce/{n}"),
                self.dir.join("out").join(format!("reduce-{n}")).join("sum"),
            );
        }
        Ok(End {
            view,
            result,
            log: Log::read(&self.dir.join("work.log")),
        })
    }
}

/// The tasks that records gave another size.
fn escalations(records: &[JournalRecord]) -> impl Iterator<Item = TaskPosition> {
    records.iter().filter_map(escalation)
}

fn escalation(record: &JournalRecord) -> Option<TaskPosition> {
    let JournalRecord::Ended {
        task,
        row,
        next: TaskDecision::Again { size, .. },
        ..
    } = record
    else {
        return None;
    };
    (size.rung > row.rung).then_some(*task)
}

/// The log of a job's tasks, in order: whether it is an end, the task, the attempt.
struct Log(Vec<(bool, String, String)>);

impl Log {
    fn read(file: &Path) -> Log {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let (what, task, attempt) = (words.next()?, words.next()?, words.next()?);
            Some((what == "end", task.to_owned(), attempt.to_owned()))
        };
        Log(text.lines().filter_map(line).collect())
    }

    /// Tasks that started after a completed run, and attempts that started twice.
    fn repeated(&self) -> (Vec<String>, Vec<String>) {
        let (mut ended, mut started) = (BTreeSet::new(), BTreeSet::new());
        let (mut again, mut twice) = (Vec::new(), Vec::new());
        for (end, task, attempt) in &self.0 {
            if *end {
                ended.insert(task);
                continue;
            }
            if ended.contains(task) {
                again.push(task.clone());
            }
            if !started.insert((task, attempt)) {
                twice.push(format!("{task}@{attempt} was started twice"));
            }
        }
        (again, twice)
    }
}

/// A job with two executors of two slots. The first stage writes squares; the second writes
/// multiples of their sum into fenced outputs.
fn job(name: &str, dir: &Path) -> Result<String> {
    let program = programs::path("workload")?;
    let (program, log) = (program.display(), dir.join("work.log"));
    let work = |needs: &[u32]| {
        let needs: Vec<String> = needs.iter().map(u32::to_string).collect();
        let log = log.display();
        format!(
            "n=$1; set -- {}; shift $n; {program} run --log {log} --mib $1 --over-ms {OVER_MS} || exit $?",
            needs.join(" ")
        )
    };
    let map = dir.join("map").display().to_string();
    let square = format!("{}; echo $((n * n)) > {map}/$n", work(&MAP));
    let sum = format!(
        "{}; s=0; for f in {map}/*; do read x < $f; s=$((s + x)); done; echo $((s * n)) > $HEADROOM_OUTPUT/sum",
        work(&REDUCE)
    );
    let fenced = format!(
        "grow = false\nafter = [\"map\"]\nidempotent = \"fenced\"\noutput = \"{}\"",
        dir.join("out").display()
    );
    let stage = |needs: &[u32]| u32::try_from(needs.len()).unwrap_or(u32::MAX);
    let job = JobFile::new(name, 2, 2, Bytes::from_mib(SHARE))
        .stage(
            "map",
            stage(&MAP),
            &["sh", "-c", &square, "sh", "{index}"],
            "grow = false",
        )
        .stage(
            "reduce",
            stage(&REDUCE),
            &["sh", "-c", &sum, "sh", "{index}"],
            &fenced,
        );
    Ok(job.text().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_tasks_are_found_in_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("log");
        std::fs::write(
            &file,
            "start a/0 1 7\nstart a/1 1 8\nstart a/1 2 9\nend a/1 2 9\nend a/0 1 7\n",
        )
        .expect("writes");
        assert_eq!(
            Log::read(&file).repeated(),
            (Vec::new(), Vec::new()),
            "a second attempt after a kill is correct"
        );
        std::fs::write(
            &file,
            "start a/0 1 7\nend a/0 1 7\nstart a/0 2 8\nstart a/0 2 9\n",
        )
        .expect("writes");
        let (again, twice) = Log::read(&file).repeated();
        assert_eq!(
            (again.len(), twice),
            (2, vec!["a/0@2 was started twice".to_owned()])
        );
    }
}
