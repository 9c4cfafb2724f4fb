//! `executor`: a program that node agents start in containers; environment variables contain its
//! whole configuration.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use headroom_executor::environment::ExecutorSettings;
use headroom_executor::run::run;
use headroom_executor::session::ExecutorOutcome;
use tracing_subscriber::EnvFilter;

/// Runs the tasks of one job in slots, each in a cgroup of its own.
///
/// All settings are environment variables. The application master sets HEADROOM_MASTER_URL,
/// HEADROOM_APP_TOKEN and HEADROOM_SLOTS. The node agent sets HEADROOM_APP, HEADROOM_CONTAINER,
/// HEADROOM_CONTAINER_DIR, HEADROOM_ENFORCER, HEADROOM_CGROUP and HEADROOM_RM. HEADROOM_LOG sets
/// the log level, for example `debug`.
///
/// Exit codes: 0 after an ordered end; 1 after an error, or too much time without a master;
/// 2 for an invalid environment; 3 without a protocol version in common with the master.
#[derive(Debug, Parser)]
#[command(name = "executor", version)]
struct ExecutorArguments {
    /// Check the environment and exit: code 0 if it is complete, otherwise 2.
    #[arg(long)]
    check_config: bool,
    /// Stop the tasks and exit after this time without a master. Seconds.
    #[arg(long, value_name = "N", default_value_t = 120)]
    give_up_after_s: u64,
}

fn main() -> ExitCode {
    let args = ExecutorArguments::parse();
    let filter = EnvFilter::try_from_env("HEADROOM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let environment = match ExecutorSettings::read(std::env::vars_os()) {
        Ok(environment) => environment,
        Err(problems) => {
            problems
                .iter()
                .for_each(|problem| tracing::error!("{problem}"));
            return ExitCode::from(2);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    match start(environment, Duration::from_secs(args.give_up_after_s)) {
        Ok(outcome) => {
            if outcome == ExecutorOutcome::NoMaster {
                tracing::error!(
                    "no master was reachable for {} s; the tasks were stopped",
                    args.give_up_after_s
                );
            }
            ExitCode::from(outcome.exit_code())
        }
        Err(e) => {
            tracing::error!("the executor cannot run: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(
    environment: ExecutorSettings,
    without_master: Duration,
) -> anyhow::Result<ExecutorOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(32)
        .thread_stack_size(512 << 10)
        .build()?;
    let outcome = runtime.block_on(run(environment, without_master));
    // A cgroup that cannot be removed must not delay the end: the node agent removes it with the
    // container.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}
