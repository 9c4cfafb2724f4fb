//! The `resourcemanager` daemon: arguments, log, start, wait for the end.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use headroom_config::render;
use headroom_resourcemanager::{Args, Options, start};
use headroom_telemetry::log::{self, Level};
use tokio::signal::unix::{SignalKind, signal};

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
    let level = log::begin("resourcemanager", options.log.as_str());
    match run(options, &args, &level) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("resourcemanager: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

#[tokio::main]
async fn run(options: Options, args: &Args, level: &Level) -> anyhow::Result<()> {
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
                    level.set(to.as_str());
                }
            }
        }
    }
    running.shutdown().await
}

/// One text for the person who started this. There is nowhere to go when that fails.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
