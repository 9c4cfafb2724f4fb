//! The event log: the latest events in memory, numbered, for whoever asks and whoever follows; and on the disk, so that they are there
//! after a restart.
//!
//! Written by the loop, and by the interface for what only it sees; readers copy what they need out of it. The number of an event
//! holds the epoch in its upper half, so that numbers go up over restarts and never repeat. The disk is written elsewhere
//! ([`crate::eventfiles`]): nobody waits for it, and what it cannot take in time is counted and left out there.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_config::Kept;
use headroom_telemetry::{Lines, lines};
use headroom_types::{AppId, Epoch, NodeId, Reason, Topic, UnixMillis};
use headroom_wire::v1::apps::MemoryHour;
use headroom_wire::v1::events::{Event, EventLevel};
use tokio::sync::watch;
use tracing::warn;

use crate::eventfiles::{Writer, bounds};
use crate::hour::Hour;

/// Events kept in memory.
const MOST: usize = 100_000;
/// Events handed out at once.
const PIECE: usize = 256;
/// The number of the first event of the first life.
const FIRST_OF_ALL: u64 = (1 << 32) + 1;
/// The files are called so.
const FILES: &str = "events";

/// The log.
#[derive(Debug)]
pub(crate) struct EventLog {
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
    writer: Mutex<Option<Writer>>,
    /// Events that the disk did not get.
    unwritten: AtomicU64,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    next: u64,
    /// The number of the latest event that is no longer kept; 0 when all are.
    gone: u64,
    hour: Hour,
    /// How many there have been in this life, by reason.
    counts: BTreeMap<&'static str, u64>,
}

/// Which events a reader wants; all of what is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Of this application.
    pub(crate) app: Option<AppId>,
    /// About this.
    pub(crate) topic: Option<Topic>,
    /// Of this level.
    pub(crate) level: Option<EventLevel>,
    /// With this word.
    pub(crate) reason: Option<Reason>,
    /// About something whose id begins so.
    pub(crate) object: Option<String>,
    /// On this node.
    pub(crate) node: Option<NodeId>,
    /// Not before this.
    pub(crate) since: Option<UnixMillis>,
}

impl Filter {
    fn takes(&self, event: &Event) -> bool {
        let word = || event.reason.parse::<Reason>().ok();
        self.app.as_ref().is_none_or(|app| event.app.as_ref() == Some(app))
            && self.level.is_none_or(|level| event.level == level)
            && self.since.is_none_or(|since| event.time >= since)
            && self.node.as_ref().is_none_or(|node| event.node.as_ref() == Some(node))
            && self.object.as_ref().is_none_or(|object| event.object.starts_with(object))
            && self.reason.is_none_or(|reason| word() == Some(reason))
            && self.topic.is_none_or(|topic| word().is_some_and(|reason| reason.topic() == topic))
    }
}

/// A reader's place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Everything up to here was read.
    pub(crate) cursor: u64,
    /// Only these.
    pub(crate) filter: Filter,
}

/// What was asked for is no longer kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest event that is kept.
    pub(crate) oldest: u64,
}

impl EventLog {
    /// A log of this life, in memory only.
    pub(crate) fn new(epoch: Epoch) -> Self {
        let first = (u64::from(epoch.0) << 32) + 1;
        let ring = Ring { events: VecDeque::new(), next: first, gone: 0, hour: Hour::default(), counts: BTreeMap::new() };
        let (last, unwritten) = (watch::Sender::new(first - 1), AtomicU64::new(0));
        EventLog { ring: Mutex::new(ring), last, writer: Mutex::new(None), unwritten }
    }

    /// A log that goes on from what earlier lives left on the disk. A disk that cannot be read or written is told, and the log is in
    /// memory only.
    pub(crate) fn open(epoch: Epoch, folder: &Path, kept: Kept) -> Self {
        let log = EventLog::new(epoch);
        if let Err(error) = lines::read(folder, FILES, |line| log.restore(line)) {
            warn!(%error, "events of earlier lives cannot be read, going on without");
        }
        match Lines::open(folder, FILES, bounds(kept)).and_then(Writer::start) {
            Ok(writer) => *log.writer() = Some(writer),
            Err(error) => warn!(%error, "events cannot be written to the disk, going on without"),
        }
        log
    }

    /// One line of an earlier life. What cannot be read is left out: a torn line, or a field of a later version.
    fn restore(&self, line: &str) {
        let Ok(event) = serde_json::from_str::<Event>(line) else { return };
        let mut ring = self.ring();
        let after = ring.events.back().map_or(0, |last| last.index);
        if event.index <= after || event.index >= ring.next {
            return;
        }
        // The files begin somewhere: what was before that is gone, unless it is the first of all.
        if ring.events.is_empty() {
            ring.gone = if event.index == FIRST_OF_ALL { 0 } else { event.index - 1 };
        }
        ring.keep(Arc::new(event));
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
            let event = Arc::new(event);
            self.write(&event);
            ring.keep(event);
        }
        let last = ring.next - 1;
        if ring.next > before {
            drop(ring);
            self.last.send_replace(last);
        }
    }

    fn write(&self, event: &Arc<Event>) {
        let sent = self.writer().as_ref().is_none_or(|writer| writer.write(event));
        if !sent {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The next piece after a place, which moves on. Empty when there is nothing more for now.
    pub(crate) fn read(&self, place: &mut Place) -> Result<Vec<Arc<Event>>, TooOld> {
        let ring = self.ring();
        if place.cursor != 0 && place.cursor < ring.gone {
            return Err(TooOld { oldest: ring.events.front().map_or(ring.next, |event| event.index) });
        }
        let after = place.cursor.min(ring.next - 1);
        let skip = ring.events.partition_point(|event| event.index <= after);
        let mut piece = Vec::new();
        place.cursor = after;
        for event in ring.events.iter().skip(skip) {
            place.cursor = event.index;
            if place.filter.takes(event) {
                piece.push(event.clone());
                if piece.len() == PIECE {
                    break;
                }
            }
        }
        Ok(piece)
    }

    /// Keeps so much on the disk from now on.
    pub(crate) fn keep(&self, kept: Kept) {
        if let Some(writer) = self.writer().as_ref() {
            writer.keep(kept);
        }
    }

    /// How many there have been in this life, by reason.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.ring().counts.clone()
    }

    /// Events that the disk could not take in time.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Tells when there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Memory kills in the hour before `now`, and what became of their tasks.
    pub(crate) fn memory_hour(&self, now: UnixMillis) -> MemoryHour {
        self.ring().hour.figures(now)
    }

    /// Writes what still waits for the disk, and ends with the files. Blocking.
    pub(crate) fn close(&self) {
        let writer = self.writer().take();
        if let Some(writer) = writer {
            writer.close();
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // A reader that panicked has changed nothing.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        // As above.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn keep(&mut self, event: Arc<Event>) {
        self.hour.take(&event);
        self.events.push_back(event);
        while self.events.len() > MOST {
            self.gone = self.events.pop_front().map_or(self.gone, |event| event.index);
        }
    }
}

#[cfg(test)]
#[path = "eventlog_tests.rs"]
mod tests;
