//! The command line of Headroom: one verb per file in `cmd`, and pure functions from views to text in `render`.
//!
//! Standard output carries data, standard error carries talk. It owns no state between two calls; with the feature `dev` it can
//! run the daemons inside itself, which is the only time it holds anything worth cleaning up.

#![forbid(unsafe_code)]

mod args;
#[cfg(feature = "dev")]
mod cluster;
mod cmd;
mod context;
#[cfg(feature = "dev")]
mod demo;
mod exit;
mod follow;
mod groupby;
#[cfg(feature = "dev")]
mod interrupt;
mod progress;
mod render;
mod target;
mod term;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use args::Cli;
use context::Context;
use exit::{Exit, Failure};

/// Runs the verb that the process's arguments name.
pub fn run() -> ExitCode {
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(e) => return refuse(&e),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(e) => return refuse(&e),
    };
    let named = matches.value_source("addr") == Some(clap::parser::ValueSource::CommandLine);
    let mut context = Context::new(cli.global, named);
    let outcome = execute(cli.verb, &mut context);
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            context.term.complain(&failure);
            failure.exit().into()
        }
    }
}

/// Help and version are answers; anything else clap says is a usage error, printed in its own words.
fn refuse(e: &clap::Error) -> ExitCode {
    let shown = e.print();
    if shown.is_ok() && !e.use_stderr() { Exit::Ok.into() } else { Exit::Usage.into() }
}

/// A sample program runs without a runtime, so that its memory is its data's alone.
fn execute(verb: args::Verb, context: &mut Context) -> Result<Exit, Failure> {
    if let args::Verb::Sample { program } = verb {
        return cmd::sample::run(program, context);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::Failed, format!("no threads to work with: {e}")))?;
    let outcome = runtime.block_on(cmd::run(verb, context));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}
