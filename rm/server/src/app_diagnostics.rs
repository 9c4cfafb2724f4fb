//! The sentence about an application for users: the reason of its end, or the reason why its master
//! waits. If the last master was not started, the sentence begins with the cause, which the report
//! of its container contains. Pure.

use headroom_rm_core::Cluster;
use headroom_rm_core::app::ClusterApplication;
use headroom_rm_core::container::ContainerState;
use headroom_rm_core::runs::AttemptRecord;
use headroom_types::{ContainerId, ExitReason, Tick};

/// Begins the cause of a node agent whose shim did not start the program.
const OF_THE_SHIM: &str = "the program could not be started: ";
/// Begins the sentence of a master that waits for its next attempt.
const NEXT_ATTEMPT: &str = "its master could not be started; ";

/// The sentence about an application. Empty while its master runs.
pub(crate) fn sentence(cluster: &Cluster, app: &ClusterApplication, now: Tick) -> String {
    if app.diagnostics.is_empty() {
        return match wait(cluster, app, now) {
            Some(MasterWait::NextAttempt(sentence)) => sentence,
            Some(MasterWait::Room(why)) => format!("its master waits: {why}"),
            None => String::new(),
        };
    }
    let last = app.runs.iter().last();
    let ended = last.and_then(|run| Some((run, not_started(cluster, run)?)));
    let Some((run, not_started)) = ended else {
        return app.diagnostics.clone();
    };
    // The core names the attempt and its exit reason, which the cause replaces.
    let named = format!(
        "; attempt {}: {}",
        run.number,
        ExitReason::LaunchFailed.sentence()
    );
    match app.diagnostics.strip_suffix(&named) {
        Some(count) => format!("{not_started}; {count}"),
        // Killed meanwhile, for example.
        None => app.diagnostics.clone(),
    }
}

/// The reason why a managed master waits for its container. `None` when it does not wait.
pub(crate) fn wait_sentence(
    cluster: &Cluster,
    app: &ClusterApplication,
    now: Tick,
) -> Option<String> {
    wait(cluster, app, now).map(|wait| match wait {
        MasterWait::NextAttempt(sentence) | MasterWait::Room(sentence) => sentence,
    })
}

/// The reason why a master waits, as a sentence.
enum MasterWait {
    /// The last one was not started, which the sentence begins with.
    NextAttempt(String),
    /// Any other reason.
    Room(String),
}

fn wait(cluster: &Cluster, app: &ClusterApplication, now: Tick) -> Option<MasterWait> {
    let sentence = cluster.master_sentence(app, now)?;
    let before = app.runs.iter().rev().find(|run| run.number < app.attempt);
    let Some(not_started) = before.and_then(|run| not_started(cluster, run)) else {
        return Some(MasterWait::Room(sentence));
    };
    Some(match sentence.strip_prefix(NEXT_ATTEMPT) {
        Some(next) => MasterWait::NextAttempt(format!("{not_started}; {next}")),
        None => MasterWait::Room(format!("{sentence}; the last one was {not_started}")),
    })
}

/// The sentence about a failed attempt of a master.
pub(crate) fn of_attempt(cluster: &Cluster, run: &AttemptRecord) -> String {
    not_started(cluster, run).unwrap_or_else(|| run.why.clone())
}

/// The cause of the end of an attempt whose master was not started, if it is known.
fn not_started(cluster: &Cluster, run: &AttemptRecord) -> Option<String> {
    if run.reason != Some(ExitReason::LaunchFailed) {
        return None;
    }
    let cause = cause(cluster, run.container.as_ref()?)?;
    let cause = cause.strip_prefix(OF_THE_SHIM).unwrap_or(cause);
    let node = run.node.as_ref()?;
    Some(format!("not started on {node}: {cause}"))
}

/// The first cause in the report of an ended container.
fn cause<'c>(cluster: &'c Cluster, container: &ContainerId) -> Option<&'c str> {
    let why = match cluster.container(container).map(|c| &c.state) {
        Some(ContainerState::Exited { report } | ContainerState::Done { report }) => {
            report.diagnosis.first()?.cause.as_str()
        }
        Some(
            ContainerState::Allocated
            | ContainerState::Launching
            | ContainerState::Running
            | ContainerState::Stopping { .. },
        ) => return None,
        None => cluster.history().get(container)?.why.as_str(),
    };
    (!why.is_empty()).then_some(why)
}
