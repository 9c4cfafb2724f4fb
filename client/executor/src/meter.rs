//! Measures one task while it runs: current use, largest use, heap, largest processes, and the timeline of its report.
//!
//! Owned by the task. Reading it changes nothing in the kernel; what cannot be read leaves a gap and is named in the report.

use std::time::{Duration, Instant};

use headroom_node_cgroup::inside::Inside;
use headroom_node_core::stall::{Look, Stall, is_tight};
use headroom_node_core::{Timeline, maps};
use headroom_types::exit::{GroupFacts, HeapFacts, Mark, MemoryStat, ProcessFacts, Sample, Victim};
use headroom_types::{Bytes, OwnLimit, StopCause, TaskAttemptId, Tick};
use headroom_wire::v1::task::{TaskStart, TaskUsage};

use crate::growth::is_pressed;
use crate::heap::HeapWatch;
use crate::limits::LimitWatch;
use crate::reads::Reads;
use crate::taskgroup::TaskGroup;

/// From this share of its limit on, a task is near it. Per cent.
const NEAR: u64 = 90;
/// How often the largest processes are looked for while the use hardly changes.
const VICTIMS_EVERY: Duration = Duration::from_millis(200);
/// How often the largest of them is looked into while the use hardly changes.
const INSIDE_EVERY: Duration = Duration::from_secs(1);

/// The measurements of one task.
#[derive(Debug)]
pub struct Meter {
    born: Instant,
    limit: Option<Bytes>,
    timeline: Timeline,
    peak: Bytes,
    heap: Option<HeapWatch>,
    victims: Vec<Victim>,
    /// When they were looked for last, and at which use.
    victims_at: Option<(Instant, Bytes)>,
    /// What the largest of them was made of, and when and at which use it was looked into.
    inside: Option<ProcessFacts>,
    inside_at: Option<(Instant, Bytes)>,
    /// By kind, at the largest use that was seen.
    fullest: Option<(Bytes, MemoryStat)>,
    near_told: bool,
    stall: Stall,
    reads: Reads,
    own_limits: LimitWatch,
    failed: Option<String>,
}

/// What a measurement says should be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In use. Bytes.
    pub current: Bytes,
    /// For the first time near its limit.
    pub newly_near: bool,
    /// Why the executor has to end it, if it has to: beyond its limit where no kernel holds it, or stuck at it.
    pub end: Option<StopCause>,
    /// The kernel killed one of its processes and left the others.
    pub victim: bool,
    /// This process is worth looking into, see [`Meter::looked_into`].
    pub look_into: Option<i32>,
    /// It needs more than this limit leaves it, if it has one.
    pub pressed: bool,
}

impl Meter {
    /// Nothing measured. `runtime`: whether a managed heap was declared.
    pub fn new(born: Instant, limit: Option<Bytes>, runtime: Option<HeapWatch>) -> Self {
        Meter {
            born,
            limit,
            timeline: Timeline::default(),
            peak: Bytes::ZERO,
            heap: runtime,
            victims: Vec::new(),
            victims_at: None,
            inside: None,
            inside_at: None,
            fullest: None,
            near_told: false,
            stall: Stall::default(),
            reads: Reads::default(),
            own_limits: LimitWatch::new(born, None),
            failed: None,
        }
    }

    /// Starts with the limits that `start` sets by hand.
    pub fn with_limits_of(mut self, start: &TaskStart) -> Self {
        self.own_limits = LimitWatch::new(self.born, Some(start));
        self
    }

    /// It is held to another limit from now on, and may come near that one too.
    pub fn set_limit(&mut self, limit: Bytes) {
        (self.limit, self.near_told, self.stall) = (Some(limit), false, Stall::default());
    }

    /// Measures once.
    pub fn measure(&mut self, group: &TaskGroup) -> Reading {
        let facts = match group.group().facts() {
            Ok(facts) => facts,
            Err(e) => {
                self.failed = Some(e.to_string());
                return Reading::default();
            }
        };
        let at_ms = self.age_ms();
        let mark = self.heap.as_mut().and_then(|heap| heap.look(at_ms, || group.group().pids().unwrap_or_default()));
        let mut reading = self.take(&facts, mark, group.kind().is_kernel(), group.has_victim(&facts));
        if reading.end.is_none() && self.is_stuck(group, &facts) {
            reading.end = Some(StopCause::Stalled);
        }
        self.note_victims(group, facts.current, reading.newly_near);
        self.reads.look(|| group.group().pids().unwrap_or_default());
        self.own_limits.look(|| group.group().pids().unwrap_or_default());
        reading.look_into = self.worth_a_look(facts.current);
        reading
    }

    /// What it has read in all. Its main process has ended and is not reaped yet.
    pub fn last_reads(&mut self, main: i32, group: &TaskGroup) -> Option<Bytes> {
        self.own_limits.last(main);
        self.reads.last(main, &group.group().pids().unwrap_or_default())
    }

    /// The largest process, when it is worth looking into: from half the limit on, after growth or some time.
    fn worth_a_look(&mut self, current: Bytes) -> Option<i32> {
        let close = self.limit.is_some_and(|limit| current >= limit.mul_ratio(1, 2));
        let due = self.inside_at.is_none_or(|(at, then)| at.elapsed() >= INSIDE_EVERY || current > then.mul_ratio(21, 20));
        let pid = self.victims.first().filter(|v| close && due && v.pid > 0)?.pid;
        self.inside_at = Some((Instant::now(), current));
        Some(pid)
    }

    /// What looking into it found.
    pub fn looked_into(&mut self, inside: &Inside) {
        let current = self.inside_at.map(|(_, current)| current).unwrap_or_default();
        let facts = maps::parse(&inside.smaps);
        // One that was on its way out tells nothing.
        if facts != ProcessFacts::default() {
            let Inside { pid, sockets, pipes, .. } = *inside;
            self.inside = Some(ProcessFacts { pid, current, sockets, pipes, ..facts });
        }
    }

    /// Who is in it matters once it may be killed: from half its limit on, when it has grown, has come near its limit, or some time has
    /// passed.
    fn note_victims(&mut self, group: &TaskGroup, current: Bytes, newly_near: bool) {
        let close = self.limit.is_none_or(|limit| current >= limit.mul_ratio(1, 2));
        let due = self.victims_at.is_none_or(|(at, then)| at.elapsed() >= VICTIMS_EVERY || current > then.mul_ratio(21, 20));
        if !(close && (due || newly_near)) {
            return;
        }
        self.victims_at = Some((Instant::now(), current));
        let seen = group.largest();
        if !seen.is_empty() {
            self.victims = seen;
        }
    }

    fn take(&mut self, facts: &GroupFacts, mark: Option<Mark>, by_kernel: bool, victim: bool) -> Reading {
        self.peak = self.peak.max(facts.current).max(facts.peak.unwrap_or_default());
        if self.fullest.is_none_or(|(most, _)| facts.current >= most) {
            self.fullest = Some((facts.current, facts.stat));
        }
        self.push(facts, facts.current, mark);
        let near = self.limit.is_some_and(|limit| facts.current >= limit.mul_ratio(NEAR, 100));
        let newly_near = near && !self.near_told;
        self.near_told |= near;
        let pressed = self.limit.is_some_and(|limit| is_pressed(facts, limit));
        Reading { current: facts.current, newly_near, end: self.end(facts, by_kernel), victim, look_into: None, pressed }
    }

    fn end(&self, facts: &GroupFacts, by_kernel: bool) -> Option<StopCause> {
        let limit = self.limit?;
        (!by_kernel && facts.current > limit).then_some(StopCause::OverLimit)
    }

    fn is_stuck(&mut self, group: &TaskGroup, facts: &GroupFacts) -> bool {
        let Some(limit) = self.limit else { return false };
        let (now, current, stat) = (Tick(self.age_ms()), facts.current, &facts.stat);
        let major_faults = is_tight(current, limit, stat).then(|| group.group().major_faults()).flatten();
        self.stall.is_stuck(&Look { now, current, limit, stat, major_faults })
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn push(&mut self, facts: &GroupFacts, current: Bytes, mark: Option<Mark>) {
        self.timeline.push(Sample {
            at_ms: self.age_ms(),
            current,
            anon: facts.stat.anon,
            file: facts.stat.file,
            heap: self.heap().map(|heap| heap.used),
            limit: facts.limit.or(self.limit),
            mark,
        });
    }

    /// What the master is told about `attempt`.
    pub fn usage(&self, attempt: &TaskAttemptId, current: Bytes) -> TaskUsage {
        let starved = self.heap.as_ref().is_some_and(HeapWatch::is_starved);
        TaskUsage { attempt: attempt.clone(), current, peak: self.peak, heap: self.heap().map(|heap| heap.used), starved }
    }

    fn heap(&self) -> Option<HeapFacts> {
        self.heap.as_ref().and_then(HeapWatch::facts)
    }

    /// Closes it with the facts read at the end.
    pub fn close(mut self, facts: &mut GroupFacts) -> Measured {
        let at_ms = self.age_ms();
        let mark = self.heap.as_mut().and_then(|heap| heap.read(at_ms));
        // The last point shows what it came to, unless an earlier one does: after a kill nothing is left of it.
        self.peak = self.peak.max(facts.peak.unwrap_or_default()).max(facts.current);
        let shown = self.timeline.points().iter().any(|s| s.current >= self.peak);
        self.push(facts, if shown { facts.current } else { self.peak }, mark);
        facts.peak = Some(self.peak);
        self.restore(facts);
        let mut missing: Vec<String> = self.failed.take().into_iter().collect();
        missing.extend(self.heap.as_ref().and_then(HeapWatch::missing));
        let (heap, own_limits) = (self.heap(), self.own_limits.into_vec());
        Measured { heap, victims: self.victims, inside: self.inside, own_limits, timeline: self.timeline.into_vec(), missing }
    }

    /// What was killed has given its own memory back: how much that was, is known from when it was fullest. Page cache outlives
    /// a process, so what the end says of it stands.
    fn restore(&self, facts: &mut GroupFacts) {
        let Some((_, stat)) = self.fullest.filter(|(most, _)| *most > facts.current) else { return };
        let end = &mut facts.stat;
        end.anon = end.anon.max(stat.anon);
        end.shmem = end.shmem.max(stat.shmem);
        end.kernel = end.kernel.max(stat.kernel);
        end.kernel_stack = end.kernel_stack.max(stat.kernel_stack);
        end.slab_unreclaimable = end.slab_unreclaimable.max(stat.slab_unreclaimable);
        end.sock = end.sock.max(stat.sock);
        end.workingset_refault_file = end.workingset_refault_file.max(stat.workingset_refault_file);
    }
}

/// What was measured in all.
#[derive(Debug)]
pub struct Measured {
    /// The last thing its runtime told.
    pub heap: Option<HeapFacts>,
    /// Its largest processes, seen last.
    pub victims: Vec<Victim>,
    /// What the largest of them was made of.
    pub inside: Option<ProcessFacts>,
    /// Limits that were set by hand.
    pub own_limits: Vec<OwnLimit>,
    /// Memory from birth to death.
    pub timeline: Vec<Sample>,
    /// What could not be read.
    pub missing: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(mib: u64) -> GroupFacts {
        GroupFacts { current: Bytes::from_mib(mib), ..GroupFacts::default() }
    }

    #[test]
    fn near_is_told_once_and_over_only_without_a_kernel() {
        let mut meter = Meter::new(Instant::now(), Some(Bytes::from_mib(100)), None);
        assert!(!meter.take(&facts(89), None, true, false).newly_near);
        assert!(meter.take(&facts(90), None, true, false).newly_near);
        assert!(!meter.take(&facts(95), None, true, false).newly_near);
        assert_eq!(meter.take(&facts(101), None, true, false).end, None, "the kernel decides");
        assert_eq!(meter.take(&facts(101), None, false, false).end, Some(StopCause::OverLimit));
        assert_eq!(meter.take(&facts(100), None, false, false).end, None, "at the limit is within it");
    }

    #[test]
    fn the_timeline_ends_with_what_the_kernel_saw_between_two_samples() {
        let mut meter = Meter::new(Instant::now(), None, None);
        meter.take(&facts(10), None, true, false);
        // A sample in the middle of the kill: nearly all is gone, the kernel knows what it was.
        meter.take(&GroupFacts { peak: Some(Bytes::from_mib(64)), ..facts(1) }, None, true, false);
        let mut end = GroupFacts { peak: Some(Bytes::from_mib(64)), ..facts(0) };
        let measured = meter.close(&mut end);
        assert_eq!(measured.timeline.last().map(|s| s.current), Some(Bytes::from_mib(64)));
        assert_eq!(end.peak, Some(Bytes::from_mib(64)));
    }
}
