//! The options of a master in a test, and a run of it.

use std::path::Path;

use headroom_appmaster::run::{self, MasterOptions, MasterResult, MasterRunError, StopRequest};
use headroom_types::{AppId, Bytes};
use tokio::sync::watch;

use super::Cluster;

/// A first attempt of the job file `job`, which is written into `dir`. It continues while the sender
/// exists.
pub fn options(
    cluster: &Cluster,
    job: &str,
    dir: &Path,
) -> (MasterOptions, watch::Sender<StopRequest>) {
    let file = dir.join("job.toml");
    std::fs::write(&file, job).expect("writes");
    let (stop, leave) = watch::channel(StopRequest::GoOn);
    let options = MasterOptions {
        job: file,
        app: None,
        attempt: 1,
        trust: headroom_client::ClientCredentials::default(),
        rm: cluster.url(),
        state: Some(dir.join("state")),
        journals: None,
        base_dir: None,
        listen: "127.0.0.1:0".parse().expect("address"),
        profiles: headroom_config::job::ClusterProfiles::new(),
        mode: None,
        master_memory: Bytes::ZERO,
        leave,
    };
    (options, stop)
}

/// Submits the job of `options`.
pub async fn submit_job(options: &mut MasterOptions) -> Result<AppId, MasterRunError> {
    let job = run::load(options)?;
    run::submit(options, &job).await
}

/// Runs the job of `options`, as the program does: submits it if it has no application.
pub async fn run_job(mut options: MasterOptions) -> Result<MasterResult, MasterRunError> {
    let job = run::load(&options)?;
    let app = match options.app.clone() {
        Some(app) => app,
        None => run::submit(&mut options, &job).await?,
    };
    run::run(options, app, job).await
}
