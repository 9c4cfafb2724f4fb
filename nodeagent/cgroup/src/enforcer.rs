//! The enforcer of this host, which holds containers to their limits.
//!
//! The node agent owns one enforcer from its start to its end.

use std::path::PathBuf;
use std::time::Duration;

use headroom_types::exit::{CgroupStats, MemoryEvents};
use headroom_types::{Bytes, EnforcerKind};

use crate::error::Result;
use crate::group::EnforcedGroup;
use crate::plan::GroupLimits;
use crate::{poll, procs, v1, v2};

/// Maximum time until a removed root is empty.
const EMPTY: Duration = Duration::from_secs(5);

/// The enforcer of this host.
#[derive(Debug)]
pub enum Enforcer {
    /// cgroup v2.
    Cgroup2(v2::CgroupV2Enforcer),
    /// cgroup v1.
    Cgroup1(Box<v1::CgroupV1Enforcer>),
    /// Measured and killed by the agent; the kernel does not enforce it.
    Poll(poll::PollEnforcer),
}

impl Enforcer {
    /// The kind.
    pub fn kind(&self) -> EnforcerKind {
        match self {
            Enforcer::Cgroup2(_) => EnforcerKind::Cgroup2,
            Enforcer::Cgroup1(_) => EnforcerKind::Cgroup1,
            Enforcer::Poll(_) => EnforcerKind::Poll,
        }
    }

    /// The root directory (v1: in the memory hierarchy); `None` for poll.
    pub fn root(&self) -> Option<PathBuf> {
        by_kind!(Enforcer, self, e => Some(e.root().to_owned()), _ => None)
    }

    /// Sets the limit of all containers together. It has no effect for poll.
    pub fn set_fence(&self, offers: Bytes) -> Result<()> {
        by_kind!(Enforcer, self, e => e.fence()?.set_memory(offers), _ => Ok(()))
    }

    /// Creates a container group with its `main`. Every limit is read back; a group without its
    /// limits is removed again.
    pub fn create(&self, name: &str, limits: &GroupLimits) -> Result<EnforcedGroup> {
        match self {
            Enforcer::Cgroup2(e) => e.create(name, limits).map(EnforcedGroup::Cgroup2),
            Enforcer::Cgroup1(e) => e.create(name, limits).map(EnforcedGroup::Cgroup1),
            Enforcer::Poll(e) => e.create(name, limits).map(EnforcedGroup::Poll),
        }
    }

    /// Opens an existing container group, for adoption. Poll returns an empty group, whose root
    /// process the caller sets next.
    pub fn open(&self, name: &str) -> Result<Option<EnforcedGroup>> {
        match self {
            Enforcer::Cgroup2(e) => Ok(e.open(name)?.map(EnforcedGroup::Cgroup2)),
            Enforcer::Cgroup1(e) => Ok(e.open(name)?.map(EnforcedGroup::Cgroup1)),
            Enforcer::Poll(e) => e
                .create(name, &GroupLimits::default())
                .map(|g| Some(EnforcedGroup::Poll(g))),
        }
    }

    /// Names of all container groups; empty for poll.
    pub fn list(&self) -> Result<Vec<String>> {
        by_kind!(Enforcer, self, e => e.list(), _ => Ok(Vec::new()))
    }

    /// Limit and own counters of the fence; cheap while its limit was never hit. Empty for poll.
    pub fn fence_level(&self) -> Result<(Option<Bytes>, MemoryEvents)> {
        by_kind!(Enforcer, self, e => e.fence()?.level(), _ => Ok((None, MemoryEvents::default())))
    }

    /// Memory that is charged to the fence but to no container, and that reclaim cannot free. It is
    /// a lower bound, and zero below `floor`. `None` for poll.
    pub fn unattributed(&self, floor: Bytes) -> Result<Option<Bytes>> {
        by_kind!(Enforcer, self, e => e.fence()?.unattributed(floor).map(Some), _ => Ok(None))
    }

    /// All memory that is charged to the fence. `None` for poll.
    pub fn fence_usage(&self) -> Result<Option<Bytes>> {
        by_kind!(Enforcer, self, e => e.fence()?.usage().map(Some), _ => Ok(None))
    }

    /// All memory that is charged to a container group; zero when there is none, and for poll.
    pub fn usage(&self, name: &str) -> Result<Bytes> {
        by_kind!(Enforcer, self, e => e.open(name)?.map_or(Ok(Bytes::ZERO), |g| g.usage()), _ => Ok(Bytes::ZERO))
    }

    /// Counters of the fence; all zero for poll.
    pub fn fence_facts(&self) -> Result<CgroupStats> {
        by_kind!(Enforcer, self, e => e.fence()?.facts(), _ => Ok(CgroupStats::default()))
    }

    /// Processes that the kernel of the host killed for memory. With cgroups it counts all kills
    /// since boot, because the counters of the cgroups identify their victims. Without cgroups it
    /// counts the kills for lack of memory on the host itself, since this enforcer was created.
    pub fn host_oom_kills(&self) -> Option<u64> {
        by_kind!(Enforcer, self, _e => procs::host_oom_kills(), e => e.host_oom_kills())
    }

    /// Counters of ROOT and of the levels above it, such as the limit of a unit or container around
    /// the whole node. `None` for v1, which does not count them, and for poll.
    pub fn above(&self) -> Option<MemoryEvents> {
        match self {
            Enforcer::Cgroup2(e) => e.above(),
            Enforcer::Cgroup1(_) | Enforcer::Poll(_) => None,
        }
    }

    /// Whether the directory of all containers still exists. systemd removes it with its unit when
    /// all processes in it were killed.
    pub fn has_containers_dir(&self) -> bool {
        by_kind!(Enforcer, self, e => e.has_home(), _ => true)
    }

    /// Files that move a shim into its own group, so that it is never charged to a container. None
    /// for poll.
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        by_kind!(Enforcer, self, e => e.shim_procs_files(), _ => Vec::new())
    }

    /// Kills all processes and removes all groups, to clean up after development and tests.
    pub fn remove_root(&self) -> Result<()> {
        by_kind!(Enforcer, self, e => e.remove_root(EMPTY), _ => Ok(()))
    }
}
