//! Repeated failures of the leading resource manager, of etcd and of whole hosts under load.
//!
//! A job of many tasks runs on three nodes in every round, and some of its tasks exceed their
//! memory. A prober requests one container after the other, and so finds the times without grants.
//! After each round, all accepted applications must be known, every task must have finished once,
//! and every memory failure must have its verdict.

mod probe;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::{AppState, AppView};
use nix::sys::signal::Signal;

use self::probe::GrantProbe;
use crate::clock;
use crate::cluster::{Cluster, NodeShape, SOON, until};
use crate::jobs::{JobFile, WorkLog};
use crate::simulation::random_source::RandomSource;

/// Memory of one slot.
const SHARE: Bytes = Bytes::from_mib(8);
/// Tasks of each job that exceed their size once.
const KILLED: u32 = 4;
/// Their memory. MiB.
const KILLED_MIB: u32 = 20;
/// Run time of the other tasks. Milliseconds.
const TASK_MS: u32 = 4_000;
/// Time that the load runs before a failure.
const BEFORE: Duration = Duration::from_millis(1_500);

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct FailurePlan {
    /// Members of etcd.
    pub members: usize,
    /// Tasks in flight.
    pub tasks: u32,
    /// Number of failures.
    pub rounds: u32,
    /// Lease of the leader.
    pub lease: Duration,
    /// Time for which a paused leader is stopped.
    pub pause: Duration,
    /// Seed of the kinds and times of failures.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct FailureResults {
    /// Accepted applications that a later leader did not know, and tasks that did not finish.
    pub lost: u64,
    /// Tasks that finished twice.
    pub twice: u64,
    /// Memory failures without a verdict.
    pub verdicts_lost: u64,
    /// The longest time without a grant in each round. Milliseconds.
    pub gaps_ms: Vec<u128>,
    /// The same by kind of failure.
    pub by_failure: BTreeMap<&'static str, Vec<u128>>,
    /// Accepted applications.
    pub accepted: u64,
    /// Descriptions of the first faults.
    pub notes: Vec<String>,
}

/// A failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// SIGKILL of the leader.
    KillLeader,
    /// SIGSTOP of the leader for a while.
    PauseLeader,
    /// SIGTERM of the leader.
    EndLeader,
    /// The leader reaches no member of etcd for a while.
    CutLeader,
    /// SIGKILL of the leader of etcd.
    KillEtcdLeader,
    /// SIGKILL of everything on the leader's host: manager, member of etcd, node agent.
    EndHost,
}

impl Failure {
    const ALL: [Failure; 6] = [
        Failure::KillLeader,
        Failure::PauseLeader,
        Failure::EndLeader,
        Failure::CutLeader,
        Failure::KillEtcdLeader,
        Failure::EndHost,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Failure::KillLeader => "kill_leader",
            Failure::PauseLeader => "pause_leader",
            Failure::EndLeader => "end_leader",
            Failure::CutLeader => "cut_leader",
            Failure::KillEtcdLeader => "kill_etcd_leader",
            Failure::EndHost => "end_host",
        }
    }
}

/// Runs the rounds. `report` is called after each.
pub fn run(plan: &FailurePlan, report: &mut dyn FnMut(String)) -> Result<FailureResults> {
    let slots = plan.tasks.div_ceil(3).saturating_add(KILLED);
    let shape = NodeShape {
        memory: Bytes::from_mib(512).saturating_add(SHARE.mul_ratio(u64::from(slots) * 2, 1)),
        cpus: 64,
        enforcer: None,
    };
    let cluster = Cluster::start_replicated(&[shape; 3], (3, plan.members), plan.lease)?;
    let probe = GrantProbe::start(&cluster.url())?;
    let mut run = FailureRun {
        cluster,
        plan: plan.clone(),
        random: RandomSource::new(plan.seed),
        results: FailureResults::default(),
        slots,
    };
    until("the first grant", SOON, || Ok(probe.last().map(drop)))?;
    for n in 0..plan.rounds {
        // Every kind occurs, in another order in each cycle.
        let kind = Failure::ALL[(n as usize) % Failure::ALL.len()];
        let line = run
            .round(n, kind, &probe)
            .with_context(|| format!("round {n} ({}) of seed {}", kind.as_str(), plan.seed))?;
        report(line);
    }
    Ok(run.results)
}

struct FailureRun {
    cluster: Cluster,
    plan: FailurePlan,
    random: RandomSource,
    results: FailureResults,
    slots: u32,
}

impl FailureRun {
    fn round(&mut self, n: u32, kind: Failure, probe: &GrantProbe) -> Result<String> {
        let log = WorkLog::at(self.cluster.dir().join(format!("round-{n}.log")));
        let app = self.cluster.submit(&self.job(n, &log)?)?;
        self.results.accepted += 1;
        until("the tasks to start", SOON, || {
            Ok((log.starts().len() >= self.plan.tasks as usize / 2).then_some(()))
        })?;
        clock::pause(BEFORE + Duration::from_millis(self.random.below(500)));
        let began = Instant::now();
        self.fail(kind)?;
        // Two grants after the failure: the first may have been on its way.
        until("grants after the failure", SOON, || {
            Ok((probe.since(began) >= 2).then_some(()))
        })?;
        let early = self.accepted_during(n)?;
        let view = self.cluster.until_ended(&app)?;
        self.judge(n, (&app, &early), &view, &log)?;
        let gap = probe.longest_gap(began).as_millis();
        self.results.gaps_ms.push(gap);
        self.results
            .by_failure
            .entry(kind.as_str())
            .or_default()
            .push(gap);
        Ok(format!(
            "round {n}: {}: {gap} ms without a grant; lost {}, twice {}, verdicts lost {}",
            kind.as_str(),
            self.results.lost,
            self.results.twice,
            self.results.verdicts_lost
        ))
    }

    fn job(&self, n: u32, log: &WorkLog) -> Result<String> {
        let (ms, killed) = (TASK_MS.to_string(), KILLED_MIB.to_string());
        let half = (TASK_MS / 2).to_string();
        let plain = ["--mib", "1", "--over-ms", &ms];
        let large = ["--mib", &killed, "--over-ms", &half];
        let job = JobFile::new(&format!("round-{n}"), 3, self.slots, SHARE)
            .workload("plain", self.plan.tasks, log.path(), &plain)?
            .without_growth()
            .workload("large", KILLED, log.path(), &large)?
            .without_growth();
        Ok(job.text().to_owned())
    }

    /// Makes a failure, and repairs what an operator or a service manager would start again.
    fn fail(&mut self, kind: Failure) -> Result<()> {
        let leader = self.cluster.leading_manager()?;
        let name = format!("rm-{leader}");
        match kind {
            Failure::KillLeader => {
                self.cluster.kill_daemon(&name)?;
                self.cluster.start_manager(leader)
            }
            Failure::EndLeader => {
                self.cluster.stop_daemon(&name)?;
                self.cluster.start_manager(leader)
            }
            Failure::PauseLeader => {
                self.cluster.signal_daemon(&name, Signal::SIGSTOP)?;
                clock::pause(self.plan.pause);
                self.cluster.signal_daemon(&name, Signal::SIGCONT)?;
                self.until_ended(&name)?;
                self.cluster.start_manager(leader)
            }
            Failure::CutLeader => {
                self.cluster.cut_from_etcd(leader, true)?;
                self.until_ended(&name)?;
                self.cluster.cut_from_etcd(leader, false)?;
                self.cluster.start_manager(leader)
            }
            Failure::KillEtcdLeader => {
                let etcd = self.cluster.etcd()?;
                let member = etcd.leader()?;
                etcd.kill(member)?;
                clock::pause(Duration::from_secs(2));
                self.cluster.etcd()?.restart(member)?;
                self.restart_ended()
            }
            Failure::EndHost => {
                let (node, member) = (format!("node-{leader}"), leader - 1);
                self.cluster.kill_daemon(&name)?;
                self.cluster.kill_daemon(&node)?;
                let members = self.cluster.etcd()?.size();
                if members > 1 {
                    self.cluster.etcd()?.kill(member)?;
                }
                clock::pause(Duration::from_secs(3));
                if members > 1 {
                    self.cluster.etcd()?.restart(member)?;
                }
                self.cluster.start_node(&node)?;
                self.cluster.start_manager(leader)?;
                self.restart_ended()
            }
        }
    }

    fn until_ended(&mut self, name: &str) -> Result<()> {
        until("the deposed leader to end", SOON, || {
            Ok(self.cluster.has_ended(name)?.then_some(()))
        })
    }

    /// Starts managers again that have ended, as their service would.
    fn restart_ended(&mut self) -> Result<()> {
        for n in 1..=3 {
            if self.cluster.has_ended(&format!("rm-{n}"))? {
                self.cluster.start_manager(n)?;
            }
        }
        Ok(())
    }

    /// Submits an application directly after a failure.
    fn accepted_during(&mut self, n: u32) -> Result<AppId> {
        let job = JobFile::new(&format!("after-{n}"), 1, 1, SHARE).stage("s", 1, &["true"], "");
        let app = self.cluster.submit(job.text())?;
        self.results.accepted += 1;
        Ok(app)
    }

    fn judge(
        &mut self,
        n: u32,
        (app, early): (&AppId, &AppId),
        view: &AppView,
        log: &WorkLog,
    ) -> Result<()> {
        ensure!(view.id == *app, "another application was shown");
        let early = self.cluster.until_ended(early)?;
        for view in [view, &early] {
            if view.state != AppState::Finished {
                let what = format!(
                    "{} ended as {}: {}",
                    view.id,
                    view.state.as_str(),
                    view.diagnostics
                );
                self.note(n, what);
                self.results.lost += 1;
            }
        }
        let totals = view
            .job
            .as_ref()
            .map(|job| job.totals.clone())
            .unwrap_or_default();
        let wanted = self.plan.tasks + KILLED;
        self.results.lost += u64::from(wanted - totals.done.min(wanted));
        self.results.verdicts_lost += u64::from(KILLED - totals.memory_kills.min(KILLED));
        let ends = log.ends();
        let repeated: Vec<&String> = ends
            .iter()
            .filter(|(_, n)| **n > 1)
            .map(|(t, _)| t)
            .collect();
        self.results.twice += repeated.len() as u64;
        if totals.done != wanted || totals.memory_kills != KILLED || !repeated.is_empty() {
            self.note(n, format!("{totals:?}, finished twice: {repeated:?}"));
        }
        Ok(())
    }

    fn note(&mut self, n: u32, what: String) {
        if self.results.notes.len() < 20 {
            self.results.notes.push(format!("round {n}: {what}"));
        }
    }
}
