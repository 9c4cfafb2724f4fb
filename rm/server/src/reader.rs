//! Reader of the cluster: queries to the main loop, the shared state, and stored job documents.
//!
//! HTTP handlers, the topics of the web page and the metrics page read through it. It knows no
//! request and no route.

use headroom_rm_core::CallRefusal;
use headroom_rm_store::Documents;
use headroom_types::{AppId, Epoch};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::error::ProblemResult;
use headroom_wire::v1::job::JobView;
use tokio::sync::oneshot;

use crate::clock::ManagerClock;
use crate::handle::MainLoopHandle;
use crate::input::{ClusterQuery, LoopInput};
use crate::shared_state::SharedState;

/// Access to the state of the cluster, for readers and callers.
#[derive(Clone, Debug)]
pub(crate) struct ClusterReader {
    /// Sends inputs to the main loop.
    pub(crate) handle: MainLoopHandle,
    /// State that the main loop shares.
    pub(crate) shared: SharedState,
    /// Job documents on disk.
    pub(crate) documents: Documents,
    /// Epoch of the resource manager.
    pub(crate) epoch: Epoch,
    /// The clock.
    pub(crate) clock: ManagerClock,
}

impl ClusterReader {
    /// Sends a query to the main loop and waits for the result.
    ///
    /// # Errors
    /// The main loop does not respond.
    pub(crate) async fn query<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> ClusterQuery,
    ) -> ProblemResult<T> {
        self.handle
            .ask(|reply| LoopInput::Query(query(reply)))
            .await
    }

    /// Sends a query about one application and waits for the result.
    ///
    /// # Errors
    /// There is no such application, or the main loop does not respond.
    pub(crate) async fn query_app<T>(
        &self,
        app: &AppId,
        query: fn(AppId, oneshot::Sender<Option<T>>) -> ClusterQuery,
    ) -> ProblemResult<T> {
        match self.query(|reply| query(app.clone(), reply)).await? {
            Some(found) => Ok(found),
            None => {
                let refusal = CallRefusal::NoSuchApp(app.clone());
                Err(self.handle.refused(&refusal).await)
            }
        }
    }

    /// Returns an application without its tasks.
    ///
    /// # Errors
    /// There is no such application, or the main loop does not respond.
    pub(crate) async fn app(&self, app: &AppId) -> ProblemResult<AppView> {
        self.query_app(app, ClusterQuery::App).await
    }

    /// Returns the job view from memory while the application lives, and from the store afterwards.
    pub(crate) async fn job(&self, app: &AppId) -> Option<JobView> {
        if let Some(snapshot) = self.shared.jobs.snapshot(app) {
            return Some(snapshot.view());
        }
        let (documents, id) = (self.documents.clone(), app.clone());
        let read = tokio::task::spawn_blocking(move || documents.get(&id))
            .await
            .ok()?;
        match read {
            Ok(document) => serde_json::from_slice(&document?).ok(),
            Err(error) => {
                tracing::warn!(%app, error = &error as &dyn std::error::Error, "cannot read the view of a job; omitting its tasks");
                None
            }
        }
    }
}
