//! Thread that writes batches of records to the store.
//!
//! It owns the store, and the main loop processes inputs while a batch is on its way to the disk.
//! Batches are written in the order in which the loop sends them, one at a time.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_rm_store::{RecordBatch, RecordStore, StoreError};
use tokio::sync::mpsc;
use tracing::warn;

/// Capacity of the queue to the thread: a batch and a snapshot, while the one before is written.
const COMMANDS: usize = 4;

/// Handle of the thread. Dropping it waits for the commands that are queued.
#[derive(Debug)]
pub(crate) struct CommitThread {
    /// None while the handle is dropped.
    commands: Option<SyncSender<CommitCommand>>,
    results: mpsc::Receiver<CommitResult>,
    thread: Option<JoinHandle<()>>,
}

/// Outcome of a batch, and the time that it took. After an error the state is unknown.
pub(crate) type CommitResult = Result<Duration, StoreError>;

#[derive(Debug)]
enum CommitCommand {
    Commit(RecordBatch),
    Snapshot,
}

impl CommitThread {
    /// Starts the thread.
    pub(crate) fn start(store: impl RecordStore + 'static) -> std::io::Result<Self> {
        let (send, commands) = sync_channel(COMMANDS);
        let (done, results) = mpsc::channel(COMMANDS);
        let thread = std::thread::Builder::new()
            .name("commits".into())
            .spawn(move || run(store, &commands, &done))?;
        Ok(CommitThread {
            commands: Some(send),
            results,
            thread: Some(thread),
        })
    }

    /// Queues a batch. Its result follows from [`CommitThread::result`].
    pub(crate) fn commit(&self, batch: RecordBatch) {
        self.send(CommitCommand::Commit(batch));
    }

    /// Queues a copy of all committed records, next to the database. It has no result.
    pub(crate) fn snapshot(&self) {
        self.send(CommitCommand::Snapshot);
    }

    /// Waits for the result of the next batch, in their order. `None` if the thread has ended.
    /// Cancel safe.
    pub(crate) async fn result(&mut self) -> Option<CommitResult> {
        self.results.recv().await
    }

    fn send(&self, command: CommitCommand) {
        if let Some(commands) = &self.commands {
            // Fails if the thread has ended, which the next result shows.
            let _ = commands.send(command);
        }
    }
}

impl Drop for CommitThread {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is already reported on standard error.
            let _ = thread.join();
        }
    }
}

/// Runs until the handle is dropped, or a batch fails.
fn run(
    mut store: impl RecordStore,
    commands: &Receiver<CommitCommand>,
    done: &mpsc::Sender<CommitResult>,
) {
    while let Ok(command) = commands.recv() {
        match command {
            CommitCommand::Commit(batch) => {
                let started = Instant::now();
                let result = batch.commit(&mut store).map(|()| started.elapsed());
                let failed = result.is_err();
                // The queue has room for all results: the loop sends a batch after the result of
                // the one before.
                if done.try_send(result).is_err() || failed {
                    return;
                }
            }
            CommitCommand::Snapshot => {
                if let Err(error) = store.snapshot() {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot write a snapshot of the state"
                    );
                }
            }
        }
    }
}
