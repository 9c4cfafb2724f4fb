//! Simulated application masters without a job. They request containers at a pace, read updates,
//! acknowledge, and keep a record.
//!
//! All masters of a pool share one pace, which the owner sets. Each has one call in flight and one
//! stream, like the real master.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_client::LiveContainers;
use headroom_client::retry::ExponentialBackoff;
use headroom_types::{AttemptId, ContainerId, Epoch, LaunchSpec, RequestId, Resource};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::application_master::{
    ApplicationUpdate, ApplicationUpdateKind, FinishApplicationRequest, MasterRegistered,
    MasterSync, MasterSyncReply, PlacementRequest, RegisterMaster,
};
use headroom_wire::v1::apps::{
    ApplicationMaster as Kind, SubmissionResult, SubmitApplicationRequest,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::agents::{ENDS, STAYS};
use super::http::{HttpConnection, HttpResponse, Lines};
use super::limits;
use super::manager_address::ManagerAddress;
use super::records::MasterRecord;

/// Shortest interval between two sync calls of one master.
const GAP: Duration = Duration::from_millis(10);
/// Longest interval between two sync calls of one master.
const ALIVE: Duration = Duration::from_secs(1);
/// Number of attempts to submit a master's application.
const MAX_ATTEMPTS: u32 = 10;
/// Index of the first source address for masters' connections.
const FIRST_PORTS: usize = 4_000_000;

/// The rate of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestPace {
    /// No further requests.
    Hold,
    /// Each master keeps this number of containers between request and running.
    Window(u32),
    /// Each master requests this number of containers per second, whether they start or not.
    Rate(f64),
    /// No further requests, and the staying containers are released.
    Drain,
}

/// Parameters of a pool of masters.
#[derive(Clone, Debug)]
pub struct MasterPoolPlan {
    /// Address of the resource manager.
    pub rm: ManagerAddress,
    /// Number of masters.
    pub masters: usize,
    /// Containers of each master that stay until they are released.
    pub staying: u32,
    /// The size of every container.
    pub size: Resource,
    /// Run time of the other containers.
    pub life: Duration,
}

/// Counters of all masters together.
#[derive(Debug, Default)]
pub struct MasterCounters {
    /// Masters that are registered and listen.
    pub listening: AtomicUsize,
    /// Staying containers that run.
    pub staying: AtomicU64,
    /// Containers that end by themselves and were reported as running.
    pub running: AtomicU64,
    /// Number of reported ends.
    pub ended: AtomicU64,
    /// For containers that end by themselves: from the request to the report that they run.
    /// Microseconds.
    times: Mutex<Vec<u64>>,
    /// Time of the first grant by epoch of the resource manager.
    first_grants: Mutex<BTreeMap<Epoch, Instant>>,
}

impl MasterCounters {
    /// Times from request to running since the last call. Microseconds.
    pub fn take_times(&self) -> Vec<u64> {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// The first grant of an incarnation of the resource manager after `epoch`.
    pub fn first_grant_after(&self, epoch: Epoch) -> Option<(Epoch, Instant)> {
        let grants = self
            .first_grants
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        grants
            .range(Epoch(epoch.0 + 1)..)
            .next()
            .map(|(epoch, at)| (*epoch, *at))
    }
}

/// A running pool of masters.
#[derive(Debug)]
pub struct MasterPool {
    /// Counters that are updated during the run.
    pub seen: Arc<MasterCounters>,
    masters: Vec<JoinHandle<Result<MasterRecord>>>,
    pace: watch::Sender<RequestPace>,
}

impl MasterPool {
    /// Submits an application for each master and starts the masters, which request the staying
    /// containers.
    pub async fn start(plan: &MasterPoolPlan) -> Result<Self> {
        let seen = Arc::new(MasterCounters::default());
        let (pace, paced) = watch::channel(RequestPace::Hold);
        let mut masters = Vec::new();
        for n in 0..plan.masters {
            let attempt = submit_again(plan.rm.now(), &format!("crowd-{n}")).await?;
            let master = Master::new(plan, attempt, seen.clone(), paced.clone())?;
            masters.push(tokio::spawn(master.live()));
        }
        Ok(MasterPool {
            seen,
            masters,
            pace,
        })
    }

    /// Sets the pace of all masters.
    pub fn pace(&self, pace: RequestPace) {
        self.pace.send_replace(pace);
    }

    /// Waits until all requested containers have run and ended, and returns the records.
    pub async fn drain(self) -> Result<Vec<MasterRecord>> {
        self.pace(RequestPace::Drain);
        let mut books = Vec::new();
        for master in self.masters {
            books.push(master.await.context("a master panicked")??);
        }
        Ok(books)
    }
}

/// An application with an unmanaged master.
pub fn unmanaged(name: &str, key: Option<String>) -> Result<SubmitApplicationRequest> {
    let (name, user) = (name.parse()?, Some("load".to_owned()));
    let (queue, priority, lifetime_ms, master) = (None, 0, None, Kind::Unmanaged);
    Ok(SubmitApplicationRequest {
        name,
        queue,
        priority,
        user,
        lifetime_ms,
        master,
        idempotency_key: key,
        access: AppAccess::default(),
    })
}

/// Submits one application.
pub async fn submit(
    wire: &mut HttpConnection,
    app: &SubmitApplicationRequest,
) -> Result<SubmissionResult> {
    let answer = wire.post("/v1/apps", &serde_json::to_vec(app)?).await?;
    ensure!(
        answer.status == 200,
        "submitting: status {}: {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(serde_json::from_slice(&answer.body)?)
}

/// Submits until it is accepted. While thousands of nodes register, a response can be late.
async fn submit_again(rm: SocketAddr, name: &str) -> Result<AttemptId> {
    let app = unmanaged(name, Some(name.to_owned()))?;
    let mut backoff = ExponentialBackoff::usual();
    for _ in 0..MAX_ATTEMPTS {
        let submitted = async {
            submit(
                &mut HttpConnection::connect(rm, limits::address(FIRST_PORTS)).await?,
                &app,
            )
            .await
        };
        if let Ok(submitted) = submitted.await {
            return Ok(submitted.attempt);
        }
        tokio::time::sleep(backoff.wait()).await;
    }
    bail!("{name} was not accepted in {MAX_ATTEMPTS} attempts")
}

/// One of the two requests of a master.
#[derive(Debug)]
struct RequestCounters {
    request: RequestId,
    command: Vec<String>,
    count: u32,
    /// Number of reported ends.
    ended: u32,
    /// Containers that were reported as running.
    ran: BTreeSet<ContainerId>,
}

impl RequestCounters {
    fn new(request: &str, command: Vec<String>, count: u32) -> Result<Self> {
        Ok(RequestCounters {
            request: request.parse()?,
            command,
            count,
            ended: 0,
            ran: BTreeSet::new(),
        })
    }
}

#[derive(Debug)]
struct Master {
    rm: ManagerAddress,
    attempt: AttemptId,
    size: Resource,
    seen: Arc<MasterCounters>,
    pace: watch::Receiver<RequestPace>,
    stays: RequestCounters,
    ends: RequestCounters,
    /// The live containers with their grants.
    live: LiveContainers,
    epoch: Epoch,
    cursor: u64,
    /// Cursor and counts of both requests in the latest sync call.
    said: (u64, u32, u32),
    said_at: Instant,
    /// Due containers at a rate; the fraction carries over.
    due: f64,
    due_at: Instant,
    /// Request times of the `ends` request: containers up to this number were requested at this
    /// time.
    stamps: VecDeque<(u32, Instant)>,
    allocated: u32,
    /// Containers of the `ends` request that do not run yet, with their request time if known.
    asked_at: BTreeMap<ContainerId, Option<Instant>>,
    released: bool,
    book: MasterRecord,
}

type Calling = Pin<Box<dyn Future<Output = (HttpConnection, Result<HttpResponse>)> + Send>>;

impl Master {
    fn new(
        plan: &MasterPoolPlan,
        attempt: AttemptId,
        seen: Arc<MasterCounters>,
        pace: watch::Receiver<RequestPace>,
    ) -> Result<Self> {
        let now = Instant::now();
        let asked = BTreeMap::new();
        let book = MasterRecord {
            app: attempt.app.clone(),
            asked,
            ended: BTreeSet::new(),
            troubles: 0,
            trouble: None,
        };
        Ok(Master {
            rm: plan.rm.clone(),
            attempt,
            size: plan.size.clone(),
            seen,
            pace,
            stays: RequestCounters::new("stay", vec![STAYS.into()], plan.staying)?,
            ends: RequestCounters::new(
                "end",
                vec![ENDS.into(), plan.life.as_millis().to_string()],
                0,
            )?,
            live: LiveContainers::default(),
            epoch: Epoch(0),
            cursor: 0,
            said: (0, 0, 0),
            said_at: now,
            due: 0.0,
            due_at: now,
            stamps: VecDeque::new(),
            allocated: 0,
            asked_at: BTreeMap::new(),
            released: false,
            book,
        })
    }

    /// Runs the sessions of this master until its application is finished.
    async fn live(mut self) -> Result<MasterRecord> {
        let mut backoff =
            ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            let mut listened = false;
            let ended = self.session(&mut listened).await;
            if listened {
                self.seen.listening.fetch_sub(1, Ordering::Relaxed);
                backoff.reset();
            }
            match ended {
                Ok(()) => break,
                Err(error) => {
                    self.book.troubles += 1;
                    self.book.trouble = Some(format!("{error:#}"));
                }
            }
            tokio::time::sleep(backoff.wait()).await;
        }
        self.book.asked = [&self.stays, &self.ends]
            .map(|w| (w.request.clone(), w.count))
            .into();
        Ok(self.book)
    }

    fn path(&self, verb: &str) -> String {
        format!("/v1/apps/{}/{verb}", self.attempt.app)
    }

    /// Registers and serves the stream until an error or the end of the application.
    async fn session(&mut self, listened: &mut bool) -> Result<()> {
        let from = limits::address(FIRST_PORTS);
        let mut wire = HttpConnection::connect(self.rm.now(), from).await?;
        self.register(&mut wire).await?;
        let path = format!(
            "{}?epoch={}&cursor={}",
            self.path("updates"),
            self.epoch,
            self.cursor
        );
        let mut lines = match HttpConnection::connect(self.rm.now(), from)
            .await?
            .lines(&path)
            .await?
        {
            Ok(lines) => lines,
            Err(answer) => bail!("listening: status {}", answer.status),
        };
        *listened = true;
        self.seen.listening.fetch_add(1, Ordering::Relaxed);
        let (mut idle, mut calling) = (Some(wire), None::<Calling>);
        while !self.is_over() {
            if let Some(wire) = idle.take() {
                match self.words() {
                    Some(body) => {
                        calling = Some(call(wire, self.path("sync"), serde_json::to_vec(&body)?))
                    }
                    None => idle = Some(wire),
                }
            }
            self.wait(&mut lines, &mut idle, &mut calling).await?;
        }
        let mut wire = HttpConnection::connect(self.rm.now(), from).await?;
        let (attempt, diagnostics) = (self.attempt.clone(), "all ended".to_owned());
        let body = FinishApplicationRequest {
            attempt,
            succeeded: true,
            diagnostics,
            job: None,
        };
        let answer = wire
            .post(&self.path("finish"), &serde_json::to_vec(&body)?)
            .await?;
        ensure!(answer.status == 200, "finishing: status {}", answer.status);
        Ok(())
    }

    /// Handles the first event: an update, a response, or the time for the next sync call.
    async fn wait(
        &mut self,
        lines: &mut Lines,
        idle: &mut Option<HttpConnection>,
        calling: &mut Option<Calling>,
    ) -> Result<()> {
        let speak_at = self.said_at + GAP;
        let answered = async {
            match calling {
                Some(calling) => calling.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            line = lines.next() => self.take(serde_json::from_slice(&line?).context("an update")?),
            (wire, answer) = answered => {
                *calling = None;
                *idle = Some(wire);
                let answer = answer?;
                ensure!(answer.status == 200, "a sync: status {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
                let _: MasterSyncReply = serde_json::from_slice(&answer.body)?;
                Ok(())
            }
            () = tokio::time::sleep_until(speak_at.max(Instant::now() + GAP)), if idle.is_some() => Ok(()),
        }
    }

    async fn register(&mut self, wire: &mut HttpConnection) -> Result<()> {
        let body = RegisterMaster {
            containers: self.live.numbers(),
            ..RegisterMaster::new(self.attempt.clone())
        };
        let answer = wire
            .post(&self.path("register"), &serde_json::to_vec(&body)?)
            .await?;
        ensure!(
            answer.status == 200,
            "registering: status {}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        let mut registered: MasterRegistered = serde_json::from_slice(&answer.body)?;
        self.live.register(&mut registered);
        (self.epoch, self.cursor) = (registered.epoch, registered.cursor);
        for listed in registered.containers {
            self.granted(listed.container.clone(), &listed.request);
            if listed.running {
                self.runs(listed.container);
            }
        }
        // A new incarnation restarts the cursor and has received no request yet.
        self.said = (0, 0, 0);
        self.released = false;
        (self.due_at, self.due) = (Instant::now(), 0.0);
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_complete = |counters: &RequestCounters| counters.ended == counters.count;
        *self.pace.borrow() == RequestPace::Drain
            && is_complete(&self.stays)
            && is_complete(&self.ends)
            && self.said.0 == self.cursor
    }

    /// The next sync call, if one is due.
    fn words(&mut self) -> Option<MasterSync> {
        let now = Instant::now();
        if now < self.said_at + GAP {
            return None;
        }
        let pace = *self.pace.borrow();
        self.want(pace, now);
        let news = (self.cursor, self.stays.count, self.ends.count);
        let release = pace == RequestPace::Drain && !self.released;
        if news == self.said && now < self.said_at + ALIVE && !release {
            return None;
        }
        if news.2 > self.said.2 {
            self.stamps.push_back((news.2, now));
        }
        (self.said, self.said_at) = (news, now);
        let gone = |id: &&ContainerId| !self.book.ended.contains(id);
        // The release is repeated as long as containers are left: one may have started while the
        // call was in flight.
        let release = if pace == RequestPace::Drain {
            self.stays.ran.iter().filter(gone).cloned().collect()
        } else {
            Vec::new()
        };
        self.released = pace == RequestPace::Drain;
        let asks = [&self.stays, &self.ends]
            .into_iter()
            .filter(|w| w.count > 0)
            .map(|w| self.ask(w))
            .collect();
        let (attempt, epoch, ack) = (self.attempt.clone(), self.epoch, self.cursor);
        Some(MasterSync {
            attempt,
            epoch,
            ack,
            asks,
            drop: Vec::new(),
            release,
            job: None,
        })
    }

    /// Raises the requested count according to the pace.
    fn want(&mut self, pace: RequestPace, now: Instant) {
        match pace {
            RequestPace::Hold | RequestPace::Drain => self.due = 0.0,
            RequestPace::Window(window) => {
                let ran = u32::try_from(self.ends.ran.len()).unwrap_or(u32::MAX);
                self.ends.count = self.ends.count.max(ran.saturating_add(window));
            }
            RequestPace::Rate(per_second) => {
                self.due += now.duration_since(self.due_at).as_secs_f64() * per_second;
                while self.due >= 1.0 {
                    self.due -= 1.0;
                    self.ends.count += 1;
                }
            }
        }
        self.due_at = now;
    }

    fn ask(&self, counters: &RequestCounters) -> PlacementRequest {
        let launch = LaunchSpec {
            command: counters.command.clone(),
            ..LaunchSpec::default()
        };
        PlacementRequest {
            count: counters.count,
            ended: counters.ended,
            ..PlacementRequest::new(counters.request.clone(), self.size.clone(), launch)
        }
    }

    fn take(&mut self, update: ApplicationUpdate) -> Result<()> {
        if update.what == ApplicationUpdateKind::Alive {
            return Ok(());
        }
        ensure!(
            update.cursor == self.cursor + 1,
            "update {} followed update {}",
            update.cursor,
            self.cursor
        );
        self.cursor = update.cursor;
        self.live.update(&update.what);
        match update.what {
            ApplicationUpdateKind::Allocated(granted) => {
                self.granted(granted.container, &granted.request)
            }
            ApplicationUpdateKind::Running { container } => self.runs(container),
            ApplicationUpdateKind::Exited { request, report } => {
                self.ended(report.container, &request)
            }
            ApplicationUpdateKind::Resized { .. }
            | ApplicationUpdateKind::ResizeFailed { .. }
            | ApplicationUpdateKind::PreemptSoon { .. }
            | ApplicationUpdateKind::NodeDraining { .. }
            | ApplicationUpdateKind::Expired { .. }
            | ApplicationUpdateKind::Order(_)
            | ApplicationUpdateKind::Scale(_)
            | ApplicationUpdateKind::Alive => {}
        }
        Ok(())
    }

    fn granted(&mut self, container: ContainerId, request: &RequestId) {
        let now = Instant::now();
        if container.epoch == self.epoch {
            let mut grants = self
                .seen
                .first_grants
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            grants.entry(self.epoch).or_insert(now);
        }
        // Updates are repeated after a reconnect.
        let known = self.asked_at.contains_key(&container) || self.ends.ran.contains(&container);
        if *request == self.ends.request && !known {
            self.allocated += 1;
            while self
                .stamps
                .front()
                .is_some_and(|(up_to, _)| *up_to < self.allocated)
            {
                self.stamps.pop_front();
            }
            self.asked_at
                .insert(container, self.stamps.front().map(|(_, at)| *at));
        }
    }

    fn runs(&mut self, container: ContainerId) {
        match self.asked_at.remove(&container) {
            Some(asked_at) => {
                if let Some(at) = asked_at {
                    let time = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
                    self.seen
                        .times
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(time);
                }
                self.ends.ran.insert(container);
                self.seen.running.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                if self.stays.ran.insert(container) {
                    self.seen.staying.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Records an end. It may be reported again after a restart and is counted once.
    fn ended(&mut self, container: ContainerId, request: &RequestId) {
        if !self.book.ended.insert(container.clone()) {
            return;
        }
        self.seen.ended.fetch_add(1, Ordering::Relaxed);
        if *request == self.ends.request {
            self.ends.ended += 1;
            self.ends.ran.insert(container);
        } else {
            self.stays.ended += 1;
        }
    }
}

fn call(mut wire: HttpConnection, path: String, body: Vec<u8>) -> Calling {
    Box::pin(async move {
        let answer = wire.post(&path, &body).await;
        (wire, answer)
    })
}
