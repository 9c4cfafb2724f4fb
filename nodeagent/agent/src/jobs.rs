//! Jobs of the loop: each performs one blocking call or waits for one descriptor, and sends its
//! result as an input.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use headroom_container_shim::birth::Word;
use headroom_container_shim::record::Answer;
use headroom_node_cgroup::Group;
use headroom_node_core::size::Size;
use headroom_node_exec::{Child, Watched};
use headroom_types::ContainerId;
use headroom_wire::v1::nodes::RunOrder;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tracing::{error, warn};

use crate::adopt;
use crate::clock::Clock;
use crate::collect::{self, Remains};
use crate::crash;
use crate::launch::{self, Start};
use crate::launcher::{Conversation, Handle};
use crate::resize;
use crate::run::Input;
use crate::sample::{self, SharedMeter};
use crate::site::Site;
use crate::stop;

/// Maximum time until a shim reports whether its program runs. It is long for heavily loaded hosts.
/// A shim that waits for a disk delays only its own container.
const ANSWER: Duration = Duration::from_secs(120);
/// Maximum number of shims per processor that start at the same time. More would delay all of them:
/// if a hundred start together on one busy processor, most report nothing for half a minute.
const STARTING: usize = 8;
/// SIGKILL.
const KILL: i32 = 9;
/// Number of requests for a shim if launchers are lost.
const LAUNCHERS: u32 = 3;
/// Maximum length of a shim's line. Bytes.
const LINE: u64 = 256;

/// A shim, by the process that started it.
#[derive(Debug)]
pub(crate) enum Shim {
    /// A child of the agent.
    Own(Arc<Child>),
    /// A child of the launcher, which reaps it. The descriptor is readable after the end.
    Launched(OwnedFd),
    /// A child of an earlier agent, or of a launcher that is gone.
    Found(Watched),
}

/// Result of a launch through the launcher.
enum Told {
    /// The result is sent.
    All,
    /// No shim was forked.
    Nothing,
}

/// Starts jobs.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    site: Arc<Site>,
    clock: Clock,
    inputs: mpsc::Sender<Input>,
    /// Permits to start a shim.
    starting: Arc<Semaphore>,
}

impl Jobs {
    /// Jobs that send their results to `inputs`.
    pub(crate) fn new(site: Arc<Site>, clock: Clock, inputs: mpsc::Sender<Input>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Jobs { site, clock, inputs, starting: Arc::new(Semaphore::new(processors.saturating_mul(STARTING))) }
    }

    /// Creates directory, files and cgroup.
    pub(crate) fn prepare(&self, id: ContainerId, order: RunOrder) {
        let (jobs, of) = (self.clone(), id.clone());
        let has_files = !order.launch.fetch.is_empty();
        let job = move || {
            jobs.blocking(move |site| {
                let result = launch::prepare(site, &id, &order).map_err(|error| format!("{error:#}"));
                Some(Input::Prepared(id, result))
            })
        };
        if !has_files {
            drop(job());
            return;
        }
        // Containers that need files wait here, so that threads remain for jobs that end
        // containers.
        let site = Arc::clone(&self.site);
        let (turns, given_up) = (site.localizer.turns(), site.localizer.expect(&of));
        tokio::spawn(async move {
            // An abandoned container needs no permit.
            let _turn = tokio::select! {
                turn = turns.acquire_owned() => turn.ok(),
                () = given_up.cancelled() => None,
            };
            job().await.ok();
            site.localizer.done(&of);
        });
    }

    /// Starts the shim and waits for its answer.
    pub(crate) fn start_shim(&self, id: ContainerId) {
        let jobs = self.clone();
        tokio::spawn(async move {
            // Held until the shim has answered. The semaphore is never closed, so the permit is
            // always granted.
            let _turn = Arc::clone(&jobs.starting).acquire_owned().await;
            // Retries only if no shim was forked: then the launcher was lost before it processed
            // the request.
            for _ in 0..LAUNCHERS {
                let (site, of) = (Arc::clone(&jobs.site), id.clone());
                let started = match tokio::task::spawn_blocking(move || launch::start_shim(&site, &of)).await {
                    Ok(started) => started.map_err(|error| format!("{error:#}")),
                    Err(_) => Err("starting the shim failed inside the agent, see its log".to_owned()),
                };
                match started {
                    Ok(Start::Own(child, line)) => return jobs.listen_to_own(id, child, line).await,
                    Ok(Start::Asked(conversation)) => match jobs.listen(&id, conversation).await {
                        Told::All => return,
                        Told::Nothing => warn!(container_id = %id, "the launcher was lost before it made the shim; asked again"),
                    },
                    Err(why) => return jobs.send(Input::ShimStarted(id, Err(why))).await,
                }
            }
            jobs.send(Input::ShimStarted(id, Err("three launchers were lost before they made the shim".into()))).await;
        });
    }

    async fn listen_to_own(&self, id: ContainerId, child: Child, line: OwnedFd) {
        let child = Arc::new(child);
        self.send(Input::ShimStarted(id.clone(), Ok(Shim::Own(Arc::clone(&child))))).await;
        match listen(line).await {
            Said::Line(answer) => self.send(Input::Answered(id, answer)).await,
            Said::Silence => {
                // By its descriptor: the shim may not have written its identity yet.
                if let Err(error) = child.signal(KILL) {
                    warn!(container_id = %id, %error, "a silent shim cannot be ended");
                }
                self.send(Input::Silent(id)).await;
            }
            // The end of the shim is a separate input and arrives through its descriptor.
            Said::Nothing => {}
        }
    }

    /// Receives the packets of the launcher and the shim until both have answered.
    async fn listen(&self, id: &ContainerId, socket: OwnedFd) -> Told {
        let Ok(conversation) = Conversation::new(socket) else { return Told::Nothing };
        let (mut born, mut answered, mut shim) = (false, false, None);
        while !(born && answered) {
            let Ok(word) = tokio::time::timeout(ANSWER, conversation.next()).await else {
                // By its descriptor: the shim may not have written its identity yet.
                if let Some(Err(error)) = shim.as_ref().map(|shim| pidfd_send_signal(shim, Signal::KILL)) {
                    warn!(container_id = %id, %error, "a silent shim cannot be ended");
                }
                self.send(Input::Silent(id.clone())).await;
                return Told::All;
            };
            match word {
                Some((Word::Born, Some(pidfd))) => {
                    born = true;
                    shim = pidfd.try_clone().ok();
                    self.send(Input::ShimStarted(id.clone(), Ok(Shim::Launched(pidfd)))).await;
                }
                Some((Word::Answer(answer), _)) => {
                    answered = true;
                    self.send(Input::Answered(id.clone(), answer)).await;
                }
                Some((Word::Refused { errno }, _)) => {
                    let why = format!("a process for the shim: {}", io::Error::from_raw_os_error(errno));
                    self.send(Input::ShimStarted(id.clone(), Err(why))).await;
                    return Told::All;
                }
                // Launcher and shim have closed the socket. Without a fork packet the launcher was
                // lost, before or after the fork.
                Some((Word::Born, None)) | None if born => return Told::All,
                Some((Word::Born, None)) | None => return self.look_for(id).await,
            }
        }
        Told::All
    }

    /// Looks for a shim that was forked but not reported.
    async fn look_for(&self, id: &ContainerId) -> Told {
        if self.site.layout.was_never_started(id) {
            return Told::Nothing;
        }
        match adopt::named_shim(&self.site, id) {
            Some(shim) => self.send(Input::ShimStarted(id.clone(), Ok(Shim::Found(shim)))).await,
            None => self.send(Input::ShimEnded(id.clone())).await,
        }
        Told::All
    }

    /// Waits for the end of a shim. Reaps it if it is a child of this agent.
    pub(crate) fn watch_shim(&self, id: ContainerId, shim: Shim) {
        match shim {
            Shim::Own(child) => self.watch(id, child, |shim| shim.wait().map(drop)),
            Shim::Launched(pidfd) => self.watch(id, Handle(pidfd), |_| Ok(())),
            Shim::Found(shim) => self.watch(id, shim, |_| Ok(())),
        }
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

    /// Changes the size of a container.
    pub(crate) fn resize(&self, id: ContainerId, group: Option<Arc<Group>>, size: Size) {
        self.blocking(move |site| {
            let result = resize::resize(site, &id, group.as_deref(), &size);
            Some(Input::Resized(id, size, result))
        });
    }

    /// Kills every process of a container.
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

    /// Ends the processes that a silent and killed shim may have started.
    pub(crate) fn abort_launch(&self, id: ContainerId, group: Option<Arc<Group>>) {
        self.blocking(move |site| {
            stop::kill(site, &id, group.as_ref());
            None
        });
    }

    /// Marks a container as no longer needed.
    pub(crate) fn forget(&self, id: ContainerId) {
        self.blocking(move |site| {
            crash::at("forget-wanted");
            if let Err(error) = site.layout.forget(&id) {
                error!(container_id = %id, %error, "its directory cannot be marked; its report will be told again after a restart");
            }
            crash::at("forgotten");
            None
        });
    }

    /// Measures all containers.
    pub(crate) fn sample(&self, meters: Vec<(ContainerId, SharedMeter)>) {
        let now = self.clock.now();
        self.blocking(move |_| Some(Input::Sampled(sample::look_at_all(now, &meters))));
    }

    fn blocking(&self, job: impl FnOnce(&Site) -> Option<Input> + Send + 'static) -> JoinHandle<()> {
        let (site, inputs) = (Arc::clone(&self.site), self.inputs.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(input) = job(&site) {
                // A closed queue means that the agent is ending. The next agent finds the state on
                // disk.
                inputs.blocking_send(input).ok();
            }
        })
    }

    fn send(&self, input: Input) -> impl Future<Output = ()> + '_ {
        let sent = self.inputs.send(input);
        async move { drop(sent.await) }
    }
}

/// Waits until `process` has ended, then reaps it.
pub(crate) async fn ended<F: AsRawFd>(process: F, reap: fn(&F) -> io::Result<()>) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe to call; a Child and a Watched own their descriptor and never change it"
    )]
    let process = AsyncFd::with_interest(process, tokio::io::Interest::READABLE)?;
    process.readable().await?.retain_ready();
    reap(process.get_ref())
}

/// The result of reading the shim's pipe.
pub(crate) enum Said {
    /// The line arrived.
    Line(Answer),
    /// The shim ended without a line.
    Nothing,
    /// The timeout ended.
    Silence,
}

/// Waits for the single line of a shim.
pub(crate) async fn listen(line: OwnedFd) -> Said {
    let Ok(pipe) = pipe::Receiver::from_owned_fd(line) else { return Said::Nothing };
    let mut text = String::new();
    let mut reader = BufReader::new(pipe.take(LINE));
    match tokio::time::timeout(ANSWER, reader.read_line(&mut text)).await {
        Ok(_) => Answer::decode(&text).map_or(Said::Nothing, Said::Line),
        Err(_) => Said::Silence,
    }
}
