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

mod counters;
mod group;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::error::Result;
use crate::layout::{CONTAINERS, MAIN, SHIMS, TASKS, checked};
use crate::plan::{GroupLimits, v1_cpu_shares, v1_pids};
use crate::procs;
use crate::tree::CgroupDir;
use group::{V1GroupRole, set_limits};

pub use counters::{SLACK, facts_from, local_events};
pub use group::{CgroupV1Group, LimitBehavior};

/// The enforcer of a v1 host.
#[derive(Debug)]
pub struct CgroupV1Enforcer {
    root: CgroupDir,
    containers: CgroupDir,
    shims: CgroupDir,
    pids: Option<MirroredHierarchy>,
    cpu: Option<MirroredHierarchy>,
    /// `oom_kill` of removed groups.
    retired: Arc<AtomicU64>,
}

/// The same tree in the hierarchy of another controller.
#[derive(Debug)]
pub struct MirroredHierarchy {
    root: CgroupDir,
    containers: CgroupDir,
    shims: CgroupDir,
}

impl CgroupV1Enforcer {
    /// Creates `memory`, if necessary, and the directories below it. `pids` and `cpu` are its
    /// mirrors, where they exist.
    pub fn prepare(
        memory: &Path,
        pids: Option<MirroredHierarchy>,
        cpu: Option<MirroredHierarchy>,
    ) -> Result<CgroupV1Enforcer> {
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
        Ok(CgroupV1Enforcer {
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

    /// The fence as a group. It has no `main`.
    pub fn fence(&self) -> Result<CgroupV1Group> {
        let dir = CgroupDir::open(self.containers.path())?;
        Ok(CgroupV1Group {
            dir,
            role: V1GroupRole::Fence,
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
            role: V1GroupRole::Container,
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
        let mirrored = |tree: &Option<MirroredHierarchy>| {
            tree.as_ref()
                .map_or(Ok(None), |tree| tree.containers.child(name))
        };
        let (pids, cpu) = (mirrored(&self.pids)?, mirrored(&self.cpu)?);
        Ok(Some(CgroupV1Group {
            dir,
            role: V1GroupRole::Container,
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

    fn mirrors(&self) -> impl Iterator<Item = &MirroredHierarchy> {
        self.pids.iter().chain(&self.cpu)
    }
}

impl MirroredHierarchy {
    /// Creates the directories below `path`, and `path` itself if necessary.
    pub fn prepare(path: &Path) -> Result<MirroredHierarchy> {
        let root = ensure_path(path)?;
        let (containers, shims) = (root.ensure(CONTAINERS)?, root.ensure(SHIMS)?);
        Ok(MirroredHierarchy {
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
