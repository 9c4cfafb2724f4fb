//! What holds containers to their limits on this host.
//!
//! Owned by the node agent: one for its whole life.

use std::path::PathBuf;

use headroom_types::exit::GroupFacts;
use headroom_types::{Bytes, EnforcerKind};

use crate::error::Result;
use crate::group::Group;
use crate::plan::Limits;

/// The enforcer of this host.
#[derive(Debug)]
pub struct Enforcer;

#[allow(missing_docs, unused_variables)]
impl Enforcer {
    pub fn kind(&self) -> EnforcerKind {
        unimplemented!()
    }
    /// ROOT, where there is one.
    pub fn root(&self) -> Option<PathBuf> {
        unimplemented!()
    }
    pub fn set_fence(&self, offers: Bytes) -> Result<()> {
        unimplemented!()
    }
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Group> {
        unimplemented!()
    }
    pub fn open(&self, name: &str) -> Result<Option<Group>> {
        unimplemented!()
    }
    pub fn list(&self) -> Result<Vec<String>> {
        unimplemented!()
    }
    pub fn fence_facts(&self) -> Result<GroupFacts> {
        unimplemented!()
    }
    pub fn host_oom_kills(&self) -> Option<u64> {
        unimplemented!()
    }
    pub fn shim_procs_files(&self) -> Vec<PathBuf> {
        unimplemented!()
    }
    pub fn remove_root(&self) -> Result<()> {
        unimplemented!()
    }
}
