//! One replay: an event queue, hosts, and a mode that gives sizes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use headroom_types::Bytes;
use headroom_wire::v1::job::Mode;

use super::hosts::{Host, Hosts};
use super::parts::{Parts, Rule};
use super::trace::Task;
use super::ways::Giver;
use super::{Estate, Row, Shared};
use crate::policy::grow;
use crate::policy::learn::Asks;

/// Steps of time: a microsecond.
const TICKS: f64 = 1e6;

/// Waiting tasks for which there is no room that are looked at before the others wait for the next event.
const LOOKED_AT: usize = 256;

/// Ends after which it is told how far it is.
const TOLD_EVERY: u64 = 64;

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    tasks: u64,
    kills: u64,
    lost: u64,
    lost_avoidable: u64,
    grown: u64,
    used: f64,
    allocated: f64,
    makespan: f64,
    ideal: f64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Sums) {
        self.tasks += other.tasks;
        self.kills += other.kills;
        self.lost += other.lost;
        self.lost_avoidable += other.lost_avoidable;
        self.grown += other.grown;
        self.used += other.used;
        self.allocated += other.allocated;
        self.makespan += other.makespan;
        self.ideal += other.ideal;
    }
    pub(super) fn kills(&self) -> u64 {
        self.kills
    }
    #[allow(clippy::cast_precision_loss)] // counts of tasks
    pub(super) fn row(&self, dataset: &str, mode: Mode, growth: bool) -> Row {
        let ratio = |a: f64, b: f64| if b > 0.0 { (a / b * 1000.0).round() / 1000.0 } else { 0.0 };
        let hours = |gib_s: f64| (gib_s / 3600.0 * 1000.0).round() / 1000.0;
        Row {
            dataset: dataset.to_owned(),
            mode,
            growth: growth && grow::is_part_of(mode),
            maq: ratio(self.used, self.allocated),
            kills_per_1000: ratio(self.kills as f64 * 1000.0, self.tasks as f64),
            lost: self.lost,
            lost_avoidable: self.lost_avoidable,
            makespan_ratio: ratio(self.makespan, self.ideal),
            allocated_gib_h: hours(self.allocated),
            wasted_gib_h: hours(self.allocated - self.used),
            tasks: self.tasks,
            grown: self.grown,
            shared: Shared::default(),
            tight: Shared::default(),
            parts: None,
            gates: Vec::new(),
        }
    }
}

/// What a task waits or runs with.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    size: Bytes,
    failures: u32,
}

#[derive(Debug)]
struct Running {
    host: usize,
    began: u64,
    size: Bytes,
    ends: Ends,
    /// Ticks at which a size that was raised had been the old one, times that size, in GiB ticks.
    before: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    AtLimit,
}

/// Who gives sizes.
#[derive(Debug)]
enum Gives {
    /// Every need is known.
    Oracle,
    Mode(Box<Giver>),
    /// Heap and overhead.
    Parts(Box<Parts>),
}

struct Run<'a> {
    tasks: &'a [Task],
    hosts: Hosts,
    giver: Gives,
    growth: bool,
    /// Those that were killed, then the new ones of each kind.
    waiting: Vec<BTreeSet<usize>>,
    ways: BTreeMap<usize, Way>,
    running: BTreeMap<usize, Running>,
    of_kind: BTreeMap<&'a str, usize>,
    events: BinaryHeap<Reverse<(u64, usize)>>,
    sums: Sums,
}

/// Under what a mode is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yard {
    /// Whether sizes may grow in place.
    pub(super) growth: bool,
    /// The hosts.
    pub(super) estate: Estate,
    /// What [`ideal`] said.
    pub(super) ideal: f64,
}

/// How long it takes when every need is known. Seconds.
pub(super) fn ideal(tasks: &[Task], estate: Estate, told: &mut dyn FnMut(u64)) -> f64 {
    Run::new(tasks, Gives::Oracle, false, estate).go(told).makespan
}

/// A replay in one mode. `told` hears how many tasks have ended.
pub(super) fn run(tasks: &[Task], mode: Mode, yard: Yard, told: &mut dyn FnMut(u64)) -> Sums {
    let growth = yard.growth && grow::is_part_of(mode);
    Sums { ideal: yard.ideal, ..Run::new(tasks, Gives::Mode(Box::new(Giver::new(mode, growth))), growth, yard.estate).go(told) }
}

/// What a rule for heap and overhead comes to.
pub(super) fn parted(tasks: &[Task], rule: Rule, estate: Estate) -> Given {
    let sums = Run::new(tasks, Gives::Parts(Box::new(Parts::new(rule))), false, estate).go(&mut |_| {});
    Given { gib_h: sums.allocated / 3600.0, kills: sums.kills, lost_avoidable: sums.lost_avoidable }
}

/// What was given, and what it led to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) gib_h: f64,
    pub(super) kills: u64,
    pub(super) lost_avoidable: u64,
}

impl<'a> Run<'a> {
    fn new(tasks: &'a [Task], giver: Gives, growth: bool, estate: Estate) -> Run<'a> {
        Run {
            tasks,
            hosts: Hosts::new(estate.hosts, Host { cpus: estate.cpus, memory: estate.memory }),
            giver,
            growth,
            waiting: lines(tasks),
            ways: BTreeMap::new(),
            running: BTreeMap::new(),
            of_kind: BTreeMap::new(),
            events: BinaryHeap::new(),
            sums: Sums { tasks: u64::try_from(tasks.len()).unwrap_or(u64::MAX), ..Sums::default() },
        }
    }

    fn go(mut self, told: &mut dyn FnMut(u64)) -> Sums {
        let (mut now, mut ended) = (0, 0u64);
        self.place(now);
        while let Some(Reverse((at, n))) = self.events.pop() {
            now = at;
            self.happens(n, now);
            ended += 1;
            if ended.is_multiple_of(TOLD_EVERY) {
                told((ended - self.sums.kills.min(ended)).min(self.sums.tasks));
            }
            while let Some(Reverse((at, n))) = self.events.peek().copied().filter(|Reverse((at, _))| *at == now) {
                self.events.pop();
                self.happens(n, at);
            }
            self.place(now);
        }
        // what no host could ever hold
        let lost: Vec<usize> = self.waiting.iter().flatten().copied().collect();
        lost.into_iter().for_each(|n| self.lose(n));
        self.sums.makespan = seconds(now);
        self.sums
    }

    /// Starts what there is room for, in order: those that were killed and the new ones of each kind are lines of their own, and
    /// the head of a line that is first in order is looked at next.
    fn place(&mut self, now: u64) {
        let mut failed: Vec<(u32, Bytes)> = Vec::new();
        let mut heads: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
        for (line, waiting) in self.waiting.iter().enumerate() {
            heads.extend(waiting.first().map(|n| Reverse((*n, line))));
        }
        let mut passed = 0;
        while let Some(Reverse((n, line))) = heads.pop() {
            if self.hosts.are_busy() || passed > LOOKED_AT {
                return;
            }
            let Some(task) = self.tasks.get(n) else { continue };
            let cpus = task.cpus.min(self.hosts.whole().cpus);
            // none of this line may start now
            let Some(size) = self.size_of(n, task) else { continue };
            let after = self.waiting.get(line).and_then(|waiting| waiting.range(n + 1..).next());
            heads.extend(after.map(|next| Reverse((*next, line))));
            if failed.iter().any(|(c, m)| cpus >= *c && size >= *m) {
                passed += 1;
                continue;
            }
            match self.hosts.take(cpus, size) {
                Some(host) => self.start(n, line, host, size, now),
                None => failed.push((cpus, size)),
            }
        }
    }

    fn size_of(&mut self, n: usize, task: &Task) -> Option<Bytes> {
        let whole = self.hosts.whole().memory;
        let running = self.of_kind.get(task.kind.as_str()).copied().unwrap_or(0);
        match (&mut self.giver, self.ways.get(&n)) {
            (Gives::Oracle, _) => Some(task.peak),
            (Gives::Mode(_) | Gives::Parts(_), Some(way)) => Some(way.size),
            (Gives::Mode(giver), None) => giver.first(&asks(task), running).map(|size| size.min(whole)),
            (Gives::Parts(parts), None) => {
                let size = parts.first(n, task, running)?;
                parts.cut(n, whole);
                Some(size.min(whole))
            }
        }
    }

    fn start(&mut self, n: usize, line: usize, host: usize, size: Bytes, now: u64) {
        let Some(task) = self.tasks.get(n) else { return };
        if let Some(waiting) = self.waiting.get_mut(line) {
            waiting.remove(&n);
        }
        *self.of_kind.entry(task.kind.as_str()).or_default() += 1;
        let failures = self.ways.entry(n).or_insert(Way { size, failures: 0 }).failures;
        let fits = match &self.giver {
            Gives::Oracle | Gives::Mode(_) => task.peak <= size,
            Gives::Parts(parts) => parts.fits(n, task),
        };
        let (ends, part) = if !fits { (Ends::AtLimit, moment(n, failures)) } else { (Ends::Well, 1.0) };
        self.events.push(Reverse((now + ticks(task.runtime_s * part), n)));
        self.running.insert(n, Running { host, began: now, size, ends, before: 0.0 });
    }

    fn happens(&mut self, n: usize, now: u64) {
        let Some(task) = self.tasks.get(n) else { return };
        let Some(mut run) = self.running.remove(&n) else { return };
        if run.ends == Ends::AtLimit && self.growth && self.grows(n, task, &mut run, now) {
            self.running.insert(n, run);
            return;
        }
        let held = run.before + run.size.as_gib_f64() * seconds(now - run.began);
        self.sums.allocated += held;
        self.hosts.free(run.host, task.cpus.min(self.hosts.whole().cpus), run.size);
        if let Some(running) = self.of_kind.get_mut(task.kind.as_str()) {
            *running = running.saturating_sub(1);
        }
        let number = u64::try_from(n).unwrap_or(u64::MAX);
        match run.ends {
            Ends::Well => {
                self.sums.used += task.peak.as_gib_f64() * task.runtime_s;
                match &mut self.giver {
                    Gives::Oracle => {}
                    Gives::Mode(giver) => giver.ended(&asks(task), number, task.peak, task.runtime_s),
                    Gives::Parts(parts) => parts.ended(n, task),
                }
            }
            Ends::AtLimit => self.killed(n, task, run.size),
        }
    }

    fn killed(&mut self, n: usize, task: &Task, size: Bytes) {
        self.sums.kills += 1;
        let whole = self.hosts.whole().memory;
        let failures = self.ways.get(&n).map_or(0, |way| way.failures) + 1;
        let next = match &mut self.giver {
            Gives::Oracle => return,
            Gives::Mode(giver) => {
                giver.killed(&asks(task), u64::try_from(n).unwrap_or(u64::MAX), size);
                giver.next(&asks(task), size, failures, whole)
            }
            Gives::Parts(parts) => parts.next(n, task, failures, whole),
        };
        match next {
            Some(size) => {
                self.ways.insert(n, Way { size, failures });
                if let Some(killed) = self.waiting.first_mut() {
                    killed.insert(n);
                }
            }
            None => self.lose(n),
        }
    }

    /// Raises the size of a task that stands at its limit until it is enough, or its host has no more.
    fn grows(&mut self, n: usize, task: &Task, run: &mut Running, now: u64) -> bool {
        let whole = self.hosts.whole().memory;
        let Gives::Mode(giver) = &mut self.giver else { return false };
        let mut size = run.size;
        let mut steps = 0u32;
        while task.peak > size {
            steps += 1;
            let Some(next) = giver.grown(&asks(task), size, whole) else { return false };
            size = next;
        }
        if !self.hosts.grow(run.host, size.saturating_sub(run.size)) {
            return false;
        }
        self.sums.grown += u64::from(steps);
        run.before += run.size.as_gib_f64() * seconds(now - run.began);
        let failures = self.ways.get(&n).map_or(0, |way| way.failures);
        let rest = task.runtime_s * (1.0 - moment(n, failures));
        (run.began, run.size, run.ends) = (now, size, Ends::Well);
        self.events.push(Reverse((now + ticks(rest), n)));
        true
    }

    fn lose(&mut self, n: usize) {
        self.sums.lost += 1;
        let fits = self.tasks.get(n).is_some_and(|task| task.peak <= self.hosts.whole().memory);
        self.sums.lost_avoidable += u64::from(fits);
    }
}

/// An empty line for those that will be killed, and one for each kind.
fn lines(tasks: &[Task]) -> Vec<BTreeSet<usize>> {
    let mut of_kind: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (n, task) in tasks.iter().enumerate() {
        of_kind.entry(task.kind.as_str()).or_default().insert(n);
    }
    std::iter::once(BTreeSet::new()).chain(of_kind.into_values()).collect()
}

fn asks(task: &Task) -> Asks<'_> {
    Asks { kind: &task.kind, input: task.input, request: task.request }
}

/// The part of its run after which an attempt stands at its limit: spread as real kills were, half of them before 52 in a hundred.
pub(super) fn moment(task: usize, failures: u32) -> f64 {
    const QUARTILES: [f64; 5] = [0.0, 0.11, 0.52, 0.86, 1.0];
    let mut x =
        (task as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(failures).wrapping_mul(0xd1b5_4a32_d192_ed03));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    let quarter = usize::try_from(x >> 62).unwrap_or(0);
    #[allow(clippy::cast_precision_loss)] // 53 bits
    let within = ((x << 2) >> 11) as f64 / (1u64 << 53) as f64;
    let from = QUARTILES.get(quarter).copied().unwrap_or(0.0);
    let to = QUARTILES.get(quarter + 1).copied().unwrap_or(1.0);
    from + (to - from) * within
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // traces are of hours, not of ages
pub(super) fn ticks(seconds: f64) -> u64 {
    (seconds * TICKS).ceil() as u64
}
#[allow(clippy::cast_precision_loss)] // below 2^53
pub(super) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS
}
