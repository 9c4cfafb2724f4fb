//! `rmctl diagnose`: why it ended as it did.

use headroom_types::Charge;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::job::{AttemptRow, TaskRow};

use crate::args::Format;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::{diagnose, json};
use crate::target::{self, Part};

/// Explains an attempt, a task's last failure, a job's failures, or a container's end.
pub(crate) async fn run(context: &Context, text: &str) -> Result<Exit, Failure> {
    let client = context.client()?;
    let (app, target) = context.app(&client, text).await?;
    let shown = match &target.part {
        Part::Whole => whole(context, &app),
        Part::Task(id) => {
            let row = target::task(&app, id)?;
            let one = last_failure(row).ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("{}/{id} has not been started yet: there is nothing to diagnose", app.id))
                    .help(format!("rmctl why {}/{id}", app.id))
            })?;
            one_attempt(context, &app, row, one)
        }
        Part::Attempt(id) => {
            let (row, one) = target::attempt(&app, id)?;
            one_attempt(context, &app, row, one)
        }
        Part::Container(id) => {
            let view = client.container(id).await?;
            let machine = json::Found { items: std::slice::from_ref(&view), list: false };
            let text = machine.text(&context.output, |c| c.id.to_string());
            text.unwrap_or_else(|| diagnose::container(&view, context.term.paint))
        }
    };
    context.term.print(&shown);
    Ok(Exit::Ok)
}

fn whole(context: &Context, app: &AppView) -> String {
    let failed: Vec<&AttemptRow> = app.job.as_ref().map(diagnose::failures).unwrap_or_default();
    let machine = json::Found { items: &failed, list: true }.text(&context.output, |a| format!("{}/{}", app.id, a.attempt));
    machine.unwrap_or_else(|| diagnose::of_app(app, context.term.paint))
}

fn one_attempt(context: &Context, app: &AppView, row: &TaskRow, one: &AttemptRow) -> String {
    let name = |a: &AttemptRow| format!("{}/{}", app.id, a.attempt);
    let machine = json::Found { items: std::slice::from_ref(one), list: false }.text(&context.output, name);
    let width = if context.format == Format::Wide { context.term.width.max(140) } else { context.term.width };
    machine.unwrap_or_else(|| diagnose::attempt(app, row, one, width, context.term.paint))
}

/// The last attempt that failed; without one, the last attempt.
fn last_failure(row: &TaskRow) -> Option<&AttemptRow> {
    let failed = |a: &&AttemptRow| a.reason.is_some_and(|r| r.charge() != Charge::Success);
    row.attempts.iter().rev().find(failed).or_else(|| row.attempts.last())
}
