//! Number of a node in the indexes of the scheduler.
//!
//! `FreeIndex` gives the numbers out. A number is never given to a second node.

/// Number of a node. Dense, from 0; never given to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(u32);

impl NodeNumber {
    /// Number of the first node.
    pub(crate) const FIRST: NodeNumber = NodeNumber(0);

    /// Index into tables by node.
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
    /// Creates the number of a node; only the index and tests do.
    pub(super) fn of(n: u32) -> Self {
        NodeNumber(n)
    }
}
