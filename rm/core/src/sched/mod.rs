//! Scheduler: which waiter gets a container, and on which node.
//!
//! Event-driven: a pass runs when resources became free or a new request arrived, never on a timer.

pub mod claim;
pub mod constraint;
pub mod fit;
pub mod index;
pub mod limits;
pub mod locality;
#[cfg(test)]
mod reference;
pub mod blocked_sizes;
mod pass;
mod preempt;
pub mod reserve;
mod free_memory_index;

pub(crate) use pass::{GrantBlock, part};
