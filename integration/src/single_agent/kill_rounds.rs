//! Repeated SIGKILL of the agent at each step in the life cycle of its containers.
//!
//! A round orders three containers with different ends and kills the agent: at a crash point, when
//! a file of a container appears, or after a delay. In some rounds the launcher is killed shortly
//! before. The agent is restarted, in some rounds killed a second time, and the round waits until
//! all ends are reported. Then it checks that each container was launched once, that each verdict
//! is right, and that nothing is left. All random choices come from the seed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use headroom_test_fakes::{FakeResourceManager, ReceivedReports, ReportedEnd};
use headroom_types::{Bytes, ContainerId, ExitReason, StopCause};
use headroom_wire::v1::nodes::RunOrder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::clock;
use crate::simulation::random_source::RandomSource;
use crate::single_agent::agent::{Shape, SingleAgent, container, order, start_manager, words};
use crate::single_agent::leftover_counts::{LeftoverCounts, reap_shims};

/// Containers in one round.
const CONTAINERS_PER_ROUND: u64 = 3;
/// Timeout for the report of an end after the last kill.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for the moment of a kill. Without the moment, the agent is killed at the timeout.
const KILL_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout for the removal of leftovers.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Crash points in the agent's code: `nodeagent/agent/src/crash.rs`.
const PLACES: [&str; 21] = [
    "directory-made",
    "order-written",
    "files-made",
    "group-made",
    "prepared",
    "shim-wanted",
    "shim-started",
    "answered",
    "stop-wanted",
    "stop-recorded",
    "terminated",
    "killed",
    "shim-ended",
    "rest-ended",
    "report-unnamed",
    "report-written",
    "group-removed",
    "collected",
    "received",
    "forget-wanted",
    "forgotten",
];
/// Crash points of a starting agent.
const AT_START: [&str; 2] = ["adoption", "adopted"];
/// Files of a container whose appearance triggers a kill.
const FILES: [&str; 10] = [
    "order.tmp",
    "order.json",
    "work",
    "stdout",
    "spec",
    "shim.pid",
    "pid",
    "exit",
    "report.json",
    "stop",
];

/// Results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AgentKillResults {
    /// Rounds.
    pub rounds: u32,
    /// Containers whose end was never reported or reported wrong, or that never ran.
    pub lost: u32,
    /// Containers that were launched more than once.
    pub twice: u32,
    /// Leftover cgroups, processes, zombies, files and descriptors.
    pub leaked: usize,
    /// Kills of the agent.
    pub kills: u32,
    /// Kills of its launcher.
    pub launchers: u32,
    /// Kills of the agent at a crash point. Only builds with debug assertions have crash points.
    pub at_places: u32,
    /// Containers in all rounds.
    pub containers: u32,
    /// Descriptions of the first failures.
    pub notes: Vec<String>,
}

/// The intended end of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntendedEnd {
    /// It exits at once with this code.
    Quick(u8),
    /// It exits after 0.4 s with this code.
    Slow(u8),
    /// It sends SIGKILL to itself.
    Shot,
    /// The kernel kills it at its limit.
    Greedy,
    /// It is stopped and exits on SIGTERM.
    Stopped,
    /// It is stopped and ignores SIGTERM.
    Stubborn,
    /// It cannot be started.
    NoProgram,
}

const INTENDED_ENDS: [IntendedEnd; 9] = [
    IntendedEnd::Quick(3),
    IntendedEnd::Slow(5),
    IntendedEnd::Stopped,
    IntendedEnd::Greedy,
    IntendedEnd::Slow(0),
    IntendedEnd::Shot,
    IntendedEnd::Stopped,
    IntendedEnd::Stubborn,
    IntendedEnd::NoProgram,
];

/// The moment of the kill.
#[derive(Clone, Debug)]
enum KillMoment {
    Place(&'static str),
    File { name: &'static str, after: Duration },
    After(Duration),
}

impl IntendedEnd {
    fn order(self, id: &ContainerId, launches: &std::path::Path) -> Result<RunOrder> {
        let note = format!("echo $$ >> {}; ", launches.display());
        let script = match self {
            IntendedEnd::Quick(code) => format!("{note} exit {code}"),
            IntendedEnd::Slow(code) => format!("{note} sleep 0.4; exit {code}"),
            IntendedEnd::Shot => format!("{note} sleep 0.1; kill -9 $$"),
            // Uses 64 MiB in any POSIX shell.
            IntendedEnd::Greedy => {
                format!(
                    "{note} x=0123456789abcdef; n=0; while [ $n -lt 22 ]; do x=$x$x; n=$((n+1)); done; sleep 62"
                )
            }
            IntendedEnd::Stopped => format!("{note} exec sleep 61"),
            IntendedEnd::Stubborn => format!("{note} trap '' TERM; while :; do sleep 0.05; done"),
            IntendedEnd::NoProgram => {
                return order(id, Bytes::from_mib(24), words(&["/no/such/program"]));
            }
        };
        let mut launch = words(&["/bin/sh", "-c", &script]);
        launch.stop_grace_ms = Some(200);
        order(id, Bytes::from_mib(24), launch)
    }

    fn is_right(self, reason: ExitReason) -> bool {
        match self {
            IntendedEnd::Quick(code) | IntendedEnd::Slow(code) => {
                reason
                    == ExitReason::Exit {
                        code: i32::from(code),
                    }
            }
            IntendedEnd::Shot => reason == ExitReason::KilledExternally,
            IntendedEnd::Greedy => reason == ExitReason::OverheadOom,
            IntendedEnd::Stopped | IntendedEnd::Stubborn => reason == ExitReason::Stopped,
            IntendedEnd::NoProgram => reason == ExitReason::LaunchFailed,
        }
    }

    /// Whether it must have run. A stop may come before the start.
    fn must_run(self) -> bool {
        match self {
            IntendedEnd::Quick(_)
            | IntendedEnd::Slow(_)
            | IntendedEnd::Shot
            | IntendedEnd::Greedy => true,
            IntendedEnd::Stopped | IntendedEnd::Stubborn | IntendedEnd::NoProgram => false,
        }
    }
}

/// Runs `rounds` rounds drawn from `seed`. `on_round` is called after each round.
pub fn run(
    rounds: u32,
    seed: u64,
    on_round: &mut dyn FnMut(u32, &AgentKillResults),
) -> Result<AgentKillResults> {
    // Shims of a killed agent become children of this process, as they would become children of
    // process 1.
    nix::sys::prctl::set_child_subreaper(true).context("becoming the subreaper")?;
    let manager = start_manager()?;
    let mut agent = SingleAgent::new(
        &manager,
        Shape {
            memory: Bytes::from_mib(512),
            cpus: 8,
        },
    )?;
    agent.start(&manager)?;
    let before = LeftoverCounts::of(&agent);
    let mut run = AgentKillRun {
        manager,
        agent,
        random: RandomSource::new(seed),
        results: AgentKillResults::default(),
        next: 1,
    };
    for n in 0..rounds {
        run.round(n)
            .with_context(|| format!("round {n} of seed {seed}; {}", run.agent.log_tail()))?;
        on_round(n, &run.results);
    }
    run.results.rounds = rounds;
    run.results.leaked = run.leaked(&before)?;
    Ok(run.results)
}

struct AgentKillRun {
    manager: FakeResourceManager,
    agent: SingleAgent,
    random: RandomSource,
    results: AgentKillResults,
    next: u64,
}

struct Case {
    id: ContainerId,
    intended: IntendedEnd,
    launches: PathBuf,
}

impl AgentKillRun {
    fn round(&mut self, n: u32) -> Result<()> {
        let moment = self.moment(n);
        if let KillMoment::Place(place) = &moment {
            self.start_to_die_at(place)?;
        }
        let cases = self.order(&moment)?;
        let stops_at = Instant::now() + Duration::from_millis(self.random.below(300));
        if self.random.below(4) == 0 {
            self.kill_launcher();
        }
        self.until_dead(&moment, &cases, stops_at)?;
        self.agent.kill()?;
        self.results.kills += 1;
        // One restart in three is killed during adoption.
        if self.random.below(3) == 0 {
            self.kill_at_start()?;
        }
        self.agent.start(&self.manager)?;
        self.stop_intended(&cases);
        self.judge(n, &cases)?;
        reap_shims();
        Ok(())
    }

    /// Kills the launcher while orders or shims are in flight.
    fn kill_launcher(&mut self) {
        clock::pause(Duration::from_micros(self.random.below(20_000)));
        let launcher = self.agent.launcher();
        let killed = launcher.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        self.results.launchers += u32::from(killed);
    }

    fn moment(&mut self, n: u32) -> KillMoment {
        let places = u32::try_from(PLACES.len()).unwrap_or(1);
        // In builds with crash points, every second round uses the next one.
        if cfg!(debug_assertions) && n.is_multiple_of(2) {
            let place = PLACES
                .get(usize::try_from(n / 2 % places).unwrap_or(0))
                .copied()
                .unwrap_or("prepared");
            return KillMoment::Place(place);
        }
        let after = Duration::from_micros(self.random.below(1500));
        match self.random.below(3) {
            0 => KillMoment::After(Duration::from_micros(self.random.below(600_000))),
            _ => KillMoment::File {
                name: one_of(&mut self.random, &FILES).unwrap_or("pid"),
                after,
            },
        }
    }

    fn start_to_die_at(&mut self, place: &str) -> Result<()> {
        let registrations = |run: &Self| run.manager.with(|received| received.registrations.len());
        let before = registrations(self);
        self.agent.spawn(Some(("HEADROOM_CRASH_AT", place)))?;
        let start = Instant::now();
        while registrations(self) == before
            && !self.agent.is_dead()?
            && start.elapsed() < REPORT_TIMEOUT
        {
            clock::pause(Duration::from_millis(2));
        }
        Ok(())
    }

    fn order(&mut self, moment: &KillMoment) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for nth in 0..CONTAINERS_PER_ROUND {
            let id = container(self.next)?;
            self.next += 1;
            let needed = needed(moment).filter(|_| nth == 0);
            let drawn = one_of(&mut self.random, &INTENDED_ENDS).unwrap_or(IntendedEnd::Quick(3));
            let intended = needed.unwrap_or(drawn);
            cases.push(Case {
                launches: self.agent.dir().join(format!("launches-{}", id.seq)),
                id,
                intended,
            });
        }
        let orders: Result<Vec<_>> = cases
            .iter()
            .map(|c| Ok((c.id.clone(), c.intended.order(&c.id, &c.launches)?)))
            .collect();
        self.manager.run(orders?);
        self.results.containers += u32::try_from(cases.len()).unwrap_or(0);
        Ok(cases)
    }

    /// Acts as the manager until the moment of the kill: it stops containers and acknowledges
    /// reported ends.
    fn until_dead(&mut self, moment: &KillMoment, cases: &[Case], stops_at: Instant) -> Result<()> {
        let start = Instant::now();
        let mut seen: Option<Instant> = None;
        let mut stopped = false;
        while start.elapsed() < KILL_TIMEOUT {
            if !stopped && Instant::now() >= stops_at {
                stopped = true;
                self.stop_intended(cases);
            }
            self.forget_reported(cases);
            match moment {
                KillMoment::Place(_) => {
                    if self.agent.is_dead()? {
                        self.results.at_places += 1;
                        return Ok(());
                    }
                    clock::pause(Duration::from_millis(2));
                }
                KillMoment::File { name, after } => {
                    let there = || cases.iter().any(|c| self.agent.file(&c.id, name).exists());
                    let since = seen.or_else(|| there().then(Instant::now));
                    seen = since;
                    if since.is_some_and(|at| at.elapsed() >= *after) {
                        return Ok(());
                    }
                }
                KillMoment::After(time) => {
                    if start.elapsed() >= *time {
                        return Ok(());
                    }
                    clock::pause(Duration::from_micros(200));
                }
            }
        }
        Ok(())
    }

    fn stop_intended(&self, cases: &[Case]) {
        for case in cases
            .iter()
            .filter(|c| matches!(c.intended, IntendedEnd::Stopped | IntendedEnd::Stubborn))
        {
            let has_ended = self
                .manager
                .with(|received| received.ends.contains_key(&case.id));
            if !has_ended {
                self.manager.stop(&case.id, StopCause::Asked);
            }
        }
    }

    fn forget_reported(&self, cases: &[Case]) {
        let ended: Vec<ContainerId> = self.manager.with(|received| {
            let ids = cases.iter().map(|c| &c.id);
            ids.filter(|id| received.ends.contains_key(id))
                .cloned()
                .collect()
        });
        self.manager.forget(
            ended
                .into_iter()
                .filter(|id| !self.manager.is_forgotten(id)),
        );
    }

    fn kill_at_start(&mut self) -> Result<()> {
        let place = one_of(&mut self.random, &AT_START).filter(|_| cfg!(debug_assertions));
        self.agent.spawn(place.map(|p| ("HEADROOM_CRASH_AT", p)))?;
        let wait = Duration::from_millis(self.random.below(400));
        let start = Instant::now();
        let limit = if place.is_some() { KILL_TIMEOUT } else { wait };
        while start.elapsed() < limit && !self.agent.is_dead()? {
            clock::pause(Duration::from_millis(1));
        }
        self.results.at_places += u32::from(place.is_some() && self.agent.is_dead()?);
        self.results.kills += 1;
        self.agent.kill()
    }

    fn judge(&mut self, n: u32, cases: &[Case]) -> Result<()> {
        for case in cases {
            let reported = |received: &mut ReceivedReports| {
                let end = received.ends.get(&case.id)?;
                Some((end.clone(), received.contradicted.contains(&case.id)))
            };
            let end = self
                .manager
                .until("the report of an end", REPORT_TIMEOUT, reported)
                .ok();
            self.check_end(n, case, end.as_ref());
        }
        self.forget_reported(cases);
        let gone = |run: &AgentKillRun, id: &ContainerId| {
            !run.agent.file(id, "").exists() || run.agent.file(id, "forgotten").exists()
        };
        let start = Instant::now();
        while !cases.iter().all(|c| gone(self, &c.id)) && start.elapsed() < CLEANUP_TIMEOUT {
            clock::pause(Duration::from_millis(2));
        }
        let ids: Vec<ContainerId> = cases.iter().map(|c| c.id.clone()).collect();
        self.manager.remove_desired(&ids);
        Ok(())
    }

    fn check_end(&mut self, n: u32, case: &Case, end: Option<&(ReportedEnd, bool)>) {
        let launches = fs::read_to_string(&case.launches)
            .unwrap_or_default()
            .lines()
            .count();
        let wrong = match end {
            None => Some("its end was never reported".to_owned()),
            Some((end, true)) => Some(format!(
                "its end has two reasons, first {}",
                end.report.reason
            )),
            Some((end, false)) if !case.intended.is_right(end.report.reason) => {
                let why: Vec<&str> = end
                    .report
                    .diagnosis
                    .iter()
                    .map(|d| d.cause.as_str())
                    .collect();
                Some(format!(
                    "its end was reported as {} ({})",
                    end.report.reason,
                    why.join("; ")
                ))
            }
            Some((_, false)) if launches == 0 && case.intended.must_run() => {
                Some("the program never ran".to_owned())
            }
            Some((_, false)) => None,
        };
        self.results.lost += u32::from(wrong.is_some());
        self.results.twice += u32::from(launches > 1);
        let twice = (launches > 1).then(|| format!("the program ran {launches} times"));
        for what in [wrong, twice].into_iter().flatten() {
            if self.results.notes.len() < 20 {
                self.results.notes.push(format!(
                    "round {n}, {} ({:?}): {what}",
                    case.id, case.intended
                ));
            }
        }
    }

    /// Counts leftovers in excess of `before`, after a grace period.
    fn leaked(&mut self, before: &LeftoverCounts) -> Result<usize> {
        let start = Instant::now();
        loop {
            reap_shims();
            let now = LeftoverCounts::of(&self.agent);
            let beyond = now.beyond(before);
            if beyond == 0 || start.elapsed() >= CLEANUP_TIMEOUT {
                if beyond > 0 {
                    self.results
                        .notes
                        .push(format!("left behind: {now:?}; before: {before:?}"));
                }
                return Ok(beyond);
            }
            clock::pause(Duration::from_millis(50));
        }
    }
}

fn one_of<T: Copy>(random: &mut RandomSource, of: &[T]) -> Option<T> {
    let place = random.below(u64::try_from(of.len()).unwrap_or(0));
    of.get(usize::try_from(place).unwrap_or(0)).copied()
}

/// Some moments occur only for a container that is stopped.
fn needed(moment: &KillMoment) -> Option<IntendedEnd> {
    match moment {
        KillMoment::Place("stop-wanted" | "stop-recorded" | "terminated") => {
            Some(IntendedEnd::Stopped)
        }
        KillMoment::Place("killed") => Some(IntendedEnd::Stubborn),
        KillMoment::File { name: "stop", .. } => Some(IntendedEnd::Stopped),
        KillMoment::Place(_) | KillMoment::File { .. } | KillMoment::After(_) => None,
    }
}
