//! What operators do to queues while the cluster runs: another tree, another gate, an application moved.

use headroom_types::{AppId, QueuePath};

use crate::cluster::{Cluster, Ctx};
use crate::event::{Answer, How, Lifetime, Refusal};
use crate::queue::spec::{Gate, Tree};

impl Cluster {
    pub(crate) fn set_queues(
        &mut self,
        _tree: Tree,
        _generation: Option<u64>,
        _how: How,
        _ctx: &mut Ctx<'_>,
    ) -> Result<Answer, Refusal> {
        Err(Refusal::NoSuchQueue(QueuePath::root()))
    }

    pub(crate) fn set_gate(&mut self, queue: &QueuePath, _gate: Gate, _ctx: &mut Ctx<'_>) -> Result<Answer, Refusal> {
        Err(Refusal::NoSuchQueue(queue.clone()))
    }

    pub(crate) fn change_app(
        &mut self,
        app: &AppId,
        _queue: Option<QueuePath>,
        _priority: Option<i32>,
        _lifetime: Option<Lifetime>,
        _ctx: &mut Ctx<'_>,
    ) -> Result<Answer, Refusal> {
        Err(Refusal::NoSuchApp(app.clone()))
    }
}
