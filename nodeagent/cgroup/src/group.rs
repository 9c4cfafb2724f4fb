//! The group of one container or task, with any kind of enforcement.
//!
//! The agent owns the groups of containers; the executor owns the groups of tasks. Dropping a
//! `EnforcedGroup` changes nothing in the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_types::exit::{CgroupStats, MemoryEvents, MemoryStat, VictimProcess};
use headroom_types::{Bytes, EnforcerKind};

use crate::error::{CgroupError, Result};
use crate::plan::GroupLimits;
use crate::probe::UsageProbe;
use crate::throttle::{self, FreezerState};
use crate::tree::page_size;
use crate::unattributed::{self, ChargedMemory, CounterFiles};
use crate::{hierarchies, poll, procs, v1, v2};

/// A container group or a task group.
#[derive(Debug)]
pub enum EnforcedGroup {
    /// A directory of cgroup v2.
    Cgroup2(v2::CgroupV2Group),
    /// A directory in the v1 memory hierarchy, with mirrors for pids and cpu where those are
    /// mounted.
    Cgroup1(v1::CgroupV1Group),
    /// A process tree.
    Poll(poll::PollGroup),
}

impl EnforcedGroup {
    /// The existing group at `path`: an executor attaches to its own container, from
    /// `HEADROOM_CGROUP`. With `Poll` the path is ignored, and the group is the caller's own
    /// process tree.
    pub fn attach(kind: EnforcerKind, path: &Path) -> Result<EnforcedGroup> {
        match kind {
            EnforcerKind::Cgroup2 => v2::CgroupV2Group::attach(path).map(EnforcedGroup::Cgroup2),
            EnforcerKind::Cgroup1 => {
                let [pids, cpu] = hierarchies::mirrors(path);
                v1::CgroupV1Group::attach(path, pids.as_deref(), cpu.as_deref())
                    .map(EnforcedGroup::Cgroup1)
            }
            EnforcerKind::Poll => Ok(EnforcedGroup::Poll(poll::PollGroup::own())),
        }
    }

    /// The kind of its enforcer.
    pub fn kind(&self) -> EnforcerKind {
        match self {
            EnforcedGroup::Cgroup2(_) => EnforcerKind::Cgroup2,
            EnforcedGroup::Cgroup1(_) => EnforcerKind::Cgroup1,
            EnforcedGroup::Poll(_) => EnforcerKind::Poll,
        }
    }

    /// Container id, or task name without `task-`.
    pub fn name(&self) -> &str {
        by_kind!(EnforcedGroup, self, g => g.name())
    }

    /// Its directory (v1: in the memory hierarchy); none for a process tree.
    pub fn path(&self) -> Option<&Path> {
        by_kind!(EnforcedGroup, self, g => Some(g.dir().path()), _ => None)
    }

    /// Poll only: sets the root process of the tree. Kernel groups ignore it, because they know
    /// their members.
    pub fn set_root_pid(&self, pid: i32) {
        if let EnforcedGroup::Poll(g) = self {
            g.set_root_pid(pid);
        }
    }

    /// Poll only: adds the process and its tree, independent of their parent.
    pub fn add_process(&self, pid: i32) {
        if let EnforcedGroup::Poll(g) = self {
            g.also(pid);
        }
    }

    /// The files into which a single-threaded child writes `0` before it executes the program. For
    /// a container these are the files of `main`.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        by_kind!(EnforcedGroup, self, g => g.procs_files(), _ => Vec::new())
    }

    /// The files whose texts `facts_from_texts` parses, for the exit record of the shim.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        by_kind!(EnforcedGroup, self, g => g.counter_files(), _ => Vec::new())
    }

    /// The counters from the texts of `counter_files`, which the shim read right after the end.
    /// `None` when a required file is missing.
    pub fn facts_from_texts(
        kind: EnforcerKind,
        texts: &[(PathBuf, String)],
    ) -> Option<CgroupStats> {
        // The shortest directory is the group itself; the others lie below it.
        let own = texts
            .iter()
            .filter_map(|(path, _)| path.parent())
            .min_by_key(|dir| dir.as_os_str().len())?;
        let text = |dir: &Path, file: &str| {
            texts
                .iter()
                .find(|(p, _)| p == &dir.join(file))
                .map(|(_, t)| t.clone())
        };
        match kind {
            EnforcerKind::Cgroup2 => v2::facts_from(own, |file| Ok(text(own, file))).ok(),
            EnforcerKind::Cgroup1 => {
                let mut dirs: Vec<&Path> = texts
                    .iter()
                    .filter_map(|(p, _)| p.parent())
                    .filter(|d| *d != own)
                    .collect();
                dirs.sort_unstable();
                dirs.dedup();
                let below: Result<Vec<MemoryEvents>> = dirs
                    .iter()
                    .map(|dir| v1::local_events(|file| Ok(text(dir, file))))
                    .collect();
                v1::facts_from(own, |file| Ok(text(own, file)), &below.ok()?).ok()
            }
            EnforcerKind::Poll => None,
        }
    }

    /// Whether it is a container group with no other group in it than its `main`. False for a
    /// process tree.
    pub fn has_only_main(&self) -> bool {
        by_kind!(EnforcedGroup, self, g => g.dir().has_one_child(), _ => false)
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<CgroupStats> {
        by_kind!(EnforcedGroup, self, g => g.facts())
    }

    /// Memory use and its kinds. It is cheap enough for 4 Hz (poll: about 3 ms per 300 MB).
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        by_kind!(EnforcedGroup, self, g => g.sample())
    }

    /// Memory that is charged to this group but to no child (`main` or task), and that reclaim
    /// cannot free. It is a lower bound, and zero below `floor`. `None` for a process tree.
    pub fn unattributed(&self, floor: Bytes) -> Result<Option<Bytes>> {
        by_kind!(EnforcedGroup, self, g => g.unattributed(floor).map(Some), _ => Ok(None))
    }

    /// Its unreclaimable memory, if at least `floor`; otherwise zero, which is cheap to find out. `None`
    /// for a process tree.
    pub fn held(&self, floor: Bytes) -> Result<Option<Bytes>> {
        let (dir, files) = match self {
            EnforcedGroup::Cgroup2(g) => (g.dir(), CounterFiles::V2),
            EnforcedGroup::Cgroup1(g) => (g.dir(), CounterFiles::V1),
            EnforcedGroup::Poll(_) => return Ok(None),
        };
        unattributed::held(dir, files, floor).map(Some)
    }

    /// All memory charged to it. `None` for a process tree.
    pub fn usage(&self) -> Result<Option<Bytes>> {
        by_kind!(EnforcedGroup, self, g => g.usage().map(Some), _ => Ok(None))
    }

    /// Whether it has this limit, no counted event, no process and no other group inside; false for a
    /// process tree.
    pub fn is_like_new(&self, limit: Option<Bytes>) -> Result<bool> {
        let children =
            by_kind!(EnforcedGroup, self, g => g.dir().children()?, _ => return Ok(false));
        // The kernel counts limits in pages.
        let page = page_size().max(1);
        let whole_pages = |limit: Bytes| Bytes::new(limit.get() / page * page);
        let untouched = (limit.map(whole_pages), MemoryEvents::default());
        Ok(children.is_empty() && self.level()? == Some(untouched) && !self.populated()?)
    }

    /// All memory charged to it, and the part that reclaim cannot free. `None` for a process tree.
    pub fn charged(&self) -> Result<Option<ChargedMemory>> {
        by_kind!(EnforcedGroup, self, g => g.charged().map(Some), _ => Ok(None))
    }

    /// The open files of a sample; `None` for a process tree.
    pub fn probe(&self) -> Result<Option<UsageProbe>> {
        by_kind!(EnforcedGroup, self, g => g.probe().map(Some), _ => Ok(None))
    }

    /// Major page faults of its processes and those below; `None` where the kernel does not count
    /// them.
    pub fn major_faults(&self) -> Option<u64> {
        by_kind!(EnforcedGroup, self, g => g.major_faults(), _ => None)
    }

    /// Processes in it and below.
    pub fn pids(&self) -> Result<Vec<i32>> {
        by_kind!(EnforcedGroup, self, g => g.pids(), g => Ok(g.members()))
    }

    /// The largest processes in it and below by resident memory, largest first.
    pub fn largest(&self, n: usize) -> Vec<VictimProcess> {
        procs::largest(&self.pids().unwrap_or_default(), n)
    }

    /// Changes the memory limit and reads it back. A limit below the unreclaimable use is refused,
    /// because the kernel would kill.
    pub fn set_memory(&self, limit: Bytes) -> Result<()> {
        by_kind!(EnforcedGroup, self, g => g.set_memory(limit))
    }

    /// From now on, a group of this limit is throttled near it instead of killed: see
    /// [`crate::throttle`]. It has no effect for poll.
    pub fn throttle_at(&self, limit: Bytes) -> Result<()> {
        match self {
            EnforcedGroup::Cgroup2(g) => g.dir().set(&throttle::v2_throttled(limit)),
            EnforcedGroup::Cgroup1(g) => g.set_waiting(v1::LimitBehavior::Wait),
            EnforcedGroup::Poll(_) => Ok(()),
        }
    }

    /// Freezes the group until [`EnforcedGroup::thaw`] or [`EnforcedGroup::unthrottle`]. It has no
    /// effect on v1: a process that needs more memory waits by itself.
    pub fn freeze(&self) -> Result<()> {
        match self {
            EnforcedGroup::Cgroup2(g) => g.dir().set(&throttle::v2_frozen(FreezerState::Yes)),
            EnforcedGroup::Cgroup1(_) | EnforcedGroup::Poll(_) => Ok(()),
        }
    }

    /// Ends a freeze. The group stays throttled near its limit.
    pub fn thaw(&self) -> Result<()> {
        match self {
            EnforcedGroup::Cgroup2(g) => g.dir().set(&throttle::v2_frozen(FreezerState::No)),
            EnforcedGroup::Cgroup1(_) | EnforcedGroup::Poll(_) => Ok(()),
        }
    }

    /// Ends freeze and throttling. At its limit the kernel kills in it like in any other group.
    pub fn unthrottle(&self) -> Result<()> {
        match self {
            EnforcedGroup::Cgroup2(g) => {
                let free = g.dir().set(&throttle::v2_unthrottled());
                g.dir()
                    .set(&throttle::v2_frozen(FreezerState::No))
                    .and(free)
            }
            EnforcedGroup::Cgroup1(g) => g.set_waiting(v1::LimitBehavior::Kill),
            EnforcedGroup::Poll(_) => Ok(()),
        }
    }

    /// Lets its peak begin at the present use. Cgroup v2 keeps one peak for the whole life of a
    /// group, and a process tree has none: neither changes.
    pub fn reset_peak(&self) -> Result<()> {
        match self {
            EnforcedGroup::Cgroup1(g) => g.reset_peak(),
            EnforcedGroup::Cgroup2(_) | EnforcedGroup::Poll(_) => Ok(()),
        }
    }

    /// Its limit, and the counters of its own level; cheaper than `facts`. `None` for a process
    /// tree.
    pub fn level(&self) -> Result<Option<(Option<Bytes>, MemoryEvents)>> {
        by_kind!(EnforcedGroup, self, g => g.level().map(Some), _ => Ok(None))
    }

    /// Processes that the kernel of the host killed for memory, as
    /// [`crate::Enforcer::host_oom_kills`] counts them. Poll counts from the attachment of the tree
    /// from which this group was created.
    pub fn host_oom_kills(&self) -> Option<u64> {
        by_kind!(EnforcedGroup, self, _g => procs::host_oom_kills(), g => g.host_oom_kills())
    }

    /// Changes the processor weight against siblings and reads it back. It has no effect without
    /// the controller, and for poll.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        by_kind!(EnforcedGroup, self, g => g.set_cpu_weight(weight), _ => Ok(()))
    }

    /// Sends SIGKILL to all processes in it and below. Returns when none is left, or after ten
    /// seconds with an error that lists the rest.
    pub fn kill(&self) -> Result<()> {
        by_kind!(EnforcedGroup, self, g => g.kill())
    }

    /// Sends SIGKILL to all processes in it and below, and waits for none. A process that starts
    /// meanwhile may survive where the kernel cannot kill a whole group: [`EnforcedGroup::kill`]
    /// leaves none.
    pub fn send_kill(&self) -> Result<()> {
        by_kind!(EnforcedGroup, self, g => g.send_kill())
    }

    /// Whether there are processes in it or below.
    pub fn populated(&self) -> Result<bool> {
        by_kind!(EnforcedGroup, self, g => g.populated(), g => Ok(!g.members().is_empty()))
    }

    /// Creates the group of a task, next to `main`.
    pub fn create_task(&self, name: &str, limits: &GroupLimits) -> Result<EnforcedGroup> {
        match self {
            EnforcedGroup::Cgroup2(g) => g.create_task(name, limits).map(EnforcedGroup::Cgroup2),
            EnforcedGroup::Cgroup1(g) => g.create_task(name, limits).map(EnforcedGroup::Cgroup1),
            EnforcedGroup::Poll(g) => g.create_task(name, limits).map(EnforcedGroup::Poll),
        }
    }

    /// Leaves each counter open that is read from now on.
    pub fn keep_counters_open(&mut self) {
        match self {
            EnforcedGroup::Cgroup2(g) => g.keep_counters_open(),
            EnforcedGroup::Cgroup1(g) => g.keep_counters_open(),
            EnforcedGroup::Poll(_) => {}
        }
    }

    /// Gives the group of a task to another one, or with an empty name to none. Fails for a process
    /// tree, which ends with its task, and before Linux 5.7.
    pub fn rename_task(&mut self, name: &str) -> Result<()> {
        match self {
            EnforcedGroup::Cgroup2(g) => g.rename_task(name),
            EnforcedGroup::Cgroup1(g) => g.rename_task(name),
            EnforcedGroup::Poll(_) => Err(CgroupError::Name(name.to_owned())),
        }
    }

    /// The existing groups of tasks, by task name; empty for process trees, which are not recorded.
    /// Groups that no task uses are left out.
    pub fn tasks(&self) -> Result<Vec<(String, EnforcedGroup)>> {
        match self {
            EnforcedGroup::Cgroup2(g) => Ok(g
                .tasks()?
                .into_iter()
                .map(|(name, g)| (name, EnforcedGroup::Cgroup2(g)))
                .collect()),
            EnforcedGroup::Cgroup1(g) => Ok(g
                .tasks()?
                .into_iter()
                .map(|(name, g)| (name, EnforcedGroup::Cgroup1(g)))
                .collect()),
            EnforcedGroup::Poll(_) => Ok(Vec::new()),
        }
    }

    /// Removes it and all groups below. Retries while processes exit, until the deadline. A missing
    /// group is no error.
    pub fn remove(&self, deadline: Duration) -> Result<()> {
        by_kind!(EnforcedGroup, self, g => g.remove(deadline))
    }
}
