//! What the memory of one process was made of, by its mappings.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// The resident memory of one process by what it is for. Told apart by the shape of its mappings, so `arenas`, `stacks` and
/// `other` are estimates; `file` and `shmem` are not. Bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessFacts {
    /// Which process, by its id on its node.
    pub pid: i32,
    /// What its whole cgroup held when this was looked at.
    pub current: Bytes,
    /// Arenas of the native allocator beside its main heap; a count.
    pub arena_count: u32,
    /// Resident in them.
    pub arenas: Bytes,
    /// The main heap of the native allocator (`brk`).
    pub brk: Bytes,
    /// Stacks of threads; a count.
    pub stack_count: u32,
    /// Resident in them.
    pub stacks: Bytes,
    /// Anonymous memory that may be executed: compiled code.
    pub code: Bytes,
    /// All other anonymous memory: a managed heap, large native blocks, direct buffers.
    pub other: Bytes,
    /// Mapped files.
    pub file: Bytes,
    /// Shared memory and mapped files of tmpfs.
    pub shmem: Bytes,
    /// Open sockets; a count.
    pub sockets: u32,
    /// Open ends of pipes; a count.
    pub pipes: u32,
}

impl ProcessFacts {
    /// All anonymous memory of the process.
    pub fn anon(&self) -> Bytes {
        [self.arenas, self.brk, self.stacks, self.code, self.other].into_iter().fold(Bytes::ZERO, Bytes::saturating_add)
    }
}
