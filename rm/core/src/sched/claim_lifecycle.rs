//! Course of a claim: warning of the masters, stop of the victims, grant or cancellation.
//!
//! Connects the table of claims, see [`super::claim`], with containers, timers and the log of the
//! cluster. `preempt` decides which claims are made.

use headroom_types::spelling::counted_noun;
use headroom_types::{AppId, ContainerId, NodeId, Reason, Resource, StopCause, Tick};

use super::claim::{ClaimStage, PreemptionClaim, PreemptionClaims};
use super::fit::PlacementNeed;
use crate::cluster::Cluster;
use crate::event::{LogSeverity, UpdateKind};
use crate::grant::container_line;
use crate::queue::PlacementWaiter;
use crate::size::excess;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

impl Cluster {
    /// Claims of preemption.
    pub fn claims(&self) -> &PreemptionClaims {
        &self.scheduler.claims
    }

    /// Creates a claim and warns the masters of its victims.
    pub(crate) fn claim(&mut self, claim: PreemptionClaim, why: &str, ctx: &mut StepContext<'_>) {
        let (node, at) = (claim.node.clone(), claim.at);
        let size = claim.size.clone();
        let who = claim
            .waiter
            .request
            .as_ref()
            .map_or("the master".to_owned(), ToString::to_string);
        let message = format!(
            "{who} needs {size}: {} on {node} will be preempted",
            counted_noun(claim.victims.len(), "container")
        );
        ctx.log_app(
            LogSeverity::Normal,
            Reason::PreemptionPlanned,
            &claim.waiter.app,
            message,
        );
        for victim in &claim.victims {
            let what = UpdateKind::PreemptSoon {
                container: victim.clone(),
                at,
                why: why.to_owned(),
            };
            self.apps.update(&victim.app, what, ctx);
            ctx.log(container_line(
                LogSeverity::Normal,
                Reason::PreemptionWarning,
                victim,
                &node,
                why.to_owned(),
            ));
        }
        self.claim_instead(&claim.waiter, &node, ctx);
        let number = self.scheduler.claims.add(claim);
        self.timers.set(
            TimerKey::Claim(number),
            Tick(at.0.saturating_sub(self.settings.unix_at_zero.0)).max(ctx.now),
        );
        self.reindex(&node);
    }

    /// Cancels the reservation of the same request, and the reservation on the same node.
    fn claim_instead(
        &mut self,
        waiter: &PlacementWaiter,
        node: &NodeId,
        ctx: &mut StepContext<'_>,
    ) {
        if let Some(ix) = self
            .nodes
            .index()
            .ix(node)
            .filter(|ix| self.scheduler.reservations.on(*ix).is_some())
        {
            self.unreserve(
                ix,
                "preemption frees resources there for a queue below its guarantee",
                ctx,
            );
        }
        let Some(request) = &waiter.request else {
            return;
        };
        if let Some((ix, _)) = self.scheduler.reservations.of(&waiter.app, request) {
            self.unreserve(ix, "preemption frees resources for the request", ctx);
        }
    }

    /// Handles the end of the warning: stops the victims.
    pub(crate) fn claim_due(&mut self, number: u64, ctx: &mut StepContext<'_>) {
        self.serve_claims(ctx);
        let Some(claim) = self.scheduler.claims.get(number) else {
            return;
        };
        let going = self.allocations.of(&claim.victims);
        let going = going.filter(|c| c.is_preemptable());
        let victims: Vec<ContainerId> = going.map(|c| c.id.clone()).collect();
        if !self.may_still_take(claim, &victims) {
            return self.call_off(
                number,
                "the queues do not allow the preemption any more",
                ctx,
            );
        }
        self.scheduler.claims.mark_taken(number);
        for victim in victims {
            self.stop(&victim, StopCause::Preempted, ctx);
        }
        self.advance_claim(number, ctx);
    }

    /// Advances all claims, oldest first.
    pub(crate) fn serve_claims(&mut self, ctx: &mut StepContext<'_>) {
        let claims = self.scheduler.claims.numbered();
        let numbers: Vec<u64> = claims.map(|(number, _)| number).collect();
        for number in numbers {
            self.advance_claim(number, ctx);
        }
    }

    fn advance_claim(&mut self, number: u64, ctx: &mut StepContext<'_>) {
        let Some(claim) = self.scheduler.claims.get(number) else {
            return;
        };
        if let Some(why) = self.is_vain(number, claim) {
            return self.call_off(number, why, ctx);
        }
        let earlier = self
            .scheduler
            .claims
            .on(&claim.node)
            .take_while(|other| *other != claim);
        let free = self.ledger().free(&claim.node);
        let free = earlier.fold(free, |free, other| excess(&free, &other.size));
        if claim.size.fits(&free) {
            return self.fulfil(number, ctx);
        }
        if self.allocations.alive(&claim.victims).next().is_none() {
            let why = "all victims have ended, and the free resources are not enough";
            self.call_off(number, why, ctx);
        }
    }

    /// Reason why a claim is obsolete.
    fn is_vain(&self, number: u64, claim: &PreemptionClaim) -> Option<&'static str> {
        let Some(app) = self.apps.get(&claim.waiter.app).filter(|app| {
            self.queue
                .contains_request(app, claim.waiter.request.as_ref())
        }) else {
            return Some("the request does not wait any more");
        };
        let request = claim.waiter.request.as_ref();
        let need = PlacementNeed::of(app, request)?;
        if *need.size != claim.size {
            return Some("the size of the request has changed");
        }
        let missing = request.map_or(1, |request| app.missing(request));
        let before = self.scheduler.claims.older_of(&claim.waiter, number);
        if before >= usize::try_from(missing).unwrap_or(usize::MAX) {
            return Some("the request was granted elsewhere");
        }
        if !self.allows(need, &claim.node) {
            return Some("the node does not accept the request any more");
        }
        None
    }

    fn fulfil(&mut self, number: u64, ctx: &mut StepContext<'_>) {
        let Some(claim) = self.scheduler.claims.get(number) else {
            return;
        };
        let Some(app) = self.apps.get(&claim.waiter.app) else {
            return;
        };
        let request = claim.waiter.request.clone();
        if !self.may_be_served(app, request.as_ref(), &claim.size) {
            return; // the limit may change; if not, the deadline or the next round ends the claim
        }
        let id = claim.waiter.app.clone();
        let Some(node) = self.nodes.number(&claim.node) else {
            return;
        };
        self.grant_by_id(&id, request.as_ref(), node, ctx);
        self.drop_claim(number); // the remaining resources are free for all requests
        self.queue.run(&id);
    }

    fn call_off(&mut self, number: u64, why: &str, ctx: &mut StepContext<'_>) {
        let Some(claim) = self.drop_claim(number) else {
            return;
        };
        let message = format!(
            "preemption for {} on {} is cancelled: {why}",
            claim.size, claim.node
        );
        ctx.log_app(
            LogSeverity::Normal,
            Reason::PreemptionCancelled,
            &claim.waiter.app,
            message,
        );
    }

    fn drop_claim(&mut self, number: u64) -> Option<PreemptionClaim> {
        let claim = self.scheduler.claims.remove(number)?;
        self.timers.cancel(&TimerKey::Claim(number));
        self.reindex(&claim.node);
        self.queue.note_room();
        Some(claim)
    }

    /// Sentence about the claim of a waiter.
    pub(crate) fn claim_sentence(&self, waiter: &PlacementWaiter, now: Tick) -> Option<String> {
        let mut claims = self.scheduler.claims.iter();
        let claim = claims.find(|claim| claim.waiter == *waiter)?;
        let at = Tick(claim.at.0.saturating_sub(self.settings.unix_at_zero.0));
        let node = &claim.node;
        let victims = counted_noun(claim.victims.len(), "container");
        Some(match claim.stage {
            ClaimStage::Warned => {
                let left = at.since(now).as_secs_f64().ceil();
                format!(
                    "preemption frees resources on {node}: it stops {victims} of other queues in {left} s"
                )
            }
            ClaimStage::Taken => {
                format!(
                    "preemption frees resources on {node}: it is stopping {victims} of other queues"
                )
            }
        })
    }

    /// Sentence about the claim because of which a size does not fit on a node.
    pub(crate) fn claimed_sentence(&self, node: &NodeId, size: &Resource) -> Option<String> {
        let claim = self.scheduler.claims.on(node).next()?;
        let (ix, free) = (self.nodes.index().ix(node)?, self.ledger().free(node));
        if size.fits(&self.scheduler.left_for_all(node, ix, free)) {
            return None;
        }
        let whose = &claim.waiter.app;
        Some(format!(
            "its free resources are set aside for {whose} by preemption"
        ))
    }

    /// Sentence about an application's own containers that will be preempted.
    pub(crate) fn loss_sentence(&self, app: &AppId) -> Option<String> {
        let going = self.scheduler.claims.victims_of(app);
        let queue = self.apps.get(app).map(|app| app.queue.short().to_owned())?;
        (going > 0).then(|| {
            let going = counted_noun(going, "container");
            format!(
                "queue {queue} has more than its guarantee, and {going} of the application will be preempted"
            )
        })
    }
}
