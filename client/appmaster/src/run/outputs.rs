//! Claim and release of output directories, before a master starts and after its job has ended.

use std::path::PathBuf;

use headroom_client::Client;
use headroom_config::JobSpec;

use crate::output::{self, EarlierCommit, JobStartState, OutputError, OutputOwner};

/// The result of claiming the output directories of a job.
#[derive(Debug, Default)]
pub(super) struct OutputClaim {
    /// The commits that may have happened before.
    pub(super) turn: EarlierCommit,
    /// The reason why the job cannot start.
    pub(super) refused: Option<String>,
}

/// Claims the output directories of a job for this owner. A directory of an ended application is
/// cleaned up first.
pub(super) async fn claim(
    client: &Client,
    job: &JobSpec,
    owner: &OutputOwner,
    beginning: JobStartState,
) -> OutputClaim {
    let mut tries = output::directories(job).len();
    let claimed = loop {
        let (spec, us) = (job.clone(), owner.clone());
        match run_blocking(move || output::claim(&spec, &us, beginning)).await {
            Err(OutputError::Owned { dir, owner })
                if tries > 0 && left_behind(client, &dir, &owner).await =>
            {
                tries -= 1
            }
            claimed => break claimed,
        }
    };
    let (turn, refused) = match claimed {
        Ok(turn) => (turn, None),
        Err(error) if beginning == JobStartState::New => {
            (EarlierCommit::First, Some(error.in_words()))
        }
        // A running job continues: a commit that fails reports its own error.
        Err(error) => {
            tracing::warn!(
                error = error.in_words(),
                "cannot inspect the output directory, continuing"
            );
            (EarlierCommit::First, None)
        }
    };
    OutputClaim { turn, refused }
}

/// True when the resource manager knows the owner and reports it as ended; then its files are
/// removed.
async fn left_behind(client: &Client, dir: &std::path::Path, owner: &str) -> bool {
    let Ok(owner) = owner.parse::<OutputOwner>() else {
        return false;
    };
    let over = client
        .app(&owner.app)
        .await
        .is_ok_and(|view| view.submitted == owner.submitted && view.state.is_final());
    if over {
        tracing::info!(dir = %dir.display(), %owner, "the application that owns the output directory has ended");
        let dir: PathBuf = dir.to_owned();
        run_blocking(move || output::remove_leftovers(&dir, &owner)).await;
    }
    over
}

/// Releases the output directories.
pub(super) async fn release(job: JobSpec, owner: OutputOwner) {
    run_blocking(move || output::release(&job, &owner)).await;
}

/// Runs blocking work outside of the runtime's threads.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
