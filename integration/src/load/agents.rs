//! Simulated node agents without processes. They register, listen, report at the interval that the
//! resource manager sets and after each change, and end their containers when their run time is over.
//!
//! Each agent is one task with one connection, or, as agents of earlier versions, with one stream and
//! one connection for reports. If the limit of descriptors is too low, several of the latter share a
//! connection for reports. Each agent keeps its own record and returns it at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use headroom_client::retry::ExponentialBackoff;
use headroom_types::{
    Bytes, ContainerId, EnforcerKind, Epoch, Evidence, ExitReason, ExitReport, NodeId, Resource,
    StopCause, UnixMillis,
};
use headroom_wire::v1::node_channel::{NODE_CHANNEL_PROTOCOL, NodeChannelLine, NodeReportOutcome};
use headroom_wire::v1::nodes::{
    ContainerDesiredState, DesiredStateLine, NodeContainerPhase, NodeHealthState, NodeRegistered,
    NodeReportReply, NodeTraits, ObservedContainer, RunOrder,
};
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::http::{HttpConnection, LineChannel, Lines};
use super::limits;
use super::manager_address::ManagerAddress;
use super::records::AgentRecord;

/// Interval of heartbeats of a resource manager that sets none.
const ALIVE: Duration = Duration::from_secs(1);
/// Number of agents that connect at the same time at the start of the fleet.
const AT_ONCE: usize = 256;
/// First word of a command that ends by itself. The second word is its run time in milliseconds.
pub const ENDS: &str = "ends-after-ms";
/// Command that runs until it is stopped.
pub const STAYS: &str = "stays";

/// Parameters of a fleet.
#[derive(Clone, Debug)]
pub struct AgentFleetPlan {
    /// Address of the resource manager.
    pub rm: ManagerAddress,
    /// Number of agents.
    pub agents: usize,
    /// Resources of each agent.
    pub offers: Resource,
    /// Way of their reports.
    pub protocol: AgentProtocol,
}

/// Way of the reports of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentProtocol {
    /// On the connection of the desired state.
    Channel,
    /// As calls, from agents of earlier versions.
    Calls {
        /// Number of connections for reports. If it is below the number of agents, agents share
        /// connections.
        connections: usize,
    },
}

/// Counters of all agents together.
#[derive(Debug, Default)]
pub struct Totals {
    /// Agents that are registered and listen.
    pub listening: AtomicUsize,
    /// Containers that run.
    pub running: AtomicUsize,
    /// Reports that were answered.
    pub reports: AtomicU64,
    /// Lines of the streams that were read.
    pub lines: AtomicU64,
    /// Agents send a heartbeat each second, as those of earlier versions, whatever the resource
    /// manager sets.
    pub each_second: AtomicBool,
}

/// A running fleet.
#[derive(Debug)]
pub struct AgentFleet {
    /// Counters that are updated during the run.
    pub totals: Arc<Totals>,
    agents: Vec<JoinHandle<AgentRecord>>,
    end: watch::Sender<bool>,
}

type ReportLine = Arc<Mutex<Option<HttpConnection>>>;

impl AgentFleet {
    /// Starts all agents. They reconnect whenever the resource manager is back.
    pub fn start(plan: &AgentFleetPlan) -> Result<Self> {
        let totals = Arc::new(Totals::default());
        let (end, ended) = watch::channel(false);
        let gate = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let connections = match plan.protocol {
            AgentProtocol::Channel => plan.agents,
            AgentProtocol::Calls { connections } => connections,
        };
        let lines: Vec<ReportLine> = (0..connections.max(1))
            .map(|_| ReportLine::default())
            .collect();
        let mut agents = Vec::with_capacity(plan.agents);
        for n in 0..plan.agents {
            let line = lines.get(n % lines.len()).cloned().unwrap_or_default();
            let agent = Agent::new(n, plan, line, totals.clone())?;
            let (gate, mut ended) = (gate.clone(), ended.clone());
            agents.push(tokio::spawn(async move {
                let mut agent = agent;
                let mut place = gate.acquire_owned().await.ok();
                tokio::select! {
                    _ = ended.wait_for(|end| *end) => {}
                    () = agent.live(&mut place) => {}
                }
                agent.book
            }));
        }
        Ok(AgentFleet {
            totals,
            agents,
            end,
        })
    }

    /// Disconnects all agents and returns their records.
    pub async fn end(self) -> Result<Vec<AgentRecord>> {
        self.end.send_replace(true);
        let mut books = Vec::with_capacity(self.agents.len());
        for agent in self.agents {
            books.push(agent.await.context("an agent panicked")?);
        }
        Ok(books)
    }
}

/// A simulated container.
#[derive(Debug)]
struct Played {
    observed: ObservedContainer,
    /// Time of its own end, if it ends by itself.
    ends: Option<Instant>,
    /// Its exit report, after its end.
    exit: Option<ExitReport>,
    /// The resource manager of this epoch has received the report.
    received: bool,
    /// It changed since the last report.
    changed: bool,
}

#[derive(Debug)]
struct Agent {
    n: usize,
    id: NodeId,
    rm: ManagerAddress,
    offers: Resource,
    protocol: AgentProtocol,
    report_path: String,
    report_line: ReportLine,
    /// Number of the latest report on the connection of the desired state.
    report_number: u64,
    epoch: Epoch,
    /// Interval of heartbeats.
    alive: Duration,
    alive_at: Instant,
    has: BTreeMap<ContainerId, Played>,
    totals: Arc<Totals>,
    book: AgentRecord,
}

/// The open stream of an agent.
#[derive(Debug)]
enum AgentStream {
    Channel(LineChannel),
    Lines(Lines),
}

/// As [`headroom_wire::v1::node_channel::NodeChannelReport`], with references instead of copies.
#[derive(Debug, Serialize)]
struct NumberedReport<'a> {
    number: u64,
    report: Report<'a>,
}

/// As [`headroom_wire::v1::nodes::NodeReport`], with references instead of copies.
#[derive(Debug, Serialize)]
struct Report<'a> {
    epoch: Epoch,
    containers: Vec<&'a ObservedContainer>,
    exits: Vec<&'a ExitReport>,
    host_used: Bytes,
    health: NodeHealthState,
}

/// As [`headroom_wire::v1::nodes::RegisterNode`], with references instead of copies.
#[derive(Debug, Serialize)]
struct Registration<'a> {
    serial: u64,
    offers: &'a Resource,
    enforcer: EnforcerKind,
    url: &'static str,
    health: NodeHealthState,
    version: &'static str,
    traits: NodeTraits,
    containers: Vec<&'a ObservedContainer>,
    exits: Vec<&'a ExitReport>,
}

impl Agent {
    fn new(
        n: usize,
        plan: &AgentFleetPlan,
        report_line: ReportLine,
        totals: Arc<Totals>,
    ) -> Result<Self> {
        let id: NodeId = format!("fake-{n:05}").parse()?;
        Ok(Agent {
            n,
            rm: plan.rm.clone(),
            offers: plan.offers.clone(),
            protocol: plan.protocol,
            report_path: format!("/v1/nodes/{id}/report"),
            report_line,
            report_number: 0,
            epoch: Epoch(0),
            alive: ALIVE,
            alive_at: Instant::now(),
            has: BTreeMap::new(),
            totals,
            book: AgentRecord::of(id.clone()),
            id,
        })
    }

    async fn live(&mut self, place: &mut Option<tokio::sync::OwnedSemaphorePermit>) {
        let mut backoff =
            ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            let mut listened = false;
            if let Err(error) = self.session(place, &mut listened).await {
                self.book.trouble(&error);
            }
            if listened {
                self.totals.listening.fetch_sub(1, Ordering::Relaxed);
                backoff.reset();
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Registers and serves the stream until an error.
    async fn session(
        &mut self,
        place: &mut Option<tokio::sync::OwnedSemaphorePermit>,
        listened: &mut bool,
    ) -> Result<()> {
        let mut stream = match self.protocol {
            AgentProtocol::Channel => self.open_channel().await?,
            AgentProtocol::Calls { .. } => self.open_lines().await?,
        };
        *place = None;
        *listened = true;
        self.totals.listening.fetch_add(1, Ordering::Relaxed);
        // The heartbeats of all agents are spread over the interval.
        self.alive_at = Instant::now()
            + self
                .alive
                .mul_f64(f64::from(u32::try_from(self.n % 1000).unwrap_or(0)) / 1000.0);
        loop {
            self.turn(&mut stream).await?;
        }
    }

    async fn turn(&mut self, stream: &mut AgentStream) -> Result<()> {
        let now = Instant::now();
        self.end_due(now);
        let alive = self.alive_at <= now;
        if alive || self.has.values().any(|c| c.changed) {
            return self.report(stream, alive).await;
        }
        let wake = self
            .has
            .values()
            .filter_map(|c| c.ends)
            .min()
            .map_or(self.alive_at, |ends| ends.min(self.alive_at));
        tokio::select! {
            line = next(stream) => {
                self.totals.lines.fetch_add(1, Ordering::Relaxed);
                match line? {
                    NodeChannelLine::Desired(desired) => self.obey(desired),
                    NodeChannelLine::Reply { number, .. } => {
                        bail!("reply {number} to no report")
                    }
                    NodeChannelLine::Registered(_) => bail!("a second answer to the registration"),
                }
            }
            () = tokio::time::sleep_until(wake) => Ok(()),
        }
    }

    async fn post(&self, path: &str, body: &[u8]) -> Result<super::http::HttpResponse> {
        let mut line = self.report_line.lock().await;
        let mut wire = match line.take() {
            Some(wire) => wire,
            None => HttpConnection::connect(self.rm.now(), limits::address(self.n)).await?,
        };
        let answer = wire.post(path, body).await?;
        *line = Some(wire);
        Ok(answer)
    }

    /// Registers and opens the stream on the same connection.
    async fn open_channel(&mut self) -> Result<AgentStream> {
        let wire = HttpConnection::connect(self.rm.now(), limits::address(self.n)).await?;
        let path = format!("/v1/nodes/{}/register", self.id);
        let body = serde_json::to_vec(&self.registration())?;
        let opened = wire.channel(&path, NODE_CHANNEL_PROTOCOL, &body).await?;
        let mut channel = match opened {
            Ok(channel) => channel,
            Err(answer) => bail!("registering: status {}", answer.status),
        };
        let NodeChannelLine::Registered(registered) = parse(&channel.next().await?)? else {
            bail!("another line instead of the answer to the registration")
        };
        self.registered(registered);
        Ok(AgentStream::Channel(channel))
    }

    /// Registers by a call, and opens the stream on a connection of its own.
    async fn open_lines(&mut self) -> Result<AgentStream> {
        let path = format!("/v1/nodes/{}/register", self.id);
        let body = serde_json::to_vec(&self.registration())?;
        let answer = self.post(&path, &body).await?;
        ensure!(
            answer.status == 200,
            "registering: status {}",
            answer.status
        );
        self.registered(serde_json::from_slice(&answer.body)?);
        let wire = HttpConnection::connect(self.rm.now(), limits::address(self.n)).await?;
        let path = format!("/v1/nodes/{}/desired?epoch={}", self.id, self.epoch);
        match wire.lines(&path).await? {
            Ok(lines) => Ok(AgentStream::Lines(lines)),
            Err(answer) => bail!("listening: status {}", answer.status),
        }
    }

    fn registration(&self) -> Registration<'_> {
        Registration {
            serial: 0,
            offers: &self.offers,
            enforcer: EnforcerKind::Poll,
            url: "http://127.0.0.1:9",
            health: NodeHealthState::Healthy,
            version: "fake",
            traits: NodeTraits::default(),
            containers: self.has.values().map(|c| &c.observed).collect(),
            exits: self.has.values().filter_map(|c| c.exit.as_ref()).collect(),
        }
    }

    fn registered(&mut self, registered: NodeRegistered) {
        self.epoch = registered.epoch;
        self.follow(registered.heartbeat_ms);
        for container in registered.acked {
            self.has.remove(&container);
        }
        for container in self.has.values_mut() {
            (container.changed, container.received) = (false, true);
        }
    }

    /// Takes the interval of heartbeats that the resource manager sets.
    fn follow(&mut self, millis: Option<u64>) {
        let follows = !self.totals.each_second.load(Ordering::Relaxed);
        let set = millis.filter(|_| follows);
        self.alive = set.map_or(ALIVE, Duration::from_millis);
    }

    async fn report(&mut self, stream: &mut AgentStream, alive: bool) -> Result<()> {
        let containers = self
            .has
            .values()
            .filter(|c| alive || c.changed)
            .map(|c| &c.observed)
            .collect();
        let exits: Vec<&ExitReport> = self
            .has
            .values()
            .filter(|c| !c.received)
            .filter_map(|c| c.exit.as_ref())
            .collect();
        let exited = !exits.is_empty();
        let host_used = Bytes::from_mib(512);
        let body = Report {
            epoch: self.epoch,
            containers,
            exits,
            host_used,
            health: NodeHealthState::Healthy,
        };
        let (reply, meanwhile) = match stream {
            AgentStream::Channel(channel) => {
                self.report_number += 1;
                let number = self.report_number;
                let mut line = serde_json::to_vec(&NumberedReport {
                    number,
                    report: body,
                })?;
                line.push(b'\n');
                channel.send(&line).await?;
                replied(channel, number).await?
            }
            AgentStream::Lines(_) => {
                let body = serde_json::to_vec(&body)?;
                let answer = self.post(&self.report_path, &body).await?;
                ensure!(answer.status == 200, "a report: status {}", answer.status);
                (serde_json::from_slice(&answer.body)?, Vec::new())
            }
        };
        self.totals.reports.fetch_add(1, Ordering::Relaxed);
        if exited || alive {
            self.follow(reply.heartbeat_ms);
            for id in &reply.received {
                self.has
                    .get_mut(id)
                    .into_iter()
                    .for_each(|c| c.received = true);
            }
        }
        for container in self.has.values_mut() {
            container.changed = false;
        }
        if alive {
            self.alive_at = Instant::now() + self.alive;
        }
        meanwhile
            .into_iter()
            .try_for_each(|desired| self.obey(desired))
    }

    /// Applies a line of the stream.
    fn obey(&mut self, line: DesiredStateLine) -> Result<()> {
        ensure!(
            line.epoch == self.epoch,
            "a line has epoch {}, but the agent registered with epoch {}",
            line.epoch,
            self.epoch
        );
        if line.full {
            let wanted: std::collections::BTreeSet<&ContainerId> =
                line.containers.iter().map(|c| &c.container).collect();
            let unwanted: Vec<ContainerId> = self
                .has
                .keys()
                .filter(|id| !wanted.contains(id))
                .cloned()
                .collect();
            for id in unwanted {
                self.end(&id, ExitReason::Stopped);
            }
        }
        for desired in line.containers {
            match desired.want {
                ContainerDesiredState::Run(order) => self.run(desired.container, *order),
                ContainerDesiredState::Stop {
                    cause: StopCause::Preempted,
                } => self.end(&desired.container, ExitReason::Preempted),
                ContainerDesiredState::Stop { .. } => {
                    self.end(&desired.container, ExitReason::Stopped)
                }
                ContainerDesiredState::Forget => {
                    self.has.remove(&desired.container);
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, id: ContainerId, order: RunOrder) {
        if let Some(known) = self.has.get_mut(&id) {
            if order.version > known.observed.version && known.exit.is_none() {
                (
                    known.observed.version,
                    known.observed.resource,
                    known.changed,
                ) = (order.version, order.resource, true);
            }
            return;
        }
        let ends = match order.launch.command.as_slice() {
            [first, time, ..] if first == ENDS => time
                .parse()
                .ok()
                .map(|ms| Instant::now() + Duration::from_millis(ms)),
            _ => None,
        };
        let observed = ObservedContainer {
            container: id.clone(),
            request: order.request,
            attempt: order.attempt,
            resource: order.resource,
            version: order.version,
            refused: None,
            phase: NodeContainerPhase::Running,
            used: Some(Bytes::from_mib(64)),
            anon: None,
            granted: order.granted,
        };
        self.book.launched(&observed);
        self.has.insert(
            id,
            Played {
                observed,
                ends,
                exit: None,
                received: false,
                changed: true,
            },
        );
        self.totals.running.fetch_add(1, Ordering::Relaxed);
        let live = self
            .has
            .values()
            .filter(|c| c.exit.is_none())
            .map(|c| &c.observed.resource.memory);
        self.book.holds(
            live.fold(Bytes::ZERO, |sum, memory| sum.saturating_add(*memory)),
            self.offers.memory,
        );
    }

    fn end_due(&mut self, now: Instant) {
        let due = |c: &Played| c.exit.is_none() && c.ends.is_some_and(|ends| ends <= now);
        let over: Vec<ContainerId> = self
            .has
            .iter()
            .filter(|(_, c)| due(c))
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            self.end(&id, ExitReason::Exit { code: 0 });
        }
    }

    fn end(&mut self, id: &ContainerId, reason: ExitReason) {
        let Some(played) = self.has.get_mut(id).filter(|c| c.exit.is_none()) else {
            return;
        };
        (
            played.ends,
            played.changed,
            played.received,
            played.observed.phase,
        ) = (None, true, false, NodeContainerPhase::Exited);
        played.exit = Some(ExitReport {
            container: id.clone(),
            node: self.id.clone(),
            reason,
            evidence: Evidence::empty(EnforcerKind::Poll),
            diagnosis: Vec::new(),
            started: Some(played.observed.granted),
            ended: UnixMillis(played.observed.granted.0 + 1),
            timeline: Vec::new(),
            log_tail: String::new(),
            tasks: Vec::new(),
        });
        self.book.ended(id);
        self.totals.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next line of a stream. Cancel-safe.
async fn next(stream: &mut AgentStream) -> Result<NodeChannelLine> {
    match stream {
        AgentStream::Channel(channel) => parse(&channel.next().await?),
        AgentStream::Lines(lines) => {
            let line = lines.next().await?;
            let desired = serde_json::from_slice(&line).context("a line of the desired state")?;
            Ok(NodeChannelLine::Desired(desired))
        }
    }
}

/// Waits for the reply to a report. Returns it with the desired state that arrived before.
async fn replied(
    channel: &mut LineChannel,
    report: u64,
) -> Result<(NodeReportReply, Vec<DesiredStateLine>)> {
    let mut before = Vec::new();
    loop {
        match parse(&channel.next().await?)? {
            NodeChannelLine::Desired(desired) => before.push(desired),
            NodeChannelLine::Reply { number, outcome } if number == report => {
                return match outcome {
                    NodeReportOutcome::Received(reply) => Ok((reply, before)),
                    NodeReportOutcome::Refused(problem) => bail!("a report: {problem}"),
                };
            }
            NodeChannelLine::Reply { number, .. } => bail!("reply {number} to report {report}"),
            NodeChannelLine::Registered(_) => bail!("a second answer to the registration"),
        }
    }
}

fn parse(line: &[u8]) -> Result<NodeChannelLine> {
    serde_json::from_slice(line).context("a line of the resource manager")
}
