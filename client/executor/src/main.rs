//! `executor`: started by a node agent in a container; everything it needs is in its environment.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use headroom_executor::environment::Environment;
use headroom_executor::run::{Outcome, run};
use tracing_subscriber::EnvFilter;

/// Runs the tasks of one job in slots, each in a cgroup of its own.
///
/// Everything is told by the environment: HEADROOM_MASTER_URL, HEADROOM_APP_TOKEN and HEADROOM_SLOTS by the application master,
/// HEADROOM_APP, HEADROOM_CONTAINER, HEADROOM_CONTAINER_DIR, HEADROOM_ENFORCER, HEADROOM_CGROUP and HEADROOM_RM by the node
/// agent. HEADROOM_LOG sets what is logged, for example `debug`.
///
/// Exit codes: 0 when it was told to end, 1 when it could not work or had no master for too long, 2 when its environment is not right,
/// 3 when its master speaks other versions of the protocol.
#[derive(Debug, Parser)]
#[command(name = "executor", version)]
struct Args {
    /// Check the environment and end: exit code 0 when it is complete, 2 when not.
    #[arg(long)]
    check_config: bool,
    /// Stop the tasks and end after so many seconds without a master.
    #[arg(long, value_name = "N", default_value_t = 120)]
    give_up_after_s: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_env("HEADROOM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let environment = match Environment::read(std::env::vars_os()) {
        Ok(environment) => environment,
        Err(problems) => {
            problems.iter().for_each(|problem| tracing::error!("{problem}"));
            return ExitCode::from(2);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    match start(environment, Duration::from_secs(args.give_up_after_s)) {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::NoMaster) => {
            tracing::error!("there was no master for {} s; the tasks were stopped", args.give_up_after_s);
            ExitCode::FAILURE
        }
        Ok(Outcome::Refused) => ExitCode::from(3),
        Err(e) => {
            tracing::error!("the executor cannot run: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(environment: Environment, without_master: Duration) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(32)
        .thread_stack_size(512 << 10)
        .build()?;
    let outcome = runtime.block_on(run(environment, without_master));
    // A cgroup that does not go must not keep the executor: the node agent removes it with the container.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}
