//! The `resourcemanager` daemon: arguments, log, start, wait for the end.

#![forbid(unsafe_code)]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use headroom_config::{LogLevel, render};
use headroom_resourcemanager::{Args, Options, start};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// A call of ten thousand nodes' reports allocates buffers of a few KiB from every thread: the system's allocator took a quarter
/// of the processor time for that (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something went wrong at the start or later.
const FAILED: u8 = 1;
/// The configuration has mistakes.
const BAD_CONFIG: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let options = match Options::read(&args) {
        Ok(options) => options,
        Err(problems) => {
            say(render(&problems).trim_end());
            return ExitCode::from(BAD_CONFIG);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    let level = log_to_stderr(options.log);
    match run(options, &args, level) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("resourcemanager: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

#[tokio::main]
async fn run(options: Options, args: &Args, level: impl Fn(LogLevel)) -> anyhow::Result<()> {
    let listener = |kind| signal(kind).context("signals cannot be waited for");
    let (mut terminate, mut interrupt, mut hangup) =
        (listener(SignalKind::terminate())?, listener(SignalKind::interrupt())?, listener(SignalKind::hangup())?);
    let mut running = start(options).await?;
    loop {
        tokio::select! {
            error = running.failed() => return Err(error),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                if let Some(to) = running.reload(Options::read(args)).await {
                    level(to);
                }
            }
        }
    }
    running.shutdown().await
}

/// The environment goes before the configuration. What comes back changes the level, where the environment has not set it.
fn log_to_stderr(level: LogLevel) -> impl Fn(LogLevel) {
    let set = EnvFilter::try_from_env("HEADROOM_LOG").ok();
    let free = set.is_none();
    let filter = set.unwrap_or_else(|| EnvFilter::new(level.as_str()));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let log = log.with_filter_reloading();
    let filters = log.reload_handle();
    log.init();
    move |level| {
        if free && let Err(error) = filters.reload(EnvFilter::new(level.as_str())) {
            tracing::warn!(%error, "the level of the log stays as it is");
        }
    }
}

/// One text for the person who started this. There is nowhere to go when that fails.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
