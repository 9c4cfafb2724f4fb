//! A named, immutable size: heap and overhead as two quantities, and processors.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Bytes, Cpus, Resource};

/// The size of a container or of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Heap budget of a runtime that manages its own memory (`-Xmx`); anonymous memory of a native
    /// program. Bytes.
    pub heap: Bytes,
    /// All other memory that is charged to the cgroup. Bytes.
    pub overhead: Bytes,
    /// Processors, cores.
    pub cpus: Cpus,
}

impl Profile {
    /// The limit that the kernel enforces: heap + overhead.
    pub fn memory(&self) -> Bytes {
        self.heap.saturating_add(self.overhead)
    }
    /// The resources that the scheduler places.
    pub fn resource(&self) -> Resource {
        Resource::new(self.memory(), self.cpus)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overhead.is_zero() {
            return write!(f, "{}", self.memory());
        }
        write!(
            f,
            "{} (heap {} + {})",
            self.memory(),
            self.heap,
            self.overhead
        )
    }
}
