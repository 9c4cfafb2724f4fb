//! Events and effects: the input and output of the core.
//!
//! Plain data. These are the core's own types; the daemon converts them from and to messages and
//! records. This file holds the parts that calls, effects and records have in common.

mod call;
mod effect;
mod log;
mod refusal;
mod report;
mod traits;
mod update;

use std::sync::Arc;
use std::time::Duration;

use headroom_types::{
    AppId, Bytes, LaunchSpec, MasterGrowth, Name, QueuePath, RequestId, Resource, StopCause,
    UnixMillis,
};

use crate::request::ContainerRequest;

pub use call::{ClusterCall, ClusterEvent, MasterHeartbeat};
pub use effect::{CallAnswer, CallResult, ClusterEffect};
pub use log::{EventLogLine, LogMessage, LogObject, LogSeverity};
pub use refusal::CallRefusal;
pub use report::{
    ContainerPhase, NodeHealth, NodeHeartbeat, NodeRegistration, RefusedResize, ReportedContainer,
};
pub use traits::{CordonState, Exclusive, NodeProperties, TagChange};
pub use update::{GrantedContainer, MasterUpdate, UpdateKind};

/// Number of a call; its answer carries the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Whether a call changes anything or only returns the result of the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// The call takes effect.
    #[default]
    Really,
    /// The call only returns an answer.
    DryRun,
}

/// Rows of the job in a call that ends its application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinalRows {
    /// All rows, or none.
    #[default]
    All,
    /// Rows that changed since the previous report. The others must have been reported to this
    /// incarnation of the resource manager.
    Changed,
}

/// A size with its heap budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSize {
    /// The whole size.
    pub resource: Resource,
    /// Heap budget within it; `None` keeps the current one. Bytes.
    pub heap: Option<Bytes>,
}

/// Limit of an application's lifetime, counted from its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationLifetime {
    /// No limit.
    Unbounded,
    /// At most this long.
    AtMost(Duration),
}

/// State of a node after its drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AfterDrain {
    /// It stays a member, without work.
    Stay,
    /// It leaves the cluster: its agent is ordered to end and cannot register until the node is
    /// undrained.
    Decommission,
}

/// Application as submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSubmission {
    /// Name for users.
    pub name: Name,
    /// Leaf queue.
    pub queue: QueuePath,
    /// Priority; higher goes first.
    pub priority: i32,
    /// User who submitted it.
    pub user: String,
    /// Longest lifetime.
    pub lifetime: Option<Duration>,
    /// Kind of master.
    pub master: MasterKind,
    /// Idempotency key: the same submission of the same user with a known key returns the known
    /// application.
    pub key: Option<String>,
}

/// Kind of an application's master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKind {
    /// The resource manager runs the master in a container.
    Managed {
        /// Its size.
        resource: Resource,
        /// Command, environment and files.
        launch: Arc<LaunchSpec>,
        /// Charged attempts after which the application fails.
        max_attempts: u32,
        /// Larger sizes after memory failures.
        growth: Option<MasterGrowth>,
        /// Longest time from the start of its container to its registration; `None` for the
        /// heartbeat timeout.
        start_timeout: Option<Duration>,
        /// Request that is placed along with the first attempt. It is not durable: after a restart,
        /// the master sends it.
        first_request: Option<Box<ContainerRequest>>,
    },
    /// The master runs outside of the cluster's containers.
    Unmanaged,
}

impl MasterKind {
    /// Takes the first request out, if there is one.
    pub(crate) fn take_first_request(&mut self) -> Option<Box<ContainerRequest>> {
        match self {
            MasterKind::Managed { first_request, .. } => first_request.take(),
            MasterKind::Unmanaged => None,
        }
    }
}

/// Outcome of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApplicationOutcome {
    /// It reached its goal.
    Succeeded,
    /// It did not reach its goal.
    Failed,
    /// A user or an operator killed it.
    Killed,
}

/// Source of the queue tree in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuesFrom {
    /// The settings.
    Settings,
    /// A tree that an operator set at run time; it overrides the settings.
    Operator,
}

/// Verdict on a container request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestVerdict {
    /// All containers are granted.
    Fits,
    /// Some containers wait.
    Waits {
        /// Reason.
        sentence: Arc<str>,
    },
    /// Infeasible: no node could ever hold it; the request was not accepted.
    Never {
        /// Reason, with the largest node.
        sentence: String,
        /// Largest container that any node could ever hold.
        largest: Resource,
    },
}

/// Desired state of a container on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCommand {
    /// The container must run.
    Run(Box<LaunchOrder>),
    /// The container must end.
    Stop {
        /// Cause.
        cause: StopCause,
    },
    /// The node may remove the container's report.
    Forget,
}

/// Order to run a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchOrder {
    /// The application.
    pub app: AppId,
    /// The request; `None` for a master.
    pub request: Option<RequestId>,
    /// Attempt of its master for which it was granted; 1 for the first.
    pub attempt: u32,
    /// Size.
    pub resource: Resource,
    /// Version of the size: a node that has the container with an earlier version resizes it.
    pub version: u32,
    /// Command, environment and files; empty for a container that was granted in an earlier
    /// incarnation.
    pub launch: Arc<LaunchSpec>,
    /// User who submitted the application.
    pub user: Arc<str>,
    /// Time of the grant.
    pub granted: UnixMillis,
}
