//! Selectors of several tasks of one stage: `sort.3/map/1-3,7`, `last/map/all`, `map/last`. Pure:
//! parses a text and selects rows of a job.

use headroom_types::{Name, TaskId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::TaskRow;

use crate::exit::{CommandFailure, CommandResult};

/// Several tasks of one stage, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskSelector {
    /// The job, in the syntax of a target.
    pub(crate) job: String,
    stage: Name,
    which: TaskIndexSelection,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TaskIndexSelection {
    All,
    /// The task with the largest index.
    Last,
    /// Ranges of indexes, including both ends.
    Ranges(Vec<(u32, u32)>),
}

/// Parses a selector. `None` if the text names a single task or another object.
pub(crate) fn parse(text: &str) -> Option<TaskSelector> {
    let (job, stage, word) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [stage, word] => ("last", *stage, *word),
        [job, stage, word] if !job.is_empty() => (*job, *stage, *word),
        _ => return None,
    };
    let which = match word {
        "all" => TaskIndexSelection::All,
        "last" => TaskIndexSelection::Last,
        // A plain index, with or without attempt, is a task and not a selector.
        list if list.contains(['-', ',']) => {
            TaskIndexSelection::Ranges(list.split(',').map(range).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some(TaskSelector {
        job: job.to_owned(),
        stage: stage.parse().ok()?,
        which,
    })
}

fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

impl TaskSelector {
    /// Whether the selector includes a task of `rows`.
    pub(crate) fn has(&self, task: &TaskId, rows: &[TaskRow]) -> bool {
        let last = || {
            rows.iter()
                .filter(|row| row.task.stage == self.stage)
                .map(|row| row.task.index)
                .max()
        };
        task.stage == self.stage
            && match &self.which {
                TaskIndexSelection::All => true,
                TaskIndexSelection::Last => Some(task.index) == last(),
                TaskIndexSelection::Ranges(ranges) => ranges
                    .iter()
                    .any(|(from, to)| (*from..=*to).contains(&task.index)),
            }
    }

    /// The selected rows in the order of their indexes; at least one.
    pub(crate) fn of(&self, app: &AppView) -> CommandResult<Vec<TaskRow>> {
        let rows = app.job.as_ref().map_or(&[][..], |job| &job.tasks);
        let mut found: Vec<TaskRow> = rows
            .iter()
            .filter(|row| self.has(&row.task, rows))
            .cloned()
            .collect();
        found.sort_by(|a, b| a.task.cmp(&b.task));
        if found.is_empty() {
            let stages = rows.iter().map(|row| row.task.stage.as_str());
            let failure = CommandFailure::not_found(format!(
                "{} has no such tasks of stage {}",
                app.id, self.stage
            ));
            let unknown = !rows.iter().any(|row| row.task.stage == self.stage);
            let failure = if unknown {
                failure.near(self.stage.as_str(), stages)
            } else {
                failure
            };
            return Err(failure.help(format!("rmctl ps {}", app.id)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandExitCode;
    use crate::render::fixture;

    #[test]
    fn a_single_task_and_nonsense_are_no_selectors() {
        for text in [
            "sort.3",
            "sort.3/map/7",
            "map/7@2",
            "map/7",
            "map/3-1",
            "map/1-x",
            "a/b/c/d",
            "/map/all",
            "map/-",
            "map/,",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("map/all").map(|s| s.job), Some("last".into()));
        assert_eq!(
            parse("sort.3/map/1-3,7").map(|s| s.which),
            Some(TaskIndexSelection::Ranges(vec![(1, 3), (7, 7)]))
        );
    }

    #[test]
    fn tasks_are_found_by_their_indexes() {
        let app = fixture::app();
        let found = |text: &str| -> CommandResult<Vec<u32>> {
            Ok(parse(text)
                .expect(text)
                .of(&app)?
                .iter()
                .map(|row| row.task.index)
                .collect())
        };
        assert_eq!(found("map/all"), Ok(vec![2, 4, 7, 9]));
        assert_eq!(found("last/map/last"), Ok(vec![9]));
        assert_eq!(found("map/0-4,9"), Ok(vec![2, 4, 9]));
        assert_eq!(
            found("map/90-99").expect_err("none").exit(),
            CommandExitCode::NotFound
        );
        assert!(
            found("mapp/all")
                .expect_err("no stage")
                .to_string()
                .contains("did you mean \"map\"?")
        );
    }
}
