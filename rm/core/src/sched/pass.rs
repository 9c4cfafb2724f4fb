//! Scheduling pass: walks from the root over all waiters and grants every container that fits now.
//!
//! A request that does not fit does not block the requests behind it. Within a pass, free resources
//! only shrink and limits only tighten, so a failure stays valid until resources become free.

use headroom_types::{AppId, RequestId, Resource};

use super::blocked_sizes::BlockedSizes;
use super::fit::{self, PlacementNeed};
use super::index::{FreeIndex, fits};
use super::node_ix::NodeNumber;
use crate::app::{ApplicationOrigin, ClusterApplication};
use crate::cluster::{Cluster, MAX_UNACKED};
use crate::ledger::ContainerRole;
use crate::node_table::NodeTable;
use crate::queue::QueueNumber;
use crate::queue::sibling_order::{SiblingRank, SizeClass};
use crate::queue::tree::{FailedCandidate, PassTarget};
use crate::queue::waits::{LineSharing, RequestLineHead};
use crate::step_context::StepContext;
use crate::table::RowPosition;

/// Whether the next pass tries a request that waits already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueAttempt {
    /// Only a request that did not wait.
    IfNew,
    /// Every request that waits.
    Always,
}

/// Intermediate results of one pass.
#[derive(Default)]
struct PassProgress {
    /// Sizes that fit no node.
    blocked_sizes: BlockedSizes,
    /// Classes whose smallest size fits no node.
    closed: Vec<SizeClass>,
    /// Classes whose smallest size fits this node.
    open: Vec<(SizeClass, Resource, NodeNumber)>,
    /// Failures to record before the next iteration.
    failed: Vec<FailedCandidate>,
}

/// Waiter that can be granted, with its node.
#[derive(Clone, Copy, Debug)]
struct PlacedWaiter {
    /// Row of the application.
    app: RowPosition,
    /// Row of the request in the record of the application; `None` for the master.
    request: Option<RowPosition>,
    node: NodeNumber,
}

impl PassProgress {
    /// True when some node fits the smallest size of this class.
    fn has_room(&mut self, class: SizeClass, index: &FreeIndex) -> bool {
        if class == SizeClass::ANY {
            return true;
        }
        if self.closed.contains(&class) {
            return false;
        }
        let known = self.open.iter().position(|(of, ..)| *of == class);
        if let Some((_, floor, node)) = known.and_then(|at| self.open.get(at))
            && index.slot(*node).is_some_and(|slot| fits(slot, floor))
        {
            return true;
        }
        if let Some(at) = known {
            self.open.swap_remove(at);
        }
        let floor = class.floor();
        match index.best_fit(&floor) {
            Some(node) => self.open.push((class, floor, node)),
            None => self.closed.push(class),
        }
        self.closed.last() != Some(&class)
    }
}

impl Cluster {
    /// Grants all containers that can be granted, or ends early because more resources became free.
    /// Does nothing when nothing changed since the last pass.
    pub(crate) fn pass(&mut self, ctx: &mut StepContext<'_>) {
        self.queue.start_due_round();
        if !self.queue.update_order(self.allocations.ledger_mut()) {
            return;
        }
        let mut walk = PassProgress::default();
        loop {
            let next = self.next_in(QueueNumber::ROOT, &mut walk);
            #[cfg(any(test, feature = "testkit"))]
            if self.scheduler.compares_passes {
                self.compare_grant(next.and_then(|waiter| self.named(waiter)));
            }
            for failed in walk.failed.drain(..) {
                self.queue.fail(failed);
            }
            let Some(waiter) = next else { break };
            match waiter.request {
                Some(request) => self.grant_request(waiter.app, request, waiter.node, ctx),
                None => self.grant_master(waiter.app, waiter.node, ctx),
            }
            if let Some(app) = self.apps.at(waiter.app) {
                self.queue.run(&app.id);
            }
            // The grant released a reservation: what failed before may fit now, and goes first.
            if self.queue.room_changed() {
                break;
            }
            self.queue.update_order(self.allocations.ledger_mut());
        }
    }

    /// Application, request and node of a grant.
    #[cfg(any(test, feature = "testkit"))]
    fn named(&self, waiter: PlacedWaiter) -> Option<super::reference_pass::ReferenceGrant> {
        let app = self.apps.at(waiter.app)?;
        let request = waiter.request.and_then(|row| app.requests.entry_at(row));
        let node = self.nodes.index().id(waiter.node)?;
        let request = request.map(|(request, _)| request.clone());
        Some((app.id.clone(), request, node.clone()))
    }

    /// First waiter below a queue that can be granted, with its node.
    fn next_in(&self, queue: QueueNumber, walk: &mut PassProgress) -> Option<PlacedWaiter> {
        let mut after: Option<SiblingRank> = None;
        while let Some((rank, seat)) = self.queue.next(queue, after, |class| {
            walk.has_room(class, self.nodes.index())
        }) {
            after = Some(rank);
            let found = match seat {
                PassTarget::Queue(queue) => self.next_in(queue, walk),
                PassTarget::App(number) => self.next_of(number, walk),
            };
            if found.is_some() {
                return found;
            }
            walk.failed.push(match seat {
                PassTarget::Queue(queue) => FailedCandidate::Queue(queue),
                PassTarget::App(number) => FailedCandidate::App(number),
            });
        }
        None
    }

    /// First waiter of an application that can be granted, with its node.
    fn next_of(&self, number: u32, walk: &mut PassProgress) -> Option<PlacedWaiter> {
        let (id, _) = self.queue.member(number)?;
        let row = self.apps.row_of(id)?;
        let app = self
            .apps
            .at(row)
            .filter(|app| grant_block(app, &self.nodes).is_none())?;
        let mut after: Option<RequestLineHead> = None;
        while let Some((_, head)) = self.queue.next_line(number, after.as_ref()) {
            if let Some((request, node)) = self.try_line(app, number, &head, walk) {
                return Some(PlacedWaiter {
                    app: row,
                    request,
                    node,
                });
            }
            walk.failed.push(FailedCandidate::Line(number, head));
            after = Some(head);
        }
        None
    }

    /// First request of a line that fits. If the head has no placement rules and fails, the others
    /// fail too.
    fn try_line(
        &self,
        app: &ClusterApplication,
        number: u32,
        head: &RequestLineHead,
        walk: &mut PassProgress,
    ) -> Option<(Option<RowPosition>, NodeNumber)> {
        let need = PlacementNeed::at(app, head.request)?;
        if let Some(node) = self.try_place(app, need, walk) {
            return Some((head.request, node));
        }
        if need.is_anywhere() {
            return None;
        }
        let mut behind = self.queue.line(number, head).skip(1);
        behind.find_map(|request| {
            let need = PlacementNeed::at(app, Some(request))?;
            Some((Some(request), self.try_place(app, need, walk)?))
        })
    }

    fn try_place(
        &self,
        app: &ClusterApplication,
        need: PlacementNeed<'_>,
        walk: &mut PassProgress,
    ) -> Option<NodeNumber> {
        let anywhere = need.is_anywhere();
        if anywhere && walk.blocked_sizes.covers(need.size) {
            return None;
        }
        let role = ContainerRole::of(need.of.map(|(_, request)| request));
        let limit = self.queue.limit(app, role, need.size, self.ledger());
        if limit.is_some() {
            return None;
        }
        let chosen = fit::choose(self.nodes.index(), need);
        if chosen.is_none() && anywhere {
            walk.blocked_sizes.add(need.size);
        }
        chosen
    }

    /// Adds a request to its queue or removes it, by the number of missing containers.
    pub(crate) fn requeue(&mut self, app_id: &AppId, request: &RequestId) {
        let Some(row) = self.apps.row_of(app_id) else {
            return;
        };
        let app = self.apps.at(row);
        match app.and_then(|app| app.requests.row_of(request)) {
            Some(request) => self.requeue_at(row, request, QueueAttempt::IfNew),
            None => {
                let reservations = &mut self.scheduler.reservations;
                reservations.mark_request_dirty(app_id, request);
            }
        }
    }

    /// Like [`Cluster::requeue`], for the rows of the application and the request. With
    /// [`QueueAttempt::Always`], the next pass also tries a request that waits already.
    pub(crate) fn requeue_at(
        &mut self,
        app: RowPosition,
        request: RowPosition,
        attempt: QueueAttempt,
    ) {
        let Some(app) = self.apps.at(app) else {
            return;
        };
        let Some((id, asked)) = app.requests.entry_at(request) else {
            return;
        };
        let reservations = &mut self.scheduler.reservations;
        reservations.mark_request_dirty(&app.id, id);
        if app.missing_of(asked) == 0 {
            self.queue.remove(&app.id, Some(request));
            return;
        }
        let waits = self.queue.contains(&app.id, Some(request));
        match attempt {
            QueueAttempt::IfNew if waits => return,
            QueueAttempt::IfNew | QueueAttempt::Always => {}
        }
        if app.state.is_ending() {
            self.queue.remove(&app.id, Some(request));
            return;
        }
        let anywhere = PlacementNeed::of_asked(app, id, asked).is_anywhere();
        let whereto = if anywhere {
            LineSharing::Anywhere
        } else {
            LineSharing::Somewhere
        };
        let at = (asked.ask.priority, asked.arrival);
        let size = &asked.ask.resource;
        self.queue
            .put_request(&app.id, (request, id), size, at, whereto);
    }

    /// Lets the next pass try a request again.
    pub(crate) fn try_again(&mut self, app_id: &AppId, request: &RequestId) {
        let row = self.apps.row_of(app_id);
        let app = row.and_then(|row| self.apps.at(row));
        let request = app.and_then(|app| app.requests.row_of(request));
        if let (Some(row), Some(request)) = (row, request) {
            self.requeue_at(row, request, QueueAttempt::Always);
        }
    }

    /// Adds a managed master to its queue.
    pub(crate) fn enqueue_master(&mut self, app_id: &AppId) {
        if let Some(size) = self.apps.get(app_id).and_then(|app| app.master.as_ref()) {
            self.queue.put_master(app_id, &size.resource);
        }
    }
}

/// Reason why an application gets no containers at all. `None` when it may get some.
pub(crate) fn grant_block(app: &ClusterApplication, nodes: &NodeTable) -> Option<GrantBlock> {
    if app.origin == ApplicationOrigin::Restored && nodes.recovery().is_some() {
        return Some(GrantBlock::Recovery);
    }
    (app.updates.len() >= MAX_UNACKED).then_some(GrantBlock::Unacknowledged)
}

/// Reason why an application gets no containers at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantBlock {
    /// Nodes that may run its containers have not registered after the restart.
    Recovery,
    /// Its master has too many unacknowledged updates.
    Unacknowledged,
}
