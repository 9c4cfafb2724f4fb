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
struct Story {
    cluster: Cluster,
    app: AppId,
    log: WorkLog,
    gate: PathBuf,
}

impl Story {
    fn begin(name: &str) -> Story {
        let cluster = Cluster::of_one().expect("a cluster");
        let log = WorkLog::at(cluster.dir().join("work.log"));
        let gate = cluster.dir().join("gate");
        let arguments = ["--mib", "4", "--until", gate.to_str().expect("UTF-8")];
        let job = JobFile::new(name, 1, SLOTS, Bytes::from_mib(32));
        let job = job
            .workload("map", TASKS, log.path(), &arguments)
            .expect("a stage");
        let app = cluster.submit(job.text()).expect("submits");
        let story = Story {
            cluster,
            app,
            log,
            gate,
        };
        until("the first tasks to run", SOON, || {
            Ok((story.log.started().len() == SLOTS as usize).then_some(()))
        })
        .expect("run");
        story
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
    let mut story = Story::begin("agent");
    story.cluster.kill_daemon("node-1").expect("kills");
    story.still_running();
    story.cluster.start_node("node-1").expect("starts again");
    story.cluster.until_ready().expect("is ready again");
    story.still_running();
    story.ends_well();
}
on_host_and_in_guest!(agent, guest(), node_agent);

fn resource_manager() {
    let mut story = Story::begin("manager");
    let epoch = |s: &Story| {
        s.cluster
            .call(s.cluster.client().status())
            .expect("answers")
            .epoch
    };
    let before = epoch(&story);
    story.cluster.kill_daemon("resourcemanager").expect("kills");
    story.still_running();
    story
        .cluster
        .start_resource_manager()
        .expect("starts again");
    story.cluster.until_ready().expect("is ready again");
    assert!(epoch(&story) > before, "a restarted daemon has a new epoch");
    story.still_running();
    story.ends_well();
}
on_host_and_in_guest!(manager, guest(), resource_manager);

fn application_master() {
    let story = Story::begin("master");
    let masters = story
        .cluster
        .live_containers(&story.app, ContainerOwner::Master)
        .expect("containers");
    assert_eq!(masters.len(), 1);
    Cluster::kill_process(story.cluster.container_pid(&masters[0]).expect("a process"))
        .expect("kills");
    let second = |view: &headroom_wire::v1::apps::AppView| {
        (view.attempt == 2 && view.state == AppState::Running && view.master_url.is_some())
            .then_some(())
    };
    story
        .cluster
        .until_app(&story.app, "the second run of the master", SOON, second)
        .expect("runs");
    story.still_running();
    story.ends_well();
}
on_host_and_in_guest!(master, guest(), application_master);

/// Both daemons at once: only their disks keep the state.
fn manager_and_agent() {
    let mut story = Story::begin("both");
    for daemon in ["resourcemanager", "node-1"] {
        story.cluster.kill_daemon(daemon).expect("kills");
    }
    story.still_running();
    story.cluster.start_node("node-1").expect("starts again");
    story
        .cluster
        .start_resource_manager()
        .expect("starts again");
    story.cluster.until_ready().expect("is ready again");
    story.ends_well();
}
on_host_and_in_guest!(manager_and_agent_killed, guest(), manager_and_agent);

/// A daemon exits with 0 after SIGTERM, and its containers keep running.
fn asked_to_stop() {
    let mut story = Story::begin("asked");
    for daemon in ["node-1", "resourcemanager"] {
        let status = story.cluster.stop_daemon(daemon).expect("ends");
        assert_eq!(status.code(), Some(0), "{daemon}: {status}");
    }
    story.still_running();
    story
        .cluster
        .start_resource_manager()
        .expect("starts again");
    story.cluster.start_node("node-1").expect("starts again");
    story.cluster.until_ready().expect("is ready again");
    story.ends_well();
}
on_host_and_in_guest!(stopped_on_request, guest(), asked_to_stop);
