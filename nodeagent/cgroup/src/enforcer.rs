//! What holds containers to their limits on this host.
//!
//! Owned by the node agent: one for its whole life.

use std::path::PathBuf;
use std::time::Duration;

use headroom_types::exit::{GroupFacts, MemoryEvents};
use headroom_types::{Bytes, EnforcerKind};

use crate::error::Result;
use crate::group::Group;
use crate::plan::Limits;
use crate::{poll, procs, v1, v2};

/// How long a removed root may take to become empty.
const EMPTY: Duration = Duration::from_secs(5);

/// The enforcer of this host.
#[derive(Debug)]
pub enum Enforcer {
    /// cgroup v2.
    Cgroup2(v2::V2),
    /// cgroup v1.
    Cgroup1(v1::V1),
    /// Measured and killed by the agent; not enforced by the kernel.
    Poll(poll::Poll),
}

impl Enforcer {
    /// Which kind.
    pub fn kind(&self) -> EnforcerKind {
        match self {
            Enforcer::Cgroup2(_) => EnforcerKind::Cgroup2,
            Enforcer::Cgroup1(_) => EnforcerKind::Cgroup1,
            Enforcer::Poll(_) => EnforcerKind::Poll,
        }
    }

    /// ROOT (v1: in the memory hierarchy), where there is one.
    pub fn root(&self) -> Option<PathBuf> {
        match self {
            Enforcer::Cgroup2(e) => Some(e.root().to_owned()),
            Enforcer::Cgroup1(e) => Some(e.root().to_owned()),
            Enforcer::Poll(_) => None,
        }
    }

    /// The limit of all containers together. Nothing for poll.
    pub fn set_fence(&self, offers: Bytes) -> Result<()> {
        match self {
            Enforcer::Cgroup2(e) => e.fence()?.set_memory(offers),
            Enforcer::Cgroup1(e) => e.fence()?.set_memory(offers),
            Enforcer::Poll(_) => Ok(()),
        }
    }

    /// A fresh container group with its `main`. Every limit is read back; a group that cannot get them is removed again.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Group> {
        match self {
            Enforcer::Cgroup2(e) => e.create(name, limits).map(Group::Cgroup2),
            Enforcer::Cgroup1(e) => e.create(name, limits).map(Group::Cgroup1),
            Enforcer::Poll(e) => e.create(name, limits).map(Group::Poll),
        }
    }

    /// A container group that is there already, for adoption. For poll: an empty one; name its root process next.
    pub fn open(&self, name: &str) -> Result<Option<Group>> {
        match self {
            Enforcer::Cgroup2(e) => Ok(e.open(name)?.map(Group::Cgroup2)),
            Enforcer::Cgroup1(e) => Ok(e.open(name)?.map(Group::Cgroup1)),
            Enforcer::Poll(e) => e.create(name, &Limits::default()).map(|g| Some(Group::Poll(g))),
        }
    }

    /// Names of all container groups. None for poll.
    pub fn list(&self) -> Result<Vec<String>> {
        match self {
            Enforcer::Cgroup2(e) => e.list(),
            Enforcer::Cgroup1(e) => e.list(),
            Enforcer::Poll(_) => Ok(Vec::new()),
        }
    }

    /// Limit and own counters of the fence; cheap as long as its limit was never hit. Nothing for poll.
    pub fn fence_level(&self) -> Result<(Option<Bytes>, MemoryEvents)> {
        match self {
            Enforcer::Cgroup2(e) => e.fence()?.level(),
            Enforcer::Cgroup1(e) => e.fence()?.level(),
            Enforcer::Poll(_) => Ok((None, MemoryEvents::default())),
        }
    }

    /// Memory charged to the fence that no container's group holds and that reclaim cannot give back, from `floor` on: a lower bound. `None`
    /// for poll.
    pub fn unattributed(&self, floor: Bytes) -> Result<Option<Bytes>> {
        match self {
            Enforcer::Cgroup2(e) => e.fence()?.unattributed(floor).map(Some),
            Enforcer::Cgroup1(e) => e.fence()?.unattributed(floor).map(Some),
            Enforcer::Poll(_) => Ok(None),
        }
    }

    /// Counters of the fence. All zero for poll.
    pub fn fence_facts(&self) -> Result<GroupFacts> {
        match self {
            Enforcer::Cgroup2(e) => e.fence()?.facts(),
            Enforcer::Cgroup1(e) => e.fence()?.facts(),
            Enforcer::Poll(_) => Ok(GroupFacts::default()),
        }
    }

    /// Processes the host's kernel has killed for memory. With cgroups: since boot, whatever the reason, for the cgroup's own counters
    /// tell who was hit. Without: since this enforcer was made, and only those for want of memory on the host itself.
    pub fn host_oom_kills(&self) -> Option<u64> {
        match self {
            Enforcer::Cgroup2(_) | Enforcer::Cgroup1(_) => procs::host_oom_kills(),
            Enforcer::Poll(e) => e.host_oom_kills(),
        }
    }

    /// Counters of ROOT and of the levels above it: the limit of a unit or of a container in which the whole node lives. v2 only: v1 does not
    /// count it, and without cgroups there is nobody to ask.
    pub fn above(&self) -> Option<MemoryEvents> {
        match self {
            Enforcer::Cgroup2(e) => e.above(),
            Enforcer::Cgroup1(_) | Enforcer::Poll(_) => None,
        }
    }

    /// Whether the directory of all containers is still there. It goes with the unit it is in, when all that was in it was killed.
    pub fn has_home(&self) -> bool {
        match self {
            Enforcer::Cgroup2(e) => e.has_home(),
            Enforcer::Cgroup1(e) => e.has_home(),
            Enforcer::Poll(_) => true,
        }
    }

    /// Files a shim is put in by, so that it is never charged to a container. None for poll.
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        match self {
            Enforcer::Cgroup2(e) => e.shim_procs_files(),
            Enforcer::Cgroup1(e) => e.shim_procs_files(),
            Enforcer::Poll(_) => Vec::new(),
        }
    }

    /// Ends everything and removes what was made: the clean-up of development and tests.
    pub fn remove_root(&self) -> Result<()> {
        match self {
            Enforcer::Cgroup2(e) => e.remove_root(EMPTY),
            Enforcer::Cgroup1(e) => e.remove_root(EMPTY),
            Enforcer::Poll(_) => Ok(()),
        }
    }
}
