//! cgroup v2: one hierarchy, kills of whole groups, and counters per level.
//!
//! `Enforcer` and `CgroupV2Group` use it. The kernel requires an order: a directory with processes
//! cannot pass controllers to its children (EBUSY). Therefore processes are only in leaves (`main`,
//! `task-*`, `shims`), and controllers are enabled from the root downwards before a leaf is
//! created.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_types::Bytes;
use headroom_types::exit::{CgroupStats, MemoryEvents, MemoryStat};

use crate::error::{CgroupError, Result};
use crate::layout::{CONTAINERS, MAIN, PROCS, SHIMS, TASK_NAME, TASK_PREFIX, checked, task_dir};
use crate::parse;
use crate::plan::{
    Controllers, GroupLimits, v2_cpu_weight, v2_limits, v2_low, v2_memory, v2_nesting, v2_oom_group,
};
use crate::probe::UsageProbe;
use crate::procs;
use crate::tree::CgroupDir;
use crate::unattributed::{self, ChargedMemory};

const LIMIT: &str = "memory.max";
const USAGE: &str = "memory.current";
const PEAK: &str = "memory.peak";
const STAT: &str = "memory.stat";
const EVENTS: &str = "memory.events";
const LOCAL: &str = "memory.events.local";
const CONTROLLERS: &str = "cgroup.controllers";

/// The enforcer of a v2 host.
#[derive(Debug)]
pub struct CgroupV2Enforcer {
    root: CgroupDir,
    containers: CgroupDir,
    shims: CgroupDir,
    has: Controllers,
}

impl CgroupV2Enforcer {
    /// Creates the directories below `root`. The root must have no processes and must have the
    /// memory controller.
    pub fn prepare(root: CgroupDir) -> Result<CgroupV2Enforcer> {
        let has = enable(&root)?;
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        let has = Controllers {
            memory: has.memory,
            ..enable(&containers)?
        };
        Ok(CgroupV2Enforcer {
            root,
            containers,
            shims,
            has,
        })
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The available controllers.
    pub fn controllers(&self) -> Controllers {
        self.has
    }

    /// Whether the fence still exists.
    pub fn has_home(&self) -> bool {
        self.containers.path().is_dir()
    }

    /// The fence as a group.
    pub fn fence(&self) -> Result<CgroupV2Group> {
        Ok(CgroupV2Group {
            dir: CgroupDir::open(self.containers.path())?,
            role: V2GroupRole::Fence,
            name: CONTAINERS.into(),
        })
    }

    /// The sum of the counters of ROOT and the levels above it, each without its descendants.
    /// Unreadable levels do not count.
    pub fn above(&self) -> Option<MemoryEvents> {
        let levels = self
            .root
            .path()
            .ancestors()
            .take_while(|dir| dir.join(CONTROLLERS).exists());
        let read = |dir: &Path| {
            Some(parse::memory_events(
                &std::fs::read_to_string(dir.join(LOCAL)).ok()?,
            ))
        };
        levels.filter_map(read).reduce(|sum, e| MemoryEvents {
            high: sum.high.saturating_add(e.high),
            max: sum.max.saturating_add(e.max),
            oom: sum.oom.saturating_add(e.oom),
            oom_kill: sum.oom_kill.saturating_add(e.oom_kill),
            oom_group_kill: sum.oom_group_kill.saturating_add(e.oom_group_kill),
        })
    }

    /// Creates the group of a container and its `main`.
    pub fn create(&self, name: &str, limits: &GroupLimits) -> Result<CgroupV2Group> {
        let group = CgroupV2Group {
            dir: self.containers.make(checked(name)?)?,
            role: V2GroupRole::Container,
            name: name.to_owned(),
        };
        let filled = group
            .dir
            .set_all(&v2_limits(limits, self.has))
            .and_then(|()| group.dir.set_all(&v2_nesting()))
            .and_then(|()| {
                enable(&group.dir)?;
                let main = group.dir.make(MAIN)?;
                limits.low.map_or(Ok(()), |low| {
                    main.set(&v2_low(low)).and_then(|()| self.protect())
                })?;
                main.set(&v2_oom_group(limits.oom_group))
            });
        match filled {
            Ok(()) => Ok(group),
            Err(error) => Err(group.undo(error)),
        }
    }

    /// Sets `memory.low` of the fence to the sum over its containers, because the protection of a
    /// container is limited by that of its parent.
    fn protect(&self) -> Result<()> {
        let low = |name: String| {
            self.containers
                .child(&name)
                .ok()??
                .read_if_there("memory.low")
                .ok()??
                .trim()
                .parse::<u64>()
                .ok()
        };
        let sum = self
            .containers
            .children()?
            .into_iter()
            .filter_map(low)
            .fold(0, u64::saturating_add);
        self.containers.set(&v2_low(Bytes::new(sum)))
    }

    /// Opens an existing group of a container.
    pub fn open(&self, name: &str) -> Result<Option<CgroupV2Group>> {
        let dir = self.containers.child(checked(name)?)?;
        Ok(dir.map(|dir| CgroupV2Group {
            dir,
            role: V2GroupRole::Container,
            name: name.to_owned(),
        }))
    }

    /// Names of the groups of all containers.
    pub fn list(&self) -> Result<Vec<String>> {
        self.containers.children()
    }

    /// The files that move a process to the shims.
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        vec![self.shims.procs_file()]
    }

    /// Kills all containers and shims and removes their groups. A given ROOT with a process of
    /// another program stays.
    pub fn remove_root(&self, within: Duration) -> Result<()> {
        for dir in [&self.containers, &self.shims] {
            kill(dir)?;
            dir.remove(within)?;
        }
        if !self.root.children()?.is_empty() || !parse::pids(&self.root.read(PROCS)?).is_empty() {
            return Ok(());
        }
        self.root.remove(within)
    }
}

/// Passes our controllers to the children of `dir`. Returns the available controllers.
pub fn enable(dir: &CgroupDir) -> Result<Controllers> {
    let has = Controllers::from_words(&parse::words(&dir.read(CONTROLLERS)?));
    if let Some(knob) = has.subtree_knob() {
        dir.set(&knob)?;
    }
    Ok(has)
}

/// Sends SIGKILL to all processes in and below `dir`: with `cgroup.kill`, or one by one before
/// Linux 5.14. Returns when none is left.
fn kill(dir: &CgroupDir) -> Result<()> {
    let name = dir.path().display().to_string();
    if !kill_at_once(dir)? {
        return procs::kill_all(&name, procs::KILL_TIMEOUT, || dir.pids());
    }
    let deadline = Instant::now() + procs::KILL_TIMEOUT;
    while populated(dir)? {
        if Instant::now() >= deadline {
            return Err(CgroupError::Unkillable {
                group: name,
                left: dir.pids()?,
                within: procs::KILL_TIMEOUT,
            });
        }
        dir.await_change(Duration::from_millis(20));
    }
    Ok(())
}

/// Sends SIGKILL to all processes in and below `dir`, and waits for none. False before Linux 5.14.
fn kill_at_once(dir: &CgroupDir) -> Result<bool> {
    match dir.write("cgroup.kill", "1") {
        Ok(()) => Ok(true),
        Err(e) if e.is_gone() => Ok(false),
        Err(e) => Err(e),
    }
}

fn populated(dir: &CgroupDir) -> Result<bool> {
    let text = dir.read_if_there("cgroup.events")?;
    Ok(text.as_deref().and_then(parse::populated).unwrap_or(false))
}

/// The role of a group, which decides where its processes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum V2GroupRole {
    /// The group of all containers.
    Fence,
    /// A container, with its processes in `main`.
    Container,
    /// A task, with its processes in the group itself.
    Task,
}

/// A container's or a task's group.
#[derive(Debug)]
pub struct CgroupV2Group {
    dir: CgroupDir,
    role: V2GroupRole,
    name: String,
}

impl CgroupV2Group {
    /// Opens an existing group.
    pub fn attach(path: &Path) -> Result<CgroupV2Group> {
        let last = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let (role, name) = match last.strip_prefix(TASK_PREFIX) {
            Some(task) => (V2GroupRole::Task, task),
            None => (V2GroupRole::Container, last),
        };
        Ok(CgroupV2Group {
            dir: CgroupDir::open(path)?,
            role,
            name: name.to_owned(),
        })
    }

    /// Container id or task name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory.
    pub fn dir(&self) -> &CgroupDir {
        &self.dir
    }

    /// The files that move a process into this group.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        match self.role {
            V2GroupRole::Container => vec![self.dir.path().join(MAIN).join(PROCS)],
            V2GroupRole::Task | V2GroupRole::Fence => vec![self.dir.procs_file()],
        }
    }

    /// The files from which `facts` is built.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        [LIMIT, USAGE, PEAK, STAT, EVENTS, LOCAL]
            .iter()
            .map(|f| self.dir.path().join(f))
            .collect()
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<CgroupStats> {
        facts_from(self.dir.path(), |file| self.dir.read_if_there(file))
    }

    /// Limit and own counters; no other file is read.
    pub(crate) fn level(&self) -> Result<(Option<Bytes>, MemoryEvents)> {
        let local = self
            .dir
            .read_if_there(LOCAL)?
            .as_deref()
            .map(parse::memory_events)
            .unwrap_or_default();
        Ok((
            self.dir
                .read_if_there(LIMIT)?
                .as_deref()
                .and_then(parse::limit)
                .and_then(parse::CgroupLimitValue::bytes),
            local,
        ))
    }

    /// Memory use and its kinds; cheap.
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        let current = CgroupError::bytes_in(self.dir.path(), USAGE, &self.dir.read(USAGE)?)?;
        Ok((current, parse::stat_v2(&self.dir.read(STAT)?)))
    }

    /// Memory that it holds and no child does: see [`crate::unattributed`].
    pub(crate) fn unattributed(&self, floor: Bytes) -> Result<Bytes> {
        unattributed::of_dir(&self.dir, unattributed::CounterFiles::V2, floor)
    }

    /// All memory charged to it.
    pub(crate) fn usage(&self) -> Result<Bytes> {
        unattributed::usage(&self.dir, unattributed::CounterFiles::V2)
    }

    /// The memory charged to it, by kind.
    pub(crate) fn charged(&self) -> Result<ChargedMemory> {
        unattributed::charged(&self.dir, unattributed::CounterFiles::V2)
    }

    /// The open files of a sample.
    pub fn probe(&self) -> Result<UsageProbe> {
        UsageProbe::v2(self.dir.path(), USAGE, STAT)
    }

    /// Major page faults of its processes and those below.
    pub fn major_faults(&self) -> Option<u64> {
        parse::keyed(&self.dir.read(STAT).ok()?, "pgmajfault")
    }

    /// Changes the limit. A limit below the unreclaimable use is refused.
    pub fn set_memory(&self, wanted: Bytes) -> Result<()> {
        let (_, stat) = self.sample()?;
        match stat.demand() {
            Some(demand) if demand > wanted => Err(CgroupError::BelowDemand {
                group: self.name.clone(),
                wanted,
                demand,
            }),
            Some(_) | None => self.dir.set(&v2_memory(wanted)),
        }
    }

    /// Changes the processor weight. It has no effect without the controller.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        self.dir.set(&v2_cpu_weight(weight))
    }

    /// Pids in this group and below.
    pub fn pids(&self) -> Result<Vec<i32>> {
        self.dir.pids()
    }

    /// Sends SIGKILL to all processes; returns when none is left.
    pub fn kill(&self) -> Result<()> {
        kill(&self.dir)
    }

    /// Sends SIGKILL to all processes, and waits for none.
    pub fn send_kill(&self) -> Result<()> {
        if kill_at_once(&self.dir)? {
            return Ok(());
        }
        procs::signal_members(&self.dir.pids()?, || self.dir.pids()).map(drop)
    }

    /// Whether there are processes in it or below.
    pub fn populated(&self) -> Result<bool> {
        populated(&self.dir)
    }

    /// Creates the group of a task, next to `main`.
    pub fn create_task(&self, name: &str, limits: &GroupLimits) -> Result<CgroupV2Group> {
        let has = Controllers::from_words(&parse::words(&self.dir.read("cgroup.subtree_control")?));
        let task = CgroupV2Group {
            dir: self.dir.make(&task_dir(name)?)?,
            role: V2GroupRole::Task,
            name: name.to_owned(),
        };
        let filled = task
            .dir
            .set_all(&v2_limits(limits, has))
            .and_then(|()| task.dir.set(&v2_oom_group(limits.oom_group)));
        match filled {
            Ok(()) => Ok(task),
            Err(error) => Err(task.undo(error)),
        }
    }

    /// Removes a group that did not get its limits. Returns the first error, because the caller
    /// reports it.
    fn undo(&self, first: CgroupError) -> CgroupError {
        if let Err(error) = self.dir.remove(Duration::from_millis(100)) {
            tracing::debug!(%error, "a partly created group cannot be removed");
        }
        first
    }

    /// Leaves each counter open that is read from now on.
    pub(crate) fn keep_counters_open(&mut self) {
        self.dir.keep_counters_open();
    }

    /// Gives the group of a task to another one, or with an empty name to none.
    pub fn rename_task(&mut self, name: &str) -> Result<()> {
        self.dir.set_attribute(TASK_NAME, name)?;
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// The existing groups of tasks, without those that no task uses.
    pub fn tasks(&self) -> Result<Vec<(String, CgroupV2Group)>> {
        let mut found = Vec::new();
        for made in self.dir.children()? {
            let Some(name) = made.strip_prefix(TASK_PREFIX) else {
                continue;
            };
            let Some(dir) = self.dir.child(&made)? else {
                continue;
            };
            let name = dir.attribute(TASK_NAME).unwrap_or_else(|| name.to_owned());
            if name.is_empty() {
                continue;
            }
            let task = CgroupV2Group {
                dir,
                role: V2GroupRole::Task,
                name: name.clone(),
            };
            found.push((name, task));
        }
        Ok(found)
    }

    /// Removes the group with all groups below it.
    pub fn remove(&self, within: Duration) -> Result<()> {
        self.dir.remove(within)
    }
}

/// The counters from the texts that `read` returns: from the directory, or from an exit record.
pub fn facts_from(
    path: &Path,
    mut read: impl FnMut(&str) -> Result<Option<String>>,
) -> Result<CgroupStats> {
    let current = match read(USAGE)? {
        Some(text) => CgroupError::bytes_in(path, USAGE, &text)?,
        None => {
            let source = nix::errno::Errno::ENOENT.into();
            return Err(CgroupError::Read {
                path: path.join(USAGE),
                hint: "; the group is gone",
                source,
            });
        }
    };
    let events = parse::memory_events(&read(EVENTS)?.unwrap_or_default());
    let local = match read(LOCAL)? {
        Some(text) => parse::memory_events(&text),
        None => MemoryEvents::default(),
    };
    Ok(CgroupStats {
        limit: read(LIMIT)?
            .as_deref()
            .and_then(parse::limit)
            .and_then(parse::CgroupLimitValue::bytes),
        current,
        peak: read(PEAK)?
            .as_deref()
            .and_then(parse::number)
            .map(Bytes::new),
        stat: parse::stat_v2(&read(STAT)?.unwrap_or_default()),
        events,
        local,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_memory_peak_gives_facts_without_a_peak() {
        let read = |file: &str| {
            Ok(match file {
                LIMIT => Some("max\n".to_owned()),
                USAGE => Some("4096\n".to_owned()),
                EVENTS => Some("max 2\noom 1\noom_kill 1\n".to_owned()),
                LOCAL => Some("max 0\noom 0\noom_kill 1\n".to_owned()),
                _ => None,
            })
        };
        let facts = facts_from(Path::new("/x"), read).expect("reads");
        assert_eq!(
            (facts.limit, facts.peak, facts.current),
            (None, None, Bytes::from_kib(4))
        );
        assert_eq!(
            (facts.events.oom, facts.local.oom, facts.local.oom_kill),
            (1, 0, 1)
        );
    }
}
