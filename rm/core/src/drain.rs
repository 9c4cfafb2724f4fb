//! Nodes that are to be empty: drained with a deadline, decommissioned, taken back.

use std::time::Duration;

use headroom_types::NodeId;

use crate::cluster::{Cluster, Ctx};
use crate::event::{AfterDrain, Answer, Refusal};

impl Cluster {
    pub(crate) fn drain(
        &mut self,
        node: &NodeId,
        _within: Option<Duration>,
        _reason: String,
        _then: AfterDrain,
        _ctx: &mut Ctx<'_>,
    ) -> Result<Answer, Refusal> {
        Err(Refusal::NoSuchNode(node.clone()))
    }

    pub(crate) fn undrain(&mut self, node: &NodeId, _ctx: &mut Ctx<'_>) -> Result<Answer, Refusal> {
        Err(Refusal::NoSuchNode(node.clone()))
    }
}
