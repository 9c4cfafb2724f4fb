//! The finished tasks of a job as a trace, for the export and the replay.

use crate::context::CommandContext;
use crate::exit::{CommandFailure, CommandResult};
use crate::render::record;

/// The trace of a job that the resource manager stores.
pub(super) async fn fetch_trace(context: &CommandContext, job: &str) -> CommandResult<String> {
    let client = context.client()?;
    let (app, _) = context.app(&client, job).await?;
    let text = record::trace(&app);
    if text.lines().count() < 2 {
        let failure = CommandFailure::not_found(format!(
            "no task of {} has succeeded, so there is no record of it",
            app.id
        ));
        return Err(failure.help(format!("rmctl ps {}", app.id)));
    }
    Ok(text)
}
