//! Configuration and job files: parses TOML text into checked types and reports every error at
//! once.
//!
//! [`toml_reader`] parses text into values with positions. They are compiled into the types of
//! [`checked`] and [`job`]. Only [`load`] reads files. Checked types contain valid values only, so
//! no other crate parses these texts.
//!
//! *Architecture Invariant*: no sockets, no clock, no environment; the same text gives the same
//! result everywhere.

#![forbid(unsafe_code)]

mod aux_services;
pub mod checked;
pub mod compile;
pub mod etcd;
pub mod job;
pub mod load;
mod node;
pub mod node_settings;
pub mod problem;
pub mod queues;
pub mod reference;
pub mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod toml_reader;

pub use aux_services::{AuxServiceConfig, total_memory};
pub use checked::{
    AnonymousAccess, CallerLimits, NodeAgentConfig, ResourceManagerConfig, Scheduling, SelfFence,
};
pub use compile::checked_attribute;
pub use headroom_types::LogLevel;
pub use job::{
    ExecutorProgram, ExecutorSpec, GcLogSetting, GibibyteHours, GrowthSetting, Idempotent,
    InputHosts, InputLocality, InputSizes, JobSpec, LiveJob, MemoryQuantities, Placeholder,
    PlaceholderTemplate, RetrySpec, RuntimeFlags, SizingMode, StageSpec, TaskGroups, TaskLimit,
    TaskRuntime, Treatments,
};
pub use load::{load_job, load_nodeagent, load_resourcemanager};
pub use node_settings::{
    FileCacheLimits, HealthChecks, IdleCpuBound, IpcScope, Isolation, JournalPlace, LogRetention,
    MasterJournals, ObjectUrl, RunAsUser,
};
pub use problem::{FileProblem, FileProblemKind, in_one_line, render};
pub use telemetry::{
    HistoryBounds, JournalLimits, MetricsGranularity, RetentionLimits, Telemetry, UploadLimits,
};
