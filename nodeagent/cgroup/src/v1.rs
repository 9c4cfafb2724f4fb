//! cgroup v1: the memory hierarchy, and pids and cpu where they are mounted and can be written.
//!
//! Owned by `Enforcer` and `Group`. What v1 lacks against v2, and what is done about it:
//! - no kill of a whole group: the kernel kills one process, whoever sees `oom_kill` move calls `Group::kill`;
//! - `oom_kill` counts in the group where the victim lived, `failcnt` in the group whose limit was hit, and neither includes
//!   descendants: `events` are sums over the subtree made here;
//! - no count of "out of memory at this very limit". `local.oom` is derived: the kills in the subtree, if this level's limit was
//!   ever hit (`failcnt` > 0) *and* its peak came within [`SLACK`] of the limit; otherwise 0. A level whose page cache once filled
//!   it to the brim satisfies both, so an outer level's `local.oom` may move with a kill that was an inner level's; readers
//!   must ask the innermost level first, as the classification does;
//! - kills vanish with a removed group: the enforcer remembers those of groups it removed itself, for the fence.
//!
//! Memory plus swap, where the kernel accounts it, gets 1 MiB more than memory: see `plan::V1_SWAP_ROOM`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::{GroupFacts, MemoryEvents, MemoryStat};

use crate::error::{CgroupError, Result};
use crate::layout::{CONTAINERS, MAIN, PROCS, SHIMS, TASK_PREFIX, TASKS, checked, task_dir};
use crate::parse;
use crate::plan::{Direction, Limits, v1_cpu_shares, v1_memory, v1_pids};
use crate::probe::Probe;
use crate::procs;
use crate::tree::Dir;
use crate::unattributed::{self, Charged};

/// How far from the limit the peak may stay when the limit was hit: one batch of charging (64 pages) and 32 pages.
pub const SLACK: Bytes = Bytes::from_kib(256 + 128);

const LIMIT: &str = "memory.limit_in_bytes";
const USAGE: &str = "memory.usage_in_bytes";
const PEAK: &str = "memory.max_usage_in_bytes";
const STAT: &str = "memory.stat";
const KERNEL: &str = "memory.kmem.usage_in_bytes";
const FAILCNT: &str = "memory.failcnt";
const OOM: &str = "memory.oom_control";

/// The enforcer of a v1 host.
#[derive(Debug)]
pub struct V1 {
    root: Dir,
    containers: Dir,
    shims: Dir,
    pids: Option<Mirror>,
    cpu: Option<Mirror>,
    /// `oom_kill` of groups that were removed.
    retired: Arc<AtomicU64>,
}

/// The same tree in the hierarchy of another controller.
#[derive(Debug)]
pub struct Mirror {
    root: Dir,
    containers: Dir,
    shims: Dir,
}

impl V1 {
    /// Makes the directories below `memory` (made if need be); `pids` and `cpu` are their mirrors where there are any.
    pub fn prepare(memory: &Path, pids: Option<Mirror>, cpu: Option<Mirror>) -> Result<V1> {
        let root = ensure_path(memory)?;
        // Before Linux 5.11 a group's limit did not hold its children unless asked to; later this is always 1.
        if root.read_if_there("memory.use_hierarchy")?.is_some_and(|t| t.trim() == "0") {
            root.write("memory.use_hierarchy", "1")?;
        }
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        Ok(V1 { root, containers, shims, pids, cpu, retired: Arc::default() })
    }

    /// ROOT in the memory hierarchy.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Whether the fence is still there.
    pub fn has_home(&self) -> bool {
        self.containers.path().is_dir()
    }

    /// Whether the number of processes can be limited.
    pub fn has_pids(&self) -> bool {
        self.pids.is_some()
    }

    /// Whether processors are shared by weight.
    pub fn has_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// The fence as a group: it has no `main` of its own.
    pub fn fence(&self) -> Result<Group> {
        let dir = Dir::open(self.containers.path())?;
        Ok(Group { dir, role: Role::Fence, name: CONTAINERS.into(), pids: None, cpu: None, retired: Arc::clone(&self.retired) })
    }

    /// Makes a container's group and its `main`.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Group> {
        let dir = self.containers.make(checked(name)?)?;
        let group = Group {
            dir,
            role: Role::Container,
            name: name.to_owned(),
            pids: None,
            cpu: None,
            retired: Arc::clone(&self.retired),
        };
        self.fill(group, limits).inspect_err(|_| self.undo(name))
    }

    fn fill(&self, mut group: Group, limits: &Limits) -> Result<Group> {
        set_limits(&group.dir, limits)?;
        group.dir.make(MAIN)?;
        if let Some(tree) = &self.pids {
            let dir = tree.containers.make(&group.name)?;
            if let Some(n) = limits.processes {
                dir.set(&v1_pids(n))?;
            }
            group.pids = Some(dir);
        }
        if let Some(tree) = &self.cpu {
            let dir = tree.containers.make(&group.name)?;
            limits.cpu_weight.map_or(Ok(()), |weight| dir.set(&v1_cpu_shares(weight)))?;
            group.cpu = Some(dir);
        }
        Ok(group)
    }

    /// A group that did not get its limits must not stay. Best effort: the first error is the one to report.
    fn undo(&self, name: &str) {
        let trees = std::iter::once(&self.containers).chain(self.mirrors().map(|tree| &tree.containers));
        for dir in trees.filter_map(|tree| tree.child(name).ok().flatten()) {
            if let Err(error) = dir.remove(Duration::from_millis(100)) {
                tracing::debug!(%error, "a half-made group stays behind");
            }
        }
    }

    /// A container's group that is there.
    pub fn open(&self, name: &str) -> Result<Option<Group>> {
        let Some(dir) = self.containers.child(checked(name)?)? else { return Ok(None) };
        let mirrored = |tree: &Option<Mirror>| tree.as_ref().map_or(Ok(None), |tree| tree.containers.child(name));
        let (pids, cpu) = (mirrored(&self.pids)?, mirrored(&self.cpu)?);
        Ok(Some(Group { dir, role: Role::Container, name: name.to_owned(), pids, cpu, retired: Arc::clone(&self.retired) }))
    }

    /// Names of all containers' groups.
    pub fn list(&self) -> Result<Vec<String>> {
        self.containers.children()
    }

    /// What moves a process to the shims.
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        std::iter::once(&self.shims).chain(self.mirrors().map(|tree| &tree.shims)).map(|dir| dir.path().join(TASKS)).collect()
    }

    /// Ends everything below ROOT and removes it.
    pub fn remove_root(&self, within: Duration) -> Result<()> {
        procs::kill_all(&self.root.path().display().to_string(), procs::DEATH, || self.root.pids())?;
        self.mirrors().try_for_each(|tree| tree.root.remove(within))?;
        self.root.remove(within)
    }

    fn mirrors(&self) -> impl Iterator<Item = &Mirror> {
        self.pids.iter().chain(&self.cpu)
    }
}

impl Mirror {
    /// Makes the directories below `path` (made if need be).
    pub fn prepare(path: &Path) -> Result<Mirror> {
        let root = ensure_path(path)?;
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        Ok(Mirror { root, containers, shims })
    }

    /// In the cpu hierarchy: what all containers together weigh against the rest of the host.
    pub fn set_weight(&self, weight: u32) -> Result<()> {
        self.root.set(&v1_cpu_shares(weight))
    }
}

/// Opens the directory, made in its parent if need be.
fn ensure_path(path: &Path) -> Result<Dir> {
    match (Dir::open_if_there(path)?, path.parent(), path.file_name().and_then(|n| n.to_str())) {
        (Some(dir), _, _) => Ok(dir),
        (None, Some(parent), Some(name)) => Dir::open(parent)?.make(name),
        (None, _, _) => Dir::open(path),
    }
}

/// A fresh group's memory limit.
fn set_limits(dir: &Dir, limits: &Limits) -> Result<()> {
    limits.memory.map_or(Ok(()), |memory| dir.set_all(&v1_memory(memory, Direction::Shrink)))
}

/// What happens in a group whose limit is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// The kernel kills one of its processes.
    Kill,
    /// Whoever needs a page waits; a system call that needs one fails.
    Wait,
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
    pids: Option<Dir>,
    cpu: Option<Dir>,
    retired: Arc<AtomicU64>,
}

impl Group {
    /// A group made by somebody else, by its directory in the memory hierarchy; `pids` and `cpu` are its mirrors, if there are any.
    pub fn attach(path: &Path, pids: Option<&Path>, cpu: Option<&Path>) -> Result<Group> {
        let dir = Dir::open(path)?;
        let last = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let (role, name) = match last.strip_prefix(TASK_PREFIX) {
            Some(task) => (Role::Task, task),
            None => (Role::Container, last),
        };
        let name = name.to_owned();
        let open = |mirror: Option<&Path>| mirror.map(Dir::open_if_there).transpose().map(Option::flatten);
        Ok(Group { dir, role, name, pids: open(pids)?, cpu: open(cpu)?, retired: Arc::default() })
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
        let memory = match self.role {
            Role::Container => self.dir.path().join(MAIN),
            Role::Task | Role::Fence => self.dir.path().to_owned(),
        };
        let mirrors = self.pids.iter().chain(&self.cpu).map(|dir| dir.path().to_owned());
        std::iter::once(memory).chain(mirrors).map(|dir| dir.join(TASKS)).collect()
    }

    /// The files `facts` is made of.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        let own = [LIMIT, USAGE, PEAK, STAT, KERNEL, FAILCNT, OOM];
        let main: &[&str] = match self.role {
            Role::Container => &[FAILCNT, OOM],
            Role::Task | Role::Fence => &[],
        };
        let main_dir = self.dir.path().join(MAIN);
        own.iter().map(|f| self.dir.path().join(f)).chain(main.iter().map(|f| main_dir.join(f))).collect()
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<GroupFacts> {
        if self.role == Role::Fence && !self.was_full()? {
            // No kill below can have been this level's. Nobody asks for it while there are hundreds of containers to look through.
            return facts_from(self.dir.path(), |file| self.dir.read_if_there(file), &[]);
        }
        let mut below = Vec::new();
        match self.role {
            Role::Fence => self.dir.each(&mut |dir| {
                if dir.path() != self.dir.path() {
                    below.push(local_events(|file| dir.read_if_there(file))?);
                }
                Ok(())
            })?,
            Role::Container | Role::Task => {
                for child in self.dir.children()? {
                    below.push(local_events(|file| self.dir.read_if_there(&format!("{child}/{file}")))?);
                }
            }
        }
        let remembered = match self.role {
            Role::Fence => self.retired.load(Ordering::Relaxed),
            Role::Container | Role::Task => 0,
        };
        below.push(MemoryEvents { oom_kill: remembered, ..MemoryEvents::default() });
        facts_from(self.dir.path(), |file| self.dir.read_if_there(file), &below)
    }

    /// Whether its own limit was ever hit.
    fn was_full(&self) -> Result<bool> {
        Ok(local_events(|file| self.dir.read_if_there(file))?.max > 0)
    }

    /// Processes that the kernel has killed in it and in what is directly below.
    fn kills(&self) -> Result<u64> {
        let counted = |text: Option<String>| text.as_deref().and_then(parse::oom_control).and_then(|c| c.oom_kill).unwrap_or(0);
        let mut kills = counted(self.dir.read_if_there(OOM)?);
        for child in self.dir.children()? {
            kills += counted(self.dir.read_if_there(&format!("{child}/{OOM}"))?);
        }
        Ok(kills)
    }

    /// Whether anybody lives in it or directly below.
    pub fn populated(&self) -> Result<bool> {
        let lives = |text: Option<String>| text.is_some_and(|text| !parse::pids(&text).is_empty());
        if lives(self.dir.read_if_there(PROCS)?) {
            return Ok(true);
        }
        for child in self.dir.children()? {
            if lives(self.dir.read_if_there(&format!("{child}/{PROCS}"))?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Limit and own counters, without what it is filled with; and without a look at anything below while its limit was never hit.
    pub(crate) fn level(&self) -> Result<(Option<Bytes>, MemoryEvents)> {
        let mut own = local_events(|file| self.dir.read_if_there(file))?;
        let limit = self.dir.read_if_there(LIMIT)?.as_deref().and_then(parse::limit).and_then(parse::Shown::bytes);
        if own.max == 0 {
            return Ok((limit, own));
        }
        match self.role {
            Role::Fence => self.facts().map(|facts| (facts.limit, facts.local)),
            Role::Container | Role::Task => {
                let peak = self.dir.read_if_there(PEAK)?.as_deref().and_then(parse::number).map(Bytes::new);
                own.oom = derived_oom(limit, peak, own.max, self.kills()?);
                Ok((limit, own))
            }
        }
    }

    /// Use and its kinds, cheaply.
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        let current = amount(self.dir.path(), USAGE, &self.dir.read(USAGE)?)?;
        Ok((current, stat(|file| self.dir.read_if_there(file))?))
    }

    /// What it holds and nothing below it does: see [`crate::unattributed`].
    pub(crate) fn unattributed(&self, floor: Bytes) -> Result<Bytes> {
        unattributed::of_dir(&self.dir, unattributed::Files::V1, floor)
    }

    /// What it is charged for.
    pub(crate) fn charged(&self) -> Result<Charged> {
        unattributed::charged(&self.dir, unattributed::Files::V1)
    }

    /// The files of a sample, kept open.
    pub fn probe(&self) -> Result<Probe> {
        Probe::v1(self.dir.path(), USAGE, STAT, KERNEL, self.dir.path().join(MAIN).join(OOM))
    }

    /// Times a process here or below had to wait for a page of its own.
    pub fn major_faults(&self) -> Option<u64> {
        parse::keyed(&self.dir.read(STAT).ok()?, "total_pgmajfault")
    }

    /// Moves the limit; never below what would have to be killed for it.
    pub fn set_memory(&self, wanted: Bytes) -> Result<()> {
        let (_, stat) = self.sample()?;
        if let Some(demand) = stat.demand().filter(|demand| *demand > wanted) {
            return Err(CgroupError::BelowDemand { group: self.name.clone(), wanted, demand });
        }
        let now = parse::limit(&self.dir.read(LIMIT)?).and_then(parse::Shown::bytes);
        let direction = if now.is_some_and(|now| now < wanted) { Direction::Grow } else { Direction::Shrink };
        self.dir.set_all(&v1_memory(wanted, direction)).map_err(|error| self.too_small(wanted, error))
    }

    /// What the kernel does when the limit is full and nothing can be reclaimed. Whoever waits is woken by a change.
    pub fn set_waiting(&self, at_limit: AtLimit) -> Result<()> {
        let (value, wanted) = match at_limit {
            AtLimit::Kill => ("0", false),
            AtLimit::Wait => ("1", true),
        };
        self.dir.write(OOM, value)?;
        let text = self.dir.read(OOM)?;
        match parse::oom_control(&text) {
            Some(control) if control.disabled == wanted => Ok(()),
            Some(_) | None => Err(CgroupError::parse(&self.dir.path().join(OOM), &text)),
        }
    }

    /// The figures of `memory.stat` are gathered late; the kernel itself knows when a limit is below what is in use.
    fn too_small(&self, wanted: Bytes, error: CgroupError) -> CgroupError {
        let CgroupError::Write { source, .. } = &error else { return error };
        if source.kind() != std::io::ErrorKind::ResourceBusy {
            return error;
        }
        match self.sample() {
            Ok((demand, _)) if demand > wanted => CgroupError::BelowDemand { group: self.name.clone(), wanted, demand },
            Ok(_) | Err(_) => error,
        }
    }

    /// Moves the share of processor time against siblings, read back. Nothing without the cpu hierarchy.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        self.cpu.as_ref().map_or(Ok(()), |cpu| cpu.set(&v1_cpu_shares(weight)))
    }

    /// Processes here and below.
    pub fn pids(&self) -> Result<Vec<i32>> {
        self.dir.pids()
    }

    /// SIGKILL to all until nobody is left. New processes are forbidden first where that can be done.
    pub fn kill(&self) -> Result<()> {
        if let Some(pids) = &self.pids {
            match pids.write("pids.max", "0") {
                Ok(()) => {}
                Err(e) => tracing::debug!(error = %e, "cannot stop forking before the kill, ignoring"),
            }
        }
        procs::kill_all(&self.dir.path().display().to_string(), procs::DEATH, || self.dir.pids())
    }

    /// A task's group beside `main`.
    pub fn create_task(&self, name: &str, limits: &Limits) -> Result<Group> {
        let made = task_dir(name)?;
        let dir = self.dir.make(&made)?;
        let mut task =
            Group { dir, role: Role::Task, name: name.to_owned(), pids: None, cpu: None, retired: Arc::clone(&self.retired) };
        match self.fill_task(&mut task, &made, limits) {
            Ok(()) => Ok(task),
            Err(error) => {
                // The first error is the one to report.
                task.remove(Duration::from_millis(100))
                    .unwrap_or_else(|e| tracing::debug!(error = %e, "a half-made group stays behind"));
                Err(error)
            }
        }
    }

    fn fill_task(&self, task: &mut Group, made: &str, limits: &Limits) -> Result<()> {
        set_limits(&task.dir, limits)?;
        if let (Some(parent), Some(n)) = (&self.pids, limits.processes) {
            let dir = parent.make(made)?;
            dir.set(&v1_pids(n))?;
            task.pids = Some(dir);
        }
        Ok(())
    }

    /// The tasks' groups that are there.
    pub fn tasks(&self) -> Result<Vec<(String, Group)>> {
        let mut found = Vec::new();
        for made in self.dir.children()? {
            let Some(name) = made.strip_prefix(TASK_PREFIX) else { continue };
            let Some(dir) = self.dir.child(&made)? else { continue };
            let pids = self.pids.as_ref().map(|p| p.child(&made)).transpose()?.flatten();
            let task =
                Group { dir, role: Role::Task, name: name.to_owned(), pids, cpu: None, retired: Arc::clone(&self.retired) };
            found.push((name.to_owned(), task));
        }
        Ok(found)
    }

    /// Removes the group with all below it; its kills are remembered for the fence. The mirror goes first: whoever is killed in
    /// between leaves a group that is still listed, and so found again.
    pub fn remove(&self, within: Duration) -> Result<()> {
        let kills = self.kills().unwrap_or(0);
        let mirror = self.pids.iter().chain(&self.cpu).try_for_each(|mirror| mirror.remove(within));
        if let (Role::Container, Some(main)) = (self.role, self.dir.child(MAIN)?) {
            main.remove(within)?;
        }
        self.dir.remove(within)?;
        self.retired.fetch_add(kills, Ordering::Relaxed);
        mirror
    }
}

/// Facts from texts that somebody else read; `below` are the local counters of descendants.
pub fn facts_from(
    path: &Path,
    mut read: impl FnMut(&str) -> Result<Option<String>>,
    below: &[MemoryEvents],
) -> Result<GroupFacts> {
    let mut must = |file: &str| read(file)?.ok_or_else(|| gone(path, file));
    let limit = parse::limit(&must(LIMIT)?).and_then(parse::Shown::bytes);
    let current = amount(path, USAGE, &must(USAGE)?)?;
    let peak = parse::number(&must(PEAK)?).map(Bytes::new);
    let stat = stat(&mut read)?;
    let mut local = local_events(&mut read)?;
    let events = below.iter().fold(local, |sum, e| MemoryEvents {
        max: sum.max.saturating_add(e.max),
        oom_kill: sum.oom_kill.saturating_add(e.oom_kill),
        ..sum
    });
    local.oom = derived_oom(limit, peak, local.max, events.oom_kill);
    let events = MemoryEvents { oom: local.oom, ..events };
    Ok(GroupFacts { limit, current, peak, stat, events, local })
}

/// See the header: kills in the subtree, if this level's limit was hit.
fn derived_oom(limit: Option<Bytes>, peak: Option<Bytes>, failcnt: u64, kills: u64) -> u64 {
    let at_limit = match (limit, peak) {
        (Some(limit), Some(peak)) => peak.saturating_add(SLACK) >= limit,
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    if failcnt > 0 && at_limit { kills } else { 0 }
}

/// The counters of one directory. `oom` is not among what v1 counts.
pub fn local_events(mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<MemoryEvents> {
    let max = read(FAILCNT)?.as_deref().and_then(parse::number).unwrap_or(0);
    let oom_kill = read(OOM)?.as_deref().and_then(parse::oom_control).and_then(|c| c.oom_kill).unwrap_or(0);
    Ok(MemoryEvents { max, oom_kill, ..MemoryEvents::default() })
}

fn stat(mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<MemoryStat> {
    let kernel = read(KERNEL)?.as_deref().and_then(parse::number).map(Bytes::new);
    Ok(parse::stat_v1(&read(STAT)?.unwrap_or_default(), kernel))
}

fn amount(path: &Path, file: &str, text: &str) -> Result<Bytes> {
    parse::number(text).map(Bytes::new).ok_or_else(|| CgroupError::parse(&path.join(file), text))
}

fn gone(path: &Path, file: &str) -> CgroupError {
    let source = nix::errno::Errno::ENOENT.into();
    CgroupError::Read { path: path.join(file), hint: "; the group is gone", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_32: Option<Bytes> = Some(Bytes::from_mib(32));

    #[test]
    fn a_kill_counts_at_the_level_whose_limit_was_hit() {
        let full = Some(Bytes::from_mib(32).saturating_sub(Bytes::from_kib(200)));
        assert_eq!(derived_oom(LIMIT_32, full, 17, 2), 2);
        assert_eq!(derived_oom(LIMIT_32, full, 0, 2), 0, "the limit was never hit");
        assert_eq!(derived_oom(LIMIT_32, Some(Bytes::from_mib(20)), 17, 2), 0, "the peak stayed far below");
        assert_eq!(derived_oom(None, full, 17, 2), 0, "there is no limit");
    }

    #[test]
    fn what_a_directory_counts_itself() {
        let read = |file: &str| {
            Ok(match file {
                FAILCNT => Some("3\n".to_owned()),
                OOM => Some("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n".to_owned()),
                _ => None,
            })
        };
        let events = local_events(read).expect("reads");
        assert_eq!((events.max, events.oom_kill, events.oom), (3, 1, 0));
    }
}
