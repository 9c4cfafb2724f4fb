//! One pass over those that wait: in their order, each gets what fits now. Nobody waits for one ahead that does not fit.

use headroom_types::{AppId, ContainerId, NodeId, RequestId};

use super::fit::{self, Need};
use super::order::Hopeless;
use crate::app::{App, Origin};
use crate::cluster::{Cluster, Ctx, MAX_UNACKED};
use crate::queue::{Place, Waiter};

impl Cluster {
    /// Grants what can be granted. Does nothing when nothing changed since the last pass.
    pub(crate) fn schedule(&mut self, ctx: &mut Ctx<'_>) {
        let fresh = self.queue.take_fresh();
        let all = std::mem::take(&mut self.room_changed);
        let waiters = if all { self.queue.all().cloned().collect() } else { fresh };
        let mut hopeless = Hopeless::default();
        for waiter in waiters {
            if self.apps.get(&waiter.app).is_some_and(|app| self.held(app).is_none()) {
                self.serve(&waiter, &mut hopeless, ctx);
            }
        }
    }

    /// Why nothing is granted to this application at all.
    pub(crate) fn held(&self, app: &App) -> Option<Held> {
        if app.origin == Origin::Restored && self.recovery.is_some() {
            return Some(Held::Recovery);
        }
        (app.updates.len() >= MAX_UNACKED).then_some(Held::Unacknowledged)
    }

    fn serve(&mut self, waiter: &Waiter, hopeless: &mut Hopeless, ctx: &mut Ctx<'_>) {
        while let Some(chosen) = self.try_place(waiter, hopeless) {
            match &waiter.request {
                Some(request) => self.grant_request(&waiter.app, request, &chosen, ctx),
                None => self.grant_master(&waiter.app, &chosen, ctx),
            }
            if self.apps.get(&waiter.app).is_some_and(|app| self.held(app).is_some()) {
                return;
            }
        }
    }

    fn try_place(&self, waiter: &Waiter, hopeless: &mut Hopeless) -> Option<NodeId> {
        let app = self.apps.get(&waiter.app)?;
        if !self.queue.contains(waiter) {
            return None;
        }
        let need = Need::of(app, waiter.request.as_ref())?;
        let anywhere = need.is_anywhere();
        if anywhere && hopeless.covers(need.size) {
            return None;
        }
        let chosen = fit::choose(&self.index, need).and_then(|ix| self.index.id(ix)).cloned();
        if chosen.is_none() && anywhere {
            hopeless.add(need.size);
        }
        chosen
    }

    /// Puts a request into the queue or takes it out, by what is still missing of it.
    pub(crate) fn requeue(&mut self, app_id: &AppId, request: &RequestId) {
        let Some(app) = self.apps.get(app_id) else { return };
        let waiter = Waiter { app: app_id.clone(), request: Some(request.clone()) };
        match app.requests.get(request) {
            Some(_) if self.queue.contains(&waiter) && app.missing(request) > 0 => {}
            Some(asked) if app.missing(request) > 0 && !app.state.is_ending() => {
                let place = Place::of_request(app_id, app.spec.priority, asked.ask.priority, asked.arrival);
                self.queue.put(waiter, place);
            }
            Some(_) | None => self.queue.remove(&waiter),
        }
    }

    /// Puts a request to its place in the queue again, so that the next pass tries it whatever was found out before.
    pub(crate) fn try_again(&mut self, app_id: &AppId, request: &RequestId) {
        self.queue.remove(&Waiter { app: app_id.clone(), request: Some(request.clone()) });
        self.requeue(app_id, request);
    }

    /// Puts a managed master into the queue.
    pub(crate) fn enqueue_master(&mut self, app_id: &AppId) {
        let Some(app) = self.apps.get(app_id) else { return };
        self.queue.put(Waiter { app: app_id.clone(), request: None }, Place::of_master(app_id, app.spec.priority));
    }

    /// The next container id; never the same again.
    pub(crate) fn next_container_id(&mut self, app: &AppId) -> ContainerId {
        self.container_seq += 1;
        ContainerId { app: app.clone(), epoch: self.epoch, seq: self.container_seq }
    }
}

/// Why nothing is granted to an application at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Nodes that may have containers of it have not come back yet.
    Recovery,
    /// Its master does not take its updates in.
    Unacknowledged,
}
