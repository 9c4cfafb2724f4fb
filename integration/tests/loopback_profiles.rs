//! Cluster profiles on real daemons: a job keeps its size from the submission, although the profile
//! changes and its master restarts.

use std::process::Command;

use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::{AppState, AppView, ContainerView};
use integration::cluster::{Cluster, ContainerOwner, SOON};

/// Two stages with executors of one cluster profile each. The second stage starts after a write to
/// the pipe.
fn job(pipe: &str) -> String {
    format!(
        "version = 1\nname = \"named\"\n[profiles.late]\nfrom = \"slim\"\ncpus = 0.25\n\
         [executors.first]\nprofile = \"slim\"\nslots = 1\nreserve = \"96MiB\"\n\
         [executors.second]\nprofile = \"late\"\nslots = 1\nreserve = \"96MiB\"\n\
         [[stage]]\nname = \"wait\"\nexecutors = \"first\"\ncommand = [\"cat\", \"{pipe}\"]\n\
         [[stage]]\nname = \"late\"\nexecutors = \"second\"\nafter = [\"wait\"]\ncommand = [\"true\"]\n"
    )
}

fn executors(cluster: &Cluster, app: &AppId) -> Vec<ContainerView> {
    let all: Vec<ContainerView> = cluster
        .call(cluster.client().containers(Some(app)))
        .expect("lists");
    all.into_iter().filter(|c| c.request.is_some()).collect()
}

fn waits(view: &AppView) -> Option<()> {
    view.job
        .as_ref()
        .filter(|job| job.totals.running == 1)
        .map(|_| ())
}

#[test]
fn a_job_keeps_the_size_of_a_changed_profile() {
    let cluster = Cluster::of_one().expect("a cluster");
    let set = |memory: &str| {
        let set = cluster
            .rmctl(&[
                "profile", "set", "slim", "--memory", memory, "--cpus", "0.5",
            ])
            .expect("runs");
        assert_eq!(set.code, 0, "{}{}", set.stdout, set.stderr);
    };
    let pipe = cluster.dir().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .expect("runs")
            .success()
    );
    let file = cluster.dir().join("named.toml");
    std::fs::write(&file, job(&pipe.display().to_string())).expect("writes");
    let unknown = cluster
        .rmctl(&["submit", &file.display().to_string()])
        .expect("runs");
    assert_eq!(
        (
            unknown.code,
            unknown.stderr.contains("there is no profile \"slim\"")
        ),
        (2, true),
        "{}",
        unknown.stderr
    );

    set("128MiB");
    let app = cluster.submit_file(&file).expect("submits");
    cluster
        .until_app(&app, "the first stage to run", SOON, waits)
        .expect("runs");
    set("160MiB");
    let master = cluster
        .live_containers(&app, ContainerOwner::Master)
        .expect("lists");
    Cluster::kill_process(cluster.container_pid(&master[0]).expect("a process")).expect("kills");
    let second = |view: &AppView| (view.attempt == 2).then_some(()).and_then(|()| waits(view));
    cluster
        .until_app(&app, "its next master to go on", SOON, second)
        .expect("goes on");
    std::fs::write(&pipe, "go\n").expect("writes");
    let end = cluster.until_ended(&app).expect("ends");
    assert_eq!(end.state, AppState::Finished, "{}", end.diagnostics);
    let sizes: Vec<Bytes> = executors(&cluster, &app)
        .iter()
        .map(|c| c.resource.memory)
        .collect();
    assert!(
        sizes.len() >= 2 && sizes.iter().all(|size| *size == Bytes::from_mib(128)),
        "{sizes:?}"
    );

    let plan = cluster
        .rmctl(&["job", "plan", &file.display().to_string()])
        .expect("runs");
    assert!(
        plan.stdout.contains("profile slim: 160 MiB"),
        "the next one has the new size: {}{}",
        plan.stdout,
        plan.stderr
    );
    let unset = cluster.rmctl(&["profile", "unset", "slim"]).expect("runs");
    assert_eq!(unset.code, 0, "{}", unset.stderr);
}
