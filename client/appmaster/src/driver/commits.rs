//! Commits of outputs: carried out outside of the loop, a few at a time, and retried while the file
//! system fails.
//!
//! The loop owns them. Each commit ends with exactly one event. The next run requests a commit
//! again that was interrupted with its master.

use std::sync::Arc;
use std::time::Duration;

use headroom_types::TaskAttemptId;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::event::MasterEvent;
use crate::output::{self, EarlierCommit, OutputCommit, OutputError};
use crate::taskset::TaskPosition;

/// Maximum number of concurrent commits.
const MAX_CONCURRENT_COMMITS: usize = 8;
/// Pauses between tries.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Commits in progress.
pub(super) struct Commits {
    running: JoinSet<MasterEvent>,
    room: Arc<Semaphore>,
}

impl Default for Commits {
    fn default() -> Self {
        Commits {
            running: JoinSet::new(),
            room: Arc::new(Semaphore::new(MAX_CONCURRENT_COMMITS)),
        }
    }
}

impl Commits {
    /// Starts a commit.
    pub(super) fn begin(
        &mut self,
        task: TaskPosition,
        attempt: TaskAttemptId,
        commit: OutputCommit,
    ) {
        let room = Arc::clone(&self.room);
        self.running.spawn(async move {
            let place = room.acquire_owned().await;
            let error = carry_out(commit).await.err().map(|error| error.in_words());
            drop(place);
            match &error {
                Some(error) => tracing::error!(%attempt, error, "cannot commit an output"),
                None => tracing::debug!(%attempt, "committed an output"),
            }
            MasterEvent::Committed {
                task,
                attempt,
                error,
            }
        });
    }

    /// The result of the next completed commit; `None` while there is none.
    pub(super) async fn next(&mut self) -> Option<MasterEvent> {
        match self.running.join_next().await? {
            Ok(event) => Some(event),
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// Waits for the commits in progress, at most for `time`.
    pub(super) async fn last(&mut self, time: Duration) {
        let all = async { while self.running.join_next().await.is_some() {} };
        if timeout(time, all).await.is_err() {
            tracing::warn!(
                "some commits are in progress; the next run of this master completes them"
            );
        }
    }
}

async fn carry_out(mut commit: OutputCommit) -> Result<(), OutputError> {
    for pause in PAUSES {
        match once(commit.clone()).await {
            Err(error) if error.is_transient() => {
                tracing::warn!(
                    error = error.in_words(),
                    "cannot commit an output yet, retrying"
                )
            }
            done => return done,
        }
        commit.turn = match commit.turn {
            EarlierCommit::First | EarlierCommit::Again => EarlierCommit::Again,
            EarlierCommit::Anew => EarlierCommit::Anew,
        };
        sleep(pause).await;
    }
    once(commit).await
}

async fn once(commit: OutputCommit) -> Result<(), OutputError> {
    match tokio::task::spawn_blocking(move || output::commit(&commit)).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
