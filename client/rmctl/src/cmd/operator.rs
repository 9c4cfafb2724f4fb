//! `rmctl operator`: the daemon, its metrics, a support bundle; check, backup and restore of a
//! state directory that no resource manager uses.

use headroom_rm_store::StoreError;
use headroom_rm_store::backup::{self, Replace};
use headroom_rm_store::check;
use headroom_rm_store::engine::present_backend;
use serde::Serialize;

use super::{daemon, debug, metrics};
use crate::args::{OperatorVerb, StateVerb};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::{json, state as screens};

/// Runs an `operator` verb.
pub(crate) async fn run(context: &Context, verb: OperatorVerb) -> Result<Exit, Failure> {
    match verb {
        OperatorVerb::Status => daemon::status(context).await,
        OperatorVerb::Reload => daemon::reload(context).await,
        OperatorVerb::Loglevel { level } => daemon::loglevel(context, level).await,
        OperatorVerb::Metrics(args) => metrics::run(context, args).await,
        OperatorVerb::Debug(args) => debug::run(context, args).await,
        OperatorVerb::State { what } => state(context, what).await,
    }
}

/// Runs on a blocking thread: the verbs read and write files only.
async fn state(context: &Context, what: StateVerb) -> Result<Exit, Failure> {
    let context = context.clone();
    let done = tokio::task::spawn_blocking(move || on_state(&context, what)).await;
    done.map_err(|e| {
        Failure::new(
            Exit::Failed,
            format!("the operation on the state failed: {e}"),
        )
    })?
}

fn on_state(context: &Context, what: StateVerb) -> Result<Exit, Failure> {
    match what {
        StateVerb::Check(place) => {
            let report = check::check(&place.state).map_err(failure)?;
            print(context, &report, &report.dir, || {
                screens::report(&report, context.term.paint)
            });
            Ok(if report.problems.is_empty() {
                Exit::Ok
            } else {
                Exit::Failed
            })
        }
        StateVerb::Backup { place, to } => {
            let kept = backup::backup(&place.state, &to).map_err(failure)?;
            print(context, &kept, &kept.file, || screens::kept(&kept));
            Ok(Exit::Ok)
        }
        StateVerb::Restore {
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
                Replace::MoveAside
            } else {
                Replace::No
            };
            let filled = backup::restore(&place.state, &from, backend, replace).map_err(failure)?;
            print(context, &filled, &filled.dir, || screens::filled(&filled));
            Ok(Exit::Ok)
        }
    }
}

fn print<T: Serialize>(
    context: &Context,
    item: &T,
    name: &std::path::Path,
    people: impl FnOnce() -> String,
) {
    let found = json::MachineOutput {
        items: std::slice::from_ref(item),
        list: false,
    };
    let text = found
        .text(&context.output, |_| name.display().to_string())
        .unwrap_or_else(people);
    context.term.print(&text);
}

fn failure(error: StoreError) -> Failure {
    let exit = match &error {
        StoreError::Locked { .. }
        | StoreError::NotEmpty { .. }
        | StoreError::OtherBackend { .. } => Exit::Conflict,
        StoreError::Nothing { .. } => Exit::NotFound,
        StoreError::Directory { .. }
        | StoreError::Full { .. }
        | StoreError::Failed { .. }
        | StoreError::Corrupt { .. }
        | StoreError::TooNew { .. }
        | StoreError::File { .. }
        | StoreError::Database { .. }
        | StoreError::TooLarge { .. }
        | StoreError::Encode { .. } => Exit::Failed,
    };
    let failure = Failure::new(exit, error.to_string());
    if matches!(error, StoreError::Locked { .. }) {
        return failure
            .help("copy a snapshot-….jsonl of the running daemon and restore it elsewhere");
    }
    failure
}
