//! Service that the resource manager provides to an interface: reads, and a few calls.
//!
//! A result is as current as a response under `/v1`. A call returns when its effect is durable, and
//! may be repeated after an error without a known outcome.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use headroom_identity::Principal;
use headroom_rm_core::ApplicationLifetime;
use headroom_types::{AppId, ContainerId, Epoch, QueuePath, Tick, UnixMillis};
use headroom_wire::v1::apps::{ClusterView, PendingExplanation, SubmitApplicationRequest};
use headroom_wire::v1::error::ProblemResult;

use crate::report::{ApplicationReport, ClusterNodeReport, ContainerReport, QueueReport};

/// Future of a read or a call. Its error is that of the same call under `/v1`; a resource manager
/// that shuts down or does not respond in time returns `HR0503`.
pub type ClusterFuture<'a, T> = Pin<Box<dyn Future<Output = ProblemResult<T>> + Send + 'a>>;

/// The service, shared by the handlers of an interface.
pub type SharedCluster = Arc<dyn ClusterService>;

/// Reads and calls of an interface. The caller has passed authentication and has the right that the
/// path of its request needs.
pub trait ClusterService: fmt::Debug + Send + Sync {
    /// Epoch of the running resource manager.
    fn epoch(&self) -> Epoch;

    /// Reads the clock of the resource manager.
    fn time(&self) -> ClusterTime;

    /// Number of inputs that wait for the main loop.
    fn queued_inputs(&self) -> usize;

    /// Number of done tasks and of all tasks; `None` if the master reported nothing in this
    /// incarnation.
    fn task_counts(&self, app: &AppId) -> Option<(u32, u32)>;

    /// Version of the changeable fields of an application: the ETag of `/v1/apps/{app}` up to its
    /// dot.
    fn version(&self, app: &ApplicationReport) -> String;

    /// Summary of the cluster, without the memory failures of the last hour.
    fn status(&self) -> ClusterFuture<'_, ClusterView>;

    /// Applications, in order of submission.
    fn applications(&self, of: AppSelection) -> ClusterFuture<'_, Vec<ApplicationReport>>;

    /// Kept containers of one application, ended ones first. Empty if the application is unknown.
    fn containers(&self, app: AppId) -> ClusterFuture<'_, Vec<ContainerReport>>;

    /// All nodes.
    fn nodes(&self) -> ClusterFuture<'_, Vec<ClusterNodeReport>>;

    /// The root queue with all queues below it; `None` if there are no queues.
    fn queues(&self) -> ClusterFuture<'_, Option<QueueReport>>;

    /// Reasons why requests of an application wait, and why its master waits. Empty if none waits
    /// or the application is unknown.
    fn pending(&self, app: AppId) -> ClusterFuture<'_, Vec<PendingExplanation>>;

    /// Reserves the number of an application that will be submitted.
    fn reserve_number(&self) -> ClusterFuture<'_, u32>;

    /// Submits an application under a reserved number. A repeated submission with the same
    /// idempotency key returns the same application. Returns `HR0403` if the caller may not submit
    /// for this user or to this queue.
    fn submit(
        &self,
        caller: Principal,
        number: u32,
        app: SubmitApplicationRequest,
    ) -> ClusterFuture<'_, AppId>;

    /// Locks the changeable fields of all applications and reads one of them; `None` if it is
    /// unknown.
    fn lock_application(&self, number: u32) -> ClusterFuture<'_, Option<LockedApplication>>;

    /// Changes an application. The caller holds its lock.
    fn change(&self, app: AppId, change: ApplicationChange) -> ClusterFuture<'_, ()>;

    /// Stops a container.
    fn stop(&self, container: ContainerId) -> ClusterFuture<'_, ()>;
}

/// Selection of applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppSelection {
    /// All kept applications.
    All,
    /// The application with this number.
    Number(u32),
}

/// A change of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationChange {
    /// Moves it to this queue.
    Queue(QueuePath),
    /// Sets its priority; higher values go first.
    Priority(i32),
    /// Sets its maximum lifetime.
    Lifetime(ApplicationLifetime),
    /// Kills it and all its containers, with a reason for its diagnostics.
    Kill(Option<String>),
}

/// Reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTime {
    /// Wall-clock time at the start of the resource manager.
    pub started: UnixMillis,
    /// Time since that start.
    pub now: Tick,
}

impl ClusterTime {
    /// Current wall-clock time. It never decreases within an incarnation.
    pub fn unix_now(self) -> UnixMillis {
        UnixMillis(self.started.0.saturating_add(self.now.0))
    }
}

/// An application whose changeable fields only the holder can change, until this is dropped.
pub struct LockedApplication {
    /// The application.
    pub report: ApplicationReport,
    _lock: Box<dyn Send + Sync>,
}

impl LockedApplication {
    /// Binds the report to the guard of the lock.
    pub fn new(report: ApplicationReport, lock: impl Send + Sync + 'static) -> Self {
        LockedApplication {
            report,
            _lock: Box::new(lock),
        }
    }
}

headroom_types::debug_fields!(LockedApplication { report });

/// Scheme of the TCP listener, `http` or `https`: an extension of each request, for links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestScheme(pub &'static str);
