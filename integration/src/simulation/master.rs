//! A master's driver around its real core and session, and the clients that submit jobs and restart
//! masters.
//!
//! A journal survives its master. The journal of an unmanaged master belongs to its client; that of
//! a managed one is on its node, or in a directory that the nodes share. In the shared directory, the
//! take-over by a later attempt deposes an earlier one that still runs: its later records are no
//! part of the journal, and it ends at its next sync.

use std::collections::{BTreeMap, VecDeque};

use headroom_appmaster::event::{
    EventTimestamp, ExecutorHello, JobOutcome, MasterEffect, MasterEvent, TaskLimitResult,
};
use headroom_appmaster::record::{self, JournalHeader, JournalRecord};
use headroom_appmaster::run::MasterResult;
use headroom_appmaster::session::{ManagerSession, SessionEnd};
use headroom_appmaster::spec::ExecutorEnvironment;
use headroom_appmaster::taskset::TaskPosition;
use headroom_appmaster::{MasterCore, MasterSetup};
use headroom_config::job::executor_request::first_request;
use headroom_rm_core::{self as rm, CallAnswer, ClusterCall};
use headroom_rm_server::from_wire;
use headroom_types::exit::Unattributed;
use headroom_types::{
    AppId, AttemptId, Bytes, ContainerId, Cpus, NodeId, Resource, TaskAttemptId, Tick,
};
use headroom_wire::v1::nodes::RunOrder;
use headroom_wire::v1::task::FromExecutor;

use super::call_result::SimCallResult;
use super::event_words::event_words;
use super::host::SimProgramEnd;
use super::manager::SimManagerInput;
use super::master_journal::{Journal, SimEffectGroup};
use super::master_link::SimMasterLink;
use super::network::{Caller, Line};
use super::{Simulation, SimulationEvent as Any};
use crate::fault::{Fault, LastWrite};
use crate::scenario::ScenarioJob;

#[derive(Debug)]
pub(super) enum SimClientEvent {
    Submit,
    Heard {
        number: u64,
        heard: Box<SimCallResult>,
    },
    /// The client starts an unmanaged master.
    Master,
    Kill,
}

#[derive(Debug)]
pub(super) enum SimMasterEvent {
    Heard {
        number: u64,
        heard: Box<SimCallResult>,
    },
    Line {
        stream: u64,
        line: Box<Line>,
    },
    StreamEnded {
        stream: u64,
    },
    Said {
        line: u64,
        container: ContainerId,
        message: Box<FromExecutor>,
    },
    LineDown {
        line: u64,
        container: ContainerId,
    },
    Wake,
    Durable,
    /// A paused master continues.
    Continue,
    /// An output was committed.
    Committed {
        task: TaskPosition,
        attempt: TaskAttemptId,
    },
}

/// The user of one job.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) job: ScenarioJob,
    pub(crate) app: Option<AppId>,
    /// A user has killed it.
    pub(crate) killed: bool,
    call: Option<(u64, Asked)>,
    /// By node; `None` for an unmanaged master.
    pub(crate) journals: BTreeMap<Option<NodeId>, Journal>,
    /// Outcome as seen by the last master that exited by itself.
    pub(crate) outcome: Option<JobOutcome>,
    left: bool,
    /// A fault that occurs during the next write of its master.
    pub(super) doom: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Submit,
    Kill,
}

impl Client {
    pub(super) fn new(job: ScenarioJob) -> Self {
        Client {
            job,
            app: None,
            killed: false,
            call: None,
            journals: BTreeMap::new(),
            outcome: None,
            left: false,
            doom: None,
        }
    }
}

/// One process of a master.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) job: usize,
    pub(super) app: AppId,
    /// Its node; `None` for an unmanaged master.
    pub(super) node: Option<NodeId>,
    pub(super) attempt: u32,
    pub(super) container: Option<ContainerId>,
    pub(super) url: String,
    pub(super) core: MasterCore,
    pub(super) greeting: ExecutorEnvironment,
    pub(super) started: u64,
    /// Effects of turns whose records are not durable, oldest first.
    pub(super) groups: VecDeque<SimEffectGroup>,
    /// Time at which the last group is durable.
    pub(super) durable_at: u64,
    pub(super) paused: bool,
    /// Events that a paused master has missed.
    pub(super) inbox: VecDeque<SimMasterEvent>,
    pub(super) effects: Vec<MasterEffect>,
    pub(super) lines: BTreeMap<ContainerId, u64>,
    pub(super) session: ManagerSession,
    pub(super) link: SimMasterLink,
    wake: Option<u64>,
}

impl Simulation {
    pub(super) fn client_thing(&mut self, job: usize, thing: SimClientEvent) {
        let Some(client) = self.clients.get_mut(job) else {
            return;
        };
        match thing {
            SimClientEvent::Submit => {
                let secret = first_secret(job);
                let submission = submission(&client.job, &secret);
                if let rm::MasterKind::Managed {
                    first_request: Some(ask),
                    ..
                } = &submission.master
                {
                    self.oracle.asked(&secret, &ask.request, ask.count);
                }
                let call = ClusterCall::Submit(Box::new(submission));
                let number = self.call(Caller::Client(job), SimManagerInput::Call(Box::new(call)));
                self.clients[job].call = Some((number, Asked::Submit));
            }
            SimClientEvent::Kill => {
                let Some(app) = client.app.clone() else {
                    return;
                };
                client.killed = true;
                let call = ClusterCall::Kill { app, reason: None };
                let number = self.call(Caller::Client(job), SimManagerInput::Call(Box::new(call)));
                self.clients[job].call = Some((number, Asked::Kill));
            }
            SimClientEvent::Heard { number, heard } => match client.call {
                Some((waited, asked)) if waited == number => self.client_hears(job, asked, *heard),
                Some(_) | None => {}
            },
            SimClientEvent::Master => {
                let running = self.processes.values().any(|p| p.job == job);
                let client = &self.clients[job];
                if let (Some(app), false, false) = (client.app.clone(), running, client.left) {
                    let attempt = AttemptId { app, attempt: 1 };
                    self.process_starts(job, attempt, None, None);
                }
            }
        }
    }

    fn client_hears(&mut self, job: usize, asked: Asked, heard: SimCallResult) {
        let client = &mut self.clients[job];
        client.call = None;
        let again = match asked {
            Asked::Submit => SimClientEvent::Submit,
            Asked::Kill => SimClientEvent::Kill,
        };
        match heard {
            SimCallResult::Answer(answer, _) => {
                if let CallAnswer::Submitted { app, .. } = *answer {
                    self.oracle.accepted(&app);
                    client.app = Some(app);
                    if client.job.managed.is_none() {
                        self.later(20, Any::Client(job, SimClientEvent::Master));
                    }
                }
            }
            SimCallResult::Lost => self.later(200, Any::Client(job, again)),
            // A managed master may fit no present node; the client retries.
            SimCallResult::Refused(_) if asked == Asked::Submit => {
                self.later(1_000, Any::Client(job, again))
            }
            SimCallResult::Refused(_) | SimCallResult::Listening | SimCallResult::TooOld => {}
        }
    }

    pub(super) fn managed_master_starts(
        &mut self,
        node: &NodeId,
        id: &ContainerId,
        order: &RunOrder,
    ) {
        let job = self
            .clients
            .iter()
            .position(|c| c.job.spec.name == *id.app.name());
        let attempt = order
            .launch
            .env
            .get("HEADROOM_ATTEMPT")
            .and_then(|a| a.parse().ok());
        if let (Some(job), Some(attempt)) = (job, attempt) {
            let attempt = AttemptId {
                app: id.app.clone(),
                attempt,
            };
            let secret = order.launch.env.get("HEADROOM_APP_TOKEN").cloned();
            let home = Some((node.clone(), id.clone()));
            self.process_starts(job, attempt, home, secret);
        }
    }

    fn process_starts(
        &mut self,
        job: usize,
        attempt: AttemptId,
        home: Option<(NodeId, ContainerId)>,
        first_secret: Option<String>,
    ) {
        let (node, container) = home.unzip();
        let pid = self.number();
        let url = match &node {
            None => format!("tcp://job{job}:1"),
            Some(node) => format!("tcp://{node}-{pid}:1"),
        };
        let key = self.journal_key(node.as_ref());
        if self.scenario.shared_journals && !self.takes_over(job, &attempt) {
            if let (Some(node), Some(container)) = (node, container) {
                self.cell_ends(&node, &container, SimProgramEnd::Code(1));
            }
            return;
        }
        let client = &mut self.clients[job];
        let spec = client.job.spec.clone();
        let journal = client.journals.entry(key).or_default();
        let master_memory = client.job.managed.unwrap_or(Bytes::ZERO);
        let setup = MasterSetup {
            base_dir: None,
            master_memory,
            attempt: attempt.attempt,
            ..MasterSetup::default()
        };
        let core = if journal.records.is_empty() {
            let first = first_secret.filter(|_| attempt.attempt == 1);
            journal.token = first.unwrap_or_else(|| format!("j{pid}"));
            let (app, token) = (attempt.app.to_string(), journal.token.clone());
            let begin = JournalHeader {
                version: record::VERSION,
                job: record::fingerprint(&spec),
                app,
                token,
                port: 1,
                submission_token: None,
            };
            journal.records.push(JournalRecord::Begin(begin));
            MasterCore::new(spec, setup)
        } else {
            MasterCore::replay(spec, setup, reread(&journal.records))
        };
        core.assert_invariants();
        self.oracle.master_begins(&journal.token, job);
        let greeting = ExecutorEnvironment {
            master_url: url.clone(),
            token: journal.token.clone(),
        };
        let records = journal.records.len();
        self.note(|| {
            format!("master {attempt} starts as process {pid} on {node:?}, {records} records")
        });
        let process = Process {
            job,
            app: attempt.app.clone(),
            node,
            attempt: attempt.attempt,
            container,
            session: ManagerSession::new(attempt, url.clone(), core.outcome().cloned(), Tick(0)),
            url,
            link: SimMasterLink::default(),
            core,
            greeting,
            started: self.now,
            groups: VecDeque::new(),
            durable_at: 0,
            paused: false,
            inbox: VecDeque::new(),
            effects: Vec::new(),
            lines: BTreeMap::new(),
            wake: None,
        };
        self.processes.insert(pid, process);
        self.session_registers(pid);
        self.process_waits(pid);
    }

    /// Ends a master that exits by itself.
    pub(super) fn process_leaves(&mut self, pid: u64, code: i32) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        let outcome = process.session.outcome().cloned();
        self.note(|| format!("master process {pid} exits: {outcome:?}"));
        for line in process.lines.values() {
            self.close_connection(*line);
        }
        let others = self.connections_of(|c| c.pid == pid);
        others
            .into_iter()
            .filter(|l| !process.lines.values().any(|m| m == l))
            .for_each(|l| self.break_connection(l, false));
        let client = &mut self.clients[process.job];
        client.left = process.container.is_none();
        client.outcome = outcome;
        if let (Some(node), Some(container)) = (process.node, process.container) {
            self.cell_ends(&node, &container, SimProgramEnd::Code(code));
        }
    }

    /// Kills a master.
    pub(super) fn process_dies(&mut self, pid: u64, write: LastWrite) {
        let Some(mut process) = self.processes.remove(&pid) else {
            return;
        };
        self.note(|| format!("master process {pid} dies"));
        if write == LastWrite::Kept {
            self.process_writes_all(&mut process);
        }
        // The kernel still delivers sent data.
        for line in self.connections_of(|c| c.pid == pid) {
            self.close_connection(line);
        }
    }

    pub(super) fn managed_master_gone(&mut self, container: &ContainerId) {
        let found = self
            .processes
            .iter()
            .find(|(_, p)| p.container.as_ref() == Some(container))
            .map(|(pid, _)| *pid);
        if let Some(pid) = found {
            self.process_dies(pid, LastWrite::Kept);
        }
    }

    /// Handles SIGTERM of a managed master: it leaves the job to the next attempt.
    pub(super) fn managed_master_leaves(&mut self, container: &ContainerId) -> bool {
        let found = self
            .processes
            .iter()
            .find(|(_, p)| p.container.as_ref() == Some(container))
            .map(|(pid, p)| (*pid, p.paused));
        if let Some((pid, false)) = found {
            self.process_leaves(pid, 0);
        }
        found.is_some()
    }

    pub(super) fn process_thing(&mut self, pid: u64, thing: SimMasterEvent) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        if matches!(thing, SimMasterEvent::Wake) {
            // An earlier timer replaced this one.
            if p.wake != Some(self.now) {
                return;
            }
            p.wake = None;
        }
        if p.paused && !matches!(thing, SimMasterEvent::Continue) {
            if !matches!(thing, SimMasterEvent::Wake) {
                p.inbox.push_back(thing);
            }
            return;
        }
        if matches!(thing, SimMasterEvent::Continue) {
            return self.process_continues(pid);
        }
        self.process_takes(pid, thing);
        self.process_carries_out(pid);
        if let Some(p) = self.processes.get(&pid) {
            let is_replaced = p.session.end() == Some(SessionEnd::Replaced);
            if p.session.is_over() && (is_replaced || p.groups.is_empty()) {
                let (app, outcome) = (p.app.clone(), p.session.outcome().cloned());
                let code = MasterResult { app, outcome }.exit_code();
                return self.process_leaves(pid, i32::from(code));
            }
        }
        self.process_waits(pid);
    }

    fn process_takes(&mut self, pid: u64, thing: SimMasterEvent) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        match thing {
            SimMasterEvent::Durable => self.process_written(pid),
            SimMasterEvent::Continue => {}
            SimMasterEvent::Wake => {
                let now = self.now - p.started;
                if p.core.next_timer().is_some_and(|t| t.0 <= now) {
                    self.core_steps(pid, MasterEvent::Timer);
                    self.timer_has_moved(pid);
                    self.process_carries_out(pid);
                }
                // The session reports nothing that is not durable.
                if self
                    .processes
                    .get(&pid)
                    .is_some_and(|p| p.groups.is_empty())
                {
                    self.session_wakes(pid);
                }
            }
            SimMasterEvent::Heard { number, heard } => self.master_link_hears(pid, number, *heard),
            SimMasterEvent::Line { stream, line } => self.master_link_line(pid, stream, *line),
            SimMasterEvent::StreamEnded { stream } => self.master_link_stream_ended(pid, stream),
            SimMasterEvent::Said {
                line,
                container,
                message,
            } => self.process_hears(pid, line, container, *message),
            SimMasterEvent::Committed { task, attempt } => self.core_steps(
                pid,
                MasterEvent::Committed {
                    task,
                    attempt,
                    error: None,
                },
            ),
            SimMasterEvent::LineDown { line, container } => {
                if p.lines.get(&container) == Some(&line) {
                    p.lines.remove(&container);
                    self.core_steps(pid, MasterEvent::LineDown { container });
                }
            }
        }
    }

    fn process_hears(
        &mut self,
        pid: u64,
        line: u64,
        container: ContainerId,
        message: FromExecutor,
    ) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        if !self.wires.connections.contains_key(&line) {
            return;
        }
        match message {
            FromExecutor::Hello {
                container,
                token,
                slots,
                task_groups,
                running,
                unacked,
                ..
            } => {
                let hello = ExecutorHello {
                    container,
                    slots,
                    task_groups,
                    running,
                    unacked,
                };
                self.process_hears_hello(pid, line, &token, hello);
            }
            FromExecutor::Started { .. }
            | FromExecutor::Usage { .. }
            | FromExecutor::Ended { .. }
            | FromExecutor::Pressure { .. }
            | FromExecutor::Resized { .. }
            | FromExecutor::Leftover { .. }
            | FromExecutor::Alive
                if p.lines.get(&container) != Some(&line) => {}
            FromExecutor::Started { attempt, at: _ } => {
                self.core_steps(pid, MasterEvent::Started { container, attempt })
            }
            FromExecutor::Usage { tasks } => {
                self.core_steps(pid, MasterEvent::Usage { container, tasks })
            }
            FromExecutor::Ended { report } => {
                self.oracle.task_heard(&p.greeting.token, &report.attempt);
                self.core_steps(pid, MasterEvent::Ended { container, report });
            }
            FromExecutor::Pressure {
                attempt,
                limit,
                current: _,
            } => {
                self.core_steps(
                    pid,
                    MasterEvent::Pressure {
                        container,
                        attempt,
                        limit,
                    },
                );
            }
            FromExecutor::Resized {
                attempt,
                limit,
                frozen_us,
                error,
            } => {
                let set = Box::new(TaskLimitResult {
                    attempt,
                    limit,
                    frozen_us,
                    error,
                });
                self.core_steps(pid, MasterEvent::LimitSet { container, set });
            }
            FromExecutor::Leftover { memory, left_by } => {
                let left = Unattributed { memory, left_by };
                self.core_steps(pid, MasterEvent::Leftover { container, left });
            }
            FromExecutor::Alive => {}
        }
    }

    fn process_hears_hello(&mut self, pid: u64, line: u64, token: &str, hello: ExecutorHello) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        if token != p.greeting.token || hello.container.app != p.app {
            return self.break_connection(line, false);
        }
        p.lines.insert(hello.container.clone(), line);
        self.core_steps(pid, MasterEvent::Hello(hello));
    }

    pub(super) fn core_steps(&mut self, pid: u64, event: MasterEvent) {
        let unix = self.wall();
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let words = format!("process {pid} takes {}", event_words(&event));
        self.diary.borrow_mut().note(self.now, &words);
        match &event {
            MasterEvent::Registered { largest, .. } | MasterEvent::Refused { largest, .. } => {
                self.oracle
                    .record_largest(&p.greeting.token, largest.memory);
            }
            MasterEvent::Update { .. }
            | MasterEvent::Hello(_)
            | MasterEvent::Started { .. }
            | MasterEvent::Usage { .. }
            | MasterEvent::Ended { .. } => {}
            MasterEvent::Pressure { .. }
            | MasterEvent::LimitSet { .. }
            | MasterEvent::ResizeRefused { .. }
            | MasterEvent::Committed { .. } => {}
            MasterEvent::Known(_) | MasterEvent::Inputs { .. } | MasterEvent::Leftover { .. } => {}
            MasterEvent::SubmitterJoined { .. }
            | MasterEvent::Submission { .. }
            | MasterEvent::SubmitterLeft { .. } => {}
            MasterEvent::LineDown { .. } | MasterEvent::Stop | MasterEvent::Timer => {}
        }
        let now = EventTimestamp {
            tick: Tick(self.now - p.started),
            unix,
        };
        p.core.step(now, event, &mut p.effects);
        p.core.assert_invariants();
    }

    /// Checks that a deadline moved after it was handled; otherwise it would fire forever.
    fn timer_has_moved(&mut self, pid: u64) {
        let Some(p) = self.processes.get(&pid) else {
            return;
        };
        let now = Tick(self.now - p.started);
        if let Some(due) = p.core.next_timer().filter(|due| *due <= now) {
            let (app, fleet) = (&p.app, p.core.fleet());
            let requests: Vec<String> = fleet
                .requests
                .iter()
                .map(|(id, r)| format!("{id} wants {} holds {:?}", r.wanted, r.hold_until))
                .collect();
            let lines: Vec<String> = fleet
                .executors
                .iter()
                .map(|(id, e)| format!("{id} {:?} {:?}", e.line, e.reserved))
                .collect();
            self.oracle.fail(format!(
                "{app} loops: the timer {due:?} stays due at {now:?}; {requests:?} {lines:?}"
            ));
        }
    }

    /// Schedules the next wake-up.
    pub(super) fn process_waits(&mut self, pid: u64) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let timers = p.core.next_timer().into_iter();
        let wake = timers
            .chain(p.session.next_timer())
            .min()
            .map(|tick| p.started.saturating_add(tick.0).max(now + 1));
        if let Some(at) = wake.filter(|at| p.wake.is_none_or(|w| *at < w)) {
            p.wake = Some(at);
            self.at(at, Any::Process(pid, SimMasterEvent::Wake));
        }
    }
}

/// Records after a round trip through their file format.
fn reread(records: &[JournalRecord]) -> Vec<JournalRecord> {
    let again = |record: &JournalRecord| {
        let text = serde_json::to_string(record)
            .unwrap_or_else(|e| unreachable!("a record that cannot be written: {e}"));
        serde_json::from_str(&text)
            .unwrap_or_else(|e| unreachable!("a record that cannot be read: {e}: {text}"))
    };
    records.iter().map(again).collect()
}

/// The secret of the first master of a job, if its first executor starts along with it.
fn first_secret(job: usize) -> String {
    format!("first{job}")
}

fn submission(job: &ScenarioJob, secret: &str) -> rm::AppSubmission {
    let first_request = first_request(&job.spec, secret)
        .filter(|_| job.first_executor)
        .and_then(|ask| from_wire::ask(ask).ok());
    let env = first_request
        .iter()
        .map(|_| ("HEADROOM_APP_TOKEN".to_owned(), secret.to_owned()));
    let launch = headroom_types::LaunchSpec {
        command: vec!["appmaster".into()],
        env: env.collect(),
        ..headroom_types::LaunchSpec::default()
    };
    let master = match job.managed {
        None => rm::MasterKind::Unmanaged,
        Some(memory) => {
            let resource = Resource::new(memory, Cpus::from_milli(100));
            rm::MasterKind::Managed {
                resource,
                launch: std::sync::Arc::new(launch),
                max_attempts: 4,
                growth: None,
                start_timeout: None,
                first_request: first_request.map(Box::new),
            }
        }
    };
    let (name, queue) = (
        job.spec.name.clone(),
        headroom_types::QueuePath::default_leaf(),
    );
    rm::AppSubmission {
        key: Some(name.to_string()),
        name,
        queue,
        priority: 0,
        user: "simulated".into(),
        lifetime: None,
        master,
    }
}
