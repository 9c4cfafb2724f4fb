//! Service for interfaces in the format of other systems: reads and calls of the cluster, with the
//! checks of the same calls under `/v1`.

use std::sync::Arc;

use axum::Router;
use headroom_identity::Principal;
use headroom_rm_core::ClusterCall;
use headroom_rm_reports::{
    AppSelection, ApplicationChange, ApplicationReport, ClusterFuture, ClusterNodeReport,
    ClusterService, ClusterTime, ContainerReport, LockedApplication, QueueReport, SharedCluster,
};
use headroom_types::{AppId, ContainerId, Epoch};
use headroom_wire::v1::apps::{
    ClusterView, MemoryFailureStats, PendingExplanation, SubmitApplicationRequest,
};
use headroom_wire::v1::error::ProblemResult;
use tokio::sync::Mutex;

use super::apps::version_of;
use super::guard;
use super::web::WebHandlerState;
use crate::call_reply::{Done, Reserved, Submitted};
use crate::from_wire;
use crate::input::ClusterQuery;
use crate::reader::ClusterReader;
use crate::reports::ReportQuery;

/// Makes the routes of an interface. They pass the same authentication, authorization and limits as
/// those under `/v1`.
pub type InterfaceRoutes = fn(SharedCluster) -> Router;

/// The service, over the state of the handlers.
#[derive(Clone, Debug)]
struct HandlerService {
    reader: ClusterReader,
    /// As in [`WebHandlerState`].
    changes: Arc<Mutex<()>>,
}

/// Routes of all `interfaces`.
pub(crate) fn routes(web: &WebHandlerState, interfaces: &[InterfaceRoutes]) -> Router {
    let service: SharedCluster = Arc::new(HandlerService {
        reader: web.reader.clone(),
        changes: web.changes.clone(),
    });
    interfaces.iter().fold(Router::new(), |all, routes| {
        all.merge(routes(service.clone()))
    })
}

impl HandlerService {
    async fn reports(&self, of: AppSelection) -> ProblemResult<Vec<ApplicationReport>> {
        let wall = self.reader.clock.unix_now();
        self.reader
            .query(|reply| ClusterQuery::Facts(ReportQuery::Apps { of, wall, reply }))
            .await
    }

    async fn submitted(
        &self,
        caller: &Principal,
        number: u32,
        mut app: SubmitApplicationRequest,
    ) -> ProblemResult<AppId> {
        app.user = guard::submits(caller, app.user)?;
        guard::queue(caller, app.queue.as_ref())?;
        let app = from_wire::submit(app)?;
        let call = ClusterCall::SubmitAs { number, app };
        let Submitted { app, .. } = self.reader.handle.call(call).await?;
        Ok(app)
    }
}

impl ClusterService for HandlerService {
    fn epoch(&self) -> Epoch {
        self.reader.epoch
    }

    fn time(&self) -> ClusterTime {
        ClusterTime {
            started: self.reader.clock.unix_at_zero(),
            now: self.reader.clock.now(),
        }
    }

    fn queued_inputs(&self) -> usize {
        self.reader.handle.waiting()
    }

    fn task_counts(&self, app: &AppId) -> Option<(u32, u32)> {
        self.reader.shared.jobs.part_done(app)
    }

    fn version(&self, app: &ApplicationReport) -> String {
        version_of(&app.queue, app.priority, app.until)
    }

    fn status(&self) -> ClusterFuture<'_, ClusterView> {
        Box::pin(async {
            let view = self.reader.handle.view().await?;
            Ok(view.status(self.reader.clock.now(), MemoryFailureStats::default()))
        })
    }

    fn applications(&self, of: AppSelection) -> ClusterFuture<'_, Vec<ApplicationReport>> {
        Box::pin(self.reports(of))
    }

    fn containers(&self, app: AppId) -> ClusterFuture<'_, Vec<ContainerReport>> {
        Box::pin(
            self.reader
                .query(|reply| ClusterQuery::Facts(ReportQuery::Containers(app, reply))),
        )
    }

    fn nodes(&self) -> ClusterFuture<'_, Vec<ClusterNodeReport>> {
        Box::pin(
            self.reader
                .query(|reply| ClusterQuery::Facts(ReportQuery::Nodes(reply))),
        )
    }

    fn queues(&self) -> ClusterFuture<'_, Option<QueueReport>> {
        Box::pin(
            self.reader
                .query(|reply| ClusterQuery::Facts(ReportQuery::Queues(reply))),
        )
    }

    fn pending(&self, app: AppId) -> ClusterFuture<'_, Vec<PendingExplanation>> {
        Box::pin(async {
            let found = self
                .reader
                .query(|reply| ClusterQuery::Why(app, reply))
                .await?;
            Ok(found.unwrap_or_default())
        })
    }

    fn reserve_number(&self) -> ClusterFuture<'_, u32> {
        Box::pin(async {
            let Reserved { number } = self.reader.handle.call(ClusterCall::Reserve).await?;
            Ok(number)
        })
    }

    fn submit(
        &self,
        caller: Principal,
        number: u32,
        app: SubmitApplicationRequest,
    ) -> ClusterFuture<'_, AppId> {
        Box::pin(async move { self.submitted(&caller, number, app).await })
    }

    fn lock_application(&self, number: u32) -> ClusterFuture<'_, Option<LockedApplication>> {
        Box::pin(async move {
            let lock = self.changes.clone().lock_owned().await;
            let found = self.reports(AppSelection::Number(number)).await?.pop();
            Ok(found.map(|report| LockedApplication::new(report, lock)))
        })
    }

    fn change(&self, app: AppId, change: ApplicationChange) -> ClusterFuture<'_, ()> {
        Box::pin(async {
            let Done {} = self.reader.handle.call(change_call(app, change)).await?;
            Ok(())
        })
    }

    fn stop(&self, container: ContainerId) -> ClusterFuture<'_, ()> {
        Box::pin(async {
            let call = ClusterCall::Stop { container };
            let Done {} = self.reader.handle.call(call).await?;
            Ok(())
        })
    }
}

/// The call of the core for a change.
fn change_call(app: AppId, change: ApplicationChange) -> ClusterCall {
    let (mut queue, mut priority, mut lifetime) = (None, None, None);
    match change {
        ApplicationChange::Queue(path) => queue = Some(path),
        ApplicationChange::Priority(number) => priority = Some(number),
        ApplicationChange::Lifetime(limit) => lifetime = Some(limit),
        ApplicationChange::Kill(reason) => return ClusterCall::Kill { app, reason },
    }
    ClusterCall::ChangeApp {
        app,
        queue,
        priority,
        lifetime,
    }
}
