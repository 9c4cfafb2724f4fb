//! The node of an application master is lost, with all its processes. With a shared directory of
//! journals, the next attempt continues on another node: no finished task runs again, and the
//! executors there continue. Without it, the job begins from the start.

#![allow(missing_docs)] // a test binary has no public API

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::{AppState, AppView};
use integration::cluster::{Cluster, ContainerOwner, NodeShape, SOON, until};
use integration::jobs::{Counts, JobFile, WorkLog};
use integration::sweep;

/// Tasks that have ended before the node is lost.
const QUICK: u32 = 24;
/// Tasks that run when the node is lost, two on each node.
const RUNNING: u32 = 4;
/// All tasks that wait at the gate.
const GATED: u32 = 8;
/// A node is lost after three seconds instead of thirty.
const IMPATIENT: &str = "suspect = \"1s\"\nunreachable = \"2s\"\nlost = \"3s\"\n";
const JOURNALS: &str = "journals";

/// A job whose master and one of its two executors are on the same node.
struct LostNode {
    cluster: Cluster,
    app: AppId,
    log: WorkLog,
    gate: PathBuf,
    /// The node of the master.
    lost: String,
}

impl LostNode {
    fn begin(name: &str, journals: Option<&str>) -> LostNode {
        // A master and one executor fit.
        let shape = NodeShape {
            memory: Bytes::from_mib(250),
            ..NodeShape::default()
        };
        let cluster = Cluster::start_sharing_journals(&[shape, shape], IMPATIENT, journals)
            .expect("a cluster");
        let log = WorkLog::at(cluster.dir().join("work.log"));
        let gate = cluster.dir().join("gate");
        let until_gate = ["--mib", "4", "--until", gate.to_str().expect("UTF-8")];
        let job = JobFile::new(name, 2, 2, Bytes::from_mib(32))
            .workload("quick", QUICK, log.path(), &["--mib", "4"])
            .and_then(|job| job.workload("gated", GATED, log.path(), &until_gate))
            .expect("stages");
        let text = job.text().replace(
            "name = \"gated\"\n",
            "name = \"gated\"\nafter = [\"quick\"]\n",
        );
        let app = cluster.submit(&text).expect("submits");
        until("the tasks before the gate to run", SOON, || {
            Ok((log.starts().len() == (QUICK + RUNNING) as usize).then_some(()))
        })
        .expect("run");
        let masters = cluster.live_containers(&app, ContainerOwner::Master);
        let lost = masters.expect("containers")[0].node.to_string();
        LostNode {
            cluster,
            app,
            log,
            gate,
            lost,
        }
    }

    /// Kills all processes of the node at once, as the end of its host does.
    fn lose_node(&mut self) -> BTreeSet<i32> {
        let before: BTreeSet<i32> = self.log.started().into_iter().filter(is_alive).collect();
        assert_eq!(before.len(), RUNNING as usize);
        self.cluster.kill_daemon(&self.lost).expect("kills");
        sweep::processes_of(&self.cluster.state(&self.lost));
        let left: BTreeSet<i32> = before.into_iter().filter(is_alive).collect();
        assert_eq!(left.len(), RUNNING as usize / 2, "half of them were there");
        left
    }

    fn until_next_master(&self) {
        let second = |view: &AppView| {
            (view.attempt == 2 && view.state == AppState::Running && view.master_url.is_some())
                .then_some(())
        };
        self.cluster
            .until_app(&self.app, "the second attempt of the master", SOON, second)
            .expect("runs");
        let masters = self
            .cluster
            .live_containers(&self.app, ContainerOwner::Master);
        assert_ne!(masters.expect("containers")[0].node.as_str(), self.lost);
    }

    fn end(&self) -> AppView {
        fs::write(&self.gate, "").expect("opens the gate");
        let end = self.cluster.until_ended(&self.app).expect("ends");
        assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
        end
    }

    /// Number of starts of the tasks of a stage.
    fn starts(&self, stage: &str) -> Counts {
        let prefix = format!("{stage}/");
        let all = self.log.starts().into_iter();
        all.filter(|(task, _)| task.starts_with(&prefix)).collect()
    }
}

fn is_alive(pid: &i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| !text.is_empty())
}

#[test]
fn a_master_on_another_node_continues_its_job() {
    let mut job = LostNode::begin("moved", Some(JOURNALS));
    let adopted = job.lose_node();
    job.until_next_master();
    let still: BTreeSet<i32> = adopted.iter().copied().filter(is_alive).collect();
    assert_eq!(still, adopted, "the other executor and its tasks run on");
    let end = job.end();
    let once = |n: u32| -> Counts { (0..n).map(|i| (format!("quick/{i}"), 1)).collect() };
    assert_eq!(
        job.starts("quick"),
        once(QUICK),
        "no finished task ran again"
    );
    let again: u32 = job.starts("gated").values().map(|n| n - 1).sum();
    assert_eq!(again, RUNNING / 2, "only the tasks of the lost node");
    let totals = end.job.expect("a job").totals;
    assert_eq!(totals.done, QUICK + GATED);
    let dir = job.cluster.dir().join(JOURNALS);
    until("the journal to be removed", SOON, || {
        Ok((fs::read_dir(&dir)?.count() == 0).then_some(()))
    })
    .expect("nothing is left of an ended job");
}

#[test]
fn without_a_shared_directory_the_job_begins_from_its_start() {
    let mut job = LostNode::begin("restarted", None);
    job.lose_node();
    job.until_next_master();
    job.end();
    let again: u32 = job.starts("quick").values().map(|n| n - 1).sum();
    assert_eq!(again, QUICK, "the other node has no journal");
}
