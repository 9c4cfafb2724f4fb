//! Unforked Apache Spark on real daemons: results equal, tasks that ran out of memory cured in the
//! right dimension, and nothing left behind.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use headroom_types::{AppId, Bytes, Dimension, ExitReason};
use headroom_wire::v1::apps::{AppState, AppView, AttemptView};
use headroom_wire::v1::job::TaskRow;
use integration::background::last_lines;
use integration::cluster::{Cluster, NodeShape, SOON, free_port, until};
use integration::spark::{
    APPLICATION, SparkInstallation, VERSIONS, WaitingJob, ended_clean, job_file, lines_of,
    master_url, only_app, two_nodes, versions_with, with_memory_failures, without_containers,
};

/// Enough for two executors of 896 MiB and a larger one beside them.
fn shape() -> NodeShape {
    NodeShape {
        memory: Bytes::from_mib(6144),
        cpus: 8,
        enforcer: None,
    }
}

#[test]
fn a_job_with_shuffles_and_sql_gives_the_right_results() -> Result<()> {
    for version in versions_with(&VERSIONS) {
        let spark = SparkInstallation::of(&version)?;
        let cluster = Cluster::start(&[shape()])?;
        let output = spark.submit(&master_url(&cluster), &[], "basics.py", &[])?;
        let app = ended_clean(&cluster, &output)?;
        shows_its_part_of_the_log(&cluster, &app.id)?;
        let results = lines_of(&output, "RESULT");
        ensure!(
            results
                == [
                    "pi 70698",
                    "words [('be', 1000), ('is', 500), ('not', 500), ('or', 500), ('question', 500), \
                     ('that', 500), ('the', 500), ('to', 1000)]",
                    "sql [('k0', 1819), ('k1', 1819), ('k10', 1818), ('k2', 1818), ('k3', 1818), \
                     ('k4', 1818), ('k5', 1818), ('k6', 1818), ('k7', 1818), ('k8', 1818), ('k9', 1818)]",
                ],
            "{version}: {results:#?}"
        );
        let job = app.job.context("a view of the job")?;
        ensure!(
            job.totals.memory_kills == 0 && job.totals.failed == 0,
            "{job:#?}"
        );
        ensure!(job.totals.done >= 14, "{} tasks", job.totals.done);
    }
    Ok(())
}

/// The log of a task is a part of the log of its executor, with a note that names all of it.
fn shows_its_part_of_the_log(cluster: &Cluster, app: &AppId) -> Result<()> {
    let printed = cluster.rmctl(&["logs", &format!("{app}/stage-0/1")])?;
    ensure!(printed.code == 0, "{printed:?}");
    let first = printed.stdout.lines().next().unwrap_or_default();
    ensure!(
        first.contains("task 1.0 in stage 0.0 (TID 1)"),
        "{printed:?}"
    );
    ensure!(
        printed.stderr.contains("is shared with other tasks"),
        "{printed:?}"
    );
    Ok(())
}

#[test]
fn a_skewed_group_by_fails_on_stock_spark() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    // Executors that fail in a row would else end the application before a task failed four times.
    let endless = ["spark.deploy.maxExecutorRetries=-1"];
    let stock = spark.submit("local-cluster[2,2,896]", &endless, "skew.py", &["10000"])?;
    ensure!(
        stock.code != 0 && stock.stderr.contains("failed 4 times"),
        "stock Spark: {}\n{}",
        stock.code,
        last_lines(&stock.stderr, 30)
    );
    Ok(())
}

#[test]
fn a_skewed_group_by_finishes_with_more_heap_for_three_tasks() -> Result<()> {
    for version in versions_with(&["4.1.4"]) {
        // Spark 4.3 collects the same groups in less than half of the heap.
        let rows = if version.starts_with("4.3.") {
            25_000
        } else {
            10_000
        };
        finishes_with_more_heap_for_three_tasks(&SparkInstallation::of(&version)?, rows)?;
    }
    Ok(())
}

fn finishes_with_more_heap_for_three_tasks(spark: &SparkInstallation, rows: u32) -> Result<()> {
    let cluster = Cluster::start(&[shape()])?;
    let output = spark.submit(&master_url(&cluster), &[], "skew.py", &[&rows.to_string()])?;
    let app = ended_clean(&cluster, &output)?;
    let results = lines_of(&output, "RESULT");
    ensure!(results == [skew_result(rows)], "{results:?}");
    let failed = with_memory_failures(&app);
    ensure!(
        !failed.is_empty(),
        "{}: no task ran out of memory:\n{}",
        spark.home().display(),
        last_lines(&output.stderr, 60)
    );
    for attempt in failed.iter().flat_map(|row| &row.attempts) {
        let right = matches!(attempt.dimension, None | Some(Dimension::Heap));
        ensure!(right, "{attempt:#?}");
    }
    // Any task of a full executor may see the error first. Alone, only the large ones do.
    let larger: Vec<&TaskRow> = failed
        .into_iter()
        .filter(|row| row.profile.heap > Bytes::from_mib(512))
        .collect();
    ensure!(!larger.is_empty(), "no task got a larger executor");
    for row in larger {
        ensure!([5, 17, 29].contains(&row.task.index), "{row:#?}");
        // Only the heap grows: the configured overhead is 384 MiB.
        ensure!(row.profile.overhead == Bytes::from_mib(384), "{row:#?}");
    }
    Ok(())
}

/// The sum over all rows of `skew.py` with `rows` rows in each ordinary group: 37 of these, and 3 of
/// eight times as many.
fn skew_result(rows: u32) -> String {
    format!("[Row(sum(key)=780, sum(n)={}, sum(l)=40000)]", 61 * rows)
}

#[test]
fn the_second_run_of_an_application_starts_with_the_sizes_that_the_first_one_needed() -> Result<()>
{
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start(&[shape()])?;
    // One task at a time has a whole heap: then the same tasks run out of it in every run.
    let settings = ["spark.executor.cores=1"];
    let mut runs = Vec::new();
    for _ in 0..2 {
        let output = spark.submit(&master_url(&cluster), &settings, "skew.py", &["10000"])?;
        runs.push(ended_clean(&cluster, &output)?);
        ensure!(
            lines_of(&output, "RESULT") == [skew_result(10_000)],
            "{}",
            output.stdout
        );
    }
    let sizes = |app: &AppView| -> Vec<(String, Bytes)> {
        let rows = app.job.iter().flat_map(|job| &job.tasks);
        rows.filter(|row| row.rung > 1)
            .map(|row| (row.task.to_string(), row.profile.memory()))
            .collect()
    };
    let failed = with_memory_failures(&runs[0]);
    ensure!(!failed.is_empty(), "the first run learns");
    ensure!(
        with_memory_failures(&runs[1]).is_empty(),
        "the second run has no memory failure: {:#?}",
        with_memory_failures(&runs[1])
    );
    ensure!(
        sizes(&runs[0]) == sizes(&runs[1]),
        "the same tasks have the same sizes: {:#?} {:#?}",
        sizes(&runs[0]),
        sizes(&runs[1])
    );
    let suggested = cluster.rmctl(&["job", "suggest", "skew"])?;
    ensure!(
        suggested
            .stdout
            .contains("start with the memory that they needed in an earlier job: 3"),
        "{suggested:?}"
    );
    Ok(())
}

#[test]
fn a_python_worker_that_grows_slowly_gets_a_larger_container_before_it_is_killed() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start(&[shape()])?;
    let settings = ["spark.executor.instances=1", "spark.executor.cores=1"];
    let output = spark.submit(&master_url(&cluster), &settings, "slow_growth.py", &[])?;
    let app = ended_clean(&cluster, &output)?;
    ensure!(
        lines_of(&output, "RESULT") == ["[(True, True, True)]"],
        "{}",
        output.stdout
    );
    ensure!(with_memory_failures(&app).is_empty(), "{app:#?}");
    ensure!(
        output
            .stderr
            .contains("is near its limit of 896 MiB: its container grows to 1088 MiB"),
        "{}",
        last_lines(&output.stderr, 40)
    );
    let events = cluster.rmctl(&["events", "--reason", "ContainerResized"])?;
    ensure!(events.stdout.contains("has 1.1 GiB"), "{}", events.stdout);
    Ok(())
}

#[test]
fn a_python_worker_that_fills_the_container_runs_again_with_more_overhead() -> Result<()> {
    for version in VERSIONS {
        let spark = SparkInstallation::of(version)?;
        let cluster = Cluster::start(&[shape()])?;
        let settings = ["spark.headroom.growInPlace=false", "spark.executor.cores=1"];
        let output = spark.submit(
            &master_url(&cluster),
            &settings,
            "python_memory.py",
            &["900"],
        )?;
        let app = ended_clean(&cluster, &output)?;
        ensure!(
            lines_of(&output, "RESULT") == ["28"],
            "{version}: {}",
            output.stdout
        );
        let failed = with_memory_failures(&app);
        ensure!(
            failed.len() == 1 && failed[0].task.index == 3,
            "{version}: {failed:#?}"
        );
        let kill = failed[0]
            .attempts
            .iter()
            .find(|a| a.dimension.is_some())
            .context("a memory failure")?;
        ensure!(kill.dimension == Some(Dimension::Overhead), "{kill:#?}");
        ensure!(kill.evidence.is_some(), "{kill:#?}");
        let last = failed[0].attempts.last().context("an attempt")?;
        ensure!(last.profile.heap == Bytes::from_mib(512), "{last:#?}");
        ensure!(last.profile.overhead >= Bytes::from_mib(768), "{last:#?}");
        ensure!(
            output.stderr.contains("out of overhead memory"),
            "{version}"
        );
        ensure!(
            output
                .stderr
                .contains("ran out of overhead memory with 896 MiB"),
            "{version}"
        );
    }
    Ok(())
}

#[test]
fn off_heap_memory_that_ran_out_is_cured_and_the_history_server_reads_the_event_log() -> Result<()>
{
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start(&[shape()])?;
    let events = tempfile::tempdir()?;
    let log = format!("spark.eventLog.dir=file://{}", events.path().display());
    let settings = [
        "spark.executor.instances=1",
        "spark.memory.offHeap.enabled=true",
        "spark.memory.offHeap.size=1m",
        // The first buffer of the sort takes 2 MiB, and its rows need a page beside it.
        "spark.shuffle.sort.initialBufferSize=131072",
        "spark.eventLog.enabled=true",
        &log,
    ];
    let output = spark.submit(&master_url(&cluster), &settings, "off_heap.py", &[])?;
    let app = ended_clean(&cluster, &output)?;
    ensure!(
        lines_of(&output, "RESULT") == ["30000 True"],
        "{}",
        output.stdout
    );
    let raised = with_memory_failures(&app);
    let [task] = raised.as_slice() else {
        anyhow::bail!("one task runs out of memory: {raised:#?}")
    };
    ensure!(
        task.rung == 3
            && task.profile.heap == Bytes::from_mib(512)
            && task.profile.overhead == Bytes::from_mib(384 + 3),
        "{task:#?}"
    );
    ensure!(
        output
            .stderr
            .contains("out of off-heap memory; the next attempt")
    );
    ensure!(
        !output.stderr.contains("ran out of heap memory"),
        "only off-heap memory ran out"
    );
    let port = free_port()?;
    let _server = spark.history_server(events.path(), port)?;
    let url = format!("http://127.0.0.1:{port}/api/v1/applications/{}", app.id);
    let page = until("the history server to show the application", SOON, || {
        let curl = Command::new("curl").args(["-sf", &url]).output()?;
        Ok(curl.status.success().then_some(curl.stdout))
    })?;
    let page = String::from_utf8(page)?;
    ensure!(
        page.contains("\"completed\" : true") && page.contains("off-heap"),
        "{page}"
    );
    Ok(())
}

#[test]
fn a_barrier_stage_runs_again_at_its_size_with_speculation_on() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start(&[shape()])?;
    let dir = tempfile::tempdir()?;
    let marker = dir.path().join("filled").display().to_string();
    let settings = [
        "spark.headroom.growInPlace=false",
        "spark.speculation=true",
        "spark.speculation.multiplier=1.1",
        "spark.speculation.quantile=0.3",
    ];
    let output = spark.submit(&master_url(&cluster), &settings, "barrier.py", &[&marker])?;
    let app = ended_clean(&cluster, &output)?;
    ensure!(lines_of(&output, "RESULT") == ["4954"], "{}", output.stdout);
    ensure!(
        output.stderr.contains("ran out of overhead memory"),
        "an executor is lost"
    );
    let raised = app.job.iter().flat_map(|job| &job.tasks);
    ensure!(
        raised.filter(|row| row.rung > 1).count() == 0,
        "its tasks have no rungs: {app:#?}"
    );
    Ok(())
}

/// A node with Spark's shuffle service, which authenticates its callers.
fn with_shuffle_service(spark: &SparkInstallation) -> Result<(Cluster, Vec<String>)> {
    let port = free_port()?;
    let configuration = format!(
        "[isolation]\nrun_as = \"agent\"\nallow_root = true\nprivate_tmp = false\n\
         [aux_services.spark-shuffle]\nmemory = \"512MiB\"\nport = {port}\n\
         command = [\"java\", \"-Xmx256m\", \"-Dspark.authenticate=true\", \
         \"-Dspark.shuffle.service.port={port}\", \"-cp\", \"{}/jars/*:{}\", \
         \"org.apache.spark.deploy.headroom.ShuffleService\"]\n",
        spark.home().display(),
        spark.plugin().display(),
    );
    let cluster = Cluster::start_configured(&[shape()], &configuration)?;
    let settings = [
        "spark.shuffle.service.enabled=true".to_owned(),
        format!("spark.shuffle.service.port={port}"),
        "spark.authenticate=true".to_owned(),
        "spark.authenticate.secret=a-secret-of-this-test".to_owned(),
    ];
    Ok((cluster, settings.to_vec()))
}

#[test]
fn no_map_task_runs_again_after_executors_and_the_shuffle_service_were_killed() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let (cluster, settings) = with_shuffle_service(&spark)?;
    // The brackets keep the pattern from matching the command line of the driver that contains it.
    let service = format!("{} .*[h]eadroom.ShuffleService", settings[1]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let output = spark.submit(
        &master_url(&cluster),
        &settings,
        "shuffle_loss.py",
        &["2", &service],
    )?;
    let app = ended_clean(&cluster, &output)?;
    ensure!(lines_of(&output, "RESULT") == ["True"], "{}", output.stdout);
    ensure!(
        lines_of(&output, "KILLED") == ["2", "1"],
        "{}",
        output.stdout
    );
    ensure!(lines_of(&output, "MAPS") == ["12"], "{}", output.stdout);
    ensure!(output.stderr.contains("was killed from outside"));
    // The agent removes the files of the application after its end.
    let dir = cluster
        .state("node-1")
        .join("apps")
        .join(app.id.to_string());
    until("the shuffle files to be removed", SOON, || {
        Ok((!dir.exists()).then_some(()))
    })
}

#[test]
fn a_job_survives_the_loss_of_a_node_with_its_shuffle_service() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let (mut cluster, java, port) = two_nodes(&spark)?;
    let java_home = format!("spark.headroom.javaHome={}", java.path().display());
    let settings = [
        java_home.as_str(),
        "spark.shuffle.service.enabled=true",
        "spark.scheduler.minRegisteredResourcesRatio=1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=200s",
        // A single counted failure would end the job.
        "spark.task.maxFailures=1",
    ];
    let (mapped, go) = (java.path().join("mapped"), java.path().join("go"));
    let files = [mapped.display().to_string(), go.display().to_string()];
    let arguments: Vec<&str> = files.iter().map(String::as_str).collect();
    let driver = spark.start(&master_url(&cluster), &settings, "node_loss.py", &arguments)?;
    until("the map side", APPLICATION, || {
        Ok(mapped.exists().then_some(()))
    })?;
    let app = only_app(&cluster)?.id;
    let all = cluster.call(cluster.client().containers(Some(&app)))?;
    let lost: Vec<_> = all
        .iter()
        .filter(|c| c.state == "running" && c.node.as_str() == "node-2")
        .collect();
    ensure!(lost.len() == 1, "an executor on each node: {all:#?}");
    let executor = cluster.container_pid(lost[0])?;
    cluster.kill_daemon("node-2")?;
    Cluster::kill_process(executor)?;
    let service = format!("spark.shuffle.service.port={port} .*[h]eadroom.ShuffleService");
    let killed = Command::new("pkill")
        .args(["-9", "-f", &service])
        .status()?;
    ensure!(killed.success(), "the shuffle service of the lost node ran");
    fs::write(&go, "")?;
    let output = driver.wait(APPLICATION)?;
    ensure!(
        output.code == 0,
        "{}\n{}",
        output.stdout,
        last_lines(&output.stderr, 60)
    );
    ensure!(lines_of(&output, "RESULT") == ["True"], "{}", output.stdout);
    ensure!(
        lines_of(&output, "AGAIN") == ["True True"],
        "only lost map outputs are computed again: {}",
        output.stdout
    );
    let app = cluster.until_ended(&app)?;
    let totals = &app.job.as_ref().context("a view of the job")?.totals;
    ensure!(totals.memory_kills == 0 && totals.failed == 0, "{app:#?}");
    Ok(())
}

#[test]
fn dynamic_allocation_goes_down_to_no_executor_and_up_again() -> Result<()> {
    let spark = SparkInstallation::of("3.5.9")?;
    let (cluster, mut settings) = with_shuffle_service(&spark)?;
    settings.extend(
        [
            "spark.dynamicAllocation.enabled=true",
            "spark.dynamicAllocation.minExecutors=0",
            "spark.dynamicAllocation.maxExecutors=2",
            "spark.dynamicAllocation.executorIdleTimeout=2s",
            "spark.dynamicAllocation.schedulerBacklogTimeout=1s",
        ]
        .map(str::to_owned),
    );
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let output = spark.submit(&master_url(&cluster), &settings, "idle.py", &[])?;
    ended_clean(&cluster, &output)?;
    let results = lines_of(&output, "RESULT");
    ensure!(
        results == ["first 1770", "idle 0", "second 1770"],
        "{results:?}"
    );
    Ok(())
}

#[test]
fn a_job_survives_the_kill_of_the_resource_manager_and_of_the_agent() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let mut cluster = Cluster::start(&[shape()])?;
    let waiting = WaitingJob::start(&spark, &cluster, &[])?;
    cluster.kill_daemon("resourcemanager")?;
    cluster.start_resource_manager()?;
    cluster.until_ready()?;
    let app = only_app(&cluster)?.id;
    cluster.kill_daemon("node-1")?;
    cluster.start_node("node-1")?;
    cluster.until_ready()?;
    until("both executors to be known again", SOON, || {
        let all = cluster.call(cluster.client().containers(Some(&app)))?;
        Ok((all.iter().filter(|c| c.state == "running").count() == 2).then_some(()))
    })?;
    waiting.end_undisturbed(&cluster)
}

/// Two queues with half of the cluster each, and quick preemption.
const TWO_QUEUES: &str = "[scheduling]\npreempt_warning = \"2s\"\npreempt_every = \"1s\"\npreempt_part = \"50%\"\n\
    [queues.spark]\nguaranteed = \"50%\"\n[queues.urgent]\nguaranteed = \"50%\"\n";

#[test]
fn a_preempted_executor_is_decommissioned_and_not_charged() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let node = NodeShape {
        memory: Bytes::from_mib(1900),
        cpus: 4,
        enforcer: None,
    };
    let cluster = Cluster::start_managed(&[node], TWO_QUEUES)?;
    let settings = [
        "spark.headroom.queue=spark",
        "spark.decommission.enabled=true",
    ];
    let waiting = WaitingJob::start(&spark, &cluster, &settings)?;
    until("both executors", APPLICATION, || {
        let all = cluster.call(cluster.client().containers(None))?;
        Ok((all.iter().filter(|c| c.state == "running").count() == 2).then_some(()))
    })?;
    let urgent = cluster.submit(
        "version = 1\nname = \"urgent\"\nqueue = \"urgent\"\n\
         [profiles.p]\nmemory = \"512MiB\"\ncpus = 1\n\
         [executors.e]\nprofile = \"p\"\nslots = 1\n\
         [[stage]]\nname = \"one\"\ncount = 1\ncommand = [\"true\"]\n",
    )?;
    let ended = cluster.until_ended(&urgent)?;
    ensure!(ended.state == AppState::Finished, "{ended:#?}");
    let output = waiting.end()?;
    ensure!(
        output.code == 0,
        "{}\n{}",
        output.stdout,
        last_lines(&output.stderr, 60)
    );
    ensure!(
        lines_of(&output, "RESULT") == ["780 True"],
        "{}",
        output.stdout
    );
    ensure!(
        output
            .stderr
            .contains("is decommissioned: preemption is announced"),
        "{}",
        last_lines(&output.stderr, 60)
    );
    Ok(())
}

#[test]
fn a_killed_driver_leaves_no_container() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start(&[shape()])?;
    let waiting = WaitingJob::start(&spark, &cluster, &[])?;
    let app = only_app(&cluster)?.id;
    Cluster::kill_process(waiting.driver.pid()?)?;
    drop(waiting);
    let ended = cluster.until_ended(&app)?;
    ensure!(ended.state == AppState::Failed, "{ended:#?}");
    without_containers(&cluster, &app)
}

#[test]
fn in_cluster_mode_a_driver_that_fills_its_heap_runs_again_with_twice_the_heap() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start(&[shape()])?;
    let (home, plugin) = (
        spark.home().display().to_string(),
        spark.plugin().display().to_string(),
    );
    let python = format!("spark.pyspark.python={}", spark.python().display());
    let job = job_file("broadcast.py").display().to_string();
    let mut arguments = vec!["spark", "submit", "--spark-home", &home];
    arguments.extend(["--plugin", &plugin, "--follow", "--driver-memory", "512m"]);
    for setting in [
        "spark.driver.host=127.0.0.1",
        "spark.executor.memory=1g",
        "spark.executor.cores=2",
        "spark.executor.instances=1",
        "spark.ui.enabled=false",
        &python,
    ] {
        arguments.extend(["--conf", setting]);
    }
    arguments.push(&job);
    let output = cluster.rmctl(&arguments)?;
    ensure!(
        output.code == 0 && output.stdout.contains("RESULT [Row(n=150000, l=75000000)]"),
        "{}\n{}",
        output.stdout,
        output.stderr
    );
    let app = only_app(&cluster)?;
    ensure!(app.state == AppState::Finished && app.managed, "{app:#?}");
    let [first, second] = app.attempts.as_slice() else {
        anyhow::bail!("two runs of the driver: {:#?}", app.attempts)
    };
    ensure!(
        first.reason == Some(ExitReason::HeapOom) && !first.charged,
        "{first:#?}"
    );
    let memory = |attempt: &AttemptView| attempt.resource.as_ref().map(|r| r.memory);
    ensure!(
        memory(first) == Some(Bytes::from_mib(896))
            && memory(second) == Some(Bytes::from_mib(1408)),
        "{:#?}",
        app.attempts
    );
    without_containers(&cluster, &app.id)
}

#[test]
fn a_secured_cluster_accepts_a_driver_with_a_token_and_refuses_one_without() -> Result<()> {
    let spark = SparkInstallation::of("4.1.4")?;
    let cluster = Cluster::start_secured(&[shape()])?;
    let token = cluster.dir().join("ann.token");
    let file = token.display().to_string();
    let created = cluster.rmctl(&[
        "acl",
        "token",
        "create",
        "--user",
        "ann",
        "--right",
        "job:read,job:submit,job:kill",
        "--out",
        &file,
    ])?;
    ensure!(created.code == 0, "{}", created.stderr);
    let here = master_url(&cluster);
    let ca = format!("spark.headroom.caFile={}", cluster.papers()?.ca().display());
    let log = refused(&spark, &here, &[&ca])?;
    ensure!(
        log.contains("could not be registered") && log.contains("HR0401"),
        "{}",
        last_lines(&log, 40)
    );
    let with_token = format!("spark.headroom.tokenFile={file}");
    let settings = [
        ca.as_str(),
        &with_token,
        "spark.authenticate=true",
        "spark.authenticate.secret=of-this-test",
        "spark.network.crypto.enabled=true",
    ];
    let output = spark.submit(&here, &settings, "python_memory.py", &["1"])?;
    let app = ended_clean(&cluster, &output)?;
    ensure!(lines_of(&output, "RESULT") == ["28"], "{}", output.stdout);
    ensure!(app.user == "ann", "{app:#?}");
    // Another user may see the application, and not the secret in the launch of its executors.
    let papers = cluster.papers()?;
    let bob = cluster.dir().join("bob.token").display().to_string();
    let created = cluster.rmctl(&[
        "acl", "token", "create", "--user", "bob", "--right", "job:read", "--out", &bob,
    ])?;
    ensure!(created.code == 0, "{}", created.stderr);
    let id = app.id.to_string();
    for (token, arguments, forbidden) in [
        (&bob, vec!["ps", &id], false),
        (&bob, vec!["request", "list", &id], true),
        (&file, vec!["request", "list", &id], false),
    ] {
        let output = papers.rmctl_as(&cluster.url(), Some(Path::new(token)), &arguments)?;
        ensure!(
            output.stderr.contains("HR0403") == forbidden,
            "{arguments:?}: {output:?}"
        );
    }
    Ok(())
}

/// Runs the smallest job, which must fail, and returns the log of its driver.
fn refused(spark: &SparkInstallation, master: &str, settings: &[&str]) -> Result<String> {
    let output = spark.submit(master, settings, "python_memory.py", &["1"])?;
    ensure!(output.code != 0, "it must fail:\n{}", output.stdout);
    Ok(format!("{}\n{}", output.stdout, output.stderr))
}

#[test]
fn mistakes_are_reported_with_their_fix() -> Result<()> {
    let (spark, other) = (
        SparkInstallation::of("4.1.4")?,
        SparkInstallation::of("3.5.9")?,
    );
    let cluster = Cluster::start(&[shape()])?;
    let here = master_url(&cluster);
    let large = ["spark.executor.memory=64g"];
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let silent = format!("spark-headroom://{}", listener.local_addr()?);
    let own_python = format!("spark.pyspark.driver.python={}", spark.python().display());
    let no_python = ["spark.pyspark.python=/nowhere/python", &own_python];
    let absent = format!("spark-headroom://127.0.0.1:{}", free_port()?);
    for (name, log, sentences) in [
        (
            "an executor larger than the cluster",
            refused(&spark, &here, &large)?,
            vec!["can never be granted", "spark.executor.memory"],
        ),
        (
            "a wrong address",
            refused(&spark, &absent, &[])?,
            vec!["could not be registered", "check the address in --master"],
        ),
        (
            "an address without a port",
            refused(&spark, "spark-headroom://rm", &[])?,
            vec!["is not of the form spark-headroom://HOST:PORT"],
        ),
        (
            "a node without the shuffle service",
            refused(&spark, &here, &["spark.shuffle.service.enabled=true"])?,
            vec!["executors in a row ended", "spark-shuffle"],
        ),
        (
            "a wrong Java",
            refused(&spark, &here, &["spark.headroom.javaHome=/nowhere"])?,
            vec!["executors in a row ended", "/nowhere/bin/java"],
        ),
        (
            "a node without the Python of the job",
            refused(&spark, &here, &no_python)?,
            vec!["Cannot run program \"/nowhere/python\""],
        ),
        (
            "a peer that accepts and never answers",
            refused(&spark, &silent, &[])?,
            vec!["could not be registered", "nothing answers there"],
        ),
        (
            "a wrong mode",
            refused(&spark, &here, &["spark.headroom.memory.mode=more"])?,
            vec!["use headroom, pinterest, uber, off"],
        ),
        (
            "the jar of another Spark",
            refused(&spark.with_plugin(other.plugin()), &here, &[])?,
            vec!["was built for Spark 3.5", "this is Spark 4.1.4"],
        ),
    ] {
        for sentence in sentences {
            ensure!(
                log.contains(sentence),
                "{name}: {sentence:?} is not in\n{}",
                last_lines(&log, 40)
            );
        }
    }
    Ok(())
}
