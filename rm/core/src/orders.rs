//! What somebody wants done with a job or one task of it: passed on to its master.
//!
//! An order is no lasting state. It is kept until the master has acknowledged it; one that was not by the time the resource manager
//! starts again is lost, and whoever gave it sees that nothing changed and gives it again.

use headroom_types::{AppId, JobOrder};

use crate::cluster::{Cluster, Ctx};
use crate::event::{Answer, Refusal, UpdateKind};

/// Most orders of one application that its master has not acknowledged.
const MOST_ORDERS: usize = 256;

impl Cluster {
    pub(crate) fn order(&mut self, id: &AppId, order: JobOrder, ctx: &mut Ctx<'_>) -> Result<Answer, Refusal> {
        let app = self.live(id)?;
        let waiting = app.updates.after(0).filter(|update| matches!(update.what, UpdateKind::Order(_))).count();
        if waiting >= MOST_ORDERS {
            return Err(Refusal::TooMany { what: format!("orders that the master of {id} has not taken in"), most: MOST_ORDERS });
        }
        self.update(id, UpdateKind::Order(order), ctx);
        Ok(Answer::Done)
    }
}
