//! Scheduler: which waiter gets a container, and on which node.
//!
//! Event-driven: a pass runs when resources became free or a new request arrived, never on a timer.

pub mod blocked_sizes;
pub mod claim;
pub mod constraint;
pub mod fit;
mod free_memory_index;
pub mod index;
pub mod limits;
pub mod locality;
mod pass;
mod preempt;
#[cfg(test)]
mod reference;
pub mod reserve;

pub(crate) use pass::{GrantBlock, part};
