//! Boundary between the resource manager and interfaces in the format of other systems, such as
//! that of YARN.
//!
//! Such an interface reads reports and makes a few calls, all through [`ClusterService`]. The
//! resource manager implements the trait. Neither side needs the other to compile.
//!
//! *Architecture Invariant*: this crate uses no clock, no file, no socket and no HTTP library.

#![forbid(unsafe_code)]

mod if_match;
mod report;
mod service;

pub use if_match::IfMatch;
pub use report::{
    ApplicationReport, ClusterNodeReport, ContainerReport, ContainerStage, Preempted, QueueReport,
    Use, WaitingContainers, rest, sum,
};
pub use service::{
    AppSelection, ApplicationChange, ClusterFuture, ClusterService, ClusterTime, LockedApplication,
    RequestScheme, SharedCluster,
};
