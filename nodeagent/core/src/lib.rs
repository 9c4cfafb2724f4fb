//! The node agent's pure core: what a container's life is, what to do next, why it ended, what would cure it.
//!
//! *Architecture Invariant*: values in, values out. No clock, no file, no socket, no hash order; time and facts are arguments. It
//! does not know the messages on the wire either: the agent translates.

#![forbid(unsafe_code)]

pub mod agent;
pub mod classify;
pub mod container;
pub mod diagnose;
pub mod fence;
pub mod gclog;
pub mod hsperf;
pub mod leftover;
pub mod maps;
pub mod marker;
pub mod own_limits;
pub mod size;
pub mod stall;
pub mod starved;
pub mod sync;
pub mod timeline;

pub use agent::Agent;
pub use classify::{Scope, Verdict, classify};
pub use diagnose::diagnose;
pub use own_limits::OwnLimits;
pub use timeline::Timeline;
