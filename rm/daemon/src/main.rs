//! The `resourcemanager` daemon: parses arguments, starts the log and the resource manager, and
//! waits for the end.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use headroom_config::{LogLevel, render};
use headroom_rm_server::operator::{self, OperatorRequest};
use headroom_rm_server::{
    ManagerArguments, ManagerOptions, ReloadOrigin, RunningManager, start_for,
};
use headroom_telemetry::log::{self, LogLevelHandle};
use headroom_transport::attached::ParentProcess;
use headroom_wire::v1::attached::{ManagerReady, StartReport};
use headroom_wire::v1::operator::{LogLevelView, ReloadResult};
use tokio::signal::unix::{SignalKind, signal};

/// Reports of ten thousand nodes allocate buffers of a few KiB on every thread. The system
/// allocator used a quarter of the processor time for that (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a failure at start or at run time.
const FAILED: u8 = 1;
/// Exit code of an invalid configuration.
const BAD_CONFIG: u8 = 2;

fn main() -> ExitCode {
    let args = ManagerArguments::parse();
    let options = match ManagerOptions::read(&args) {
        Ok(options) => options,
        Err(problems) => {
            say(render(&problems).trim_end());
            return ExitCode::from(BAD_CONFIG);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    let level = log::begin("resourcemanager", options.config.log.as_str());
    let ended = if args.end_lease {
        end_lease(&options)
    } else {
        run(options, &args, &level)
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            say(&format!("resourcemanager: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn end_lease(options: &ManagerOptions) -> anyhow::Result<ExitCode> {
    headroom_rm_server::end_lease(&options.config).await?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn run(
    options: ManagerOptions,
    args: &ManagerArguments,
    level: &LogLevelHandle,
) -> anyhow::Result<ExitCode> {
    let listener = |kind| signal(kind).context("cannot install a signal handler");
    let (mut terminate, mut interrupt, mut hangup) = (
        listener(SignalKind::terminate())?,
        listener(SignalKind::interrupt())?,
        listener(SignalKind::hangup())?,
    );
    let mut control = ProcessControl {
        args,
        level,
        says: options.config.log,
    };
    let (operator, mut requests) = operator::line();
    let starting = start_for(options, Some(operator), &[headroom_rm_yarn::routes]);
    // A standby waits here until it leads.
    let started = tokio::select! {
        started = starting => started,
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
    };
    let mut parent = if args.attached {
        ParentProcess::report_start(&report(&started)?)
            .context("cannot report the start to the parent process")?
    } else {
        ParentProcess::none()
    };
    let mut running = match started {
        Ok(running) => running,
        Err(_) if args.attached => return Ok(ExitCode::from(FAILED)),
        Err(error) => return Err(error),
    };
    loop {
        tokio::select! {
            () = parent.ended() => break,
            error = running.failed() => return Err(error),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                // The result of a reload by signal is in the log.
                let _ = control.reload(&mut running, ReloadOrigin::Signal).await;
            }
            Some(request) = requests.recv() => control.grant(&mut running, request).await,
        }
    }
    running.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

/// Start report as one line, for the parent process.
fn report(started: &anyhow::Result<RunningManager>) -> serde_json::Result<String> {
    serde_json::to_string(&match started {
        Ok(running) => StartReport::Ready(ManagerReady {
            url: running.url.clone(),
        }),
        Err(error) => StartReport::Failed {
            error: format!("{error:#}"),
            address_in_use: error.chain().any(is_address_in_use),
        },
    })
}

fn is_address_in_use(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::AddrInUse)
}

/// State of the process: its arguments and its log level.
struct ProcessControl<'a> {
    args: &'a ManagerArguments,
    level: &'a LogLevelHandle,
    /// Current log level, until the next reload.
    says: LogLevel,
}

impl ProcessControl<'_> {
    async fn grant(&mut self, running: &mut RunningManager, request: OperatorRequest) {
        // The caller may have dropped its receiver.
        match request {
            OperatorRequest::Reload(reply) => {
                let _ = reply.send(self.reload(running, ReloadOrigin::Call).await);
            }
            OperatorRequest::Log(level, reply) => {
                if let Some(level) = level {
                    self.say(level);
                }
                let by_environment = !self.level.is_free();
                let _ = reply.send(LogLevelView {
                    level: self.says,
                    configured: running.log(),
                    by_environment,
                });
            }
        }
    }

    async fn reload(
        &mut self,
        running: &mut RunningManager,
        by: ReloadOrigin,
    ) -> Result<ReloadResult, String> {
        let reloaded = running.reload(ManagerOptions::read(self.args), by).await?;
        self.say(running.log());
        Ok(reloaded)
    }

    fn say(&mut self, level: LogLevel) {
        self.level.set(level.as_str());
        self.says = level;
    }
}

/// Writes a text for the user to standard error. A write error is ignored, because it cannot be
/// reported.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
