//! The queues in force, and who waits in them.
//!
//! Owned by the cluster. The tree holds rules and seats, never quantities: those are the ledger's. Who is served next follows from
//! the seats; whether there is room for him is the pass's business.
//!
//! - [`spec`]: what an operator writes; `valid` says what is wrong with it.
//! - [`bound`]: shares and limits as quantities.
//! - [`tree`]: the queues in force, each application in its leaf.
//! - [`seats`]: the order in which the children of one queue, or the applications of one leaf, are served.
//! - [`waits`]: what one application waits for.

pub mod bound;
pub mod seats;
pub mod spec;
pub mod tree;
mod valid;
pub mod waits;

use headroom_types::{AppId, RequestId};

pub use tree::{QueueIx, Queues};
pub use valid::{MAX_DEPTH, MAX_QUEUES};

/// Who waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    /// Whose.
    pub app: AppId,
    /// Which request; `None` for the master.
    pub request: Option<RequestId>,
}
