//! What the tests of the whole house stand on: guests with a kernel of their own, clusters of real daemons, the built programs.
//!
//! Owned by the tests in `tests/` and by `measure`. Never part of what is shipped, and never imported by another crate.

#![forbid(unsafe_code)]

pub mod browser;
pub mod clock;
pub mod cluster;
pub mod fault;
pub mod fleet;
pub mod guest;
pub mod jobs;
pub mod leftovers;
pub mod load;
pub mod lone;
pub mod many;
pub mod masters;
mod oracle;
pub mod packed;
pub mod papers;
pub mod programs;
pub mod provoke;
pub mod scenario;
pub mod skew;
pub mod source_metrics;
pub mod sweep;
pub mod treatments;
pub mod typed;
pub mod verdicts;
pub mod world;
