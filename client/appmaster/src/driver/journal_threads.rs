//! The two threads of the journal: one writes groups of records, one makes them durable. A journal in
//! the resource manager or in an object store has one task instead, with at most one append in progress;
//! its starts follow the copy on this node.
//!
//! The loop never waits for the disk. While a sync is in progress, later groups are written, and
//! their starts leave. The next sync covers all groups that were written in the meantime. In a
//! shared directory, the sync thread checks the fence after each sync, and at intervals without one.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use headroom_transport::deadline;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::job_journal::JobJournal;
use crate::journal::{JournalError, MasterJournal, encode, io_at};
use crate::journal_tail::JournalTail;
use crate::record::JournalRecord;
use crate::remote_journal::RemoteJournal;

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

/// A group on its way to the threads or the task.
type QueuedGroup = (GroupNumber, Vec<JournalRecord>);

/// The side of the threads or the task.
#[derive(Debug)]
enum GroupWriter {
    /// Two threads for a file.
    Threads {
        /// `None` after the end began.
        groups: Option<Sender<QueuedGroup>>,
        /// Disconnected when both threads have ended.
        ended: Receiver<()>,
    },
    /// A task for a journal in the resource manager or in an object store.
    Task {
        groups: mpsc::UnboundedSender<QueuedGroup>,
        task: AbortHandle,
    },
}

/// The loop's handle of the threads or the task. Dropping it ends them and closes the file.
#[derive(Debug)]
pub(super) struct JournalThreads {
    writer: GroupWriter,
    progress: mpsc::Receiver<JournalProgress>,
    path: PathBuf,
}

impl JournalThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started, or the file cannot be opened again.
    pub(super) fn start(journal: JobJournal) -> Result<JournalThreads, JournalError> {
        match journal {
            JobJournal::File(journal) => JournalThreads::start_threads(journal),
            JobJournal::Manager(journal) => Ok(JournalThreads::start_task(*journal)),
            JobJournal::Objects(journal) => Ok(JournalThreads::start_task(*journal)),
        }
    }

    fn start_task(journal: impl RemoteJournal) -> JournalThreads {
        // Holds at most one entry for each waiting group.
        let (groups, queued) = mpsc::unbounded_channel();
        let (to_loop, progress) = mpsc::channel(2 * MAX_WAITING_GROUPS);
        let path = journal.name();
        let task = tokio::spawn(append_groups(journal, queued, to_loop)).abort_handle();
        JournalThreads {
            writer: GroupWriter::Task { groups, task },
            progress,
            path,
        }
    }

    fn start_threads(journal: MasterJournal) -> Result<JournalThreads, JournalError> {
        // Both queues hold at most one entry for each waiting group.
        let (groups, to_write) = channel();
        let (to_sync, written) = channel();
        let (to_loop, progress) = mpsc::channel(2 * MAX_WAITING_GROUPS);
        let (alive, ended) = channel();
        let path = journal.path().to_owned();
        let durable = journal.try_clone()?;
        let spawned = |result: std::io::Result<thread::JoinHandle<()>>| {
            let doing = "written, because a thread cannot be started";
            result.map(drop).map_err(io_at(&path, doing))
        };
        let (of_writer, sender) = (alive.clone(), to_loop.clone());
        let writer = thread::Builder::new().name("journal-write".into());
        spawned(
            writer.spawn(move || write_groups(of_writer, journal, &to_write, &to_sync, &sender)),
        )?;
        let syncer = thread::Builder::new().name("journal-sync".into());
        spawned(syncer.spawn(move || sync_groups(alive, durable, &written, &to_loop)))?;
        Ok(JournalThreads {
            writer: GroupWriter::Threads {
                groups: Some(groups),
                ended,
            },
            progress,
            path,
        })
    }

    /// Queues a group. The loop queues at most [`MAX_WAITING_GROUPS`] and those of one turn.
    pub(super) fn write(&self, number: GroupNumber, records: Vec<JournalRecord>) {
        // Fails after an error of the writer, which the loop receives as progress.
        match &self.writer {
            GroupWriter::Threads {
                groups: Some(groups),
                ..
            } => _ = groups.send((number, records)),
            GroupWriter::Threads { groups: None, .. } => {}
            GroupWriter::Task { groups, .. } => _ = groups.send((number, records)),
        }
    }

    /// The next report.
    pub(super) async fn progress(&mut self) -> JournalProgress {
        self.progress.recv().await.unwrap_or_else(|| {
            let error = io_at(&self.path, "written, because its thread has ended");
            JournalProgress::Failed(error(std::io::ErrorKind::BrokenPipe.into()))
        })
    }
}

impl Drop for JournalThreads {
    fn drop(&mut self) {
        self.progress.close();
        match &mut self.writer {
            GroupWriter::Threads { groups, ended } => {
                *groups = None;
                // Releases the lock of the file before the next run opens it. A thread that waits
                // for a file server that does not answer ends with the process.
                let _ = ended.recv_timeout(JOIN_TIMEOUT);
            }
            // A group that is on its way is part of the journal or not; nothing depends on it.
            GroupWriter::Task { task, .. } => task.abort(),
        }
    }
}

/// Appends all queued groups as one, again and again. Each is written to the copy on this node first.
///
/// After each append it pauses for three times the time that the append took, at most
/// [`RemoteJournal::MAX_PAUSE`], and collects the groups that arrive. So appends take at most a quarter
/// of the time, and a slow store receives larger groups. A group that arrives after the pause is appended
/// at once.
async fn append_groups<J: RemoteJournal>(
    mut journal: J,
    mut groups: mpsc::UnboundedReceiver<QueuedGroup>,
    progress: mpsc::Sender<JournalProgress>,
) {
    let mut collected = CollectedGroups {
        tail: journal.take_tail(),
        number: 0,
        lines: Vec::new(),
        error: None,
    };
    let mut pause_end = Instant::now();
    loop {
        if collected.lines.is_empty() && collected.error.is_none() {
            let Some(group) = groups.recv().await else {
                return;
            };
            collected.add(group, &progress).await;
        }
        collected
            .add_until(deadline::reached(pause_end), &mut groups, &progress)
            .await;
        let (number, lines) = (collected.number, std::mem::take(&mut collected.lines));
        let begin = Instant::now();
        let appended = match collected.error.take() {
            Some(source) => Err(io_at(&journal.name(), "written")(source)),
            None => {
                let append = journal.append_encoded(&lines);
                collected.add_until(append, &mut groups, &progress).await
            }
        };
        pause_end = Instant::now() + J::MAX_PAUSE.min(begin.elapsed() * 3);
        collected.on_answer(journal.has_moved());
        let report = match appended {
            Ok(()) => JournalProgress::Durable(number),
            Err(error) => JournalProgress::Failed(error),
        };
        let is_over = matches!(report, JournalProgress::Failed(_));
        if progress.send(report).await.is_err() || is_over {
            return;
        }
    }
}

/// Groups that the next append contains.
struct CollectedGroups {
    /// Their copy on this node. `None` after a move to it.
    tail: Option<JournalTail>,
    /// The last group.
    number: GroupNumber,
    /// Their records in the format of the file.
    lines: Vec<u8>,
    /// The reason that a group has no such format.
    error: Option<std::io::Error>,
}

impl CollectedGroups {
    /// Adds the groups that arrive before `end` is ready, and returns its result.
    async fn add_until<T>(
        &mut self,
        end: impl Future<Output = T>,
        groups: &mut mpsc::UnboundedReceiver<QueuedGroup>,
        progress: &mpsc::Sender<JournalProgress>,
    ) -> T {
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                biased;
                Some(group) = groups.recv() => self.add(group, progress).await,
                result = &mut end => return result,
            }
        }
    }

    /// Adds a group. Its starts may leave if they may follow the copy.
    async fn add(&mut self, group: QueuedGroup, progress: &mpsc::Sender<JournalProgress>) {
        let (number, records) = group;
        let lines = match encode(&records) {
            Ok(lines) => lines,
            Err(error) => {
                self.error = Some(error.into());
                return;
            }
        };
        self.number = number;
        self.lines.extend_from_slice(&lines);
        let may_start = self.tail.as_mut().is_some_and(|tail| tail.write(&lines));
        if may_start {
            // Fails after the end of the loop.
            let _ = progress.send(JournalProgress::Written(number)).await;
        }
    }

    fn on_answer(&mut self, has_moved: bool) {
        if has_moved && let Some(mut tail) = self.tail.take() {
            tail.end();
        }
        self.tail.iter_mut().for_each(JournalTail::on_answer);
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
