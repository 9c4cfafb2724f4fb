//! `rmctl kill`: ends a job.

use headroom_wire::v1::apps::AppView;

use crate::args::KillArgs;
use crate::context::{CommandContext, user};
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::{apps, count, figures::short, json::MachineOutput};

/// Ends a job.
pub(crate) async fn run(context: &CommandContext, args: KillArgs) -> CommandResult {
    let KillArgs { job, reason, sure } = args;
    let client = context.client()?;
    let (app, target) = context.app_figures(&client, &job).await?;
    if let Some(task) = target.part.task() {
        return Err(CommandFailure::usage(format!(
            "{job} is a task, but rmctl kill ends a whole job"
        ))
        .help(format!("rmctl task kill {}/{task}", app.id))
        .help(format!("rmctl kill {}", app.id)));
    }
    if app.state.is_final() {
        return Err(CommandFailure::new(
            CommandExitCode::Conflict,
            format!("{} has already ended: {}", app.id, app.state.as_str()),
        )
        .help(format!("rmctl ps {}", app.id)));
    }
    if sure.dry_run {
        context
            .term
            .line(&format!("{} would end: {}", app.id, what_ends(&app)));
        return Ok(CommandExitCode::Ok);
    }
    context.confirm(sure, &format!("{} ends: {}", app.id, what_ends(&app)))?;
    let reason = reason.or_else(|| user().map(|user| format!("killed by {user}")));
    let after = client.kill(&app.id, reason).await?;
    let text = MachineOutput::one(&after)
        .text(&context.output, |a| a.id.to_string())
        .unwrap_or_else(|| {
            let state = apps::state(after.state, context.term.paint);
            format!(
                "{}  {state}: {}\nnext: rmctl ps {}\n",
                after.id,
                what_ends(&app),
                after.id
            )
        });
    context.term.print(&text);
    Ok(CommandExitCode::Ok)
}

fn what_ends(app: &AppView) -> String {
    let tasks = app.job.as_ref().map_or(0, |j| j.totals.running);
    let (containers, tasks) = (
        count(app.containers, "container"),
        count(tasks, "running task"),
    );
    format!(
        "{containers} ({}), {tasks}, {} requested and not granted",
        short(app.memory),
        app.pending
    )
}
