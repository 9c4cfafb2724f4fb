//! The two threads of the journal: one writes groups of records, one makes them durable.
//!
//! The loop never waits for the disk. While a sync is in progress, later groups are written, and
//! their starts leave. The next sync covers all groups that were written in the meantime. In a
//! shared directory, the sync thread checks the fence after each sync, and at intervals without one.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::journal::{JournalError, MasterJournal};
use crate::record::JournalRecord;

/// Maximum number of groups that are not durable. The loop processes no further messages before.
pub(super) const MAX_WAITING_GROUPS: usize = 64;
/// Interval of checks of the fence without a sync.
const FENCE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time for which the end of a master waits for its threads.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Groups are numbered from 1, in the order in which they are written.
pub(super) type GroupNumber = u64;

/// A report of the threads.
#[derive(Debug)]
pub(super) enum JournalProgress {
    /// All groups up to this one are written: they survive the end of this process.
    Written(GroupNumber),
    /// All groups up to this one are durable, and no later attempt had taken over before.
    Durable(GroupNumber),
    /// The journal cannot be used any more.
    Failed(JournalError),
}

/// The loop's handle of the threads. Dropping it ends them and closes the file.
#[derive(Debug)]
pub(super) struct JournalThreads {
    /// `None` after the end began.
    groups: Option<Sender<(GroupNumber, Vec<JournalRecord>)>>,
    progress: mpsc::Receiver<JournalProgress>,
    path: PathBuf,
    /// Disconnected when both threads have ended.
    ended: Receiver<()>,
}

impl JournalThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started, or the file cannot be opened again.
    pub(super) fn start(journal: MasterJournal) -> Result<JournalThreads, JournalError> {
        // Both queues hold at most one entry for each waiting group.
        let (groups, to_write) = channel();
        let (to_sync, written) = channel();
        let (to_loop, progress) = mpsc::channel(2 * MAX_WAITING_GROUPS);
        let (alive, ended) = channel();
        let path = journal.path().to_owned();
        let durable = journal.try_clone()?;
        let spawned = |result: std::io::Result<thread::JoinHandle<()>>| {
            result.map(drop).map_err(|source| JournalError::Io {
                path: path.clone(),
                doing: "written, because a thread cannot be started",
                source,
            })
        };
        let (of_writer, sender) = (alive.clone(), to_loop.clone());
        let writer = thread::Builder::new().name("journal-write".into());
        spawned(
            writer.spawn(move || write_groups(of_writer, journal, &to_write, &to_sync, &sender)),
        )?;
        let syncer = thread::Builder::new().name("journal-sync".into());
        spawned(syncer.spawn(move || sync_groups(alive, durable, &written, &to_loop)))?;
        Ok(JournalThreads {
            groups: Some(groups),
            progress,
            path,
            ended,
        })
    }

    /// Queues a group. The loop queues at most [`MAX_WAITING_GROUPS`] and those of one turn.
    pub(super) fn write(&self, number: GroupNumber, records: Vec<JournalRecord>) {
        if let Some(groups) = &self.groups {
            // Fails after an error of the threads, which the loop receives as progress.
            let _ = groups.send((number, records));
        }
    }

    /// The next report.
    pub(super) async fn progress(&mut self) -> JournalProgress {
        self.progress.recv().await.unwrap_or_else(|| {
            JournalProgress::Failed(JournalError::Io {
                path: self.path.clone(),
                doing: "written, because its thread has ended",
                source: std::io::ErrorKind::BrokenPipe.into(),
            })
        })
    }
}

impl Drop for JournalThreads {
    fn drop(&mut self) {
        self.groups = None;
        self.progress.close();
        // Releases the lock of the file before the next run opens it. A thread that waits for a
        // file server that does not answer ends with the process.
        let _ = self.ended.recv_timeout(JOIN_TIMEOUT);
    }
}

/// Writes all queued groups with one write. `_alive` is dropped last, after the file is closed.
fn write_groups(
    _alive: Sender<()>,
    mut journal: MasterJournal,
    groups: &Receiver<(GroupNumber, Vec<JournalRecord>)>,
    to_sync: &Sender<GroupNumber>,
    progress: &mpsc::Sender<JournalProgress>,
) {
    while let Ok((mut number, mut records)) = groups.recv() {
        for (later, more) in groups.try_iter() {
            number = later;
            records.extend(more);
        }
        if let Err(error) = journal.write(&records) {
            let _ = progress.blocking_send(JournalProgress::Failed(error));
            return;
        }
        if to_sync.send(number).is_err()
            || progress
                .blocking_send(JournalProgress::Written(number))
                .is_err()
        {
            return;
        }
    }
}

/// Makes all written groups durable with one sync, again and again.
fn sync_groups(
    _alive: Sender<()>,
    journal: MasterJournal,
    written: &Receiver<GroupNumber>,
    progress: &mpsc::Sender<JournalProgress>,
) {
    loop {
        let result = match written.recv_timeout(FENCE_INTERVAL) {
            Ok(number) => {
                let number = written.try_iter().last().unwrap_or(number);
                journal.sync().map(|()| Some(number))
            }
            Err(RecvTimeoutError::Timeout) => journal.check_fence().map(|()| None),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let report = match result {
            Ok(Some(number)) => JournalProgress::Durable(number),
            Ok(None) => continue,
            Err(error) => JournalProgress::Failed(error),
        };
        let is_over = matches!(report, JournalProgress::Failed(_));
        if progress.blocking_send(report).is_err() || is_over {
            return;
        }
    }
}
