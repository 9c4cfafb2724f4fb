//! Queues in effect, and the requests that wait in them.
//!
//! The cluster owns the queues. The tree contains rules and the order of siblings, never
//! quantities: the ledger has those. The order decides which waiter is next; the scheduling pass
//! decides whether it fits.
//!
//! - [`spec`]: queue definitions of an operator; `valid` checks them.
//! - [`bound`]: shares and limits as quantities.
//! - [`tree`]: the queues in effect, with each application in its leaf.
//! - [`seats`]: scheduling order of the children of one queue, or of the applications of one leaf.
//! - [`waits`]: waiting requests of one application.

pub mod bound;
pub mod sibling_order;
pub mod spec;
pub mod tree;
mod valid;
pub mod waits;

use headroom_types::{AppId, RequestId};

pub use tree::{QueueIx, Queues};
pub use valid::{MAX_DEPTH, MAX_QUEUES};

/// A waiting request or master.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    /// The application.
    pub app: AppId,
    /// The request; `None` for the master.
    pub request: Option<RequestId>,
}
