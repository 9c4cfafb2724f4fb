//! One replay: an event queue, nodes, and a source of sizes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;

use super::hold::ReplayHold;
use super::load::TraceLoad;
use super::mode_sizes::ModeSizeSource;
use super::nodes::ReplayNodes;
use super::parts::{MemorySplitRule, MemorySplitSizes};
use super::sums::ReplayCounters;
use super::ticks::{moment, seconds, ticks};
use super::trace::RecordedTask;
use crate::policy::grow;
use crate::policy::learn::SizeRequest;

/// Maximum number of waiting tasks without free memory that are examined before the next event.
const MAX_EXAMINED_TASKS: usize = 32;

/// Number of ended tasks between two progress reports.
const REPORTED_EVERY: u64 = 64;

/// The size with which a task waits or runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NextAttemptSize {
    pub(super) size: Bytes,
    pub(super) failures: u32,
}

/// An attempt.
#[derive(Debug)]
pub(super) struct ReplayAttempt {
    pub(super) node: usize,
    /// Distinguishes it from other attempts of its task.
    pub(super) serial: u64,
    /// Start time. Ticks.
    pub(super) began: u64,
    /// Time of its last change of size. Ticks.
    pub(super) resized: u64,
    pub(super) size: Bytes,
    /// True if it ends by reaching its limit.
    pub(super) at_limit: bool,
    pub(super) hold: Option<ReplayHold>,
    /// Memory over time with earlier sizes. GiB·s.
    pub(super) before: f64,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReplayEvent {
    /// A task is submitted.
    Submission,
    /// An attempt succeeds or reaches its limit.
    End,
    /// An attempt has been frozen so long that other attempts are evicted.
    Contention,
    /// The freeze of an attempt ends.
    FreezeTimeout,
}

/// The source of sizes.
#[derive(Debug)]
pub(super) enum SizeSource {
    /// Known needs.
    Oracle,
    /// A mode.
    Mode(Box<ModeSizeSource>),
    /// A rule for heap and overhead.
    Parts(Box<MemorySplitSizes>),
}

/// A replay in progress.
#[derive(Debug)]
pub(super) struct ReplayRunState<'a> {
    pub(super) tasks: &'a [RecordedTask],
    pub(super) nodes: ReplayNodes,
    pub(super) sizes: SizeSource,
    pub(super) growth: bool,
    /// First the tasks that run again, then the new tasks of each kind.
    waiting: Vec<BTreeSet<usize>>,
    /// Indexes of the kinds in `waiting`.
    lines: BTreeMap<&'a str, usize>,
    /// Start of each task's wait. Ticks.
    waits_since: Vec<u64>,
    pub(super) next_sizes: BTreeMap<usize, NextAttemptSize>,
    pub(super) running: BTreeMap<usize, ReplayAttempt>,
    /// Tasks that were evicted.
    pub(super) evicted: BTreeSet<usize>,
    of_kind: BTreeMap<&'a str, usize>,
    pub(super) events: BinaryHeap<Reverse<(u64, usize, u64, ReplayEvent)>>,
    serial: u64,
    /// Number of tasks that have ended or were given up.
    ended: u64,
    /// End of the last attempt. Ticks.
    last_end: u64,
    pub(super) sums: ReplayCounters,
}

/// Time until the last task ends if every need is known. Seconds.
pub(super) fn ideal(
    tasks: &[RecordedTask],
    load: &TraceLoad,
    progress: &mut dyn FnMut(u64),
) -> f64 {
    ReplayRunState::new(tasks, SizeSource::Oracle, false, load)
        .run_to_end(progress)
        .makespan
}

/// A replay in one mode. `ideal` is the result of [`ideal`]. `progress` receives the number of
/// ended tasks.
pub(super) fn run(
    tasks: &[RecordedTask],
    (mode, growth): (MemoryFailureMode, bool),
    load: &TraceLoad,
    ideal: f64,
    progress: &mut dyn FnMut(u64),
) -> ReplayCounters {
    let growth = growth && grow::mode_allows_growth(mode);
    ReplayCounters {
        ideal,
        ..ReplayRunState::new(
            tasks,
            SizeSource::Mode(Box::new(ModeSizeSource::new(mode, growth))),
            growth,
            load,
        )
        .run_to_end(progress)
    }
}

/// Memory and kills of a rule for heap and overhead.
pub(super) fn parted(
    tasks: &[RecordedTask],
    rule: MemorySplitRule,
    load: &TraceLoad,
) -> RuleResults {
    let sums = ReplayRunState::new(
        tasks,
        SizeSource::Parts(Box::new(MemorySplitSizes::new(rule))),
        false,
        load,
    )
    .run_to_end(&mut |_| {});
    RuleResults {
        gib_h: sums.allocated / 3600.0,
        kills: sums.kills,
        lost_avoidable: sums.lost_avoidable,
    }
}

/// Allocated memory and its results.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleResults {
    pub(super) gib_h: f64,
    pub(super) kills: u64,
    pub(super) lost_avoidable: u64,
}

impl<'a> ReplayRunState<'a> {
    fn new(
        tasks: &'a [RecordedTask],
        sizes: SizeSource,
        growth: bool,
        load: &TraceLoad,
    ) -> ReplayRunState<'a> {
        let kinds: BTreeSet<&str> = tasks.iter().map(|task| task.kind.as_str()).collect();
        let mut run = ReplayRunState {
            tasks,
            nodes: ReplayNodes::new(load.cluster),
            sizes,
            growth,
            waiting: vec![BTreeSet::new(); kinds.len() + 1],
            lines: kinds.into_iter().zip(1..).collect(),
            waits_since: load.submitted.clone(),
            next_sizes: BTreeMap::new(),
            running: BTreeMap::new(),
            evicted: BTreeSet::new(),
            of_kind: BTreeMap::new(),
            events: BinaryHeap::new(),
            serial: 0,
            ended: 0,
            last_end: 0,
            sums: ReplayCounters {
                tasks: u64::try_from(tasks.len()).unwrap_or(u64::MAX),
                ..ReplayCounters::default()
            },
        };
        run.waits_since.resize(tasks.len(), 0);
        for (n, at) in run
            .waits_since
            .iter()
            .enumerate()
            .filter(|(_, at)| **at > 0)
        {
            run.events
                .push(Reverse((*at, n, 0, ReplayEvent::Submission)));
        }
        for n in (0..tasks.len()).filter(|n| load.submitted.get(*n).is_none_or(|at| *at == 0)) {
            run.submit(n);
        }
        run
    }

    fn run_to_end(mut self, progress: &mut dyn FnMut(u64)) -> ReplayCounters {
        let (mut now, mut reported) = (0, 0);
        self.place(now);
        while let Some(Reverse((at, n, serial, what))) = self.events.pop() {
            now = at;
            self.happens(n, serial, what, now);
            while let Some(Reverse((at, n, serial, what))) = self
                .events
                .peek()
                .copied()
                .filter(|Reverse((at, ..))| *at == now)
            {
                self.events.pop();
                self.happens(n, serial, what, at);
            }
            if self.ended / REPORTED_EVERY > reported {
                reported = self.ended / REPORTED_EVERY;
                progress(self.ended.min(self.sums.tasks));
            }
            self.place(now);
        }
        // These tasks do not fit any node.
        let lost: Vec<usize> = self.waiting.iter().flatten().copied().collect();
        lost.into_iter().for_each(|n| self.lose(n));
        let cluster = self.nodes.shape();
        self.sums.makespan = seconds(self.last_end);
        #[allow(clippy::cast_precision_loss)] // a count of nodes
        let memory = cluster.memory.as_gib_f64() * cluster.nodes as f64;
        self.sums.capacity = memory * self.sums.makespan;
        self.sums
    }

    fn submit(&mut self, n: usize) {
        let line = self
            .tasks
            .get(n)
            .and_then(|task| self.lines.get(task.kind.as_str()));
        if let Some(waiting) = line.and_then(|line| self.waiting.get_mut(*line)) {
            waiting.insert(n);
        }
    }

    /// Puts a task back in the queue, before the new ones.
    pub(super) fn wait_again(&mut self, n: usize, now: u64) {
        if let Some(since) = self.waits_since.get_mut(n) {
            *since = now;
        }
        if let Some(again) = self.waiting.first_mut() {
            again.insert(n);
        }
    }

    /// Starts waiting tasks for which there is free memory, in order. Tasks that run again, and the
    /// new tasks of each kind, form separate queues. The next task is the first in order among the
    /// heads of the queues.
    fn place(&mut self, now: u64) {
        let mut failed: Vec<(u32, Bytes)> = Vec::new();
        let mut heads: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
        for (line, waiting) in self.waiting.iter().enumerate() {
            heads.extend(waiting.first().map(|n| Reverse((*n, line))));
        }
        let mut passed = 0;
        while let Some(Reverse((n, line))) = heads.pop() {
            if self.nodes.are_busy() || passed > MAX_EXAMINED_TASKS {
                return;
            }
            let Some(task) = self.tasks.get(n) else {
                continue;
            };
            let cpus = self.nodes.cpus_of(task.cpus);
            // no task of this queue may start now
            let Some(size) = self.size_of(n, task) else {
                continue;
            };
            let after = self
                .waiting
                .get(line)
                .and_then(|waiting| waiting.range(n + 1..).next());
            heads.extend(after.map(|next| Reverse((*next, line))));
            if failed.iter().any(|(c, m)| cpus >= *c && size >= *m) {
                passed += 1;
                continue;
            }
            match self.nodes.take(n, cpus, size) {
                Some(node) => self.start(n, line, node, size, now),
                None => failed.push((cpus, size)),
            }
        }
    }

    fn size_of(&mut self, n: usize, task: &RecordedTask) -> Option<Bytes> {
        let whole = self.nodes.memory();
        let running = self.of_kind.get(task.kind.as_str()).copied().unwrap_or(0);
        match (&mut self.sizes, self.next_sizes.get(&n)) {
            (SizeSource::Oracle, _) => Some(task.peak),
            (SizeSource::Mode(_) | SizeSource::Parts(_), Some(next)) => Some(next.size),
            (SizeSource::Mode(giver), None) => giver
                .first(&asks(task), running)
                .map(|size| size.min(whole)),
            (SizeSource::Parts(parts), None) => {
                let size = parts.first(n, task, running)?;
                parts.cut(n, whole);
                Some(size.min(whole))
            }
        }
    }

    fn start(&mut self, n: usize, line: usize, node: usize, size: Bytes, now: u64) {
        let Some(task) = self.tasks.get(n) else {
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(line) {
            waiting.remove(&n);
        }
        *self.of_kind.entry(task.kind.as_str()).or_default() += 1;
        let failures = self
            .next_sizes
            .entry(n)
            .or_insert(NextAttemptSize { size, failures: 0 })
            .failures;
        let fits = match &self.sizes {
            SizeSource::Oracle | SizeSource::Mode(_) => task.peak <= size,
            SizeSource::Parts(parts) => parts.fits(n, task),
        };
        let waited = now - self.waits_since.get(n).copied().unwrap_or(now).min(now);
        self.sums.attempts += 1;
        if waited > 0 {
            self.sums.waits.push(seconds(waited));
        }
        let part = if fits { 1.0 } else { moment(n, failures) };
        self.serial += 1;
        self.events.push(Reverse((
            now + ticks(task.runtime_s * part),
            n,
            self.serial,
            ReplayEvent::End,
        )));
        let serial = self.serial;
        let attempt = ReplayAttempt {
            node,
            serial,
            began: now,
            resized: now,
            size,
            at_limit: !fits,
            hold: None,
            before: 0.0,
        };
        self.running.insert(n, attempt);
    }

    fn happens(&mut self, n: usize, serial: u64, what: ReplayEvent, now: u64) {
        if what == ReplayEvent::Submission {
            return self.submit(n);
        }
        // The event belongs to an earlier attempt.
        let Some(run) = self.running.get(&n).filter(|run| run.serial == serial) else {
            return;
        };
        match what {
            ReplayEvent::Submission => {}
            ReplayEvent::End if run.at_limit => self.on_limit(n, now),
            ReplayEvent::End => self.finish(n, now),
            ReplayEvent::Contention => self.on_contention(n, now),
            ReplayEvent::FreezeTimeout => self.on_hold_over(n, now),
        }
    }

    /// Ends the attempt of a task and returns it.
    pub(super) fn leave(&mut self, n: usize, now: u64) -> Option<ReplayAttempt> {
        let task = self.tasks.get(n)?;
        let run = self.running.remove(&n)?;
        self.last_end = now;
        self.sums.allocated += run.before + run.size.as_gib_f64() * seconds(now - run.resized);
        self.sums.frozen_s += run.hold.map_or(0.0, |hold| hold.seconds(now));
        self.nodes
            .free(run.node, n, self.nodes.cpus_of(task.cpus), run.size);
        if let Some(running) = self.of_kind.get_mut(task.kind.as_str()) {
            *running = running.saturating_sub(1);
        }
        Some(run)
    }

    fn finish(&mut self, n: usize, now: u64) {
        let (Some(task), Some(run)) = (self.tasks.get(n), self.leave(n, now)) else {
            return;
        };
        self.ended += 1;
        self.sums.used += task.peak.as_gib_f64() * task.runtime_s;
        match &mut self.sizes {
            SizeSource::Oracle => {}
            SizeSource::Mode(giver) => {
                giver.ended(&asks(task), number(n), task.peak, task.runtime_s)
            }
            SizeSource::Parts(parts) => parts.ended(n, task),
        }
        self.grow_held(run.node, now);
    }

    /// Kills an attempt at its limit; its mode gives the next size.
    pub(super) fn kill(&mut self, n: usize, now: u64) {
        let (Some(task), Some(run)) = (self.tasks.get(n), self.leave(n, now)) else {
            return;
        };
        self.sums.kills += 1;
        let whole = self.nodes.memory();
        let failures = self.next_sizes.get(&n).map_or(0, |next| next.failures) + 1;
        let next = match &mut self.sizes {
            SizeSource::Oracle => None,
            SizeSource::Mode(giver) => {
                giver.killed(&asks(task), number(n), run.size);
                giver.next(&asks(task), run.size, failures, whole)
            }
            SizeSource::Parts(parts) => parts.next(n, task, failures, whole),
        };
        match next {
            Some(size) => {
                self.next_sizes
                    .insert(n, NextAttemptSize { size, failures });
                self.wait_again(n, now);
            }
            None => self.lose(n),
        }
        self.grow_held(run.node, now);
    }

    fn lose(&mut self, n: usize) {
        self.ended += 1;
        self.sums.lost += 1;
        let fits = self
            .tasks
            .get(n)
            .is_some_and(|task| task.peak <= self.nodes.memory());
        self.sums.lost_avoidable += u64::from(fits);
    }
}

fn number(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

pub(super) fn asks(task: &RecordedTask) -> SizeRequest<'_> {
    SizeRequest {
        kind: &task.kind,
        input: task.input,
        request: task.request,
    }
}
