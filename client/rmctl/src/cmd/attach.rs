//! `rmctl attach`: follows a job that was submitted before.

use super::submit::{print_view, stay};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};

/// Prints the events of a job until it has ended. Ctrl-C detaches and leaves the job running.
pub(crate) async fn run(context: &CommandContext, job: &str) -> CommandResult {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    let people = context.format.is_screen();
    let app = tokio::select! {
        app = stay(context, &client, &app.id, people) => app?,
        _ = tokio::signal::ctrl_c() => {
            context.term.say(&format!("detached; {} keeps running: rmctl attach {}", app.id, app.id));
            return Ok(CommandExitCode::Ok);
        }
    };
    print_view(context, &app, people);
    Ok(CommandExitCode::of_app(&app))
}
