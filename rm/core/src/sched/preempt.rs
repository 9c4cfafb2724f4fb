//! Preemption: chooses containers to stop, so that queues below their guarantee get resources.
//!
//! Reads the cluster and creates claims (see [`super::claim`]), which stop the victims. There is at
//! most one round per `preempt_every`, and only while a leaf below its guarantee has a waiter that
//! fits into the guarantee.
//!
//! - *Waiters*: leaves below their guarantee, the one with the smallest used part first; in a leaf
//!   by priority and arrival. Only waiters that have waited for at least one interval.
//! - *Guarantees*: two leaves meet in the tree, and the queues below that point decide. On the path
//!   to the waiter, the request must fit every guarantee. On the path to the victim, every queue
//!   must keep its guarantee. So no container is preempted for another one of the same leaf.
//! - *Victims*: queues above their guarantee, the one furthest above first; never of a queue that
//!   is not preemptable, and never a master. In a queue the least escalated first, then the lowest
//!   priority of its request, then the newest.
//! - *Escalated* containers are larger than the smallest container that their application has or
//!   requests; the factor counts. An escalated container has cost a failure before, and its tasks
//!   would start again.
//! - *Amount*: only as many victims as the container needs on one node, and no more than
//!   `preempt_part` of the cluster's memory per round. For one container that needs more, rounds
//!   save the amount.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use headroom_types::{Bytes, ContainerId, NodeId, RequestId, Resource, UnixMillis, millis};

use super::blocked_sizes::BlockedSizes;
use super::claim::{ClaimStage, PreemptionClaim};
use super::constraint::misfit;
use super::fit::PlacementNeed;
use super::grant_block;
use super::reservation::Reservation;
use crate::allocations::Allocations;
use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::container::Container;
use crate::ledger::{ContainerRole, ResourceLedger};
use crate::placement::{LocalityLevel, RelaxationPolicy};
use crate::queue::bound::DominantShare;
use crate::queue::spec::QueuePreemption;
use crate::queue::tree::QueueEntry;
use crate::queue::{PlacementWaiter, QueueNumber, SchedulerQueues};
use crate::size::excess;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

/// Most potential victims that one round considers, in order.
const MOST_VICTIMS: usize = 10_000;
/// Most requests of one leaf that one round considers.
const MOST_WAITERS: usize = 100;
/// Most sizes without a suitable node before a round ends.
const MOST_TRIES: usize = 32;
/// Most victims of one node that are left out for a larger one.
const MOST_DROPPED: usize = 16;
/// Most claims at one time.
const MOST_CLAIMS: usize = 200;

/// A container that can be preempted.
#[derive(Clone, Debug)]
struct PreemptionVictim {
    id: ContainerId,
    node: NodeId,
    leaf: QueueNumber,
    size: Resource,
}

/// Order of victims: queue furthest above its guarantee, least escalated, lowest priority, newest.
type VictimOrder = (
    Reverse<DominantShare>,
    u64,
    i32,
    Reverse<UnixMillis>,
    Reverse<u64>,
);

/// Order of waiters: application's priority and number, request's priority and arrival.
type WaiterOrder = (Reverse<i32>, u32, Reverse<i64>, u64);

/// Resources per queue, each counted in the queue and all its ancestors.
type ResourcesByQueue = BTreeMap<QueueNumber, Resource>;

/// State of one round.
struct PreemptionRound {
    /// Potential victims, in order.
    victims: Vec<PreemptionVictim>,
    /// Remaining number of sizes without a suitable node.
    tries: usize,
    /// Sizes of the current leaf without a suitable node.
    blocked_sizes: BlockedSizes,
}

/// Resources that current claims add to queues and remove from queues.
#[derive(Clone, Debug, Default)]
struct QueueResourceTransfers {
    comes: ResourcesByQueue,
    goes: ResourcesByQueue,
}

/// Potential victims on one node.
#[derive(Clone, Debug, Default)]
struct NodeVictims<'a> {
    members: Vec<&'a PreemptionVictim>,
    room: Resource,
    goes: ResourcesByQueue,
}

impl<'a> NodeVictims<'a> {
    fn add(&mut self, victim: &'a PreemptionVictim, queue: &SchedulerQueues) {
        add(&mut self.room, &victim.size);
        queue.book_path(victim.leaf, &victim.size, &mut self.goes);
        self.members.push(victim);
    }
}

impl Cluster {
    /// Schedules a round when there are waiters.
    pub(crate) fn arm_preemption(&mut self, ctx: &StepContext<'_>) {
        if !self.scheduler.claims.armed && self.settings.preempt_part > 0 && !self.queue.is_empty()
        {
            self.scheduler.claims.armed = true;
            self.timers
                .set(TimerKey::Preempt, ctx.now.plus(self.settings.preempt_every));
        }
    }

    /// Runs one round of preemption.
    pub(crate) fn preempt(&mut self, ctx: &mut StepContext<'_>) {
        self.scheduler.claims.armed = false;
        self.serve_claims(ctx);
        if self.nodes.recovery().is_some() {
            return;
        }
        let short = self.queue.short_leaves(self.ledger());
        if short.is_empty() {
            self.scheduler.claims.spare = Bytes::ZERO;
            return;
        }
        let part = self
            .ledger()
            .total()
            .memory
            .mul_ratio(self.settings.preempt_part.into(), 1000);
        let mut left = part.saturating_add(self.scheduler.claims.spare);
        let mut round = PreemptionRound {
            victims: self.victims(),
            tries: MOST_TRIES,
            blocked_sizes: BlockedSizes::default(),
        };
        self.scheduler.claims.spare = Bytes::ZERO;
        for leaf in short {
            round.blocked_sizes = BlockedSizes::default();
            for waiter in self.waiters(leaf, ctx) {
                while let Some((claim, why)) = self.plan(&waiter, leaf, &mut round, ctx) {
                    let costs = memory_of(&claim, &self.allocations);
                    if costs > left {
                        // later waiters may not overtake with smaller claims
                        self.scheduler.claims.spare = left;
                        return;
                    }
                    left = left.saturating_sub(costs);
                    self.claim(claim, &why, ctx);
                }
            }
        }
    }

    /// Waiters of a leaf that have waited long enough, in order.
    fn waiters(&self, leaf: QueueNumber, ctx: &StepContext<'_>) -> Vec<PlacementWaiter> {
        let every = self.settings.preempt_every;
        let mut all: Vec<(WaiterOrder, PlacementWaiter)> = Vec::new();
        let apps = self
            .queue
            .slot(leaf)
            .into_iter()
            .flat_map(|slot| &slot.apps)
            .filter_map(|id| self.apps.get(id));
        for app in apps.filter(|app| grant_block(app, &self.nodes).is_none()) {
            let mut add = |request: Option<&RequestId>, priority: i64, arrival: u64| {
                if self.queue.contains_request(app, request) {
                    let waiter = PlacementWaiter::new(&app.id, request);
                    all.push((
                        (
                            Reverse(app.priority),
                            app.id.seq(),
                            Reverse(priority),
                            arrival,
                        ),
                        waiter,
                    ));
                }
            };
            let started = app
                .runs
                .iter()
                .rev()
                .nth(1)
                .and_then(|run| run.ended)
                .unwrap_or(app.submitted);
            if app.is_managed() && ctx.wall.since(started) >= every {
                add(None, i64::MAX, 0);
            }
            for (request, asked) in app
                .requests
                .iter()
                .filter(|(_, asked)| ctx.now.since(asked.waiting) >= every)
            {
                add(Some(request), asked.ask.priority.into(), asked.arrival);
            }
        }
        all.sort_unstable();
        all.into_iter()
            .take(MOST_WAITERS)
            .map(|(_, waiter)| waiter)
            .collect()
    }

    /// Potential victims in queues above their guarantee, in order.
    fn victims(&self) -> Vec<PreemptionVictim> {
        let mut all: Vec<(VictimOrder, PreemptionVictim)> = Vec::new();
        for (leaf, slot) in self
            .queue
            .slots()
            .filter(|(_, slot)| slot.children.is_empty() && !slot.apps.is_empty())
        {
            let Some(account) = self.ledger().queue(leaf) else {
                continue;
            };
            let sure = slot.guaranteed.over(&Resource::default());
            let above = DominantShare::of_all(&excess(&account.used, &sure), self.ledger().total());
            if above == DominantShare::default() || !self.queue.is_preemptable(leaf) {
                continue;
            }
            for app in slot.apps.iter().filter_map(|id| self.apps.get(id)) {
                let least = least(app, &self.allocations);
                let containers = self.allocations.in_order(&app.containers);
                let claims = &self.scheduler.claims;
                for c in
                    containers.filter(|c| c.is_preemptable() && claims.against(&c.id).is_none())
                {
                    all.push((order(app, c, least, above), victim(c, leaf)));
                }
            }
        }
        if all.len() > MOST_VICTIMS {
            all.select_nth_unstable_by_key(MOST_VICTIMS, |(order, _)| *order);
            all.truncate(MOST_VICTIMS);
        }
        all.sort_unstable_by_key(|(order, _)| *order);
        all.into_iter().map(|(_, victim)| victim).collect()
    }

    /// True when a node is schedulable, matches the need, and has no reservation that takes
    /// precedence.
    pub(crate) fn allows(&self, need: PlacementNeed<'_>, node: &NodeId) -> bool {
        let open = self.nodes.works(node);
        let Some((ix, slot)) = self
            .nodes
            .index()
            .ix(node)
            .and_then(|ix| Some((ix, self.nodes.index().slot(ix)?)))
        else {
            return false;
        };
        let barred = need.excluded(self.nodes.index());
        let own = |kept: &Reservation| {
            need.of
                .is_some_and(|(app, request)| (&app.id, request) == (&kept.app, &kept.request))
        };
        let kept = self
            .scheduler
            .reservations
            .on(ix)
            .is_some_and(|kept| !own(kept) && self.queue.is_sure_of(kept, self.ledger()));
        open && !kept
            && misfit(need.place, slot).is_none()
            && !barred.bars(ix, slot.traits.rack.as_ref())
    }

    /// Next claim for a waiter, if any victims make it fit.
    fn plan(
        &self,
        waiter: &PlacementWaiter,
        leaf: QueueNumber,
        round: &mut PreemptionRound,
        ctx: &StepContext<'_>,
    ) -> Option<(PreemptionClaim, String)> {
        let app = self.apps.get(&waiter.app)?;
        let request = waiter.request.as_ref();
        let missing = request.map_or(1, |request| app.missing(request));
        if self.scheduler.claims.len() >= MOST_CLAIMS
            || self.scheduler.claims.of(waiter) >= usize::try_from(missing).unwrap_or(usize::MAX)
        {
            return None;
        }
        let need = PlacementNeed::of(app, request)?;
        let is_final =
            need.reach == LocalityLevel::Anywhere || need.place.relax == RelaxationPolicy::Never;
        if !is_final
            || self
                .queue
                .limit(app, ContainerRole::of(request), need.size, self.ledger())
                .is_some()
        {
            // its preference may still be satisfied, or a limit prevents the grant anyway
            return None;
        }
        // A waiter with a reservation may use a node that the others before it may not.
        let reserved =
            request.is_some_and(|r| self.scheduler.reservations.of(&app.id, r).is_some());
        let blocked = need.is_anywhere() && !reserved && round.blocked_sizes.covers(need.size);
        if round.tries == 0 || blocked {
            return None;
        }
        let Some((node, taken)) = self.find_victims(need, leaf, &round.victims) else {
            round.tries -= 1;
            if need.is_anywhere() {
                round.blocked_sizes.add(need.size);
            }
            return None;
        };
        let at = UnixMillis(
            ctx.wall
                .0
                .saturating_add(millis(self.settings.preempt_warning)),
        );
        let why = self
            .queue
            .claim_reason(leaf, need.size, &node, self.ledger());
        let claim = PreemptionClaim {
            waiter: waiter.clone(),
            size: need.size.clone(),
            node,
            victims: taken,
            at,
            stage: ClaimStage::Warned,
        };
        Some((claim, why))
    }

    /// First node on which victims free enough resources for `need`, with those victims.
    fn find_victims(
        &self,
        need: PlacementNeed<'_>,
        leaf: QueueNumber,
        victims: &[PreemptionVictim],
    ) -> Option<(NodeId, std::collections::BTreeSet<ContainerId>)> {
        let (queue, ledger) = (&self.queue, self.ledger());
        let moving = self.moving(|_| true);
        let meets: Vec<QueueNumber> = self.queue.path_of(leaf).map(|(ix, _)| ix).collect();
        let entitled: Vec<bool> = meets
            .iter()
            .map(|meet| queue.is_entitled(leaf, *meet, need.size, &moving, ledger))
            .collect();
        if !entitled.contains(&true) {
            return None;
        }
        let mut piles: BTreeMap<&NodeId, Option<NodeVictims<'_>>> = BTreeMap::new();
        for victim in victims
            .iter()
            .filter(|victim| self.scheduler.claims.against(&victim.id).is_none())
        {
            let Some((at, meet)) = queue.meet(victim.leaf, &meets) else {
                continue;
            };
            if !entitled.get(at).copied().unwrap_or(false) {
                continue;
            }
            let start = || {
                self.allows(need, &victim.node).then(|| NodeVictims {
                    room: self.room_for_claims(&victim.node),
                    ..NodeVictims::default()
                })
            };
            let Some(pile) = piles.entry(&victim.node).or_insert_with(start) else {
                continue;
            };
            let short = excess(need.size, &pile.room);
            if !helps(&victim.size, &short) {
                continue;
            }
            if queue.can_lose(victim, meet, &moving.goes, &pile.goes, ledger) {
                pile.add(victim, &self.queue);
            } else if let Some(fewer) = self.with_fewer(pile, victim, &meets, &moving.goes, need) {
                *pile = fewer;
            } else {
                continue;
            }
            if need.size.fits(&pile.room) {
                let taken = needed_victims(pile, need.size);
                return Some((victim.node.clone(), taken));
            }
        }
        None
    }

    /// Free resources of a node beside its claims.
    fn room_for_claims(&self, node: &NodeId) -> Resource {
        let free = self.ledger().free(node);
        self.scheduler.left_beside_claims(node, free)
    }

    /// A pile that frees enough with `victim` and some of the members before it. Together with all
    /// of them, `victim` would take its queue below its guarantee: many small victims must not
    /// prevent one that is large enough. Members join in order, each only if its queue keeps its
    /// guarantee; if that is not enough, the first ones are left out.
    fn with_fewer<'a>(
        &self,
        pile: &NodeVictims<'a>,
        victim: &'a PreemptionVictim,
        meets: &[QueueNumber],
        going: &ResourcesByQueue,
        need: PlacementNeed<'_>,
    ) -> Option<NodeVictims<'a>> {
        let (queue, ledger) = (&self.queue, self.ledger());
        let may_go = |victim: &PreemptionVictim, with: &ResourcesByQueue| {
            queue
                .meet(victim.leaf, meets)
                .is_some_and(|(_, meet)| queue.can_lose(victim, meet, going, with, ledger))
        };
        if !may_go(victim, &ResourcesByQueue::default()) {
            return None;
        }
        (0..=pile.members.len().min(MOST_DROPPED)).find_map(|dropped| {
            let mut fewer = NodeVictims {
                room: self.room_for_claims(&victim.node),
                ..NodeVictims::default()
            };
            fewer.add(victim, &self.queue);
            for member in pile.members.iter().skip(dropped) {
                if need.size.fits(&fewer.room) {
                    break;
                }
                if may_go(member, &fewer.goes) {
                    fewer.add(member, &self.queue);
                }
            }
            need.size.fits(&fewer.room).then_some(fewer)
        })
    }

    /// Repeats the checks of the plan at the end of the warning.
    pub(crate) fn may_still_take(&self, claim: &PreemptionClaim, victims: &[ContainerId]) -> bool {
        let Some(leaf) = self.queue.leaf_of(&claim.waiter.app) else {
            return false;
        };
        let (queue, ledger) = (&self.queue, self.ledger());
        let moving = self.moving(|other| other.stage == ClaimStage::Taken);
        let meets: Vec<QueueNumber> = self.queue.path_of(leaf).map(|(ix, _)| ix).collect();
        let mut gone = ResourcesByQueue::new();
        self.allocations.of(victims).all(|c| {
            let Some(theirs) = self.queue.leaf_of(&c.id.app) else {
                return false;
            };
            let Some((_, meet)) = queue.meet(theirs, &meets) else {
                return false;
            };
            let victim = victim(c, theirs);
            let right = queue.is_preemptable(theirs)
                && queue.is_entitled(leaf, meet, &claim.size, &moving, ledger)
                && queue.can_lose(&victim, meet, &moving.goes, &gone, ledger);
            queue.book_path(theirs, &victim.size, &mut gone);
            right
        })
    }

    /// Resources that current claims move between queues.
    fn moving(&self, which: impl Fn(&PreemptionClaim) -> bool) -> QueueResourceTransfers {
        let mut moving = QueueResourceTransfers::default();
        for claim in self.scheduler.claims.iter().filter(|claim| which(claim)) {
            if let Some(leaf) = self.queue.leaf_of(&claim.waiter.app) {
                self.queue.book_path(leaf, &claim.size, &mut moving.comes);
            }
            for c in self.allocations.alive(&claim.victims) {
                if let Some(leaf) = self.queue.leaf_of(&c.id.app) {
                    self.queue.book_path(leaf, &c.counted().0, &mut moving.goes);
                }
            }
        }
        moving
    }
}

impl SchedulerQueues {
    /// Leaves with waiters and an unfilled guarantee on their path, the smallest used part first.
    fn short_leaves(&self, ledger: &ResourceLedger) -> Vec<QueueNumber> {
        let leaves = self
            .slots()
            .filter(|(_, slot)| slot.children.is_empty() && slot.waiting > 0);
        let fill = |leaf: QueueNumber| {
            let named = self.path_of(leaf).filter(|(_, slot)| is_named(slot));
            named
                .filter_map(|(ix, slot)| {
                    Some(DominantShare::of_bound(
                        &ledger.queue(ix)?.used,
                        &slot.guaranteed,
                    ))
                })
                .min()
        };
        let mut short: Vec<(DominantShare, QueueNumber)> =
            leaves.filter_map(|(ix, _)| Some((fill(ix)?, ix))).collect();
        short.retain(|(fill, _)| !fill.is_whole());
        short.sort_unstable();
        short.into_iter().map(|(_, leaf)| leaf).collect()
    }

    /// True when a reservation is within its queue's guarantee. A reservation beyond the guarantee
    /// yields to queues below theirs.
    fn is_sure_of(&self, kept: &Reservation, ledger: &ResourceLedger) -> bool {
        let Some(leaf) = self.leaf_of(&kept.app) else {
            return false;
        };
        let mut named = self
            .path_of(leaf)
            .filter(|(_, slot)| is_named(slot))
            .peekable();
        let fits = |ix: QueueNumber, slot: &QueueEntry| {
            ledger
                .queue(ix)
                .is_some_and(|a| slot.guaranteed.admits(&a.used, &kept.size))
        };
        named.peek().is_some() && named.all(|(ix, slot)| fits(ix, slot))
    }

    fn claim_reason(
        &self,
        leaf: QueueNumber,
        size: &Resource,
        node: &NodeId,
        ledger: &ResourceLedger,
    ) -> String {
        let short = self
            .path_of(leaf)
            .find(|(ix, slot)| is_named(slot) && !Self::filled(*ix, slot, ledger).is_whole());
        let (name, fill) = short.map_or(("", 0), |(ix, slot)| {
            (
                slot.path.short(),
                Self::filled(ix, slot, ledger).thousandths() / 10,
            )
        });
        format!("queue {name} has {fill} % of its guarantee and needs {size} on {node}")
    }
    fn filled(ix: QueueNumber, slot: &QueueEntry, ledger: &ResourceLedger) -> DominantShare {
        ledger
            .queue(ix)
            .map_or(DominantShare::default(), |account| {
                DominantShare::of_bound(&account.used, &slot.guaranteed)
            })
    }

    /// True when the size fits every guarantee between the common queue and the leaf, and there is
    /// one.
    fn is_entitled(
        &self,
        leaf: QueueNumber,
        meet: QueueNumber,
        size: &Resource,
        moving: &QueueResourceTransfers,
        ledger: &ResourceLedger,
    ) -> bool {
        let way = self
            .path_of(leaf)
            .take_while(|(ix, _)| *ix != meet)
            .filter(|(_, slot)| is_named(slot));
        let mut any = false;
        for (ix, slot) in way {
            let Some(account) = ledger.queue(ix) else {
                return false;
            };
            let mut used = account.used.clone();
            if let Some(comes) = moving.comes.get(&ix) {
                add(&mut used, comes);
            }
            if !slot.guaranteed.admits(&used, size) {
                return false;
            }
            any = true;
        }
        any
    }

    /// True when every queue between the common queue and the victim keeps its guarantee without
    /// the victim.
    fn can_lose(
        &self,
        victim: &PreemptionVictim,
        meet: QueueNumber,
        going: &ResourcesByQueue,
        pile: &ResourcesByQueue,
        ledger: &ResourceLedger,
    ) -> bool {
        self.path_of(victim.leaf)
            .take_while(|(ix, _)| *ix != meet)
            .filter(|(_, slot)| is_named(slot))
            .all(|(ix, slot)| {
                let Some(account) = ledger.queue(ix) else {
                    return false;
                };
                let gone = [going.get(&ix), pile.get(&ix), Some(&victim.size)];
                let rest = gone
                    .into_iter()
                    .flatten()
                    .fold(account.used.clone(), |rest, size| excess(&rest, size));
                DominantShare::of_bound(&rest, &slot.guaranteed).is_whole()
            })
    }

    fn is_preemptable(&self, leaf: QueueNumber) -> bool {
        self.path_of(leaf)
            .all(|(_, slot)| slot.spec.preemptable == QueuePreemption::Yes)
    }

    /// Lowest common queue of `leaf` and the waiter's leaf, with its index in `meets`.
    fn meet(&self, leaf: QueueNumber, meets: &[QueueNumber]) -> Option<(usize, QueueNumber)> {
        self.path_of(leaf)
            .find_map(|(ix, _)| Some((meets.iter().position(|meet| *meet == ix)?, ix)))
    }

    fn book_path(&self, leaf: QueueNumber, size: &Resource, sums: &mut ResourcesByQueue) {
        for (ix, _) in self.path_of(leaf) {
            add(sums.entry(ix).or_default(), size);
        }
    }
}

/// Memory of the victims of a claim.
fn memory_of(claim: &PreemptionClaim, allocations: &Allocations) -> Bytes {
    let sizes = allocations.of(&claim.victims);
    sizes.fold(Bytes::ZERO, |sum, c| {
        sum.saturating_add(c.counted().0.memory)
    })
}

/// Memory of the smallest container that an application has or requests.
fn least(app: &ClusterApplication, allocations: &Allocations) -> Bytes {
    let asked = app.requests.values().map(|asked| asked.ask.resource.memory);
    let has = allocations.among(&app.containers);
    let has = has.filter(|c| c.request.is_some());
    let all = asked.chain(has.map(|c| c.resource.memory));
    all.min().unwrap_or_default()
}

fn is_named(slot: &QueueEntry) -> bool {
    !slot.guaranteed.is_open() && !slot.guaranteed.is_nothing()
}

fn victim(c: &Container, leaf: QueueNumber) -> PreemptionVictim {
    PreemptionVictim {
        id: c.id.clone(),
        node: c.node.clone(),
        leaf,
        size: c.counted().0,
    }
}

/// Position among the potential victims.
fn order(
    app: &ClusterApplication,
    c: &Container,
    least: Bytes,
    above: DominantShare,
) -> VictimOrder {
    let times = c.resource.memory.get().saturating_mul(1000) / least.get().max(1);
    let priority = c
        .request
        .as_ref()
        .and_then(|request| app.requests.get(request))
        .map_or(0, |asked| asked.ask.priority);
    (
        Reverse(above),
        times,
        priority,
        Reverse(c.granted),
        Reverse(c.id.seq),
    )
}

/// True when the size contains a missing resource.
fn helps(size: &Resource, short: &Resource) -> bool {
    let memory = !short.memory.is_zero() && !size.memory.is_zero();
    let cpus = short.cpus.milli() > 0 && size.cpus.milli() > 0;
    memory
        || cpus
        || short
            .extra
            .keys()
            .any(|name| size.extra.get(name).is_some_and(|n| *n > 0))
}

/// Victims that are really needed: later ones in the order are dropped first.
fn needed_victims(
    pile: &NodeVictims<'_>,
    size: &Resource,
) -> std::collections::BTreeSet<ContainerId> {
    let (mut room, mut taken) = (pile.room.clone(), pile.members.clone());
    for at in (0..taken.len()).rev() {
        let Some(member) = taken.get(at) else {
            continue;
        };
        let rest = excess(&room, &member.size);
        if size.fits(&rest) {
            room = rest;
            taken.remove(at);
        }
    }
    taken.into_iter().map(|victim| victim.id.clone()).collect()
}

/// Adds a size to a sum and saturates on overflow.
fn add(sum: &mut Resource, size: &Resource) {
    crate::ledger::add_times(sum, size, 1);
}
