//! Calls from Python: the overhead of one call beside other pools, a stream of calls during kills,
//! and a job with a million tasks.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use headroom_client::TaskRowScope;
use headroom_types::{AppId, Bytes};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::submission::{
    FromSubmitter, MAX_BATCH_TASKS, SubmittedTask, ToSubmitter, UPGRADE, VERSION,
};
use integration::clock;
use integration::cluster::{Cluster, ContainerOwner, NodeShape, until};
use integration::python::PythonEnvironment;
use integration::spark::{lines_of, only_app};
use serde::{Deserialize, Serialize};

use crate::agent_cost::status_kib;
use crate::instant_executor::INSTANT_EXECUTOR;
use crate::progress;

/// Calls of each pool whose overhead is measured.
const CALLS: u32 = 2000;
/// Kills of executors during the stream.
const EXECUTOR_KILLS: u32 = 8;
/// Kills of the master during the stream.
const MASTER_KILLS: u32 = 2;
/// Tasks of the large job after which the rate of acceptance is taken: later ones wait for the end of
/// others.
const ACCEPTED_TASKS: u32 = 10_000;
/// Timeout of one script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Timeout of one line of the channel.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Results.
#[derive(Debug, Serialize)]
pub(crate) struct PythonResults {
    /// Wall-clock time of trivial calls on two workers, for one call. Milliseconds.
    #[serde(flatten)]
    calls: CallTimes,
    /// Of fifty inputs, one of which needs five times the memory: results on Headroom.
    cured: u32,
    /// The same with the pool of the standard library.
    pool_finished: u32,
    /// The same with Dask.
    dask_finished: u32,
    /// Memory × time of all attempts. GiB-seconds.
    cured_gib_s: f64,
    /// Calls of the stream.
    stream_calls: u32,
    /// Results per second during the stream and its kills.
    stream_tasks_per_s: f64,
    /// Kills during the stream.
    kills: u32,
    /// Calls of the stream without a result.
    lost: u32,
    /// Successful tasks of the stream beyond its calls.
    twice: u32,
    /// Tasks per second that a master accepts from one client, in batches, until its credit is used.
    accepted_tasks_per_s: f64,
    /// Tasks of the largest job.
    large_job_tasks: u32,
    /// Largest memory of the master of that job. MiB.
    million_tasks_rss_mib: f64,
    /// Results per second in that job, from executors that start no process.
    large_job_tasks_per_s: f64,
}

/// Times of `calls.py`.
#[derive(Debug, Serialize, Deserialize)]
struct CallTimes {
    warm_call_ms: f64,
    warm_latency_p50_ms: f64,
    warm_call_in_own_process_ms: f64,
    mapped_call_ms: f64,
    cold_call_ms: f64,
    pool_call_ms: f64,
    pool_call_in_own_process_ms: f64,
    loky_call_ms: f64,
    dask_call_ms: f64,
    parsl_call_ms: f64,
}

/// Results of `large_input.py`.
#[derive(Debug, Deserialize)]
struct LargeInput {
    headroom: u32,
    pool: u32,
    dask: u32,
}

/// Results of `stream.py`.
#[derive(Debug, Deserialize)]
struct Stream {
    calls: u32,
    lost: u32,
    seconds: f64,
}

/// Streams `calls` calls and runs a job with `tasks` tasks.
pub(crate) fn measure(calls: u32, tasks: u32) -> Result<PythonResults> {
    let python = PythonEnvironment::find()?;
    progress::print_line("trivial calls on each pool");
    let times: CallTimes = run(&python, &cluster()?, "calls.py", &[&CALLS.to_string()])?;
    progress::print_line("fifty inputs, one of which needs five times the memory");
    let of_large_input = cluster()?;
    let large: LargeInput = run(&python, &of_large_input, "large_input.py", &[])?;
    let cured_gib_s = allocated_gib_s(&only_app(&of_large_input)?)?;
    drop(of_large_input);
    progress::print_line(&format!("a stream of {calls} calls during kills"));
    let (stream, kills, finished) = stream(&python, calls)?;
    progress::print_line(&format!("a job with {tasks} tasks"));
    let job = large_job(tasks)?;
    Ok(PythonResults {
        calls: times,
        cured: large.headroom,
        pool_finished: large.pool,
        dask_finished: large.dask,
        cured_gib_s,
        stream_calls: stream.calls,
        stream_tasks_per_s: f64::from(stream.calls) / stream.seconds,
        kills,
        lost: stream.lost,
        twice: finished.saturating_sub(stream.calls),
        accepted_tasks_per_s: job.accepted_per_s,
        large_job_tasks: tasks,
        million_tasks_rss_mib: job.rss_mib,
        large_job_tasks_per_s: job.ended_per_s,
    })
}

fn cluster() -> Result<Cluster> {
    Cluster::start(&[NodeShape {
        memory: Bytes::from_gib(6),
        cpus: 4,
        enforcer: None,
    }])
}

/// Runs a script and parses the JSON of its line RESULT.
fn run<T: for<'de> Deserialize<'de>>(
    python: &PythonEnvironment,
    cluster: &Cluster,
    script: &str,
    arguments: &[&str],
) -> Result<T> {
    let output = python
        .start(cluster, script, arguments)?
        .wait(SCRIPT_TIMEOUT)?;
    let lines = lines_of(&output, "RESULT");
    let line = lines
        .first()
        .with_context(|| format!("{script} has no result:\n{}", output.stderr))?;
    Ok(serde_json::from_str(line)?)
}

/// Streams calls and kills executors and the master at equal distances. Returns also the number of
/// kills and of successful tasks.
fn stream(python: &PythonEnvironment, calls: u32) -> Result<(Stream, u32, u32)> {
    let cluster = cluster()?;
    let mut script = python.start(&cluster, "stream.py", &[&calls.to_string()])?;
    let planned = EXECUTOR_KILLS + MASTER_KILLS;
    let (mut done, mut kills) = (0, 0);
    for kill in 1..=planned {
        let due = u32::try_from(u64::from(calls) * u64::from(kill) / u64::from(planned + 1))?;
        while done < due && script.is_running()? {
            clock::pause(Duration::from_millis(200));
            done = finished_tasks(&cluster)?.unwrap_or(done);
        }
        let owner = if kill % (planned / MASTER_KILLS) == 0 {
            ContainerOwner::Master
        } else {
            ContainerOwner::Executors
        };
        kills += until("a container to kill", Duration::from_secs(60), || {
            // A short stream may end before the last kill.
            Ok(match script.is_running()? {
                true => kill_one(&cluster, owner)?.map(|()| 1),
                false => Some(0),
            })
        })?;
    }
    let output = script.wait(SCRIPT_TIMEOUT)?;
    let lines = lines_of(&output, "RESULT");
    let line = lines
        .first()
        .with_context(|| format!("no result:\n{}", output.stderr))?;
    let finished = finished_tasks(&cluster)?.context("a view of the job")?;
    Ok((serde_json::from_str(line)?, kills, finished))
}

/// Memory × time of all attempts. GiB-seconds.
#[allow(clippy::cast_precision_loss)] // a measurement of a few digits
fn allocated_gib_s(app: &AppView) -> Result<f64> {
    let totals = &app.job.as_ref().context("a view of the job")?.totals;
    Ok(totals.allocated_byte_ms as f64 / 1000.0 / f64::from(1 << 30))
}

/// Number of tasks that succeeded in the newest application.
fn finished_tasks(cluster: &Cluster) -> Result<Option<u32>> {
    let apps = cluster.call(cluster.client().apps())?;
    let Some(app) = apps.last() else {
        return Ok(None);
    };
    let scope = TaskRowScope::None;
    let view = cluster.call(cluster.client().app_with(&app.id, scope))?;
    Ok(view.job.map(|job| job.totals.done))
}

/// Kills a running container of the newest application; `None` if there is none.
fn kill_one(cluster: &Cluster, owner: ContainerOwner) -> Result<Option<()>> {
    let apps = cluster.call(cluster.client().apps())?;
    let Some(app) = apps.last() else {
        return Ok(None);
    };
    let running = cluster.live_containers(&app.id, owner)?;
    let Some(container) = running.first() else {
        return Ok(None);
    };
    Cluster::kill_process(cluster.container_pid(container)?)?;
    Ok(Some(()))
}

/// Figures of the large job.
struct LargeJob {
    accepted_per_s: f64,
    ended_per_s: f64,
    rss_mib: f64,
}

/// A live job whose executors report success at once.
fn large_job(tasks: u32) -> Result<LargeJob> {
    let cluster = cluster()?;
    let program = std::env::current_exe()?;
    let app = cluster.submit(&format!(
        "version = 1\nname = \"large\"\nlive = true\n[profiles.exec]\nmemory = \"256MiB\"\ncpus = 1\n\
         [profiles.nothing]\nmemory = \"1MiB\"\n[executors.main]\nprofile = \"exec\"\ncount = 2\nslots = 64\nreserve = \"64MiB\"\n\
         program = [{:?}, {INSTANT_EXECUTOR:?}]\ntask_groups = false\n\
         [[stage]]\nname = \"nothing\"\nprofile = \"nothing\"\nenforce = \"executor\"\ncommand = [\"true\"]\n",
        program.display().to_string()
    ))?;
    let mut channel = Channel::open(&cluster, &app)?;
    let started = Instant::now();
    let mut sent = 0;
    let (mut accepted, mut accepted_at) = (0, started);
    let mut ended = BTreeSet::new();
    let mut credit = 0;
    let mut waiting = 0;
    let mut rss_mib: f64 = 0.0;
    while u32::try_from(ended.len())? < tasks {
        while sent < tasks && credit >= waiting + MAX_BATCH_TASKS {
            let size = MAX_BATCH_TASKS.min(usize::try_from(tasks - sent)?);
            channel.send(&batch(sent, size)?)?;
            sent += u32::try_from(size)?;
            waiting += size;
        }
        match channel.receive()? {
            ToSubmitter::Welcome { credit: more, .. } | ToSubmitter::Credit { credit: more } => {
                credit = usize::try_from(more)?;
            }
            ToSubmitter::Accepted { credit: more, .. } => {
                credit = usize::try_from(more)?;
                waiting = waiting.saturating_sub(MAX_BATCH_TASKS);
                if accepted < ACCEPTED_TASKS {
                    accepted += u32::try_from(MAX_BATCH_TASKS)?;
                    accepted_at = Instant::now();
                }
            }
            ToSubmitter::Ended(result) => {
                ensure!(ended.insert(result.key.clone()), "{} twice", result.key);
                if ended.len() % MAX_BATCH_TASKS == 0 {
                    let cursor = result.cursor;
                    channel.send(&FromSubmitter::Ack { cursor })?;
                    rss_mib = rss_mib.max(master_rss_mib(&cluster, &app)?);
                }
                if ended.len() % 100_000 == 0 {
                    progress::print_line(&format!("{} tasks, {rss_mib} MiB", ended.len()));
                }
            }
            ToSubmitter::Refused { error, .. } => bail!("{}", error.detail),
            ToSubmitter::Over { diagnostics, .. } => bail!("the job is over: {diagnostics}"),
            ToSubmitter::StageAccepted { .. } | ToSubmitter::States { .. } | ToSubmitter::Alive => {
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    channel.send(&FromSubmitter::Close)?;
    cluster.until_ended(&app)?;
    Ok(LargeJob {
        accepted_per_s: f64::from(accepted.min(tasks)) / (accepted_at - started).as_secs_f64(),
        ended_per_s: f64::from(tasks) / seconds,
        rss_mib,
    })
}

/// Tasks `from` to `from + size`.
fn batch(from: u32, size: usize) -> Result<FromSubmitter> {
    let last = from + u32::try_from(size)?;
    let items = (from..last).map(|n| SubmittedTask {
        key: format!("t{n}"),
        ..SubmittedTask::default()
    });
    Ok(FromSubmitter::Tasks {
        batch: format!("b{from}"),
        stage: "nothing".parse()?,
        items: items.collect(),
    })
}

/// Resident memory of the application's master. MiB.
fn master_rss_mib(cluster: &Cluster, app: &AppId) -> Result<f64> {
    let masters = cluster.live_containers(app, ContainerOwner::Master)?;
    let master = masters.first().context("no master runs")?;
    let pid = cluster.container_pid(master)?;
    Ok(status_kib(pid, "VmRSS:")? / 1024.0)
}

/// A submission channel through the resource manager.
struct Channel {
    reader: BufReader<TcpStream>,
}

impl Channel {
    fn open(cluster: &Cluster, app: &AppId) -> Result<Channel> {
        let url = cluster.url();
        let address = url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LINE_TIMEOUT))?;
        stream.set_nodelay(true)?;
        write!(
            stream,
            "POST /v1/apps/{app}/channel HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n\
             Upgrade: {UPGRADE}\r\nContent-Length: 0\r\n\r\n"
        )?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        ensure!(line.contains(" 101 "), "the channel is refused: {line}");
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        let mut channel = Channel { reader };
        channel.send(&FromSubmitter::Submitter {
            version: VERSION,
            token: String::new(),
            client: "measure".to_owned(),
            after: 0,
        })?;
        Ok(channel)
    }

    fn send(&mut self, message: &FromSubmitter) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<ToSubmitter> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line)?;
        ensure!(read > 0, "the channel was closed");
        Ok(ToSubmitter::read(line.trim_end())?)
    }
}
