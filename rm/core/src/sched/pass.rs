//! One pass over those that wait: from the root down, whoever is next gets what fits now. Nobody waits for one ahead that does not
//! fit.
//!
//! Within a pass room only shrinks and limits only tighten, so what has failed stays failed until something is freed.

use headroom_types::{AppId, ContainerId, NodeId, RequestId, Resource};

use super::fit::{self, Need};
use super::index::{NodeIx, fits};
use super::order::Hopeless;
use crate::app::{App, Origin};
use crate::cluster::{Cluster, Ctx, MAX_UNACKED};
use crate::ledger::Part;
use crate::queue::seats::{Class, Rank};
use crate::queue::tree::{Failed, Seat};
use crate::queue::waits::{Head, Whereto};
use crate::queue::{QueueIx, Waiter};

/// What one pass has found out.
#[derive(Default)]
struct Walk {
    /// Sizes that no node has room for.
    hopeless: Hopeless,
    /// Classes of which even the least has no room.
    closed: Vec<Class>,
    /// Classes of which the least had room on a node.
    open: Vec<(Class, Resource, NodeIx)>,
    /// To be noted before the next look.
    failed: Vec<Failed>,
}

impl Cluster {
    /// Grants what can be granted. Does nothing when nothing changed since the last pass.
    pub(crate) fn pass(&mut self, ctx: &mut Ctx<'_>) {
        if std::mem::take(&mut self.room_changed) {
            self.queue.stir();
        }
        if !self.queue.settle(&mut self.ledger) {
            return;
        }
        let mut walk = Walk::default();
        loop {
            let next = self.next_in(QueueIx::ROOT, &mut walk);
            for failed in walk.failed.drain(..) {
                self.queue.fail(failed);
            }
            let Some((waiter, node)) = next else { break };
            match &waiter.request {
                Some(request) => self.grant_request(&waiter.app, request, &node, ctx),
                None => self.grant_master(&waiter.app, &node, ctx),
            }
            self.queue.run(&waiter.app);
            self.queue.settle(&mut self.ledger);
        }
    }

    /// Why nothing is granted to this application at all.
    pub(crate) fn held(&self, app: &App) -> Option<Held> {
        if app.origin == Origin::Restored && self.recovery.is_some() {
            return Some(Held::Recovery);
        }
        (app.updates.len() >= MAX_UNACKED).then_some(Held::Unacknowledged)
    }

    /// The first below a queue that can be given something, and where.
    fn next_in(&self, queue: QueueIx, walk: &mut Walk) -> Option<(Waiter, NodeId)> {
        let mut after: Option<Rank> = None;
        while let Some((rank, seat)) = self.queue.next(queue, after, |class| self.has_room(class, walk)) {
            after = Some(rank);
            let found = match seat {
                Seat::Queue(queue) => self.next_in(queue, walk),
                Seat::App(number) => self.next_of(number, walk),
            };
            if found.is_some() {
                return found;
            }
            walk.failed.push(match seat {
                Seat::Queue(queue) => Failed::Queue(queue),
                Seat::App(number) => Failed::App(number),
            });
        }
        None
    }

    /// Some node has room for the least of this class.
    fn has_room(&self, class: Class, walk: &mut Walk) -> bool {
        if class == Class::ANY {
            return true;
        }
        if walk.closed.contains(&class) {
            return false;
        }
        let known = walk.open.iter().position(|(of, ..)| *of == class);
        if let Some((_, floor, node)) = known.and_then(|at| walk.open.get(at))
            && self.index.slot(*node).is_some_and(|slot| fits(slot, floor))
        {
            return true;
        }
        if let Some(at) = known {
            walk.open.swap_remove(at);
        }
        let floor = class.floor();
        match self.index.best_fit(&floor) {
            Some(node) => walk.open.push((class, floor, node)),
            None => walk.closed.push(class),
        }
        walk.closed.last() != Some(&class)
    }

    /// The first thing that an application waits for and can be given, and where.
    fn next_of(&self, number: u32, walk: &mut Walk) -> Option<(Waiter, NodeId)> {
        let (id, _) = self.queue.member(number)?;
        let app = self.apps.get(id).filter(|app| self.held(app).is_none())?;
        let mut after: Option<Head> = None;
        while let Some((_, head)) = self.queue.next_line(number, after.as_ref()) {
            if let Some((request, node)) = self.try_line(app, number, &head, walk) {
                return Some((Waiter { app: app.id.clone(), request }, node));
            }
            walk.failed.push(Failed::Line(number, head.clone()));
            after = Some(head);
        }
        None
    }

    /// The first of a line that finds a place. Where its head may go anywhere, it speaks for all behind it.
    fn try_line(&self, app: &App, number: u32, head: &Head, walk: &mut Walk) -> Option<(Option<RequestId>, NodeId)> {
        if let Some(node) = self.try_place(app, head.request.as_ref(), walk) {
            return Some((head.request.clone(), node));
        }
        if Need::of(app, head.request.as_ref())?.is_anywhere() {
            return None;
        }
        let behind = self.queue.line(number, head).skip(1);
        behind.into_iter().find_map(|request| Some((Some(request.clone()), self.try_place(app, Some(request), walk)?)))
    }

    fn try_place(&self, app: &App, request: Option<&RequestId>, walk: &mut Walk) -> Option<NodeId> {
        let need = Need::of(app, request)?;
        let anywhere = need.is_anywhere();
        if anywhere && walk.hopeless.covers(need.size) {
            return None;
        }
        if self.limit(app, part(request), need.size).is_some() {
            return None;
        }
        let chosen = fit::choose(&self.index, need).and_then(|ix| self.index.id(ix)).cloned();
        if chosen.is_none() && anywhere {
            walk.hopeless.add(need.size);
        }
        chosen
    }

    /// Puts a request into the queue or takes it out, by what is still missing of it.
    pub(crate) fn requeue(&mut self, app_id: &AppId, request: &RequestId) {
        let Some(app) = self.apps.get(app_id) else { return };
        self.reservations.doubt_request(app_id, request);
        let asked = app.requests.get(request).filter(|asked| app.missing_of(request, asked) > 0);
        match (self.queue.waits(app_id, request), asked) {
            (true, Some(_)) | (false, None) => {}
            (false, Some(asked)) if !app.state.is_ending() => {
                let anywhere = Need::of(app, Some(request)).is_some_and(|need| need.is_anywhere());
                let whereto = if anywhere { Whereto::Anywhere } else { Whereto::Somewhere };
                let at = (asked.ask.priority, asked.arrival);
                self.queue.put_request((app_id, request), &asked.ask.resource, at, whereto, &self.ledger);
            }
            (true, None) => self.queue.remove(&Waiter { app: app_id.clone(), request: Some(request.clone()) }, &self.ledger),
            (false, Some(_)) => {}
        }
    }

    /// Puts a request to its place in the queue again, so that the next pass tries it whatever was found out before.
    pub(crate) fn try_again(&mut self, app_id: &AppId, request: &RequestId) {
        self.queue.remove(&Waiter { app: app_id.clone(), request: Some(request.clone()) }, &self.ledger);
        self.requeue(app_id, request);
    }

    /// Puts a managed master into the queue.
    pub(crate) fn enqueue_master(&mut self, app_id: &AppId) {
        let Some(size) = self.apps.get(app_id).and_then(|app| app.master.as_ref()) else { return };
        let size: Resource = size.resource.clone();
        self.queue.put_master(app_id, &size, &self.ledger);
    }

    /// The next container id; never the same again.
    pub(crate) fn next_container_id(&mut self, app: &AppId) -> ContainerId {
        self.container_seq += 1;
        ContainerId { app: app.clone(), epoch: self.epoch, seq: self.container_seq }
    }
}

/// What a waiter's container is to its application.
pub(crate) fn part(request: Option<&RequestId>) -> Part {
    if request.is_some() { Part::Work } else { Part::Master }
}

/// Why nothing is granted to an application at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Nodes that may have containers of it have not come back yet.
    Recovery,
    /// Its master does not take its updates in.
    Unacknowledged,
}
