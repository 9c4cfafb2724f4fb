//! `rmctl job history` and `purge`: lists ended jobs, and deletes one.

use headroom_client::{Client, DryRunMode};
use headroom_types::ExitCharge;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{JobView, TaskState};

use crate::args::{ConfirmOptions, ListOptions};
use crate::context::{CommandContext, now};
use crate::exit::{CommandFailure, CommandResult};
use crate::render::past::{self, EndedJobRow};
use crate::render::{apps, count, figures::gib_seconds, json::MachineOutput};

/// Default number of rows.
const USUAL: usize = 20;

/// Lists ended jobs, the latest first.
pub(super) async fn list(context: &CommandContext, rows: &ListOptions) -> CommandResult {
    let context = &context.list(rows);
    let client = context.client()?;
    let mut ended: Vec<AppView> = client
        .apps()
        .await?
        .into_iter()
        .filter(|app| app.state.is_final())
        .collect();
    ended.sort_by_key(|app| std::cmp::Reverse((app.ended, app.id.clone())));
    let mut wanted = rows.wanted();
    let (at, limit) = (now(), wanted.limit.unwrap_or(USUAL));
    if let Some(since) = wanted.since {
        ended.retain(|app| at.since(app.submitted) <= since);
    }
    let all = ended.len();
    // Task rows need one call per job, so ask for as few jobs as possible.
    if wanted.filter.is_none() && wanted.order.is_none() {
        ended.truncate(limit);
    }
    let past = wanted_rows(&client, ended).await?;
    wanted.limit = Some(limit);
    let past = wanted.of(past, at)?;
    let text = MachineOutput::list(&past).rows(&context.output);
    Ok(context.show(text, || past::screen(&past, all, at, context.look())))
}

async fn wanted_rows(client: &Client, ended: Vec<AppView>) -> CommandResult<Vec<EndedJobRow>> {
    let mut past = Vec::with_capacity(ended.len());
    for app in ended {
        match client.app(&app.id).await {
            Ok(whole) => past.push(row(&whole)),
            // The job was purged meanwhile, or it expired.
            Err(e) if e.code() == Some(headroom_wire::v1::error::ErrorCode::HR0404) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(past)
}

fn row(app: &AppView) -> EndedJobRow {
    let job = app.job.as_ref();
    let totals = job.map(|job| &job.totals);
    EndedJobRow {
        id: app.id.clone(),
        state: app.state,
        user: app.user.clone(),
        queue: app.queue.clone(),
        submitted: app.submitted,
        ended: app.ended,
        tasks: totals.map(|t| t.tasks),
        done: totals.map(|t| t.done),
        failed: totals.map(|t| t.failed),
        oom_kills: totals.map(|t| t.memory_kills),
        recovered: job.map(recovered),
        gib_h: totals.map(|t| gib_seconds(t.allocated_byte_ms) / 3600.0),
        rerun_gib_h: totals.map(|t| gib_seconds(t.rerun_byte_ms) / 3600.0),
        diagnostics: app.diagnostics.clone(),
    }
}

/// Number of tasks that were killed for memory at least once and finished nevertheless.
fn recovered(job: &JobView) -> u32 {
    let killed = |reason: &headroom_types::ExitReason| reason.charge() == ExitCharge::Memory;
    let done = job
        .tasks
        .iter()
        .filter(|task| task.state == TaskState::Done);
    let count = done
        .filter(|task| {
            task.attempts
                .iter()
                .any(|a| a.reason.as_ref().is_some_and(killed))
        })
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Deletes an ended job.
pub(super) async fn purge(
    context: &CommandContext,
    job: &str,
    sure: ConfirmOptions,
) -> CommandResult {
    let client = context.client()?;
    let (app, target) = context.app_figures(&client, job).await?;
    if target.part != crate::target::TargetPart::Whole {
        let wrong = CommandFailure::usage(format!(
            "{job} is part of a job, but only whole jobs can be purged"
        ));
        return Err(wrong.help(format!("rmctl job purge {}", app.id)));
    }
    let tasks = app.job.as_ref().map_or(0, |j| j.totals.tasks);
    let what = format!(
        "{} ({}, {})",
        app.id,
        app.state.as_str(),
        count(tasks, "task")
    );
    if !sure.dry_run && app.state.is_final() {
        context.confirm(
            sure,
            &format!("{what} is purged with its tasks and containers; its job history stays"),
        )?;
    }
    let how = DryRunMode::of(sure.dry_run);
    let was = client.purge(&app.id, how).await?;
    let text = MachineOutput::one(&was).text(&context.output, |a| a.id.to_string());
    let goes = if sure.dry_run {
        "would be purged"
    } else {
        "is purged"
    };
    let state = apps::state(was.state, context.term.paint);
    Ok(context.show(text, || {
        format!("{}  {state}: {goes}\nnext: rmctl job history\n", was.id)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_types::ExitReason;
    use headroom_wire::v1::apps::AppState;

    #[test]
    fn a_row_has_statistics_only_if_the_job_has_tasks() {
        let mut app = fixture::app();
        app.state = AppState::Finished;
        let whole = row(&app);
        assert_eq!(
            (whole.tasks, whole.done, whole.oom_kills),
            (Some(24), Some(20), Some(2))
        );
        assert!(
            whole.gib_h.is_some_and(|g| (0.5..0.6).contains(&g)),
            "{:?}",
            whole.gib_h
        );
        app.job = None;
        let bare = row(&app);
        assert_eq!((bare.tasks, bare.recovered, bare.gib_h), (None, None, None));
    }

    #[test]
    fn killed_tasks_that_are_done_count_as_recovered() {
        let mut job = fixture::app().job.expect("a job");
        assert_eq!(recovered(&job), 0, "the killed task still runs");
        let killed = job
            .tasks
            .iter_mut()
            .find(|t| t.task.to_string() == "map/7")
            .expect("a task");
        killed.state = TaskState::Done;
        let last = killed.attempts.last_mut().expect("an attempt");
        last.reason = Some(ExitReason::Exit { code: 0 });
        assert_eq!(recovered(&job), 1);
    }
}
