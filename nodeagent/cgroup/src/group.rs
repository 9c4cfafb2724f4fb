//! One group: a container's or a task's, whatever holds its limits.
//!
//! Owned by the agent (containers) and by the executor (tasks). Dropping a `Group` changes nothing in the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_types::exit::{GroupFacts, MemoryStat, Victim};
use headroom_types::{Bytes, EnforcerKind};

use crate::error::Result;
use crate::plan::Limits;

/// A container group or a task group.
#[derive(Debug)]
pub struct Group;

#[allow(missing_docs, unused_variables)]
impl Group {
    /// The group at `path`, made by somebody else: an executor's own container, from `HEADROOM_CGROUP`.
    /// For `Poll` the path does not matter and the group is the caller's own process tree.
    pub fn attach(kind: EnforcerKind, path: &Path) -> Result<Group> {
        unimplemented!()
    }
    pub fn kind(&self) -> EnforcerKind {
        unimplemented!()
    }
    /// Last component of the name: container id or task name (without `task-`).
    pub fn name(&self) -> &str {
        unimplemented!()
    }
    pub fn path(&self) -> Option<&Path> {
        unimplemented!()
    }
    /// Poll only (others ignore it): the process whose tree is the group.
    pub fn set_root_pid(&self, pid: i32) {
        unimplemented!()
    }
    pub fn procs_files(&self) -> Vec<PathBuf> {
        unimplemented!()
    }
    /// The files from whose texts `facts_from_texts` makes facts without the group: for the shim's exit record.
    pub fn counter_files(&self) -> Vec<PathBuf> {
        unimplemented!()
    }
    /// Facts from raw texts of `counter_files` read by somebody else (the shim, right after the end). `None`: no counter among them.
    pub fn facts_from_texts(kind: EnforcerKind, texts: &[(PathBuf, String)]) -> Option<GroupFacts> {
        unimplemented!()
    }
    pub fn facts(&self) -> Result<GroupFacts> {
        unimplemented!()
    }
    pub fn sample(&self) -> Result<(Bytes, MemoryStat)> {
        unimplemented!()
    }
    pub fn pids(&self) -> Result<Vec<i32>> {
        unimplemented!()
    }
    pub fn largest(&self, n: usize) -> Vec<Victim> {
        unimplemented!()
    }
    pub fn set_memory(&self, limit: Bytes) -> Result<()> {
        unimplemented!()
    }
    pub fn kill(&self) -> Result<()> {
        unimplemented!()
    }
    pub fn populated(&self) -> Result<bool> {
        unimplemented!()
    }
    pub fn create_task(&self, name: &str, limits: &Limits) -> Result<Group> {
        unimplemented!()
    }
    pub fn tasks(&self) -> Result<Vec<(String, Group)>> {
        unimplemented!()
    }
    pub fn remove(&self, deadline: Duration) -> Result<()> {
        unimplemented!()
    }
}
