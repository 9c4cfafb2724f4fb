//! Samples running containers four times a second: memory by kind, heap, the largest processes.
//!
//! Owned by the loop; one job at a time samples all containers. The results go into the timeline of
//! the exit report and into heartbeats. If the kernel does not end a container by itself, they also
//! lead to a decision to end it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_node_cgroup::hsperf::HsperfFile;
use headroom_node_cgroup::inspect;
use headroom_node_cgroup::{CgroupError, EnforcedGroup, ReadBuffer, UsageProbe, UsageSample};
use headroom_node_core::stall::{self, StallDetector};
use headroom_node_core::starved::GcTimeWindow;
use headroom_node_core::{MemoryTimeline, OwnLimits, hsperf, maps};
use headroom_types::exit::{
    HeapReport, MemorySample, MemoryStat, ProcessMemory, TimelineMark, VictimProcess,
};
use headroom_types::{Bytes, ContainerId, EnforcerKind, StopCause, Tick, millis};

/// Interval between samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of processes that are checked for a JVM.
const MOST_PROCESSES: usize = 32;
/// Number of the largest processes that are kept as possible victims.
const VICTIMS: usize = 5;
/// Memory use, in per cent of the limit, from which the largest processes are recorded.
const CLOSE: u64 = 75;
/// Minimum interval between two records of the largest processes.
const VICTIMS_EVERY: Duration = Duration::from_secs(1);
/// Interval between reads of the processes' own limits while the use of memory changes.
const LIMITS_EVERY: Duration = Duration::from_secs(1);
/// The same interval while the use of memory does not change.
const IDLE_LIMITS_EVERY: Duration = Duration::from_secs(30);
/// Maximum number of processes whose limits are read.
const MAX_LIMITED: usize = 4;
/// Number of processes whose memory map is inspected in one round. Each inspection takes
/// milliseconds.
const LOOKS: usize = 1;

/// The data about a container that its sampler needs.
#[derive(Clone, Debug)]
pub(crate) struct SampledContainer {
    /// The group of the container.
    pub(crate) group: Arc<EnforcedGroup>,
    /// The memory limit of the container.
    pub(crate) limit: Bytes,
    /// Whether the launch declares a runtime with its own heap.
    pub(crate) has_heap: bool,
    /// Whether the container creates cgroups for tasks. Then the executor handles a kill inside.
    pub(crate) task_groups: bool,
}

/// The sampler of one container, with its measurements.
#[derive(Debug)]
pub(crate) struct ContainerSampler {
    subject: SampledContainer,
    started: Tick,
    timeline: MemoryTimeline,
    last: Option<MemorySample>,
    /// Memory by kind at the largest use so far.
    fullest: Option<(Bytes, MemoryStat)>,
    heap_file: Option<HsperfFile>,
    heap: Option<HeapReport>,
    victims: Vec<VictimProcess>,
    victims_at: Option<Tick>,
    window: GcTimeWindow,
    inside: Option<ProcessMemory>,
    /// The largest process and the memory use of the group, if the process should be inspected.
    to_look_into: Option<(i32, Bytes)>,
    stall: StallDetector,
    own_limits: OwnLimits,
    limits_at: Option<Tick>,
    /// Whether the use of memory has changed since the limits were read.
    moved: bool,
    /// Opened at the first sample.
    probe: Option<UsageProbe>,
}

/// A sampler that the loop and its jobs share. Never locked across an await.
pub(crate) type SharedSampler = Arc<Mutex<ContainerSampler>>;

/// A required action on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SamplerAction {
    /// Stop it for this cause.
    Stop(StopCause),
    /// The kernel killed a part of it. Kill the rest; the counters show the cause.
    FinishOff,
}

/// All measurements of an ended container.
#[derive(Debug, Default)]
pub(crate) struct ContainerMeasurements {
    /// Memory from start to end.
    pub(crate) timeline: Vec<MemorySample>,
    /// The last sample.
    pub(crate) last: Option<MemorySample>,
    /// Memory by kind at the largest use.
    pub(crate) fullest: Option<MemoryStat>,
    /// The last counters of its runtime.
    pub(crate) heap: Option<HeapReport>,
    /// The largest processes while the use was close to the limit.
    pub(crate) victims: Vec<VictimProcess>,
    /// Memory of the largest of them by mapping.
    pub(crate) inside: Option<ProcessMemory>,
    /// Limits that its processes had set.
    pub(crate) own_limits: OwnLimits,
}

impl ContainerSampler {
    /// A sampler without measurements.
    pub(crate) fn new(subject: SampledContainer, started: Tick) -> SharedSampler {
        Arc::new(Mutex::new(ContainerSampler {
            subject,
            started,
            timeline: MemoryTimeline::default(),
            last: None,
            fullest: None,
            heap_file: None,
            heap: None,
            victims: Vec::new(),
            victims_at: None,
            window: GcTimeWindow::default(),
            inside: None,
            to_look_into: None,
            stall: StallDetector::default(),
            own_limits: OwnLimits::default(),
            limits_at: None,
            moved: false,
            probe: None,
        }))
    }

    /// The last sample.
    pub(crate) fn last(&self) -> Option<MemorySample> {
        self.last
    }

    /// The timeline so far.
    pub(crate) fn timeline(&self) -> Vec<MemorySample> {
        self.timeline.points()
    }

    /// Changes the memory limit.
    pub(crate) fn set_limit(&mut self, limit: Bytes) {
        self.subject.limit = limit;
    }

    /// Takes one sample. `None` if the container cannot be measured.
    fn look(&mut self, now: Tick, room: &mut ReadBuffer) -> Option<(Bytes, Option<SamplerAction>)> {
        let UsageSample {
            current,
            stat,
            kills,
        } = match self.measure(room) {
            Ok(look) => look,
            Err(error) => {
                tracing::debug!(group = self.subject.group.name(), %error, "the container cannot be measured now");
                return None;
            }
        };
        let at_ms = millis(now.since(self.started));
        let mark = self.read_heap(at_ms);
        let limit = self.subject.limit;
        let sample = MemorySample {
            at_ms,
            current,
            anon: stat.anon,
            file: stat.file,
            heap: self.heap.map(|h| h.used),
            limit: Some(limit),
            mark,
        };
        self.timeline.push(sample);
        let moved = self.last.is_none_or(|last| last.current != current);
        self.last = Some(sample);
        if self.fullest.is_none_or(|(most, _)| current >= most) {
            self.fullest = Some((current, stat));
        }
        self.note_victims(now, current);
        self.note_limits(now, moved);
        Some((current, self.judge(now, current, &stat, kills)))
    }

    fn measure(&mut self, room: &mut ReadBuffer) -> Result<UsageSample, CgroupError> {
        if self.probe.is_none() {
            self.probe = self.subject.group.probe()?;
        }
        match &mut self.probe {
            Some(probe) => probe.look(self.subject.limit, room),
            None => self
                .subject
                .group
                .sample()
                .map(|(current, stat)| UsageSample {
                    current,
                    stat,
                    kills: 0,
                }),
        }
    }

    fn judge(
        &mut self,
        now: Tick,
        current: Bytes,
        stat: &MemoryStat,
        kills: u64,
    ) -> Option<SamplerAction> {
        let limit = self.subject.limit;
        let kind = self.subject.group.kind();
        if kind == EnforcerKind::Poll && current > limit {
            return Some(SamplerAction::Stop(StopCause::OverLimit));
        }
        let major_faults = stall::is_tight(current, limit, stat)
            .then(|| self.subject.group.major_faults())
            .flatten();
        if self.stall.is_stuck(&stall::StallSample {
            now,
            current,
            limit,
            stat,
            major_faults,
        }) {
            return Some(SamplerAction::Stop(StopCause::Stalled));
        }
        (kind == EnforcerKind::Cgroup1 && !self.subject.task_groups && kills > 0)
            .then_some(SamplerAction::FinishOff)
    }

    fn note_victims(&mut self, now: Tick, current: Bytes) {
        let due = self
            .victims_at
            .is_none_or(|at| now.since(at) >= VICTIMS_EVERY);
        if due && current >= self.subject.limit.mul_ratio(CLOSE, 100) {
            self.victims_at = Some(now);
            self.victims = self.subject.group.largest(VICTIMS);
            let grown = self
                .inside
                .is_none_or(|seen| current > seen.current.mul_ratio(21, 20));
            self.to_look_into = self
                .victims
                .first()
                .filter(|v| grown && v.pid > 0)
                .map(|v| (v.pid, current));
        }
    }

    /// Records limits that a program sets for itself. An executor reads those of its tasks. A new
    /// process or program changes the use of memory, so an unchanged use is read rarely.
    fn note_limits(&mut self, now: Tick, moved: bool) {
        self.moved |= moved;
        let every = if self.moved {
            LIMITS_EVERY
        } else {
            IDLE_LIMITS_EVERY
        };
        let due = self.limits_at.is_none_or(|at| now.since(at) >= every);
        if self.subject.task_groups || !due {
            return;
        }
        self.limits_at = Some(now);
        self.moved = false;
        for pid in self
            .subject
            .group
            .pids()
            .unwrap_or_default()
            .into_iter()
            .take(MAX_LIMITED)
        {
            // A process that has ended has no limits file.
            if let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/limits")) {
                self.own_limits.add_limits_file(&text);
            }
        }
    }

    /// Inspects the largest process if it is due. Returns false if nothing was due.
    fn look_inside(&mut self) -> bool {
        let Some((pid, current)) = self.to_look_into.take() else {
            return false;
        };
        if let Ok(found) = inspect::inspect_process(pid) {
            let facts = maps::parse(&found.smaps);
            if facts != ProcessMemory::default() {
                self.inside = Some(ProcessMemory {
                    pid,
                    current,
                    sockets: found.sockets,
                    pipes: found.pipes,
                    ..facts
                });
            }
        }
        true
    }

    /// Reads the counters of a JVM. They stay readable after its end, so the last values are
    /// included.
    fn read_heap(&mut self, at_ms: u64) -> Option<TimelineMark> {
        if !self.subject.has_heap {
            return None;
        }
        if self.heap_file.is_none() {
            let pids = self.subject.group.pids().unwrap_or_default();
            self.heap_file = pids
                .into_iter()
                .take(MOST_PROCESSES)
                .find_map(|pid| HsperfFile::locate(pid).ok());
        }
        let file = self.heap_file.as_ref()?;
        let mut facts = file
            .read()
            .ok()
            .and_then(|bytes| hsperf::parse(&bytes).ok())?;
        facts.pid = Some(file.pid());
        let mark = self.window.take(at_ms, &mut facts);
        self.heap = Some(facts);
        mark
    }

    fn finish(&mut self) -> ContainerMeasurements {
        self.probe = None;
        let at_ms = self.last.map(|last| last.at_ms).unwrap_or_default();
        let recent = self
            .heap
            .and_then(|heap| heap.gc)
            .and_then(|gc| gc.recent_percent);
        self.read_heap(at_ms);
        if let Some(gc) = self.heap.as_mut().and_then(|heap| heap.gc.as_mut()) {
            gc.recent_percent = gc.recent_percent.or(recent);
        }
        ContainerMeasurements {
            timeline: std::mem::take(&mut self.timeline).points(),
            last: self.last,
            fullest: self.fullest.map(|(_, stat)| stat),
            heap: self.heap,
            victims: std::mem::take(&mut self.victims),
            inside: self.inside,
            own_limits: std::mem::take(&mut self.own_limits),
        }
    }
}

/// The result of sampling all containers once.
#[derive(Debug, Default)]
pub(crate) struct SampleRound {
    /// Required actions.
    pub(crate) actions: Vec<(ContainerId, SamplerAction)>,
    /// All memory of the containers that could be measured.
    pub(crate) held: Bytes,
}

/// Samples all containers. Blocking; called as a job of the loop.
pub(crate) fn look_at_all(now: Tick, meters: &[(ContainerId, SharedSampler)]) -> SampleRound {
    let mut room = ReadBuffer::default();
    let mut round = SampleRound::default();
    for (id, meter) in meters {
        let Some((current, action)) = locked(meter).look(now, &mut room) else {
            continue;
        };
        round.held = round.held.saturating_add(current);
        round
            .actions
            .extend(action.map(|action| (id.clone(), action)));
    }
    // Inspections follow after all samples, because they take milliseconds. Processes beyond
    // `LOOKS` stay marked for the next round.
    meters
        .iter()
        .filter(|(_, meter)| locked(meter).look_inside())
        .take(LOOKS)
        .for_each(drop);
    round
}

/// Returns all measurements. Blocking; called after the container has ended.
pub(crate) fn finish(meter: &SharedSampler) -> ContainerMeasurements {
    locked(meter).finish()
}

/// Locks a sampler. If a job panicked, the earlier measurements are still valid.
pub(crate) fn locked(meter: &SharedSampler) -> std::sync::MutexGuard<'_, ContainerSampler> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}
