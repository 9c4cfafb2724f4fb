//! Looks at running containers four times a second: memory by kind, heap, the largest processes.
//!
//! Owned by the loop; one job at a time looks at all of them. What it finds goes into the timeline of the exit report, into the
//! signs of life, and, where the kernel does not end a container by itself, into a decision to end it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_node_cgroup::hsperf::HeapFile;
use headroom_node_cgroup::inside;
use headroom_node_cgroup::{CgroupError, Group, Look, Probe, Room};
use headroom_node_core::stall::{self, Stall};
use headroom_node_core::starved::GcWindow;
use headroom_node_core::{OwnLimits, Timeline, hsperf, maps};
use headroom_types::exit::{HeapFacts, Mark, MemoryStat, ProcessFacts, Sample, Victim};
use headroom_types::{Bytes, ContainerId, EnforcerKind, StopCause, Tick};

/// How often.
pub(crate) const EVERY: Duration = Duration::from_millis(250);
/// Most processes that are looked at for being a JVM.
const MOST_PROCESSES: usize = 32;
/// How many of the largest processes are kept as possible victims.
const VICTIMS: usize = 5;
/// In use, of the limit, from which on the largest processes are noted. Per cent.
const CLOSE: u64 = 75;
/// How often they are noted at most.
const VICTIMS_EVERY: Duration = Duration::from_secs(1);
/// How often the limits of its processes are read.
const LIMITS_EVERY: Duration = Duration::from_secs(1);
/// Of at most so many processes.
const MAX_LIMITED: usize = 4;
/// How many processes are looked into in one round: each costs milliseconds.
const LOOKS: usize = 1;

/// What is known about a container before it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Its group.
    pub(crate) group: Arc<Group>,
    /// What it is held to.
    pub(crate) limit: Bytes,
    /// Whether a runtime with a heap of its own was declared.
    pub(crate) has_heap: bool,
    /// Whether it makes cgroups for tasks: then a kill inside is the executor's matter.
    pub(crate) task_groups: bool,
}

/// The measurements of one container.
#[derive(Debug)]
pub(crate) struct Meter {
    subject: Subject,
    started: Tick,
    timeline: Timeline,
    last: Option<Sample>,
    /// By kind, at the moment of the largest use that was seen.
    fullest: Option<(Bytes, MemoryStat)>,
    heap_file: Option<HeapFile>,
    heap: Option<HeapFacts>,
    victims: Vec<Victim>,
    victims_at: Option<Tick>,
    window: GcWindow,
    inside: Option<ProcessFacts>,
    /// The largest process and the use of the group, while it is worth looking into.
    to_look_into: Option<(i32, Bytes)>,
    stall: Stall,
    own_limits: OwnLimits,
    limits_at: Option<Tick>,
    /// Opened at the first look.
    probe: Option<Probe>,
}

/// A meter that the loop and its jobs look at. Never locked across a wait.
pub(crate) type SharedMeter = Arc<Mutex<Meter>>;

/// What has to be done about a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// End it for this cause.
    Stop(StopCause),
    /// The kernel killed a part of it: end the rest, the counters tell why.
    FinishOff,
}

/// All measurements of a container when it has ended.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Memory from birth to death.
    pub(crate) timeline: Vec<Sample>,
    /// The last sample.
    pub(crate) last: Option<Sample>,
    /// By kind, at its fullest.
    pub(crate) fullest: Option<MemoryStat>,
    /// The last thing its runtime told.
    pub(crate) heap: Option<HeapFacts>,
    /// The largest processes, when it was close to its limit.
    pub(crate) victims: Vec<Victim>,
    /// What the largest of them was made of.
    pub(crate) inside: Option<ProcessFacts>,
    /// Limits that its processes had.
    pub(crate) own_limits: OwnLimits,
}

impl Meter {
    /// Nothing measured yet.
    pub(crate) fn new(subject: Subject, started: Tick) -> SharedMeter {
        Arc::new(Mutex::new(Meter {
            subject,
            started,
            timeline: Timeline::default(),
            last: None,
            fullest: None,
            heap_file: None,
            heap: None,
            victims: Vec::new(),
            victims_at: None,
            window: GcWindow::default(),
            inside: None,
            to_look_into: None,
            stall: Stall::default(),
            own_limits: OwnLimits::default(),
            limits_at: None,
            probe: None,
        }))
    }

    /// The last sample.
    pub(crate) fn last(&self) -> Option<Sample> {
        self.last
    }

    /// The timeline so far.
    pub(crate) fn timeline(&self) -> Vec<Sample> {
        self.timeline.points().to_vec()
    }

    /// It is held to another limit from now on.
    pub(crate) fn set_limit(&mut self, limit: Bytes) {
        self.subject.limit = limit;
    }

    /// Measures now.
    fn look(&mut self, now: Tick, room: &mut Room) -> Option<Finding> {
        let Look { current, stat, kills } = match self.measure(room) {
            Ok(look) => look,
            Err(error) => {
                tracing::debug!(group = self.subject.group.name(), %error, "cannot be measured now");
                return None;
            }
        };
        let at_ms = u64::try_from(now.since(self.started).as_millis()).unwrap_or(u64::MAX);
        let mark = self.read_heap(at_ms);
        let limit = self.subject.limit;
        let sample = Sample {
            at_ms,
            current,
            anon: stat.anon,
            file: stat.file,
            heap: self.heap.map(|h| h.used),
            limit: Some(limit),
            mark,
        };
        self.timeline.push(sample);
        self.last = Some(sample);
        if self.fullest.is_none_or(|(most, _)| current >= most) {
            self.fullest = Some((current, stat));
        }
        self.note_victims(now, current);
        self.note_limits(now);
        self.judge(now, current, &stat, kills)
    }

    fn measure(&mut self, room: &mut Room) -> Result<Look, CgroupError> {
        if self.probe.is_none() {
            self.probe = self.subject.group.probe()?;
        }
        match &mut self.probe {
            Some(probe) => probe.look(self.subject.limit, room),
            None => self.subject.group.sample().map(|(current, stat)| Look { current, stat, kills: 0 }),
        }
    }

    fn judge(&mut self, now: Tick, current: Bytes, stat: &MemoryStat, kills: u64) -> Option<Finding> {
        let limit = self.subject.limit;
        let kind = self.subject.group.kind();
        if kind == EnforcerKind::Poll && current > limit {
            return Some(Finding::Stop(StopCause::OverLimit));
        }
        let major_faults = stall::is_tight(current, limit, stat).then(|| self.subject.group.major_faults()).flatten();
        if self.stall.is_stuck(&stall::Look { now, current, limit, stat, major_faults }) {
            return Some(Finding::Stop(StopCause::Stalled));
        }
        (kind == EnforcerKind::Cgroup1 && !self.subject.task_groups && kills > 0).then_some(Finding::FinishOff)
    }

    fn note_victims(&mut self, now: Tick, current: Bytes) {
        let due = self.victims_at.is_none_or(|at| now.since(at) >= VICTIMS_EVERY);
        if due && current >= self.subject.limit.mul_ratio(CLOSE, 100) {
            self.victims_at = Some(now);
            self.victims = self.subject.group.largest(VICTIMS);
            let grown = self.inside.is_none_or(|seen| current > seen.current.mul_ratio(21, 20));
            self.to_look_into = self.victims.first().filter(|v| grown && v.pid > 0).map(|v| (v.pid, current));
        }
    }

    /// Limits that a program sets for itself. An executor sees those of its tasks.
    fn note_limits(&mut self, now: Tick) {
        let due = self.limits_at.is_none_or(|at| now.since(at) >= LIMITS_EVERY);
        if self.subject.task_groups || !due {
            return;
        }
        self.limits_at = Some(now);
        for pid in self.subject.group.pids().unwrap_or_default().into_iter().take(MAX_LIMITED) {
            // One that has ended meanwhile has nothing to read.
            if let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/limits")) {
                self.own_limits.add_limits_file(&text);
            }
        }
    }

    /// Looks into the largest process if that is worth it. False when there was nothing to do.
    fn look_inside(&mut self) -> bool {
        let Some((pid, current)) = self.to_look_into.take() else { return false };
        if let Ok(found) = inside::look(pid) {
            let facts = maps::parse(&found.smaps);
            if facts != ProcessFacts::default() {
                self.inside = Some(ProcessFacts { pid, current, sockets: found.sockets, pipes: found.pipes, ..facts });
            }
        }
        true
    }

    /// The counters of a JVM stay readable after its death, so the last words count.
    fn read_heap(&mut self, at_ms: u64) -> Option<Mark> {
        if !self.subject.has_heap {
            return None;
        }
        if self.heap_file.is_none() {
            let pids = self.subject.group.pids().unwrap_or_default();
            self.heap_file = pids.into_iter().take(MOST_PROCESSES).find_map(|pid| HeapFile::locate(pid).ok());
        }
        let mut facts = self.heap_file.as_ref().and_then(|f| f.read().ok()).and_then(|bytes| hsperf::parse(&bytes).ok())?;
        let mark = self.window.take(at_ms, &mut facts);
        self.heap = Some(facts);
        mark
    }

    fn finish(&mut self) -> Measured {
        self.probe = None;
        let at_ms = self.last.map(|last| last.at_ms).unwrap_or_default();
        let recent = self.heap.and_then(|heap| heap.gc).and_then(|gc| gc.recent_percent);
        self.read_heap(at_ms);
        if let Some(gc) = self.heap.as_mut().and_then(|heap| heap.gc.as_mut()) {
            gc.recent_percent = gc.recent_percent.or(recent);
        }
        Measured {
            timeline: std::mem::take(&mut self.timeline).into_vec(),
            last: self.last,
            fullest: self.fullest.map(|(_, stat)| stat),
            heap: self.heap,
            victims: std::mem::take(&mut self.victims),
            inside: self.inside,
            own_limits: std::mem::take(&mut self.own_limits),
        }
    }
}

/// Measures all of them. Blocking; called as a job of the loop.
pub(crate) fn look_at_all(now: Tick, meters: &[(ContainerId, SharedMeter)]) -> Vec<(ContainerId, Finding)> {
    let mut room = Room::default();
    let found = meters.iter().filter_map(|(id, meter)| Some((id.clone(), locked(meter).look(now, &mut room)?))).collect();
    // After all of them were measured: what takes milliseconds delays nobody's sample. The others keep their wish.
    meters.iter().filter(|(_, meter)| locked(meter).look_inside()).take(LOOKS).for_each(drop);
    found
}

/// Everything that was measured. Blocking; called when the container has ended.
pub(crate) fn finish(meter: &SharedMeter) -> Measured {
    locked(meter).finish()
}

/// A meter whose job panicked still holds what it measured before.
pub(crate) fn locked(meter: &SharedMeter) -> std::sync::MutexGuard<'_, Meter> {
    meter.lock().unwrap_or_else(PoisonError::into_inner)
}
