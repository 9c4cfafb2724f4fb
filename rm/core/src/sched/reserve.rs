//! Reservations: a node whose free resources are set aside for a request that would otherwise
//! starve, because smaller requests use every free piece.
//!
//! The scheduler's state has the reservations. The order of the queue decides which request goes
//! first. The free resources of a reserved node are set aside up to the size of the request: the
//! index only shows the rest, so that no other request uses them.
//!
//! A request gets a reservation when it has waited for `reserve_after`, smaller containers were
//! granted in the meantime, and its preference is fully relaxed. The remaining run time of
//! containers is unknown. So the request gets the node with the least missing memory, and among
//! equals the one whose oldest container has run longest. While it waits, the missing memory can
//! only shrink, and the reservation moves only to a node with less missing memory. So the request
//! is granted after at most as many container ends as one node has containers, moves included.
//!
//! There is at most one reservation per leaf queue. In total there is one per ten schedulable
//! nodes, at least one and at most sixteen, because each costs work at every event. The next
//! starving request follows when one was granted.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_types::{AppId, Bytes, Cpus, NodeId, Reason, RequestId, Resource, Tick, UnixMillis};

use super::constraint::{candidates, is_choosy, misfit};
use super::fit::PlacementNeed;
use super::free_memory_index::FreeMemoryIndex;
use super::grant_block;
use super::index::IndexedNode;
use super::locality::ExcludedPlaces;
use super::node_ix::NodeNumber;
use super::reservation::Reservation;
use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::event::LogSeverity;
use crate::ledger::{ContainerRole, ResourceLedger};
use crate::node_table::NodeTable;
use crate::queue::QueueNumber;
use crate::queue::tree::NextVisit;
use crate::step_context::StepContext;
use crate::timer::TimerKey;

/// Most reservations at one time.
const MOST: usize = 16;
/// Time without progress after which a reservation is released for one pass: a container on the
/// node may itself wait for these resources.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Most nodes with equally little missing memory whose age is compared.
const COMPARED: usize = 64;
/// Shortest and longest interval between reviews of reservations.
const REVIEW: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Missing memory, countable pieces and processors.
type MissingResources = (Bytes, u64, Cpus);

/// Missing resources of a node for a size: memory first.
fn lacks(free: &Resource, size: &Resource) -> MissingResources {
    let pieces = size
        .extra
        .iter()
        .map(|(name, n)| n.saturating_sub(free.extra.get(name).copied().unwrap_or(0)));
    let cpus = size.cpus.checked_sub(free.cpus).unwrap_or(Cpus::ZERO);
    (size.memory.saturating_sub(free.memory), pieces.sum(), cpus)
}

/// Nodes with the least missing resources so far, at most [`COMPARED`].
#[derive(Debug, Default)]
struct ReservationCandidates {
    rows: Vec<(MissingResources, NodeNumber)>,
}

impl ReservationCandidates {
    /// Considers a node. Returns false when it lacks more memory than the best one.
    fn look_at(&mut self, (lack, ix): (MissingResources, NodeNumber)) -> bool {
        let best = self.rows.first().map(|(best, _)| *best);
        if best.is_some_and(|best| lack < best) {
            self.rows.clear();
        }
        if self.rows.len() < COMPARED && best.is_none_or(|best| lack <= best) {
            self.rows.push((lack, ix));
        }
        best.is_none_or(|best| lack.0 <= best.0)
    }
}

/// Largest number of reservations: a tenth of the schedulable nodes, at least one, at most
/// [`MOST`].
pub(crate) fn most_reservations(nodes: &NodeTable) -> usize {
    (nodes.index().working() / 10).clamp(1, MOST)
}

/// True when the node has enough memory without its containers. Unattributed memory does not count.
fn could_hold(ledger: &ResourceLedger, node: NodeNumber, size: &Resource) -> bool {
    ledger.account(node).is_none_or(|account| {
        size.memory <= account.offers.memory.saturating_sub(account.unattributed)
    })
}

/// Considers nodes that are open to all requests: those with enough memory and the most
/// processors, or else those with the most memory.
fn least_of_all(
    open: &FreeMemoryIndex,
    size: &Resource,
    lack: impl Fn(NodeNumber) -> Option<(MissingResources, NodeNumber)>,
    least: &mut ReservationCandidates,
) {
    if size.extra.is_empty() {
        let roomiest = open.roomiest(size.memory, size.cpus, COMPARED, |ix| lack(ix).is_some());
        roomiest.into_iter().filter_map(&lack).for_each(|row| {
            least.look_at(row);
        });
        if !least.rows.is_empty() {
            return;
        }
    }
    // the list is sorted by free memory, so the missing memory only grows
    let mut down = open.down().filter_map(|entry| lack(entry.node));
    while down.next().is_some_and(|row| least.look_at(row)) {}
}

impl Cluster {
    /// All reservations.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        let all = self.scheduler.reservations.all();
        all.map(|(_, reservation)| reservation)
    }

    /// Grants all containers that can be granted, holders of reservations first.
    pub(crate) fn schedule(&mut self, ctx: &mut StepContext<'_>) {
        loop {
            self.reindex_moved();
            if self.queue.room_changed() && !self.scheduler.claims.is_empty() {
                self.serve_claims(ctx);
            }
            if self.scheduler.reservations.take_dirty() {
                self.release_stalled_reservations(ctx);
                self.keep_reservations(ctx);
            }
            self.pass(ctx);
            // a holder that was granted elsewhere, or a filled node, may free resources
            if !self.queue.room_changed() {
                break;
            }
        }
        if !self.queue.is_empty() && self.timers.of(&TimerKey::Reserve).is_none() {
            let every = self.settings.reserve_after.clamp(REVIEW.0, REVIEW.1);
            self.timers.set(TimerKey::Reserve, ctx.now.plus(every));
        }
        self.arm_preemption(ctx);
    }

    /// Reserves nodes for starving requests, and moves reservations to better nodes.
    pub(crate) fn review_reservations(&mut self, ctx: &mut StepContext<'_>) {
        self.note_waiting(ctx.now);
        self.keep_reservations(ctx);
        self.move_reservations(ctx);
        if self.scheduler.reservations.len() >= most_reservations(&self.nodes) {
            return;
        }
        for (ix, reservation) in self.next_reservations(ctx.now) {
            self.reserve(ix, reservation, ctx);
        }
    }

    /// Reservations for starving requests, as many as are possible beside the current ones.
    fn next_reservations(&self, now: Tick) -> Vec<(NodeNumber, Reservation)> {
        let leaves: BTreeSet<QueueNumber> = self.kept_leaves().collect();
        let most = most_reservations(&self.nodes).saturating_sub(self.scheduler.reservations.len());
        let mut found: Vec<(NodeNumber, Reservation)> = Vec::new();
        let mut visit = |app: &AppId, request: Option<&RequestId>| {
            if found.len() >= most {
                return NextVisit::Nothing;
            }
            let known = request.and_then(|request| Some((self.apps.get(app)?, request)));
            let Some((app, request)) =
                known.filter(|(app, request)| self.starves(app, request, now))
            else {
                return NextVisit::NextWaiter;
            };
            let taken: BTreeSet<NodeNumber> = found.iter().map(|(ix, _)| *ix).collect();
            let Some(need) = PlacementNeed::of(app, Some(request)) else {
                return NextVisit::NextWaiter;
            };
            let Some((lack, ix, node)) = self.soonest(need, &taken) else {
                return NextVisit::NextWaiter;
            };
            let reservation = Reservation {
                node,
                app: app.id.clone(),
                request: request.clone(),
                size: need.size.clone(),
                since: now,
                lacks: (lack, now),
            };
            found.push((ix, reservation));
            NextVisit::NextLeaf
        };
        self.queue.visit_waiting(&leaves, self.ledger(), &mut visit);
        found
    }

    /// Leaf queues with a reservation; each leaf has at most one.
    pub(crate) fn kept_leaves(&self) -> impl Iterator<Item = QueueNumber> {
        self.reservations()
            .filter_map(|r| self.queue.leaf_of(&r.app))
    }

    /// True when a request has waited long enough, smaller containers were granted in the meantime,
    /// and its preference is fully relaxed.
    fn starves(&self, app: &ClusterApplication, request: &RequestId, now: Tick) -> bool {
        let Some(asked) = app.requests.get(request) else {
            return false;
        };
        now.since(asked.waiting) >= self.settings.reserve_after
            && self
                .scheduler
                .reservations
                .recent_grants
                .smaller_since(asked.served, &asked.ask.resource)
            && asked.reach.next(&asked.ask.place).is_none()
            && self.may_be_served(app, Some(request), &asked.ask.resource)
            && !self.scheduler.claims.has(&app.id, request) // a claim frees resources for it
    }

    /// True when an application may get a container of this size for a request, or for its master
    /// when `request` is `None`.
    pub(crate) fn may_be_served(
        &self,
        app: &ClusterApplication,
        request: Option<&RequestId>,
        size: &Resource,
    ) -> bool {
        let (role, ledger) = (ContainerRole::of(request), self.ledger());
        grant_block(app, &self.nodes).is_none()
            && self.queue.limit(app, role, size, ledger).is_none()
    }

    /// Suitable node with the least missing memory, and that amount.
    fn soonest(
        &self,
        need: PlacementNeed<'_>,
        taken: &BTreeSet<NodeNumber>,
    ) -> Option<(Bytes, NodeNumber, NodeId)> {
        let barred = need.excluded(self.nodes.index());
        let could = |slot: &&IndexedNode, ix: NodeNumber| {
            slot.offers.as_ref().is_some_and(|offers| need.size.fits(offers))
                && misfit(need.place, slot).is_none()
                && !barred.bars(ix, slot.traits.rack.as_ref())
                && self.scheduler.reservations.on(ix).is_none()
                && self.scheduler.claims.on(&slot.node).next().is_none() // a claim sets its resources aside
                && !taken.contains(&ix)
                && could_hold(self.ledger(), ix, need.size)
        };
        let lack = |ix: NodeNumber| {
            let slot = self.nodes.index().slot(ix).filter(|slot| could(slot, ix))?;
            Some((lacks(slot.room.as_ref()?, need.size), ix))
        };
        let mut least = ReservationCandidates::default();
        if is_choosy(need.place) {
            candidates(self.nodes.index(), need.place, need.size)
                .filter_map(|slot| lack(self.nodes.index().ix(&slot.node)?))
                .for_each(|row| {
                    least.look_at(row);
                });
        } else {
            least_of_all(&self.nodes.index().open, need.size, lack, &mut least);
        }
        let (lack, ix) = least
            .rows
            .into_iter()
            .min_by_key(|(_, ix)| (self.oldest_on(*ix), *ix))?;
        Some((lack.0, ix, self.nodes.index().id(ix)?.clone()))
    }

    /// Time of the grant of the oldest live container on a node.
    fn oldest_on(&self, ix: NodeNumber) -> Option<UnixMillis> {
        let on_node = self.allocations.among(&self.nodes.at(ix)?.containers);
        let alive = on_node.filter(|c| c.state.is_alive());
        alive.map(|c| c.granted).min()
    }

    fn move_reservations(&mut self, ctx: &mut StepContext<'_>) {
        let held: Vec<(NodeNumber, Reservation)> = self
            .scheduler
            .reservations
            .all()
            .map(|(ix, r)| (ix, r.clone()))
            .collect();
        for (ix, reservation) in held {
            let free = self.ledger().free(&reservation.node);
            let app = self.apps.get(&reservation.app);
            let Some(need) = app.and_then(|app| PlacementNeed::of(app, Some(&reservation.request)))
            else {
                continue;
            };
            let better = self
                .soonest(need, &BTreeSet::new())
                .filter(|(lack, ..)| *lack < lacks(&free, need.size).0);
            if let Some((lack, to, node)) = better {
                self.unreserve(ix, &format!("{node} lacks fewer resources"), ctx);
                self.reserve(
                    to,
                    Reservation {
                        node,
                        lacks: (lack, ctx.now),
                        ..reservation
                    },
                    ctx,
                );
            }
        }
    }

    fn reserve(&mut self, ix: NodeNumber, reservation: Reservation, ctx: &mut StepContext<'_>) {
        let node = reservation.node.clone();
        let message = format!(
            "{node} is reserved for {}, {}",
            reservation.request, reservation.size
        );
        ctx.log_app(
            LogSeverity::Normal,
            Reason::NodeReserved,
            &reservation.app,
            message,
        );
        self.scheduler.reservations.put(ix, reservation);
        self.scheduler.reservations.mark_all_dirty();
        self.reindex(&node);
    }

    /// Cancels a reservation.
    pub(crate) fn unreserve(&mut self, ix: NodeNumber, why: &str, ctx: &mut StepContext<'_>) {
        let Some(reservation) = self.scheduler.reservations.take(ix) else {
            return;
        };
        self.queue.note_room();
        self.reindex(&reservation.node);
        let message = format!(
            "{} is not reserved for {} any more: {why}",
            reservation.node, reservation.request
        );
        ctx.log_app(
            LogSeverity::Normal,
            Reason::ReservationEnded,
            &reservation.app,
            message,
        );
    }

    /// Releases reservations without progress for one pass. Two applications can block each other:
    /// one holds a container until its end, the other holds a reservation. The released request may
    /// get the node again.
    fn release_stalled_reservations(&mut self, ctx: &mut StepContext<'_>) {
        let mut still = Vec::new();
        for (ix, reservation) in self.scheduler.reservations.all_mut() {
            let free = self.allocations.ledger().free(&reservation.node);
            let now = reservation.size.memory.saturating_sub(free.memory);
            if now < reservation.lacks.0 {
                reservation.lacks = (now, ctx.now);
            } else if ctx.now.since(reservation.lacks.1) >= STALL_TIMEOUT {
                still.push(ix);
            }
        }
        for ix in still {
            self.unreserve(
                ix,
                "no container ended there; other requests have a turn",
                ctx,
            );
        }
    }

    /// Cancels obsolete reservations, and grants those whose node has enough free resources.
    fn keep_reservations(&mut self, ctx: &mut StepContext<'_>) {
        if self.scheduler.reservations.is_empty() {
            return; // the usual case
        }
        let most = most_reservations(&self.nodes);
        let all = self.scheduler.reservations.all();
        let held: Vec<NodeNumber> = all.map(|(ix, _)| ix).collect();
        let mut leaves = BTreeSet::new();
        for ix in held {
            let Some(reservation) = self.scheduler.reservations.on(ix).cloned() else {
                continue;
            };
            let leaf = self.queue.leaf_of(&reservation.app);
            if let Some(why) = self.is_void(ix, &reservation) {
                self.unreserve(ix, why, ctx);
            } else if !leaves.insert(leaf) {
                self.unreserve(
                    ix,
                    "its application moved to a queue that has another reservation",
                    ctx,
                );
            } else if self
                .ledger()
                .account(ix)
                .is_some_and(|account| reservation.size.fits(&account.free()))
            {
                self.grant_by_id(&reservation.app, Some(&reservation.request), ix, ctx);
                self.queue.run(&reservation.app);
                self.queue.update_order(self.allocations.ledger_mut());
            }
        }
        while self.scheduler.reservations.len() > most {
            let newest = self
                .scheduler
                .reservations
                .all()
                .max_by_key(|(ix, r)| (r.since, *ix))
                .map(|(ix, _)| ix);
            let Some(newest) = newest else { break };
            self.unreserve(
                newest,
                "too few nodes are left for so many reservations",
                ctx,
            );
        }
    }

    /// Reason why a reservation is obsolete. `None` when it is valid.
    fn is_void(&self, ix: NodeNumber, reservation: &Reservation) -> Option<&'static str> {
        let Some(app) = self.apps.get(&reservation.app) else {
            return Some("its application does not exist any more");
        };
        if app.missing(&reservation.request) == 0 {
            return Some("the request does not wait any more");
        }
        let Some(need) = PlacementNeed::of(app, Some(&reservation.request)) else {
            return Some("the request does not exist any more");
        };
        if *need.size != reservation.size {
            return Some("the size of the request has changed");
        }
        if !self.may_be_served(app, Some(&reservation.request), need.size) {
            return Some("the request may not get containers now");
        }
        let slot = self.nodes.index().slot(ix);
        let Some(slot) = slot.filter(|slot| slot.room.is_some()) else {
            return Some("the node takes no work");
        };
        let large = slot
            .offers
            .as_ref()
            .is_some_and(|offers| need.size.fits(offers));
        if !large || !could_hold(self.ledger(), ix, need.size) || misfit(need.place, slot).is_some()
        {
            return Some("the request may not use the node now");
        }
        let barred =
            ExcludedPlaces::apart(self.nodes.index(), app, &reservation.request, need.place);
        barred
            .bars(ix, slot.traits.rack.as_ref())
            .then_some("anti-affinity with new containers there")
    }

    /// True when a container of this request uses no resources that are set aside for others on the
    /// node.
    pub(crate) fn may_take(
        &self,
        app: &AppId,
        request: &RequestId,
        size: &Resource,
        node: NodeNumber,
    ) -> bool {
        let own = || {
            let kept = self.scheduler.reservations.of(app, request);
            kept.is_some_and(|(on, _)| on == node)
        };
        let made = || {
            let slot = self.nodes.index().slot(node);
            slot.is_some_and(|slot| {
                self.scheduler.claims.on(&slot.node).any(|claim| {
                    claim.waiter.app == *app && claim.waiter.request.as_ref() == Some(request)
                })
            })
        };
        self.scheduler.reservations.is_empty()
            || own()
            || made()
            || self
                .nodes
                .index()
                .room(node)
                .is_some_and(|room| size.fits(room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::reservation::beside;
    use crate::testkit::{id, size};

    #[test]
    fn a_reservation_sets_aside_at_most_the_free_resources() {
        let mut free = size(6, 4);
        free.extra.insert(id("gpu"), 3);
        let mut aside = size(8, 1);
        aside.extra.insert(id("gpu"), 1);
        let rest = beside(&free, &aside);
        assert_eq!(
            (rest.memory, rest.cpus, rest.extra[&id("gpu")]),
            (Bytes::ZERO, Cpus::from_cores(3), 2)
        );
        assert_eq!(lacks(&free, &aside), (Bytes::from_gib(2), 0, Cpus::ZERO));
    }
}
