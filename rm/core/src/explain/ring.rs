//! Recent reasons why requests of an application were not placed.
//!
//! The application's record owns the list. A reason is recorded when a request arrives, and at
//! every review while it waits. A repeated reason only increases a count.

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_types::{AppId, RequestId, Resource, Tick, UnixMillis};

use crate::app::App;
use crate::cluster::Cluster;
use crate::event::RequestVerdict;
use crate::sched::fit::PlacementNeed;

/// Most entries for one application.
const MOST: usize = 20;
/// Most requests that one review records; later reviews record the rest.
const AT_ONCE: usize = 256;

/// Reason why a container was not placed, for the time in which it was valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// Time of the first occurrence.
    pub since: UnixMillis,
    /// Time of the latest occurrence.
    pub at: UnixMillis,
    /// Number of occurrences.
    pub times: u32,
    /// The request.
    pub request: RequestId,
    /// The reason.
    pub sentence: Arc<str>,
}

/// Sentences per size within one answer, so that equal sizes share a sentence.
#[derive(Debug, Default)]
pub(crate) struct SentenceCache {
    of: Vec<(Resource, Arc<str>)>,
}

/// Most sizes in a [`SentenceCache`]; sentences for further sizes are formatted again.
const SAID: usize = 8;

impl SentenceCache {
    fn of(&self, size: &Resource) -> Option<Arc<str>> {
        self.of
            .iter()
            .find(|(known, _)| known == size)
            .map(|(_, sentence)| sentence.clone())
    }
    fn keep(&mut self, size: &Resource, sentence: &Arc<str>) {
        if self.of.len() < SAID && !self.of.iter().any(|(known, _)| known == size) {
            self.of.push((size.clone(), sentence.clone()));
        }
    }
}

/// Recent reasons of one application; the number is limited.
#[derive(Clone, Debug, Default)]
pub struct WaitReasonLog(VecDeque<WaitReason>);

impl WaitReasonLog {
    /// All kept reasons, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &WaitReason> {
        self.0.iter()
    }
    fn note(&mut self, at: UnixMillis, request: &RequestId, sentence: Arc<str>) {
        for last in self.0.iter_mut().rev() {
            if last.request == *request {
                if last.sentence == sentence {
                    last.at = at;
                    last.times = last.times.saturating_add(1);
                    return;
                }
                break;
            }
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(WaitReason {
            since: at,
            at,
            times: 1,
            request: request.clone(),
            sentence,
        });
    }
}

impl Cluster {
    /// Recent reasons why requests of an application were not placed, oldest first.
    pub fn undecided(&self, app: &AppId) -> impl Iterator<Item = &WaitReason> {
        self.apps
            .get(app)
            .into_iter()
            .flat_map(|app| app.undecided.iter())
    }

    /// Records the reason why a request was not granted.
    pub(crate) fn note_undecided(
        &mut self,
        app: &AppId,
        request: &RequestId,
        sentence: Arc<str>,
        now: Tick,
    ) {
        let wall = self.wall(now);
        if let Some(app) = self.apps.get_mut(app) {
            app.undecided.note(wall, request, sentence);
        }
    }

    /// Verdict on a request that was just accepted; recorded when it waits. Requests of one size
    /// without specific reasons share the first sentence in `said`.
    pub(crate) fn decided(
        &mut self,
        id: &AppId,
        request: &RequestId,
        said: &mut SentenceCache,
        now: Tick,
    ) -> RequestVerdict {
        let Some(app) = self.apps.get(id) else {
            return RequestVerdict::Fits;
        };
        let size = self.size_that_tells(app, request);
        let known = size.and_then(|size| said.of(size));
        let Some(sentence) = known.or_else(|| self.sentence(app, request, now).map(Arc::from))
        else {
            return RequestVerdict::Fits;
        };
        if let Some(size) = size {
            said.keep(size, &sentence);
        }
        self.note_undecided(id, request, sentence.clone(), now);
        RequestVerdict::Waits { sentence }
    }

    /// Size of a waiting request, if only its size explains the wait. `None` with placement rules,
    /// a reservation or a claim.
    fn size_that_tells<'a>(&self, app: &'a App, request: &RequestId) -> Option<&'a Resource> {
        let need = PlacementNeed::of(app, Some(request))
            .filter(|need| need.is_plain() && app.missing(request) > 0)?;
        let own =
            self.reservations.of(&app.id, request).is_some() || self.claims.has(&app.id, request);
        (!own).then_some(need.size)
    }

    /// Records the reasons of waiting requests, a limited number per call.
    pub(crate) fn note_waiting(&mut self, now: Tick) {
        let from = self.noted.take();
        for (app, requests, last) in self.some_waiting(from.as_ref()) {
            let mut said = SentenceCache::default();
            for request in &requests {
                self.decided(&app, request, &mut said, now);
            }
            self.noted = Some((app, last));
        }
    }

    /// Next waiting requests by application, after the position where the last review ended; the
    /// list wraps around after the last application. Each entry contains the number of its requests
    /// that are reviewed.
    fn some_waiting(&self, from: Option<&(AppId, usize)>) -> Vec<(AppId, Vec<RequestId>, usize)> {
        let (first, done) = from.map_or((None, 0), |(app, done)| (Some(app), *done));
        let before = self
            .apps
            .keys()
            .take_while(|app| first.is_some_and(|first| *app < first));
        let ends = first.into_iter().map(|app| (app, 0, done));
        let behind = self
            .apps
            .keys_from(first)
            .map(|app| (app, if Some(app) == first { done } else { 0 }, usize::MAX));
        let mut left = AT_ONCE;
        let mut some = Vec::new();
        for (app, skip, end) in behind
            .chain(before.map(|app| (app, 0, usize::MAX)))
            .chain(ends)
        {
            if left == 0 {
                break;
            }
            let waiting = self.queue.requests_of(app);
            let take = waiting.len().min(end).saturating_sub(skip).min(left);
            let turn: Vec<RequestId> = waiting.into_iter().skip(skip).take(take).cloned().collect();
            left -= turn.len();
            if !turn.is_empty() {
                some.push((app.clone(), turn, skip + take));
            }
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::id;

    #[test]
    fn a_repeated_reason_is_counted_and_the_oldest_is_dropped_first() {
        let (mut ring, a, b) = (WaitReasonLog::default(), id("a"), id("b"));
        ring.note(UnixMillis(1), &a, "full".into());
        ring.note(UnixMillis(2), &b, "full".into());
        ring.note(UnixMillis(3), &a, "full".into());
        let first = ring.iter().next().expect("noted");
        assert_eq!(
            (first.since, first.at, first.times),
            (UnixMillis(1), UnixMillis(3), 2)
        );
        for n in 0..MOST as u64 {
            ring.note(UnixMillis(n), &a, format!("{n} short").into());
        }
        assert_eq!(ring.iter().count(), MOST);
        assert_eq!(
            ring.iter().next().map(|entry| &*entry.sentence),
            Some("0 short")
        );
    }
}
