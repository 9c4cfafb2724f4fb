//! Configuration and job files: TOML text to checked types, with every mistake told at once.
//!
//! Text is read by [`raw`] into values that know their place, compiled into the types of [`checked`] and [`job`], and only
//! [`load`] touches a file. A checked value cannot hold nonsense: nothing behind this crate looks at a file's text again.
//!
//! *Architecture Invariant*: no sockets, no clock, no environment; the same text gives the same answer everywhere.

#![forbid(unsafe_code)]

pub mod checked;
pub mod compile;
pub mod job;
pub mod load;
pub mod problem;
pub mod queues;
pub mod raw;

pub use checked::{Limits, NodeAgentConfig, ResourceManagerConfig, SelfFence};
pub use compile::checked_attribute;
pub use job::{ExecutorSpec, Idempotent, JobSpec, Placeholder, RetrySpec, Runtime, StageSpec, TaskLimit, Template};
pub use load::{load_job, load_nodeagent, load_resourcemanager};
pub use problem::{Problem, render};
