//! The `resourcemanager` daemon: arguments, log, start, wait for the end.

#![forbid(unsafe_code)]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use headroom_config::{load, load_resourcemanager, queues, render};
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
    let config = match args.config.as_deref().map(load_resourcemanager).transpose() {
        Ok(config) => config.unwrap_or_default(),
        Err(problems) => {
            say(render(&problems).trim_end());
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let options = match Options::with(config, &args) {
        Ok(options) => options,
        Err(problems) => {
            let path = args.config.unwrap_or_default();
            let text = load::read(&path).unwrap_or_default();
            say(render(&queues::at_their_places(&text, &path.display().to_string(), &problems)).trim_end());
            return ExitCode::from(BAD_CONFIG);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    log_to_stderr();
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("resourcemanager: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

#[tokio::main]
async fn run(options: Options) -> anyhow::Result<()> {
    let listener = |kind| signal(kind).context("signals cannot be waited for");
    let (mut terminate, mut interrupt, mut hangup) =
        (listener(SignalKind::terminate())?, listener(SignalKind::interrupt())?, listener(SignalKind::hangup())?);
    let mut running = start(options).await?;
    loop {
        tokio::select! {
            error = running.failed() => return Err(error),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => tracing::warn!("the configuration is read at the start only; restart to change it, going on"),
        }
    }
    running.shutdown().await
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HEADROOM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}

/// One text for the person who started this. There is nowhere to go when that fails.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
