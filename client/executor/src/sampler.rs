//! Sampler of one task while it runs: current use, peak, heap, largest processes, and the timeline
//! of its report.
//!
//! Owned by the task. Samples change nothing in the kernel. An unreadable value leaves a gap, which
//! the report names.

use std::time::{Duration, Instant};

use headroom_node_cgroup::inspect::ProcessInspection;
use headroom_node_core::stall::{StallDetector, StallSample, is_tight};
use headroom_node_core::{MemoryTimeline, maps};
use headroom_types::exit::{
    CgroupStats, HeapReport, MemorySample, MemoryStat, ProcessMemory, TimelineMark, VictimProcess,
};
use headroom_types::{Bytes, OwnLimit, StopCause, TaskAttemptId, Tick, millis};
use headroom_wire::v1::task::{TaskStart, TaskUsage};

use crate::growth::is_pressed;
use crate::heap::HeapMonitor;
use crate::limits::ManualLimits;
use crate::read_bytes::ReadBytesSampler;
use crate::taskgroup::TaskGroup;

/// Share of the limit from which a task is near its limit. Per cent.
const NEAR: u64 = 90;
/// Interval of the search for the largest processes while the use hardly changes.
const VICTIMS_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of the inspection of the largest process while the use hardly changes.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);

/// The measurements of one task.
#[derive(Debug)]
pub struct TaskSampler {
    started_at: Instant,
    limit: Option<Bytes>,
    timeline: MemoryTimeline,
    peak: Bytes,
    heap: Option<HeapMonitor>,
    victims: Vec<VictimProcess>,
    /// Time and memory use of the last search.
    victims_at: Option<(Instant, Bytes)>,
    /// Memory of the largest process by kind, with time and use of the inspection.
    inside: Option<ProcessMemory>,
    inside_at: Option<(Instant, Bytes)>,
    /// Memory by kind, at the largest observed use.
    fullest: Option<(Bytes, MemoryStat)>,
    near_reported: bool,
    stall: StallDetector,
    reads: ReadBytesSampler,
    own_limits: ManualLimits,
    failed: Option<String>,
}

/// The result of a measurement and the actions that it requires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSample {
    /// Memory in use. Bytes.
    pub current: Bytes,
    /// True on the first measurement near the limit.
    pub newly_near: bool,
    /// Cause for which the executor has to end the task, if any: above its limit without kernel
    /// enforcement, or stalled at it.
    pub end: Option<StopCause>,
    /// True if the kernel killed one of its processes and left the others.
    pub victim: bool,
    /// Process to inspect, see [`TaskSampler::store_inspection`].
    pub look_into: Option<i32>,
    /// True if the task has a limit and needs more memory than the limit leaves.
    pub pressed: bool,
}

impl TaskSampler {
    /// A sampler without measurements. `runtime` is set for a declared managed heap.
    pub fn new(started_at: Instant, limit: Option<Bytes>, runtime: Option<HeapMonitor>) -> Self {
        TaskSampler {
            started_at,
            limit,
            timeline: MemoryTimeline::default(),
            peak: Bytes::ZERO,
            heap: runtime,
            victims: Vec::new(),
            victims_at: None,
            inside: None,
            inside_at: None,
            fullest: None,
            near_reported: false,
            stall: StallDetector::default(),
            reads: ReadBytesSampler::default(),
            own_limits: ManualLimits::new(started_at, None),
            failed: None,
        }
    }

    /// Adds the manual limits in `start`.
    pub fn with_limits_of(mut self, start: &TaskStart) -> Self {
        self.own_limits = ManualLimits::new(self.started_at, Some(start));
        self
    }

    /// Sets a new limit. The task can then come near this limit, too.
    pub fn set_limit(&mut self, limit: Bytes) {
        (self.limit, self.near_reported, self.stall) =
            (Some(limit), false, StallDetector::default());
    }

    /// Takes one measurement.
    pub fn measure(&mut self, group: &TaskGroup) -> TaskSample {
        let facts = match group.group().facts() {
            Ok(facts) => facts,
            Err(e) => {
                self.failed = Some(e.to_string());
                return TaskSample::default();
            }
        };
        let at_ms = self.age_ms();
        let mark = self
            .heap
            .as_mut()
            .and_then(|heap| heap.look(at_ms, || group.group().pids().unwrap_or_default()));
        let mut reading = self.take(
            &facts,
            mark,
            group.kind().is_kernel(),
            group.has_victim(&facts),
        );
        if reading.end.is_none() && self.is_stuck(group, &facts) {
            reading.end = Some(StopCause::Stalled);
        }
        self.note_victims(group, facts.current, reading.newly_near);
        self.reads.look(|| group.group().pids().unwrap_or_default());
        self.own_limits
            .look(|| group.group().pids().unwrap_or_default());
        reading.look_into = self.due_inspection(facts.current);
        reading
    }

    /// Reads the limits of the main process, which explain a failure. It has ended and is not reaped
    /// yet.
    pub fn last_limits(&mut self, main: i32) {
        self.own_limits.last(main);
    }

    /// Total bytes read. The main process has ended and is not reaped yet.
    pub fn last_reads(&mut self, main: i32, pids: &[i32]) -> Option<Bytes> {
        self.reads.last(main, pids)
    }

    /// The largest process, if an inspection is due: at half the limit or more, after growth or
    /// after the interval.
    fn due_inspection(&mut self, current: Bytes) -> Option<i32> {
        let close = self
            .limit
            .is_some_and(|limit| current >= limit.mul_ratio(1, 2));
        let due = self.inside_at.is_none_or(|(at, then)| {
            at.elapsed() >= INSPECTION_INTERVAL || current > then.mul_ratio(21, 20)
        });
        let pid = self
            .victims
            .first()
            .filter(|v| close && due && v.pid > 0)?
            .pid;
        self.inside_at = Some((Instant::now(), current));
        Some(pid)
    }

    /// Stores the result of an inspection.
    pub fn store_inspection(&mut self, inside: &ProcessInspection) {
        let current = self
            .inside_at
            .map(|(_, current)| current)
            .unwrap_or_default();
        let facts = maps::parse(&inside.smaps);
        // The values of an exiting process are all zero and are ignored.
        if facts != ProcessMemory::default() {
            let ProcessInspection {
                pid,
                sockets,
                pipes,
                ..
            } = *inside;
            self.inside = Some(ProcessMemory {
                pid,
                current,
                sockets,
                pipes,
                ..facts
            });
        }
    }

    /// Records the largest processes, which matter in case of a kill: at half the limit or more,
    /// after growth, on approach to the limit, or after the interval.
    fn note_victims(&mut self, group: &TaskGroup, current: Bytes, newly_near: bool) {
        let close = self
            .limit
            .is_none_or(|limit| current >= limit.mul_ratio(1, 2));
        let due = self.victims_at.is_none_or(|(at, then)| {
            at.elapsed() >= VICTIMS_INTERVAL || current > then.mul_ratio(21, 20)
        });
        if !(close && (due || newly_near)) {
            return;
        }
        self.victims_at = Some((Instant::now(), current));
        let seen = group.largest();
        if !seen.is_empty() {
            self.victims = seen;
        }
    }

    fn take(
        &mut self,
        facts: &CgroupStats,
        mark: Option<TimelineMark>,
        by_kernel: bool,
        victim: bool,
    ) -> TaskSample {
        self.peak = self
            .peak
            .max(facts.current)
            .max(facts.peak.unwrap_or_default());
        if self.fullest.is_none_or(|(most, _)| facts.current >= most) {
            self.fullest = Some((facts.current, facts.stat));
        }
        self.push(facts, facts.current, mark);
        let near = self
            .limit
            .is_some_and(|limit| facts.current >= limit.mul_ratio(NEAR, 100));
        let newly_near = near && !self.near_reported;
        self.near_reported |= near;
        let pressed = self.limit.is_some_and(|limit| is_pressed(facts, limit));
        TaskSample {
            current: facts.current,
            newly_near,
            end: self.end(facts, by_kernel),
            victim,
            look_into: None,
            pressed,
        }
    }

    fn end(&self, facts: &CgroupStats, by_kernel: bool) -> Option<StopCause> {
        let limit = self.limit?;
        (!by_kernel && facts.current > limit).then_some(StopCause::OverLimit)
    }

    fn is_stuck(&mut self, group: &TaskGroup, facts: &CgroupStats) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        let (now, current, stat) = (Tick(self.age_ms()), facts.current, &facts.stat);
        let major_faults = is_tight(current, limit, stat)
            .then(|| group.group().major_faults())
            .flatten();
        self.stall.is_stuck(&StallSample {
            now,
            current,
            limit,
            stat,
            major_faults,
        })
    }

    fn age_ms(&self) -> u64 {
        millis(self.started_at.elapsed())
    }

    fn push(&mut self, facts: &CgroupStats, current: Bytes, mark: Option<TimelineMark>) {
        self.timeline.push(MemorySample {
            at_ms: self.age_ms(),
            current,
            anon: facts.stat.anon,
            file: facts.stat.file,
            heap: self.heap().map(|heap| heap.used),
            limit: facts.limit.or(self.limit),
            mark,
        });
    }

    /// The usage message about `attempt`.
    pub fn usage(&self, attempt: &TaskAttemptId, current: Bytes) -> TaskUsage {
        let starved = self.heap.as_ref().is_some_and(HeapMonitor::is_starved);
        TaskUsage {
            attempt: attempt.clone(),
            current,
            peak: self.peak,
            heap: self.heap().map(|heap| heap.used),
            starved,
        }
    }

    fn heap(&self) -> Option<HeapReport> {
        self.heap.as_ref().and_then(HeapMonitor::facts)
    }

    /// Ends the sampling with the values read at the end.
    pub fn close(mut self, facts: &mut CgroupStats) -> TaskMeasurements {
        let at_ms = self.age_ms();
        let mark = self.heap.as_mut().and_then(|heap| heap.read(at_ms));
        // The last point shows the peak, unless an earlier point does: after a kill the remaining
        // use is near zero.
        self.peak = self
            .peak
            .max(facts.peak.unwrap_or_default())
            .max(facts.current);
        let shown = self.timeline.peak() >= Some(self.peak);
        self.push(facts, if shown { facts.current } else { self.peak }, mark);
        facts.peak = Some(self.peak);
        self.restore(facts);
        let mut missing: Vec<String> = self.failed.take().into_iter().collect();
        missing.extend(self.heap.as_ref().and_then(HeapMonitor::missing));
        let (heap, own_limits) = (self.heap(), self.own_limits.into_vec());
        TaskMeasurements {
            heap,
            victims: self.victims,
            inside: self.inside,
            own_limits,
            timeline: self.timeline.points(),
            missing,
        }
    }

    /// Restores the memory by kind that a killed program has already freed, from the sample with
    /// the largest use. Page cache outlives its process, so the value at the end stands.
    fn restore(&self, facts: &mut CgroupStats) {
        let Some((_, stat)) = self.fullest.filter(|(most, _)| *most > facts.current) else {
            return;
        };
        let end = &mut facts.stat;
        end.anon = end.anon.max(stat.anon);
        end.shmem = end.shmem.max(stat.shmem);
        end.kernel = end.kernel.max(stat.kernel);
        end.kernel_stack = end.kernel_stack.max(stat.kernel_stack);
        end.slab_unreclaimable = end.slab_unreclaimable.max(stat.slab_unreclaimable);
        end.sock = end.sock.max(stat.sock);
        end.workingset_refault_file = end
            .workingset_refault_file
            .max(stat.workingset_refault_file);
    }
}

/// All measurements of a task.
#[derive(Debug)]
pub struct TaskMeasurements {
    /// The last heap report of its runtime.
    pub heap: Option<HeapReport>,
    /// Its largest processes, seen last.
    pub victims: Vec<VictimProcess>,
    /// Memory of the largest process by kind.
    pub inside: Option<ProcessMemory>,
    /// Limits that were set by hand.
    pub own_limits: Vec<OwnLimit>,
    /// Memory from start to end.
    pub timeline: Vec<MemorySample>,
    /// Inputs that could not be read.
    pub missing: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(mib: u64) -> CgroupStats {
        CgroupStats {
            current: Bytes::from_mib(mib),
            ..CgroupStats::default()
        }
    }

    #[test]
    fn a_limit_warning_is_sent_once_and_only_poll_ends_the_task() {
        let mut meter = TaskSampler::new(Instant::now(), Some(Bytes::from_mib(100)), None);
        assert!(!meter.take(&facts(89), None, true, false).newly_near);
        assert!(meter.take(&facts(90), None, true, false).newly_near);
        assert!(!meter.take(&facts(95), None, true, false).newly_near);
        assert_eq!(
            meter.take(&facts(101), None, true, false).end,
            None,
            "the kernel enforces the limit"
        );
        assert_eq!(
            meter.take(&facts(101), None, false, false).end,
            Some(StopCause::OverLimit)
        );
        assert_eq!(
            meter.take(&facts(100), None, false, false).end,
            None,
            "a use at the limit is allowed"
        );
    }

    #[test]
    fn the_timeline_ends_with_the_peak_of_the_kernel() {
        let mut meter = TaskSampler::new(Instant::now(), None, None);
        meter.take(&facts(10), None, true, false);
        // A sample during a kill: almost all memory is freed, but the kernel knows the peak.
        meter.take(
            &CgroupStats {
                peak: Some(Bytes::from_mib(64)),
                ..facts(1)
            },
            None,
            true,
            false,
        );
        let mut end = CgroupStats {
            peak: Some(Bytes::from_mib(64)),
            ..facts(0)
        };
        let measured = meter.close(&mut end);
        assert_eq!(
            measured.timeline.last().map(|s| s.current),
            Some(Bytes::from_mib(64))
        );
        assert_eq!(end.peak, Some(Bytes::from_mib(64)));
    }
}
