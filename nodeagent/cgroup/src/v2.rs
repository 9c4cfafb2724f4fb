//! cgroup v2: one hierarchy, whole groups killed together, counters that name the level.
//!
//! Owned by `Enforcer` and `Group`. Order of things that the kernel insists on: a directory with processes of its own cannot hand
//! controllers to its children (EBUSY), so processes live in leaves only (`main`, `task-*`, `shims`), and controllers are enabled from
//! the root downwards before a leaf is made.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headroom_types::Bytes;
use headroom_types::exit::{GroupFacts, MemoryEvents, MemoryStat};

use crate::error::{CgroupError, Result};
use crate::layout::{CONTAINERS, MAIN, PROCS, SHIMS, TASK_PREFIX, checked, task_dir};
use crate::parse;
use crate::plan::{Controllers, Limits, v2_cpu_weight, v2_limits, v2_low, v2_memory, v2_oom_group};
use crate::probe::Probe;
use crate::procs;
use crate::tree::Dir;
use crate::unattributed::{self, Charged};

const LIMIT: &str = "memory.max";
const USAGE: &str = "memory.current";
const PEAK: &str = "memory.peak";
const STAT: &str = "memory.stat";
const EVENTS: &str = "memory.events";
const LOCAL: &str = "memory.events.local";
const CONTROLLERS: &str = "cgroup.controllers";

/// The enforcer of a v2 host.
#[derive(Debug)]
pub struct V2 {
    root: Dir,
    containers: Dir,
    shims: Dir,
    has: Controllers,
}

impl V2 {
    /// Takes `root`, which has no processes of its own any more and is offered the memory controller; makes what is below.
    pub fn prepare(root: Dir) -> Result<V2> {
        let has = enable(&root)?;
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        let has = Controllers { memory: has.memory, ..enable(&containers)? };
        Ok(V2 { root, containers, shims, has })
    }

    /// ROOT.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// What can be limited besides memory.
    pub fn controllers(&self) -> Controllers {
        self.has
    }

    /// Whether the fence is still there.
    pub fn has_home(&self) -> bool {
        self.containers.path().is_dir()
    }

    /// The fence as a group.
    pub fn fence(&self) -> Result<Group> {
        Ok(Group { dir: Dir::open(self.containers.path())?, role: Role::Fence, name: CONTAINERS.into() })
    }

    /// Counters of ROOT and the levels above it added up, each level's own only. A level that cannot be read does not count.
    pub fn above(&self) -> Option<MemoryEvents> {
        let levels = self.root.path().ancestors().take_while(|dir| dir.join(CONTROLLERS).exists());
        let read = |dir: &Path| Some(parse::memory_events(&std::fs::read_to_string(dir.join(LOCAL)).ok()?));
        levels.filter_map(read).reduce(|sum, e| MemoryEvents {
            high: sum.high.saturating_add(e.high),
            max: sum.max.saturating_add(e.max),
            oom: sum.oom.saturating_add(e.oom),
            oom_kill: sum.oom_kill.saturating_add(e.oom_kill),
            oom_group_kill: sum.oom_group_kill.saturating_add(e.oom_group_kill),
        })
    }

    /// Makes a container's group and its `main`.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Group> {
        let group = Group { dir: self.containers.make(checked(name)?)?, role: Role::Container, name: name.to_owned() };
        let filled = group.dir.set_all(&v2_limits(limits, self.has)).and_then(|()| {
            enable(&group.dir)?;
            let main = group.dir.make(MAIN)?;
            limits.low.map_or(Ok(()), |low| main.set(&v2_low(low)).and_then(|()| self.protect()))?;
            main.set(&v2_oom_group(limits.oom_group))
        });
        match filled {
            Ok(()) => Ok(group),
            Err(error) => Err(group.undo(error)),
        }
    }

    /// What is protected of a container counts only as far as its parent is: the fence has the sum.
    fn protect(&self) -> Result<()> {
        let low =
            |name: String| self.containers.child(&name).ok()??.read_if_there("memory.low").ok()??.trim().parse::<u64>().ok();
        let sum = self.containers.children()?.into_iter().filter_map(low).fold(0, u64::saturating_add);
        self.containers.set(&v2_low(Bytes::new(sum)))
    }

    /// A container's group that is there.
    pub fn open(&self, name: &str) -> Result<Option<Group>> {
        let dir = self.containers.child(checked(name)?)?;
        Ok(dir.map(|dir| Group { dir, role: Role::Container, name: name.to_owned() }))
    }

    /// Names of all containers' groups.
    pub fn list(&self) -> Result<Vec<String>> {
        self.containers.children()
    }

    /// What moves a process to the shims.
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        vec![self.shims.procs_file()]
    }

    /// Ends all containers and shims and removes what was made. A ROOT that was given (somebody else's process lives in it) stays.
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

/// Hands the controllers we use to the children of `dir`, and says which there are.
pub fn enable(dir: &Dir) -> Result<Controllers> {
    let has = Controllers::from_words(&parse::words(&dir.read(CONTROLLERS)?));
    if let Some(knob) = has.subtree_knob() {
        dir.set(&knob)?;
    }
    Ok(has)
}

/// SIGKILL to all in and below `dir`, by the kernel; by hand before Linux 5.14. Returns when nobody is left.
fn kill(dir: &Dir) -> Result<()> {
    let name = dir.path().display().to_string();
    match dir.write("cgroup.kill", "1") {
        Ok(()) => {}
        Err(e) if e.is_gone() => return procs::kill_all(&name, procs::DEATH, || dir.pids()),
        Err(e) => return Err(e),
    }
    let deadline = Instant::now() + procs::DEATH;
    while populated(dir)? {
        if Instant::now() >= deadline {
            return Err(CgroupError::Unkillable { group: name, left: dir.pids()?, within: procs::DEATH });
        }
        dir.await_change(Duration::from_millis(20));
    }
    Ok(())
}

fn populated(dir: &Dir) -> Result<bool> {
    let text = dir.read_if_there("cgroup.events")?;
    Ok(text.as_deref().and_then(parse::populated).unwrap_or(false))
}

/// What a group is, which decides where its processes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// All containers.
    Fence,
    /// Processes in `main`.
    Container,
    /// Processes in itself.
    Task,
}

/// A container's or a task's group.
#[derive(Debug)]
pub struct Group {
    dir: Dir,
    role: Role,
    name: String,
}

impl Group {
    /// A group made by somebody else.
    pub fn attach(path: &Path) -> Result<Group> {
        let last = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let (role, name) = match last.strip_prefix(TASK_PREFIX) {
            Some(task) => (Role::Task, task),
            None => (Role::Container, last),
        };
        Ok(Group { dir: Dir::open(path)?, role, name: name.to_owned() })
    }

    /// Container id or task name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// What moves a process in here.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        match self.role {
            Role::Container => vec![self.dir.path().join(MAIN).join(PROCS)],
            Role::Task | Role::Fence => vec![self.dir.procs_file()],
        }
    }

    /// The files `facts` is made of.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        [LIMIT, USAGE, PEAK, STAT, EVENTS, LOCAL].iter().map(|f| self.dir.path().join(f)).collect()
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<GroupFacts> {
        facts_from(self.dir.path(), |file| self.dir.read_if_there(file))
    }

    /// Limit and own counters, without a look at anything else.
    pub(crate) fn level(&self) -> Result<(Option<Bytes>, MemoryEvents)> {
        let local = self.dir.read_if_there(LOCAL)?.as_deref().map(parse::memory_events).unwrap_or_default();
        Ok((self.dir.read_if_there(LIMIT)?.as_deref().and_then(parse::limit).and_then(parse::Shown::bytes), local))
    }

    /// Use and its kinds, cheaply.
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        let current = amount(self.dir.path(), USAGE, &self.dir.read(USAGE)?)?;
        Ok((current, parse::stat_v2(&self.dir.read(STAT)?)))
    }

    /// What it holds and nothing below it does: see [`crate::unattributed`].
    pub(crate) fn unattributed(&self, floor: Bytes) -> Result<Bytes> {
        unattributed::of_dir(&self.dir, unattributed::Files::V2, floor)
    }

    /// What it is charged for.
    pub(crate) fn charged(&self) -> Result<Charged> {
        unattributed::charged(&self.dir, unattributed::Files::V2)
    }

    /// The files of a sample, kept open.
    pub fn probe(&self) -> Result<Probe> {
        Probe::v2(self.dir.path(), USAGE, STAT)
    }

    /// Times a process here or below had to wait for a page of its own.
    pub fn major_faults(&self) -> Option<u64> {
        parse::keyed(&self.dir.read(STAT).ok()?, "pgmajfault")
    }

    /// Moves the limit; never below what would have to be killed for it.
    pub fn set_memory(&self, wanted: Bytes) -> Result<()> {
        let (_, stat) = self.sample()?;
        match stat.demand() {
            Some(demand) if demand > wanted => Err(CgroupError::BelowDemand { group: self.name.clone(), wanted, demand }),
            Some(_) | None => self.dir.set(&v2_memory(wanted)),
        }
    }

    /// Moves the share of processor time; nothing where there is no such controller.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        self.dir.set(&v2_cpu_weight(weight))
    }

    /// Processes here and below.
    pub fn pids(&self) -> Result<Vec<i32>> {
        self.dir.pids()
    }

    /// SIGKILL to all; returns when nobody is left.
    pub fn kill(&self) -> Result<()> {
        kill(&self.dir)
    }

    /// Whether anybody lives here or below.
    pub fn populated(&self) -> Result<bool> {
        populated(&self.dir)
    }

    /// A task's group beside `main`.
    pub fn create_task(&self, name: &str, limits: &Limits) -> Result<Group> {
        let has = Controllers::from_words(&parse::words(&self.dir.read("cgroup.subtree_control")?));
        let task = Group { dir: self.dir.make(&task_dir(name)?)?, role: Role::Task, name: name.to_owned() };
        let filled = task.dir.set_all(&v2_limits(limits, has)).and_then(|()| task.dir.set(&v2_oom_group(limits.oom_group)));
        match filled {
            Ok(()) => Ok(task),
            Err(error) => Err(task.undo(error)),
        }
    }

    /// A group that did not get its limits must not stay. The first error is the one to report.
    fn undo(&self, first: CgroupError) -> CgroupError {
        if let Err(error) = self.dir.remove(Duration::from_millis(100)) {
            tracing::debug!(%error, "a half-made group stays behind");
        }
        first
    }

    /// The tasks' groups that are there.
    pub fn tasks(&self) -> Result<Vec<(String, Group)>> {
        let mut found = Vec::new();
        for made in self.dir.children()? {
            let Some(name) = made.strip_prefix(TASK_PREFIX) else { continue };
            let Some(dir) = self.dir.child(&made)? else { continue };
            found.push((name.to_owned(), Group { dir, role: Role::Task, name: name.to_owned() }));
        }
        Ok(found)
    }

    /// Removes the group with all below it.
    pub fn remove(&self, within: Duration) -> Result<()> {
        self.dir.remove(within)
    }
}

/// Facts from texts, read from the directory or by somebody else.
pub fn facts_from(path: &Path, mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<GroupFacts> {
    let current = match read(USAGE)? {
        Some(text) => amount(path, USAGE, &text)?,
        None => {
            let source = nix::errno::Errno::ENOENT.into();
            return Err(CgroupError::Read { path: path.join(USAGE), hint: "; the group is gone", source });
        }
    };
    let events = parse::memory_events(&read(EVENTS)?.unwrap_or_default());
    let local = match read(LOCAL)? {
        Some(text) => parse::memory_events(&text),
        None => MemoryEvents::default(),
    };
    Ok(GroupFacts {
        limit: read(LIMIT)?.as_deref().and_then(parse::limit).and_then(parse::Shown::bytes),
        current,
        peak: read(PEAK)?.as_deref().and_then(parse::number).map(Bytes::new),
        stat: parse::stat_v2(&read(STAT)?.unwrap_or_default()),
        events,
        local,
    })
}

fn amount(path: &Path, file: &str, text: &str) -> Result<Bytes> {
    parse::number(text).map(Bytes::new).ok_or_else(|| CgroupError::parse(&path.join(file), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_kernel_without_peak() {
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
        assert_eq!((facts.limit, facts.peak, facts.current), (None, None, Bytes::from_kib(4)));
        assert_eq!((facts.events.oom, facts.local.oom, facts.local.oom_kill), (1, 0, 1));
    }
}
