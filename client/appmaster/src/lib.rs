//! The application master of one job: its tasks, its executors, and the policy for failures.
//!
//! [`core`] is a value that processes events and returns effects; [`policy`] decides on ended
//! attempts; [`session`] is the session with the resource manager, a state machine too. The driver
//! consists of the [`journal`], the [`executor_link`], the [`rm_link`], and the loop of [`run`]
//! that owns the core and the session.

#![forbid(unsafe_code)]

mod channel_lines;
pub mod core;
mod driver;
pub mod event;
pub mod executor_link;
pub mod executors;
mod first_line;
mod job_journal;
pub mod journal;
mod journal_error;
mod journal_tail;
pub mod ledger;
mod manager_journal;
mod object_journal;
mod object_log;
pub mod output;
pub mod policy;
pub mod record;
mod remote_journal;
pub mod replay;
pub mod rm_link;
pub mod run;
mod run_error;
mod runtime;
pub mod session;
pub mod shared_journal;
pub mod spec;
mod stop_request;
mod submission_limits;
pub mod submitter_link;
pub mod taskset;
pub mod traces;

pub use core::{MasterCore, MasterSetup};
