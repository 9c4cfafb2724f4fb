//! A job whose application master and one of two executors are on the same node, which is lost with
//! all its processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use headroom_rm_store::check::check;
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::{AppState, AppView};

use crate::cluster::{
    Cluster, ContainerOwner, EtcdSetup, IN_RESOURCE_MANAGER, NodeShape, SOON, until,
};
use crate::jobs::{JobFile, WorkLog};
use crate::object_store::ObjectStoreServer;
use crate::sweep;

/// Tasks that have ended before the node is lost.
pub const QUICK: u32 = 24;
/// Tasks that run when the node is lost, two on each node.
pub const RUNNING: u32 = 4;
/// All tasks that wait at the gate.
pub const GATED: u32 = 8;
/// Directory of shared journals, in that of the cluster.
pub const JOURNALS: &str = "journals";
/// The lease of a leader of several resource managers.
const LEASE: Duration = Duration::from_secs(1);
/// The daemon that keeps the state.
const MANAGER: &str = "resourcemanager";
/// A node is lost after three seconds instead of thirty.
const IMPATIENT: &str = "suspect = \"1s\"\nunreachable = \"2s\"\nlost = \"3s\"\n";

/// The end of the job.
#[derive(Clone, Debug)]
pub struct LostNodeResults {
    /// Finished tasks that ran again.
    pub rerun_finished: u32,
    /// Running tasks that ran again.
    pub rerun_running: u32,
    /// Running tasks of the other node, before the loss and after the next master had registered.
    pub on_other_node: (BTreeSet<i32>, BTreeSet<i32>),
    /// The ended application.
    pub end: AppView,
}

impl LostNodeResults {
    /// Checks that the next attempt of the master continued the job.
    pub fn check_continued(self) -> Result<()> {
        let (before, after) = &self.on_other_node;
        ensure!(
            after == before,
            "the other executor and its tasks run on: {self:?}"
        );
        ensure!(
            self.rerun_finished == 0,
            "no finished task ran again: {self:?}"
        );
        let of_lost_node = RUNNING / 2;
        ensure!(
            self.rerun_running == of_lost_node,
            "only tasks of the lost node: {self:?}"
        );
        let done = self.end.job.context("no job")?.totals.done;
        ensure!(done == QUICK + GATED, "{done} tasks are done");
        Ok(())
    }
}

/// The running job.
#[derive(Debug)]
pub struct LostNode {
    /// Its cluster.
    pub cluster: Cluster,
    app: AppId,
    log: WorkLog,
    gate: PathBuf,
    /// The node of the master.
    lost: String,
}

impl LostNode {
    /// Starts a cluster and the job. `journals` is [`JOURNALS`], [`IN_RESOURCE_MANAGER`], or `None` for
    /// journals on each node.
    pub fn begin(name: &str, journals: Option<&str>) -> Result<Self> {
        let cluster = Cluster::start_sharing_journals(&nodes(), IMPATIENT, journals)?;
        LostNode::begin_on(cluster, name)
    }

    /// Starts a cluster of two resource managers, and the job. Journals are in the state of the
    /// managers: in an etcd with TLS, client certificates and users.
    pub fn begin_in_secured_etcd(name: &str) -> Result<Self> {
        let setup = EtcdSetup {
            secured: true,
            manager_keys: IMPATIENT.to_owned(),
            agent_keys: format!("[masters]\njournals = {IN_RESOURCE_MANAGER:?}\n"),
            ..EtcdSetup::default()
        };
        let cluster = Cluster::start_replicated_with(&nodes(), (2, 1), LEASE, &setup)?;
        LostNode::begin_on(cluster, name)
    }

    /// Starts a cluster with journals in this object store, and the job.
    pub fn begin_in_object_store(name: &str, store: &ObjectStoreServer) -> Result<Self> {
        let cluster = Cluster::start_with_object_store(&nodes(), IMPATIENT, store)?;
        LostNode::begin_on(cluster, name)
    }

    fn begin_on(cluster: Cluster, name: &str) -> Result<Self> {
        let log = WorkLog::at(cluster.dir().join("work.log"));
        let gate = cluster.dir().join("gate");
        let path = gate.to_str().context("UTF-8")?;
        let text = JobFile::new(name, 2, 2, Bytes::from_mib(32))
            .workload("quick", QUICK, log.path(), &["--mib", "4"])?
            .workload("gated", GATED, log.path(), &["--mib", "4", "--until", path])?
            .text()
            .replace(
                "name = \"gated\"\n",
                "name = \"gated\"\nafter = [\"quick\"]\n",
            );
        let app = cluster.submit(&text)?;
        until("the tasks before the gate to run", SOON, || {
            Ok((log.starts().len() == (QUICK + RUNNING) as usize).then_some(()))
        })?;
        let masters = cluster.live_containers(&app, ContainerOwner::Master)?;
        let lost = masters.first().context("no master")?.node.to_string();
        Ok(LostNode {
            cluster,
            app,
            log,
            gate,
            lost,
        })
    }

    /// Kills the resource manager and starts it again, while all running tasks continue.
    pub fn restart_manager(&mut self) -> Result<()> {
        self.cluster.kill_daemon(MANAGER)?;
        self.cluster.start_resource_manager()?;
        self.until_registered_again()
    }

    /// Kills the resource manager that leads, while all running tasks continue. Another one leads
    /// when this returns.
    pub fn replace_leader(&mut self) -> Result<()> {
        let leader = self.cluster.leading_manager()?;
        self.cluster.kill_daemon(&format!("rm-{leader}"))?;
        let next = self.cluster.leading_manager()?;
        ensure!(next != leader, "rm-{leader} was killed and leads");
        self.until_registered_again()
    }

    fn until_registered_again(&mut self) -> Result<()> {
        self.cluster.until_ready()?;
        let registered = |view: &AppView| view.master_url.is_some().then_some(());
        let what = "the master to register again";
        self.cluster.until_app(&self.app, what, SOON, registered)
    }

    /// Kills the resource manager, lets the running tasks end meanwhile, and starts it again. Waits
    /// for the end of the job. Returns the starts of tasks while no resource manager ran, and those
    /// beyond the first of each task.
    pub fn end_without_manager(&mut self) -> Result<(u32, u32)> {
        self.cluster.kill_daemon(MANAGER)?;
        fs::write(&self.gate, "").context("the gate cannot be opened")?;
        until("the running tasks to end", SOON, || {
            let ended: u32 = self.log.ends().values().sum();
            Ok((ended >= QUICK + RUNNING).then_some(()))
        })?;
        let started: u32 = self.log.starts().values().sum();
        self.cluster.start_resource_manager()?;
        self.cluster.until_ready()?;
        let end = self.cluster.until_ended(&self.app)?;
        ensure!(end.state == AppState::Finished, "{}", end.diagnostics);
        let all: u32 = self.log.starts().values().sum();
        Ok((started - QUICK - RUNNING, all - QUICK - GATED))
    }

    /// Number of groups in journals of masters that the state of the resource manager has. Ends the
    /// resource manager.
    pub fn groups_in_state(&mut self) -> Result<usize> {
        self.cluster.stop_daemon(MANAGER)?;
        let report = check(&self.cluster.state(MANAGER))?;
        ensure!(report.problems.is_empty(), "{:?}", report.problems);
        let groups = report.records.get("groups in journals of masters");
        Ok(groups.copied().unwrap_or_default())
    }

    /// Number of groups in journals of masters that etcd has.
    pub fn groups_in_etcd(&mut self) -> Result<usize> {
        let state = ["get", "--prefix", "--keys-only", "/headroom/state/"];
        let keys = self.cluster.etcd()?.etcdctl(0, &state)?;
        Ok(keys.lines().filter(|key| key.contains("/journal/")).count())
    }

    /// Kills all processes of the master's node at once, as the end of its host does, and waits for
    /// the end of the job.
    pub fn lose_node(&mut self) -> Result<LostNodeResults> {
        let before: BTreeSet<i32> = self.log.started().into_iter().filter(is_alive).collect();
        ensure!(before.len() == RUNNING as usize, "{before:?} run");
        self.cluster.kill_daemon(&self.lost)?;
        sweep::processes_of(&self.cluster.state(&self.lost));
        let left: BTreeSet<i32> = before.into_iter().filter(is_alive).collect();
        ensure!(
            left.len() == RUNNING as usize / 2,
            "half of them were there"
        );
        self.until_next_master()?;
        let still = left.iter().copied().filter(is_alive).collect();
        fs::write(&self.gate, "").context("the gate cannot be opened")?;
        let end = self.cluster.until_ended(&self.app)?;
        ensure!(end.state == AppState::Finished, "{}", end.diagnostics);
        Ok(LostNodeResults {
            rerun_finished: self.repetitions("quick/"),
            rerun_running: self.repetitions("gated/"),
            on_other_node: (left, still),
            end,
        })
    }

    fn until_next_master(&self) -> Result<()> {
        let second = |view: &AppView| {
            (view.attempt == 2 && view.state == AppState::Running && view.master_url.is_some())
                .then_some(())
        };
        let what = "the second attempt of the master";
        self.cluster.until_app(&self.app, what, SOON, second)?;
        let masters = self
            .cluster
            .live_containers(&self.app, ContainerOwner::Master)?;
        let node = masters.first().context("no master")?.node.as_str();
        ensure!(node != self.lost, "it is on the lost node");
        Ok(())
    }

    /// Starts of the tasks of a stage beyond the first of each.
    fn repetitions(&self, stage: &str) -> u32 {
        let starts = self.log.starts().into_iter();
        let of_stage = starts.filter(|(task, _)| task.starts_with(stage));
        of_stage.map(|(_, n)| n - 1).sum()
    }
}

/// Two nodes, in each of which a master and one executor fit.
fn nodes() -> [NodeShape; 2] {
    let shape = NodeShape {
        memory: Bytes::from_mib(250),
        ..NodeShape::default()
    };
    [shape; 2]
}

fn is_alive(pid: &i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| !text.is_empty())
}
