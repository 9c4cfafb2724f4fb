//! What runs beside the loop: each job does one blocking thing or waits for one descriptor, and sends what came of it.

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

/// How long a shim may take to say whether its program runs. On a host with much too much to do that is long; one that is stuck on a
/// disk holds up no more than its own turn.
const ANSWER: Duration = Duration::from_secs(120);
/// Shims that may be on their way to their program at once, for each processor. More would only make all of them late: of a hundred that
/// are started together on one busy processor, most say nothing for half a minute.
const STARTING: usize = 8;
/// SIGKILL.
const KILL: i32 = 9;
/// How often a shim is asked for when launchers are lost.
const LAUNCHERS: u32 = 3;
/// Longest line a shim says. Bytes.
const LINE: u64 = 256;

/// A shim, by whoever started it.
#[derive(Debug)]
pub(crate) enum Shim {
    /// A child of the agent.
    Own(Arc<Child>),
    /// A child of the launcher, which reaps it; readable when it has ended.
    Launched(OwnedFd),
    /// A child of an earlier agent, or of a launcher that is gone.
    Found(Watched),
}

/// How much a conversation told.
enum Told {
    /// All there is to tell.
    All,
    /// That nobody was made.
    Nothing,
}

/// Starts jobs.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    site: Arc<Site>,
    clock: Clock,
    inputs: mpsc::Sender<Input>,
    /// Turns of those who start a shim.
    starting: Arc<Semaphore>,
}

impl Jobs {
    /// Results go to `inputs`.
    pub(crate) fn new(site: Arc<Site>, clock: Clock, inputs: mpsc::Sender<Input>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Jobs { site, clock, inputs, starting: Arc::new(Semaphore::new(processors.saturating_mul(STARTING))) }
    }

    /// Makes directory, files and cgroup.
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
        // Those who wait for files wait here, so that threads are left for jobs that end containers.
        let site = Arc::clone(&self.site);
        let (turns, given_up) = (site.localizer.turns(), site.localizer.expect(&of));
        tokio::spawn(async move {
            // Who is given up needs no turn to be told so.
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
            // Kept until the shim has spoken. It is never closed, and so always had.
            let _turn = Arc::clone(&jobs.starting).acquire_owned().await;
            // Again only where nobody was made: then the launcher was lost before it came to it.
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
                // By its descriptor: it may not even have written down who it is.
                if let Err(error) = child.signal(KILL) {
                    warn!(container_id = %id, %error, "a silent shim cannot be ended");
                }
                self.send(Input::Silent(id)).await;
            }
            // Its end is an input of its own, and comes by its descriptor.
            Said::Nothing => {}
        }
    }

    /// What the launcher and the shim say, until both have said it.
    async fn listen(&self, id: &ContainerId, socket: OwnedFd) -> Told {
        let Ok(conversation) = Conversation::new(socket) else { return Told::Nothing };
        let (mut born, mut answered, mut shim) = (false, false, None);
        while !(born && answered) {
            let Ok(word) = tokio::time::timeout(ANSWER, conversation.next()).await else {
                // By its descriptor: it may not even have written down who it is.
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
                // Everybody has hung up. Without a birth the launcher was lost, before or after it made a shim.
                Some((Word::Born, None)) | None if born => return Told::All,
                Some((Word::Born, None)) | None => return self.look_for(id).await,
            }
        }
        Told::All
    }

    /// Whether there is a shim of which nobody told.
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

    /// Waits for the end of a shim; reaps it if it is this agent's own.
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

    /// Ends what a shim that was silent, and is killed, may have started.
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
                // A closed queue means that the agent is ending; whatever this was is found again by the next one.
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

/// What came through the shim's pipe.
pub(crate) enum Said {
    /// Its line.
    Line(Answer),
    /// It ended before it could speak.
    Nothing,
    /// Nothing in time.
    Silence,
}

/// Waits for the one line of a shim.
pub(crate) async fn listen(line: OwnedFd) -> Said {
    let Ok(pipe) = pipe::Receiver::from_owned_fd(line) else { return Said::Nothing };
    let mut text = String::new();
    let mut reader = BufReader::new(pipe.take(LINE));
    match tokio::time::timeout(ANSWER, reader.read_line(&mut text)).await {
        Ok(_) => Answer::decode(&text).map_or(Said::Nothing, Said::Line),
        Err(_) => Said::Silence,
    }
}
