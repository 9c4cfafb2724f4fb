//! `rmctl task`: the tasks of a job, one task, and the ladder of a task.

use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use super::orders::TaskCommand;
use super::{container_access, orders, ps};
use crate::args::{Rows, SetTask, TaskVerb, Watched};
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::render::{json::MachineOutput, tasks};
use crate::selector;
use crate::target::{self, Part};

/// Runs a `task` verb.
pub(crate) async fn run(context: &Context, what: TaskVerb) -> Result<Exit, Failure> {
    match what {
        TaskVerb::List { job, rows } => list(context, &job, rows).await,
        TaskVerb::Show { task } => show(context, &task).await,
        TaskVerb::Ladder { task } => ladder(context, &task).await,
        TaskVerb::Attempts { task, rows } => attempts(context, &task, &rows).await,
        TaskVerb::Kill(ordered) => orders::run(context, TaskCommand::Cancel, ordered).await,
        TaskVerb::Retry(ordered) => orders::run(context, TaskCommand::Retry, ordered).await,
        TaskVerb::Exec(args) => container_access::exec_task(context, args).await,
        TaskVerb::Set(set) => set_both(context, set).await,
    }
}

/// Sets the priority first, because every state that allows a new size also allows a new priority.
async fn set_both(context: &Context, set: SetTask) -> Result<Exit, Failure> {
    let SetTask {
        ordered,
        memory,
        priority,
    } = set;
    let ranked = match priority {
        Some(priority) => {
            orders::run(context, TaskCommand::Rank { priority }, ordered.clone()).await?
        }
        None => Exit::Ok,
    };
    match memory {
        Some(memory) => orders::run(context, TaskCommand::Resize { memory }, ordered).await,
        None => Ok(ranked),
    }
}

async fn list(context: &Context, job: &str, rows: Rows) -> Result<Exit, Failure> {
    if context.format.is_screen() {
        return ps::run(context, Some(job), Watched { rows, watch: false }).await;
    }
    let context = &context.list(&rows);
    let (app, _) = context.app(&context.client()?, job).await?;
    let all = rows
        .wanted()
        .of(app.job.map(|j| j.tasks).unwrap_or_default(), now())?;
    let text = MachineOutput {
        items: &all,
        list: true,
    }
    .rows_named(&context.output, |t| format!("{}/{}", app.id, t.task));
    context.term.print(&text.unwrap_or_default());
    Ok(Exit::Ok)
}

/// The job and the row of the task that a text names.
async fn find(context: &Context, text: &str) -> Result<(AppView, TaskRow), Failure> {
    let (app, target) = context.app(&context.client()?, text).await?;
    let Some(id) = target.part.task() else {
        let failure = Failure::new(Exit::Usage, format!("{text} is not a task"));
        return Err(failure.help(format!("write for example {}/map/7", app.id)));
    };
    let row = target::task(&app, id)?.clone();
    Ok((app, row))
}

/// The job and the rows of the tasks that a text selects.
async fn find_all(context: &Context, text: &str) -> Result<(AppView, Vec<TaskRow>), Failure> {
    let Some(several) = selector::parse(text) else {
        let (app, row) = find(context, text).await?;
        return Ok((app, vec![row]));
    };
    let (app, _) = context.app(&context.client()?, &several.job).await?;
    let rows = several.of(&app)?;
    Ok((app, rows))
}

async fn show(context: &Context, text: &str) -> Result<Exit, Failure> {
    let (app, rows) = find_all(context, text).await?;
    let machine = MachineOutput {
        items: &rows,
        list: rows.len() > 1,
    }
    .rows(&context.output);
    let one = |row| tasks::one(&app, row, now(), context.look(), context.term.paint);
    context
        .term
        .print(&machine.unwrap_or_else(|| rows.iter().map(one).collect::<Vec<_>>().join("\n")));
    Ok(Exit::Ok)
}

async fn ladder(context: &Context, text: &str) -> Result<Exit, Failure> {
    let (app, rows) = find_all(context, text).await?;
    let all: Vec<AttemptRow> = rows.iter().flat_map(|row| row.attempts.clone()).collect();
    let machine = MachineOutput {
        items: &all,
        list: true,
    }
    .rows(&context.output);
    let one = |row| tasks::ladder(&app, row, context.term.paint);
    context
        .term
        .print(&machine.unwrap_or_else(|| rows.iter().map(one).collect::<Vec<_>>().join("\n")));
    Ok(Exit::Ok)
}

async fn attempts(context: &Context, text: &str, rows: &Rows) -> Result<Exit, Failure> {
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
        Part::Whole => app
            .job
            .iter()
            .flat_map(|j| &j.tasks)
            .flat_map(|t| t.attempts.clone())
            .collect(),
        Part::Task(id) => target::task(&app, id)?.attempts.clone(),
        Part::Attempt(id) => vec![target::attempt(&app, id)?.1.clone()],
        // Selections of several tasks are handled above.
        Part::Several(_) => Vec::new(),
        Part::Container(id) => {
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
    context: &Context,
    app: &AppView,
    all: Vec<AttemptRow>,
    rows: &Rows,
) -> Result<Exit, Failure> {
    let all = rows.wanted().of(all, now())?;
    let machine = MachineOutput {
        items: &all,
        list: true,
    }
    .rows(&context.output);
    let people = || tasks::attempts(app, &all, now(), context.look(), context.term.paint);
    context.term.print(&machine.unwrap_or_else(people));
    Ok(Exit::Ok)
}
