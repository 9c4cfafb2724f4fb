//! `rmctl why`: the reasons why a job or a task waits.

use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::render::{json::MachineOutput, why};
use crate::target::{self, Part};

/// Prints the reasons why a job or a task waits.
pub(crate) async fn run(context: &Context, text: &str) -> Result<Exit, Failure> {
    let client = context.client()?;
    let (app, target) = context.app(&client, text).await?;
    let waits = if app.state.is_final() {
        Vec::new()
    } else {
        client.why(&app.id).await?
    };
    let paint = context.term.paint;
    let machine = MachineOutput {
        items: &waits,
        list: true,
    }
    .text(&context.output, |w| w.request.to_string());
    let shown = match (machine, &target.part) {
        (Some(text), _) => text,
        (None, Part::Whole | Part::Several(_)) => why::of_app(&app, &waits, now(), paint),
        (None, Part::Task(task)) => {
            why::of_task(&app, target::task(&app, task)?, &waits, now(), paint)
        }
        (None, Part::Attempt(id)) => {
            why::of_task(&app, target::task(&app, &id.task)?, &waits, now(), paint)
        }
        (None, Part::Container(_)) => {
            return Err(Failure::new(
                Exit::Usage,
                format!("{text} is a container: it is granted and does not wait"),
            )
            .help(format!("rmctl why {}", app.id)));
        }
    };
    context.term.print(&shown);
    Ok(Exit::Ok)
}
