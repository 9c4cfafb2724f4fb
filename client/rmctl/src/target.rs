//! Targets of commands: `wordcount.7`, `wordcount.7/map/7`, `wordcount.7/map/7@2`, a container, a
//! unique prefix, `last`.
//!
//! Pure: parses a text and finds it in a list.

use headroom_types::{AppId, ContainerId, TaskAttemptId, TaskId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use crate::exit::{CommandFailure, CommandResult};
use crate::selector::TaskSelector;

/// The target of a command, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandTarget {
    /// The job.
    pub(crate) job: TargetJob,
    /// The part of the job.
    pub(crate) part: TargetPart,
}

/// A job, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetJob {
    /// The newest job.
    Last,
    /// The job with this id prefix.
    Beginning(String),
}

impl TargetJob {
    /// The id, if it is complete.
    pub(crate) fn id(&self) -> Option<AppId> {
        match self {
            TargetJob::Last => None,
            TargetJob::Beginning(text) => text.parse().ok(),
        }
    }
}

/// A part of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetPart {
    /// The whole job.
    Whole,
    /// One task.
    Task(TaskId),
    /// One attempt of a task.
    Attempt(TaskAttemptId),
    /// One container.
    Container(ContainerId),
    /// Several tasks of one stage. [`parse`] never returns it, because not every verb accepts it.
    Several(TaskSelector),
}

impl TargetPart {
    /// The task, if the part is a task or an attempt.
    pub(crate) fn task(&self) -> Option<&TaskId> {
        match self {
            TargetPart::Task(task) => Some(task),
            TargetPart::Attempt(attempt) => Some(&attempt.task),
            TargetPart::Whole | TargetPart::Container(_) | TargetPart::Several(_) => None,
        }
    }
}

/// Parses a target.
pub(crate) fn parse(text: &str) -> CommandResult<CommandTarget> {
    if let Ok(container) = text.parse::<ContainerId>() {
        return Ok(CommandTarget {
            job: TargetJob::Beginning(container.app.to_string()),
            part: TargetPart::Container(container),
        });
    }
    let target = match text.split('/').collect::<Vec<_>>().as_slice() {
        [job] => Some((*job, TargetPart::Whole)),
        [stage, index] => part(stage, index).map(|p| ("last", p)),
        [job, stage, index] => part(stage, index).map(|p| (*job, p)),
        _ => None,
    };
    match target {
        Some((job, part)) if !job.is_empty() => {
            let job = if job == "last" {
                TargetJob::Last
            } else {
                TargetJob::Beginning(job.to_owned())
            };
            Ok(CommandTarget { job, part })
        }
        Some(_) | None => Err(CommandFailure::usage(format!(
            "{text:?} names no job, task or container"
        ))
        .help("write for example wordcount.7, wordcount.7/map/7, wordcount.7/map/7@2 or last")),
    }
}

fn part(stage: &str, index: &str) -> Option<TargetPart> {
    let text = format!("{stage}/{index}");
    if let Ok(attempt) = text.parse() {
        return Some(TargetPart::Attempt(attempt));
    }
    text.parse().ok().map(TargetPart::Task)
}

/// Finds the application: the exact id first, then the only id with that prefix.
pub(crate) fn resolve(target: &CommandTarget, apps: &[AppView]) -> CommandResult<AppId> {
    let beginning = match &target.job {
        TargetJob::Last => {
            let none =
                || CommandFailure::not_found("there is no job yet").help("rmctl submit FILE");
            return apps.iter().map(|a| &a.id).max().cloned().ok_or_else(none);
        }
        TargetJob::Beginning(text) => text,
    };
    if let Some(app) = apps.iter().find(|a| a.id.to_string() == *beginning) {
        return Ok(app.id.clone());
    }
    let mut found: Vec<&AppId> = apps
        .iter()
        .map(|a| &a.id)
        .filter(|id| id.to_string().starts_with(beginning))
        .collect();
    found.sort();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let ids: Vec<String> = apps.iter().map(|a| a.id.to_string()).collect();
            let failure = CommandFailure::not_found(format!("there is no job {beginning}"));
            Err(failure
                .near(beginning, ids.iter().map(String::as_str))
                .help("rmctl ps lists all jobs"))
        }
        many => {
            let names: Vec<String> = many.iter().rev().take(5).map(ToString::to_string).collect();
            let more = if many.len() > 5 { " …" } else { "" };
            Err(CommandFailure::usage(format!(
                "{} jobs begin with {beginning}: {}{more}",
                many.len(),
                names.join(", ")
            ))
            .help("write more of the id, or `last` for the newest"))
        }
    }
}

/// The row of a task.
pub(crate) fn task<'a>(app: &'a AppView, id: &TaskId) -> CommandResult<&'a TaskRow> {
    let rows = app.job.as_ref().map_or(&[][..], |job| &job.tasks);
    rows.iter().find(|t| t.task == *id).ok_or_else(|| {
        let failure = CommandFailure::not_found(format!("{} has no task {id}", app.id));
        let folded = app.job.iter().flat_map(|job| &job.totals.folded).any(|folded| folded.stage == id.stage);
        if folded {
            failure.help("beyond the first 10,000 tasks of a job, tasks that succeeded at their first attempt are only counted")
        } else if rows.is_empty() && app.job.as_ref().is_some_and(|job| job.totals.tasks > 0) {
            failure.help("only the totals of this job are kept: its rows are too large")
        } else if rows.is_empty() {
            failure.help("its master has not reported any task yet")
        } else {
            failure.help(format!("rmctl ps {}", app.id))
        }
    })
}

/// The row of an attempt.
pub(crate) fn attempt<'a>(
    app: &'a AppView,
    id: &TaskAttemptId,
) -> CommandResult<(&'a TaskRow, &'a AttemptRow)> {
    let row = task(app, &id.task)?;
    let found = row.attempts.iter().find(|a| a.attempt == *id);
    let none = || {
        let failure = CommandFailure::not_found(format!("{} has no attempt {id}", app.id));
        match row.attempts.last() {
            Some(last) => failure.help(format!("its last attempt is {}/{}", app.id, last.attempt)),
            None => failure.help("the task has not been started yet"),
        }
    };
    found.map(|a| (row, a)).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandExitCode;
    use crate::render::fixture;

    fn apps(ids: &[&str]) -> Vec<AppView> {
        ids.iter()
            .map(|id| AppView {
                id: id.parse().expect("id"),
                ..fixture::app()
            })
            .collect()
    }
    fn find(text: &str, ids: &[&str]) -> CommandResult<String> {
        resolve(&parse(text)?, &apps(ids)).map(|id| id.to_string())
    }

    #[test]
    fn every_form_of_a_target_is_parsed() {
        let part = |text: &str| parse(text).expect(text).part;
        assert_eq!(part("wordcount.7"), TargetPart::Whole);
        assert_eq!(
            part("wordcount.7/map/7"),
            TargetPart::Task("map/7".parse().expect("id"))
        );
        assert_eq!(
            part("wordcount.7/map/7@2"),
            TargetPart::Attempt("map/7@2".parse().expect("id"))
        );
        assert_eq!(
            part("wordcount.7.e1.c3"),
            TargetPart::Container("wordcount.7.e1.c3".parse().expect("id"))
        );
        let short = parse("map/7@2").expect("short");
        assert_eq!(
            (short.job, short.part),
            (
                TargetJob::Last,
                TargetPart::Attempt("map/7@2".parse().expect("id"))
            )
        );
        assert_eq!(parse("last/map/0").expect("last").job, TargetJob::Last);
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for text in ["", "/", "a/b/c/d", "a/map/x", "a//1", "map/01"] {
            assert_eq!(
                parse(text).expect_err(text).exit(),
                CommandExitCode::Usage,
                "{text:?}"
            );
        }
    }

    #[test]
    fn an_exact_id_wins_over_longer_ids_with_its_prefix() {
        assert_eq!(find("sort.1", &["sort.1", "sort.12"]), Ok("sort.1".into()));
        assert_eq!(
            find("wo", &["sort.1", "wordcount.2"]),
            Ok("wordcount.2".into())
        );
    }

    #[test]
    fn last_is_the_newest_by_number_not_by_name() {
        assert_eq!(
            find("last", &["zeta.2", "alpha.10", "beta.9"]),
            Ok("alpha.10".into())
        );
        assert_eq!(
            find("last", &[]).expect_err("none").exit(),
            CommandExitCode::NotFound
        );
    }

    #[test]
    fn missing_and_ambiguous_jobs_are_errors() {
        assert_eq!(
            find("x", &["sort.1"]).expect_err("none").exit(),
            CommandExitCode::NotFound
        );
        let many = find("sort", &["sort.1", "sort.2"]).expect_err("two");
        assert_eq!(many.exit(), CommandExitCode::Usage);
        assert!(many.sentence().contains("sort.2, sort.1"), "{many}");
    }

    #[test]
    fn a_missing_attempt_names_the_last_attempt() {
        let app = fixture::app();
        let missing = attempt(&app, &"map/7@9".parse().expect("id")).expect_err("none");
        assert_eq!(missing.exit(), CommandExitCode::NotFound);
        assert!(
            missing.to_string().contains("wordcount.7/map/7@3"),
            "{missing}"
        );
    }
}
