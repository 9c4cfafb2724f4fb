//! What waits, in the order it is served. One queue: priority, then first come, first served.
//!
//! Owned by the cluster. Holds keys only; a tree of queues with shares can take its place without the scheduler noticing.

pub mod spec;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, RequestId};

/// The place in the queue: application's priority, application's number, master first, request's priority, arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    app_priority: Reverse<i32>,
    app: u32,
    request_priority: Reverse<i64>,
    arrival: u64,
}

impl Place {
    /// The place of a request.
    pub fn of_request(app: &AppId, app_priority: i32, priority: i32, arrival: u64) -> Self {
        Place { app_priority: Reverse(app_priority), app: app.seq(), request_priority: Reverse(i64::from(priority)), arrival }
    }
    /// The place of a master: before all requests of its application.
    pub fn of_master(app: &AppId, app_priority: i32) -> Self {
        Place { app_priority: Reverse(app_priority), app: app.seq(), request_priority: Reverse(i64::MAX), arrival: 0 }
    }
}

/// Who waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    /// Whose.
    pub app: AppId,
    /// Which request; `None` for the master.
    pub request: Option<RequestId>,
}

/// Everything that waits.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    places: BTreeMap<Place, Waiter>,
    of: BTreeMap<Waiter, Place>,
    fresh: BTreeSet<Place>,
}

impl Queue {
    /// Puts a waiter to its place; it is tried in the next pass even when nothing became free.
    pub fn put(&mut self, waiter: Waiter, place: Place) {
        self.remove(&waiter);
        self.fresh.insert(place);
        self.places.insert(place, waiter.clone());
        self.of.insert(waiter, place);
    }
    /// Takes a waiter out.
    pub fn remove(&mut self, waiter: &Waiter) {
        if let Some(place) = self.of.remove(waiter) {
            self.places.remove(&place);
            self.fresh.remove(&place);
        }
    }
    /// Those put since the last time this was asked, in order.
    pub fn take_fresh(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.fresh).into_iter().filter_map(|place| self.places.get(&place).cloned()).collect()
    }
    /// All, in order.
    pub fn all(&self) -> impl Iterator<Item = &Waiter> {
        self.places.values()
    }
    /// How many go before this one.
    pub fn ahead(&self, waiter: &Waiter) -> usize {
        self.of.get(waiter).map_or(0, |place| self.places.range(..place).count())
    }
    /// True when this one waits.
    pub fn contains(&self, waiter: &Waiter) -> bool {
        self.of.contains_key(waiter)
    }
    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }
    /// True when nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_then_first_come() {
        let mut queue = Queue::default();
        let app = |text: &str| text.parse::<AppId>().expect("id");
        let waiter = |a: &str, r: Option<&str>| Waiter { app: app(a), request: r.map(|r| r.parse().expect("id")) };
        queue.put(waiter("late.3", Some("x")), Place::of_request(&app("late.3"), 5, 0, 3));
        queue.put(waiter("b.2", Some("x")), Place::of_request(&app("b.2"), 0, 0, 2));
        queue.put(waiter("a.1", Some("low")), Place::of_request(&app("a.1"), 0, 0, 1));
        queue.put(waiter("a.1", Some("high")), Place::of_request(&app("a.1"), 0, 9, 4));
        queue.put(waiter("b.2", None), Place::of_master(&app("b.2"), 0));
        let order: Vec<String> =
            queue.all().map(|w| format!("{}/{}", w.app, w.request.as_ref().map_or("master", RequestId::as_str))).collect();
        assert_eq!(order, ["late.3/x", "a.1/high", "a.1/low", "b.2/master", "b.2/x"]);
        assert_eq!(queue.ahead(&waiter("a.1", Some("low"))), 2);
        queue.remove(&waiter("late.3", Some("x")));
        assert_eq!(queue.take_fresh().len(), 4);
        assert!(queue.take_fresh().is_empty());
    }
}
