//! Placement: which of those that wait gets a container, and where.
//!
//! Event-driven: a pass runs when something became free or somebody new asks, never on a timer.

pub mod fit;
pub mod index;
pub mod order;
mod pass;

pub(crate) use pass::{Held, need};
