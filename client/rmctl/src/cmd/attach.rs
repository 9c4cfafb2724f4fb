//! `rmctl attach`: follows a job that was submitted before.

use super::submit::{print_view, stay};
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Prints the events of a job until it has ended. Ctrl-C detaches and leaves the job running.
pub(crate) async fn run(context: &Context, job: &str) -> Result<Exit, Failure> {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    let people = context.format.is_screen();
    let app = tokio::select! {
        app = stay(context, &client, &app.id, people) => app?,
        _ = tokio::signal::ctrl_c() => {
            context.term.say(&format!("detached; {} keeps running: rmctl attach {}", app.id, app.id));
            return Ok(Exit::Ok);
        }
    };
    print_view(context, &app, people);
    Ok(Exit::of_app(&app))
}
