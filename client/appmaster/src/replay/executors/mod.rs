//! The recorded tasks in shared executors: four slots share 16 GiB, and only the executor has a
//! limit.
//!
//! The use of a task rises in steps to its need. It reaches the need at the time at which it would
//! be killed in its own container. When the tasks of an executor exceed its limit together, the
//! executor and all of them die. The code of real jobs decides which tasks are charged and which
//! size each gets next: [`blame`] and [`decide`]. A task is charged for its use and a little kernel
//! memory. An idle executor returns its memory to its host. A task that waits for a whole host, or
//! for several slots, gets one reserved.
//!
//! With growth, each task has its own limit and can grow: see [`growth`].

mod container;
mod growth;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use headroom_config::{
    ExecutorSpec, Idempotent, MemoryQuantities, RetrySpec, StageSpec, TaskRuntime,
};
use headroom_types::{Bytes, Dimension, ExitReason};
use headroom_wire::v1::job::MemoryFailureMode;

use super::cluster_shape::ClusterShape;
use super::mode_sizes::{SHARE, SLOTS};
use super::shared_results::SharedResults;
use super::trace::RecordedTask;
use crate::policy::blame::{AttemptFate, SuspectTask, blame};
use crate::policy::classify::{AttemptEndClass, MemoryFailure};
use crate::policy::grow;
use crate::policy::learn::SizeAfterKill;
use crate::policy::sizing::{MeasuredNeed, TaskSizePredictor, TaskSizeQuery};
use crate::policy::slot_placement::place_sized_task;
use crate::policy::{
    AttemptPlace, AttemptSize, ChargeAccount, DecisionInput, SpentBudgets, TaskDecision,
    TaskSizeCap, decide,
};
use container::{ReplayContainer, SlotAttempt};

/// Number of steps in which a task reaches its need.
const STEPS: u32 = 8;
/// Maximum kernel memory of a task in addition to its use. Bytes.
const SLACK: u64 = 2 << 20;
/// Maximum number of waiting tasks without free memory that are examined before the next event.
const LOOKED_AT: usize = 8;

/// The job that stands for a trace: one stage on shared executors.
struct TraceReplayJob {
    stage: StageSpec,
    set: ExecutorSpec,
    retry: RetrySpec,
}

impl TraceReplayJob {
    fn new(memory: Bytes) -> Option<TraceReplayJob> {
        let text = format!(
            "version = 1\nname = \"trace\"\n[profiles.exec]\nmemory = \"{}B\"\ncpus = {SLOTS}\n[executors.main]\nprofile = \"exec\"\n\
             slots = {SLOTS}\nreserve = \"0B\"\n[[stage]]\nname = \"work\"\nenforce = \"executor\"\ncommand = [\"work\"]\n",
            memory.get()
        );
        let job = headroom_config::job::compile(&text, "trace").ok()?;
        Some(TraceReplayJob {
            stage: job.stages.first()?.clone(),
            set: job.executors.first()?.clone(),
            retry: job.retry,
        })
    }
}

/// Earlier attempts of a task.
#[derive(Clone, Debug, Default)]
struct TaskHistory {
    size: Option<AttemptSize>,
    spent: SpentBudgets,
    tries: u32,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SlotEvent {
    /// The use of a task rises.
    Step(u32),
    /// The task succeeds.
    End,
    /// The task has been frozen so long that other attempts are evicted.
    Contention,
    /// The freeze ends.
    FreezeTimeout,
}

/// A replay in progress.
struct ExecutorRun<'a> {
    tasks: &'a [RecordedTask],
    mode: MemoryFailureMode,
    growth: bool,
    site: &'a TraceReplayJob,
    whole: Bytes,
    hosts: Vec<(u32, Bytes)>,
    /// The reserved host, and the only task that may start there.
    kept_host: Option<(usize, usize)>,
    boxes: BTreeMap<u64, ReplayContainer>,
    at: BTreeMap<usize, u64>,
    next: u64,
    again: BTreeSet<usize>,
    lines: BTreeMap<&'a str, BTreeSet<usize>>,
    running: BTreeMap<&'a str, usize>,
    past: BTreeMap<usize, TaskHistory>,
    events: BinaryHeap<Reverse<(u64, usize, u32, SlotEvent)>>,
    /// Tasks that are frozen at their limit, the longest first.
    held: Vec<usize>,
    /// Tasks that were evicted.
    evicted: BTreeSet<usize>,
    sizer: TaskSizePredictor,
    /// Cached first sizes of each kind, by input, until something new is learned about it.
    sized: BTreeMap<&'a str, BTreeMap<Option<Bytes>, AttemptSize>>,
    sums: SharedResults,
}

/// Memory of an executor with four slots: four shares of a slot.
pub(super) const EXECUTOR: Bytes = Bytes::from_gib(16);

/// Memory of an executor in which one task in ten does not fit its share; at most [`EXECUTOR`].
pub(super) fn tight(tasks: &[RecordedTask]) -> Bytes {
    let mut peaks: Vec<Bytes> = tasks.iter().map(|task| task.peak).collect();
    peaks.sort_unstable();
    let share = peaks.get(peaks.len() * 9 / 10).copied().unwrap_or(SHARE);
    share
        .mul_ratio(SLOTS, 1)
        .round_up(Bytes::from_mib(64))
        .min(EXECUTOR)
}

/// Runs the tasks of one trace in one mode, in executors of this memory.
pub(super) fn run(
    tasks: &[RecordedTask],
    (mode, growth): (MemoryFailureMode, bool),
    cluster: ClusterShape,
    executor: Bytes,
) -> SharedResults {
    let growth = growth && grow::mode_allows_growth(mode);
    let Some(site) = &TraceReplayJob::new(executor.min(cluster.memory)) else {
        return SharedResults::default();
    };
    let mut lines: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (n, task) in tasks.iter().enumerate() {
        lines.entry(task.kind.as_str()).or_default().insert(n);
    }
    let run = ExecutorRun {
        tasks,
        mode,
        growth,
        site,
        whole: cluster.memory,
        hosts: vec![(cluster.cpus, cluster.memory); cluster.nodes],
        kept_host: None,
        boxes: BTreeMap::new(),
        at: BTreeMap::new(),
        next: 0,
        again: BTreeSet::new(),
        lines,
        running: BTreeMap::new(),
        past: BTreeMap::new(),
        events: BinaryHeap::new(),
        held: Vec::new(),
        evicted: BTreeSet::new(),
        sizer: TaskSizePredictor::new(mode, growth),
        sized: BTreeMap::new(),
        sums: SharedResults::default(),
    };
    run.go()
}

impl<'a> ExecutorRun<'a> {
    fn go(mut self) -> SharedResults {
        let mut now = 0;
        self.place(now);
        while let Some(Reverse((at, n, try_, what))) = self.events.pop() {
            now = at;
            let sitting = self.at.get(&n).copied().filter(|id| {
                self.boxes
                    .get(id)
                    .and_then(|b| b.attempts.get(&n))
                    .is_some_and(|attempt| attempt.try_ == try_)
            });
            let Some(id) = sitting else { continue };
            let freed = match what {
                SlotEvent::Step(step) if self.growth => self.rises_in_its_limit(id, n, step, now),
                SlotEvent::Step(step) => self.rises(id, n, step, now),
                SlotEvent::End => self.ends(id, n, now),
                SlotEvent::Contention => self.evict_for(n, now),
                SlotEvent::FreezeTimeout => {
                    self.on_hold_over(id, n, now);
                    true
                }
            };
            if freed {
                self.grow_held(now);
                self.place(now);
                self.give_back(now);
            }
        }
        let stranded: Vec<usize> = self
            .again
            .iter()
            .copied()
            .chain(self.lines.values().flatten().copied())
            .collect();
        stranded.into_iter().for_each(|n| self.lose(n));
        self.sums.share_out();
        self.sums
    }

    fn ask(&self, n: usize) -> Option<TaskSizeQuery<'a>> {
        let task = self.tasks.get(n)?;
        Some(TaskSizeQuery {
            kind: &task.kind,
            memory: MemoryQuantities::One,
            input: task.input,
            stated: &self.site.stage.profile,
            task: u64::try_from(n).unwrap_or(u64::MAX),
        })
    }

    fn cap(&self) -> TaskSizeCap {
        TaskSizeCap {
            task: self.whole,
            largest: Some(self.whole),
            by_job: false,
        }
    }

    /// The size for which a task waits; `None` while only a few of its kind may run.
    fn size_of(&mut self, n: usize) -> Option<AttemptSize> {
        if let Some(size) = self.past.get(&n).and_then(|past| past.size.clone()) {
            return Some(size);
        }
        let stated = AttemptSize {
            profile: self.site.stage.profile.clone(),
            slots: 1,
            rung: 1,
            place: AttemptPlace::Shared,
        };
        if !headroom_config::job::mode_learns_sizes(self.mode) {
            return Some(stated);
        }
        let ask = self.ask(n)?;
        let running = self.running.get(ask.kind).copied().unwrap_or(0);
        if !self
            .sizer
            .may_start(ask.kind, MemoryQuantities::One, running)
        {
            return None;
        }
        if let Some(size) = self.sized.get(ask.kind).and_then(|of| of.get(&ask.input)) {
            return Some(size.clone());
        }
        let first = self.sizer.first(&ask);
        let size = if first.learned {
            place_sized_task(
                &self.site.stage,
                &self.site.set,
                (&first.profile, false),
                self.cap(),
            )
        } else {
            stated
        };
        self.sized
            .entry(ask.kind)
            .or_default()
            .insert(ask.input, size.clone());
        Some(size)
    }

    fn place(&mut self, now: u64) {
        let again: Vec<usize> = self.again.iter().copied().collect();
        for n in again {
            if let Some(size) = self.size_of(n) {
                self.try_one(n, &size, now);
            }
        }
        let mut heads: BinaryHeap<Reverse<(usize, &'a str)>> = self
            .lines
            .iter()
            .filter_map(|(kind, line)| Some(Reverse((*line.first()?, *kind))))
            .collect();
        let mut passed = 0;
        while let Some(Reverse((n, kind))) = heads.pop() {
            if passed > LOOKED_AT || !self.has_room() {
                return;
            }
            let Some(size) = self.size_of(n) else {
                continue;
            };
            passed += usize::from(!self.try_one(n, &size, now));
            let after = self
                .lines
                .get(kind)
                .and_then(|line| line.range(n + 1..).next());
            heads.extend(after.map(|next| Reverse((*next, kind))));
        }
    }

    /// True when any new task could start.
    fn has_room(&self) -> bool {
        let slots = self.boxes.values().any(|b| {
            b.place == AttemptPlace::Shared
                && b.kept_for.is_none()
                && !self.is_kept(b.host)
                && b.free() > 0
        });
        slots
            || self
                .host_for(4, self.site.set.profile.memory(), None)
                .is_some()
    }

    fn is_kept(&self, host: usize) -> bool {
        self.kept_host.is_some_and(|(kept, _)| kept == host) || self.has_held(host)
    }

    /// The fitting host with the least free memory.
    fn host_for(&self, cpus: u32, memory: Bytes, task: Option<usize>) -> Option<usize> {
        let kept = |host: usize| {
            self.kept_host
                .is_some_and(|(kept, by)| kept == host && Some(by) != task)
        };
        let open = |host: &usize| !kept(*host) && !self.has_held(*host);
        let fits = |(_, (c, m)): &(usize, &(u32, Bytes))| *c >= cpus && *m >= memory;
        let all = self
            .hosts
            .iter()
            .enumerate()
            .filter(fits)
            .filter(|(host, _)| open(host));
        all.min_by_key(|(_, (_, memory))| *memory)
            .map(|(host, _)| host)
    }

    fn try_one(&mut self, n: usize, size: &AttemptSize, now: u64) -> bool {
        let there = match size.place {
            AttemptPlace::Own => self.own_box(n, size.memory(), now),
            AttemptPlace::Shared => self.shared_box(n, size.slots, now),
        };
        let Some(id) = there else { return false };
        self.sit(id, n, size.clone(), now);
        true
    }

    fn own_box(&mut self, n: usize, memory: Bytes, now: u64) -> Option<u64> {
        let Some(host) = self.host_for(1, memory, Some(n)) else {
            if self.kept_host.is_none() {
                let most = (0..self.hosts.len())
                    .max_by_key(|host| self.hosts.get(*host).map(|(_, memory)| *memory))?;
                self.kept_host = Some((most, n));
            }
            return None;
        };
        self.kept_host = self.kept_host.filter(|(_, by)| *by != n);
        Some(self.open(host, memory, AttemptPlace::Own, now))
    }

    fn shared_box(&mut self, n: usize, slots: u32, now: u64) -> Option<u64> {
        let able = |b: &ReplayContainer| {
            b.place == AttemptPlace::Shared
                && b.free() >= slots
                && b.kept_for.is_none_or(|by| by == n)
        };
        let there = self
            .boxes
            .iter()
            .filter(|(_, b)| able(b) && !self.is_kept(b.host));
        // The fullest first, so that other executors become idle.
        if let Some((id, _)) = there.min_by_key(|(id, b)| (b.free(), **id)) {
            return Some(*id);
        }
        if let Some(host) = self.host_for(
            u32::try_from(SLOTS).unwrap_or(4),
            self.site.set.profile.memory(),
            None,
        ) {
            return Some(self.open(
                host,
                self.site.set.profile.memory(),
                AttemptPlace::Shared,
                now,
            ));
        }
        let kept = self.boxes.values().filter(|b| b.kept_for.is_some()).count();
        let mine = self.boxes.values().any(|b| b.kept_for == Some(n));
        if slots > 1 && !mine && kept < self.boxes.len() / 2 {
            let most = self
                .boxes
                .values_mut()
                .filter(|b| b.place == AttemptPlace::Shared && b.kept_for.is_none());
            if let Some(b) = most.max_by_key(|b| b.free()) {
                b.kept_for = Some(n);
            }
        }
        None
    }

    fn open(&mut self, host: usize, memory: Bytes, place: AttemptPlace, now: u64) -> u64 {
        let slots = if place == AttemptPlace::Own {
            1
        } else {
            u32::try_from(SLOTS).unwrap_or(4)
        };
        if let Some((cpus, free)) = self.hosts.get_mut(host) {
            (*cpus, *free) = (cpus.saturating_sub(slots), free.saturating_sub(memory));
        }
        self.next += 1;
        let share = if place == AttemptPlace::Own {
            Bytes::ZERO
        } else {
            self.site.set.slot_memory()
        };
        let opened = ReplayContainer::new(host, memory, (slots, share), place, now);
        self.boxes.insert(self.next, opened);
        self.next
    }

    fn close(&mut self, id: u64, now: u64) {
        let Some(b) = self.boxes.remove(&id) else {
            return;
        };
        self.sums.allocated_gib_h += b.gib_s(now) / 3600.0;
        if let Some((cpus, free)) = self.hosts.get_mut(b.host) {
            (*cpus, *free) = (*cpus + b.slots, free.saturating_add(b.memory));
        }
    }

    /// Closes idle containers.
    fn give_back(&mut self, now: u64) {
        let idle: Vec<u64> = self
            .boxes
            .iter()
            .filter(|(_, b)| b.attempts.is_empty() && b.kept_for.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in &idle {
            self.close(*id, now);
        }
        // Tasks that wait for a whole host, or an executor, may get it now.
        if !idle.is_empty() && !self.again.is_empty() {
            self.place(now);
        }
    }

    fn sit(&mut self, id: u64, n: usize, size: AttemptSize, now: u64) {
        let Some(task) = self.tasks.get(n) else {
            return;
        };
        let past = self.past.entry(n).or_default();
        past.tries += 1;
        past.size = Some(size.clone());
        let try_ = past.tries;
        self.again.remove(&n);
        if let Some(line) = self.lines.get_mut(task.kind.as_str()) {
            line.remove(&n);
        }
        *self.running.entry(task.kind.as_str()).or_default() += 1;
        for b in self.boxes.values_mut().filter(|b| b.kept_for == Some(n)) {
            b.kept_for = None;
        }
        if let Some(b) = self.boxes.get_mut(&id) {
            let (charged, extra) = (Bytes::ZERO, Bytes::ZERO);
            b.attempts.insert(
                n,
                SlotAttempt {
                    size,
                    try_,
                    charged,
                    began: now,
                    extra,
                    grown: 0,
                    hold: None,
                },
            );
        }
        self.at.insert(n, id);
        self.schedule(n, try_, now, 0);
    }

    /// Raises the use of a task. True when memory became free.
    fn rises(&mut self, id: u64, n: usize, step: u32, now: u64) -> bool {
        let Some(task) = self.tasks.get(n) else {
            return false;
        };
        let use_ = task
            .peak
            .mul_ratio(u64::from(step), u64::from(STEPS))
            .saturating_add(slack(n));
        let Some(b) = self.boxes.get_mut(&id) else {
            return false;
        };
        let Some(attempt) = b.attempts.get_mut(&n) else {
            return false;
        };
        attempt.charged = use_;
        // Kernel memory does not kill a task that runs alone within its size.
        let room = if b.place == AttemptPlace::Own {
            b.memory.saturating_add(Bytes::new(SLACK))
        } else {
            b.memory
        };
        let over = b.used().saturating_sub(room);
        if over.is_zero() {
            return false;
        }
        // The use stops at the limit.
        if let Some(attempt) = b.attempts.get_mut(&n) {
            attempt.charged = attempt.charged.saturating_sub(over);
        }
        self.dies(id, now);
        true
    }

    fn dies(&mut self, id: u64, now: u64) {
        let Some(b) = self.boxes.get_mut(&id) else {
            return;
        };
        let attempts: Vec<(usize, SlotAttempt)> =
            std::mem::take(&mut b.attempts).into_iter().collect();
        let room = b.memory;
        self.close(id, now);
        self.sums.deaths += 1;
        let suspect = |(_, attempt): &(usize, SlotAttempt)| SuspectTask {
            size: attempt.size.memory(),
            peak: Some(attempt.charged),
            at_own_limit: false,
            kind_fits: false,
        };
        let suspects: Vec<SuspectTask> = attempts.iter().map(suspect).collect();
        let alone = attempts.len() == 1;
        for ((n, attempt), fate) in attempts.into_iter().zip(blame(room, &suspects)) {
            let within =
                !alone && attempt.charged.saturating_sub(slack(n)) <= attempt.size.memory();
            self.sums.kills += 1;
            self.sums.collateral_kills += u64::from(within);
            self.leaves(n);
            self.decides(n, &attempt, fate, within);
        }
    }

    fn decides(&mut self, n: usize, attempt: &SlotAttempt, fate: AttemptFate, within: bool) {
        let Some(ask) = self.ask(n) else { return };
        let spent = self.past.get(&n).map(|past| past.spent).unwrap_or_default();
        let failure = MemoryFailure {
            dimension: Dimension::Native,
            off_heap: attempt.charged,
            live: None,
            spike: false,
        };
        let profile = &attempt.size.profile;
        let known = if self.mode == MemoryFailureMode::Headroom {
            self.sizer
                .after_kill(&ask, Dimension::Native, profile, spent.memory + 1)
        } else {
            SizeAfterKill::Unknown
        };
        let (account, next) = decide(&DecisionInput {
            mode: self.mode,
            task: "a task",
            reason: ExitReason::OverheadOom,
            class: AttemptEndClass::Memory(failure),
            fate,
            size: &attempt.size,
            set: &self.site.set,
            runtime: TaskRuntime::Native,
            idempotent: Idempotent::Yes,
            retry: &self.site.retry,
            spent,
            cap: self.cap(),
            known,
            bound: None,
            remote_input: Bytes::ZERO,
            treated: None,
        });
        let charged = account == ChargeAccount::Memory;
        self.sums.collateral_charged += u64::from(charged && within);
        if charged {
            self.sizer.killed(&ask, Dimension::Native, profile);
            self.sized.remove(ask.kind);
        }
        match next {
            TaskDecision::Again { size, .. } => {
                let past = self.past.entry(n).or_default();
                past.spent.memory += u32::from(charged);
                past.size = Some(size);
                self.again.insert(n);
            }
            TaskDecision::GiveUp { .. } | TaskDecision::Done => {
                self.sizer.dropped(&ask);
                self.sized.remove(ask.kind);
                self.lose(n);
            }
        }
    }

    fn leaves(&mut self, n: usize) {
        self.at.remove(&n);
        let kind = self
            .tasks
            .get(n)
            .map(|task| task.kind.as_str())
            .unwrap_or_default();
        if let Some(running) = self.running.get_mut(kind) {
            *running = running.saturating_sub(1);
        }
    }

    fn ends(&mut self, id: u64, n: usize, now: u64) -> bool {
        let (Some(task), Some(ask)) = (self.tasks.get(n), self.ask(n)) else {
            return false;
        };
        self.take_attempt(id, n, now);
        self.sums.used_gib_h += task.peak.as_gib_f64() * task.runtime_s / 3600.0;
        self.sizer.ended(
            &ask,
            &MeasuredNeed {
                heap: None,
                rest: task.peak,
            },
            task.runtime_s,
        );
        self.sized.remove(ask.kind);
        true
    }

    fn lose(&mut self, n: usize) {
        self.sums.lost += 1;
        let fits = self
            .tasks
            .get(n)
            .is_some_and(|task| task.peak <= self.whole);
        self.sums.lost_avoidable += u64::from(fits);
        self.kept_host = self.kept_host.filter(|(_, by)| *by != n);
        for b in self.boxes.values_mut().filter(|b| b.kept_for == Some(n)) {
            b.kept_for = None;
        }
    }
}

/// Kernel memory of a task in addition to its need, constant for each task. Bytes.
fn slack(n: usize) -> Bytes {
    let mixed = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    Bytes::new(mixed % SLACK)
}
