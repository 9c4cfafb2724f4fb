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
pub mod node;
pub mod problem;
pub mod queues;
pub mod raw;
pub mod reference;
pub mod telemetry;

pub use checked::{Anonymous, Limits, NodeAgentConfig, ResourceManagerConfig, Scheduling, SelfFence};
pub use compile::checked_attribute;
pub use headroom_types::LogLevel;
pub use job::{
    ExecutorProgram, ExecutorSpec, Flags, GcLog, GibHours, GrowSpec, Idempotent, Input, InputHosts, InputLocality, JobSpec,
    Memory, Placeholder, RetrySpec, Runtime, Sizes, StageSpec, TaskGroups, TaskLimit, Template, Treatments,
};
pub use load::{load_job, load_nodeagent, load_resourcemanager};
pub use node::{Cache, CpuBound, HealthChecks, IpcScope, Isolation, Logs, RunAs};
pub use problem::{Problem, render};
pub use telemetry::{Cardinality, HistoryBounds, Kept, Telemetry};
