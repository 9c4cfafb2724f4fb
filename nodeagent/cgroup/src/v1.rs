//! cgroup v1: the memory hierarchy, and pids and cpu where they are mounted and writable.
//!
//! `Enforcer` and `CgroupV1Group` use it. Differences from v2, and their replacements:
//!
//! - v1 cannot kill a whole group. The kernel kills one process; the observer of `oom_kill` calls
//!   `CgroupV1Group::kill`.
//! - `oom_kill` counts in the group of the victim, `failcnt` in the group whose limit was hit.
//!   Neither includes descendants, so `events` are sums over the subtree, computed here.
//! - v1 does not count "out of memory at this limit". `local.oom` is derived. It is the number of
//!   kills in the subtree if this level's limit was ever hit (`failcnt` > 0) *and* its peak came
//!   within [`SLACK`] of the limit; otherwise 0. A level that page cache once filled completely
//!   satisfies both. The `local.oom` of an outer level may therefore move with the kill of an inner
//!   level. Readers must check the innermost level first, as the classification does.
//! - The kills of a removed group disappear. The enforcer stores those of the groups that it
//!   removed, for the fence.
//!
//! The limit of memory plus swap, where the kernel accounts it, is 1 MiB above the memory limit:
//! see `plan::V1_SWAP_ROOM`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::{CgroupStats, MemoryEvents, MemoryStat};

use crate::error::{CgroupError, Result};
use crate::layout::{CONTAINERS, MAIN, PROCS, SHIMS, TASK_PREFIX, TASKS, checked, task_dir};
use crate::parse;
use crate::plan::{Direction, GroupLimits, v1_cpu_shares, v1_memory, v1_pids};
use crate::probe::Probe;
use crate::procs;
use crate::tree::CgroupDir;
use crate::unattributed::{self, Charged};

/// Maximum distance of the peak from a limit that was hit: one batch of charges (64 pages) and 32
/// pages.
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
    root: CgroupDir,
    containers: CgroupDir,
    shims: CgroupDir,
    pids: Option<Mirror>,
    cpu: Option<Mirror>,
    /// `oom_kill` of removed groups.
    retired: Arc<AtomicU64>,
}

/// The same tree in the hierarchy of another controller.
#[derive(Debug)]
pub struct Mirror {
    root: CgroupDir,
    containers: CgroupDir,
    shims: CgroupDir,
}

impl V1 {
    /// Creates `memory`, if necessary, and the directories below it. `pids` and `cpu` are its
    /// mirrors, where they exist.
    pub fn prepare(memory: &Path, pids: Option<Mirror>, cpu: Option<Mirror>) -> Result<V1> {
        let root = ensure_path(memory)?;
        // Before Linux 5.11, the limit of a group included its children only with this setting.
        // Later it is always 1.
        if root
            .read_if_there("memory.use_hierarchy")?
            .is_some_and(|t| t.trim() == "0")
        {
            root.write("memory.use_hierarchy", "1")?;
        }
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        Ok(V1 {
            root,
            containers,
            shims,
            pids,
            cpu,
            retired: Arc::default(),
        })
    }

    /// The root in the memory hierarchy.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Whether the fence still exists.
    pub fn has_home(&self) -> bool {
        self.containers.path().is_dir()
    }

    /// Whether the number of processes can be limited.
    pub fn has_pids(&self) -> bool {
        self.pids.is_some()
    }

    /// Whether processors are weighted.
    pub fn has_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// The fence as a group. It has no `main`.
    pub fn fence(&self) -> Result<CgroupV1Group> {
        let dir = CgroupDir::open(self.containers.path())?;
        Ok(CgroupV1Group {
            dir,
            role: Role::Fence,
            name: CONTAINERS.into(),
            pids: None,
            cpu: None,
            retired: Arc::clone(&self.retired),
        })
    }

    /// Creates the group of a container and its `main`.
    pub fn create(&self, name: &str, limits: &GroupLimits) -> Result<CgroupV1Group> {
        let dir = self.containers.make(checked(name)?)?;
        let group = CgroupV1Group {
            dir,
            role: Role::Container,
            name: name.to_owned(),
            pids: None,
            cpu: None,
            retired: Arc::clone(&self.retired),
        };
        self.fill(group, limits).inspect_err(|_| self.undo(name))
    }

    fn fill(&self, mut group: CgroupV1Group, limits: &GroupLimits) -> Result<CgroupV1Group> {
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
            limits
                .cpu_weight
                .map_or(Ok(()), |weight| dir.set(&v1_cpu_shares(weight)))?;
            group.cpu = Some(dir);
        }
        Ok(group)
    }

    /// Removes a group that did not get its limits. Its own errors are only logged, because the
    /// caller reports the first error.
    fn undo(&self, name: &str) {
        let trees =
            std::iter::once(&self.containers).chain(self.mirrors().map(|tree| &tree.containers));
        for dir in trees.filter_map(|tree| tree.child(name).ok().flatten()) {
            if let Err(error) = dir.remove(Duration::from_millis(100)) {
                tracing::debug!(%error, "a partly created group cannot be removed");
            }
        }
    }

    /// Opens an existing group of a container.
    pub fn open(&self, name: &str) -> Result<Option<CgroupV1Group>> {
        let Some(dir) = self.containers.child(checked(name)?)? else {
            return Ok(None);
        };
        let mirrored = |tree: &Option<Mirror>| {
            tree.as_ref()
                .map_or(Ok(None), |tree| tree.containers.child(name))
        };
        let (pids, cpu) = (mirrored(&self.pids)?, mirrored(&self.cpu)?);
        Ok(Some(CgroupV1Group {
            dir,
            role: Role::Container,
            name: name.to_owned(),
            pids,
            cpu,
            retired: Arc::clone(&self.retired),
        }))
    }

    /// Names of the groups of all containers.
    pub fn list(&self) -> Result<Vec<String>> {
        self.containers.children()
    }

    /// The files that move a process to the shims.
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        std::iter::once(&self.shims)
            .chain(self.mirrors().map(|tree| &tree.shims))
            .map(|dir| dir.path().join(TASKS))
            .collect()
    }

    /// Kills all processes below the root and removes it.
    pub fn remove_root(&self, within: Duration) -> Result<()> {
        procs::kill_all(
            &self.root.path().display().to_string(),
            procs::KILL_TIMEOUT,
            || self.root.pids(),
        )?;
        self.mirrors()
            .try_for_each(|tree| tree.root.remove(within))?;
        self.root.remove(within)
    }

    fn mirrors(&self) -> impl Iterator<Item = &Mirror> {
        self.pids.iter().chain(&self.cpu)
    }
}

impl Mirror {
    /// Creates the directories below `path`, and `path` itself if necessary.
    pub fn prepare(path: &Path) -> Result<Mirror> {
        let root = ensure_path(path)?;
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        Ok(Mirror {
            root,
            containers,
            shims,
        })
    }

    /// In the cpu hierarchy: sets the weight of all containers together against the rest of the
    /// host.
    pub fn set_weight(&self, weight: u32) -> Result<()> {
        self.root.set(&v1_cpu_shares(weight))
    }
}

/// Opens the directory, and creates it in its parent if necessary.
fn ensure_path(path: &Path) -> Result<CgroupDir> {
    match (
        CgroupDir::open_if_there(path)?,
        path.parent(),
        path.file_name().and_then(|n| n.to_str()),
    ) {
        (Some(dir), _, _) => Ok(dir),
        (None, Some(parent), Some(name)) => CgroupDir::open(parent)?.make(name),
        (None, _, _) => CgroupDir::open(path),
    }
}

/// Sets the memory limit of a new group.
fn set_limits(dir: &CgroupDir, limits: &GroupLimits) -> Result<()> {
    limits.memory.map_or(Ok(()), |memory| {
        dir.set_all(&v1_memory(memory, Direction::Shrink))
    })
}

/// The behaviour of a group at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBehavior {
    /// The kernel kills one of its processes.
    Kill,
    /// A process that needs a page waits; a system call that needs one fails.
    Wait,
}

/// The role of a group, which decides where its processes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The group of all containers.
    Fence,
    /// A container, with its processes in `main`.
    Container,
    /// A task, with its processes in the group itself.
    Task,
}

/// A container's or a task's group.
#[derive(Debug)]
pub struct CgroupV1Group {
    dir: CgroupDir,
    role: Role,
    name: String,
    pids: Option<CgroupDir>,
    cpu: Option<CgroupDir>,
    retired: Arc<AtomicU64>,
}

impl CgroupV1Group {
    /// Opens an existing group by its directory in the memory hierarchy. `pids` and `cpu` are its
    /// mirrors, if any.
    pub fn attach(path: &Path, pids: Option<&Path>, cpu: Option<&Path>) -> Result<CgroupV1Group> {
        let dir = CgroupDir::open(path)?;
        let last = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let (role, name) = match last.strip_prefix(TASK_PREFIX) {
            Some(task) => (Role::Task, task),
            None => (Role::Container, last),
        };
        let name = name.to_owned();
        let open = |mirror: Option<&Path>| {
            mirror
                .map(CgroupDir::open_if_there)
                .transpose()
                .map(Option::flatten)
        };
        Ok(CgroupV1Group {
            dir,
            role,
            name,
            pids: open(pids)?,
            cpu: open(cpu)?,
            retired: Arc::default(),
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
        let memory = match self.role {
            Role::Container => self.dir.path().join(MAIN),
            Role::Task | Role::Fence => self.dir.path().to_owned(),
        };
        let mirrors = self
            .pids
            .iter()
            .chain(&self.cpu)
            .map(|dir| dir.path().to_owned());
        std::iter::once(memory)
            .chain(mirrors)
            .map(|dir| dir.join(TASKS))
            .collect()
    }

    /// The files from which `facts` is built.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        let own = [LIMIT, USAGE, PEAK, STAT, KERNEL, FAILCNT, OOM];
        let main: &[&str] = match self.role {
            Role::Container => &[FAILCNT, OOM],
            Role::Task | Role::Fence => &[],
        };
        let main_dir = self.dir.path().join(MAIN);
        own.iter()
            .map(|f| self.dir.path().join(f))
            .chain(main.iter().map(|f| main_dir.join(f)))
            .collect()
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<CgroupStats> {
        if self.role == Role::Fence && !self.was_full()? {
            // No kill below can belong to this level. This also avoids reading hundreds of
            // containers.
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
                    below.push(local_events(|file| {
                        self.dir.read_if_there(&format!("{child}/{file}"))
                    })?);
                }
            }
        }
        let remembered = match self.role {
            Role::Fence => self.retired.load(Ordering::Relaxed),
            Role::Container | Role::Task => 0,
        };
        below.push(MemoryEvents {
            oom_kill: remembered,
            ..MemoryEvents::default()
        });
        facts_from(self.dir.path(), |file| self.dir.read_if_there(file), &below)
    }

    /// Whether its own limit was ever hit.
    fn was_full(&self) -> Result<bool> {
        Ok(local_events(|file| self.dir.read_if_there(file))?.max > 0)
    }

    /// Processes that the kernel has killed in it and in its direct children.
    fn kills(&self) -> Result<u64> {
        let counted = |text: Option<String>| {
            text.as_deref()
                .and_then(parse::oom_control)
                .and_then(|c| c.oom_kill)
                .unwrap_or(0)
        };
        let mut kills = counted(self.dir.read_if_there(OOM)?);
        for child in self.dir.children()? {
            kills += counted(self.dir.read_if_there(&format!("{child}/{OOM}"))?);
        }
        Ok(kills)
    }

    /// Whether there are processes in it or in its direct children.
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

    /// Limit and own counters, without memory kinds. While its limit was never hit, nothing below
    /// is read.
    pub(crate) fn level(&self) -> Result<(Option<Bytes>, MemoryEvents)> {
        let mut own = local_events(|file| self.dir.read_if_there(file))?;
        let limit = self
            .dir
            .read_if_there(LIMIT)?
            .as_deref()
            .and_then(parse::limit)
            .and_then(parse::Shown::bytes);
        if own.max == 0 {
            return Ok((limit, own));
        }
        match self.role {
            Role::Fence => self.facts().map(|facts| (facts.limit, facts.local)),
            Role::Container | Role::Task => {
                let peak = self
                    .dir
                    .read_if_there(PEAK)?
                    .as_deref()
                    .and_then(parse::number)
                    .map(Bytes::new);
                own.oom = derived_oom(limit, peak, own.max, self.kills()?);
                Ok((limit, own))
            }
        }
    }

    /// Memory use and its kinds; cheap.
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        let current = amount(self.dir.path(), USAGE, &self.dir.read(USAGE)?)?;
        Ok((current, stat(|file| self.dir.read_if_there(file))?))
    }

    /// Memory that it holds and no child does: see [`crate::unattributed`].
    pub(crate) fn unattributed(&self, floor: Bytes) -> Result<Bytes> {
        unattributed::of_dir(&self.dir, unattributed::Files::V1, floor)
    }

    /// The memory charged to it.
    pub(crate) fn charged(&self) -> Result<Charged> {
        unattributed::charged(&self.dir, unattributed::Files::V1)
    }

    /// The open files of a sample.
    pub fn probe(&self) -> Result<Probe> {
        Probe::v1(
            self.dir.path(),
            USAGE,
            STAT,
            KERNEL,
            self.dir.path().join(MAIN).join(OOM),
        )
    }

    /// Major page faults of its processes and those below.
    pub fn major_faults(&self) -> Option<u64> {
        parse::keyed(&self.dir.read(STAT).ok()?, "total_pgmajfault")
    }

    /// Changes the limit. A limit below the unreclaimable use is refused.
    pub fn set_memory(&self, wanted: Bytes) -> Result<()> {
        let (_, stat) = self.sample()?;
        if let Some(demand) = stat.demand().filter(|demand| *demand > wanted) {
            return Err(CgroupError::BelowDemand {
                group: self.name.clone(),
                wanted,
                demand,
            });
        }
        let now = parse::limit(&self.dir.read(LIMIT)?).and_then(parse::Shown::bytes);
        let direction = if now.is_some_and(|now| now < wanted) {
            Direction::Grow
        } else {
            Direction::Shrink
        };
        self.dir
            .set_all(&v1_memory(wanted, direction))
            .map_err(|error| self.too_small(wanted, error))
    }

    /// Sets the behaviour when the limit is reached and nothing is reclaimable. A change wakes
    /// waiting processes.
    pub fn set_waiting(&self, at_limit: LimitBehavior) -> Result<()> {
        let (value, wanted) = match at_limit {
            LimitBehavior::Kill => ("0", false),
            LimitBehavior::Wait => ("1", true),
        };
        self.dir.write(OOM, value)?;
        let text = self.dir.read(OOM)?;
        match parse::oom_control(&text) {
            Some(control) if control.disabled == wanted => Ok(()),
            Some(_) | None => Err(CgroupError::parse(&self.dir.path().join(OOM), &text)),
        }
    }

    /// `memory.stat` is updated late. The kernel's own error shows that a limit is below the use.
    fn too_small(&self, wanted: Bytes, error: CgroupError) -> CgroupError {
        let CgroupError::Write { source, .. } = &error else {
            return error;
        };
        if source.kind() != std::io::ErrorKind::ResourceBusy {
            return error;
        }
        match self.sample() {
            Ok((demand, _)) if demand > wanted => CgroupError::BelowDemand {
                group: self.name.clone(),
                wanted,
                demand,
            },
            Ok(_) | Err(_) => error,
        }
    }

    /// Changes the processor weight against siblings and reads it back. It has no effect without
    /// the cpu hierarchy.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        self.cpu
            .as_ref()
            .map_or(Ok(()), |cpu| cpu.set(&v1_cpu_shares(weight)))
    }

    /// Pids in this group and below.
    pub fn pids(&self) -> Result<Vec<i32>> {
        self.dir.pids()
    }

    /// Sends SIGKILL to all processes until none is left. Forks are forbidden first where pids is
    /// available.
    pub fn kill(&self) -> Result<()> {
        if let Some(pids) = &self.pids {
            match pids.write("pids.max", "0") {
                Ok(()) => {}
                Err(e) => {
                    tracing::debug!(error = %e, "cannot limit the number of processes before the kill, ignoring")
                }
            }
        }
        procs::kill_all(
            &self.dir.path().display().to_string(),
            procs::KILL_TIMEOUT,
            || self.dir.pids(),
        )
    }

    /// Creates the group of a task, next to `main`.
    pub fn create_task(&self, name: &str, limits: &GroupLimits) -> Result<CgroupV1Group> {
        let made = task_dir(name)?;
        let dir = self.dir.make(&made)?;
        let mut task = CgroupV1Group {
            dir,
            role: Role::Task,
            name: name.to_owned(),
            pids: None,
            cpu: None,
            retired: Arc::clone(&self.retired),
        };
        match self.fill_task(&mut task, &made, limits) {
            Ok(()) => Ok(task),
            Err(error) => {
                // The caller reports the first error.
                task.remove(Duration::from_millis(100)).unwrap_or_else(
                    |e| tracing::debug!(error = %e, "a partly created group cannot be removed"),
                );
                Err(error)
            }
        }
    }

    fn fill_task(&self, task: &mut CgroupV1Group, made: &str, limits: &GroupLimits) -> Result<()> {
        set_limits(&task.dir, limits)?;
        if let (Some(parent), Some(n)) = (&self.pids, limits.processes) {
            let dir = parent.make(made)?;
            dir.set(&v1_pids(n))?;
            task.pids = Some(dir);
        }
        Ok(())
    }

    /// The existing groups of tasks.
    pub fn tasks(&self) -> Result<Vec<(String, CgroupV1Group)>> {
        let mut found = Vec::new();
        for made in self.dir.children()? {
            let Some(name) = made.strip_prefix(TASK_PREFIX) else {
                continue;
            };
            let Some(dir) = self.dir.child(&made)? else {
                continue;
            };
            let pids = self
                .pids
                .as_ref()
                .map(|p| p.child(&made))
                .transpose()?
                .flatten();
            let task = CgroupV1Group {
                dir,
                role: Role::Task,
                name: name.to_owned(),
                pids,
                cpu: None,
                retired: Arc::clone(&self.retired),
            };
            found.push((name.to_owned(), task));
        }
        Ok(found)
    }

    /// Removes the group with all groups below it, and stores its kills for the fence. The mirrors
    /// go first: after an interruption, the group is still listed and is found again.
    pub fn remove(&self, within: Duration) -> Result<()> {
        let kills = self.kills().unwrap_or(0);
        let mirror = self
            .pids
            .iter()
            .chain(&self.cpu)
            .try_for_each(|mirror| mirror.remove(within));
        if let (Role::Container, Some(main)) = (self.role, self.dir.child(MAIN)?) {
            main.remove(within)?;
        }
        self.dir.remove(within)?;
        self.retired.fetch_add(kills, Ordering::Relaxed);
        mirror
    }
}

/// The counters from the texts that `read` returns. `below` are the local counters of descendants.
pub fn facts_from(
    path: &Path,
    mut read: impl FnMut(&str) -> Result<Option<String>>,
    below: &[MemoryEvents],
) -> Result<CgroupStats> {
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
    let events = MemoryEvents {
        oom: local.oom,
        ..events
    };
    Ok(CgroupStats {
        limit,
        current,
        peak,
        stat,
        events,
        local,
    })
}

/// Kills in the subtree, if this level's limit was hit; see the module documentation.
fn derived_oom(limit: Option<Bytes>, peak: Option<Bytes>, failcnt: u64, kills: u64) -> u64 {
    let at_limit = match (limit, peak) {
        (Some(limit), Some(peak)) => peak.saturating_add(SLACK) >= limit,
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    if failcnt > 0 && at_limit { kills } else { 0 }
}

/// The counters of one directory. v1 does not count `oom`.
pub fn local_events(mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<MemoryEvents> {
    let max = read(FAILCNT)?
        .as_deref()
        .and_then(parse::number)
        .unwrap_or(0);
    let oom_kill = read(OOM)?
        .as_deref()
        .and_then(parse::oom_control)
        .and_then(|c| c.oom_kill)
        .unwrap_or(0);
    Ok(MemoryEvents {
        max,
        oom_kill,
        ..MemoryEvents::default()
    })
}

fn stat(mut read: impl FnMut(&str) -> Result<Option<String>>) -> Result<MemoryStat> {
    let kernel = read(KERNEL)?
        .as_deref()
        .and_then(parse::number)
        .map(Bytes::new);
    Ok(parse::stat_v1(&read(STAT)?.unwrap_or_default(), kernel))
}

fn amount(path: &Path, file: &str, text: &str) -> Result<Bytes> {
    parse::number(text)
        .map(Bytes::new)
        .ok_or_else(|| CgroupError::parse(&path.join(file), text))
}

fn gone(path: &Path, file: &str) -> CgroupError {
    let source = nix::errno::Errno::ENOENT.into();
    CgroupError::Read {
        path: path.join(file),
        hint: "; the group is gone",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_32: Option<Bytes> = Some(Bytes::from_mib(32));

    #[test]
    fn a_kill_counts_at_the_level_of_the_reached_limit() {
        let full = Some(Bytes::from_mib(32).saturating_sub(Bytes::from_kib(200)));
        assert_eq!(derived_oom(LIMIT_32, full, 17, 2), 2);
        assert_eq!(
            derived_oom(LIMIT_32, full, 0, 2),
            0,
            "the limit was never reached"
        );
        assert_eq!(
            derived_oom(LIMIT_32, Some(Bytes::from_mib(20)), 17, 2),
            0,
            "the peak is far below the limit"
        );
        assert_eq!(derived_oom(None, full, 17, 2), 0, "there is no limit");
    }

    #[test]
    fn the_local_events_of_a_directory_are_read() {
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
