//! Room that is being made on one node for one container: from the warning until whoever has the claim is there.
//!
//! Owned by the cluster. Never chooses whom to take: that is `preempt`'s part. In memory only: after a restart whoever
//! is still short of room claims again.
//!
//! ```text
//!                  deadline: still right            room for it
//!  Warned ────────────────────────────► Taken ─────────────────────► granted
//!     │ room for it ────────────────────► granted │
//!     │ need gone, node closed, no right any more │ need gone, node closed, all have ended and it is not enough
//!     └──────────► called off                     └──────────► called off
//! ```
//!
//! While a claim stands, what is free on its node is kept for it, up to its size: otherwise the queue that gives containers up
//! would take the room back piece by piece. Room that comes from anywhere serves the claim: a victim that is released, another
//! container of the node that ends. What is left of the victims is then not touched.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Bytes, ContainerId, NodeId, Reason, RequestId, Resource, StopCause, Tick, UnixMillis};

use super::fit::Need;
use super::index::NodeIx;
use super::part;
use super::reserve::beside;
use crate::cluster::{Cluster, Ctx};
use crate::container;
use crate::event::{Level, UpdateKind};
use crate::leases::container_line;
use crate::queue::Waiter;
use crate::size::excess;
use crate::timer::Key;

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The masters of those that are to go have been told.
    Warned,
    /// Those that were still there were told to stop.
    Taken,
}

/// Room that is being made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// For whom.
    pub waiter: Waiter,
    /// For a container of this size.
    pub size: Resource,
    /// Where.
    pub node: NodeId,
    /// Who has to go for it.
    pub victims: BTreeSet<ContainerId>,
    /// When they are stopped, on the wall clock.
    pub at: UnixMillis,
    /// How far it is.
    pub stage: Stage,
}

/// All claims that stand.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    all: BTreeMap<u64, Claim>,
    by_node: BTreeMap<NodeId, BTreeSet<u64>>,
    victims: BTreeMap<ContainerId, u64>,
    made: u64,
    /// A round is planned.
    pub(crate) armed: bool,
    /// What earlier rounds did not take while somebody needed more than one round may take. Bytes.
    pub(crate) spare: Bytes,
}

impl Claims {
    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.all.values()
    }
    /// How many stand.
    pub fn len(&self) -> usize {
        self.all.len()
    }
    /// True when none stands.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    /// Those on one node, oldest first.
    pub fn on<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Claim> {
        self.by_node.get(node).into_iter().flatten().filter_map(|number| self.all.get(number))
    }
    /// The claim for which a container has to go.
    pub fn against(&self, victim: &ContainerId) -> Option<&Claim> {
        self.all.get(self.victims.get(victim)?)
    }
    /// How many stand for one waiter.
    pub fn of(&self, waiter: &Waiter) -> usize {
        self.all.values().filter(|claim| claim.waiter == *waiter).count()
    }
    /// True when room is being made for a request.
    pub(crate) fn has(&self, app: &AppId, request: &RequestId) -> bool {
        !self.all.is_empty()
            && self.all.values().any(|claim| claim.waiter.app == *app && claim.waiter.request.as_ref() == Some(request))
    }
    fn add(&mut self, claim: Claim) -> u64 {
        self.made += 1;
        self.by_node.entry(claim.node.clone()).or_default().insert(self.made);
        self.victims.extend(claim.victims.iter().map(|victim| (victim.clone(), self.made)));
        self.all.insert(self.made, claim);
        self.made
    }
    fn remove(&mut self, number: u64) -> Option<Claim> {
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

impl Cluster {
    /// Room that is being made by preemption.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// What is free on a node beside claims. What is kept there for a request counts as free: this is asked only for that request,
    /// or for one with a better claim, to which it gives way.
    pub(crate) fn room_beside_claims(&self, node: &NodeId) -> Resource {
        let free = self.ledger.node(node).map(crate::ledger::Account::free).unwrap_or_default();
        self.claims.on(node).fold(free, |free, claim| beside(&free, &claim.size))
    }

    /// What is free on a node for anybody: what is kept for a reservation or for claims is left out.
    pub(crate) fn room_for_all(&self, node: &NodeId) -> Resource {
        let free = self.ledger.node(node).map(crate::ledger::Account::free).unwrap_or_default();
        self.index.ix(node).map(|ix| self.room_beside(node, ix, free.clone())).unwrap_or(free)
    }

    /// The same of what is `free` on it.
    pub(crate) fn room_beside(&self, node: &NodeId, ix: NodeIx, free: Resource) -> Resource {
        let kept = self.reservations.on(ix).map(|kept| &kept.size);
        kept.into_iter().chain(self.claims.on(node).map(|claim| &claim.size)).fold(free, |free, size| beside(&free, size))
    }

    /// Puts a claim up and warns whoever has to go for it.
    pub(crate) fn claim(&mut self, claim: Claim, why: &str, ctx: &mut Ctx<'_>) {
        let (node, at) = (claim.node.clone(), claim.at);
        let size = claim.size.clone();
        let who = claim.waiter.request.as_ref().map_or("its master".to_owned(), ToString::to_string);
        let message = format!("{who} needs {size}: {} containers on {node} have to go", claim.victims.len());
        ctx.log_app(Level::Normal, Reason::PreemptPlanned, &claim.waiter.app, message);
        for victim in &claim.victims {
            let what = UpdateKind::PreemptSoon { container: victim.clone(), at, why: why.to_owned() };
            self.update(&victim.app, what, ctx);
            ctx.log(container_line(Level::Normal, Reason::PreemptSoon, victim, &node, why.to_owned()));
        }
        self.claim_instead(&claim.waiter, &node, ctx);
        let number = self.claims.add(claim);
        self.timers.set(Key::Claim(number), Tick(at.0.saturating_sub(self.settings.unix_at_zero.0)).max(ctx.now));
        self.reindex(&node);
    }

    /// A claim takes the place of a node that was kept for the same request, and of what its node was kept for.
    fn claim_instead(&mut self, waiter: &Waiter, node: &NodeId, ctx: &mut Ctx<'_>) {
        if let Some(ix) = self.index.ix(node).filter(|ix| self.reservations.on(*ix).is_some()) {
            self.unreserve(ix, "room is made there for a queue that has less than its guarantee", ctx);
        }
        let Some(request) = &waiter.request else { return };
        if let Some((ix, _)) = self.reservations.of(&waiter.app, request) {
            self.unreserve(ix, "room is made for it by preemption", ctx);
        }
    }

    /// The warning is over.
    pub(crate) fn claim_due(&mut self, number: u64, ctx: &mut Ctx<'_>) {
        self.serve_claims(ctx);
        let Some(claim) = self.claims.all.get(&number) else { return };
        let victims: Vec<ContainerId> = claim.victims.iter().filter(|victim| self.can_go(victim)).cloned().collect();
        if !self.may_still_take(claim, &victims) {
            return self.call_off(number, "its queue or theirs is no longer where it was", ctx);
        }
        if let Some(claim) = self.claims.all.get_mut(&number) {
            claim.stage = Stage::Taken;
        }
        for victim in victims {
            self.container_event(&victim, container::Event::Stop(StopCause::Preempted), ctx);
        }
        self.settle_claim(number, ctx);
    }

    /// Every claim is as far as it can be. Room that came goes to those that wait for it longest.
    pub(crate) fn serve_claims(&mut self, ctx: &mut Ctx<'_>) {
        let numbers: Vec<u64> = self.claims.all.keys().copied().collect();
        for number in numbers {
            self.settle_claim(number, ctx);
        }
    }

    fn settle_claim(&mut self, number: u64, ctx: &mut Ctx<'_>) {
        let Some(claim) = self.claims.all.get(&number) else { return };
        if let Some(why) = self.is_vain(number, claim) {
            return self.call_off(number, why, ctx);
        }
        let earlier = self.claims.on(&claim.node).take_while(|other| *other != claim);
        let free = self.ledger.node(&claim.node).map(crate::ledger::Account::free).unwrap_or_default();
        let free = earlier.fold(free, |free, other| excess(&free, &other.size));
        if claim.size.fits(&free) {
            return self.fulfil(number, ctx);
        }
        let left = claim.victims.iter().any(|v| self.containers.get(v).is_some_and(|c| c.state.is_alive()));
        if !left {
            self.call_off(number, "what had to go has gone, and it is not enough", ctx);
        }
    }

    /// Why a claim has no sense any more.
    fn is_vain(&self, number: u64, claim: &Claim) -> Option<&'static str> {
        let Some(app) = self.apps.get(&claim.waiter.app).filter(|_| self.queue.contains(&claim.waiter)) else {
            return Some("nobody waits for it any more");
        };
        let request = claim.waiter.request.as_ref();
        let need = Need::of(app, request)?;
        if *need.size != claim.size {
            return Some("another size is asked for now");
        }
        let missing = request.map_or(1, |request| app.missing(request));
        let before = self.claims.all.range(..number).filter(|(_, other)| other.waiter == claim.waiter).count();
        if before >= usize::try_from(missing).unwrap_or(usize::MAX) {
            return Some("what it waited for was found elsewhere");
        }
        if !self.allows(need, &claim.node) {
            return Some("its node takes nothing of it any more");
        }
        None
    }

    fn fulfil(&mut self, number: u64, ctx: &mut Ctx<'_>) {
        let Some(claim) = self.claims.all.get(&number) else { return };
        let Some(app) = self.apps.get(&claim.waiter.app) else { return };
        let request = claim.waiter.request.clone();
        if self.held(app).is_some() || self.limit(app, part(request.as_ref()), &claim.size).is_some() {
            return; // it may pass; if not, the deadline or the next round sees to it
        }
        let (id, node) = (claim.waiter.app.clone(), claim.node.clone());
        match &request {
            Some(request) => self.grant_request(&id, request, &node, ctx),
            None => self.grant_master(&id, &node, ctx),
        }
        self.drop_claim(number); // what is left is free for all
        self.queue.run(&id);
    }

    fn call_off(&mut self, number: u64, why: &str, ctx: &mut Ctx<'_>) {
        let Some(claim) = self.drop_claim(number) else { return };
        let message = format!("room for {} on {} is not made: {why}", claim.size, claim.node);
        ctx.log_app(Level::Normal, Reason::PreemptCalledOff, &claim.waiter.app, message);
    }

    fn drop_claim(&mut self, number: u64) -> Option<Claim> {
        let claim = self.claims.remove(number)?;
        self.timers.cancel(&Key::Claim(number));
        self.reindex(&claim.node);
        self.room_changed = true;
        Some(claim)
    }

    /// That room is being made for a waiter.
    pub(crate) fn claim_sentence(&self, waiter: &Waiter, now: Tick) -> Option<String> {
        let claim = self.claims.iter().find(|claim| claim.waiter == *waiter)?;
        let at = Tick(claim.at.0.saturating_sub(self.settings.unix_at_zero.0));
        let (node, victims) = (&claim.node, claim.victims.len());
        Some(match claim.stage {
            Stage::Warned => {
                let left = at.since(now).as_secs_f64().ceil();
                format!("room is made for it on {node}: {victims} containers of other queues go in {left} s")
            }
            Stage::Taken => format!("room is made for it on {node}: {victims} containers of other queues are being stopped"),
        })
    }

    /// For whom the room on a node is kept, when that is why a size does not fit.
    pub(crate) fn claimed_sentence(&self, node: &NodeId, size: &Resource) -> Option<String> {
        let claim = self.claims.on(node).next().filter(|_| !size.fits(&self.room_for_all(node)))?;
        Some(format!("keeps its room for {}, which has a better claim", claim.waiter.app))
    }

    /// That some of an application's own containers have to go.
    pub(crate) fn loss_sentence(&self, app: &AppId) -> Option<String> {
        let going = self.claims.victims.keys().filter(|victim| victim.app == *app).count();
        let queue = self.apps.get(app).map(|app| app.queue.short().to_owned())?;
        (going > 0).then(|| format!("queue {queue} has more than its guarantee, and {going} of its containers have to go"))
    }

    /// For the invariants.
    pub(crate) fn check_claims(&self) {
        for (number, claim) in &self.claims.all {
            let timed = self.timers.of(&Key::Claim(*number)).is_some();
            assert_eq!(timed, claim.stage == Stage::Warned, "a claim on {} is never due", claim.node);
            assert!(
                self.claims.by_node.get(&claim.node).is_some_and(|all| all.contains(number)),
                "{} forgets a claim",
                claim.node
            );
            for victim in &claim.victims {
                assert_eq!(self.claims.victims.get(victim), Some(number), "{victim} has to go for two");
                let master = self.containers.get(victim).is_some_and(|c| c.request.is_none());
                assert!(!master, "{victim} is a master and has to go");
            }
        }
        let listed: usize = self.claims.all.values().map(|claim| claim.victims.len()).sum();
        assert_eq!(listed, self.claims.victims.len(), "containers have to go for nobody");
    }
}
