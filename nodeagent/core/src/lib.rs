//! The pure core of the node agent: container phases, desired state, verdicts and diagnoses.
//!
//! *Architecture Invariant*: the core maps values to values. It uses no clock, file, socket or hash
//! order; the time and all observations are arguments. It does not know the wire messages either:
//! the agent translates them.

#![forbid(unsafe_code)]

pub mod agent;
pub mod aux_service;
pub mod aux_services;
pub mod classify;
pub mod container;
pub mod diagnose;
pub mod fence;
pub mod gclog;
pub mod hsperf;
pub mod launch_failure;
pub mod leftover;
pub mod maps;
pub mod marker;
pub mod own_limits;
pub mod report_schedule;
pub mod size;
pub mod stall;
pub mod starved;
pub mod timeline;

pub use agent::AgentCore;
pub use classify::{Verdict, VerdictScope, classify};
pub use diagnose::diagnose;
pub use launch_failure::{LaunchFailure, LaunchFailureKind};
pub use own_limits::OwnLimits;
pub use timeline::MemoryTimeline;
