//! `rmctl operator`: the daemon, its metrics, a support bundle; check, backup and restore of a
//! state directory that no resource manager uses.

use std::path::{Path, PathBuf};

use headroom_config::{ResourceManagerConfig, load_resourcemanager, render};
use headroom_rm_store::StoreError;
use headroom_rm_store::backup::{self, ExistingStatePolicy, RestoreSummary};
use headroom_rm_store::check;
use headroom_rm_store::engine::present_backend;
use headroom_rm_store::etcd_state::EtcdState;
use serde::Serialize;

use super::{daemon, debug, leader, metrics};
use crate::args::{OperatorSubcommand, StatePlaceArgs, StateSubcommand};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{json, state as screens};

/// Runs an `operator` verb.
pub(crate) async fn run(context: &CommandContext, verb: OperatorSubcommand) -> CommandResult {
    match verb {
        OperatorSubcommand::Status => daemon::status(context).await,
        OperatorSubcommand::Leader => leader::run(context).await,
        OperatorSubcommand::Reload => daemon::reload(context).await,
        OperatorSubcommand::Loglevel { level } => daemon::loglevel(context, level).await,
        OperatorSubcommand::Metrics(args) => metrics::run(context, args).await,
        OperatorSubcommand::Debug(args) => debug::run(context, args).await,
        OperatorSubcommand::State(what) => state(context, what).await,
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
        StateSubcommand::Check(place) => on_check(context, place),
        StateSubcommand::Backup { place, to } => {
            let kept = match StatePlace::of(place)? {
                StatePlace::Directory(dir) => backup::backup(&dir, &to),
                StatePlace::Etcd(state, _) => state.backup(&to),
            };
            let kept = kept.map_err(failure)?;
            print(context, &kept, &kept.file, || screens::kept(&kept));
            Ok(CommandExitCode::Ok)
        }
        StateSubcommand::Restore {
            place,
            from,
            store,
            replace,
        } => {
            let replace = if replace {
                ExistingStatePolicy::MoveAside
            } else {
                ExistingStatePolicy::No
            };
            let filled = match StatePlace::of(place)? {
                StatePlace::Directory(dir) => {
                    // An unknown format does not matter here: restore refuses the directory or
                    // moves it aside.
                    let present = || present_backend(&dir).ok().flatten();
                    let backend = store.or_else(present).unwrap_or_default();
                    backup::restore(&dir, &from, backend, replace)
                }
                StatePlace::Etcd(state, dir) => state.restore(&dir, &from, replace),
            };
            filled_in(context, filled)
        }
        StateSubcommand::Migrate {
            config,
            state,
            store,
        } => {
            let config = configuration(&config)?;
            let (dir, there) = (state.unwrap_or(config.state.clone()), etcd(&config)?);
            let moved = match store {
                Some(backend) => there.move_to(&dir, backend),
                None => there.take_from(&dir),
            };
            filled_in(context, moved)
        }
    }
}

fn on_check(context: &CommandContext, place: StatePlaceArgs) -> CommandResult {
    let report = match StatePlace::of(place)? {
        StatePlace::Directory(dir) => check::check(&dir),
        StatePlace::Etcd(state, dir) => state.check(&dir),
    };
    let report = report.map_err(failure)?;
    print(context, &report, &report.dir, || {
        screens::report(&report, context.term.paint)
    });
    Ok(if report.problems.is_empty() {
        CommandExitCode::Ok
    } else {
        CommandExitCode::Failed
    })
}

fn filled_in(
    context: &CommandContext,
    filled: Result<RestoreSummary, StoreError>,
) -> CommandResult {
    let filled = filled.map_err(failure)?;
    print(context, &filled, &filled.dir, || screens::filled(&filled));
    Ok(CommandExitCode::Ok)
}

/// Where a state is.
enum StatePlace {
    /// In a directory of this host.
    Directory(PathBuf),
    /// In etcd; the directory has what belongs to this host.
    Etcd(EtcdState, PathBuf),
}

impl StatePlace {
    fn of(args: StatePlaceArgs) -> CommandResult<Self> {
        let Some(file) = args.config else {
            // The arguments require one of the two.
            return Ok(StatePlace::Directory(args.state.unwrap_or_default()));
        };
        let config = configuration(&file)?;
        if config.etcd.is_used() {
            Ok(StatePlace::Etcd(etcd(&config)?, config.state))
        } else {
            Ok(StatePlace::Directory(config.state))
        }
    }
}

fn configuration(file: &Path) -> CommandResult<ResourceManagerConfig> {
    load_resourcemanager(file)
        .map_err(|problems| CommandFailure::new(CommandExitCode::Usage, render(&problems)))
}

fn etcd(config: &ResourceManagerConfig) -> CommandResult<EtcdState> {
    if !config.etcd.is_used() {
        let what = "the configuration has no etcd.endpoints";
        return Err(CommandFailure::new(CommandExitCode::Usage, what)
            .help("add a table [etcd] with the URLs of its members"));
    }
    EtcdState::new(&config.etcd).map_err(failure)
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
        | StoreError::Led { .. }
        | StoreError::Closed { .. }
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
