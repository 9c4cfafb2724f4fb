//! What was decided not to be placed lately, and why: a short memory for each application, always kept.
//!
//! Owned by the application's record. A decision is noted when a request is asked for, and once a second while it waits; the same
//! reason again is counted, not added.

use std::collections::VecDeque;

use headroom_types::{AppId, RequestId, Tick, UnixMillis};

use crate::cluster::Cluster;
use crate::event::Verdict;
use crate::queue::Waiter;

/// Most entries for one application.
const MOST: usize = 20;
/// Most requests noted in one review; those behind them are noted in later ones.
const AT_ONCE: usize = 256;

/// One reason not to place a container, as long as it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// When it was found first.
    pub since: UnixMillis,
    /// When it was found last.
    pub at: UnixMillis,
    /// How often.
    pub times: u32,
    /// Of which request.
    pub request: RequestId,
    /// The reason.
    pub sentence: String,
}

/// The latest of them.
#[derive(Clone, Debug, Default)]
pub struct Ring(VecDeque<Undecided>);

impl Ring {
    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Undecided> {
        self.0.iter()
    }
    fn note(&mut self, at: UnixMillis, request: &RequestId, sentence: String) {
        let last = self.0.iter_mut().rev().find(|entry| entry.request == *request);
        if let Some(last) = last.filter(|last| last.sentence == sentence) {
            last.at = at;
            last.times = last.times.saturating_add(1);
            return;
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Undecided { since: at, at, times: 1, request: request.clone(), sentence });
    }
}

impl Cluster {
    /// The latest decisions not to place something for an application, oldest first.
    pub fn undecided(&self, app: &AppId) -> impl Iterator<Item = &Undecided> {
        self.apps.get(app).into_iter().flat_map(|app| app.undecided.iter())
    }

    /// Notes why a request was not given anything.
    pub(crate) fn note_undecided(&mut self, app: &AppId, request: &RequestId, sentence: String, now: Tick) {
        let wall = self.wall(now);
        if let Some(app) = self.apps.get_mut(app) {
            app.undecided.note(wall, request, sentence);
        }
    }

    /// What became of a request that was just taken in; noted when it waits.
    pub(crate) fn decided(&mut self, app: &AppId, request: &RequestId, now: Tick) -> Verdict {
        let verdict = self.verdict(app, request, now);
        if let Verdict::Waits { sentence } = &verdict {
            self.note_undecided(app, request, sentence.clone(), now);
        }
        verdict
    }

    /// Notes why those that wait do, some at a time.
    pub(crate) fn note_waiting(&mut self, waiting: &[Waiter], now: Tick) {
        let first = self.noted.checked_rem(waiting.len()).unwrap_or(0);
        self.noted = first.saturating_add(AT_ONCE);
        for waiter in waiting.iter().cycle().skip(first).take(waiting.len().min(AT_ONCE)) {
            let (app, Some(request)) = (&waiter.app, &waiter.request) else { continue };
            let sentence = self.apps.get(app).and_then(|record| self.sentence(record, request, now));
            if let Some(sentence) = sentence {
                self.note_undecided(app, request, sentence, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::id;

    #[test]
    fn the_same_reason_is_counted_and_the_oldest_goes_first() {
        let (mut ring, a, b) = (Ring::default(), id("a"), id("b"));
        ring.note(UnixMillis(1), &a, "full".into());
        ring.note(UnixMillis(2), &b, "full".into());
        ring.note(UnixMillis(3), &a, "full".into());
        let first = ring.iter().next().expect("noted");
        assert_eq!((first.since, first.at, first.times), (UnixMillis(1), UnixMillis(3), 2));
        for n in 0..MOST as u64 {
            ring.note(UnixMillis(n), &a, format!("{n} short"));
        }
        assert_eq!(ring.iter().count(), MOST);
        assert_eq!(ring.iter().next().map(|entry| entry.sentence.as_str()), Some("0 short"));
    }
}
