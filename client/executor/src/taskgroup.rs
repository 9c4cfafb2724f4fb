//! The cgroup of one task, inside that of the container: created before its process, read at its
//! end, then removed, or kept for another task.
//!
//! Owned by the task. It never changes the limits of the container. A cgroup that is provably clean is
//! used again, because its life is an eighth of the work for a short task: no process is left in it,
//! hardly any memory is charged to it, its counters are zero, and its limit is the one that was set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headroom_node_cgroup::{CgroupError, EnforcedGroup, GroupLimits, OomGroup};
use headroom_types::exit::{CgroupStats, MemoryEvents, OuterLevel, Unattributed, VictimProcess};
use headroom_types::unattributed::LeftoverOwners;
use headroom_types::{Bytes, EnforcerKind, TaskAttemptId};
use headroom_wire::v1::task::TaskStart;

use crate::clean_groups::CleanGroups;

/// Maximum time until processes have ended and a cgroup is removable.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum memory left behind for which a task is recorded. Bytes.
const MIN_LEFT: Bytes = Bytes::from_mib(1);
/// Maximum age of the counters around a task that starts.
const BASELINE_AGE: Duration = Duration::from_millis(10);
/// Maximum number of processes in a report.
const VICTIMS: usize = 4;
/// Maximum peak of a task after which its cgroup is used again although its peak cannot be reset
/// (cgroup v2). Bytes.
const MAX_PEAK_LEFT: Bytes = Bytes::from_mib(4);
/// Maximum number of cgroups whose counters stay open, about eight files each.
const MAX_OPEN_COUNTERS: usize = 32;

/// The container around all tasks.
#[derive(Debug)]
pub struct ContainerCgroup {
    kind: EnforcerKind,
    group: EnforcedGroup,
    fence: Option<FenceCgroup>,
    /// Ended tasks that left memory charged to the container.
    leavers: Mutex<LeftoverOwners>,
    /// Set when a task's cgroup is removed.
    unmeasured: AtomicBool,
    /// The last counters that a start read. They cost a short task a tenth of its time.
    baseline: Mutex<Option<(Instant, OuterCounters)>>,
    /// Clean cgroups of ended tasks.
    clean: CleanGroups<TaskGroup>,
    /// Held by each cgroup whose counters stay open.
    open_counters: Arc<()>,
}

/// The cgroup around all containers of the node. It is read only after a kill, so that a start
/// stays cheap. The baseline of a task is the previous read. A kill in between can only confuse two
/// ends that are both not charged.
#[derive(Debug)]
struct FenceCgroup {
    group: EnforcedGroup,
    seen: Mutex<MemoryEvents>,
}

impl FenceCgroup {
    /// `None` if the executor cannot read the level above.
    fn around(kind: EnforcerKind, container: &std::path::Path) -> Option<FenceCgroup> {
        let group = match kind {
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 => {
                EnforcedGroup::attach(kind, container.parent()?).ok()?
            }
            EnforcerKind::Poll => return None,
        };
        let seen = Mutex::new(group.facts().ok()?.local);
        Some(FenceCgroup { group, seen })
    }
    fn seen(&self) -> MemoryEvents {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Memory that ended containers left on the node. Only the node agent knows these containers.
    fn left(&self) -> Option<Unattributed> {
        let memory = self
            .group
            .unattributed(MIN_LEFT)
            .ok()
            .flatten()
            .filter(|memory| !memory.is_zero())?;
        Some(Unattributed {
            memory,
            left_by: Vec::new(),
        })
    }
    /// Reads the current counters and stores them as the next baseline.
    fn look(&self) -> Option<CgroupStats> {
        let facts = self.group.facts().ok()?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = facts.local;
        Some(facts)
    }
}

impl ContainerCgroup {
    /// Attaches to the container in which this process runs.
    pub fn attach(
        kind: EnforcerKind,
        path: &std::path::Path,
    ) -> Result<ContainerCgroup, CgroupError> {
        Ok(ContainerCgroup {
            kind,
            group: EnforcedGroup::attach(kind, path)?,
            fence: FenceCgroup::around(kind, path),
            leavers: Mutex::default(),
            unmeasured: AtomicBool::new(false),
            baseline: Mutex::default(),
            clean: CleanGroups::new(),
            open_counters: Arc::new(()),
        })
    }
    /// The mechanism that enforces the limits.
    pub fn kind(&self) -> EnforcerKind {
        self.kind
    }
    /// The cgroup of one task, with its limit confirmed: a clean one, or a new one.
    pub fn create(&self, start: &TaskStart) -> Result<TaskGroup, CgroupError> {
        if let Some(task) = self.take_clean(start) {
            return Ok(task);
        }
        let limits = GroupLimits {
            memory: start.limit,
            processes: None,
            cpu_weight: None,
            oom_group: OomGroup::Yes,
            low: None,
        };
        let before = self.baseline();
        let group = self.group.create_task(&name(&start.attempt), &limits)?;
        Ok(TaskGroup {
            kind: self.kind,
            group,
            limit: start.limit,
            before: Mutex::new(before),
            is_unchanged: AtomicBool::new(false),
            open_counters: None,
        })
    }
    /// A clean cgroup with the limit of the start.
    fn take_clean(&self, start: &TaskStart) -> Option<TaskGroup> {
        let mut task = self.clean.take(start.limit)?;
        match task.serve(start) {
            Ok(true) => {
                *task.before() = self.baseline();
                Some(task)
            }
            // A process of its last task may have changed it.
            Ok(false) | Err(_) => {
                remove_unused(vec![task]);
                None
            }
        }
    }
    /// Keeps the cgroup of an ended task for another one if it is clean, and removes it otherwise.
    /// Returns what [`ContainerCgroup::remove`] does.
    pub fn give_back(&self, task: Arc<TaskGroup>) -> Result<bool, CgroupError> {
        let mut task = match Arc::try_unwrap(task) {
            Ok(task) => task,
            Err(shared) => return self.remove(&shared),
        };
        if !task.retire() {
            return self.remove(&task);
        }
        self.unmeasured.store(true, Ordering::Relaxed);
        // The container itself holds one more.
        if task.open_counters.is_none()
            && Arc::strong_count(&self.open_counters) <= MAX_OPEN_COUNTERS
        {
            task.group.keep_counters_open();
            task.open_counters = Some(Arc::clone(&self.open_counters));
        }
        match self.clean.add(task.limit, task) {
            Ok(()) => Ok(false),
            Err(task) => self.remove(&task),
        }
    }
    /// Clean cgroups that no task has needed for a while, to be removed.
    pub(crate) fn take_expired(&self) -> Vec<TaskGroup> {
        self.clean.take_expired()
    }
    /// Removes the clean cgroups, and keeps no more.
    pub(crate) fn close(&self) {
        remove_unused(self.clean.close());
    }
    /// Unreclaimable memory that ended tasks left charged to the container, if at least `floor`.
    /// `None` if the kernel does not count it, or if it is not readable now.
    pub fn unattributed(&self, floor: Bytes) -> Option<Unattributed> {
        let memory = self.group.unattributed(floor).ok().flatten()?;
        let mut leavers = self.leavers.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.is_zero() {
            leavers.clear();
        }
        Some(Unattributed {
            memory,
            left_by: leavers.largest(),
        })
    }
    /// Removes the cgroup of an ended task and records the memory that it leaves behind. True if
    /// that is enough to measure the container at once.
    pub fn remove(&self, task: &TaskGroup) -> Result<bool, CgroupError> {
        let left = task.group.held(MIN_LEFT).ok().flatten().unwrap_or_default();
        if !left.is_zero() {
            let mut leavers = self.leavers.lock().unwrap_or_else(PoisonError::into_inner);
            leavers.add(task.group.name(), left);
        }
        let removed = task.group.remove(REMOVE_TIMEOUT);
        self.unmeasured.store(true, Ordering::Relaxed);
        removed.map(|()| !left.is_zero())
    }
    /// True if tasks have ended since the last call: each may have left a little memory.
    pub fn take_unmeasured(&self) -> bool {
        self.unmeasured.swap(false, Ordering::Relaxed)
    }
    /// Counters of the levels around a task that starts. They may be [`BASELINE_AGE`] old: a kill in
    /// that time is counted for the task as well, and can only make an end uncharged.
    fn baseline(&self) -> OuterCounters {
        let mut last = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, counters)) if at.elapsed() < BASELINE_AGE => counters.clone(),
            Some(_) | None => {
                let counters = self.outer();
                *last = Some((Instant::now(), counters.clone()));
                counters
            }
        }
    }
    /// Lets the next start read the counters: a task has failed.
    fn forget_baseline(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    /// Current counters of the levels around a task.
    fn outer(&self) -> OuterCounters {
        OuterCounters {
            container: self.group.level().ok().flatten(),
            fence: self.fence.as_ref().map(FenceCgroup::seen),
            host_oom_kills: self.group.host_oom_kills(),
        }
    }
}

/// Removes cgroups that no task uses. Blocking.
pub(crate) fn remove_unused(groups: Vec<TaskGroup>) {
    for group in groups {
        if let Err(error) = group.group.remove(REMOVE_TIMEOUT) {
            tracing::warn!(%error, "an unused cgroup cannot be removed");
        }
    }
}

/// Maximum length of an owner's name in a report, which has space for the largest owner only.
pub const MAX_OWNER_NAME_BYTES: usize = 64;

/// Keeps the largest owner and truncates its name. Names of task groups are ASCII, so any length is
/// a character boundary.
fn brief(mut left: Unattributed) -> Unattributed {
    left.left_by.truncate(1);
    left.left_by
        .iter_mut()
        .for_each(|owner| owner.name.truncate(MAX_OWNER_NAME_BYTES));
    left
}

/// The name of a task's cgroup.
fn name(attempt: &TaskAttemptId) -> String {
    attempt.file_name()
}

/// Limit of a level, and its own counters.
type LevelCounters = (Option<Bytes>, MemoryEvents);

/// Counters of the levels around a task at one moment.
#[derive(Clone, Debug, Default)]
struct OuterCounters {
    container: Option<LevelCounters>,
    fence: Option<MemoryEvents>,
    host_oom_kills: Option<u64>,
}

/// The cgroup of one task.
#[derive(Debug)]
pub struct TaskGroup {
    kind: EnforcerKind,
    group: EnforcedGroup,
    /// The limit with which it was created.
    limit: Option<Bytes>,
    /// Counters at the start of the attempt.
    before: Mutex<OuterCounters>,
    /// Whether the ended task left limit, counters and watches as they were.
    is_unchanged: AtomicBool,
    /// Set while its counters stay open.
    open_counters: Option<Arc<()>>,
}

impl TaskGroup {
    fn before(&self) -> MutexGuard<'_, OuterCounters> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Notes that the ended task left limit, counters and watches as they were, and no process.
    pub(crate) fn mark_unchanged(&self) {
        self.is_unchanged.store(true, Ordering::Relaxed);
    }
    /// Gives a clean cgroup up. False if it is not clean.
    fn retire(&mut self) -> bool {
        let is_unchanged = std::mem::take(self.is_unchanged.get_mut());
        let is_nearly_empty = || {
            let usage = self.group.usage().ok().flatten();
            usage.is_some_and(|usage| usage < MIN_LEFT)
        };
        is_unchanged && is_nearly_empty() && self.group.rename_task("").is_ok()
    }
    /// Prepares a clean cgroup for a task. False if it is not as its last task should have left it:
    /// the processes of a task can write the files of its cgroup.
    fn serve(&mut self, start: &TaskStart) -> Result<bool, CgroupError> {
        self.group.rename_task(&name(&start.attempt))?;
        self.group.reset_peak()?;
        if start.freeze_timeout_ms.is_none() {
            self.group.unthrottle()?;
        }
        self.group.is_like_new(self.limit)
    }
    /// True if a peak of this task does not show in the reports of a later one.
    pub(crate) fn forgets_peak(&self, peak: Option<Bytes>) -> bool {
        match self.kind {
            EnforcerKind::Cgroup1 => true,
            EnforcerKind::Cgroup2 => peak.is_some_and(|peak| peak <= MAX_PEAK_LEFT),
            EnforcerKind::Poll => false,
        }
    }
    /// Prepares it for the next attempt of its process.
    pub(crate) fn begin_again(&self, container: &ContainerCgroup) {
        *self.before() = container.baseline();
    }
    /// Resets its counters for the next attempt. True if that succeeded.
    pub(crate) fn reset(&self) -> bool {
        self.group.reset_peak().is_ok()
    }
    /// The cgroup.
    pub fn group(&self) -> &EnforcedGroup {
        &self.group
    }
    /// The mechanism that enforces the limits.
    pub fn kind(&self) -> EnforcerKind {
        self.kind
    }
    /// True if the kernel killed one of its processes for memory and left the others to the
    /// executor.
    pub fn has_victim(&self, facts: &CgroupStats) -> bool {
        match self.kind {
            EnforcerKind::Cgroup1 => facts.events.oom_kill > 0,
            EnforcerKind::Cgroup2 | EnforcerKind::Poll => false, // cgroup v2 kills the whole group; poll has no kernel kills
        }
    }
    /// The largest processes.
    pub fn largest(&self) -> Vec<VictimProcess> {
        self.group.largest(VICTIMS)
    }
    /// Counter growth of the outer levels since the start; unreadable counters are added to
    /// `missing`. `own` contains the counters of the task.
    pub fn outer(
        &self,
        own: &CgroupStats,
        container: &ContainerCgroup,
        missing: &mut Vec<String>,
    ) -> Vec<OuterLevel> {
        container.forget_baseline();
        let now = container.outer();
        let before = self.before().clone();
        let mut levels = Vec::new();
        match (&before.container, now.container) {
            (Some((_, before)), Some((limit, after))) => {
                let killed = own.events.oom_kill > 0;
                let left = killed
                    .then(|| container.unattributed(MIN_LEFT))
                    .flatten()
                    .filter(|left| !left.memory.is_zero())
                    .map(brief);
                let level = OuterLevel::counted("container", limit, after.since(before));
                levels.push(OuterLevel {
                    unattributed: left,
                    ..level
                });
            }
            (None, _) | (_, None) if self.kind.is_kernel() => {
                missing.push("counters of the container's cgroup".to_owned())
            }
            (None, _) | (_, None) => {}
        }
        if let (Some(before), Some(fence)) = (
            before.fence,
            container.fence.as_ref().filter(|_| own.events.oom_kill > 0),
        ) {
            match fence.look() {
                Some(after) => {
                    let level =
                        OuterLevel::counted("containers", after.limit, after.local.since(&before));
                    levels.push(OuterLevel {
                        unattributed: fence.left(),
                        ..level
                    })
                }
                None => missing.push("counters of the cgroup around all containers".to_owned()),
            }
        }
        match (before.host_oom_kills, now.host_oom_kills) {
            (Some(before), Some(after)) => {
                let local = MemoryEvents {
                    oom_kill: after.saturating_sub(before),
                    ..MemoryEvents::default()
                };
                levels.push(OuterLevel::counted("host", None, local));
            }
            (None, _) | (_, None) => missing.push("kills on the host".to_owned()),
        }
        levels
    }
    /// Kills all remaining processes. True if there were any.
    pub fn clear(&self) -> Result<bool, CgroupError> {
        if !self.group.populated()? {
            return Ok(false);
        }
        self.group.kill()?;
        Ok(true)
    }
}
