//! A resource manager whose main loop does not get on: it refuses reads, then changes by users, never
//! nodes, and does everything that it accepted once the loop goes on.

#![allow(missing_docs)] // a test binary has no public API

use std::fs;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_types::{Bytes, Epoch};
use headroom_wire::v1::apps::SubmitApplicationRequest;
use headroom_wire::v1::error::{ErrorCode, ProblemDetails};
use headroom_wire::v1::nodes::{NodeHealthState, NodeReport};
use integration::cluster::{Cluster, SOON};
use integration::load::http::{HttpConnection, HttpResponse};
use integration::load::master::unmanaged;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::task::JoinSet;

/// Waiting calls from which reads are refused, and changes.
const READS: usize = 1024;
const CHANGES: usize = 2048;

type BoxedCall = Pin<Box<dyn Future<Output = Result<HttpResponse>> + Send>>;

/// A thread of another process that runs no further until this is dropped.
struct StoppedThread {
    release: Option<mpsc::Sender<()>>,
    tracer: Option<JoinHandle<Result<()>>>,
}

impl StoppedThread {
    fn stop(process: i32, name: &str) -> Result<Self> {
        let thread = thread_of(process, name)?;
        let (release, released) = mpsc::channel();
        let (stopped, is_stopped) = mpsc::channel();
        // Only the thread that attaches may detach.
        let tracer = std::thread::spawn(move || {
            ptrace::attach(thread).context("attaching")?;
            waitpid(thread, Some(WaitPidFlag::__WALL)).context("waiting for the stop")?;
            stopped.send(()).context("reporting the stop")?;
            let _ = released.recv(); // the sender is dropped
            ptrace::detach(thread, None).context("detaching")
        });
        let stopping = StoppedThread {
            release: Some(release),
            tracer: Some(tracer),
        };
        if is_stopped.recv_timeout(SOON).is_err() {
            stopping.go_on()?;
            bail!("thread {name} of process {process} was not stopped");
        }
        Ok(stopping)
    }

    fn go_on(mut self) -> Result<()> {
        self.release = None;
        match self.tracer.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => bail!("the tracing thread panicked"),
            None => Ok(()),
        }
    }
}

fn thread_of(process: i32, name: &str) -> Result<Pid> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        if fs::read_to_string(task.path().join("comm"))?.trim() == name {
            let id = task.file_name().to_string_lossy().parse()?;
            return Ok(Pid::from_raw(id));
        }
    }
    bail!("process {process} has no thread {name}")
}

/// One call on a connection of its own.
async fn get(rm: SocketAddr, path: &str) -> Result<HttpResponse> {
    HttpConnection::connect(rm, None).await?.get(path).await
}

async fn post(rm: SocketAddr, path: &str, body: Vec<u8>) -> Result<HttpResponse> {
    HttpConnection::connect(rm, None)
        .await?
        .post(path, &body)
        .await
}

/// The status of a call that is answered at once; `None` for one that waits.
async fn at_once(call: impl Future<Output = Result<HttpResponse>>) -> Result<Option<HttpResponse>> {
    match tokio::time::timeout(Duration::from_millis(250), call).await {
        Ok(answer) => answer.map(Some),
        Err(_) => Ok(None),
    }
}

/// Begins calls until one of the kind is refused. Returns the refusal.
async fn until_refused(
    waiting: &mut JoinSet<Result<HttpResponse>>,
    most: usize,
    call: impl Fn(usize) -> BoxedCall,
) -> Result<HttpResponse> {
    for n in 0..most {
        waiting.spawn(call(n));
    }
    for n in most..most + 20 {
        if let Some(answer) = at_once(call(n)).await? {
            return Ok(answer);
        }
    }
    bail!("no call was refused with {} waiting", waiting.len())
}

fn is_refusal(answer: &HttpResponse) -> Result<()> {
    ensure!(answer.status == 503, "status {}", answer.status);
    let problem: ProblemDetails = serde_json::from_slice(&answer.body)?;
    ensure!(problem.code == ErrorCode::HR0503, "{problem}");
    ensure!(problem.detail.contains("overloaded"), "{problem}");
    Ok(())
}

/// Waits for all answers. Returns the number of calls that were not refused.
async fn accepted(mut calls: JoinSet<Result<HttpResponse>>) -> Result<usize> {
    let mut accepted = 0;
    while let Some(answer) = calls.join_next().await {
        let answer = answer??;
        if answer.status == 200 {
            accepted += 1;
        } else {
            is_refusal(&answer)?;
        }
    }
    Ok(accepted)
}

fn submission(n: usize) -> Result<Vec<u8>> {
    let app: SubmitApplicationRequest = unmanaged(&format!("late-{n}"), None)?;
    Ok(serde_json::to_vec(&app)?)
}

fn report_of_a_node() -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&NodeReport {
        epoch: Epoch(0),
        containers: Vec::new(),
        exits: Vec::new(),
        host_used: Bytes::ZERO,
        health: NodeHealthState::Healthy,
        reload: None,
        unattributed: Bytes::ZERO,
        left_by: Vec::new(),
    })?)
}

#[test]
fn an_overloaded_manager_refuses_reads_then_changes_and_never_nodes() -> Result<()> {
    let cluster = Cluster::of_one()?;
    let node = cluster.node_ids()?.remove(0);
    let rm: SocketAddr = cluster.url().trim_start_matches("http://").parse()?;
    let (reads, reports) = (
        format!("/v1/nodes/{node}"),
        format!("/v1/nodes/{node}/report"),
    );
    let stopped = StoppedThread::stop(cluster.pid("resourcemanager")?, "owner")?;
    let changed = cluster.call(async {
        let (mut reading, mut changing) = (JoinSet::new(), JoinSet::new());
        let read = |_| {
            let path = reads.clone();
            Box::pin(async move { get(rm, &path).await }) as BoxedCall
        };
        is_refusal(&until_refused(&mut reading, READS, read).await?)?;
        let first = at_once(post(rm, "/v1/apps", submission(usize::MAX)?)).await?;
        ensure!(first.is_none(), "a change was answered: {first:?}");
        let change =
            |n| Box::pin(async move { post(rm, "/v1/apps", submission(n)?).await }) as BoxedCall;
        is_refusal(&until_refused(&mut changing, CHANGES - READS, change).await?)?;
        // The report of a node waits, whatever it contains.
        let mut report = Box::pin(post(rm, &reports, report_of_a_node()?));
        let early = at_once(&mut report).await?;
        ensure!(early.is_none(), "the report was answered: {early:?}");
        stopped.go_on()?;
        // The epoch is that of no manager.
        let report = report.await?;
        ensure!(report.status == 410, "the report: status {}", report.status);
        let read = accepted(reading).await?;
        ensure!(read > READS / 2, "only {read} reads waited");
        accepted(changing).await
    })?;
    ensure!(changed > 0, "no change was accepted");
    // All accepted changes exist, and no refused one. Callers of at most 21 did not wait for them.
    let applications = cluster.call(cluster.client().apps())?;
    let late = applications
        .iter()
        .filter(|app| app.id.to_string().starts_with("late-"))
        .count();
    ensure!(
        (changed..=changed + 21).contains(&late),
        "{changed} changes were accepted, and {late} exist"
    );
    Ok(())
}
