//! `rmctl operator`: the daemon, its metrics, a support bundle; check, backup and restore of a
//! state directory that no resource manager uses.

use headroom_rm_store::StoreError;
use headroom_rm_store::backup::{self, ExistingStatePolicy};
use headroom_rm_store::check;
use headroom_rm_store::engine::present_backend;
use serde::Serialize;

use super::{daemon, debug, metrics};
use crate::args::{OperatorSubcommand, StateSubcommand};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{json, state as screens};

/// Runs an `operator` verb.
pub(crate) async fn run(context: &CommandContext, verb: OperatorSubcommand) -> CommandResult {
    match verb {
        OperatorSubcommand::Status => daemon::status(context).await,
        OperatorSubcommand::Reload => daemon::reload(context).await,
        OperatorSubcommand::Loglevel { level } => daemon::loglevel(context, level).await,
        OperatorSubcommand::Metrics(args) => metrics::run(context, args).await,
        OperatorSubcommand::Debug(args) => debug::run(context, args).await,
        OperatorSubcommand::State { what } => state(context, what).await,
    }
}

/// Runs on a blocking thread: the verbs read and write files only.
async fn state(context: &CommandContext, what: StateSubcommand) -> CommandResult {
    let context = context.clone();
    let done = tokio::task::spawn_blocking(move || on_state(&context, what)).await;
    done.map_err(|e| CommandFailure::failed(format!("the operation on the state failed: {e}")))?
}

fn on_state(context: &CommandContext, what: StateSubcommand) -> CommandResult {
    match what {
        StateSubcommand::Check(place) => {
            let report = check::check(&place.state).map_err(failure)?;
            print(context, &report, &report.dir, || {
                screens::report(&report, context.term.paint)
            });
            Ok(if report.problems.is_empty() {
                CommandExitCode::Ok
            } else {
                CommandExitCode::Failed
            })
        }
        StateSubcommand::Backup { place, to } => {
            let kept = backup::backup(&place.state, &to).map_err(failure)?;
            print(context, &kept, &kept.file, || screens::kept(&kept));
            Ok(CommandExitCode::Ok)
        }
        StateSubcommand::Restore {
            place,
            from,
            store,
            replace,
        } => {
            // An unknown format does not matter here: restore refuses the directory or moves it
            // aside.
            let backend = store
                .or_else(|| present_backend(&place.state).ok().flatten())
                .unwrap_or_default();
            let replace = if replace {
                ExistingStatePolicy::MoveAside
            } else {
                ExistingStatePolicy::No
            };
            let filled = backup::restore(&place.state, &from, backend, replace).map_err(failure)?;
            print(context, &filled, &filled.dir, || screens::filled(&filled));
            Ok(CommandExitCode::Ok)
        }
    }
}

fn print<T: Serialize>(
    context: &CommandContext,
    item: &T,
    name: &std::path::Path,
    people: impl FnOnce() -> String,
) {
    let text = json::MachineOutput::one(item)
        .text(&context.output, |_| name.display().to_string())
        .unwrap_or_else(people);
    context.term.print(&text);
}

fn failure(error: StoreError) -> CommandFailure {
    let exit = match &error {
        StoreError::Locked { .. }
        | StoreError::NotEmpty { .. }
        | StoreError::NotMigrated { .. }
        | StoreError::OtherCluster { .. }
        | StoreError::OtherBackend { .. } => CommandExitCode::Conflict,
        StoreError::Nothing { .. } => CommandExitCode::NotFound,
        StoreError::Directory { .. }
        | StoreError::Full { .. }
        | StoreError::Failed { .. }
        | StoreError::Corrupt { .. }
        | StoreError::TooNew { .. }
        | StoreError::File { .. }
        | StoreError::Database { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Encode { .. } => CommandExitCode::Failed,
    };
    let failure = CommandFailure::new(exit, error.to_string());
    if matches!(error, StoreError::Locked { .. }) {
        return failure
            .help("copy a snapshot-….jsonl of the running daemon and restore it elsewhere");
    }
    failure
}
