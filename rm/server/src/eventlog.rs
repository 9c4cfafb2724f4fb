//! Event log: the latest events in memory, numbered, for readers and followers, and on disk, so
//! that they survive a restart.
//!
//! The main loop writes it, and the interface writes events that only the interface sees; readers
//! copy the events that they need. The upper half of an event number is the epoch, so that numbers
//! increase across restarts and never repeat. A thread writes the disk ([`crate::eventfiles`]): no
//! caller waits for it. Events that it cannot accept in time are counted and left out of the files.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_config::RetentionLimits;
use headroom_telemetry::{SegmentedLog, lines};
use headroom_types::{AppId, Epoch, EventTopic, NodeId, Reason, UnixMillis};
use headroom_wire::v1::apps::MemoryFailureStats;
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::eventfiles::{EventFileWriter, bounds};
use crate::memory_failures::RecentMemoryFailures;

/// Events kept in memory.
const MOST: usize = 100_000;
/// Maximum number of events in one batch.
const PIECE: usize = 256;
/// Longest wait of a reader for the events of earlier incarnations.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of the first event of the first incarnation.
const FIRST_OF_ALL: u64 = (1 << 32) + 1;
/// Base name of the files.
const FILES: &str = "events";

/// The event log.
#[derive(Debug)]
pub(crate) struct EventLog {
    ring: Mutex<EventRingBuffer>,
    last: watch::Sender<u64>,
    /// Number of the first event of this incarnation.
    first: u64,
    /// True as soon as the events of earlier incarnations are there.
    restored: watch::Sender<bool>,
    /// A reader waits for them.
    wanted: Notify,
    writer: Mutex<Option<EventFileWriter>>,
    /// Number of events that were dropped before the disk.
    unwritten: AtomicU64,
}

#[derive(Debug)]
struct EventRingBuffer {
    events: VecDeque<Arc<LoggedEvent>>,
    next: u64,
    /// Number of the latest event that is no longer kept; 0 if all are kept.
    gone: u64,
    hour: RecentMemoryFailures,
    /// Number of events in this incarnation, by reason.
    counts: BTreeMap<&'static str, u64>,
}

/// Event of the resource manager, without application and node; the log assigns its number.
pub(crate) fn event(
    time: UnixMillis,
    level: EventLevel,
    reason: Reason,
    object: String,
    message: String,
) -> LoggedEvent {
    LoggedEvent {
        index: 0,
        time,
        level,
        reason: reason.as_str().to_owned(),
        object,
        app: None,
        node: None,
        message,
    }
}

/// Selection of events. All conditions that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    /// Application.
    pub(crate) app: Option<AppId>,
    /// Topic of the reason.
    pub(crate) topic: Option<EventTopic>,
    /// Level.
    pub(crate) level: Option<EventLevel>,
    /// Reason.
    pub(crate) reason: Option<Reason>,
    /// Prefix of the object's id.
    pub(crate) object: Option<String>,
    /// Node.
    pub(crate) node: Option<NodeId>,
    /// Lower bound of the time.
    pub(crate) since: Option<UnixMillis>,
}

impl EventFilter {
    fn takes(&self, event: &LoggedEvent) -> bool {
        let word = || event.reason.parse::<Reason>().ok();
        self.app
            .as_ref()
            .is_none_or(|app| event.app.as_ref() == Some(app))
            && self.level.is_none_or(|level| event.level == level)
            && self.since.is_none_or(|since| event.time >= since)
            && self
                .node
                .as_ref()
                .is_none_or(|node| event.node.as_ref() == Some(node))
            && self
                .object
                .as_ref()
                .is_none_or(|object| event.object.starts_with(object))
            && self.reason.is_none_or(|reason| word() == Some(reason))
            && self
                .topic
                .is_none_or(|topic| word().is_some_and(|reason| reason.topic() == topic))
    }
}

/// Position of a reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventPosition {
    /// Number of the last event that was read.
    pub(crate) cursor: u64,
    /// Selection of events.
    pub(crate) filter: EventFilter,
}

/// The requested position is older than the oldest kept event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventPositionExpired {
    /// Number of the oldest kept event.
    pub(crate) oldest: u64,
}

impl EventLog {
    /// Creates a log that is in memory only.
    pub(crate) fn new(epoch: Epoch) -> Self {
        let first = (u64::from(epoch.0) << 32) + 1;
        let ring = EventRingBuffer {
            events: VecDeque::new(),
            next: first,
            gone: 0,
            hour: RecentMemoryFailures::default(),
            counts: BTreeMap::new(),
        };
        let (last, unwritten) = (watch::Sender::new(first - 1), AtomicU64::new(0));
        EventLog {
            ring: Mutex::new(ring),
            last,
            first,
            restored: watch::Sender::new(true),
            wanted: Notify::new(),
            writer: Mutex::new(None),
            unwritten,
        }
    }

    /// Opens a log on disk. [`EventLog::restore`] must follow, which adds the events that earlier
    /// incarnations left there. If the disk cannot be written, it logs a warning and keeps the log in
    /// memory only.
    pub(crate) fn open(epoch: Epoch, folder: &Path, kept: RetentionLimits) -> Self {
        let log = EventLog::new(epoch);
        log.restored.send_replace(false);
        match SegmentedLog::open(folder, FILES, bounds(kept)).and_then(EventFileWriter::start) {
            Ok(writer) => *log.writer() = Some(writer),
            Err(error) => {
                warn!(%error, "cannot write events to disk; they are kept in memory only")
            }
        }
        log
    }

    /// Adds the latest events of earlier incarnations before those of this one. Blocking: a hundred
    /// thousand events take a quarter of a second. If the disk cannot be read, it logs a warning.
    pub(crate) fn restore(&self, folder: &Path) {
        let mut earlier = EarlierEvents::default();
        let read = lines::read_latest(folder, FILES, MOST, |line| earlier.take(line, self.first));
        if let Err(error) = read {
            warn!(%error, "cannot read the events of earlier incarnations; continuing without them");
        }
        self.ring().add_earlier(earlier);
        self.restored.send_replace(true);
    }

    /// Waits until a reader waits for the events of earlier incarnations.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Waits until the events of earlier incarnations are there, or until the disk has taken too
    /// long; a reader then gets those of this incarnation.
    pub(crate) async fn restored(&self) {
        let mut restored = self.restored.subscribe();
        if *restored.borrow() {
            return;
        }
        self.wanted.notify_one();
        let wait = restored.wait_for(|done| *done);
        if tokio::time::timeout(RESTORE_TIMEOUT, wait).await.is_err() {
            warn!("the events of earlier incarnations are not read yet");
        }
    }

    /// Appends events and assigns their numbers.
    pub(crate) fn push(&self, events: impl IntoIterator<Item = LoggedEvent>) {
        let mut ring = self.ring();
        let mut pushed = Vec::new();
        for mut event in events {
            event.index = ring.next;
            ring.next += 1;
            // A master of a later version may send reasons that are unknown to this version.
            let known = event
                .reason
                .parse::<Reason>()
                .map_or("other", Reason::as_str);
            *ring.counts.entry(known).or_default() += 1;
            let event = Arc::new(event);
            pushed.push(event.clone());
            ring.keep(event);
        }
        if pushed.is_empty() {
            return;
        }
        let last = ring.next - 1;
        // Before the lock is released, so that the files have the order of the log.
        let dropped = self
            .writer()
            .as_ref()
            .map_or(0, |writer| writer.write(pushed));
        self.unwritten.fetch_add(dropped, Ordering::Relaxed);
        drop(ring);
        self.last.send_replace(last);
    }

    /// Returns the next batch after `place` and advances it. Empty if there are no further events
    /// yet.
    pub(crate) fn read(
        &self,
        place: &mut EventPosition,
    ) -> Result<Vec<Arc<LoggedEvent>>, EventPositionExpired> {
        let ring = self.ring();
        if place.cursor != 0 && place.cursor < ring.gone {
            return Err(EventPositionExpired {
                oldest: ring.events.front().map_or(ring.next, |event| event.index),
            });
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

    /// Changes the limits of the files.
    pub(crate) fn keep(&self, kept: RetentionLimits) {
        if let Some(writer) = self.writer().as_ref() {
            writer.keep(kept);
        }
    }

    /// Number of events in this incarnation, by reason.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.ring().counts.clone()
    }

    /// Number of events that the disk could not accept in time.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Returns a receiver of the number of the latest event.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Memory kills in the hour before `now`, and the outcome of their tasks.
    pub(crate) fn memory_hour(&self, now: UnixMillis) -> MemoryFailureStats {
        self.ring().hour.figures(now)
    }

    /// Writes the queued events, syncs them and closes the files. Blocking.
    pub(crate) fn close(&self) {
        let writer = self.writer().take();
        if let Some(writer) = writer {
            writer.close();
        }
    }

    fn ring(&self) -> MutexGuard<'_, EventRingBuffer> {
        // Poisoning is harmless: a panic of a reader changes no state.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Option<EventFileWriter>> {
        // Poisoning is harmless: a panic changes no state here.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events of earlier incarnations, as read from disk.
#[derive(Debug, Default)]
struct EarlierEvents {
    events: Vec<Arc<LoggedEvent>>,
    /// Number of the latest event that is no longer kept; 0 if all are kept.
    gone: u64,
    hour: RecentMemoryFailures,
}

impl EarlierEvents {
    /// Takes one line, if its event is before `first`. An unreadable line is skipped: it is torn, or
    /// has a field of a later version.
    fn take(&mut self, line: &str, first: u64) {
        let Ok(mut event) = serde_json::from_str::<LoggedEvent>(line) else {
            return;
        };
        if let Some(reason) = Reason::from_former_name(&event.reason) {
            event.reason = reason.as_str().to_owned();
        }
        let after = self.events.last().map_or(0, |last| last.index);
        if event.index <= after || event.index >= first {
            return;
        }
        // Events before the first line of the files are gone, unless that line is the first event
        // of all.
        if self.events.is_empty() && event.index != FIRST_OF_ALL {
            self.gone = event.index - 1;
        }
        self.hour.take(&event);
        self.events.push(Arc::new(event));
    }
}

impl EventRingBuffer {
    /// Adds events before all others, as many as there is room for.
    fn add_earlier(&mut self, earlier: EarlierEvents) {
        let EarlierEvents {
            mut events,
            mut gone,
            mut hour,
        } = earlier;
        for event in &self.events {
            hour.take(event);
        }
        self.hour = hour;
        if self.gone > 0 {
            return; // This incarnation alone fills the ring.
        }
        let excess = (events.len() + self.events.len()).saturating_sub(MOST);
        if let Some(event) = events.drain(..excess).next_back() {
            gone = event.index;
        }
        for event in events.into_iter().rev() {
            self.events.push_front(event);
        }
        self.gone = gone;
    }
    fn keep(&mut self, event: Arc<LoggedEvent>) {
        self.hour.take(&event);
        self.events.push_back(event);
        while self.events.len() > MOST {
            self.gone = self
                .events
                .pop_front()
                .map_or(self.gone, |event| event.index);
        }
    }
}

#[cfg(test)]
#[path = "eventlog_tests.rs"]
mod tests;
