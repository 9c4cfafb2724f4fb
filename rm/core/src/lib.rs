//! Pure core of the resource manager: applications, attempts, containers, nodes and the scheduler
//! as plain values.
//!
//! [`Cluster::step`] is the only function that changes a [`Cluster`]. It takes the time and one
//! event, and appends effects. The cluster consists of owners, each with its part of the state.
//!
//! *Architecture Invariant*: this crate uses no clock, no file, no socket, no hash order, and no
//! message type of the wire or the disk. The daemon and the simulation run the same code.

#![forbid(unsafe_code)]

pub mod app;
pub mod attempt;
#[cfg(any(test, feature = "testkit"))]
pub mod check;
pub mod cluster;
pub mod container;
pub mod container_set;
mod container_table;
pub mod event;
pub mod explain;
pub mod history;
pub mod ledger;
pub mod node;
pub mod node_table;
pub mod node_tags;
pub mod placement;
pub mod queue;
pub mod request;
pub mod runs;
pub mod save;
pub mod sched;
pub mod settings;
pub mod size;
pub mod table;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod timer;

mod allocations;
mod applications;
mod apps;
mod configure;
mod delay;
mod drain;
mod grant;
mod lifetime;
mod liveness;
mod master_growth;
mod masters;
mod nodes;
mod orders;
mod phrase;
mod queues;
mod resize;
mod step_context;
mod surplus;
mod tags;

pub use cluster::{Cluster, RestoredApp, RestoredCluster};
pub use event::{
    AfterDrain, AppSubmission, ApplicationLifetime, ApplicationOutcome, CallAnswer, CallId,
    CallRefusal, CallResult, ClusterCall, ClusterEffect, ClusterEvent, ContainerCommand,
    ContainerPhase, ContainerSize, CordonState, DryRun, EventLogLine, Exclusive, FinalRows,
    GrantedContainer, LaunchOrder, LogMessage, LogObject, LogSeverity, MasterHeartbeat, MasterKind,
    MasterUpdate, NodeHealth, NodeHeartbeat, NodeProperties, NodeRegistration, QueuesFrom,
    RefusedResize, ReportedContainer, RequestVerdict, TagChange, UpdateKind,
};
pub use explain::{MasterWait, NodeWaitReason, WaitExplanation, WaitReason};
pub use history::EndedContainer;
pub use node_tags::{NodeTags, TagChangeResult};
pub use queues::QueueSnapshot;
pub use runs::AttemptRecord;
pub use save::{DurableRecord, SavedDrainMark, SavedStage, SavedState};
pub use settings::ClusterSettings;
