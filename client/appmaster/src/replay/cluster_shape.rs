//! The number and size of the nodes of a replay. Plain data from the caller.

use headroom_types::Bytes;

/// The nodes of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterShape {
    /// Number of nodes.
    pub nodes: usize,
    /// Processors of each node.
    pub cpus: u32,
    /// Memory of each node.
    pub memory: Bytes,
}

impl Default for ClusterShape {
    fn default() -> Self {
        ClusterShape {
            nodes: 8,
            cpus: 32,
            memory: Bytes::from_gib(128),
        }
    }
}
