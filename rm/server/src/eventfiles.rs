//! Event files on disk: a thread owns them, so that no caller waits for a disk.
//!
//! Written events survive the end of the process. To survive a crash of the host they must be
//! synced, which blocks. The thread therefore syncs many at once: after [`MAX_UNSYNCED`] events, or
//! [`SYNC_INTERVAL`] after the first unsynced event.
//!
//! Events arrive in the batches of the main loop, so that the thread wakes up once per batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_config::RetentionLimits;
use headroom_telemetry::{SegmentLimits, SegmentedLog};
use headroom_wire::v1::events::LoggedEvent;
use tracing::warn;

/// Capacity of the queue to the thread, in events.
const WAITING: usize = 20_000;
/// Capacity of the queue to the thread, in commands.
const COMMANDS: usize = 1024;
/// Number of events that may be written but not yet synced to disk.
const MAX_UNSYNCED: usize = 8192;
/// Longest time for which a written event stays unsynced.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Handle of the thread that owns the event files.
#[derive(Debug)]
pub(crate) struct EventFileWriter {
    send: SyncSender<WriterCommand>,
    /// Number of queued events.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum WriterCommand {
    Write(Vec<Arc<LoggedEvent>>),
    Keep(RetentionLimits),
}

/// The files, and the number of events that are not yet synced.
#[derive(Debug)]
struct EventLogFiles {
    lines: SegmentedLog,
    /// Number of queued events.
    waiting: Arc<AtomicUsize>,
    /// Number of unsynced events.
    behind: usize,
    /// Deadline of the next sync.
    until: Option<Instant>,
    healthy: bool,
}

/// Limits of the files, from the configured retention.
pub(crate) fn bounds(kept: RetentionLimits) -> SegmentLimits {
    SegmentLimits {
        segment: kept.segment.get(),
        segments: usize::try_from(kept.segments).unwrap_or(usize::MAX),
    }
}

impl EventFileWriter {
    pub(crate) fn start(lines: SegmentedLog) -> std::io::Result<Self> {
        let (send, receive) = sync_channel(COMMANDS);
        let waiting = Arc::new(AtomicUsize::new(0));
        let files = EventLogFiles {
            lines,
            waiting: waiting.clone(),
            behind: 0,
            until: None,
            healthy: true,
        };
        let thread = std::thread::Builder::new()
            .name("events".into())
            .spawn(move || files.run(&receive))?;
        Ok(EventFileWriter {
            send,
            waiting,
            thread,
        })
    }

    /// Queues events. Returns how many of them were dropped, because the queue is full: the disk is
    /// too slow.
    pub(crate) fn write(&self, mut events: Vec<Arc<LoggedEvent>>) -> u64 {
        let all = events.len();
        let room = WAITING.saturating_sub(self.waiting.load(Ordering::Relaxed));
        events.truncate(room);
        let mut queued = events.len();
        self.waiting.fetch_add(queued, Ordering::Relaxed);
        if self.send.try_send(WriterCommand::Write(events)).is_err() {
            self.waiting.fetch_sub(queued, Ordering::Relaxed);
            queued = 0;
        }
        u64::try_from(all - queued).unwrap_or(u64::MAX)
    }

    /// Changes the limits of the files. Blocks while the queue is full.
    pub(crate) fn keep(&self, kept: RetentionLimits) {
        // Fails only if the thread has ended.
        let _ = self.send.send(WriterCommand::Keep(kept));
    }

    /// Writes the queued events, syncs them, and ends the thread. Blocking.
    pub(crate) fn close(self) {
        drop(self.send);
        // A panic of the thread is already reported on standard error.
        let _ = self.thread.join();
    }
}

impl EventLogFiles {
    /// Runs until all senders are dropped.
    fn run(mut self, orders: &Receiver<WriterCommand>) {
        loop {
            let left = self
                .until
                .map(|until| until.saturating_duration_since(Instant::now()));
            let order = match left {
                Some(left) => orders.recv_timeout(left),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(order) => self.take(order, orders),
                Err(RecvTimeoutError::Timeout) => self.sync(),
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    /// Handles an order and the orders queued behind it, until [`MAX_UNSYNCED`] events are
    /// unsynced.
    fn take(&mut self, first: WriterCommand, orders: &Receiver<WriterCommand>) {
        let (mut events, mut next) = (Vec::new(), Some(first));
        while let Some(order) = next {
            match order {
                WriterCommand::Write(batch) => {
                    self.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
                    events.extend(batch);
                }
                WriterCommand::Keep(kept) => {
                    self.write(&std::mem::take(&mut events));
                    let bound = self.lines.bound(bounds(kept));
                    self.log_result(bound);
                }
            }
            let room = self.behind + events.len() < MAX_UNSYNCED;
            next = if room { orders.try_recv().ok() } else { None };
        }
        self.write(&events);
        if self.behind >= MAX_UNSYNCED || self.until.is_some_and(|until| until <= Instant::now()) {
            self.sync();
        }
    }

    fn write(&mut self, events: &[Arc<LoggedEvent>]) {
        if events.is_empty() {
            return;
        }
        let texts = events
            .iter()
            .filter_map(|event| serde_json::to_vec(&**event).ok());
        let written = self.lines.append(texts);
        self.log_result(written);
        self.behind += events.len();
        self.until
            .get_or_insert_with(|| Instant::now() + SYNC_INTERVAL);
    }

    fn sync(&mut self) {
        if self.behind > 0 {
            let synced = self.lines.sync();
            self.log_result(synced);
        }
        (self.behind, self.until) = (0, None);
    }

    fn log_result(&mut self, done: std::io::Result<()>) {
        if let (Err(error), true) = (&done, self.healthy) {
            warn!(%error, "cannot write events to disk; repeated errors are not logged");
        }
        self.healthy = done.is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::UnixMillis;
    use headroom_wire::v1::events::EventLevel;

    fn event() -> Arc<LoggedEvent> {
        let (reason, object, message) = ("x".to_owned(), "o".to_owned(), String::new());
        let level = EventLevel::Normal;
        Arc::new(LoggedEvent {
            index: 1,
            time: UnixMillis(1),
            level,
            reason,
            object,
            app: None,
            node: None,
            message,
        })
    }
    fn files(dir: &tempfile::TempDir) -> EventLogFiles {
        let lines =
            SegmentedLog::open(dir.path(), "x", bounds(RetentionLimits::default())).expect("opens");
        EventLogFiles {
            lines,
            waiting: Arc::new(AtomicUsize::new(BURST)),
            behind: 0,
            until: None,
            healthy: true,
        }
    }

    /// Number of events of a burst, and in each of its batches.
    const BURST: usize = 20_000;
    const BATCH: usize = 64;

    #[test]
    fn a_burst_of_events_is_synced_in_bounded_batches() {
        let dir = tempfile::tempdir().expect("a directory");
        let (send, orders) = sync_channel(COMMANDS);
        for _ in 0..BURST / BATCH {
            send.try_send(WriterCommand::Write(vec![event(); BATCH]))
                .expect("the channel has room");
        }
        let mut files = files(&dir);
        let mut seen = Vec::new();
        while let Ok(first) = orders.try_recv() {
            files.take(first, &orders);
            seen.push((files.behind, files.until.is_some()));
        }
        assert_eq!(
            seen,
            [
                (0, false),
                (0, false),
                (BURST / BATCH * BATCH - 2 * MAX_UNSYNCED, true)
            ],
            "the last events wait for more"
        );
        files.sync();
        assert_eq!((files.behind, files.until), (0, None));
    }

    #[test]
    fn an_overdue_event_is_synced_with_the_next_event() {
        let dir = tempfile::tempdir().expect("a directory");
        let (_send, orders) = sync_channel(1);
        let mut files = files(&dir);
        files.take(WriterCommand::Write(vec![event()]), &orders);
        assert_eq!(files.behind, 1);
        files.until = Some(Instant::now());
        files.take(WriterCommand::Write(vec![event()]), &orders);
        assert_eq!(files.behind, 0);
    }

    #[test]
    fn events_beyond_the_capacity_are_dropped_and_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let (send, orders) = sync_channel(COMMANDS);
        let mut files = files(&dir);
        files.waiting.store(0, Ordering::Relaxed);
        let writer = EventFileWriter {
            send,
            waiting: files.waiting.clone(),
            thread: std::thread::spawn(|| {}),
        };
        assert_eq!(writer.write(vec![event(); WAITING - 1]), 0);
        assert_eq!(writer.write(vec![event(); 3]), 2, "one of them fits");
        let first = orders.try_recv().expect("a command");
        files.take(first, &orders);
        while let Ok(next) = orders.try_recv() {
            files.take(next, &orders);
        }
        assert_eq!(
            writer.write(vec![event(); 3]),
            0,
            "the queue is empty again"
        );
    }

    #[test]
    fn new_limits_take_effect_between_two_events() {
        let dir = tempfile::tempdir().expect("a directory");
        let writer = EventFileWriter::start(files(&dir).lines).expect("a thread");
        assert_eq!(writer.write(vec![event()]), 0);
        writer.keep(RetentionLimits {
            segment: headroom_types::Bytes::new(1),
            segments: 2,
        });
        for _ in 0..5 {
            assert_eq!(writer.write(vec![event()]), 0);
        }
        writer.close();
        let left = std::fs::read_dir(dir.path()).expect("lists").count();
        assert_eq!(
            left, 2,
            "each batch fills a segment, and two segments are kept"
        );
    }
}
