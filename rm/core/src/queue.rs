//! Queues in effect, and the requests that wait in them.
//!
//! The cluster owns the queues. The tree contains rules and the order of siblings, never
//! quantities: the ledger has those. The order decides which waiter is next; the scheduling pass
//! decides whether it fits.
//!
//! - [`spec`]: queue definitions of an operator; `valid` checks them, and [`QueueTree`] is a
//!   validated tree of them.
//! - [`bound`]: shares and limits as quantities.
//! - [`tree`]: the queues in effect, with each application in its leaf.
//! - [`sibling_order`]: scheduling order of the children of one queue, or of the applications of
//!   one leaf.
//! - [`waits`]: waiting requests of one application.

pub mod bound;
mod queue_ix;
mod queue_tree;
pub mod sibling_order;
pub mod spec;
pub mod tree;
mod valid;
mod waiter;
pub mod waits;

pub use queue_ix::QueueNumber;
pub use queue_tree::QueueTree;
pub use tree::SchedulerQueues;
pub use valid::{MAX_DEPTH, MAX_QUEUES};
pub use waiter::PlacementWaiter;
