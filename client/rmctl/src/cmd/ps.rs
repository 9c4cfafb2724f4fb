//! `rmctl ps`: lists jobs, or the tasks of one job.

use headroom_client::TaskRowScope;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::TaskRow;

use crate::args::{OutputFormat, WatchedListOptions};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandResult};
use crate::render::{apps, job, json, json::MachineOutput};
use crate::select::RowSelection;
use crate::watch::watch;

/// Lists jobs, or the tasks of one job.
pub(crate) async fn run(
    context: &CommandContext,
    job: Option<&str>,
    list: WatchedListOptions,
) -> CommandResult {
    let context = &context.list(&list.rows);
    match job {
        None => jobs(context, &list).await,
        Some(job) => tasks(context, job, &list).await,
    }
}

/// Newest first, unless the user sets another order.
fn chosen(wanted: &RowSelection, mut all: Vec<AppView>) -> CommandResult<Vec<AppView>> {
    if wanted.order.is_none() {
        all.sort_by(|a, b| b.id.cmp(&a.id));
    }
    wanted.of(all, now())
}

async fn jobs(context: &CommandContext, list: &WatchedListOptions) -> CommandResult {
    let wanted = list.rows.wanted();
    let screen = |all: &[AppView]| apps::screen(all, now(), context.look());
    if list.watch {
        return watch(
            context,
            "/v1/apps",
            |all| chosen(&wanted, all),
            async |all| Ok(screen(&all)),
        )
        .await;
    }
    let all = context.client()?.apps().await?;
    // Machine formats keep the order of the interface, which is by submission.
    let all = if context.format.is_screen() {
        chosen(&wanted, all)?
    } else {
        wanted.of(all, now())?
    };
    let text = MachineOutput::list(&all).rows(&context.output);
    Ok(context.show(text, || screen(&all)))
}

async fn tasks(context: &CommandContext, job: &str, list: &WatchedListOptions) -> CommandResult {
    let client = context.client()?;
    let wanted = list.rows.wanted();
    // A narrow screen shows only the most important tasks.
    let kept = if context.format.is_screen() && !context.look().wide && wanted.is_all() {
        TaskRowScope::First
    } else {
        TaskRowScope::All
    };
    let (app, _) = context.app_with(&client, job, kept).await?;
    if list.watch {
        let path = kept.path(&app.id);
        let rows = |app: AppView| Ok(vec![app]);
        let draw = async |apps: Vec<AppView>| match apps.first() {
            Some(app) => screen(context, app, &wanted),
            None => Ok(String::new()),
        };
        return watch(context, &path, rows, draw).await;
    }
    if context.format == OutputFormat::Json && wanted.is_all() {
        context.term.print(&json::pretty(&app));
        return Ok(CommandExitCode::Ok);
    }
    if context.format.is_screen() {
        context.term.print(&screen(context, &app, &wanted)?);
        return Ok(CommandExitCode::Ok);
    }
    let rows = wanted.of(rows(&app), now())?;
    let text = MachineOutput::list(&rows)
        .rows_named(&context.output, |t| format!("{}/{}", app.id, t.task));
    Ok(context.show(text, String::new))
}

fn rows(app: &AppView) -> Vec<TaskRow> {
    app.job
        .as_ref()
        .map(|job| job.tasks.clone())
        .unwrap_or_default()
}

/// The screen of a job with the selected tasks.
fn screen(context: &CommandContext, app: &AppView, wanted: &RowSelection) -> CommandResult<String> {
    let chosen = if wanted.is_all() {
        None
    } else {
        Some(wanted.of(rows(app), now())?)
    };
    Ok(job::screen(app, chosen.as_deref(), now(), context.look()))
}
