//! Placement: which of those that wait gets a container, and where.
//!
//! Event-driven: a pass runs when something became free or somebody new asks, never on a timer.

pub mod claim;
pub mod constraint;
pub mod fit;
pub mod index;
pub mod limits;
pub mod locality;
#[cfg(test)]
mod naive;
pub mod order;
mod pass;
mod preempt;
pub mod reserve;
mod shelf;

pub(crate) use pass::{Held, part};
