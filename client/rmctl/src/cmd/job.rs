//! `rmctl job`: verbs about the tasks of jobs, and the finished tasks of a job as a trace.

use std::path::Path;

use headroom_types::Name;

use super::job_trace::fetch_trace;
#[cfg(feature = "dev")]
use super::replay;
use super::{attach, drafts, history, kill, ps, scale, submit};
use crate::args::JobVerb;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::job_history as screens;
use crate::render::json::MachineOutput;

/// Runs a `job` verb.
pub(crate) async fn run(context: &Context, what: JobVerb) -> Result<Exit, Failure> {
    match what {
        JobVerb::List { list } => ps::run(context, None, list).await,
        JobVerb::Show { job, list } => ps::run(context, Some(&job), list).await,
        JobVerb::Submit(args) => submit::run(context, args).await,
        JobVerb::Kill(args) => kill::run(context, args).await,
        JobVerb::Watch { job } => attach::run(context, &job).await,
        JobVerb::History(rows) => history::list(context, &rows).await,
        JobVerb::Purge { job, sure } => history::purge(context, &job, sure).await,
        JobVerb::Scale {
            job,
            count,
            reason,
            no_wait,
        } => scale::run(context, &job, count, reason, no_wait).await,
        JobVerb::Init { name, to } => drafts::init(context, &name, to.as_deref()),
        JobVerb::Validate { file } => drafts::validate(context, &file).await,
        JobVerb::Plan { file } => drafts::plan(context, &file).await,
        #[cfg(feature = "dev")]
        JobVerb::Replay(args) => replay::run(context, args).await,
        JobVerb::Families { user } => families(context, user.as_deref()).await,
        JobVerb::Suggest { name, user } => suggest(context, &name, user).await,
        JobVerb::Export { job, html, to } => {
            let text = if html {
                report(context, &job).await?
            } else {
                fetch_trace(context, &job).await?
            };
            export(context, &text, to.as_deref())
        }
    }
}

async fn families(context: &Context, user: Option<&str>) -> Result<Exit, Failure> {
    let rows = context.client()?.job_histories(user).await?;
    let text = MachineOutput {
        items: &rows,
        list: true,
    }
    .rows(&context.output);
    context.term.print(
        &text.unwrap_or_else(|| screens::list(&rows, crate::context::now(), context.term.paint)),
    );
    Ok(Exit::Ok)
}

async fn suggest(context: &Context, name: &Name, user: Option<String>) -> Result<Exit, Failure> {
    let user = user.or_else(crate::context::user);
    let client = context.client()?;
    let family = client.job_history(name, user.as_deref()).await?;
    let found = client.suggestions(Some(&family.user), Some(name)).await?;
    let text = MachineOutput {
        items: &found,
        list: true,
    }
    .text(&context.output, |one| one.kind.clone());
    context
        .term
        .print(&text.unwrap_or_else(|| screens::suggestions(&family, &found, context.term.paint)));
    Ok(Exit::Ok)
}

fn export(context: &Context, text: &str, to: Option<&Path>) -> Result<Exit, Failure> {
    match to {
        None => context.term.print(text),
        Some(path) => {
            std::fs::write(path, text)
                .map_err(|e| Failure::new(Exit::Failed, format!("{}: {e}", path.display())))?;
        }
    }
    Ok(Exit::Ok)
}

/// The report of a job as one HTML file, from the resource manager.
async fn report(context: &Context, job: &str) -> Result<String, Failure> {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    Ok(client
        .get_text(&format!("/v1/apps/{}/report", app.id))
        .await?)
}
