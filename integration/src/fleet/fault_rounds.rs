//! Restarts, kills and upgrades under load. After each, all containers are the same, all verdicts
//! are still reported, and no task ran twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::work::{Process, Verdicts, verdicts};
use super::{COMMAND, Fleet, MANAGER, NAMES, PACKAGES};

/// Jobs with memory kills that are in flight at once.
const IN_FLIGHT: usize = 2;
/// The kinds of faults are visited in steps of this size, so that faults of one daemon do not
/// follow each other.
const STRIDE: u32 = 7;
const KINDS: u32 = 10;

/// The fault of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonFault {
    /// `systemctl restart`.
    Restart,
    /// SIGKILL.
    Kill,
    /// The package of the other release is installed over the present one.
    Upgrade,
}

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub struct FleetRoundResults {
    /// Rounds. A fault of three daemons at once counts as one.
    pub rounds: u32,
    /// Daemons that were restarted.
    pub restarts: u32,
    /// Daemons that were killed.
    pub kills: u32,
    /// Packages that were replaced.
    pub upgrades: u32,
    /// Finished jobs with tasks that were killed for memory.
    pub jobs: u32,
    /// Processes that must survive all rounds.
    pub staying: usize,
    /// Processes that did not survive, missing effects, and unfinished jobs.
    pub lost: usize,
    /// Tasks that were restarted without a reason, and effects that occurred more than once.
    pub twice: usize,
    /// Verdicts that were reported.
    pub verdicts: usize,
    /// Verdicts that were reported and later missing or different.
    pub verdicts_lost: usize,
    /// Median recovery: from the fault until the daemon has a new process and all workers are
    /// ready.
    pub p50_recovery_ms: u128,
    /// Longest recovery.
    pub max_recovery_ms: u128,
    /// Descriptions of the lost and repeated items.
    pub notes: Vec<String>,
}

/// The unit and the package of a host's daemon.
fn daemon(host: usize) -> (&'static str, &'static str) {
    if host == MANAGER {
        ("headroom-resourcemanager", "headroom-manager")
    } else {
        ("headroom-nodeagent", "headroom-node")
    }
}

/// A script that applies the fault and waits until systemd reports a new daemon process.
fn script(host: usize, how: DaemonFault) -> String {
    let (unit, package) = daemon(host);
    let done = match how {
        DaemonFault::Restart => format!("systemctl restart {unit}"),
        DaemonFault::Kill => "kill -9 \"$before\"".to_owned(),
        DaemonFault::Upgrade => format!(
            "case $(dpkg-query -W -f '${{Version}}' {package}) in 9*) to=now ;; *) to=later ;; esac\n\
             dpkg --force-unsafe-io --install {PACKAGES}/$to/{package}_*.deb 2>&1 | grep -v '^(Reading'"
        ),
    };
    format!(
        "before=$(systemctl show --value -p MainPID {unit})\n{done}\nfor _ in $(seq 300); do\n\
         now=$(systemctl show --value -p MainPID {unit})\n\
         [ \"$now\" != 0 ] && [ \"$now\" != \"$before\" ] && systemctl --quiet is-active {unit} && exit 0\nsleep 0.1\ndone\nexit 1"
    )
}

impl Fleet {
    /// Applies a fault to the daemons of these hosts at once, waits for the recovery, and returns
    /// its duration.
    pub fn disturb(&self, hosts: &[usize], how: DaemonFault) -> Result<std::time::Duration> {
        let began = Instant::now();
        let scripts: Vec<_> = hosts
            .iter()
            .map(|&host| self.host(host).send(&script(host, how)))
            .collect::<Result<_>>()?;
        for (&host, script) in hosts.iter().zip(&scripts) {
            let ran = self.host(host).wait(script, COMMAND)?;
            let what = format!("{how:?} of {} on {}", daemon(host).0, NAMES[host]);
            self.book.say(&format!(
                "{what}: {}",
                ran.stdout.trim().replace('\n', "\n    ")
            ));
            ensure!(
                ran.code == 0,
                "{what}: the daemon was not replaced\n{}{}\n{}",
                ran.stdout,
                ran.stderr,
                self.witness()
            );
        }
        self.until_ready()?;
        Ok(began.elapsed())
    }
}

/// The state of a run.
struct Run {
    results: FleetRoundResults,
    /// The job whose containers must not be affected.
    app: String,
    staying: BTreeSet<Process>,
    in_flight: VecDeque<String>,
    verdicts: BTreeMap<String, Verdicts>,
    recoveries_ms: Vec<u128>,
}

/// Runs this number of rounds on a configured fleet. `report` is called after each round.
pub fn run(
    fleet: &Fleet,
    rounds: u32,
    report: &mut dyn FnMut(&FleetRoundResults),
) -> Result<FleetRoundResults> {
    let app = fleet.stay(520)?;
    let staying = fleet.processes(Some(&app))?;
    let results = FleetRoundResults {
        staying: staying.len(),
        ..FleetRoundResults::default()
    };
    let mut run = Run {
        results,
        app,
        staying,
        in_flight: VecDeque::new(),
        verdicts: BTreeMap::new(),
        recoveries_ms: Vec::new(),
    };
    for number in 0..rounds {
        run.round(fleet, number)
            .with_context(|| format!("round {number}"))?;
        report(&run.results);
    }
    run.end(fleet)
}

impl Run {
    fn round(&mut self, fleet: &Fleet, number: u32) -> Result<()> {
        self.in_flight.push_back(fleet.eat()?);
        self.listen(fleet)?;
        let kind = number * STRIDE % KINDS;
        let all = [0, 1, 2];
        let (hosts, how) = match kind {
            0..3 => (&all[kind as usize % 3..][..1], DaemonFault::Restart),
            3..6 => (&all[kind as usize % 3..][..1], DaemonFault::Kill),
            6..9 => (&all[kind as usize % 3..][..1], DaemonFault::Upgrade),
            _ => (&all[..], DaemonFault::Kill),
        };
        let took = fleet.disturb(hosts, how)?;
        self.recoveries_ms.push(took.as_millis());
        let count = u32::try_from(hosts.len())?;
        match how {
            DaemonFault::Restart => self.results.restarts += count,
            DaemonFault::Kill => self.results.kills += count,
            DaemonFault::Upgrade => self.results.upgrades += count,
        }
        self.results.rounds += 1;
        self.look(fleet, number)?;
        while self.in_flight.len() > IN_FLIGHT {
            self.take_in(fleet)?;
        }
        Ok(())
    }

    /// Records the verdicts that the cluster reports now for the jobs in flight.
    fn listen(&mut self, fleet: &Fleet) -> Result<()> {
        for app in &self.in_flight {
            let now = verdicts(&fleet.job(app)?);
            self.verdicts.entry(app.clone()).or_default().extend(now);
        }
        Ok(())
    }

    /// Compares processes, containers and verdicts with those before the fault.
    fn look(&mut self, fleet: &Fleet, number: u32) -> Result<()> {
        let now = fleet.processes(Some(&self.app))?;
        let gone: Vec<Process> = self.staying.difference(&now).cloned().collect();
        self.lost(gone.len(), || format!("round {number}: missing {gone:?}"));
        self.staying.retain(|one| now.contains(one));
        let more = fleet
            .where_is(&now)
            .difference(&fleet.where_is(&self.staying))
            .count();
        let app = self.app.clone();
        self.twice(more, || {
            format!("round {number}: other containers of {app}: {now:?}")
        });
        // Each round also checks one job that ended earlier, a different one each time.
        let old = self
            .verdicts
            .keys()
            .nth(number as usize % self.verdicts.len().max(1))
            .cloned();
        let asked: BTreeSet<String> = self.in_flight.iter().cloned().chain(old).collect();
        for app in asked {
            self.compare(fleet, &app)?;
        }
        Ok(())
    }

    fn compare(&mut self, fleet: &Fleet, app: &str) -> Result<()> {
        let now = verdicts(&fleet.job(app)?);
        let before = self.verdicts.get(app).cloned().unwrap_or_default();
        for (attempt, verdict) in before
            .iter()
            .filter(|(attempt, verdict)| now.get(*attempt) != Some(verdict))
        {
            self.results.verdicts_lost += 1;
            self.results.notes.push(format!(
                "{app} {attempt}: {verdict}, and now {:?}",
                now.get(attempt)
            ));
        }
        Ok(())
    }

    /// Waits until the oldest job in flight has finished.
    fn take_in(&mut self, fleet: &Fleet) -> Result<()> {
        let Some(app) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let job = fleet.finished(&app)?;
        let ended = verdicts(&job);
        ensure!(
            ended.values().any(|verdict| verdict.contains("oom")),
            "{app}: no attempt was killed for memory: {ended:?}"
        );
        self.compare(fleet, &app)?;
        self.verdicts.insert(app, ended);
        self.results.jobs += 1;
        Ok(())
    }

    fn end(mut self, fleet: &Fleet) -> Result<FleetRoundResults> {
        while !self.in_flight.is_empty() {
            self.take_in(fleet)?;
        }
        fleet.release()?;
        fleet.finished(&self.app)?;
        let log = fleet.lines(&self.app)?;
        let wanted = (0..4).flat_map(|n| [format!("start wait/{n}"), format!("end wait/{n}")]);
        self.count(&log, wanted.collect());
        let effects = fleet.lines("effects")?;
        let wanted = self
            .verdicts
            .keys()
            .flat_map(|app| [format!("{app}/0"), format!("{app}/1")])
            .collect();
        self.count(&effects, wanted);
        for app in self.verdicts.keys().cloned().collect::<Vec<_>>() {
            self.compare(fleet, &app)?;
        }
        self.results.verdicts = self.verdicts.values().map(Verdicts::len).sum();
        self.recoveries_ms.sort_unstable();
        self.results.p50_recovery_ms = self
            .recoveries_ms
            .get(self.recoveries_ms.len() / 2)
            .copied()
            .unwrap_or(0);
        self.results.max_recovery_ms = self.recoveries_ms.last().copied().unwrap_or(0);
        fleet.tried(super::WORKERS[0], "rm -f /srv/ada/gate /srv/ada/effects")?;
        fleet.tried(super::WORKERS[1], "rm -f /srv/ada/gate /srv/ada/effects")?;
        Ok(self.results)
    }

    /// Checks that each of these lines occurs exactly once and that there are no others.
    fn count(&mut self, lines: &BTreeMap<String, u64>, wanted: Vec<String>) {
        let missing = wanted
            .iter()
            .filter(|line| !lines.contains_key(*line))
            .count();
        self.lost(missing, || format!("missing of {wanted:?}: {lines:?}"));
        let more = lines
            .iter()
            .filter(|(line, count)| **count > 1 || !wanted.contains(line))
            .count();
        self.twice(more, || format!("more than once: {lines:?}"));
    }

    fn lost(&mut self, count: usize, words: impl FnOnce() -> String) {
        self.results.lost += count;
        self.results.notes.extend((count > 0).then(words));
    }

    fn twice(&mut self, count: usize, words: impl FnOnce() -> String) {
        self.results.twice += count;
        self.results.notes.extend((count > 0).then(words));
    }
}
