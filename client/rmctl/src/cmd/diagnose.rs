//! `rmctl diagnose`: explains the end of jobs, tasks, attempts and containers.

use headroom_types::ExitCharge;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use crate::args::OutputFormat;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{diagnose, json};
use crate::selector;
use crate::target::{self, TargetPart};

/// Explains an attempt, a task's last failure, a job's failures, or a container's end.
pub(crate) async fn run(context: &CommandContext, text: &str) -> CommandResult {
    let client = context.client()?;
    if let Some(several) = selector::parse(text) {
        let (app, _) = context.app(&client, &several.job).await?;
        let rows = several.of(&app)?;
        context.term.print(&of_several(context, &app, &rows)?);
        return Ok(CommandExitCode::Ok);
    }
    let (app, target) = context.app(&client, text).await?;
    let shown = match &target.part {
        // Selections of several tasks are handled above.
        TargetPart::Whole | TargetPart::Several(_) => whole(context, &app),
        TargetPart::Task(id) => {
            let row = target::task(&app, id)?;
            let one = last_failure(row).ok_or_else(|| {
                CommandFailure::not_found(format!(
                    "{}/{id} has not been started yet: there is nothing to diagnose",
                    app.id
                ))
                .help(format!("rmctl why {}/{id}", app.id))
            })?;
            one_attempt(context, &app, row, one)
        }
        TargetPart::Attempt(id) => {
            let (row, one) = target::attempt(&app, id)?;
            one_attempt(context, &app, row, one)
        }
        TargetPart::Container(id) => {
            let view = client.container(id).await?;
            let text = json::MachineOutput::one(&view).text(&context.output, |c| c.id.to_string());
            text.unwrap_or_else(|| diagnose::container(&view, context.term.paint))
        }
    };
    context.term.print(&shown);
    Ok(CommandExitCode::Ok)
}

fn whole(context: &CommandContext, app: &AppView) -> String {
    let failed: Vec<&AttemptRow> = app.job.as_ref().map(diagnose::failures).unwrap_or_default();
    let machine = json::MachineOutput::list(&failed)
        .text(&context.output, |a| format!("{}/{}", app.id, a.attempt));
    machine.unwrap_or_else(|| diagnose::of_app(app, context.term.paint))
}

/// The diagnosis of several tasks, each by its last failure. Tasks without an attempt are omitted.
fn of_several(context: &CommandContext, app: &AppView, rows: &[TaskRow]) -> CommandResult<String> {
    let started: Vec<(&TaskRow, &AttemptRow)> = rows
        .iter()
        .filter_map(|row| Some((row, last_failure(row)?)))
        .collect();
    if started.is_empty() {
        let none = CommandFailure::not_found(format!(
            "none of these tasks of {} has been started yet",
            app.id
        ));
        return Err(none.help(format!("rmctl why {}", app.id)));
    }
    let all: Vec<&AttemptRow> = started.iter().map(|(_, one)| *one).collect();
    let machine = json::MachineOutput::list(&all)
        .text(&context.output, |a| format!("{}/{}", app.id, a.attempt));
    let screens = || {
        started
            .iter()
            .map(|(row, one)| one_attempt(context, app, row, one))
            .collect::<Vec<_>>()
            .join("\n")
    };
    Ok(machine.unwrap_or_else(screens))
}

fn one_attempt(context: &CommandContext, app: &AppView, row: &TaskRow, one: &AttemptRow) -> String {
    let name = |a: &AttemptRow| format!("{}/{}", app.id, a.attempt);
    let machine = json::MachineOutput::one(one).text(&context.output, name);
    let width = if context.format == OutputFormat::Wide {
        context.term.width.max(140)
    } else {
        context.term.width
    };
    machine.unwrap_or_else(|| diagnose::attempt(app, row, one, width, context.term.paint))
}

/// The last attempt that failed; without one, the last attempt.
fn last_failure(row: &TaskRow) -> Option<&AttemptRow> {
    let failed = |a: &&AttemptRow| a.reason.is_some_and(|r| r.charge() != ExitCharge::Success);
    row.attempts
        .iter()
        .rev()
        .find(failed)
        .or_else(|| row.attempts.last())
}
