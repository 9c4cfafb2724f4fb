//! Claim: resources that preemption frees on one node for one container, from the warning to the
//! grant.
//!
//! The scheduler's state owns claims. `preempt` chooses the victims. Claims are not durable: after
//! a restart, the next round of preemption creates new ones.
//!
//! ```text
//!              deadline: checks pass               fits
//!  Warned ────────────────────────────► Taken ─────────────────► granted
//!     │ fits ──────────────────────────► granted │
//!     │ waiter gone, node closed,                │ waiter gone, node closed,
//!     │ checks fail                              │ victims ended and it does not fit
//!     └──────────► called off                    └──────────► called off
//! ```
//!
//! While a claim exists, the free resources of its node are set aside for it, up to its size.
//! Otherwise the queue that loses containers would use them again piece by piece. Any resources
//! that become free on the node serve the claim: a victim that its master releases, or the end of
//! another container. The remaining victims are then not stopped.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Bytes, ContainerId, NodeId, RequestId, Resource, UnixMillis};

use crate::queue::PlacementWaiter;

/// Stage of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStage {
    /// The masters of the victims were warned.
    Warned,
    /// The remaining victims were ordered to stop.
    Taken,
}

/// Resources that preemption frees for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionClaim {
    /// Request or master that gets the resources.
    pub waiter: PlacementWaiter,
    /// Size of the container.
    pub size: Resource,
    /// The node.
    pub node: NodeId,
    /// Containers to preempt.
    pub victims: BTreeSet<ContainerId>,
    /// Time when the victims are stopped, on the wall clock.
    pub at: UnixMillis,
    /// Stage.
    pub stage: ClaimStage,
}

/// All current claims.
#[derive(Clone, Debug, Default)]
pub struct PreemptionClaims {
    all: BTreeMap<u64, PreemptionClaim>,
    by_node: BTreeMap<NodeId, BTreeSet<u64>>,
    victims: BTreeMap<ContainerId, u64>,
    made: u64,
    /// True when a round of preemption is scheduled.
    pub(crate) armed: bool,
    /// Memory that earlier rounds did not take, saved for waiters that need more than one round may
    /// take. Bytes.
    pub(crate) spare: Bytes,
}

impl PreemptionClaims {
    /// All claims, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &PreemptionClaim> {
        self.all.values()
    }
    /// Number of claims.
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// True when there are no claims.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// Claims on one node, oldest first.
    pub fn on<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a PreemptionClaim> {
        self.by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|number| self.all.get(number))
    }
    /// Claim of which a container is a victim.
    pub fn against(&self, victim: &ContainerId) -> Option<&PreemptionClaim> {
        self.all.get(self.victims.get(victim)?)
    }
    /// Number of claims of one waiter.
    pub fn of(&self, waiter: &PlacementWaiter) -> usize {
        self.all
            .values()
            .filter(|claim| claim.waiter == *waiter)
            .count()
    }
    /// True when a request has a claim.
    pub(crate) fn has(&self, app: &AppId, request: &RequestId) -> bool {
        !self.all.is_empty()
            && self.all.values().any(|claim| {
                claim.waiter.app == *app && claim.waiter.request.as_ref() == Some(request)
            })
    }
    /// Looks up a claim.
    pub(crate) fn get(&self, number: u64) -> Option<&PreemptionClaim> {
        self.all.get(&number)
    }
    /// All claims with their numbers, oldest first.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &PreemptionClaim)> {
        self.all.iter().map(|(number, claim)| (*number, claim))
    }
    /// Number of claims of one waiter that are older than claim `number`.
    pub(crate) fn older_of(&self, waiter: &PlacementWaiter, number: u64) -> usize {
        self.all
            .range(..number)
            .filter(|(_, other)| other.waiter == *waiter)
            .count()
    }
    /// Number of an application's containers that are victims.
    pub(crate) fn victims_of(&self, app: &AppId) -> usize {
        self.victims
            .keys()
            .filter(|victim| victim.app == *app)
            .count()
    }
    /// Records that the victims of a claim were ordered to stop.
    pub(crate) fn mark_taken(&mut self, number: u64) {
        if let Some(claim) = self.all.get_mut(&number) {
            claim.stage = ClaimStage::Taken;
        }
    }
    /// Adds a claim and returns its number.
    pub(crate) fn add(&mut self, claim: PreemptionClaim) -> u64 {
        self.made += 1;
        self.by_node
            .entry(claim.node.clone())
            .or_default()
            .insert(self.made);
        self.victims.extend(
            claim
                .victims
                .iter()
                .map(|victim| (victim.clone(), self.made)),
        );
        self.all.insert(self.made, claim);
        self.made
    }
    /// Removes a claim.
    pub(crate) fn remove(&mut self, number: u64) -> Option<PreemptionClaim> {
        let claim = self.all.remove(&number)?;
        if let Some(numbers) = self.by_node.get_mut(&claim.node) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_node.remove(&claim.node);
            }
        }
        for victim in &claim.victims {
            self.victims.remove(victim);
        }
        Some(claim)
    }
}

#[cfg(any(test, feature = "testkit"))]
impl PreemptionClaims {
    /// Checks that the lists by node and by victim agree with the claims.
    pub(crate) fn check(&self) {
        for (number, claim) in &self.all {
            assert!(
                self.by_node
                    .get(&claim.node)
                    .is_some_and(|all| all.contains(number)),
                "{} does not list its claim",
                claim.node
            );
            for victim in &claim.victims {
                assert_eq!(
                    self.victims.get(victim),
                    Some(number),
                    "{victim} is a victim of two claims"
                );
            }
        }
        let listed: usize = self.all.values().map(|claim| claim.victims.len()).sum();
        assert_eq!(listed, self.victims.len(), "victims without a claim");
    }
}
