//! System calls about processes that both the shims and the other programs of a node need.
//!
//! *Architecture Invariant*: no dependencies but libc, because one shim stays resident for each
//! container. It has no knowledge of cgroups, except that a child is cloned into one of them.

// Unsafe code is the purpose of this crate; each block states why it is sound.
#![allow(unsafe_code)]

pub mod clone_into_cgroup;
pub mod fd_passing;
pub mod memory_sharing_child;
pub mod procstat;
pub mod program_texts;
