//! Test support for the whole repository: guests with their own kernel, clusters of real daemons,
//! and the built programs.
//!
//! The tests in `tests/` and `measure` use it. It is never shipped, and no other crate imports it.

#![forbid(unsafe_code)]

pub mod background;
pub mod browser;
pub mod clock;
pub mod cluster;
pub mod credentials;
pub mod doc_commands;
pub mod fault;
pub mod fleet;
pub mod guest;
pub mod host_tmpfs;
mod invariant_checker;
pub mod jobs;
pub mod leftovers;
pub mod load;
pub mod lost_node;
pub mod managers;
pub mod masters;
pub mod object_store;
pub mod programs;
pub mod provoke;
pub mod python;
pub mod scenario;
pub mod seed_sweep;
pub mod simulation;
pub mod single_agent;
pub mod skew;
pub mod source_metrics;
pub mod spark;
pub mod sweep;
pub mod test_packages;
pub mod treatments;
pub mod verdicts;
