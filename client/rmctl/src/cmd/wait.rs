//! `rmctl wait`: waits for the end of a job. The exit code is the result.

use std::time::{Duration, Instant};

use headroom_client::Client;
use headroom_client::retry::ExponentialBackoff;
use headroom_types::AppId;
use headroom_wire::v1::apps::AppView;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::follow::{JobObservation, SERVER_SILENCE_TIMEOUT, follow};
use crate::progress::ProgressLine;
use crate::render::{apps, figures::span, json::MachineOutput};

/// Shortest time for the first answer, also with a shorter timeout of the wait.
const MIN_SILENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for the end of a job.
pub(crate) async fn run(
    context: &CommandContext,
    job: &str,
    timeout: Option<Duration>,
) -> CommandResult {
    let client = context.client()?;
    let started = Instant::now();
    let silence = timeout.map_or(SERVER_SILENCE_TIMEOUT, |timeout| {
        timeout.clamp(MIN_SILENCE_TIMEOUT, SERVER_SILENCE_TIMEOUT)
    });
    let id = find(context, &client, job, silence).await?;
    let progress = ProgressLine::tasks(&context.term);
    let show = |sight: JobObservation<'_>| {
        if let JobObservation::View(AppView { job: Some(job), .. }) = sight {
            progress.show(&job.totals);
        }
    };
    let ends = follow(&client, &id, show);
    let app = match timeout {
        None => ends.await?,
        Some(most) => {
            let rest = most.saturating_sub(started.elapsed());
            tokio::time::timeout(rest, ends).await.map_err(|_| {
                CommandFailure::new(
                    CommandExitCode::WaitTimeout,
                    format!("{id} has not ended after {}", span(most)),
                )
                .help(format!("rmctl ps {id}"))
            })??
        }
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

/// The id of the job. A resource manager that does not answer may be restarting: this waits for it,
/// at most `silence`.
async fn find(
    context: &CommandContext,
    client: &Client,
    job: &str,
    silence: Duration,
) -> CommandResult<AppId> {
    let (started, mut backoff) = (Instant::now(), ExponentialBackoff::usual());
    let mut is_reported = false;
    loop {
        let rest = silence.saturating_sub(started.elapsed());
        let found = tokio::time::timeout(rest, context.app_figures(client, job)).await;
        let failure = match found {
            Ok(Ok((app, _))) => return Ok(app.id),
            Ok(Err(failure)) => failure,
            Err(_) => {
                let why = format!(
                    "no answer within {} from the resource manager",
                    span(silence)
                );
                return Err(CommandFailure::new(CommandExitCode::Unreachable, why));
            }
        };
        let rest = silence.saturating_sub(started.elapsed());
        if failure.exit() != CommandExitCode::Unreachable || rest.is_zero() {
            return Err(failure);
        }
        if !std::mem::replace(&mut is_reported, true) {
            let (why, most) = (failure.sentence(), span(silence));
            context
                .term
                .say(&format!("{why}; waiting for it, at most {most}"));
        }
        tokio::time::sleep(backoff.wait().min(rest)).await;
    }
}
