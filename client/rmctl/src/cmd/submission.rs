//! The submission of a compiled job, under a master that the resource manager launches.

use std::collections::BTreeMap;

use std::time::{Duration, Instant};

use headroom_client::Client;
use headroom_client::retry::ExponentialBackoff;
use headroom_config::job::executor_request::first_request;
use headroom_identity::token::random_hex;
use headroom_types::{Bytes, Cpus, LaunchSpec, MasterGrowth, Resource};
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{ApplicationMaster, SubmissionResult, SubmitApplicationRequest};
use headroom_wire::v1::submission::MAX_OPEN_TASKS;

use super::job_file::CompiledJob;
use crate::exit::{CommandFailure, CommandResult};

/// Tries of a call whose answer may be another one later.
const TRIES: u32 = 4;
/// Longest wait for the election of a leader among several resource managers.
const ELECTION: Duration = Duration::from_secs(15);
/// Largest master of a live job.
const MAX_LIVE_MASTER: Bytes = Bytes::from_gib(1);

/// Submits a job under a master that the resource manager launches.
pub(crate) async fn submit(client: &Client, job: &CompiledJob) -> CommandResult<SubmissionResult> {
    send(client, request(job, &new_key()?)).await
}

/// An idempotency key that no other call has, also on hosts and in containers with the same process
/// numbers.
pub(crate) fn new_key() -> CommandResult<String> {
    let random = random_hex::<16>().map_err(|e| CommandFailure::failed(e.to_string()))?;
    Ok(format!("rmctl-{random}"))
}

/// Sends a submission. Safe to repeat: the idempotency key prevents a second application.
pub(crate) async fn send(
    client: &Client,
    mut request: SubmitApplicationRequest,
) -> CommandResult<SubmissionResult> {
    // An authenticated client needs no user name in the request.
    request.user = request.user.filter(|_| !client.is_authenticated());
    let (mut backoff, mut tries) = (ExponentialBackoff::usual(), 0);
    let (several, started) = (client.base().contains(','), Instant::now());
    loop {
        tries += 1;
        match client.submit(&request).await {
            // Another resource manager leads within seconds.
            Err(e) if several && e.lacks_leader() && started.elapsed() < ELECTION => {
                tokio::time::sleep(backoff.wait()).await
            }
            Err(e) if e.retryable() && !e.connection_refused() && tries < TRIES => {
                tokio::time::sleep(backoff.wait()).await
            }
            answer => return Ok(answer?),
        }
    }
}

/// The submission of a job.
pub(crate) fn request(job: &CompiledJob, key: &str) -> SubmitApplicationRequest {
    let words = [
        "appmaster",
        "--job",
        "job.toml",
        "--mode",
        job.mode.as_str(),
        "--base-dir",
    ];
    let command = words
        .into_iter()
        .map(str::to_owned)
        .chain([job.base.display().to_string()])
        .collect();
    let files = BTreeMap::from([("job.toml".to_owned(), job.text.clone())]);
    let (env, first_request) = first_executor(job);
    let launch = LaunchSpec {
        command,
        files,
        env,
        ..LaunchSpec::default()
    };
    // The number of tasks of a live job is not known. Its master has a bounded number of rows, and
    // becomes larger when its clients submit large inputs.
    let (rows, growth) = match &job.spec.live {
        None => (job.spec.tasks(), None),
        Some(_) => {
            let rows = job.spec.tasks().saturating_add(MAX_OPEN_TASKS);
            let max_memory = MAX_LIVE_MASTER;
            (rows, Some(MasterGrowth { max_memory }))
        }
    };
    let master = ApplicationMaster::Managed {
        resource: master_size(rows),
        launch: Box::new(launch),
        max_attempts: 2,
        growth,
        start_timeout_ms: None,
        first_request,
    };
    SubmitApplicationRequest {
        name: job.spec.name.clone(),
        queue: job.spec.queue.clone(),
        priority: job.spec.priority,
        user: crate::context::user(),
        lifetime_ms: None,
        master,
        idempotency_key: Some(key.to_owned()),
        access: job.spec.access.clone(),
    }
}

/// The first executor of a job, which starts along with the master, and the environment by which the
/// master knows its secret. Without it, the master requests all executors.
fn first_executor(job: &CompiledJob) -> (BTreeMap<String, String>, Option<Box<PlacementRequest>>) {
    let made = random_hex::<32>().ok().and_then(|secret| {
        let request = first_request(&job.spec, &secret)?;
        Some((secret, Box::new(request)))
    });
    match made {
        Some((secret, request)) => {
            let env = [("HEADROOM_APP_TOKEN".to_owned(), secret)];
            (env.into(), Some(request))
        }
        None => (BTreeMap::new(), None),
    }
}

/// Size of a master. A master keeps a row for each task. It requests no processors, because it
/// mostly waits. On a host with two processors an executor that requests both could otherwise never
/// start.
fn master_size(tasks: u32) -> Resource {
    let rows = Bytes::from_kib(u64::from(tasks).saturating_mul(8));
    let memory = Bytes::from_mib(64)
        .saturating_add(rows)
        .round_up(Bytes::from_mib(8));
    Resource::new(memory, Cpus::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::job_file::sample_job;

    #[test]
    fn the_file_travels_with_the_submission() {
        let request = request(&sample_job("1GiB"), "k");
        let ApplicationMaster::Managed {
            resource,
            launch,
            first_request,
            ..
        } = request.master
        else {
            panic!("managed")
        };
        assert_eq!(
            launch.command,
            [
                "appmaster",
                "--job",
                "job.toml",
                "--mode",
                "uber",
                "--base-dir",
                "/work"
            ]
        );
        assert!(launch.files["job.toml"].contains("name = \"big\""));
        let first = first_request.expect("an executor that starts along with the master");
        let secret = |launch: &LaunchSpec| launch.env["HEADROOM_APP_TOKEN"].clone();
        assert_eq!(secret(&first.launch), secret(&launch));
        assert_eq!(secret(&launch).len(), 64);
        assert_eq!(
            (resource.memory, resource.cpus),
            (Bytes::from_mib(72), Cpus::ZERO)
        );
    }
}
