//! One group: a container's or a task's, whatever holds its limits.
//!
//! Owned by the agent (containers) and by the executor (tasks). Dropping a `Group` changes nothing in the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_types::exit::{GroupFacts, MemoryEvents, MemoryStat, Victim};
use headroom_types::{Bytes, EnforcerKind};

use crate::error::Result;
use crate::hold::{self, Frozen};
use crate::plan::Limits;
use crate::probe::Probe;
use crate::unattributed::Charged;
use crate::{detect, poll, procs, v1, v2};

/// A container group or a task group.
#[derive(Debug)]
pub enum Group {
    /// A directory of cgroup v2.
    Cgroup2(v2::Group),
    /// A directory in the v1 memory hierarchy, with a mirror for pids where there is one.
    Cgroup1(v1::Group),
    /// A process tree.
    Poll(poll::Group),
}

impl Group {
    /// The group at `path`, made by somebody else: an executor's own container, from `HEADROOM_CGROUP`.
    /// For `Poll` the path does not matter and the group is the caller's own process tree.
    pub fn attach(kind: EnforcerKind, path: &Path) -> Result<Group> {
        match kind {
            EnforcerKind::Cgroup2 => v2::Group::attach(path).map(Group::Cgroup2),
            EnforcerKind::Cgroup1 => {
                let [pids, cpu] = detect::mirrors(path);
                v1::Group::attach(path, pids.as_deref(), cpu.as_deref()).map(Group::Cgroup1)
            }
            EnforcerKind::Poll => Ok(Group::Poll(poll::Group::own())),
        }
    }

    /// What holds its limits.
    pub fn kind(&self) -> EnforcerKind {
        match self {
            Group::Cgroup2(_) => EnforcerKind::Cgroup2,
            Group::Cgroup1(_) => EnforcerKind::Cgroup1,
            Group::Poll(_) => EnforcerKind::Poll,
        }
    }

    /// Container id, or task name without `task-`.
    pub fn name(&self) -> &str {
        match self {
            Group::Cgroup2(g) => g.name(),
            Group::Cgroup1(g) => g.name(),
            Group::Poll(g) => g.name(),
        }
    }

    /// Its directory (v1: in the memory hierarchy); none for a process tree.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Group::Cgroup2(g) => Some(g.dir().path()),
            Group::Cgroup1(g) => Some(g.dir().path()),
            Group::Poll(_) => None,
        }
    }

    /// Poll only (kernel groups know their members themselves and ignore it): the process whose tree is the group.
    pub fn set_root_pid(&self, pid: i32) {
        match self {
            Group::Cgroup2(_) | Group::Cgroup1(_) => {}
            Group::Poll(g) => g.set_root_pid(pid),
        }
    }

    /// Poll only: the process and its tree belong to it too, whoever started it.
    pub fn also(&self, pid: i32) {
        match self {
            Group::Cgroup2(_) | Group::Cgroup1(_) => {}
            Group::Poll(g) => g.also(pid),
        }
    }

    /// The files a child of one thread writes `0` into before it becomes the program. Of a container: those of `main`.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        match self {
            Group::Cgroup2(g) => g.procs_files(),
            Group::Cgroup1(g) => g.procs_files(),
            Group::Poll(_) => Vec::new(),
        }
    }

    /// The files whose texts `facts_from_texts` understands: for the shim's exit record.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        match self {
            Group::Cgroup2(g) => g.counter_files(),
            Group::Cgroup1(g) => g.counter_files(),
            Group::Poll(_) => Vec::new(),
        }
    }

    /// Facts from the texts of `counter_files` that somebody else read (the shim, right after the end). `None` when the
    /// decisive ones are not among them.
    pub fn facts_from_texts(kind: EnforcerKind, texts: &[(PathBuf, String)]) -> Option<GroupFacts> {
        // The group itself is the shortest directory; the others lie below it.
        let own = texts.iter().filter_map(|(path, _)| path.parent()).min_by_key(|dir| dir.as_os_str().len())?;
        let text = |dir: &Path, file: &str| texts.iter().find(|(p, _)| p == &dir.join(file)).map(|(_, t)| t.clone());
        match kind {
            EnforcerKind::Cgroup2 => v2::facts_from(own, |file| Ok(text(own, file))).ok(),
            EnforcerKind::Cgroup1 => {
                let mut dirs: Vec<&Path> = texts.iter().filter_map(|(p, _)| p.parent()).filter(|d| *d != own).collect();
                dirs.sort_unstable();
                dirs.dedup();
                let below: Result<Vec<MemoryEvents>> =
                    dirs.iter().map(|dir| v1::local_events(|file| Ok(text(dir, file)))).collect();
                v1::facts_from(own, |file| Ok(text(own, file)), &below.ok()?).ok()
            }
            EnforcerKind::Poll => None,
        }
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<GroupFacts> {
        match self {
            Group::Cgroup2(g) => g.facts(),
            Group::Cgroup1(g) => g.facts(),
            Group::Poll(g) => g.facts(),
        }
    }

    /// Use and its kinds; cheap enough for four times a second (poll: about 3 ms for each 300 MB).
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        match self {
            Group::Cgroup2(g) => g.sample(),
            Group::Cgroup1(g) => g.sample(),
            Group::Poll(g) => g.sample(),
        }
    }

    /// Memory charged to it that neither its `main` nor a task's group holds and that reclaim cannot give back, from `floor` on: a lower
    /// bound. `None` for a process tree.
    pub fn unattributed(&self, floor: Bytes) -> Result<Option<Bytes>> {
        match self {
            Group::Cgroup2(g) => g.unattributed(floor).map(Some),
            Group::Cgroup1(g) => g.unattributed(floor).map(Some),
            Group::Poll(_) => Ok(None),
        }
    }

    /// All that it is charged for, and what of it reclaim cannot give back. `None` for a process tree.
    pub fn charged(&self) -> Result<Option<Charged>> {
        match self {
            Group::Cgroup2(g) => g.charged().map(Some),
            Group::Cgroup1(g) => g.charged().map(Some),
            Group::Poll(_) => Ok(None),
        }
    }

    /// The files of a sample, kept open; none for a process tree.
    pub fn probe(&self) -> Result<Option<Probe>> {
        match self {
            Group::Cgroup2(g) => g.probe().map(Some),
            Group::Cgroup1(g) => g.probe().map(Some),
            Group::Poll(_) => Ok(None),
        }
    }

    /// Times a process in it or below had to wait for a page of its own to be read; `None` where nobody counts.
    pub fn major_faults(&self) -> Option<u64> {
        match self {
            Group::Cgroup2(g) => g.major_faults(),
            Group::Cgroup1(g) => g.major_faults(),
            Group::Poll(_) => None,
        }
    }

    /// Processes in it and below.
    pub fn pids(&self) -> Result<Vec<i32>> {
        match self {
            Group::Cgroup2(g) => g.pids(),
            Group::Cgroup1(g) => g.pids(),
            Group::Poll(g) => Ok(g.members()),
        }
    }

    /// The largest processes in it and below by resident memory, largest first.
    pub fn largest(&self, n: usize) -> Vec<Victim> {
        procs::largest(&self.pids().unwrap_or_default(), n)
    }

    /// Moves the memory limit, read back. Refused below what is in use and cannot be reclaimed: lowering it would kill.
    pub fn set_memory(&self, limit: Bytes) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.set_memory(limit),
            Group::Cgroup1(g) => g.set_memory(limit),
            Group::Poll(g) => g.set_memory(limit),
        }
    }

    /// From now on a group of this limit is held near it instead of being killed in: see [`crate::hold`]. Nothing for poll.
    pub fn hold_at(&self, limit: Bytes) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.dir().set(&hold::v2_throttled(limit)),
            Group::Cgroup1(g) => g.set_waiting(v1::AtLimit::Wait),
            Group::Poll(_) => Ok(()),
        }
    }

    /// Nothing in it runs until [`Group::go_on`] or [`Group::let_go`]. On v1 nothing needs to be done: whoever needs more waits.
    pub fn pause(&self) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.dir().set(&hold::v2_frozen(Frozen::Yes)),
            Group::Cgroup1(_) | Group::Poll(_) => Ok(()),
        }
    }

    /// Ends a pause; it is still held near its limit.
    pub fn go_on(&self) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.dir().set(&hold::v2_frozen(Frozen::No)),
            Group::Cgroup1(_) | Group::Poll(_) => Ok(()),
        }
    }

    /// It is held no longer: at its limit the kernel does what it does to any other group. Ends a pause.
    pub fn let_go(&self) -> Result<()> {
        match self {
            Group::Cgroup2(g) => {
                let free = g.dir().set(&hold::v2_unthrottled());
                g.dir().set(&hold::v2_frozen(Frozen::No)).and(free)
            }
            Group::Cgroup1(g) => g.set_waiting(v1::AtLimit::Kill),
            Group::Poll(_) => Ok(()),
        }
    }

    /// Its limit, and what it has counted at its own level; cheaper than all its facts. `None` where no kernel counts.
    pub fn level(&self) -> Result<Option<(Option<Bytes>, MemoryEvents)>> {
        match self {
            Group::Cgroup2(g) => g.level().map(Some),
            Group::Cgroup1(g) => g.level().map(Some),
            Group::Poll(_) => Ok(None),
        }
    }

    /// Processes that the host's kernel has killed for memory, as [`crate::Enforcer::host_oom_kills`] counts them. Poll: since the tree that
    /// this one was made from was attached.
    pub fn host_oom_kills(&self) -> Option<u64> {
        match self {
            Group::Cgroup2(_) | Group::Cgroup1(_) => procs::host_oom_kills(),
            Group::Poll(g) => g.host_oom_kills(),
        }
    }

    /// Moves the share of processor time against siblings, read back. Nothing where the controller is missing, and for poll.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.set_cpu_weight(weight),
            Group::Cgroup1(g) => g.set_cpu_weight(weight),
            Group::Poll(_) => Ok(()),
        }
    }

    /// SIGKILL to all in it and below; returns when nobody is left, or after ten seconds with who is.
    pub fn kill(&self) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.kill(),
            Group::Cgroup1(g) => g.kill(),
            Group::Poll(g) => g.kill(),
        }
    }

    /// Whether anybody lives in it or below.
    pub fn populated(&self) -> Result<bool> {
        match self {
            Group::Cgroup2(g) => g.populated(),
            Group::Cgroup1(g) => g.populated(),
            Group::Poll(g) => Ok(!g.members().is_empty()),
        }
    }

    /// A task's group, fresh, beside `main`.
    pub fn create_task(&self, name: &str, limits: &Limits) -> Result<Group> {
        match self {
            Group::Cgroup2(g) => g.create_task(name, limits).map(Group::Cgroup2),
            Group::Cgroup1(g) => g.create_task(name, limits).map(Group::Cgroup1),
            Group::Poll(g) => g.create_task(name, limits).map(Group::Poll),
        }
    }

    /// The tasks' groups that are there, by task name. Process trees are not remembered: none.
    pub fn tasks(&self) -> Result<Vec<(String, Group)>> {
        match self {
            Group::Cgroup2(g) => Ok(g.tasks()?.into_iter().map(|(name, g)| (name, Group::Cgroup2(g))).collect()),
            Group::Cgroup1(g) => Ok(g.tasks()?.into_iter().map(|(name, g)| (name, Group::Cgroup1(g))).collect()),
            Group::Poll(_) => Ok(Vec::new()),
        }
    }

    /// Removes it and all below, trying again until the deadline while processes are on their way out. Gone already is fine.
    pub fn remove(&self, deadline: Duration) -> Result<()> {
        match self {
            Group::Cgroup2(g) => g.remove(deadline),
            Group::Cgroup1(g) => g.remove(deadline),
            Group::Poll(g) => g.remove(deadline),
        }
    }
}
