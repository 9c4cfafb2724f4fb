//! A tenant: it holds containers for a while, requests them under all rules of placement, releases
//! them on a warning or ignores it, and counts completed work. It never dies, but its calls and its
//! stream can fail like all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headroom_rm_core::request::ContainerRequest;
use headroom_rm_core::{
    AppSubmission, ApplicationOutcome, CallAnswer, CallRefusal, ClusterCall, FinalRows,
    MasterHeartbeat, MasterKind, MasterUpdate, RequestVerdict, UpdateKind,
};
use headroom_types::{
    AppId, AttemptId, ContainerId, Epoch, ExitReason, LaunchSpec, NodeId, RequestId, Resource,
};

use super::call_result::SimCallResult;
use super::manager::SimManagerInput;
use super::network::{Caller, Line, Reader};
use super::{Simulation, SimulationEvent as Any};
use crate::scenario::scenario_cluster;

/// Usual interval between two calls. Milliseconds.
const HEARTBEAT: u64 = 1_000;
/// Interval of retries of a request that was reported as infeasible. Milliseconds.
const NEVER_AGAIN: u64 = 5_000;
/// Environment variable with the work time of the program. Milliseconds.
pub(super) const RUNS_MS: &str = "RUNS_MS";

#[derive(Debug)]
pub(super) enum SimTenantEvent {
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
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Submit,
    Register,
    Sync,
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Outside,
    Registering,
    Known(Epoch),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    None,
    Opening { number: u64, stream: u64 },
    Open { stream: u64 },
}

/// A container as known by its tenant.
#[derive(Clone, Debug)]
pub(super) struct TenantContainer {
    pub(super) request: RequestId,
    pub(super) node: NodeId,
    pub(super) resource: Resource,
    /// `None` if only the grant was reported.
    pub(super) version: Option<u32>,
}

/// The progress of one request.
#[derive(Clone, Debug, Default)]
struct RequestProgress {
    done: u32,
    ended: BTreeSet<ContainerId>,
    /// Its deadline expired.
    expired: bool,
    /// It was reported as infeasible; time of the next attempt.
    never: Option<u64>,
}

/// A simulated tenant.
#[derive(Debug)]
pub(super) struct SimTenant {
    pub(super) plan: scenario_cluster::TenantPlan,
    pub(super) app: Option<AppId>,
    stage: Stage,
    waiting: Option<(u64, Said)>,
    next: u64,
    since: u64,
    books: BTreeMap<RequestId, RequestProgress>,
    pub(super) live: BTreeMap<ContainerId, TenantContainer>,
    release: BTreeSet<ContainerId>,
    heard: u64,
    stream: Stream,
}

impl SimTenant {
    pub(super) fn new(plan: scenario_cluster::TenantPlan) -> Self {
        let books = plan
            .wants
            .iter()
            .map(|w| (w.request.clone(), RequestProgress::default()))
            .collect();
        SimTenant {
            plan,
            app: None,
            stage: Stage::Outside,
            waiting: None,
            next: 0,
            since: 0,
            books,
            live: BTreeMap::new(),
            release: BTreeSet::new(),
            heard: 0,
            stream: Stream::None,
        }
    }
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
    /// Whether its stream of updates is open.
    pub(super) fn listens(&self) -> bool {
        matches!(
            (self.stage, self.stream),
            (Stage::Known(_), Stream::Open { .. })
        )
    }
    pub(super) fn describe(&self) -> String {
        let books: Vec<String> = self
            .books
            .iter()
            .map(|(r, b)| {
                format!(
                    "{r}: {} done, {} ended, never {:?}, expired {}",
                    b.done,
                    b.ended.len(),
                    b.never,
                    b.expired
                )
            })
            .collect();
        format!(
            "{} {:?} {:?}: {books:?}, {} live",
            self.plan.name,
            self.app,
            self.stage,
            self.live.len()
        )
    }

    fn token(&self) -> String {
        format!("tenant {}", self.plan.name)
    }
    /// Number of containers that still have to complete their work.
    fn owed(&self, want: &scenario_cluster::TenantRequest) -> u32 {
        self.books
            .get(&want.request)
            .filter(|b| !b.expired)
            .map_or(0, |b| want.count.saturating_sub(b.done))
    }
    fn is_done(&self) -> bool {
        self.live.is_empty() && self.plan.wants.iter().all(|w| self.owed(w) == 0)
    }

    fn asks(&self, now: u64) -> Vec<ContainerRequest> {
        let due = |w: &&scenario_cluster::TenantRequest| {
            let never = self.books.get(&w.request).and_then(|b| b.never);
            now >= self.since + w.after_ms && never.is_none_or(|again| now >= again)
        };
        self.plan
            .wants
            .iter()
            .filter(due)
            .map(|w| self.ask(w))
            .collect()
    }

    fn ask(&self, want: &scenario_cluster::TenantRequest) -> ContainerRequest {
        let ended = self.books.get(&want.request).map_or(0, |b| b.ended.len());
        let ended = u32::try_from(ended).unwrap_or(u32::MAX);
        let env = [
            (RUNS_MS, want.runs_ms.to_string()),
            ("HEADROOM_APP_TOKEN", self.token()),
        ];
        let env = env
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let launch = LaunchSpec {
            command: vec!["sit".into()],
            env,
            ..LaunchSpec::default()
        };
        ContainerRequest {
            request: want.request.clone(),
            resource: want.size.clone(),
            count: ended.saturating_add(self.owed(want)),
            ended,
            priority: want.priority,
            place: want.place.clone().into(),
            deadline: want.deadline,
            waited: std::time::Duration::ZERO,
            launch: Arc::new(launch),
        }
    }

    fn hears(&mut self, what: UpdateKind) {
        match what {
            UpdateKind::Allocated(g) => {
                self.books
                    .entry(g.request.clone())
                    .or_default()
                    .ended
                    .remove(&g.container);
                let lease = TenantContainer {
                    request: g.request,
                    node: g.node,
                    resource: g.resource,
                    version: Some(1),
                };
                self.live.insert(g.container, lease);
            }
            UpdateKind::Exited { request, report } => {
                self.live.remove(&report.container);
                self.release.remove(&report.container);
                let book = self.books.entry(request).or_default();
                let before = book.ended.insert(report.container.clone());
                book.done += u32::from(before && report.reason == ExitReason::Exit { code: 0 });
            }
            UpdateKind::Resized {
                container,
                resource,
                version,
            }
            | UpdateKind::ResizeFailed {
                container,
                resource,
                version,
                ..
            } => {
                if let Some(lease) = self.live.get_mut(&container) {
                    (lease.resource, lease.version) = (resource, Some(version));
                }
            }
            UpdateKind::PreemptSoon { container, .. } if self.plan.heeds => {
                self.release.insert(container);
            }
            UpdateKind::Order(_) => {}
            UpdateKind::Expired { request, .. } => {
                self.books.entry(request).or_default().expired = true
            }
            UpdateKind::Running { .. }
            | UpdateKind::PreemptSoon { .. }
            | UpdateKind::NodeDraining { .. } => {}
        }
    }

    fn submission(&self) -> AppSubmission {
        let plan = &self.plan;
        AppSubmission {
            name: plan.name.clone(),
            queue: plan.queue.clone(),
            priority: plan.priority,
            user: plan.user.clone(),
            lifetime: plan.lifetime,
            master: MasterKind::Unmanaged,
            key: Some(plan.name.to_string()),
        }
    }
}

impl Simulation {
    pub(super) fn tenant_thing(&mut self, n: usize, thing: SimTenantEvent) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(n).filter(|t| !t.is_over()) else {
            return;
        };
        match thing {
            SimTenantEvent::Tick => {
                if now < t.next || t.waiting.is_some() {
                    return;
                }
            }
            SimTenantEvent::Heard { number, heard } => self.tenant_hears(n, number, *heard),
            SimTenantEvent::Line { stream, line } => {
                let open = self.is_open(stream);
                self.tenant_line(n, stream, open, *line);
            }
            SimTenantEvent::StreamEnded { stream } => {
                let mine = matches!(t.stream, Stream::Open { stream: s } | Stream::Opening { stream: s, .. } if s == stream);
                if mine {
                    t.stream = Stream::None;
                }
                return;
            }
        }
        self.tenant_speaks(n);
    }

    /// Makes the due call and schedules the next one.
    fn tenant_speaks(&mut self, n: usize) {
        let now = self.now;
        let Some(t) = self
            .tenants
            .get_mut(n)
            .filter(|t| t.waiting.is_none() && !t.is_over())
        else {
            return;
        };
        if now < t.next {
            let at = t.next;
            return self.at(at, Any::Tenant(n, SimTenantEvent::Tick));
        }
        let (said, call) = match (t.stage, t.app.clone()) {
            (Stage::Outside, _) => (Said::Submit, ClusterCall::Submit(Box::new(t.submission()))),
            (Stage::Registering, Some(app)) => {
                let attempt = AttemptId { app, attempt: 1 };
                (
                    Said::Register,
                    ClusterCall::RegisterMaster {
                        attempt,
                        url: None,
                        nodes: None,
                    },
                )
            }
            (Stage::Known(_), Some(app)) if t.is_done() => {
                let attempt = AttemptId { app, attempt: 1 };
                (
                    Said::Finish,
                    ClusterCall::Finish {
                        attempt,
                        outcome: ApplicationOutcome::Succeeded,
                        diagnostics: String::new(),
                        rows: FinalRows::All,
                    },
                )
            }
            (Stage::Known(epoch), Some(app)) => {
                let asks = t.asks(now);
                let (token, release) = (t.token(), t.release.iter().cloned().collect());
                let sync = MasterHeartbeat {
                    attempt: AttemptId { app, attempt: 1 },
                    epoch,
                    ack: t.heard,
                    asks,
                    withdraw: Vec::new(),
                    release,
                };
                sync.asks
                    .iter()
                    .for_each(|ask| self.oracle.asked(&token, &ask.request, ask.count));
                (Said::Sync, ClusterCall::Sync(Box::new(sync)))
            }
            (Stage::Registering | Stage::Known(_) | Stage::Over, _) => return,
        };
        let number = self.call(Caller::Tenant(n), SimManagerInput::Call(Box::new(call)));
        if let Some(t) = self.tenants.get_mut(n) {
            t.waiting = Some((number, said));
            t.next = now + HEARTBEAT;
        }
    }

    fn tenant_hears(&mut self, n: usize, number: u64, heard: SimCallResult) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(n) else {
            return;
        };
        if let Stream::Opening {
            number: waited,
            stream,
        } = t.stream
            && waited == number
        {
            t.stream = match heard {
                SimCallResult::Listening => Stream::Open { stream },
                SimCallResult::TooOld => {
                    t.stage = Stage::Registering;
                    Stream::None
                }
                SimCallResult::Answer(..) | SimCallResult::Refused(_) | SimCallResult::Lost => {
                    Stream::None
                }
            };
            return;
        }
        let Some((_, said)) = t.waiting.filter(|(waited, _)| *waited == number) else {
            return;
        };
        t.waiting = None;
        match heard {
            SimCallResult::Answer(answer, epoch) => self.tenant_answered(n, said, *answer, epoch),
            SimCallResult::Refused(refusal) => t.refused(said, &refusal),
            SimCallResult::Lost | SimCallResult::Listening | SimCallResult::TooOld => {
                t.next = now + HEARTBEAT
            }
        }
        let over = self.tenants.get(n).is_some_and(SimTenant::is_over);
        if over {
            self.note(|| format!("tenant {n} has ended"));
        }
    }

    fn tenant_answered(&mut self, n: usize, said: Said, answer: CallAnswer, epoch: Epoch) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(n) else {
            return;
        };
        match (said, answer) {
            (Said::Submit, CallAnswer::Submitted { app, .. }) => {
                self.oracle.accepted(&app);
                (t.app, t.stage, t.since, t.next) = (Some(app), Stage::Registering, now, now);
            }
            (
                Said::Register,
                CallAnswer::Master {
                    containers, cursor, ..
                },
            ) => {
                (t.stage, t.heard, t.stream, t.next) =
                    (Stage::Known(epoch), cursor, Stream::None, now);
                let mut before = std::mem::take(&mut t.live);
                for g in containers {
                    t.books
                        .entry(g.request.clone())
                        .or_default()
                        .ended
                        .remove(&g.container);
                    let version = before
                        .remove(&g.container)
                        .filter(|l| l.resource == g.resource)
                        .and_then(|l| l.version);
                    t.live.insert(
                        g.container,
                        TenantContainer {
                            request: g.request,
                            node: g.node,
                            resource: g.resource,
                            version,
                        },
                    );
                }
                // Containers that are not listed have ended: the grant was lost with the resource
                // manager, or the end will be reported soon.
                for (id, lease) in before {
                    t.books.entry(lease.request).or_default().ended.insert(id);
                }
                self.tenant_listens(n);
            }
            (Said::Sync, CallAnswer::Synced { verdicts, stop }) => {
                for (request, verdict) in verdicts {
                    let book = t.books.entry(request).or_default();
                    book.never = matches!(verdict, RequestVerdict::Never { .. })
                        .then_some(now + NEVER_AGAIN);
                }
                if stop {
                    t.stage = Stage::Over;
                } else if t.stream == Stream::None {
                    self.tenant_listens(n);
                }
                self.tenant_gives_up(n);
            }
            (Said::Finish, _) => t.stage = Stage::Over,
            (Said::Submit | Said::Register | Said::Sync, _) => {}
        }
    }

    /// Runs after all changes were reverted. It abandons requests that no node can hold, and checks
    /// that requests reported as infeasible are such.
    fn tenant_gives_up(&mut self, n: usize) {
        if self.now < self.scenario.calm_ms + super::operator::RESTORED {
            return;
        }
        let Some(t) = self.tenants.get(n) else { return };
        let open = t.plan.wants.iter().filter(|w| t.owed(w) > 0);
        let said = |w: &scenario_cluster::TenantRequest| {
            t.books.get(&w.request).is_some_and(|b| b.never.is_some())
        };
        let open: Vec<(scenario_cluster::TenantRequest, bool)> =
            open.map(|w| (w.clone(), said(w))).collect();
        for (want, never) in open {
            let request = &want.request;
            match self.could_hold(&want) {
                None => {
                    if let Some(t) = self.tenants.get_mut(n) {
                        t.books.entry(request.clone()).or_default().expired = true;
                    }
                }
                Some(node) if never => {
                    self.oracle.fail(format!(
                        "{request} of tenant {n} is reported infeasible, but fits on {node}"
                    ));
                }
                Some(_) => {}
            }
        }
    }

    fn tenant_listens(&mut self, n: usize) {
        let Some(t) = self.tenants.get(n) else { return };
        let (Some(app), Stage::Known(epoch)) = (t.app.clone(), t.stage) else {
            return;
        };
        let (cursor, stream) = (t.heard, self.number());
        let number = self.call(
            Caller::Tenant(n),
            SimManagerInput::WatchApp {
                app,
                epoch,
                cursor,
                stream,
                reader: Reader::Tenant(n),
            },
        );
        if let Some(t) = self.tenants.get_mut(n) {
            t.stream = Stream::Opening { number, stream };
        }
    }

    fn tenant_line(&mut self, n: usize, number: u64, open: bool, line: Line) {
        let Some(t) = self.tenants.get_mut(n) else {
            return;
        };
        let mine = matches!(t.stream, Stream::Open { stream } | Stream::Opening { stream, .. } if stream == number);
        let Line::Updates { epoch, updates } = line else {
            return;
        };
        if !mine || !open || t.stage != Stage::Known(epoch) {
            return;
        }
        t.stream = Stream::Open { stream: number };
        for MasterUpdate { cursor, what } in updates {
            if cursor > t.heard {
                if cursor != t.heard + 1 {
                    self.oracle.fail(format!(
                        "tenant {n} receives update {cursor} after {}",
                        t.heard
                    ));
                }
                t.heard = cursor;
                t.hears(what);
            }
        }
    }
}

impl SimTenant {
    fn refused(&mut self, said: Said, refusal: &CallRefusal) {
        match refusal {
            CallRefusal::StaleEpoch { .. }
            | CallRefusal::MasterNotRegistered(_)
            | CallRefusal::NodeNotRegistered(_) => {
                self.stage = Stage::Registering;
            }
            CallRefusal::NoSuchApp(_)
            | CallRefusal::AppEnding { .. }
            | CallRefusal::StaleAttempt { .. }
                if said != Said::Submit =>
            {
                self.stage = Stage::Over;
            }
            CallRefusal::NoSuchApp(_)
            | CallRefusal::AppEnding { .. }
            | CallRefusal::StaleAttempt { .. } => {}
            CallRefusal::TooManyTags { .. } | CallRefusal::NotOver { .. } => {}
            CallRefusal::Recovering(_)
            | CallRefusal::TooMany { .. }
            | CallRefusal::QueueNotAdmitting { .. }
            | CallRefusal::NotLaunched(_) => {}
            CallRefusal::NoSuchContainer(_)
            | CallRefusal::NoSuchRequest { .. }
            | CallRefusal::NoSuchTask { .. }
            | CallRefusal::NeverFits { .. } => {}
            CallRefusal::NoSuchNode(_)
            | CallRefusal::NoSuchQueue(_)
            | CallRefusal::NotALeaf { .. }
            | CallRefusal::BadQueues(_) => {}
            CallRefusal::Conflict { .. }
            | CallRefusal::NotResizable { .. }
            | CallRefusal::NoRoom { .. } => {}
            CallRefusal::Decommissioned(_)
            | CallRefusal::KeyTaken(_)
            | CallRefusal::NotReserved(_)
            | CallRefusal::Overtaken { .. } => {}
        }
    }
}
