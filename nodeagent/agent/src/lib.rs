//! The node agent: launches containers, enforces their limits, and explains how they ended.
//!
//! One task, in `agent_loop`, owns the whole state. All other code performs one job for it and
//! returns the result as an input. The rules are in `headroom-node-core`, the kernel's files in
//! `headroom-node-cgroup`, processes in `headroom-node-exec`.
//!
//! *Architecture Invariant*: the agent may be killed at any moment. State that must survive is in a
//! file before the agent acts on it, and no container is affected.

#![forbid(unsafe_code)]

mod adopt;
mod agent_input;
mod agent_loop;
mod agent_query;
mod agent_state;
mod aux_service;
mod cache;
mod clock;
mod collect;
mod container_user;
mod containers_unit;
mod cpu_share;
mod crash;
mod descriptors;
mod disk;
mod disk_checks;
pub mod doctor;
mod download;
mod environment;
mod exec;
mod files;
mod garbage_collection;
mod health;
mod host;
mod http;
mod isolation;
mod jobs;
mod journals;
mod kill_turns;
mod launch;
mod launch_failure;
mod launcher;
mod leftover;
mod localize;
mod logs;
mod metrics;
mod metrics_page;
mod node_channel;
mod node_context;
pub mod node_link;
pub mod node_link_event;
pub mod node_messages;
mod notify;
mod outer_counters;
mod privileges;
mod process_wait;
mod proof;
mod recorded_process;
mod reload;
mod resize;
mod rm_link;
mod sample;
mod shared_reading;
mod shim_process;
mod start;
mod stop;
mod unattributed;
mod unattributed_memory;
mod unpack;
mod uploaded_file;
mod view;

pub use agent_input::ShutdownContainers;
pub use start::{AgentOptions, RunningAgent, start};
