//! Counters of the levels around all containers.

use headroom_node_cgroup::Enforcer;
use headroom_types::Bytes;
use headroom_types::exit::MemoryEvents;

/// Counters of the levels around the containers at one moment.
#[derive(Clone, Debug)]
pub(crate) struct OuterCounters {
    /// Limit and events of the fence, or why they cannot be read.
    pub(crate) fence: Result<(Option<Bytes>, MemoryEvents), String>,
    /// Events above the fence.
    pub(crate) above: Option<MemoryEvents>,
    /// Kills by the kernel on the whole host.
    pub(crate) host_oom_kills: Option<u64>,
}

impl OuterCounters {
    /// Reads all of them. Blocking.
    pub(crate) fn read(enforcer: &Enforcer) -> Self {
        OuterCounters {
            fence: enforcer.fence_level().map_err(|error| error.to_string()),
            above: enforcer.above(),
            host_oom_kills: enforcer.host_oom_kills(),
        }
    }
}
