//! The cgroup of one task, inside the container's: made before its process, read at its end, removed after.
//!
//! Owned by the task. It never touches the container's own limits, and never lives longer than its task.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headroom_node_cgroup::{CgroupError, Group, Limits, OomGroup};
use headroom_types::exit::{GroupFacts, MemoryEvents, OuterLevel, Unattributed, Victim};
use headroom_types::unattributed::Leavers;
use headroom_types::{Bytes, EnforcerKind, TaskAttemptId};
use headroom_wire::v1::task::TaskStart;

/// How long processes may take to go, and a cgroup to be removable.
const REMOVE_WITHIN: Duration = Duration::from_secs(5);
/// A task that leaves less is not remembered for it. Bytes.
const MIN_LEFT: Bytes = Bytes::from_mib(1);
/// How many processes are named.
const VICTIMS: usize = 4;

/// The container around all tasks.
#[derive(Debug)]
pub struct Container {
    kind: EnforcerKind,
    group: Group,
    fence: Option<Fence>,
    /// Tasks that ended and left memory charged to the container.
    leavers: Mutex<Leavers>,
}

/// The cgroup around all containers of the node. It is read only when a task was killed, so that starting one stays cheap: a
/// task's baseline is what the last look told, and a kill in between can only make one free end look like another.
#[derive(Debug)]
struct Fence {
    group: Group,
    seen: Mutex<MemoryEvents>,
}

impl Fence {
    /// None where the level above is not ours to read.
    fn around(kind: EnforcerKind, container: &std::path::Path) -> Option<Fence> {
        let group = match kind {
            EnforcerKind::Cgroup1 | EnforcerKind::Cgroup2 => Group::attach(kind, container.parent()?).ok()?,
            EnforcerKind::Poll => return None,
        };
        let seen = Mutex::new(group.facts().ok()?.local);
        Some(Fence { group, seen })
    }
    fn seen(&self) -> MemoryEvents {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What ended containers have left on the node. Who they were is known to the node agent alone.
    fn left(&self) -> Option<Unattributed> {
        let memory = self.group.unattributed(MIN_LEFT).ok().flatten().filter(|memory| !memory.is_zero())?;
        Some(Unattributed { memory, left_by: Vec::new() })
    }
    /// Its counters now; remembered.
    fn look(&self) -> Option<GroupFacts> {
        let facts = self.group.facts().ok()?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = facts.local;
        Some(facts)
    }
}

impl Container {
    /// The container this process runs in.
    pub fn attach(kind: EnforcerKind, path: &std::path::Path) -> Result<Container, CgroupError> {
        Ok(Container { kind, group: Group::attach(kind, path)?, fence: Fence::around(kind, path), leavers: Mutex::default() })
    }
    /// What holds the limits.
    pub fn kind(&self) -> EnforcerKind {
        self.kind
    }
    /// Makes the group of one task, with its limit confirmed.
    pub fn create(&self, start: &TaskStart) -> Result<TaskGroup, CgroupError> {
        let limits = Limits { memory: start.limit, processes: None, cpu_weight: None, oom_group: OomGroup::Yes, low: None };
        let before = self.outer();
        let group = self.group.create_task(&name(&start.attempt), &limits)?;
        Ok(TaskGroup { kind: self.kind, group, before })
    }
    /// Memory that ended tasks have left charged to the container and that reclaim cannot give back, from `floor` on. `None` where no kernel
    /// counts it, or it cannot be read now.
    pub fn unattributed(&self, floor: Bytes) -> Option<Unattributed> {
        let memory = self.group.unattributed(floor).ok().flatten()?;
        let mut leavers = self.leavers.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.is_zero() {
            leavers.clear();
        }
        Some(Unattributed { memory, left_by: leavers.largest() })
    }
    /// Removes the group of a task that has ended, and notes what it leaves behind.
    pub fn remove(&self, task: &TaskGroup) -> Result<(), CgroupError> {
        if let Ok(Some(charged)) = task.group.charged()
            && charged.unreclaimable >= MIN_LEFT
        {
            let mut leavers = self.leavers.lock().unwrap_or_else(PoisonError::into_inner);
            leavers.add(task.group.name(), charged.unreclaimable);
        }
        task.group.remove(REMOVE_WITHIN)
    }
    /// Counters of the levels around a task, now.
    fn outer(&self) -> Outer {
        Outer {
            container: self.group.level().ok().flatten(),
            fence: self.fence.as_ref().map(Fence::seen),
            host_oom_kills: self.group.host_oom_kills(),
        }
    }
}

/// In a report there is room for the largest owner, and for so much of its name.
pub const NAME: usize = 64;

/// Names of task groups are ASCII.
fn brief(mut left: Unattributed) -> Unattributed {
    left.left_by.truncate(1);
    left.left_by.iter_mut().for_each(|owner| owner.name.truncate(NAME));
    left
}

/// The name of a task's group.
fn name(attempt: &TaskAttemptId) -> String {
    attempt.file_name()
}

/// The limit of a level, and what it has counted itself.
type Level = (Option<Bytes>, MemoryEvents);

/// What the levels around a task had counted at one moment.
#[derive(Clone, Debug, Default)]
struct Outer {
    container: Option<Level>,
    fence: Option<MemoryEvents>,
    host_oom_kills: Option<u64>,
}

/// The group of one task.
#[derive(Debug)]
pub struct TaskGroup {
    kind: EnforcerKind,
    group: Group,
    before: Outer,
}

impl TaskGroup {
    /// The group itself.
    pub fn group(&self) -> &Group {
        &self.group
    }
    /// What holds the limits.
    pub fn kind(&self) -> EnforcerKind {
        self.kind
    }
    /// True when the kernel has killed one of its processes for memory and left the others to us.
    pub fn has_victim(&self, facts: &GroupFacts) -> bool {
        match self.kind {
            EnforcerKind::Cgroup1 => facts.events.oom_kill > 0,
            EnforcerKind::Cgroup2 | EnforcerKind::Poll => false, // the kernel ends the group itself; nobody does
        }
    }
    /// Its largest processes.
    pub fn largest(&self) -> Vec<Victim> {
        self.group.largest(VICTIMS)
    }
    /// Growth of the counters around it since it was made, and what could not be read. `own` is what it counted itself.
    pub fn outer(&self, own: &GroupFacts, container: &Container, missing: &mut Vec<String>) -> Vec<OuterLevel> {
        let now = container.outer();
        let mut levels = Vec::new();
        match (&self.before.container, now.container) {
            (Some((_, before)), Some((limit, after))) => {
                let killed = own.events.oom_kill > 0;
                let left =
                    killed.then(|| container.unattributed(MIN_LEFT)).flatten().filter(|left| !left.memory.is_zero()).map(brief);
                let level = OuterLevel::counted("container", limit, after.since(before));
                levels.push(OuterLevel { unattributed: left, ..level });
            }
            (None, _) | (_, None) if self.kind.is_kernel() => missing.push("counters of the container's cgroup".to_owned()),
            (None, _) | (_, None) => {}
        }
        if let (Some(before), Some(fence)) = (self.before.fence, container.fence.as_ref().filter(|_| own.events.oom_kill > 0)) {
            match fence.look() {
                Some(after) => {
                    let level = OuterLevel::counted("containers", after.limit, after.local.since(&before));
                    levels.push(OuterLevel { unattributed: fence.left(), ..level })
                }
                None => missing.push("counters of the cgroup around all containers".to_owned()),
            }
        }
        match (self.before.host_oom_kills, now.host_oom_kills) {
            (Some(before), Some(after)) => {
                let local = MemoryEvents { oom_kill: after.saturating_sub(before), ..MemoryEvents::default() };
                levels.push(OuterLevel::counted("host", None, local));
            }
            (None, _) | (_, None) => missing.push("kills on the host".to_owned()),
        }
        levels
    }
    /// Ends whatever is still in it. True when there was something.
    pub fn clear(&self) -> Result<bool, CgroupError> {
        if !self.group.populated()? {
            return Ok(false);
        }
        self.group.kill()?;
        Ok(true)
    }
}
