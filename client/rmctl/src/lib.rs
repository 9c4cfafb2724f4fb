//! The command line of Headroom: one verb per file in `cmd`, and pure functions from views to text
//! in `render`.
//!
//! Standard output carries data, standard error carries messages. The program has no state between
//! two calls. Only with the feature `dev` it can start daemons, which it must clean up.

#![forbid(unsafe_code)]

mod args;
mod argument_line;
#[cfg(feature = "dev")]
mod attached;
mod bundle;
mod certificate;
mod cmd;
mod complete;
mod context;
#[cfg(feature = "dev")]
mod demo;
mod exit;
mod explain;
mod follow;
mod groupby;
#[cfg(feature = "dev")]
mod interrupt;
#[cfg(feature = "dev")]
mod local_cluster;
#[cfg(test)]
mod manual;
mod progress;
mod render;
mod select;
mod selector;
mod settings;
mod spark;
mod target;
mod term;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use args::RmctlArguments;
use context::CommandContext;
use exit::{CommandExitCode, CommandFailure, CommandResult};
use term::TerminalOutput;

/// Runs the verb that the process's arguments name.
pub fn run() -> ExitCode {
    complete::answer(RmctlArguments::command);
    let words: Vec<OsString> = std::env::args_os().collect();
    let (cli, matches) = match args::parse_frequent(&words).map_or_else(|| parse(&words), Ok) {
        Ok(parsed) => parsed,
        Err(e) => return refuse(&e),
    };
    let typed = |id: &str| is_typed(&matches, id);
    let (color, curl) = (cli.global.color, cli.global.curl);
    let given = settings::arguments::given(&cli.global, typed);
    let mends = cli.verb.needs_no_settings();
    let settings = if mends {
        settings::without_files(given.clone())
    } else {
        settings::load(given.clone())
    };
    let context = settings.map(|settings| CommandContext::new(settings, given, color, curl));
    let outcome = context.and_then(|mut context| execute(cli.verb, &mut context));
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) if failure.is_silent() => CommandExitCode::Ok.into(),
        Err(failure) => {
            TerminalOutput::new(color).complain(&failure);
            failure.exit().into()
        }
    }
}

fn parse(words: &[OsString]) -> Result<(RmctlArguments, ArgMatches), clap::Error> {
    let matches = RmctlArguments::command().try_get_matches_from(words)?;
    Ok((RmctlArguments::from_arg_matches(&matches)?, matches))
}

/// Whether an argument was typed, before or after the verb.
fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    let here = matches.try_contains_id(id).unwrap_or(false)
        && matches.value_source(id) == Some(ValueSource::CommandLine);
    here || matches
        .subcommand()
        .is_some_and(|(_, below)| is_typed(below, id))
}

/// Prints help, version or a usage error in the words of clap.
fn refuse(e: &clap::Error) -> ExitCode {
    let shown = e.print();
    if shown.is_ok() && !e.use_stderr() {
        CommandExitCode::Ok.into()
    } else {
        CommandExitCode::Usage.into()
    }
}

/// Runs a verb. A sample program runs without an async runtime, so that its memory is that of its
/// data. Short verbs use one thread; verbs that run daemons use all processors.
fn execute(verb: args::RootSubcommand, context: &mut CommandContext) -> CommandResult {
    if let args::RootSubcommand::Sample { program } = verb {
        return cmd::sample::run(program, context);
    }
    let mut builder = if verb.is_long() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| CommandFailure::failed(format!("the worker threads cannot start: {e}")))?;
    let outcome = runtime.block_on(cmd::run(verb, context));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}
