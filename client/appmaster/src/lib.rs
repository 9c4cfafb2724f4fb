//! The application master: keeps the tasks of one job, the executors they run in, and the policy that answers their failures.
//!
//! [`core`] is a value that takes events and gives effects; [`policy`] decides what becomes of a task. Around them: the
//! [`journal`], the [`executor_link`], the [`rm_link`], and the loop of [`run`] that owns the core.

#![forbid(unsafe_code)]

pub mod core;
pub mod event;
pub mod executor_link;
pub mod executors;
pub mod journal;
pub mod ledger;
pub mod output;
pub mod policy;
pub mod record;
pub mod replay;
pub mod rm_link;
pub mod run;
mod runtime;
mod shell;
pub mod spec;
pub mod taskset;
pub mod traces;

pub use core::{Core, Setup};
