//! Visibility of applications in lists.

use headroom_identity::{AppOwnership, Principal};
use headroom_types::AppId;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::error::ProblemDetails;

use super::error::HandlerResult;
use crate::reader::ClusterReader;

/// Visibility filter for a caller who may not see all applications.
#[derive(Clone, Debug)]
pub(crate) struct AppVisibility {
    reader: ClusterReader,
    principal: Principal,
}

/// Owner, queue and access lists of an application.
pub(crate) fn belongs(reader: &ClusterReader, app: &AppView) -> AppOwnership {
    let access = reader.shared.access.borrow().shared(&app.id);
    AppOwnership {
        user: app.user.clone(),
        queue: app.queue.clone(),
        viewers: access.view,
        changers: access.change,
    }
}

impl AppVisibility {
    /// Creates the filter; `None` for a caller who may see all applications.
    pub(crate) fn of(reader: &ClusterReader, principal: &Principal) -> Option<Self> {
        (!principal.may_view_all()).then(|| AppVisibility {
            reader: reader.clone(),
            principal: principal.clone(),
        })
    }

    /// Whether the caller may see this application.
    pub(crate) fn sees(&self, app: &AppView) -> bool {
        self.principal.may_view(&belongs(&self.reader, app))
    }

    /// Whether the caller may see the application with this id, according to the latest view. A
    /// forgotten application is hidden.
    pub(crate) fn sees_id(&self, id: &AppId) -> bool {
        match &self.principal {
            Principal::Master(attempt) => attempt.app == *id,
            Principal::Executor(app) => app == id,
            Principal::Open
            | Principal::Anonymous
            | Principal::User { .. }
            | Principal::Manager
            | Principal::Node(_) => self
                .reader
                .handle
                .last()
                .apps
                .get(id)
                .is_some_and(|app| self.sees(app)),
        }
    }

    /// Checks that the caller may see the application with this id.
    ///
    /// # Errors
    /// There is no such application, or the caller may not see it.
    pub(crate) async fn require_visible(&self, id: &AppId) -> HandlerResult<()> {
        let app = self.reader.app(id).await?;
        if self.sees(&app) || self.sees_id(id) {
            return Ok(());
        }
        let who = self.principal.audit_name().unwrap_or_default();
        let problem = ProblemDetails::forbidden(format!(
            "{who} may not see {id}: it needs the right job:read"
        ));
        Err(problem
            .hint("its owner can grant access: rmctl app share")
            .into())
    }
}
