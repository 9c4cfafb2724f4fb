//! Live jobs on real daemons: tasks go through the channel of the resource manager, each result
//! arrives once over restarts of the resource manager and of the master, and a job without a client
//! ends.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use headroom_client::{SubmissionChannel, SubmissionEvent, SubmissionOptions};
use headroom_types::{AppId, Bytes, ExitCharge, Name};
use headroom_wire::v1::apps::AppState;
use headroom_wire::v1::error::ErrorCode;
use headroom_wire::v1::submission::{SubmittedTask, SubmittedTaskOutcome, SubmittedTaskResult};
use integration::cluster::{Cluster, ContainerOwner, JOB, SOON, until};
use integration::jobs::{JobFile, WorkLog};
use integration::programs;

/// Number of tasks.
const TASKS: usize = 200;
/// The task that needs five times its memory.
const LARGE: usize = 77;
/// Memory of a task.
const SHARE: Bytes = Bytes::from_mib(32);

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A live job whose tasks run the workload.
fn job(lease: &str, log: &WorkLog) -> JobFile {
    let program = programs::path("workload").expect("the program");
    let command = [
        program.to_str().expect("UTF-8"),
        "run",
        "--log",
        log.path().to_str().expect("UTF-8"),
    ];
    JobFile::new("live", 2, 4, SHARE)
        .live(lease)
        .live_stage("part", &command)
}

/// A client of a live job, with all results so far.
struct JobClient {
    channel: SubmissionChannel,
    results: BTreeMap<String, SubmittedTaskResult>,
    accepted: usize,
    connections: usize,
    over: Option<bool>,
}

impl JobClient {
    fn new(cluster: &Cluster, app: &AppId) -> JobClient {
        let options = SubmissionOptions {
            client: "test".into(),
            after: 0,
            give_up_after: JOB,
        };
        let client = cluster.client().clone();
        JobClient {
            channel: SubmissionChannel::new(client, app.clone(), &options).expect("a channel"),
            results: BTreeMap::new(),
            accepted: 0,
            connections: 0,
            over: None,
        }
    }

    fn add(&mut self, tasks: impl IntoIterator<Item = (String, Vec<String>)>) {
        for (key, args) in tasks {
            let task = SubmittedTask {
                key,
                args,
                ..SubmittedTask::default()
            };
            self.channel.add_task(name("part"), task).expect("fits");
        }
    }

    /// Processes events until the condition holds.
    fn until(&mut self, cluster: &Cluster, what: &str, holds: impl Fn(&JobClient) -> bool) {
        let ends = async {
            while !holds(self) {
                let event = self.channel.next().await.expect("the master is reachable");
                self.take(event.unwrap_or_else(|| panic!("the job ended before {what}")));
            }
        };
        let in_time = cluster.call(async { tokio::time::timeout(JOB, ends).await });
        in_time.unwrap_or_else(|_| panic!("timeout while waiting for {what}"));
    }

    fn take(&mut self, event: SubmissionEvent) {
        match event {
            SubmissionEvent::Ended(result) => {
                self.channel.acknowledge(result.cursor);
                let before = self.results.insert(result.key.clone(), *result);
                assert_eq!(before, None, "a result arrived twice");
            }
            SubmissionEvent::TasksAccepted { keys } => self.accepted += keys.len(),
            SubmissionEvent::Connected { .. } => self.connections += 1,
            SubmissionEvent::Over {
                succeeded,
                diagnostics,
            } => {
                assert!(succeeded, "{diagnostics}");
                self.over = Some(succeeded);
            }
            refused @ (SubmissionEvent::TasksRefused { .. }
            | SubmissionEvent::StageRefused { .. }
            | SubmissionEvent::Refused { .. }) => panic!("{refused:?}"),
            SubmissionEvent::StageAccepted { .. } | SubmissionEvent::States { .. } => {}
        }
    }
}

/// Ends the process of the job's master with SIGKILL.
fn kill_master(cluster: &Cluster, app: &AppId) {
    let master = until("the container of the master", SOON, || {
        let masters = cluster.live_containers(app, ContainerOwner::Master)?;
        Ok(masters.into_iter().next())
    });
    let pid = cluster.container_pid(&master.expect("a master"));
    Cluster::kill_process(pid.expect("a process")).expect("kills");
}

#[test]
fn each_result_arrives_once_over_restarts() {
    let mut cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let app = cluster.submit(job("60s", &log).text()).expect("submits");
    let mut client = JobClient::new(&cluster, &app);
    let mib = |at: usize| if at == LARGE { "160" } else { "4" };
    client.add((0..TASKS).map(|at| {
        let args = ["--mib", mib(at), "--over-ms", "200"];
        (format!("k{at}"), args.map(str::to_owned).to_vec())
    }));
    client.until(&cluster, "the first results", |c| {
        c.results.len() >= TASKS / 8
    });
    cluster.kill_daemon("resourcemanager").expect("kills");
    cluster.start_resource_manager().expect("starts again");
    client.until(&cluster, "results over the new resource manager", |c| {
        c.results.len() >= TASKS / 3 && c.connections >= 2
    });
    kill_master(&cluster, &app);
    client.until(
        &cluster,
        "a connection to the second run of the master",
        |c| c.connections >= 3,
    );
    client.until(&cluster, "all results", |c| c.results.len() == TASKS);
    assert_eq!(client.accepted, TASKS);
    client.channel.close();
    client.until(&cluster, "the end of the job", |c| c.over.is_some());
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    results_are_complete(&client.results);
    let ends = log.ends();
    assert_eq!(
        (ends.len(), ends.values().max()),
        (TASKS, Some(&1)),
        "{ends:?}"
    );
}

/// Every task succeeded, and the large one after memory kills or growth.
fn results_are_complete(results: &BTreeMap<String, SubmittedTaskResult>) {
    let failed = |result: &&SubmittedTaskResult| result.outcome != SubmittedTaskOutcome::Succeeded;
    assert_eq!(results.values().find(failed), None);
    let cursors: BTreeSet<u64> = results.values().map(|result| result.cursor).collect();
    assert_eq!(cursors.len(), TASKS);
    let large = &results[&format!("k{LARGE}")];
    let last = large.attempts.last().expect("an attempt");
    assert!(last.profile.memory() >= Bytes::from_mib(160), "{last:?}");
    let killed = large.attempts.iter().any(|attempt| {
        let reason = attempt.reason;
        reason.is_some_and(|reason| reason.charge() == ExitCharge::Memory)
    });
    assert!(killed || !last.grown.is_empty(), "{large:?}");
}

#[test]
fn a_job_ends_after_its_lease_without_a_client() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let app = cluster.submit(job("3s", &log).text()).expect("submits");
    let gate = cluster.dir().join("gate");
    let mut client = Command::new(programs::path("rmctl").expect("the program"))
        .args(["--addr", &cluster.url(), "job", "add", &app.to_string()])
        .args(["--stage", "part", "--wait", "--", "--until"])
        .arg(&gate)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let started = until("the task to run", JOB, || {
        Ok(log.started().first().copied())
    });
    let pid = started.expect("runs");
    client.kill().expect("kills");
    client.wait().expect("ends");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Failed, "{}", end.diagnostics);
    until("the containers to end", SOON, || {
        let executors = cluster.live_containers(&app, ContainerOwner::Executors)?;
        let masters = cluster.live_containers(&app, ContainerOwner::Master)?;
        let process = std::path::PathBuf::from(format!("/proc/{pid}"));
        Ok((executors.is_empty() && masters.is_empty() && !process.exists()).then_some(()))
    })
    .expect("nothing is left");
    let refused = cluster
        .call(cluster.client().open_channel(&app))
        .expect_err("the application has ended");
    assert_eq!(refused.code(), Some(ErrorCode::HR0419), "{refused}");
}

#[test]
fn the_command_line_adds_cancels_and_closes() {
    let cluster = Cluster::of_one().expect("a cluster");
    let log = WorkLog::at(cluster.dir().join("work.log"));
    let app = cluster.submit(job("60s", &log).text()).expect("submits");
    let id = app.to_string();
    let ran = |arguments: &[&str]| {
        let ran = cluster.rmctl(arguments).expect("runs");
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    };
    let added = ran(&[
        "job", "add", &id, "--stage", "part", "--wait", "--", "--mib", "2",
    ]);
    assert!(added.contains("succeeded · 1 attempt"), "{added}");
    let gate = cluster.dir().join("gate");
    let gate = gate.to_str().expect("UTF-8");
    ran(&[
        "job", "add", &id, "--stage", "part", "--key", "long", "--", "--until", gate,
    ]);
    let cancelled = ran(&["job", "cancel-tasks", &id, "long"]);
    assert!(cancelled.contains("cancelled"), "{cancelled}");
    let failed = cluster
        .rmctl(&[
            "job", "add", &id, "--stage", "part", "--wait", "--", "--exit", "3",
        ])
        .expect("runs");
    assert_eq!(failed.code, 1, "{}{}", failed.stdout, failed.stderr);
    ran(&["job", "close", &id]);
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(
        end.state,
        AppState::Failed,
        "a task failed: {}",
        end.diagnostics
    );
    let late = cluster
        .rmctl(&["job", "add", &id, "--stage", "part", "--", "--mib", "2"])
        .expect("runs");
    assert_eq!(late.code, 4, "{}{}", late.stdout, late.stderr);
}

#[test]
fn a_job_with_a_fixed_list_of_tasks_has_no_channel() {
    let cluster = Cluster::of_one().expect("a cluster");
    let fixed = JobFile::new("fixed", 1, 1, SHARE).stage("nap", 1, &["sleep", "600"], "");
    let app = cluster.submit(fixed.text()).expect("submits");
    let opened = async {
        let open = cluster.client().open_channel(&app);
        tokio::time::timeout(Duration::from_secs(60), open).await
    };
    let refused = cluster
        .call(opened)
        .expect("in time")
        .expect_err("is not live");
    assert_eq!(refused.code(), Some(ErrorCode::HR0418), "{refused}");
}
