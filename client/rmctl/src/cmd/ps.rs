//! `rmctl ps`: all jobs, or the tasks of one.

use crate::args::Format;
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::render::{apps, job, json::Found};

/// Lists jobs, or the tasks of one job.
pub(crate) async fn run(context: &Context, job: Option<&str>) -> Result<Exit, Failure> {
    let client = context.client()?;
    let wide = context.format == Format::Wide;
    let Some(job) = job else {
        let all = client.apps().await?;
        let text = Found { items: &all, list: true }.text(context.format, |a| a.id.to_string());
        context.term.print(&text.unwrap_or_else(|| apps::screen(&all, now(), wide, context.term.paint)));
        return Ok(Exit::Ok);
    };
    let (app, _) = context.app(&client, job).await?;
    let tasks = app.job.as_ref().map_or(&[][..], |j| &j.tasks);
    let text = match context.format {
        Format::Name => tasks.iter().map(|t| format!("{}/{}\n", app.id, t.task)).collect(),
        Format::Jsonl => Found { items: tasks, list: true }.text(Format::Jsonl, |t| t.task.to_string()).unwrap_or_default(),
        Format::Json => crate::render::json::pretty(&app),
        Format::Table | Format::Wide => job::screen(&app, now(), wide, context.term.paint),
    };
    context.term.print(&text);
    Ok(Exit::Ok)
}
