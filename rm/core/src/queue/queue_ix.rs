//! Number of a queue in effect.
//!
//! The tree of queues gives the numbers out; the ledger keeps its accounts under them.

/// Number of a queue: the root is 0, and child queues are numbered in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueNumber(u32);

impl QueueNumber {
    /// Root queue.
    pub const ROOT: QueueNumber = QueueNumber(0);

    /// Creates the number of a queue.
    pub const fn new(number: u32) -> Self {
        QueueNumber(number)
    }
    /// Number of the queue.
    pub(super) const fn number(self) -> u32 {
        self.0
    }
    /// Index into a list of queues.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
