//! `rmctl job`: verbs about the tasks of jobs, and the finished tasks of a job as a trace.

use std::path::Path;

use headroom_types::Name;

use super::job_trace::fetch_trace;
#[cfg(feature = "dev")]
use super::replay;
use super::{attach, drafts, history, kill, live_job, ps, scale, submit};
use crate::args::JobSubcommand;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::job_history as screens;
use crate::render::json::MachineOutput;

/// Runs a `job` verb.
pub(crate) async fn run(context: &CommandContext, what: JobSubcommand) -> CommandResult {
    match what {
        JobSubcommand::List { list } => ps::run(context, None, list).await,
        JobSubcommand::Show { job, list } => ps::run(context, Some(&job), list).await,
        JobSubcommand::Submit(args) => submit::run(context, args).await,
        JobSubcommand::Kill(args) => kill::run(context, args).await,
        JobSubcommand::Watch { job } => attach::run(context, &job).await,
        JobSubcommand::History(rows) => history::list(context, &rows).await,
        JobSubcommand::Purge { job, sure } => history::purge(context, &job, sure).await,
        JobSubcommand::Scale {
            job,
            count,
            reason,
            no_wait,
        } => scale::run(context, &job, count, reason, no_wait).await,
        JobSubcommand::Add(args) => live_job::add(context, args).await,
        JobSubcommand::Close { job } => live_job::close(context, &job).await,
        JobSubcommand::CancelTasks { job, keys } => {
            live_job::cancel_tasks(context, &job, keys).await
        }
        JobSubcommand::Init { name, to } => drafts::init(context, &name, to.as_deref()),
        JobSubcommand::Validate { file } => drafts::validate(context, &file).await,
        JobSubcommand::Plan { file } => drafts::plan(context, &file).await,
        #[cfg(feature = "dev")]
        JobSubcommand::Replay(args) => replay::run(context, args).await,
        JobSubcommand::Families { user } => families(context, user.as_deref()).await,
        JobSubcommand::Suggest { name, user } => suggest(context, &name, user).await,
        JobSubcommand::Export { job, html, to } => {
            let text = if html {
                report(context, &job).await?
            } else {
                fetch_trace(context, &job).await?
            };
            export(context, &text, to.as_deref())
        }
    }
}

async fn families(context: &CommandContext, user: Option<&str>) -> CommandResult {
    let rows = context.client()?.job_histories(user).await?;
    let text = MachineOutput::list(&rows).rows(&context.output);
    Ok(context.show(text, || {
        screens::list(&rows, crate::context::now(), context.term.paint)
    }))
}

async fn suggest(context: &CommandContext, name: &Name, user: Option<String>) -> CommandResult {
    let user = user.or_else(crate::context::user);
    let client = context.client()?;
    let family = client.job_history(name, user.as_deref()).await?;
    let found = client.suggestions(Some(&family.user), Some(name)).await?;
    let text = MachineOutput::list(&found).text(&context.output, |one| one.kind.clone());
    Ok(context.show(text, || {
        screens::suggestions(&family, &found, context.term.paint)
    }))
}

fn export(context: &CommandContext, text: &str, to: Option<&Path>) -> CommandResult {
    match to {
        None => context.term.print(text),
        Some(path) => {
            std::fs::write(path, text)
                .map_err(|e| CommandFailure::failed(format!("{}: {e}", path.display())))?;
        }
    }
    Ok(CommandExitCode::Ok)
}

/// The report of a job as one HTML file, from the resource manager.
async fn report(context: &CommandContext, job: &str) -> CommandResult<String> {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    Ok(client
        .get_text(&format!("/v1/apps/{}/report", app.id))
        .await?)
}
