//! Restarts, kills and upgrades under load: after each, every container is the same, every verdict is still told, and nothing was done twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::work::{Process, Verdicts, verdicts};
use super::{COMMAND, Fleet, MANAGER, NAMES, PACKAGES};

/// Jobs with tasks that are killed for memory which are in flight at once.
const IN_FLIGHT: usize = 2;
/// The kinds of disturbances are gone through with steps of this many, so that no daemon has all of its own in a row.
const STRIDE: u32 = 7;
const KINDS: u32 = 10;

/// What is done to a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `systemctl restart`.
    Restart,
    /// SIGKILL.
    Kill,
    /// The package of the other release is installed over it.
    Upgrade,
}

/// What came out.
#[derive(Debug, Default, Serialize)]
pub struct Tally {
    /// Disturbances; three daemons at once are one.
    pub rounds: u32,
    /// Daemons that were restarted.
    pub restarts: u32,
    /// Daemons that were killed.
    pub kills: u32,
    /// Packages that were replaced.
    pub upgrades: u32,
    /// Jobs with tasks that were killed for memory, all finished.
    pub jobs: u32,
    /// Processes that had to live on through every round.
    pub staying: usize,
    /// Processes that did not, effects that are missing, jobs that did not finish.
    pub lost: usize,
    /// Tasks that started again though nothing had ended them, and effects that are there more than once.
    pub twice: usize,
    /// Verdicts that were told.
    pub verdicts: usize,
    /// Verdicts that were told and are told no more, or otherwise.
    pub verdicts_lost: usize,
    /// From the disturbance until the daemon is another one and all workers are ready: the middle.
    pub p50_recovery_ms: u128,
    /// The longest.
    pub max_recovery_ms: u128,
    /// What was lost or twice, in words.
    pub notes: Vec<String>,
}

/// The unit and the package of a host's daemon.
fn daemon(host: usize) -> (&'static str, &'static str) {
    if host == MANAGER { ("headroom-resourcemanager", "headroom-manager") } else { ("headroom-nodeagent", "headroom-node") }
}

/// Does it and waits until systemd has another daemon there.
fn script(host: usize, how: How) -> String {
    let (unit, package) = daemon(host);
    let done = match how {
        How::Restart => format!("systemctl restart {unit}"),
        How::Kill => "kill -9 \"$before\"".to_owned(),
        How::Upgrade => format!(
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
    /// Disturbs the daemon of each of these hosts at once, and waits until all is well again. How long it took.
    pub fn disturb(&self, hosts: &[usize], how: How) -> Result<std::time::Duration> {
        let began = Instant::now();
        let errands: Vec<_> = hosts.iter().map(|&host| self.host(host).send(&script(host, how))).collect::<Result<_>>()?;
        for (&host, errand) in hosts.iter().zip(&errands) {
            let ran = self.host(host).wait(errand, COMMAND)?;
            let what = format!("{how:?} of {} on {}", daemon(host).0, NAMES[host]);
            self.book.say(&format!("{what}: {}", ran.stdout.trim().replace('\n', "\n    ")));
            ensure!(ran.code == 0, "{what}: no other daemon\n{}{}\n{}", ran.stdout, ran.stderr, self.witness());
        }
        self.until_ready()?;
        Ok(began.elapsed())
    }
}

/// What a run knows.
struct Run {
    tally: Tally,
    /// The job whose containers must not notice anything.
    app: String,
    staying: BTreeSet<Process>,
    in_flight: VecDeque<String>,
    told: BTreeMap<String, Verdicts>,
    recoveries_ms: Vec<u128>,
}

/// Runs so many rounds on a fleet that is set up. `report` hears of every one.
pub fn run(fleet: &Fleet, rounds: u32, report: &mut dyn FnMut(&Tally)) -> Result<Tally> {
    let app = fleet.stay(520)?;
    let staying = fleet.processes(Some(&app))?;
    let tally = Tally { staying: staying.len(), ..Tally::default() };
    let mut run = Run { tally, app, staying, in_flight: VecDeque::new(), told: BTreeMap::new(), recoveries_ms: Vec::new() };
    for number in 0..rounds {
        run.round(fleet, number).with_context(|| format!("round {number}"))?;
        report(&run.tally);
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
            0..3 => (&all[kind as usize % 3..][..1], How::Restart),
            3..6 => (&all[kind as usize % 3..][..1], How::Kill),
            6..9 => (&all[kind as usize % 3..][..1], How::Upgrade),
            _ => (&all[..], How::Kill),
        };
        let took = fleet.disturb(hosts, how)?;
        self.recoveries_ms.push(took.as_millis());
        let count = u32::try_from(hosts.len())?;
        match how {
            How::Restart => self.tally.restarts += count,
            How::Kill => self.tally.kills += count,
            How::Upgrade => self.tally.upgrades += count,
        }
        self.tally.rounds += 1;
        self.look(fleet, number)?;
        while self.in_flight.len() > IN_FLIGHT {
            self.take_in(fleet)?;
        }
        Ok(())
    }

    /// Writes down what is told now of the jobs in flight.
    fn listen(&mut self, fleet: &Fleet) -> Result<()> {
        for app in &self.in_flight {
            let now = verdicts(&fleet.job(app)?);
            self.told.entry(app.clone()).or_default().extend(now);
        }
        Ok(())
    }

    /// Whether everything is as it was before the disturbance.
    fn look(&mut self, fleet: &Fleet, number: u32) -> Result<()> {
        let now = fleet.processes(Some(&self.app))?;
        let gone: Vec<Process> = self.staying.difference(&now).cloned().collect();
        self.lost(gone.len(), || format!("round {number}: gone {gone:?}"));
        self.staying.retain(|one| now.contains(one));
        let more = fleet.where_is(&now).difference(&fleet.where_is(&self.staying)).count();
        let app = self.app.clone();
        self.twice(more, || format!("round {number}: other containers of {app}: {now:?}"));
        // A job that ended a while ago is asked about again too, another one each time.
        let old = self.told.keys().nth(number as usize % self.told.len().max(1)).cloned();
        let asked: BTreeSet<String> = self.in_flight.iter().cloned().chain(old).collect();
        for app in asked {
            self.compare(fleet, &app)?;
        }
        Ok(())
    }

    fn compare(&mut self, fleet: &Fleet, app: &str) -> Result<()> {
        let now = verdicts(&fleet.job(app)?);
        let before = self.told.get(app).cloned().unwrap_or_default();
        for (attempt, verdict) in before.iter().filter(|(attempt, verdict)| now.get(*attempt) != Some(verdict)) {
            self.tally.verdicts_lost += 1;
            self.tally.notes.push(format!("{app} {attempt}: {verdict}, and now {:?}", now.get(attempt)));
        }
        Ok(())
    }

    /// The oldest job in flight has to finish.
    fn take_in(&mut self, fleet: &Fleet) -> Result<()> {
        let Some(app) = self.in_flight.pop_front() else { return Ok(()) };
        let job = fleet.finished(&app)?;
        let told = verdicts(&job);
        ensure!(told.values().any(|verdict| verdict.contains("oom")), "{app}: nothing was killed for memory: {told:?}");
        self.compare(fleet, &app)?;
        self.told.insert(app, told);
        self.tally.jobs += 1;
        Ok(())
    }

    fn end(mut self, fleet: &Fleet) -> Result<Tally> {
        while !self.in_flight.is_empty() {
            self.take_in(fleet)?;
        }
        fleet.let_go()?;
        fleet.finished(&self.app)?;
        let log = fleet.lines(&self.app)?;
        let wanted = (0..4).flat_map(|n| [format!("start wait/{n}"), format!("end wait/{n}")]);
        self.count(&log, wanted.collect());
        let effects = fleet.lines("effects")?;
        let wanted = self.told.keys().flat_map(|app| [format!("{app}/0"), format!("{app}/1")]).collect();
        self.count(&effects, wanted);
        for app in self.told.keys().cloned().collect::<Vec<_>>() {
            self.compare(fleet, &app)?;
        }
        self.tally.verdicts = self.told.values().map(Verdicts::len).sum();
        self.recoveries_ms.sort_unstable();
        self.tally.p50_recovery_ms = self.recoveries_ms.get(self.recoveries_ms.len() / 2).copied().unwrap_or(0);
        self.tally.max_recovery_ms = self.recoveries_ms.last().copied().unwrap_or(0);
        fleet.tried(super::WORKERS[0], "rm -f /srv/ada/gate /srv/ada/effects")?;
        fleet.tried(super::WORKERS[1], "rm -f /srv/ada/gate /srv/ada/effects")?;
        Ok(self.tally)
    }

    /// Each of these lines has to be there once, and no other.
    fn count(&mut self, lines: &BTreeMap<String, u64>, wanted: Vec<String>) {
        let missing = wanted.iter().filter(|line| !lines.contains_key(*line)).count();
        self.lost(missing, || format!("missing of {wanted:?}: {lines:?}"));
        let more = lines.iter().filter(|(line, count)| **count > 1 || !wanted.contains(line)).count();
        self.twice(more, || format!("more than once: {lines:?}"));
    }

    fn lost(&mut self, count: usize, words: impl FnOnce() -> String) {
        self.tally.lost += count;
        self.tally.notes.extend((count > 0).then(words));
    }

    fn twice(&mut self, count: usize, words: impl FnOnce() -> String) {
        self.tally.twice += count;
        self.tally.notes.extend((count > 0).then(words));
    }
}
