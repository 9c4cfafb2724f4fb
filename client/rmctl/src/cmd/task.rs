//! `rmctl task`: the tasks of a job, one task, and the ladder of a task.

use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use super::orders::TaskCommand;
use super::{container_access, orders, ps};
use crate::args::{ListOptions, TaskSetArgs, TaskSubcommand, WatchedListOptions};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{json::MachineOutput, tasks};
use crate::selector;
use crate::target::{self, TargetPart};

/// Runs a `task` verb.
pub(crate) async fn run(context: &CommandContext, what: TaskSubcommand) -> CommandResult {
    match what {
        TaskSubcommand::List { job, rows } => list(context, &job, rows).await,
        TaskSubcommand::Show { task } => show(context, &task).await,
        TaskSubcommand::Ladder { task } => ladder(context, &task).await,
        TaskSubcommand::Attempts { task, rows } => attempts(context, &task, &rows).await,
        TaskSubcommand::Kill(ordered) => orders::run(context, TaskCommand::Cancel, ordered).await,
        TaskSubcommand::Retry(ordered) => orders::run(context, TaskCommand::Retry, ordered).await,
        TaskSubcommand::Exec(args) => container_access::exec_task(context, args).await,
        TaskSubcommand::Set(set) => set_both(context, set).await,
    }
}

/// Sets the priority first, because every state that allows a new size also allows a new priority.
async fn set_both(context: &CommandContext, set: TaskSetArgs) -> CommandResult {
    let TaskSetArgs {
        ordered,
        memory,
        priority,
    } = set;
    let ranked = match priority {
        Some(priority) => {
            orders::run(context, TaskCommand::Rank { priority }, ordered.clone()).await?
        }
        None => CommandExitCode::Ok,
    };
    match memory {
        Some(memory) => orders::run(context, TaskCommand::Resize { memory }, ordered).await,
        None => Ok(ranked),
    }
}

async fn list(context: &CommandContext, job: &str, rows: ListOptions) -> CommandResult {
    if context.format.is_screen() {
        return ps::run(
            context,
            Some(job),
            WatchedListOptions { rows, watch: false },
        )
        .await;
    }
    let context = &context.list(&rows);
    let (app, _) = context.app(&context.client()?, job).await?;
    let all = rows
        .wanted()
        .of(app.job.map(|j| j.tasks).unwrap_or_default(), now())?;
    let text =
        MachineOutput::list(&all).rows_named(&context.output, |t| format!("{}/{}", app.id, t.task));
    Ok(context.show(text, String::new))
}

/// The job and the row of the task that a text names.
async fn find(context: &CommandContext, text: &str) -> CommandResult<(AppView, TaskRow)> {
    let (app, target) = context.app(&context.client()?, text).await?;
    let Some(id) = target.part.task() else {
        let failure = CommandFailure::usage(format!("{text} is not a task"));
        return Err(failure.help(format!("write for example {}/map/7", app.id)));
    };
    let row = target::task(&app, id)?.clone();
    Ok((app, row))
}

/// The job and the rows of the tasks that a text selects.
async fn find_all(context: &CommandContext, text: &str) -> CommandResult<(AppView, Vec<TaskRow>)> {
    let Some(several) = selector::parse(text) else {
        let (app, row) = find(context, text).await?;
        return Ok((app, vec![row]));
    };
    let (app, _) = context.app(&context.client()?, &several.job).await?;
    let rows = several.of(&app)?;
    Ok((app, rows))
}

async fn show(context: &CommandContext, text: &str) -> CommandResult {
    let (app, rows) = find_all(context, text).await?;
    let machine = MachineOutput {
        items: &rows,
        list: rows.len() > 1,
    }
    .rows(&context.output);
    let one = |row| tasks::one(&app, row, now(), context.look());
    Ok(context.show(machine, || {
        rows.iter().map(one).collect::<Vec<_>>().join("\n")
    }))
}

async fn ladder(context: &CommandContext, text: &str) -> CommandResult {
    let (app, rows) = find_all(context, text).await?;
    let all: Vec<AttemptRow> = rows.iter().flat_map(|row| row.attempts.clone()).collect();
    let machine = MachineOutput::list(&all).rows(&context.output);
    let one = |row| tasks::ladder(&app, row, context.term.paint);
    Ok(context.show(machine, || {
        rows.iter().map(one).collect::<Vec<_>>().join("\n")
    }))
}

async fn attempts(context: &CommandContext, text: &str, rows: &ListOptions) -> CommandResult {
    let context = &context.list(rows);
    if selector::parse(text).is_some() {
        let (app, found) = find_all(context, text).await?;
        return print_attempts(
            context,
            &app,
            found.into_iter().flat_map(|row| row.attempts).collect(),
            rows,
        );
    }
    let (app, target) = context.app(&context.client()?, text).await?;
    let all: Vec<AttemptRow> = match &target.part {
        TargetPart::Whole => app
            .job
            .iter()
            .flat_map(|j| &j.tasks)
            .flat_map(|t| t.attempts.clone())
            .collect(),
        TargetPart::Task(id) => target::task(&app, id)?.attempts.clone(),
        TargetPart::Attempt(id) => vec![target::attempt(&app, id)?.1.clone()],
        // Selections of several tasks are handled above.
        TargetPart::Several(_) => Vec::new(),
        TargetPart::Container(id) => {
            let all = app
                .job
                .iter()
                .flat_map(|j| &j.tasks)
                .flat_map(|t| &t.attempts);
            all.filter(|a| a.container == *id).cloned().collect()
        }
    };
    print_attempts(context, &app, all, rows)
}

fn print_attempts(
    context: &CommandContext,
    app: &AppView,
    all: Vec<AttemptRow>,
    rows: &ListOptions,
) -> CommandResult {
    let all = rows.wanted().of(all, now())?;
    let machine = MachineOutput::list(&all).rows(&context.output);
    let people = || tasks::attempts(app, &all, now(), context.look());
    Ok(context.show(machine, people))
}
