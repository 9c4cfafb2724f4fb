//! The log files of a target: a job, a task, an attempt, a container, or the job's master.

use headroom_client::Client;
use headroom_types::{ContainerId, TaskAttemptId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use crate::args::LogsArgs;
use crate::context::CommandContext;
use crate::exit::{CommandFailure, CommandResult};
use crate::render::logs as text;
use crate::target::{self, TargetPart};

/// Largest part of a log that one call fetches. Bytes.
pub(super) const WINDOW: u64 = 1 << 20;

/// One log file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogSource {
    /// Prefix of each line; empty if it is the only log.
    pub(super) prefix: String,
    pub(super) container: ContainerId,
    pub(super) file: String,
    /// Text that begins and ends the wanted lines, if several tasks share the file.
    pub(super) marker: Option<String>,
}

/// Prints lines of a log: as they are, or with their prefix.
pub(super) fn print(context: &CommandContext, source: &LogSource, lines: &[u8], stderr: bool) {
    if source.prefix.is_empty() {
        context.term.print_bytes(lines);
    } else {
        context.term.print(&text::prefixed(
            &source.prefix,
            &String::from_utf8_lossy(lines),
            stderr,
            context.term.paint,
        ));
    }
}

/// Whether the target is complete, so that no more output can follow.
pub(super) fn ended(app: &AppView, part: &TargetPart) -> bool {
    let row = part.task().and_then(|id| target::task(app, id).ok());
    let over = |r: &TaskRow| {
        use headroom_wire::v1::job::TaskState::{Blocked, Done, Failed, Pending, Running};
        match r.state {
            Done | Failed => true,
            Blocked | Pending | Running => false,
        }
    };
    let done = match part {
        TargetPart::Attempt(id) => row
            .and_then(|r| r.attempts.iter().find(|a| a.attempt == *id))
            .is_some_and(|a| a.ended.is_some()),
        TargetPart::Task(_) => row.is_some_and(over),
        TargetPart::Several(several) => several.of(app).is_ok_and(|rows| rows.iter().all(over)),
        TargetPart::Whole | TargetPart::Container(_) => false,
    };
    done || app.state.is_final()
}

/// The log files of a target.
pub(super) async fn sources(
    client: &Client,
    app: &AppView,
    part: &TargetPart,
    args: &LogsArgs,
) -> CommandResult<Vec<LogSource>> {
    let own = if args.stderr { "stderr" } else { "stdout" };
    let whole = |container: ContainerId| LogSource {
        prefix: String::new(),
        container,
        file: own.to_owned(),
        marker: None,
    };
    if args.master {
        return Ok(vec![whole(newest_master(client, app).await?)]);
    }
    match part {
        TargetPart::Container(id) => Ok(vec![whole(id.clone())]),
        TargetPart::Attempt(id) => {
            let attempt = Some(target::attempt(app, id)?.1).filter(|a| may_have_lines(a, args));
            Ok(attempt
                .map(|a| of_attempt(a, args, ""))
                .into_iter()
                .collect())
        }
        TargetPart::Task(id) => {
            let row = target::task(app, id)?;
            Ok(row
                .attempts
                .last()
                .filter(|a| may_have_lines(a, args))
                .map(|a| of_attempt(a, args, &prefix(args, &a.attempt)))
                .into_iter()
                .collect())
        }
        TargetPart::Whole | TargetPart::Several(_) => {
            let rows: &[TaskRow] = app.job.as_ref().map_or(&[], |j| &j.tasks);
            let wanted = |row: &&TaskRow| match part {
                TargetPart::Several(several) => several.has(&row.task, rows),
                TargetPart::Whole
                | TargetPart::Task(_)
                | TargetPart::Attempt(_)
                | TargetPart::Container(_) => true,
            };
            let last = rows.iter().filter(wanted).filter_map(|r| r.attempts.last());
            let last = last.filter(|a| may_have_lines(a, args));
            let prefix = |a: &AttemptRow| {
                if args.no_prefix {
                    String::new()
                } else {
                    a.attempt.to_string()
                }
            };
            let mut sources: Vec<LogSource> = Vec::new();
            for attempt in last {
                let source = match part {
                    // The whole log of a container once, instead of a part for each of its tasks.
                    TargetPart::Whole if attempt.log_marker.is_some() => {
                        let own = prefix(attempt);
                        let name = if own.is_empty() {
                            own
                        } else {
                            attempt.container.to_string()
                        };
                        of_container(attempt, &name)
                    }
                    TargetPart::Whole
                    | TargetPart::Several(_)
                    | TargetPart::Task(_)
                    | TargetPart::Attempt(_)
                    | TargetPart::Container(_) => of_attempt(attempt, args, &prefix(attempt)),
                };
                if source.marker.is_some() || !sources.contains(&source) {
                    sources.push(source);
                }
            }
            Ok(sources)
        }
    }
}

/// False for an attempt whose logs a follower does not need to read: they are empty and stay so.
fn may_have_lines(attempt: &AttemptRow, args: &LogsArgs) -> bool {
    !(args.follow && attempt.silent)
}

/// The newest container with the master of an application.
async fn newest_master(client: &Client, app: &AppView) -> CommandResult<ContainerId> {
    let all = client.containers(Some(&app.id)).await?;
    let masters = all.into_iter().filter(|c| c.request.is_none());
    match masters.map(|c| c.id).max() {
        Some(id) => Ok(id),
        None if app.managed => Err(CommandFailure::not_found(format!(
            "the master of {} has not been launched yet",
            app.id
        ))
        .help(format!("rmctl why {}", app.id))),
        None => Err(CommandFailure::not_found(format!(
            "the master of {} is unmanaged: its user has its log",
            app.id
        ))),
    }
}

/// A followed task may change its attempt, so each line names the attempt.
fn prefix(args: &LogsArgs, attempt: &TaskAttemptId) -> String {
    if args.follow && !args.no_prefix {
        attempt.to_string()
    } else {
        String::new()
    }
}

/// The log of an attempt: its own file, or a part of standard error of its container. A followed
/// log is not cut into parts.
fn of_attempt(a: &AttemptRow, args: &LogsArgs, prefix: &str) -> LogSource {
    let shared = of_container(a, prefix);
    match &a.log_marker {
        Some(marker) if args.follow || marker.is_empty() => shared,
        Some(marker) => LogSource {
            marker: Some(marker.clone()),
            ..shared
        },
        None => LogSource {
            file: format!(
                "{}.{}",
                a.attempt.file_name(),
                if args.stderr { "err" } else { "out" }
            ),
            ..shared
        },
    }
}

/// Standard error of the container of an attempt, which several tasks share.
fn of_container(a: &AttemptRow, prefix: &str) -> LogSource {
    LogSource {
        prefix: prefix.to_owned(),
        container: a.container.clone(),
        file: "stderr".to_owned(),
        marker: None,
    }
}
