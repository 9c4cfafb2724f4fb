//! A master's session with the resource manager, as its driver runs it: one call at a time, and a
//! stream of updates that is resumed from its cursor.

use std::collections::BTreeMap;

use headroom_appmaster::event::{MasterEvent, SizeRefusal};
use headroom_client::retry::Backoff;
use headroom_rm_core::{
    CallAnswer, CallRefusal, ClusterCall, ContainerSize, DryRun, MasterHeartbeat, RequestVerdict,
};
use headroom_types::{AttemptId, ContainerId, Epoch, RequestId, Resource};
use headroom_wire::v1::application_master::{ApplicationUpdateKind, PlacementRequest};
use headroom_wire::v1::job::JobPatch;

use super::manager::SimManagerInput;
use super::master::outcome_of;
use super::network::{Caller, Line, Reader, SimCallResult};
use super::{Simulation, convert};
use crate::scenario::PlantedBug;

/// Usual interval between two sync calls. Milliseconds.
const HEARTBEAT: u64 = 1_000;
/// Shortest interval between two sync calls for news of the job. Milliseconds.
const NEWS: u64 = 200;
/// Time limit for reporting the end. Milliseconds.
const LAST_WORDS: u64 = 60_000;
/// Time limit for the first response of the resource manager. Milliseconds.
const FIRST_ANSWER: u64 = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Registering,
    Known(Epoch),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionCall {
    Register,
    Sync,
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// No reader.
    None,
    Closed {
        retry_at: u64,
    },
    Opening {
        number: u64,
        stream: u64,
    },
    Open {
        stream: u64,
    },
    /// It belongs to an earlier incarnation. The next registration returns a new cursor.
    Stale,
}

/// The session of one master.
#[derive(Debug)]
pub(super) struct SimMasterSession {
    attempt: AttemptId,
    stage: Stage,
    waiting: Option<(u64, SessionCall)>,
    next: u64,
    backoff: Backoff,
    last_sync: Option<u64>,
    silent_since: u64,
    ever_known: bool,
    asked: BTreeMap<RequestId, PlacementRequest>,
    asking: Vec<PlacementRequest>,
    owed: BTreeMap<RequestId, u64>,
    acking: u64,
    patch: Option<JobPatch>,
    /// Containers with a pending resize, by call.
    resizes: BTreeMap<u64, ContainerId>,
    from: (Epoch, u64),
    stream: Stream,
    stream_backoff: Backoff,
}

impl SimMasterSession {
    pub(super) fn new(attempt: AttemptId, now: u64) -> Self {
        use std::time::Duration;
        SimMasterSession {
            attempt,
            stage: Stage::Registering,
            waiting: None,
            next: now,
            backoff: Backoff::usual(),
            last_sync: None,
            silent_since: now,
            ever_known: false,
            asked: BTreeMap::new(),
            asking: Vec::new(),
            owed: BTreeMap::new(),
            acking: 0,
            patch: None,
            resizes: BTreeMap::new(),
            from: (Epoch(0), 0),
            stream: Stream::None,
            stream_backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
        }
    }
    pub(super) fn hurry(&mut self, now: u64) {
        self.next = now;
    }
    pub(super) fn has_news(&mut self, now: u64) {
        let soon = self.last_sync.map_or(now, |at| at + NEWS);
        self.next = self.next.min(soon);
    }
    /// Time of the next call or of the next attempt to open the stream.
    pub(super) fn due(&self) -> Option<u64> {
        let speak = (self.waiting.is_none() && self.stage != Stage::Over).then_some(self.next);
        let open = match self.stream {
            Stream::Closed { retry_at } => Some(retry_at),
            Stream::None | Stream::Opening { .. } | Stream::Open { .. } | Stream::Stale => None,
        };
        speak.into_iter().chain(open).min()
    }
    fn forget_asked(&mut self) {
        for request in std::mem::take(&mut self.asked).into_keys() {
            self.owed.entry(request).or_insert(0);
        }
    }
    fn again_later(&mut self, now: u64) {
        self.waiting = None;
        self.next = now + millis(self.backoff.wait());
    }
}

fn millis(wait: std::time::Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(0)
}

impl Simulation {
    pub(super) fn dialog_registers(&mut self, pid: u64) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        p.dialog.stage = Stage::Registering;
        let (attempt, url) = (p.dialog.attempt.clone(), Some(p.url.clone()));
        let number = self.call(
            Caller::Process(pid),
            SimManagerInput::Call(Box::new(ClusterCall::RegisterMaster { attempt, url })),
        );
        self.dialog_waits_for(pid, number, SessionCall::Register);
    }

    fn dialog_waits_for(&mut self, pid: u64, number: u64, said: SessionCall) {
        if let Some(p) = self.processes.get_mut(&pid) {
            p.dialog.waiting = Some((number, said));
        }
    }

    /// Makes the next call or opens the stream, if it is due.
    pub(super) fn dialog_wakes(&mut self, pid: u64) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        if let Stream::Closed { retry_at } = p.dialog.stream
            && retry_at <= now
        {
            self.dialog_listens(pid);
        }
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        if p.dialog.waiting.is_some() || p.dialog.next > now {
            return;
        }
        match p.dialog.stage {
            Stage::Registering => self.dialog_registers(pid),
            Stage::Known(epoch) => {
                let patch = p.core.take_patch();
                let last = p.outcome.is_some() && !p.core.has_unreported_changes();
                p.dialog.patch = Some(patch);
                if last {
                    self.dialog_ends(pid)
                } else {
                    self.dialog_syncs(pid, epoch)
                }
            }
            Stage::Over => {}
        }
    }

    fn dialog_syncs(&mut self, pid: u64, epoch: Epoch) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let mut asks = p.core.open_requests(&p.greeting);
        if self.plant == PlantedBug::ReplacesDrained && !p.core.fleet().drained.is_empty() {
            asks.iter_mut()
                .filter(|ask| ask.request.as_str().starts_with("set-"))
                .for_each(|ask| ask.count += 1);
        }
        let d = &mut p.dialog;
        d.acking = p.core.acknowledged_cursor();
        let news = |ask: &PlacementRequest| {
            d.owed.contains_key(&ask.request) || d.asked.get(&ask.request) != Some(ask)
        };
        let changed: Vec<PlacementRequest> = asks.into_iter().filter(news).collect();
        let spent = p.core.spent_requests();
        let withdraw: Vec<RequestId> = spent
            .into_iter()
            .filter(|r| d.owed.contains_key(r) || d.asked.contains_key(r))
            .collect();
        withdraw.iter().for_each(|request| {
            d.owed.entry(request.clone()).or_insert(0);
        });
        withdraw.iter().for_each(|request| {
            d.asked.remove(request);
        });
        changed.iter().for_each(|ask| {
            self.oracle
                .asked(&p.greeting.token, &ask.request, ask.count)
        });
        let sync = MasterHeartbeat {
            attempt: d.attempt.clone(),
            epoch,
            ack: d.acking,
            asks: changed.iter().cloned().map(convert::ask).collect(),
            withdraw,
            release: p.core.releases(),
        };
        d.asking = changed;
        d.last_sync = Some(now);
        d.next = now + HEARTBEAT;
        let number = self.call(
            Caller::Process(pid),
            SimManagerInput::Call(Box::new(ClusterCall::Sync(Box::new(sync)))),
        );
        self.dialog_waits_for(pid, number, SessionCall::Sync);
    }

    fn dialog_ends(&mut self, pid: u64) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let Some(outcome) = p.outcome.clone() else {
            return;
        };
        let attempt = p.dialog.attempt.clone();
        let call = ClusterCall::Finish {
            attempt,
            outcome: outcome_of(&outcome),
            diagnostics: outcome.diagnostics,
        };
        let number = self.call(Caller::Process(pid), SimManagerInput::Call(Box::new(call)));
        self.dialog_waits_for(pid, number, SessionCall::Finish);
    }

    pub(super) fn dialog_hears(&mut self, pid: u64, number: u64, heard: SimCallResult) {
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        if let Stream::Opening {
            number: waited,
            stream,
        } = p.dialog.stream
            && waited == number
        {
            return self.dialog_stream_answered(pid, stream, heard);
        }
        if let Some(container) = p.dialog.resizes.remove(&number) {
            let refusal = match heard {
                SimCallResult::Refused(refusal) => SizeRefusal::Manager(refusal.to_string()),
                SimCallResult::Lost => SizeRefusal::NoAnswer("no answer".to_owned()),
                SimCallResult::Answer(..) | SimCallResult::Listening | SimCallResult::TooOld => {
                    return;
                }
            };
            return self.core_steps(pid, MasterEvent::ResizeRefused { container, refusal });
        }
        let Some((_, said)) = p.dialog.waiting.filter(|(waited, _)| *waited == number) else {
            return;
        };
        match said {
            SessionCall::Register => self.dialog_registered(pid, heard),
            SessionCall::Sync => self.dialog_synced(pid, heard),
            SessionCall::Finish => self.dialog_finished(pid, heard),
        }
        if self
            .processes
            .get(&pid)
            .is_some_and(|p| p.dialog.stage == Stage::Over)
        {
            self.process_leaves(pid, 0);
        }
    }

    /// Makes a resize call beside the session's other calls.
    pub(super) fn dialog_resizes(&mut self, pid: u64, container: ContainerId, resource: Resource) {
        let size = ContainerSize {
            resource,
            heap: None,
        };
        let call = ClusterCall::Resize {
            container: container.clone(),
            version: None,
            size,
            how: DryRun::Really,
        };
        let number = self.call(Caller::Process(pid), SimManagerInput::Call(Box::new(call)));
        if let Some(p) = self.processes.get_mut(&pid) {
            p.dialog.resizes.insert(number, container);
        }
    }

    fn dialog_registered(&mut self, pid: u64, heard: SimCallResult) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let d = &mut p.dialog;
        match heard {
            SimCallResult::Answer(answer, epoch) => {
                let CallAnswer::Master {
                    largest,
                    containers,
                    cursor,
                } = *answer
                else {
                    return;
                };
                (d.waiting, d.silent_since, d.ever_known) = (None, now, true);
                d.backoff.reset();
                d.stage = Stage::Known(epoch);
                d.asked.clear();
                d.owed.values_mut().for_each(|cursor| *cursor = 0);
                d.next = now;
                d.from = (epoch, cursor);
                d.stream = Stream::Closed { retry_at: now };
                let containers = containers.into_iter().map(convert::granted).collect();
                self.core_steps(
                    pid,
                    MasterEvent::Registered {
                        epoch,
                        largest,
                        containers,
                        cursor,
                    },
                );
            }
            SimCallResult::Refused(refusal) if !may_try_again(&refusal) => {
                let words = format!("master process {pid} is refused: {refusal}");
                self.diary.borrow_mut().note(now, &words);
                self.process_leaves(pid, 1);
            }
            SimCallResult::Lost if !d.ever_known && now > d.silent_since + FIRST_ANSWER => {
                self.process_leaves(pid, 6)
            }
            SimCallResult::Refused(_)
            | SimCallResult::Listening
            | SimCallResult::TooOld
            | SimCallResult::Lost => d.again_later(now),
        }
    }

    fn dialog_synced(&mut self, pid: u64, heard: SimCallResult) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let d = &mut p.dialog;
        let patch = d.patch.take();
        let SimCallResult::Answer(answer, _) = heard else {
            if let Some(patch) = patch {
                p.core.restore_patch(patch);
            }
            return self.dialog_sync_failed(pid, &heard);
        };
        let CallAnswer::Synced { verdicts, stop } = *answer else {
            return;
        };
        (d.waiting, d.silent_since) = (None, now);
        d.backoff.reset();
        if d.stage == Stage::Registering {
            return self.dialog_registers(pid);
        }
        let acked = d.acking;
        d.owed.retain(|_, cursor| *cursor > acked);
        let asking = std::mem::take(&mut d.asking);
        if stop && p.outcome.is_none() {
            self.core_steps(pid, MasterEvent::Stop);
        }
        for ask in asking {
            let verdict = verdicts
                .iter()
                .find(|(request, _)| *request == ask.request)
                .map(|(_, v)| v.clone());
            match verdict {
                Some(RequestVerdict::Never { sentence, largest }) => {
                    self.core_steps(
                        pid,
                        MasterEvent::Refused {
                            request: ask.request,
                            sentence,
                            largest,
                        },
                    );
                }
                Some(RequestVerdict::Fits | RequestVerdict::Waits { .. }) | None => {
                    if let Some(p) = self.processes.get_mut(&pid) {
                        p.dialog.asked.insert(ask.request.clone(), ask);
                    }
                }
            }
        }
    }

    fn dialog_sync_failed(&mut self, pid: u64, heard: &SimCallResult) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let d = &mut p.dialog;
        d.asking.clear();
        match heard {
            SimCallResult::Refused(refusal) if is_another_life(refusal) => {
                return self.dialog_registers(pid);
            }
            SimCallResult::Refused(refusal) if !may_try_again(refusal) => {
                self.core_steps(pid, MasterEvent::Stop);
                if let Some(p) = self.processes.get_mut(&pid) {
                    p.dialog.stage = Stage::Over;
                }
                return;
            }
            SimCallResult::Refused(_)
            | SimCallResult::Answer(..)
            | SimCallResult::Listening
            | SimCallResult::TooOld => {
                d.forget_asked();
                d.again_later(now);
            }
            SimCallResult::Lost => {
                d.forget_asked();
                d.again_later(now);
                if p.outcome.is_some() && now > d.silent_since + LAST_WORDS {
                    d.stage = Stage::Over;
                }
            }
        }
        if d.stage == Stage::Registering {
            self.dialog_registers(pid);
        }
    }

    fn dialog_finished(&mut self, pid: u64, heard: SimCallResult) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let d = &mut p.dialog;
        if let SimCallResult::Answer(..) = heard {
            d.stage = Stage::Over;
            return;
        }
        if let Some(patch) = d.patch.take() {
            p.core.restore_patch(patch);
        }
        match heard {
            SimCallResult::Refused(refusal) if is_another_life(&refusal) => {
                self.dialog_registers(pid)
            }
            SimCallResult::Refused(refusal) if !may_try_again(&refusal) => d.stage = Stage::Over,
            SimCallResult::Answer(..)
            | SimCallResult::Refused(_)
            | SimCallResult::Listening
            | SimCallResult::TooOld
            | SimCallResult::Lost => {
                if now > d.silent_since + LAST_WORDS {
                    d.stage = Stage::Over;
                } else {
                    d.again_later(now);
                }
            }
        }
    }

    fn dialog_listens(&mut self, pid: u64) {
        let Some(p) = self.processes.get(&pid) else {
            return;
        };
        let (app, (epoch, cursor)) = (p.app.clone(), p.dialog.from);
        let stream = self.number();
        let number = self.call(
            Caller::Process(pid),
            SimManagerInput::WatchApp {
                app,
                epoch,
                cursor,
                stream,
                reader: Reader::Process(pid),
            },
        );
        if let Some(p) = self.processes.get_mut(&pid) {
            p.dialog.stream = Stream::Opening { number, stream };
        }
    }

    fn dialog_stream_answered(&mut self, pid: u64, stream: u64, heard: SimCallResult) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let d = &mut p.dialog;
        let stale = match heard {
            SimCallResult::Listening => {
                d.stream = Stream::Open { stream };
                return;
            }
            SimCallResult::TooOld => true,
            SimCallResult::Refused(refusal) => is_another_life(&refusal),
            SimCallResult::Answer(..) | SimCallResult::Lost => false,
        };
        if !stale {
            d.stream = Stream::Closed {
                retry_at: now + millis(d.stream_backoff.wait()),
            };
            return;
        }
        d.stream = Stream::Stale;
        let (epoch, _) = d.from;
        if d.stage == Stage::Known(epoch) {
            if d.waiting.is_none() {
                self.dialog_registers(pid);
            } else {
                d.stage = Stage::Registering;
            }
        }
    }

    pub(super) fn dialog_line(&mut self, pid: u64, number: u64, line: Line) {
        let open = self.is_open(number);
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let mine = match p.dialog.stream {
            Stream::Open { stream } | Stream::Opening { stream, .. } => stream == number,
            Stream::None | Stream::Closed { .. } | Stream::Stale => false,
        };
        let Line::Updates { epoch, updates } = line else {
            return;
        };
        if !mine || !open {
            return;
        }
        p.dialog.stream = Stream::Open { stream: number };
        p.dialog.stream_backoff.reset();
        for update in updates {
            let Some(p) = self.processes.get_mut(&pid) else {
                return;
            };
            p.dialog.from.1 = p.dialog.from.1.max(update.cursor);
            if p.dialog.stage == Stage::Known(epoch) {
                let what = convert::update(update.what);
                if let ApplicationUpdateKind::Exited { request, .. } = &what {
                    p.dialog.owed.insert(request.clone(), update.cursor);
                }
                self.core_steps(
                    pid,
                    MasterEvent::Update {
                        cursor: update.cursor,
                        what,
                    },
                );
            }
        }
    }

    pub(super) fn dialog_stream_ended(&mut self, pid: u64, number: u64) {
        let now = self.now;
        let Some(p) = self.processes.get_mut(&pid) else {
            return;
        };
        let d = &mut p.dialog;
        let mine = match d.stream {
            Stream::Open { stream } | Stream::Opening { stream, .. } => stream == number,
            Stream::None | Stream::Closed { .. } | Stream::Stale => false,
        };
        if mine {
            d.stream = Stream::Closed {
                retry_at: now + millis(d.stream_backoff.wait()),
            };
        }
    }
}

/// True for refusals with HR0410, which require a new registration.
fn is_another_life(refusal: &CallRefusal) -> bool {
    match refusal {
        CallRefusal::StaleEpoch { .. }
        | CallRefusal::NodeNotRegistered(_)
        | CallRefusal::MasterNotRegistered(_) => true,
        CallRefusal::NoSuchApp(_)
        | CallRefusal::NoSuchContainer(_)
        | CallRefusal::NoSuchRequest { .. }
        | CallRefusal::NoSuchTask { .. }
        | CallRefusal::StaleAttempt { .. } => false,
        CallRefusal::Recovering(_)
        | CallRefusal::NotLaunched(_)
        | CallRefusal::AppEnding { .. } => false,
        CallRefusal::NeverFits { .. }
        | CallRefusal::TooMany { .. }
        | CallRefusal::TooManyTags { .. }
        | CallRefusal::NotOver { .. } => false,
        CallRefusal::NoSuchNode(_)
        | CallRefusal::NoSuchQueue(_)
        | CallRefusal::NotALeaf { .. }
        | CallRefusal::BadQueues(_) => false,
        CallRefusal::QueueNotAdmitting { .. }
        | CallRefusal::Conflict { .. }
        | CallRefusal::NotResizable { .. } => false,
        CallRefusal::NoRoom { .. }
        | CallRefusal::Decommissioned(_)
        | CallRefusal::NotReserved(_)
        | CallRefusal::Overtaken { .. } => false,
    }
}

/// True for refusals that a retry can resolve.
fn may_try_again(refusal: &CallRefusal) -> bool {
    match refusal {
        CallRefusal::Recovering(_) | CallRefusal::TooMany { .. } => true,
        CallRefusal::StaleEpoch { .. }
        | CallRefusal::NodeNotRegistered(_)
        | CallRefusal::MasterNotRegistered(_) => false,
        CallRefusal::NoSuchApp(_)
        | CallRefusal::NoSuchContainer(_)
        | CallRefusal::NoSuchRequest { .. }
        | CallRefusal::NoSuchTask { .. }
        | CallRefusal::StaleAttempt { .. } => false,
        CallRefusal::NotLaunched(_)
        | CallRefusal::AppEnding { .. }
        | CallRefusal::NeverFits { .. }
        | CallRefusal::TooManyTags { .. } => false,
        CallRefusal::NotOver { .. } => false,
        CallRefusal::NoSuchNode(_)
        | CallRefusal::NoSuchQueue(_)
        | CallRefusal::NotALeaf { .. }
        | CallRefusal::BadQueues(_) => false,
        CallRefusal::QueueNotAdmitting { .. }
        | CallRefusal::Conflict { .. }
        | CallRefusal::NotResizable { .. } => false,
        CallRefusal::NoRoom { .. }
        | CallRefusal::Decommissioned(_)
        | CallRefusal::NotReserved(_)
        | CallRefusal::Overtaken { .. } => false,
    }
}
