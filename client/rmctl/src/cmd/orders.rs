//! `rmctl task kill`, `retry` and `set`: sends an order about one task and waits for its effect.

use std::time::Duration;

use headroom_client::{Client, ClientError};
use headroom_types::{AppId, Bytes, TaskId};
use headroom_wire::v1::apps::{PrioritizeTask, ResizeTaskRequest};
use headroom_wire::v1::job::{TaskRow, TaskState};

use crate::args::TaskOrderArgs;
use crate::context::{CommandContext, user};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::json::MachineOutput;
use crate::target;

/// Timeout of an order. Masters receive it with the next update of the resource manager, and
/// executors give a task some seconds to end.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(200);

/// An order about a task as the user typed it. The resource manager, which has the task's state,
/// selects the attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskCommand {
    /// End the task for good.
    Cancel,
    /// Start another attempt.
    Retry,
    /// Change the size.
    Resize {
        /// Heap and overhead together.
        memory: Bytes,
    },
    /// Change the priority within the job.
    Rank {
        /// The default is 0.
        priority: i32,
    },
}

/// Sends an order about one task and waits until it is carried out.
pub(crate) async fn run(
    context: &CommandContext,
    command: TaskCommand,
    ordered: TaskOrderArgs,
) -> CommandResult {
    let client = context.client()?;
    let (app, target) = context.app(&client, &ordered.task).await?;
    let Some(task) = target.part.task().cloned() else {
        let wrong = format!("{} is not a task", ordered.task);
        return Err(
            CommandFailure::usage(wrong).help(format!("write for example {}/map/7", app.id))
        );
    };
    let row = target::task(&app, &task)?;
    let would = format!("{}/{task} {}", app.id, would(row, command));
    if ordered.sure.dry_run {
        context.term.line(&would);
        return Ok(CommandExitCode::Ok);
    }
    match command {
        TaskCommand::Cancel | TaskCommand::Retry => context.confirm(ordered.sure, &would)?,
        TaskCommand::Resize { .. } | TaskCommand::Rank { .. } => {}
    }
    let reason = ordered
        .reason
        .or_else(|| user().map(|user| format!("by {user}")));
    let before = give(&client, &app.id, &task, command, reason).await?;
    if ordered.no_wait || context.curl {
        return Ok(CommandExitCode::Ok);
    }
    let after = watch(&client, &app.id, &before, command).await?;
    let text =
        MachineOutput::one(&after).text(&context.output, |row| format!("{}/{}", app.id, row.task));
    Ok(context.show(text, || people(&app.id, &after, command)))
}

async fn give(
    client: &Client,
    app: &AppId,
    task: &TaskId,
    command: TaskCommand,
    reason: Option<String>,
) -> Result<TaskRow, ClientError> {
    match command {
        TaskCommand::Cancel => client.kill_task(app, task, reason).await,
        TaskCommand::Retry => client.retry_task(app, task, reason).await,
        TaskCommand::Resize { memory } => {
            client
                .resize_task(app, task, &ResizeTaskRequest { memory, reason })
                .await
        }
        TaskCommand::Rank { priority } => {
            client
                .rank_task(app, task, &PrioritizeTask { priority, reason })
                .await
        }
    }
}

/// Polls until the order has taken effect. A restart of the resource manager can lose an order, so
/// the wait has a timeout.
async fn watch(
    client: &Client,
    app: &AppId,
    before: &TaskRow,
    command: TaskCommand,
) -> CommandResult<TaskRow> {
    let until = tokio::time::Instant::now() + ORDER_TIMEOUT;
    loop {
        let now = client.task(app, &before.task).await?;
        if is_so(before, &now, command) {
            return Ok(now);
        }
        if tokio::time::Instant::now() >= until {
            let seen = if now.note.is_empty() {
                String::new()
            } else {
                format!(": {}", now.note)
            };
            let text = format!(
                "{app}/{} has not changed after {} s{seen}",
                before.task,
                ORDER_TIMEOUT.as_secs()
            );
            return Err(CommandFailure::new(CommandExitCode::WaitTimeout, text)
                .help("repeat the command; a repetition has no further effect"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// True when the task row shows the effect of the order.
fn is_so(before: &TaskRow, now: &TaskRow, command: TaskCommand) -> bool {
    let over = matches!(now.state, TaskState::Done | TaskState::Failed);
    let ended = |row: &TaskRow| {
        row.attempts
            .iter()
            .filter(|attempt| attempt.ended.is_some())
            .count()
    };
    match command {
        TaskCommand::Cancel => over,
        TaskCommand::Retry => over || ended(now) > ended(before),
        TaskCommand::Resize { memory } => {
            over || now.profile != before.profile || now.profile.memory() == memory
        }
        TaskCommand::Rank { priority } => over || now.priority == priority,
    }
}

fn would(row: &TaskRow, command: TaskCommand) -> String {
    let size = row.profile.memory();
    match command {
        TaskCommand::Cancel => match row.state {
            TaskState::Running => format!(
                "would end with its attempt {} of {size}",
                row.attempts.len()
            ),
            TaskState::Blocked | TaskState::Pending => "would never run".to_owned(),
            TaskState::Done | TaskState::Failed => "has already ended".to_owned(),
        },
        TaskCommand::Retry => format!("would begin attempt {} at {size}", row.attempts.len() + 1),
        TaskCommand::Resize { memory } => format!("would get {memory} instead of {size}"),
        TaskCommand::Rank { priority } => {
            format!("would have priority {priority} instead of {}", row.priority)
        }
    }
}

fn people(app: &AppId, row: &TaskRow, command: TaskCommand) -> String {
    let task = &row.task;
    let done = match (command, row.state) {
        (_, TaskState::Done) => "had already finished".to_owned(),
        (TaskCommand::Cancel, TaskState::Failed) => "will not be tried again".to_owned(),
        (
            TaskCommand::Retry | TaskCommand::Resize { .. } | TaskCommand::Rank { .. },
            TaskState::Failed,
        ) => {
            format!("had already failed: {}", row.note)
        }
        (TaskCommand::Retry, TaskState::Blocked | TaskState::Pending | TaskState::Running) => {
            format!(
                "is tried again at {}, charged to no budget",
                row.profile.memory()
            )
        }
        (
            TaskCommand::Resize { memory },
            TaskState::Blocked | TaskState::Pending | TaskState::Running,
        ) => resized(row, memory),
        (
            TaskCommand::Rank { priority },
            TaskState::Blocked | TaskState::Pending | TaskState::Running,
        ) => {
            format!("has priority {priority}: it begins before tasks of its job with a lower one")
        }
        (TaskCommand::Cancel, TaskState::Blocked | TaskState::Pending | TaskState::Running) => {
            "is about to end".to_owned()
        }
    };
    format!("{app}/{task}  {done}\nnext: rmctl task show {app}/{task}\n")
}

fn resized(row: &TaskRow, asked: Bytes) -> String {
    let has = row.profile.memory();
    if has < asked {
        format!("will get {has}: no container here is larger")
    } else {
        format!("will get {has}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    fn row(state: TaskState) -> TaskRow {
        let mut row = fixture::retried();
        row.state = state;
        row
    }

    #[test]
    fn the_task_row_shows_the_effect_of_an_order() {
        let (runs, failed) = (row(TaskState::Running), row(TaskState::Failed));
        assert!(
            !is_so(&runs, &runs, TaskCommand::Cancel) && is_so(&runs, &failed, TaskCommand::Cancel)
        );
        let mut again = runs.clone();
        again
            .attempts
            .iter_mut()
            .for_each(|attempt| attempt.ended = None);
        assert_eq!(
            is_so(&again, &runs, TaskCommand::Retry),
            runs.attempts.iter().any(|a| a.ended.is_some())
        );
        let asked = TaskCommand::Resize {
            memory: runs.profile.memory().saturating_add(Bytes::from_mib(1)),
        };
        assert!(!is_so(&runs, &runs, asked));
    }

    #[test]
    fn the_result_of_an_order_is_printed() {
        let app: AppId = "wordcount.7".parse().expect("id");
        let waits = row(TaskState::Pending);
        let more = waits.profile.memory().saturating_add(Bytes::from_mib(1));
        assert!(
            people(&app, &waits, TaskCommand::Resize { memory: more })
                .contains("no container here is larger")
        );
        assert!(
            people(&app, &row(TaskState::Failed), TaskCommand::Cancel)
                .contains("will not be tried again")
        );
        assert!(would(&row(TaskState::Pending), TaskCommand::Cancel).contains("never run"));
    }
}
