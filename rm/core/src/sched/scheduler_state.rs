//! State of the scheduler beside the queues: resources of nodes that are set aside, by reservations
//! and by claims of preemption.
//!
//! The scheduler decides in `reserve` and `preempt`; this module only keeps the result and answers
//! which part of a node's free resources is left for all requests.

use headroom_types::{AppId, NodeId, RequestId, Resource};

use super::claim::PreemptionClaims;
use super::node_ix::NodeNumber;
use super::reservation::{Reservations, beside};

/// Reservations, claims of preemption, and the position of the review of waiting requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchedulerState {
    pub(crate) reservations: Reservations,
    pub(crate) claims: PreemptionClaims,
    /// Application and request number where the last review of waiting requests stopped.
    pub(crate) reviewed: Option<(AppId, usize)>,
    /// Each grant of a pass is compared with the reference.
    #[cfg(any(test, feature = "testkit"))]
    pub(crate) compares_passes: bool,
}

impl SchedulerState {
    /// Part of a node's `free` resources that is left beside its reservation and its claims.
    pub(crate) fn left_for_all(&self, node: &NodeId, ix: NodeNumber, free: Resource) -> Resource {
        let free = match self.reservations.on(ix) {
            Some(kept) => beside(&free, &kept.size),
            None => free,
        };
        self.left_beside_claims(node, free)
    }
    /// Part of a node's `free` resources that is left beside its claims. A reservation counts as
    /// free: the caller is that request, or one that takes precedence over it.
    pub(crate) fn left_beside_claims(&self, node: &NodeId, free: Resource) -> Resource {
        let claims = self.claims.on(node);
        claims.fold(free, |free, claim| beside(&free, &claim.size))
    }
    /// True when resources are set aside for a request, on any node.
    pub(crate) fn serves(&self, app: &AppId, request: &RequestId) -> bool {
        self.reservations.of(app, request).is_some() || self.claims.has(app, request)
    }
}
