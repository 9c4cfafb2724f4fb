//! Orders of users about a job or a task, which are forwarded to the master.
//!
//! An order is not durable. It is kept until the master acknowledges it. After a restart of the
//! resource manager an unacknowledged order is lost; the user sees no change and repeats it.

use headroom_types::{AppId, JobOrder};

use crate::app::KeptUpdate;
use crate::applications::Applications;
use crate::event::{CallAnswer, CallRefusal, UpdateKind};
use crate::step_context::StepContext;

/// Most unacknowledged orders of one application.
const MAX_PENDING_ORDERS: usize = 256;

impl Applications {
    /// Queues an order for the master of an application.
    pub(crate) fn order(
        &mut self,
        id: &AppId,
        order: JobOrder,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let app = self.live(id)?;
        let is_order = |kept: &KeptUpdate| match kept {
            KeptUpdate::Other(what) => matches!(**what, UpdateKind::Order(_)),
            KeptUpdate::Allocated(_) | KeptUpdate::Running(_) | KeptUpdate::Exited(_) => false,
        };
        let kept = app.updates.after(0);
        let waiting = kept.filter(|(_, kept)| is_order(kept)).count();
        if waiting >= MAX_PENDING_ORDERS {
            return Err(CallRefusal::TooMany {
                what: format!("orders that the master of {id} has not acknowledged"),
                most: MAX_PENDING_ORDERS,
            });
        }
        self.update(id, UpdateKind::Order(order), ctx);
        Ok(CallAnswer::Done)
    }
}
