//! The directories for outputs, before a master begins and after its job is over.

use std::path::PathBuf;

use headroom_client::Client;
use headroom_config::JobSpec;
use headroom_types::AppId;

use super::{RunError, answered};
use crate::output::{self, Beginning, OutputError, Owner, Turn};

/// Where a job stands with its directories.
#[derive(Debug)]
pub(super) struct Claim {
    /// Who they belong to; `None` for a job that needs none.
    pub(super) owner: Option<Owner>,
    /// What its commits may find.
    pub(super) turn: Turn,
    /// Why the job cannot be begun.
    pub(super) refused: Option<String>,
}

/// Takes them. One that belongs to an application which is over is taken from it.
pub(super) async fn claim(
    client: &Client,
    url: &str,
    job: &JobSpec,
    app: &AppId,
    beginning: Beginning,
) -> Result<Claim, RunError> {
    if output::directories(job).is_empty() {
        return Ok(Claim { owner: None, turn: Turn::First, refused: None });
    }
    let submitted = answered(url, || client.app(app)).await?.submitted;
    let owner = Owner { app: app.clone(), submitted };
    let mut tries = output::directories(job).len();
    let claimed = loop {
        let (spec, us) = (job.clone(), owner.clone());
        match beside(move || output::claim(&spec, &us, beginning)).await {
            Err(OutputError::Owned { dir, owner }) if tries > 0 && left_behind(client, &dir, &owner).await => tries -= 1,
            claimed => break claimed,
        }
    };
    let (turn, refused) = match claimed {
        Ok(turn) => (turn, None),
        Err(error) if beginning == Beginning::New => (Turn::First, Some(error.in_words())),
        // A job that has begun goes on: what cannot be put in its place says so when its time comes.
        Err(error) => {
            tracing::warn!(error = error.in_words(), "the directory of the outputs cannot be looked at, going on");
            (Turn::First, None)
        }
    };
    Ok(Claim { owner: Some(owner), turn, refused })
}

/// True when the resource manager knows the owner, and that it is over: what it left is gone then.
async fn left_behind(client: &Client, dir: &std::path::Path, owner: &str) -> bool {
    let Ok(owner) = owner.parse::<Owner>() else { return false };
    let over = client.app(&owner.app).await.is_ok_and(|view| view.submitted == owner.submitted && view.state.is_final());
    if over {
        tracing::info!(dir = %dir.display(), %owner, "the application whose outputs were made there is over");
        let dir: PathBuf = dir.to_owned();
        beside(move || output::take_away(&dir, &owner)).await;
    }
    over
}

/// Gives them back.
pub(super) async fn release(job: JobSpec, owner: Option<Owner>) {
    if let Some(owner) = owner {
        beside(move || output::release(&job, &owner)).await;
    }
}

/// Runs what may wait for a file system beside the runtime's threads.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
