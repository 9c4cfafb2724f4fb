//! The node agent: launches containers, enforces their limits, and explains how they ended.
//!
//! One task, in `run`, owns the whole state. All other code performs one job for it and returns the
//! result as an input. The rules are in `headroom-node-core`, the kernel's files in
//! `headroom-node-cgroup`, processes in `headroom-node-exec`.
//!
//! *Architecture Invariant*: the agent may be killed at any moment. State that must survive is in a
//! file before the agent acts on it, and no container is affected.

#![forbid(unsafe_code)]

mod adopt;
mod agent_loop;
mod cache;
mod clock;
mod collect;
mod crash;
mod descriptors;
mod disk;
pub mod doctor;
mod download;
mod exec;
mod files;
mod garbage_collection;
mod health;
mod host;
mod http;
mod isolation;
mod jobs;
mod launch;
mod launcher;
mod leftover;
mod localize;
mod logs;
mod metrics;
mod node_context;
mod notify;
mod proof;
mod reload;
mod resize;
mod rm_link;
mod sample;
mod start;
mod stop;
mod unattributed;
mod unpack;
mod view;

pub use headroom_config::{
    FileCacheLimits, HealthChecks, Isolation, LogRetention, MetricsGranularity, RunAs, Telemetry,
};
pub use headroom_node_core::fence::FenceTimeout;
pub use start::{AgentOptions, RunningAgent, ShutdownContainers, start};
