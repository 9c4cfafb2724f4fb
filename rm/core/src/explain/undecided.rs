//! Records the reasons why requests were not placed: when a request arrives, and at every review
//! while it waits.
//!
//! The application's record owns the recorded reasons, see [`WaitReasonLog`](super::WaitReasonLog).

use std::sync::Arc;

use headroom_types::{AppId, Tick};

use super::sentence_cache::SentenceCache;
use crate::cluster::Cluster;
use crate::event::RequestVerdict;
use crate::sched::fit::PlacementNeed;
use crate::table::RowPosition;

/// Most requests that one review records; later reviews record the rest.
const AT_ONCE: usize = 256;

impl Cluster {
    /// Verdict on a request that was just accepted; recorded when it waits. Requests of one size
    /// without specific reasons share the first sentence in `said`.
    pub(crate) fn decided(
        &mut self,
        home: RowPosition,
        row: RowPosition,
        said: &mut SentenceCache,
        now: Tick,
    ) -> RequestVerdict {
        let app = self.apps.at(home);
        let Some((app, (request, asked))) =
            app.and_then(|app| Some((app, app.requests.entry_at(row)?)))
        else {
            return RequestVerdict::Fits;
        };
        let missing = app.missing_of(asked);
        if missing == 0 && asked.expired.is_none() {
            return RequestVerdict::Fits;
        }
        let need = PlacementNeed::of_asked(app, request, asked);
        // Only the size explains the wait, without placement rules, a reservation or a claim.
        let is_usual = missing > 0 && need.is_plain() && !self.scheduler.serves(&app.id, request);
        let size = is_usual.then_some(need.size);
        let known = size.and_then(|size| said.of(size));
        let Some(sentence) = known.or_else(|| self.sentence(app, request, now).map(Arc::from))
        else {
            return RequestVerdict::Fits;
        };
        if let Some(size) = size {
            said.keep(size, &sentence);
        }
        let wall = self.wall(now);
        if let Some(app) = self.apps.at_mut(home)
            && let Some((request, _)) = app.requests.entry_at(row)
        {
            app.undecided.note(wall, request, sentence.clone());
        }
        RequestVerdict::Waits { sentence }
    }

    /// Records the reasons of waiting requests, a limited number per call.
    pub(crate) fn note_waiting(&mut self, now: Tick) {
        let from = self.scheduler.reviewed.take();
        for (app, requests, last) in self.some_waiting(from.as_ref()) {
            let mut said = SentenceCache::default();
            let Some(home) = self.apps.row_of(&app) else {
                continue;
            };
            for request in requests {
                self.decided(home, request, &mut said, now);
            }
            self.scheduler.reviewed = Some((app, last));
        }
    }

    /// Next waiting requests by application, after the position where the last review ended; the
    /// list wraps around after the last application. Each entry contains the number of its requests
    /// that are reviewed.
    fn some_waiting(&self, from: Option<&(AppId, usize)>) -> Vec<(AppId, Vec<RowPosition>, usize)> {
        let (first, done) = from.map_or((None, 0), |(app, done)| (Some(app), *done));
        let before = self
            .apps
            .ids()
            .take_while(|app| first.is_some_and(|first| *app < first));
        let ends = first.into_iter().map(|app| (app, 0, done));
        let behind = self
            .apps
            .ids_from(first)
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
            let record = self.apps.get(app);
            let rows = waiting.into_iter().skip(skip).take(take);
            let turn: Vec<RowPosition> = rows
                .filter_map(|request| record?.requests.row_of(request))
                .collect();
            left -= turn.len();
            if !turn.is_empty() {
                some.push((app.clone(), turn, skip + take));
            }
        }
        some
    }
}
