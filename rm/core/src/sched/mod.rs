//! Scheduler: which waiter gets a container, and on which node.
//!
//! Event-driven: a pass runs when resources became free or a new request arrived, never on a timer.

pub mod blocked_sizes;
pub mod claim;
mod claim_lifecycle;
pub mod constraint;
pub mod container_locations;
pub mod fit;
mod free_memory_index;
pub mod index;
pub mod limits;
pub mod locality;
pub mod node_ix;
mod pass;
mod preempt;
#[cfg(any(test, feature = "testkit"))]
mod reference_pass;
#[cfg(any(test, feature = "testkit"))]
mod reference_placement;
pub mod reservation;
pub(crate) mod reserve;
pub mod scheduler_state;

pub(crate) use pass::{GrantBlock, QueueAttempt, grant_block};
