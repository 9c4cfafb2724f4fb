//! Each daemon is killed with SIGKILL during a job and restarted: the job succeeds and no task runs
//! twice.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::AppState;
use integration::cluster::{Cluster, ContainerOwner, SOON, until};
use integration::guest::Guest;
use integration::jobs::{Counts, JobFile, WorkLog};
use integration::on_host_and_in_guest;

const TASKS: u32 = 6;
const SLOTS: u32 = 2;

fn guest() -> Guest {
    Guest::new()
        .with_programs()
        .memory(Bytes::from_gib(1))
        .timeout(Duration::from_secs(280))
}

/// A cluster with a job whose first tasks run and wait at a gate.
struct RestartScenario {
    cluster: Cluster,
    app: AppId,
    log: WorkLog,
    gate: PathBuf,
}

impl RestartScenario {
    fn begin(name: &str) -> RestartScenario {
        let cluster = Cluster::of_one().expect("a cluster");
        let log = WorkLog::at(cluster.dir().join("work.log"));
        let gate = cluster.dir().join("gate");
        let arguments = ["--mib", "4", "--until", gate.to_str().expect("UTF-8")];
        let job = JobFile::new(name, 1, SLOTS, Bytes::from_mib(32));
        let job = job
            .workload("map", TASKS, log.path(), &arguments)
            .expect("a stage");
        let app = cluster.submit(job.text()).expect("submits");
        let scenario = RestartScenario {
            cluster,
            app,
            log,
            gate,
        };
        until("the first tasks to run", SOON, || {
            Ok((scenario.log.started().len() == SLOTS as usize).then_some(()))
        })
        .expect("run");
        scenario
    }

    /// Checks that the tasks that ran before still run.
    fn still_running(&self) {
        for pid in self.log.started() {
            assert!(
                PathBuf::from(format!("/proc/{pid}/cmdline")).exists(),
                "task process {pid} has ended"
            );
        }
    }

    /// Opens the gate and expects each task to have run once.
    fn ends_well(self) {
        fs::write(&self.gate, "").expect("opens the gate");
        let end = self.cluster.until_ended(&self.app).expect("ends");
        assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
        let once: Counts = (0..TASKS).map(|n| (format!("map/{n}"), 1)).collect();
        assert_eq!((self.log.starts(), self.log.ends()), (once.clone(), once));
        let job = end.job.as_ref().expect("a job");
        assert_eq!(
            (
                job.totals.done,
                job.totals.transient,
                job.totals.memory_kills
            ),
            (TASKS, 0, 0)
        );
        assert!(
            job.tasks.iter().all(|t| t.attempts.len() == 1),
            "a task was run again"
        );
    }
}

fn node_agent() {
    let mut scenario = RestartScenario::begin("agent");
    scenario.cluster.kill_daemon("node-1").expect("kills");
    scenario.still_running();
    scenario.cluster.start_node("node-1").expect("starts again");
    scenario.cluster.until_ready().expect("is ready again");
    scenario.still_running();
    scenario.ends_well();
}
on_host_and_in_guest!(agent, guest(), node_agent);

fn resource_manager() {
    let mut scenario = RestartScenario::begin("manager");
    let epoch = |s: &RestartScenario| {
        s.cluster
            .call(s.cluster.client().status())
            .expect("answers")
            .epoch
    };
    let before = epoch(&scenario);
    scenario
        .cluster
        .kill_daemon("resourcemanager")
        .expect("kills");
    scenario.still_running();
    scenario
        .cluster
        .start_resource_manager()
        .expect("starts again");
    scenario.cluster.until_ready().expect("is ready again");
    assert!(
        epoch(&scenario) > before,
        "a restarted daemon has a new epoch"
    );
    scenario.still_running();
    scenario.ends_well();
}
on_host_and_in_guest!(manager, guest(), resource_manager);

fn application_master() {
    let scenario = RestartScenario::begin("master");
    let masters = scenario
        .cluster
        .live_containers(&scenario.app, ContainerOwner::Master)
        .expect("containers");
    assert_eq!(masters.len(), 1);
    Cluster::kill_process(
        scenario
            .cluster
            .container_pid(&masters[0])
            .expect("a process"),
    )
    .expect("kills");
    let second = |view: &headroom_wire::v1::apps::AppView| {
        (view.attempt == 2 && view.state == AppState::Running && view.master_url.is_some())
            .then_some(())
    };
    scenario
        .cluster
        .until_app(&scenario.app, "the second run of the master", SOON, second)
        .expect("runs");
    scenario.still_running();
    scenario.ends_well();
}
on_host_and_in_guest!(master, guest(), application_master);

/// Both daemons at once: only their disks keep the state.
fn manager_and_agent() {
    let mut scenario = RestartScenario::begin("both");
    for daemon in ["resourcemanager", "node-1"] {
        scenario.cluster.kill_daemon(daemon).expect("kills");
    }
    scenario.still_running();
    scenario.cluster.start_node("node-1").expect("starts again");
    scenario
        .cluster
        .start_resource_manager()
        .expect("starts again");
    scenario.cluster.until_ready().expect("is ready again");
    scenario.ends_well();
}
on_host_and_in_guest!(manager_and_agent_killed, guest(), manager_and_agent);

/// A daemon exits with 0 after SIGTERM, and its containers keep running.
fn asked_to_stop() {
    let mut scenario = RestartScenario::begin("asked");
    for daemon in ["node-1", "resourcemanager"] {
        let status = scenario.cluster.stop_daemon(daemon).expect("ends");
        assert_eq!(status.code(), Some(0), "{daemon}: {status}");
    }
    scenario.still_running();
    scenario
        .cluster
        .start_resource_manager()
        .expect("starts again");
    scenario.cluster.start_node("node-1").expect("starts again");
    scenario.cluster.until_ready().expect("is ready again");
    scenario.ends_well();
}
on_host_and_in_guest!(stopped_on_request, guest(), asked_to_stop);
