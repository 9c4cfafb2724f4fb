//! Repeated failures of the leading resource manager, of etcd and of whole hosts under load.
//!
//! Three hosts have networks and disks of their own. A job of many tasks runs on them in every
//! round, and some of its tasks exceed their memory. One prober for each node requests one of its
//! containers after the other, and so finds the times without grants; another one submits
//! applications. After each
//! round, all accepted applications must be known, every task must have finished once, and every
//! memory failure must have its verdict.

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use headroom_test_fakes::{EtcdCluster, SmallDisk};
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::{AppState, AppView};
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::job::TaskState;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use self::probe::{GrantProbes, SubmissionProbe};
use crate::clock;
use crate::cluster::{Cluster, NodeShape, SOON, TestNetwork, until};
use crate::jobs::{JobFile, WorkLog};
use crate::simulation::random_source::RandomSource;

/// Hosts, each with a resource manager, a member of etcd and a node agent.
const HOSTS: usize = 3;
/// Size of the disk of each member of etcd. The file has holes.
const DISK: Bytes = Bytes::from_gib(1);
/// Time for which a member of etcd is dead, or its disk is full at most, and for which a deposed
/// leader stays cut off.
const CUT: Duration = Duration::from_secs(3);
/// Time that a host takes to start again.
const BOOT: Duration = Duration::from_secs(5);
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
    /// The longest time without any grant in each round. Milliseconds.
    pub gaps_ms: Vec<u128>,
    /// The longest time without a grant of one of the nodes in each round. Milliseconds.
    pub node_gaps_ms: Vec<u128>,
    /// The same by kind of failure.
    pub by_failure: BTreeMap<&'static str, Vec<u128>>,
    /// Accepted applications.
    pub accepted: u64,
    /// Members of etcd that ended because their disk was full.
    pub full_disks_that_end_etcd: u64,
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
    /// The host of the leader is cut off from all others for a while.
    CutLeader,
    /// SIGKILL of the leader of etcd.
    KillEtcdLeader,
    /// SIGSTOP of the leader of etcd for a while.
    PauseEtcdLeader,
    /// The host of etcd's leader is cut off from all others for a while.
    CutEtcdLeader,
    /// The disk of etcd's leader is full for a while.
    FillEtcdDisk,
    /// The leader's host is reset: the manager, the member of etcd, the node agent and all
    /// containers end at once, and the host is silent for a while.
    ResetHost,
}

impl Failure {
    const ALL: [Failure; 9] = [
        Failure::KillLeader,
        Failure::PauseLeader,
        Failure::EndLeader,
        Failure::CutLeader,
        Failure::KillEtcdLeader,
        Failure::PauseEtcdLeader,
        Failure::CutEtcdLeader,
        Failure::FillEtcdDisk,
        Failure::ResetHost,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Failure::KillLeader => "kill_leader",
            Failure::PauseLeader => "pause_leader",
            Failure::EndLeader => "end_leader",
            Failure::CutLeader => "cut_leader",
            Failure::KillEtcdLeader => "kill_etcd_leader",
            Failure::PauseEtcdLeader => "pause_etcd_leader",
            Failure::CutEtcdLeader => "cut_etcd_leader",
            Failure::FillEtcdDisk => "fill_etcd_disk",
            Failure::ResetHost => "reset_host",
        }
    }
}

/// Number of kinds of failures; so many rounds have each of them once.
pub const KINDS: usize = Failure::ALL.len();

/// Runs the rounds, on hosts with networks and disks of their own. Requires root. `report` is called
/// after each round.
pub fn run(plan: &FailurePlan, report: &mut (dyn FnMut(String) + Send)) -> Result<FailureResults> {
    // The thread enters a network namespace, in which its processes and threads begin.
    let ended = std::thread::scope(|scope| scope.spawn(|| run_here(plan, report)).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run_here(plan: &FailurePlan, report: &mut (dyn FnMut(String) + Send)) -> Result<FailureResults> {
    let slots = plan.tasks.div_ceil(3).saturating_add(KILLED);
    let shape = NodeShape {
        memory: Bytes::from_mib(512).saturating_add(SHARE.mul_ratio(u64::from(slots) * 2, 1)),
        cpus: 64,
        enforcer: None,
    };
    let disk_dir = tempfile::Builder::new()
        .prefix("headroom-disks-")
        .tempdir()
        .context("a directory for the disks")?;
    let disk = |n: usize| {
        let (image, at) = (
            disk_dir.path().join(format!("disk-{n}")),
            disk_dir.path().join(EtcdCluster::data_dir(n)),
        );
        SmallDisk::mount(&image, &at, DISK.get())
    };
    let disks = (0..HOSTS).map(disk).collect::<Result<_>>()?;
    let network = TestNetwork::start(HOSTS)?;
    let cluster = Cluster::start_on_hosts(network, disk_dir.path(), &[shape; HOSTS], plan.lease)?;
    let (grants, submissions) = (
        GrantProbes::start(&cluster.url(), &cluster.node_ids()?)?,
        SubmissionProbe::start(&cluster.url())?,
    );
    let mut run = FailureRun {
        cluster,
        disks,
        _disk_dir: disk_dir,
        plan: plan.clone(),
        random: RandomSource::new(plan.seed),
        results: FailureResults::default(),
        slots,
    };
    until("the first grant", SOON, || {
        Ok(grants.have_begun().then_some(()))
    })?;
    for n in 0..plan.rounds {
        // Every kind occurs in each cycle.
        let kind = Failure::ALL[(n as usize) % Failure::ALL.len()];
        let line = run
            .round(n, kind, &grants)
            .and_then(|line| run.check_submissions(n, &submissions).map(|()| line))
            .with_context(|| format!("round {n} ({}) of seed {}", kind.as_str(), plan.seed))?;
        report(line);
    }
    Ok(run.results)
}

struct FailureRun {
    cluster: Cluster,
    /// Disks of the members of etcd. They outlive their processes.
    disks: Vec<SmallDisk>,
    _disk_dir: TempDir,
    plan: FailurePlan,
    random: RandomSource,
    results: FailureResults,
    slots: u32,
}

impl FailureRun {
    fn round(&mut self, n: u32, kind: Failure, probe: &GrantProbes) -> Result<String> {
        let log = WorkLog::at(self.cluster.dir().join(format!("round-{n}.log")));
        let app = self.cluster.submit(&self.job(n, &log)?)?;
        self.results.accepted += 1;
        until("the tasks to start", SOON, || {
            Ok((log.starts().len() >= self.plan.tasks as usize / 2).then_some(()))
        })?;
        clock::pause(BEFORE + Duration::from_millis(self.random.below(500)));
        let done = self.finished_tasks(&app)?;
        let began = Instant::now();
        self.fail(kind)?;
        // Two grants after the failure: the first may have been on its way.
        until("grants after the failure", SOON, || {
            Ok((probe.since(began) >= 2).then_some(()))
        })?;
        let view = self.cluster.until_ended(&app)?;
        // A reset may hide the end of a task that was not recorded yet; it runs again.
        let once = (kind == Failure::ResetHost).then_some(done);
        self.judge(n, &view, &log, once.as_ref())?;
        let gap = probe.longest_gap(began).as_millis();
        let gap_of_a_node = probe.longest_gap_of_a_node(began).as_millis();
        self.results.node_gaps_ms.push(gap_of_a_node);
        self.results.gaps_ms.push(gap);
        self.results
            .by_failure
            .entry(kind.as_str())
            .or_default()
            .push(gap);
        Ok(format!(
            "round {n}: {}: {gap} ms without a grant, {gap_of_a_node} ms without one of a node; lost {}, twice {}, verdicts lost {}",
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
            Failure::KillLeader => self.cluster.kill_daemon(&name)?,
            Failure::EndLeader => drop(self.cluster.stop_daemon(&name)?),
            Failure::PauseLeader => {
                self.cluster.signal_daemon(&name, Signal::SIGSTOP)?;
                self.wait(self.plan.pause)?;
                self.cluster.signal_daemon(&name, Signal::SIGCONT)?;
                self.until_ended(&name)?;
            }
            Failure::CutLeader => {
                self.cluster.cut_host(leader, true)?;
                self.until_ended(&name)?;
                self.wait(CUT)?;
                self.cluster.cut_host(leader, false)?;
            }
            Failure::KillEtcdLeader
            | Failure::PauseEtcdLeader
            | Failure::CutEtcdLeader
            | Failure::FillEtcdDisk => self.fail_etcd(kind)?,
            Failure::ResetHost => {
                let member = leader - 1;
                self.cluster.cut_host(leader, true)?;
                self.cluster.etcd()?.kill(member)?;
                self.cluster.reset_host(leader)?;
                clock::pause(BOOT);
                self.cluster.cut_host(leader, false)?;
                self.cluster.etcd()?.restart(member)?;
                self.cluster.start_node(&format!("node-{leader}"))?;
            }
        }
        self.restart_ended()
    }

    fn fail_etcd(&mut self, kind: Failure) -> Result<()> {
        let member = self.cluster.etcd()?.leader()?;
        match kind {
            Failure::PauseEtcdLeader => {
                self.cluster.etcd()?.pause(member, true)?;
                self.wait(self.plan.pause)?;
                self.cluster.etcd()?.pause(member, false)
            }
            Failure::CutEtcdLeader => {
                self.cluster.cut_host(member + 1, true)?;
                self.wait(self.plan.lease * 2 + CUT)?;
                self.cluster.cut_host(member + 1, false)
            }
            Failure::FillEtcdDisk => {
                self.disks[member].fill()?;
                let full = Instant::now();
                while full.elapsed() < CUT && !self.cluster.etcd()?.has_ended(member)? {
                    self.wait(Duration::from_millis(20))?;
                }
                self.disks[member].empty()?;
                if self.cluster.etcd()?.has_ended(member)? {
                    self.cluster.etcd()?.restart(member)?;
                    self.results.full_disks_that_end_etcd += 1;
                }
                Ok(())
            }
            Failure::KillEtcdLeader
            | Failure::KillLeader
            | Failure::PauseLeader
            | Failure::EndLeader
            | Failure::CutLeader
            | Failure::ResetHost => {
                self.cluster.etcd()?.kill(member)?;
                self.wait(CUT)?;
                self.cluster.etcd()?.restart(member)
            }
        }
    }

    /// Waits, while managers that end are started again, as their service does.
    fn wait(&mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.restart_ended()?;
            clock::pause(Duration::from_millis(20));
        }
        Ok(())
    }

    fn until_ended(&mut self, name: &str) -> Result<()> {
        until("the deposed leader to end", SOON, || {
            Ok(self.cluster.has_ended(name)?.then_some(()))
        })
    }

    /// Starts managers again that have ended, as their service would.
    fn restart_ended(&mut self) -> Result<()> {
        for n in 1..=HOSTS {
            if self.cluster.has_ended(&format!("rm-{n}"))? {
                self.cluster.start_manager(n)?;
            }
        }
        Ok(())
    }

    /// The tasks of which the manager knows that they have finished.
    fn finished_tasks(&self, app: &AppId) -> Result<BTreeSet<String>> {
        let job = self.cluster.app(app)?.job.context("no job")?;
        let done = job.tasks.iter().filter(|row| row.state == TaskState::Done);
        Ok(done.map(|row| row.task.to_string()).collect())
    }

    /// Checks that each application that was accepted since the last check is known, and ends it.
    fn check_submissions(&mut self, n: u32, submissions: &SubmissionProbe) -> Result<()> {
        for app in submissions.take() {
            self.results.accepted += 1;
            let killed = self.cluster.call(self.cluster.client().kill(&app, None));
            match killed {
                Ok(_) => {}
                Err(error) if error.code() == Some(ErrorCode::HR0404) => {
                    self.note(n, format!("{app} was accepted and is unknown"));
                    self.results.lost += 1;
                }
                Err(error) => return Err(error).context("an accepted application"),
            }
        }
        Ok(())
    }

    /// `once` are the tasks that may not have run twice; all if absent.
    fn judge(
        &mut self,
        n: u32,
        view: &AppView,
        log: &WorkLog,
        once: Option<&BTreeSet<String>>,
    ) -> Result<()> {
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
            .filter(|(task, n)| **n > 1 && once.is_none_or(|once| once.contains(*task)))
            .map(|(t, _)| t)
            .collect();
        self.results.twice += repeated.len() as u64;
        if totals.done != wanted || totals.memory_kills < KILLED || !repeated.is_empty() {
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
