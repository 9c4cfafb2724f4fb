//! `rmctl wait`: waits for the end of a job. The exit code is the result.

use std::time::Duration;

use headroom_wire::v1::apps::AppView;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::follow::{JobObservation, follow};
use crate::progress::ProgressLine;
use crate::render::{apps, figures::span, json::MachineOutput};

/// Waits for the end of a job.
pub(crate) async fn run(
    context: &CommandContext,
    job: &str,
    timeout: Option<Duration>,
) -> CommandResult {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    let progress = ProgressLine::tasks(&context.term);
    let show = |sight: JobObservation<'_>| {
        if let JobObservation::View(AppView { job: Some(job), .. }) = sight {
            progress.show(&job.totals);
        }
    };
    let ends = follow(&client, &app.id, show);
    let app = match timeout {
        None => ends.await?,
        Some(most) => match tokio::time::timeout(most, ends).await {
            Ok(app) => app?,
            Err(_) => {
                return Err(CommandFailure::new(
                    CommandExitCode::WaitTimeout,
                    format!("{} has not ended after {}", app.id, span(most)),
                )
                .help(format!("rmctl ps {}", app.id)));
            }
        },
    };
    drop(progress);
    let text = MachineOutput::one(&app)
        .text(&context.output, |a| a.id.to_string())
        .unwrap_or_else(|| {
            let took = app
                .ended
                .map(|end| format!(" after {}", span(end.since(app.submitted))))
                .unwrap_or_default();
            let why = if app.diagnostics.is_empty() {
                String::new()
            } else {
                format!(": {}", app.diagnostics)
            };
            format!(
                "{}  {}{took}{why}\n",
                app.id,
                apps::state(app.state, context.term.paint)
            )
        });
    context.term.print(&text);
    Ok(CommandExitCode::of_app(&app))
}
