//! `rmctl why`: the reasons why a job or a task waits.

use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{json::MachineOutput, why};
use crate::target::{self, TargetPart};

/// Prints the reasons why a job or a task waits.
pub(crate) async fn run(context: &CommandContext, text: &str) -> CommandResult {
    let client = context.client()?;
    let (app, target) = context.app(&client, text).await?;
    let waits = if app.state.is_final() {
        Vec::new()
    } else {
        client.why(&app.id).await?
    };
    let paint = context.term.paint;
    let machine = MachineOutput::list(&waits).text(&context.output, |w| w.request.to_string());
    let shown = match (machine, &target.part) {
        (Some(text), _) => text,
        (None, TargetPart::Whole | TargetPart::Several(_)) => {
            why::of_app(&app, &waits, now(), paint)
        }
        (None, TargetPart::Task(task)) => {
            why::of_task(&app, target::task(&app, task)?, &waits, now(), paint)
        }
        (None, TargetPart::Attempt(id)) => {
            why::of_task(&app, target::task(&app, &id.task)?, &waits, now(), paint)
        }
        (None, TargetPart::Container(_)) => {
            return Err(CommandFailure::usage(format!(
                "{text} is a container: it is granted and does not wait"
            ))
            .help(format!("rmctl why {}", app.id)));
        }
    };
    context.term.print(&shown);
    Ok(CommandExitCode::Ok)
}
