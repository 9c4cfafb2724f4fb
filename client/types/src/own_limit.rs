//! Limits that a program or its command sets for itself below the limit of its container.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// A limit that the program, its command or its job file sets by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct OwnLimit {
    /// The limited quantity and the setting that limits it.
    pub kind: OwnLimitKind,
    /// The limit. Bytes.
    pub value: Bytes,
}

/// The quantity that a manual limit bounds, and the setting.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OwnLimitKind {
    /// Address space of a process: `RLIMIT_AS`, `ulimit -v`.
    AddressSpace,
    /// Private writable memory of a process: `RLIMIT_DATA`, `ulimit -d`.
    Data,
    /// The heap of a JVM: `-Xmx`.
    JvmHeap,
    /// The heap of Node.js: `--max-old-space-size`.
    NodeHeap,
    /// Target of the collector of a Go program: `GOMEMLIMIT`.
    GoMemory,
    /// Direct buffers of a JVM: `-XX:MaxDirectMemorySize`.
    DirectMemory,
    /// Class metadata of a JVM: `-XX:MaxMetaspaceSize`.
    Metaspace,
    /// Compiled code of a JVM: `-XX:ReservedCodeCacheSize`.
    CodeCache,
    /// A kind that this reader does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl OwnLimitKind {
    /// The setting as users write it.
    pub fn setting(self) -> &'static str {
        match self {
            OwnLimitKind::AddressSpace => "ulimit -v (RLIMIT_AS)",
            OwnLimitKind::Data => "ulimit -d (RLIMIT_DATA)",
            OwnLimitKind::JvmHeap => "-Xmx",
            OwnLimitKind::NodeHeap => "--max-old-space-size",
            OwnLimitKind::GoMemory => "GOMEMLIMIT",
            OwnLimitKind::DirectMemory => "-XX:MaxDirectMemorySize",
            OwnLimitKind::Metaspace => "-XX:MaxMetaspaceSize",
            OwnLimitKind::CodeCache => "-XX:ReservedCodeCacheSize",
            OwnLimitKind::Unknown => "a limit of its own",
        }
    }
    /// True for limits that the kernel enforces on a process.
    pub fn is_rlimit(self) -> bool {
        match self {
            OwnLimitKind::AddressSpace | OwnLimitKind::Data => true,
            OwnLimitKind::JvmHeap
            | OwnLimitKind::NodeHeap
            | OwnLimitKind::GoMemory
            | OwnLimitKind::DirectMemory
            | OwnLimitKind::Metaspace
            | OwnLimitKind::CodeCache
            | OwnLimitKind::Unknown => false,
        }
    }
}

impl fmt::Display for OwnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} = {}", self.kind.setting(), self.value))
    }
}
