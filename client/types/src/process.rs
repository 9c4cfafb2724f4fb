//! Memory of one process, divided by its mappings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// Resident memory of one process by purpose. Bytes unless stated otherwise. The division follows
/// the shape of the mappings: `arenas`, `stacks` and `other` are estimates, `file` and `shmem` are
/// exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessMemory {
    /// Process id on its node.
    pub pid: i32,
    /// Memory of the whole cgroup at the same moment.
    pub current: Bytes,
    /// Arenas of the native allocator besides its main heap; a count.
    pub arena_count: u32,
    /// Resident memory of these arenas.
    pub arenas: Bytes,
    /// The main heap of the native allocator (`brk`).
    pub brk: Bytes,
    /// Thread stacks; a count.
    pub stack_count: u32,
    /// Resident memory of these stacks.
    pub stacks: Bytes,
    /// Executable anonymous memory: compiled code.
    pub code: Bytes,
    /// All other anonymous memory: a managed heap, large native blocks, direct buffers.
    pub other: Bytes,
    /// Mapped files.
    pub file: Bytes,
    /// Shared memory and mapped files of tmpfs.
    pub shmem: Bytes,
    /// Open sockets; a count.
    pub sockets: u32,
    /// Open pipe ends; a count.
    pub pipes: u32,
}

impl ProcessMemory {
    /// All anonymous memory of the process.
    pub fn anon(&self) -> Bytes {
        [self.arenas, self.brk, self.stacks, self.code, self.other]
            .into_iter()
            .fold(Bytes::ZERO, Bytes::saturating_add)
    }
}
