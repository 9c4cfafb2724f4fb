//! Number of a node in the indexes of the scheduler.
//!
//! `FreeIndex` gives the numbers out. A number is never given to a second node. The ledger opens the
//! accounts of nodes in the same order, so a number is also the row of an account.

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
    /// The number as an integer.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
    /// Creates the number of a node; only the index, the ledger and tests do.
    pub(crate) fn of(n: u32) -> Self {
        NodeNumber(n)
    }
}
