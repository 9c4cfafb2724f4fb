//! `appmaster`: the application master program, which runs one job.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headroom_appmaster::run::{self, MasterOptions, MasterRunError, StopRequest};
use headroom_client::ClientCredentials;
use headroom_config::JobSpec;
use headroom_config::job::ExecutorSpec;
use headroom_types::AppId;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Largest number of slots whose messages one thread serves.
const MAX_SLOTS_OF_ONE_THREAD: u32 = 256;
/// Threads beside that of the loop, in the master of a larger job.
const WORKERS: usize = 2;

/// Runs the tasks of one job: requests executors, starts tasks in them, and handles failures.
#[derive(Debug, Parser)]
#[command(
    name = "appmaster",
    version,
    after_help = "Exit codes: 0 done, 1 the job failed, 2 mistakes in the job file, \
    6 the resource manager does not answer, 9 tasks were killed for memory at the largest size they can have"
)]
struct MasterArguments {
    #[command(flatten)]
    options: MasterOptions,
    /// CA certificate of the resource manager; set by the node agent
    #[arg(long, env = "HEADROOM_CA_FILE", value_name = "FILE", hide = true)]
    ca: Option<PathBuf>,
    /// Token file that authenticates this master; set by the node agent, read once and removed
    #[arg(long, env = "HEADROOM_TOKEN_FILE", value_name = "FILE", hide = true)]
    token_file: Option<PathBuf>,
    /// Check the job file and exit
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    let args = MasterArguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("HEADROOM_LOG")
        .unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    if let Err(error) = headroom_transport::non_dumpable::make_non_dumpable() {
        tracing::warn!(%error, "this process stays dumpable: processes of the same user can read its memory");
    }
    let job = match run::load(&args.options) {
        Ok(job) => job,
        Err(error) => return failed(error),
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    let runtime = match runtime(&job) {
        Ok(runtime) => runtime,
        Err(error) => return say(&format!("the runtime cannot be started: {error}"), 1),
    };
    let ended = runtime.block_on(work(args, job));
    // Nothing that is left needs an end of its own; the exit does not wait for its threads.
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(error),
    }
}

/// The runtime of the master. Each message that passes between threads wakes another one, so the
/// master of a small job has one thread.
fn runtime(job: &JobSpec) -> std::io::Result<Runtime> {
    let slots = |set: &ExecutorSpec| set.count.saturating_mul(set.slots);
    let slots = job.executors.iter().map(slots).fold(0, u32::saturating_add);
    let mut builder = if slots > MAX_SLOTS_OF_ONE_THREAD {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(WORKERS);
        builder
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    builder.enable_all().build()
}

fn failed(error: MasterRunError) -> ExitCode {
    let code = error.exit_code();
    let chain: Vec<String> = anyhow::Error::from(error)
        .chain()
        .map(ToString::to_string)
        .collect();
    say(chain.join(": ").trim_end(), code)
}

async fn work(args: MasterArguments, job: JobSpec) -> Result<u8, MasterRunError> {
    let (stop_sender, leave) = watch::channel(StopRequest::GoOn);
    let trust = ClientCredentials::of_a_container(args.ca, args.token_file.as_deref());
    let mut options = args.options;
    options.trust = trust.map_err(|source| MasterRunError::Unreachable {
        url: options.rm.clone(),
        source,
    })?;
    options.leave = leave;
    tokio::spawn(watch_signals(stop_sender));
    let app = match options.app.clone() {
        Some(app) => app,
        None => announced(run::submit(&mut options, &job).await?),
    };
    run::run(options, app, job)
        .await
        .map(|finished| finished.exit_code())
}

#[allow(clippy::print_stdout)] // the application's id is this program's output
fn announced(app: AppId) -> AppId {
    println!("{app}");
    app
}

/// SIGTERM ends this run and leaves the job to the next one; SIGINT ends the job.
async fn watch_signals(stop_sender: watch::Sender<StopRequest>) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        tracing::warn!("signal handlers cannot be installed");
        return;
    };
    let wanted = tokio::select! {
        _ = terminate.recv() => StopRequest::Leave,
        _ = interrupt.recv() => StopRequest::Stop,
    };
    stop_sender.send_replace(wanted);
    // A second Ctrl-C does not wait for the resource manager.
    interrupt.recv().await;
    stop_sender.send_replace(StopRequest::Leave);
}

#[allow(clippy::print_stderr)] // the error message of a command-line program
fn say(text: &str, code: u8) -> ExitCode {
    eprintln!("appmaster: {text}");
    ExitCode::from(code)
}
