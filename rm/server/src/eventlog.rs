//! The event log of this life: the latest events in memory, numbered, for whoever asks and whoever follows.
//!
//! Written by the loop only; readers copy what they need out of it. The number of an event holds the epoch in its upper half, so
//! that numbers go up over restarts and never repeat.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_types::{AppId, Epoch, Reason, UnixMillis};
use headroom_wire::v1::events::Event;
use tokio::sync::watch;

/// Events kept.
const MOST: usize = 100_000;
/// Events handed out at once.
const PIECE: usize = 256;
/// The word for a memory kill.
const OOM: &str = "OomKilled";
const HOUR_MS: u64 = 3_600_000;

/// The log.
#[derive(Debug)]
pub(crate) struct EventLog {
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
    first_of_life: u64,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    next: u64,
    ooms: VecDeque<UnixMillis>,
    /// How many there have been in this life, by reason.
    counts: BTreeMap<&'static str, u64>,
}

/// A reader's place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Everything up to here was read.
    pub(crate) cursor: u64,
    /// Only events of this application.
    pub(crate) app: Option<AppId>,
}

/// What was asked for is no longer kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest event that is kept.
    pub(crate) oldest: u64,
}

impl EventLog {
    /// An empty log of this life.
    pub(crate) fn new(epoch: Epoch) -> Self {
        let first = (u64::from(epoch.0) << 32) + 1;
        let ring = Ring { events: VecDeque::new(), next: first, ooms: VecDeque::new(), counts: BTreeMap::new() };
        EventLog { ring: Mutex::new(ring), last: watch::Sender::new(first - 1), first_of_life: first }
    }

    /// Adds events; their numbers are given here.
    pub(crate) fn push(&self, events: impl IntoIterator<Item = Event>) {
        let mut ring = self.ring();
        let before = ring.next;
        for mut event in events {
            event.index = ring.next;
            ring.next += 1;
            // A master of a later version may have words of its own.
            let known = event.reason.parse::<Reason>().map_or("other", Reason::as_str);
            *ring.counts.entry(known).or_default() += 1;
            if event.reason == OOM {
                ring.ooms.push_back(event.time);
            }
            ring.events.push_back(Arc::new(event));
        }
        while ring.events.len() > MOST {
            ring.events.pop_front();
        }
        while ring.ooms.len() > MOST {
            ring.ooms.pop_front();
        }
        let last = ring.next - 1;
        if ring.next > before {
            drop(ring);
            self.last.send_replace(last);
        }
    }

    /// The next piece after a place, which moves on. Empty when there is nothing more for now. A cursor from an earlier life
    /// stands before everything that happened in this one.
    pub(crate) fn read(&self, place: &mut Place) -> Result<Vec<Arc<Event>>, TooOld> {
        let ring = self.ring();
        let oldest = ring.next - u64::try_from(ring.events.len()).unwrap_or(0);
        let from_start = place.cursor < self.first_of_life;
        let after = place.cursor.clamp(self.first_of_life - 1, ring.next - 1);
        if place.cursor != 0 && after + 1 < oldest && !(from_start && oldest == self.first_of_life) {
            return Err(TooOld { oldest });
        }
        let skip = usize::try_from((after + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        let mut piece = Vec::new();
        place.cursor = after;
        for event in ring.events.iter().skip(skip) {
            place.cursor = event.index;
            if place.app.is_none() || event.app == place.app {
                piece.push(event.clone());
                if piece.len() == PIECE {
                    break;
                }
            }
        }
        Ok(piece)
    }

    /// How many there have been in this life, by reason.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.ring().counts.clone()
    }

    /// Tells when there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Memory kills told in the hour before `now`.
    pub(crate) fn ooms_in_last_hour(&self, now: UnixMillis) -> u32 {
        let mut ring = self.ring();
        while ring.ooms.front().is_some_and(|at| at.0.saturating_add(HOUR_MS) < now.0) {
            ring.ooms.pop_front();
        }
        u32::try_from(ring.ooms.len()).unwrap_or(u32::MAX)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // A reader that panicked has changed nothing.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::v1::events::EventLevel;

    fn event(app: Option<&str>, reason: &str) -> Event {
        Event {
            index: 0,
            time: UnixMillis(1000),
            level: EventLevel::Normal,
            reason: reason.into(),
            object: "o".into(),
            app: app.map(|a| a.parse().expect("id")),
            node: None,
            message: String::new(),
        }
    }
    fn place(cursor: u64) -> Place {
        Place { cursor, app: None }
    }
    fn indexes(log: &EventLog, place: &mut Place) -> Vec<u64> {
        log.read(place).expect("kept").iter().map(|e| e.index).collect()
    }
    const BASE: u64 = 3 << 32;

    #[test]
    fn goes_on_from_a_cursor() {
        let log = EventLog::new(Epoch(3));
        log.push((0..3).map(|_| event(None, "x")));
        let mut at = place(0);
        assert_eq!(indexes(&log, &mut at), [BASE + 1, BASE + 2, BASE + 3]);
        assert!(indexes(&log, &mut at).is_empty());
        log.push([event(None, "x")]);
        assert_eq!(indexes(&log, &mut at), [BASE + 4]);
        assert_eq!(indexes(&log, &mut place(BASE + 3)), [BASE + 4]);
        assert!(indexes(&log, &mut place(u64::MAX)).is_empty(), "a cursor from the future waits for what comes");
    }

    #[test]
    fn a_cursor_of_an_earlier_life_gets_all_of_this_one() {
        let log = EventLog::new(Epoch(3));
        log.push([event(None, "x")]);
        assert_eq!(indexes(&log, &mut place((2 << 32) + 77)), [BASE + 1]);
    }

    #[test]
    fn what_is_no_longer_kept_is_refused_and_not_skipped() {
        let log = EventLog::new(Epoch(3));
        log.push((0..MOST + 10).map(|_| event(None, "x")));
        assert_eq!(log.read(&mut place(BASE + 5)), Err(TooOld { oldest: BASE + 11 }));
        assert_eq!(log.read(&mut place((2 << 32) + 7)), Err(TooOld { oldest: BASE + 11 }));
        assert_eq!(indexes(&log, &mut place(BASE + 10))[0], BASE + 11);
        assert_eq!(indexes(&log, &mut place(0))[0], BASE + 11, "no cursor asks for what there is");
    }

    #[test]
    fn one_application_only() {
        let log = EventLog::new(Epoch(3));
        log.push([event(Some("a.1"), "x"), event(Some("b.2"), "x"), event(None, "x"), event(Some("a.1"), "x")]);
        let mut at = Place { cursor: 0, app: Some("a.1".parse().expect("id")) };
        assert_eq!(indexes(&log, &mut at), [BASE + 1, BASE + 4]);
    }

    #[test]
    fn memory_kills_are_counted_for_an_hour() {
        let log = EventLog::new(Epoch(3));
        log.push([event(None, OOM), event(None, "x"), event(None, OOM)]);
        assert_eq!(log.ooms_in_last_hour(UnixMillis(1000 + HOUR_MS)), 2);
        assert_eq!(log.ooms_in_last_hour(UnixMillis(1001 + HOUR_MS)), 0);
    }
}
