//! The log files of a target: a job, a task, an attempt, a container, or the job's master.

use headroom_client::Client;
use headroom_types::{ContainerId, TaskAttemptId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use crate::args::Logs;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::logs as text;
use crate::target::{self, Part};

/// Largest part of a log that one call fetches. Bytes.
pub(super) const WINDOW: u64 = 1 << 20;

/// One log file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogSource {
    /// Prefix of each line; empty if it is the only log.
    pub(super) prefix: String,
    pub(super) container: ContainerId,
    pub(super) file: String,
}

/// Prints text of a log, with its prefix.
pub(super) fn print(context: &Context, source: &LogSource, text: &str, stderr: bool) {
    if source.prefix.is_empty() {
        context.term.print(text);
    } else {
        context.term.print(&text::prefixed(
            &source.prefix,
            text,
            stderr,
            context.term.paint,
        ));
    }
}

/// Whether the target is complete, so that no more output can follow.
pub(super) fn ended(app: &AppView, part: &Part) -> bool {
    let row = part.task().and_then(|id| target::task(app, id).ok());
    let over = |r: &TaskRow| {
        use headroom_wire::v1::job::TaskState::{Blocked, Done, Failed, Pending, Running};
        match r.state {
            Done | Failed => true,
            Blocked | Pending | Running => false,
        }
    };
    let done = match part {
        Part::Attempt(id) => row
            .and_then(|r| r.attempts.iter().find(|a| a.attempt == *id))
            .is_some_and(|a| a.ended.is_some()),
        Part::Task(_) => row.is_some_and(over),
        Part::Several(several) => several.of(app).is_ok_and(|rows| rows.iter().all(over)),
        Part::Whole | Part::Container(_) => false,
    };
    done || app.state.is_final()
}

/// The log files of a target.
pub(super) async fn sources(
    client: &Client,
    app: &AppView,
    part: &Part,
    args: &Logs,
) -> Result<Vec<LogSource>, Failure> {
    let own = if args.stderr { "stderr" } else { "stdout" };
    let whole = |container: ContainerId| LogSource {
        prefix: String::new(),
        container,
        file: own.to_owned(),
    };
    if args.master {
        let all = client.containers(Some(&app.id)).await?;
        let mut masters: Vec<ContainerId> = all
            .into_iter()
            .filter(|c| c.request.is_none())
            .map(|c| c.id)
            .collect();
        masters.sort();
        return match masters.pop() {
            Some(id) => Ok(vec![whole(id)]),
            None if app.managed => Err(Failure::new(
                Exit::NotFound,
                format!("the master of {} has not been launched yet", app.id),
            )
            .help(format!("rmctl why {}", app.id))),
            None => Err(Failure::new(
                Exit::NotFound,
                format!(
                    "the master of {} is unmanaged: its user has its log",
                    app.id
                ),
            )),
        };
    }
    match part {
        Part::Container(id) => Ok(vec![whole(id.clone())]),
        Part::Attempt(id) => Ok(vec![of_attempt(
            target::attempt(app, id)?.1,
            args.stderr,
            "",
        )]),
        Part::Task(id) => {
            let row = target::task(app, id)?;
            Ok(row
                .attempts
                .last()
                .map(|a| of_attempt(a, args.stderr, &prefix(args, &a.attempt)))
                .into_iter()
                .collect())
        }
        Part::Whole | Part::Several(_) => {
            let rows: &[TaskRow] = app.job.as_ref().map_or(&[], |j| &j.tasks);
            let wanted = |row: &&TaskRow| match part {
                Part::Several(several) => several.has(&row.task, rows),
                Part::Whole | Part::Task(_) | Part::Attempt(_) | Part::Container(_) => true,
            };
            let last = rows.iter().filter(wanted).filter_map(|r| r.attempts.last());
            let prefix = |a: &AttemptRow| {
                if args.no_prefix {
                    String::new()
                } else {
                    a.attempt.to_string()
                }
            };
            Ok(last
                .map(|a| of_attempt(a, args.stderr, &prefix(a)))
                .collect())
        }
    }
}

/// A followed task may change its attempt, so each line names the attempt.
fn prefix(args: &Logs, attempt: &TaskAttemptId) -> String {
    if args.follow && !args.no_prefix {
        attempt.to_string()
    } else {
        String::new()
    }
}

fn of_attempt(a: &AttemptRow, stderr: bool, prefix: &str) -> LogSource {
    let end = if stderr { "err" } else { "out" };
    LogSource {
        prefix: prefix.to_owned(),
        container: a.container.clone(),
        file: format!("{}.{end}", a.attempt.file_name()),
    }
}
