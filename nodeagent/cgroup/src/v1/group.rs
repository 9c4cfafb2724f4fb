//! The group of a container or a task in the v1 memory hierarchy, with its mirrors for pids and
//! cpu.
//!
//! [`CgroupV1Enforcer`](super::CgroupV1Enforcer) creates the groups of containers; a group creates
//! those of its tasks. Dropping a group changes nothing in the kernel.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_types::Bytes;
use headroom_types::exit::{CgroupStats, MemoryEvents, MemoryStat};

use super::counters::{
    FAILCNT, KERNEL, LIMIT, OOM, PEAK, STAT, USAGE, derived_oom, facts_from, local_events, stat,
};
use crate::error::{CgroupError, Result};
use crate::layout::{MAIN, PROCS, TASK_NAME, TASK_PREFIX, TASKS, task_dir};
use crate::parse;
use crate::plan::{Direction, GroupLimits, v1_cpu_shares, v1_memory, v1_pids};
use crate::probe::UsageProbe;
use crate::procs;
use crate::tree::CgroupDir;
use crate::unattributed::{self, ChargedMemory};

/// Sets the memory limit of a new group.
pub(super) fn set_limits(dir: &CgroupDir, limits: &GroupLimits) -> Result<()> {
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
pub(super) enum V1GroupRole {
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
    pub(super) dir: CgroupDir,
    pub(super) role: V1GroupRole,
    pub(super) name: String,
    pub(super) pids: Option<CgroupDir>,
    pub(super) cpu: Option<CgroupDir>,
    pub(super) retired: Arc<AtomicU64>,
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
            Some(task) => (V1GroupRole::Task, task),
            None => (V1GroupRole::Container, last),
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
            V1GroupRole::Container => self.dir.path().join(MAIN),
            V1GroupRole::Task | V1GroupRole::Fence => self.dir.path().to_owned(),
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
            V1GroupRole::Container => &[FAILCNT, OOM],
            V1GroupRole::Task | V1GroupRole::Fence => &[],
        };
        let main_dir = self.dir.path().join(MAIN);
        own.iter()
            .map(|f| self.dir.path().join(f))
            .chain(main.iter().map(|f| main_dir.join(f)))
            .collect()
    }

    /// All counters at one moment.
    pub fn facts(&self) -> Result<CgroupStats> {
        if self.role == V1GroupRole::Fence && !self.was_full()? {
            // No kill below can belong to this level. This also avoids reading hundreds of
            // containers.
            return facts_from(self.dir.path(), |file| self.dir.read_if_there(file), &[]);
        }
        let mut below = Vec::new();
        match self.role {
            V1GroupRole::Fence => self.dir.each(&mut |dir| {
                if dir.path() != self.dir.path() {
                    below.push(local_events(|file| dir.read_if_there(file))?);
                }
                Ok(())
            })?,
            V1GroupRole::Container | V1GroupRole::Task => {
                for child in self.dir.children()? {
                    below.push(local_events(|file| {
                        self.dir.read_if_there(&format!("{child}/{file}"))
                    })?);
                }
            }
        }
        let remembered = match self.role {
            V1GroupRole::Fence => self.retired.load(Ordering::Relaxed),
            V1GroupRole::Container | V1GroupRole::Task => 0,
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
            .and_then(parse::CgroupLimitValue::bytes);
        if own.max == 0 {
            return Ok((limit, own));
        }
        match self.role {
            V1GroupRole::Fence => self.facts().map(|facts| (facts.limit, facts.local)),
            V1GroupRole::Container | V1GroupRole::Task => {
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
        let current = CgroupError::bytes_in(self.dir.path(), USAGE, &self.dir.read(USAGE)?)?;
        Ok((current, stat(|file| self.dir.read_if_there(file))?))
    }

    /// Memory that it holds and no child does: see [`crate::unattributed`].
    pub(crate) fn unattributed(&self, floor: Bytes) -> Result<Bytes> {
        unattributed::of_dir(&self.dir, unattributed::CounterFiles::V1, floor)
    }

    /// All memory charged to it.
    pub(crate) fn usage(&self) -> Result<Bytes> {
        unattributed::usage(&self.dir, unattributed::CounterFiles::V1)
    }

    /// The memory charged to it, by kind.
    pub(crate) fn charged(&self) -> Result<ChargedMemory> {
        unattributed::charged(&self.dir, unattributed::CounterFiles::V1)
    }

    /// The open files of a sample.
    pub fn probe(&self) -> Result<UsageProbe> {
        UsageProbe::v1(
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
        let now = parse::limit(&self.dir.read(LIMIT)?).and_then(parse::CgroupLimitValue::bytes);
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

    /// Lets the peak begin at the present use.
    pub fn reset_peak(&self) -> Result<()> {
        self.dir.write(PEAK, "0")
    }

    /// Sends SIGKILL to all processes until none is left. Forks are forbidden first where pids is
    /// available.
    pub fn kill(&self) -> Result<()> {
        self.forbid_forks();
        procs::kill_all(
            &self.dir.path().display().to_string(),
            procs::KILL_TIMEOUT,
            || self.dir.pids(),
        )
    }

    /// Sends SIGKILL to all processes, and waits for none.
    pub fn send_kill(&self) -> Result<()> {
        self.forbid_forks();
        procs::signal_members(&self.dir.pids()?, || self.dir.pids()).map(drop)
    }

    fn forbid_forks(&self) {
        if let Some(pids) = &self.pids
            && let Err(e) = pids.write("pids.max", "0")
        {
            tracing::debug!(error = %e, "cannot limit the number of processes before the kill, ignoring");
        }
    }

    /// Creates the group of a task, next to `main`.
    pub fn create_task(&self, name: &str, limits: &GroupLimits) -> Result<CgroupV1Group> {
        let made = task_dir(name)?;
        let dir = self.dir.make(&made)?;
        let mut task = CgroupV1Group {
            dir,
            role: V1GroupRole::Task,
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
    pub fn tasks(&self) -> Result<Vec<(String, CgroupV1Group)>> {
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
            let pids = self
                .pids
                .as_ref()
                .map(|p| p.child(&made))
                .transpose()?
                .flatten();
            let task = CgroupV1Group {
                dir,
                role: V1GroupRole::Task,
                name: name.clone(),
                pids,
                cpu: None,
                retired: Arc::clone(&self.retired),
            };
            found.push((name, task));
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
        if let (V1GroupRole::Container, Some(main)) = (self.role, self.dir.child(MAIN)?) {
            main.remove(within)?;
        }
        self.dir.remove(within)?;
        self.retired.fetch_add(kills, Ordering::Relaxed);
        mirror
    }
}
