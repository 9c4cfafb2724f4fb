//! What runs beside the loop: each job does one blocking thing or waits for one descriptor, and sends what came of it.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use headroom_container_shim::record::Answer;
use headroom_node_cgroup::Group;
use headroom_node_core::size::Size;
use headroom_node_exec::{Child, Watched};
use headroom_types::ContainerId;
use headroom_wire::v1::nodes::RunOrder;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tracing::{error, warn};

use crate::clock::Clock;
use crate::collect::{self, Remains};
use crate::launch;
use crate::resize;
use crate::run::Input;
use crate::sample::{self, SharedMeter};
use crate::site::Site;
use crate::stop;

/// How long a shim may take to say whether its program runs.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest line a shim says. Bytes.
const LINE: u64 = 256;

/// Starts jobs.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    site: Arc<Site>,
    clock: Clock,
    inputs: mpsc::Sender<Input>,
}

impl Jobs {
    /// Results go to `inputs`.
    pub(crate) fn new(site: Arc<Site>, clock: Clock, inputs: mpsc::Sender<Input>) -> Self {
        Jobs { site, clock, inputs }
    }

    /// Makes directory, files and cgroup.
    pub(crate) fn prepare(&self, id: ContainerId, order: RunOrder) {
        self.blocking(move |site| {
            let result = launch::prepare(site, &id, &order).map_err(|error| format!("{error:#}"));
            Some(Input::Prepared(id, result))
        });
    }

    /// Starts the shim and waits for its line.
    pub(crate) fn start_shim(&self, id: ContainerId) {
        let (site, jobs) = (Arc::clone(&self.site), self.clone());
        tokio::spawn(async move {
            let job = {
                let id = id.clone();
                move || launch::start_shim(&site, &id)
            };
            let started = match tokio::task::spawn_blocking(job).await {
                Ok(started) => started.map_err(|error| format!("{error:#}")),
                Err(_) => Err("starting the shim failed inside the agent, see its log".to_owned()),
            };
            match started {
                Ok((child, line)) => {
                    jobs.send(Input::ShimStarted(id.clone(), Ok(child))).await;
                    match listen(line).await {
                        Said::Line(answer) => jobs.send(Input::Answered(id, answer)).await,
                        Said::Silence => jobs.send(Input::Silent(id)).await,
                        // Its end is an input of its own, and comes by its descriptor.
                        Said::Nothing => {}
                    }
                }
                Err(why) => jobs.send(Input::ShimStarted(id, Err(why))).await,
            }
        });
    }

    /// Waits for the end of a shim that this agent started, and reaps it.
    pub(crate) fn watch_own_shim(&self, id: ContainerId, shim: Child) {
        self.watch(id, shim, |shim| shim.wait().map(drop));
    }

    /// Waits for the end of a shim of an earlier agent.
    pub(crate) fn watch_foreign_shim(&self, id: ContainerId, shim: Watched) {
        self.watch(id, shim, |_| Ok(()));
    }

    fn watch<F: AsRawFd + Send + Sync + 'static>(&self, id: ContainerId, shim: F, reap: fn(&F) -> io::Result<()>) {
        let jobs = self.clone();
        tokio::spawn(async move {
            if let Err(error) = ended(shim, reap).await {
                warn!(container_id = %id, %error, "the shim cannot be watched; taken as ended");
            }
            jobs.send(Input::ShimEnded(id)).await;
        });
    }

    /// Carries out steps of a stop.
    pub(crate) fn stop(&self, id: ContainerId, group: Option<Arc<Group>>, task_groups: bool, steps: Vec<stop::Step>) {
        self.blocking(move |site| {
            stop::carry_out(site, &id, group.as_ref(), task_groups, &steps);
            None
        });
    }

    /// Gives a container another size.
    pub(crate) fn resize(&self, id: ContainerId, group: Option<Arc<Group>>, size: Size) {
        self.blocking(move |site| {
            let result = resize::resize(site, &id, group.as_deref(), &size);
            Some(Input::Resized(id, size, result))
        });
    }

    /// Ends every process of a container.
    pub(crate) fn kill(&self, id: ContainerId, group: Option<Arc<Group>>) {
        self.blocking(move |site| {
            stop::kill(site, &id, group.as_ref());
            None
        });
    }

    /// Writes the report.
    pub(crate) fn collect(&self, remains: Remains) {
        self.blocking(move |site| Some(Input::Collected(collect::collect(site, remains))));
    }

    /// Ends a shim that keeps silent, and what it may have started.
    pub(crate) fn abort_launch(&self, id: ContainerId, group: Option<Arc<Group>>) {
        self.blocking(move |site| {
            stop::kill_shim(site, &id);
            stop::kill(site, &id, group.as_ref());
            None
        });
    }

    /// Marks a container as no longer needed.
    pub(crate) fn forget(&self, id: ContainerId) {
        self.blocking(move |site| {
            if let Err(error) = site.layout.forget(&id) {
                error!(container_id = %id, %error, "its directory cannot be marked; its report will be told again after a restart");
            }
            None
        });
    }

    /// Measures all containers.
    pub(crate) fn sample(&self, meters: Vec<(ContainerId, SharedMeter)>) {
        let now = self.clock.now();
        self.blocking(move |_| Some(Input::Sampled(sample::look_at_all(now, &meters))));
    }

    fn blocking(&self, job: impl FnOnce(&Site) -> Option<Input> + Send + 'static) {
        let (site, inputs) = (Arc::clone(&self.site), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(input) = job(&site) {
                // A closed queue means that the agent is ending; whatever this was is found again by the next one.
                inputs.blocking_send(input).ok();
            }
        });
    }

    fn send(&self, input: Input) -> impl Future<Output = ()> + '_ {
        let sent = self.inputs.send(input);
        async move { drop(sent.await) }
    }
}

/// Waits until `process` has ended, then reaps it.
async fn ended<F: AsRawFd>(process: F, reap: fn(&F) -> io::Result<()>) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe to call; a Child and a Watched own their descriptor and never change it"
    )]
    let process = AsyncFd::with_interest(process, tokio::io::Interest::READABLE)?;
    process.readable().await?.retain_ready();
    reap(process.get_ref())
}

/// What came through the shim's pipe.
enum Said {
    /// Its line.
    Line(Answer),
    /// It ended before it could speak.
    Nothing,
    /// Nothing in time.
    Silence,
}

async fn listen(line: OwnedFd) -> Said {
    let Ok(pipe) = pipe::Receiver::from_owned_fd(line) else { return Said::Nothing };
    let mut text = String::new();
    let mut reader = BufReader::new(pipe.take(LINE));
    match tokio::time::timeout(ANSWER, reader.read_line(&mut text)).await {
        Ok(_) => Answer::decode(&text).map_or(Said::Nothing, Said::Line),
        Err(_) => Said::Silence,
    }
}
