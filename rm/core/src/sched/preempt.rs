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

use headroom_types::{Bytes, ContainerId, NodeId, RequestId, Resource, UnixMillis};

use super::blocked_sizes::BlockedSizes;
use super::claim::{ClaimStage, PreemptionClaim};
use super::constraint::misfit;
use super::fit::PlacementNeed;
use super::locality::ExcludedPlaces;
use super::part;
use super::reservation::Reservation;
use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::container::{Container, ContainerState};
use crate::placement::{LocalityLevel, RelaxPolicy};
use crate::queue::bound::DominantShare;
use crate::queue::tree::QueueEntry;
use crate::queue::{PlacementWaiter, QueueNumber};
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

impl Cluster {
    /// Schedules a round when there are waiters.
    pub(crate) fn arm_preemption(&mut self, ctx: &StepContext<'_>) {
        if !self.claims.armed && self.settings.preempt_part > 0 && !self.queue.is_empty() {
            self.claims.armed = true;
            self.timers
                .set(TimerKey::Preempt, ctx.now.plus(self.settings.preempt_every));
        }
    }

    /// Runs one round of preemption.
    pub(crate) fn preempt(&mut self, ctx: &mut StepContext<'_>) {
        self.claims.armed = false;
        self.serve_claims(ctx);
        if self.recovery.is_some() {
            return;
        }
        let short = self.short_leaves();
        if short.is_empty() {
            self.claims.spare = Bytes::ZERO;
            return;
        }
        let part = self
            .ledger
            .total()
            .memory
            .mul_ratio(self.settings.preempt_part.into(), 1000);
        let mut left = part.saturating_add(self.claims.spare);
        let mut round = PreemptionRound {
            victims: self.victims(),
            tries: MOST_TRIES,
            blocked_sizes: BlockedSizes::default(),
        };
        self.claims.spare = Bytes::ZERO;
        for leaf in short {
            round.blocked_sizes = BlockedSizes::default();
            for waiter in self.waiters(leaf, ctx) {
                while let Some((claim, why)) = self.plan(&waiter, leaf, &mut round, ctx) {
                    let costs = self.memory_of(&claim);
                    if costs > left {
                        // later waiters may not overtake with smaller claims
                        self.claims.spare = left;
                        return;
                    }
                    left = left.saturating_sub(costs);
                    self.claim(claim, &why, ctx);
                }
            }
        }
    }

    fn memory_of(&self, claim: &PreemptionClaim) -> Bytes {
        let sizes = claim
            .victims
            .iter()
            .filter_map(|victim| self.containers.get(victim))
            .map(|c| c.counted().0.memory);
        sizes.fold(Bytes::ZERO, Bytes::saturating_add)
    }

    /// Leaves with waiters and an unfilled guarantee on their path, the smallest used part first.
    fn short_leaves(&self) -> Vec<QueueNumber> {
        let leaves = self
            .queue
            .slots()
            .filter(|(_, slot)| slot.children.is_empty() && slot.waiting > 0);
        let fill = |leaf: QueueNumber| {
            let named = self.queue.path_of(leaf).filter(|(_, slot)| is_named(slot));
            named
                .filter_map(|(ix, slot)| {
                    Some(DominantShare::of_bound(
                        &self.ledger.queue(ix)?.used,
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
        for app in apps.filter(|app| self.held(app).is_none()) {
            let mut add = |request: Option<&RequestId>, priority: i64, arrival: u64| {
                let waiter = PlacementWaiter {
                    app: app.id.clone(),
                    request: request.cloned(),
                };
                if self.queue.contains(&waiter) {
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
            let Some(account) = self.ledger.queue(leaf) else {
                continue;
            };
            let sure = slot.guaranteed.over(&Resource::default());
            let above = DominantShare::of_all(&excess(&account.used, &sure), self.ledger.total());
            if above == DominantShare::default() || !self.is_preemptable(leaf) {
                continue;
            }
            for app in slot.apps.iter().filter_map(|id| self.apps.get(id)) {
                let least = self.least(app);
                let containers = app
                    .containers
                    .iter()
                    .filter(|id| self.can_go(id) && self.claims.against(id).is_none());
                for c in containers.filter_map(|id| self.containers.get(id)) {
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

    /// Memory of the smallest container that an application has or requests.
    fn least(&self, app: &ClusterApplication) -> Bytes {
        let asked = app.requests.values().map(|asked| asked.ask.resource.memory);
        let has = app
            .containers
            .iter()
            .filter_map(|id| self.containers.get(id))
            .filter(|c| c.request.is_some());
        asked
            .chain(has.map(|c| c.resource.memory))
            .min()
            .unwrap_or_default()
    }

    fn is_preemptable(&self, leaf: QueueNumber) -> bool {
        self.queue
            .path_of(leaf)
            .all(|(_, slot)| slot.spec.preemptable == crate::queue::spec::QueuePreemption::Yes)
    }

    /// True when the container is not a master and was not ordered to stop.
    pub(crate) fn can_go(&self, id: &ContainerId) -> bool {
        self.containers.get(id).is_some_and(|c| match c.state {
            ContainerState::Allocated | ContainerState::Launching | ContainerState::Running => {
                c.request.is_some()
            }
            ContainerState::Stopping { .. }
            | ContainerState::Exited { .. }
            | ContainerState::Done { .. } => false,
        })
    }

    /// True when a node is schedulable, matches the need, and has no reservation that takes
    /// precedence.
    pub(crate) fn allows(&self, need: PlacementNeed<'_>, node: &NodeId) -> bool {
        let open = self.nodes.get(node).is_some_and(|node| self.is_open(node));
        let Some((ix, slot)) = self
            .index
            .ix(node)
            .and_then(|ix| Some((ix, self.index.slot(ix)?)))
        else {
            return false;
        };
        let barred = need
            .of
            .map(|(app, request)| ExcludedPlaces::apart(&self.index, app, request, need.place))
            .unwrap_or_default();
        let own = |kept: &Reservation| {
            need.of
                .is_some_and(|(app, request)| (&app.id, request) == (&kept.app, &kept.request))
        };
        let kept = self
            .reservations
            .on(ix)
            .is_some_and(|kept| !own(kept) && self.is_sure_of(kept));
        open && !kept
            && misfit(need.place, slot).is_none()
            && !barred.bars(ix, slot.traits.rack.as_ref())
    }

    /// True when a reservation is within its queue's guarantee. A reservation beyond the guarantee
    /// yields to queues below theirs.
    fn is_sure_of(&self, kept: &Reservation) -> bool {
        let Some(leaf) = self.queue.leaf_of(&kept.app) else {
            return false;
        };
        let mut named = self
            .queue
            .path_of(leaf)
            .filter(|(_, slot)| is_named(slot))
            .peekable();
        let fits = |ix: QueueNumber, slot: &QueueEntry| {
            self.ledger
                .queue(ix)
                .is_some_and(|a| slot.guaranteed.admits(&a.used, &kept.size))
        };
        named.peek().is_some() && named.all(|(ix, slot)| fits(ix, slot))
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
        if self.claims.len() >= MOST_CLAIMS
            || self.claims.of(waiter) >= usize::try_from(missing).unwrap_or(usize::MAX)
        {
            return None;
        }
        let need = PlacementNeed::of(app, request)?;
        let is_final =
            need.reach == LocalityLevel::Anywhere || need.place.relax == RelaxPolicy::Never;
        if !is_final || self.limit(app, part(request), need.size).is_some() {
            // its preference may still be satisfied, or a limit prevents the grant anyway
            return None;
        }
        // A waiter with a reservation may use a node that the others before it may not.
        let reserved = request.is_some_and(|r| self.reservations.of(&app.id, r).is_some());
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
        let at = UnixMillis(ctx.wall.0.saturating_add(
            u64::try_from(self.settings.preempt_warning.as_millis()).unwrap_or(u64::MAX),
        ));
        let why = self.claim_reason(leaf, need.size, &node);
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

    fn claim_reason(&self, leaf: QueueNumber, size: &Resource, node: &NodeId) -> String {
        let short = self
            .queue
            .path_of(leaf)
            .find(|(ix, slot)| is_named(slot) && !self.filled(*ix, slot).is_whole());
        let (name, fill) = short.map_or(("", 0), |(ix, slot)| {
            (slot.path.short(), self.filled(ix, slot).thousandths() / 10)
        });
        format!("queue {name} has {fill} % of its guarantee and needs {size} on {node}")
    }
    fn filled(&self, ix: QueueNumber, slot: &QueueEntry) -> DominantShare {
        self.ledger
            .queue(ix)
            .map_or(DominantShare::default(), |account| {
                DominantShare::of_bound(&account.used, &slot.guaranteed)
            })
    }

    /// First node on which victims free enough resources for `need`, with those victims.
    fn find_victims(
        &self,
        need: PlacementNeed<'_>,
        leaf: QueueNumber,
        victims: &[PreemptionVictim],
    ) -> Option<(NodeId, std::collections::BTreeSet<ContainerId>)> {
        let moving = self.moving(|_| true);
        let meets: Vec<QueueNumber> = self.queue.path_of(leaf).map(|(ix, _)| ix).collect();
        let entitled: Vec<bool> = meets
            .iter()
            .map(|meet| self.is_entitled(leaf, *meet, need.size, &moving))
            .collect();
        if !entitled.contains(&true) {
            return None;
        }
        let mut piles: BTreeMap<&NodeId, Option<NodeVictims<'_>>> = BTreeMap::new();
        for victim in victims
            .iter()
            .filter(|victim| self.claims.against(&victim.id).is_none())
        {
            let Some((at, meet)) = self.meet(victim.leaf, &meets) else {
                continue;
            };
            if !entitled.get(at).copied().unwrap_or(false) {
                continue;
            }
            let start = || {
                self.allows(need, &victim.node).then(|| NodeVictims {
                    room: self.room_beside_claims(&victim.node),
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
            if self.can_lose(victim, meet, &moving.goes, &pile.goes) {
                self.add_victim(pile, victim);
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

    fn add_victim<'a>(&self, pile: &mut NodeVictims<'a>, victim: &'a PreemptionVictim) {
        add(&mut pile.room, &victim.size);
        self.book_path(victim.leaf, &victim.size, &mut pile.goes);
        pile.members.push(victim);
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
        let may_go = |victim: &PreemptionVictim, with: &ResourcesByQueue| {
            self.meet(victim.leaf, meets)
                .is_some_and(|(_, meet)| self.can_lose(victim, meet, going, with))
        };
        if !may_go(victim, &ResourcesByQueue::default()) {
            return None;
        }
        (0..=pile.members.len().min(MOST_DROPPED)).find_map(|dropped| {
            let mut fewer = NodeVictims {
                room: self.room_beside_claims(&victim.node),
                ..NodeVictims::default()
            };
            self.add_victim(&mut fewer, victim);
            for member in pile.members.iter().skip(dropped) {
                if need.size.fits(&fewer.room) {
                    break;
                }
                if may_go(member, &fewer.goes) {
                    self.add_victim(&mut fewer, member);
                }
            }
            need.size.fits(&fewer.room).then_some(fewer)
        })
    }

    /// Lowest common queue of `leaf` and the waiter's leaf, with its index in `meets`.
    fn meet(&self, leaf: QueueNumber, meets: &[QueueNumber]) -> Option<(usize, QueueNumber)> {
        self.queue
            .path_of(leaf)
            .find_map(|(ix, _)| Some((meets.iter().position(|meet| *meet == ix)?, ix)))
    }

    /// True when the size fits every guarantee between the common queue and the leaf, and there is
    /// one.
    fn is_entitled(
        &self,
        leaf: QueueNumber,
        meet: QueueNumber,
        size: &Resource,
        moving: &QueueResourceTransfers,
    ) -> bool {
        let way = self
            .queue
            .path_of(leaf)
            .take_while(|(ix, _)| *ix != meet)
            .filter(|(_, slot)| is_named(slot));
        let mut any = false;
        for (ix, slot) in way {
            let Some(account) = self.ledger.queue(ix) else {
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
    ) -> bool {
        self.queue
            .path_of(victim.leaf)
            .take_while(|(ix, _)| *ix != meet)
            .filter(|(_, slot)| is_named(slot))
            .all(|(ix, slot)| {
                let Some(account) = self.ledger.queue(ix) else {
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

    /// Repeats the checks of the plan at the end of the warning.
    pub(crate) fn may_still_take(&self, claim: &PreemptionClaim, victims: &[ContainerId]) -> bool {
        let Some(leaf) = self.queue.leaf_of(&claim.waiter.app) else {
            return false;
        };
        let moving = self.moving(|other| other.stage == ClaimStage::Taken);
        let meets: Vec<QueueNumber> = self.queue.path_of(leaf).map(|(ix, _)| ix).collect();
        let mut gone = ResourcesByQueue::new();
        victims
            .iter()
            .filter_map(|id| self.containers.get(id))
            .all(|c| {
                let Some(theirs) = self.queue.leaf_of(&c.id.app) else {
                    return false;
                };
                let Some((_, meet)) = self.meet(theirs, &meets) else {
                    return false;
                };
                let victim = victim(c, theirs);
                let right = self.is_preemptable(theirs)
                    && self.is_entitled(leaf, meet, &claim.size, &moving)
                    && self.can_lose(&victim, meet, &moving.goes, &gone);
                self.book_path(theirs, &victim.size, &mut gone);
                right
            })
    }

    /// Resources that current claims move between queues.
    fn moving(&self, which: impl Fn(&PreemptionClaim) -> bool) -> QueueResourceTransfers {
        let mut moving = QueueResourceTransfers::default();
        for claim in self.claims.iter().filter(|claim| which(claim)) {
            if let Some(leaf) = self.queue.leaf_of(&claim.waiter.app) {
                self.book_path(leaf, &claim.size, &mut moving.comes);
            }
            let alive = claim
                .victims
                .iter()
                .filter_map(|id| self.containers.get(id))
                .filter(|c| c.state.is_alive());
            for c in alive {
                if let Some(leaf) = self.queue.leaf_of(&c.id.app) {
                    self.book_path(leaf, &c.counted().0, &mut moving.goes);
                }
            }
        }
        moving
    }

    fn book_path(&self, leaf: QueueNumber, size: &Resource, sums: &mut ResourcesByQueue) {
        for (ix, _) in self.queue.path_of(leaf) {
            add(sums.entry(ix).or_default(), size);
        }
    }
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
