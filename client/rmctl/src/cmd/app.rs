//! `rmctl app`: changes the queue, the priority or the deadline of an application, or shares it.

use headroom_types::{UnixMillis, millis};
use headroom_wire::v1::acl::AppAccess;
use headroom_wire::v1::apps::{AppView, ChangeApplicationRequest};

use crate::args::{AppSubcommand, LifetimeArgument};
use crate::context::{CommandContext, now};
use crate::exit::CommandResult;
use crate::render::{figures::span, json::MachineOutput};

/// Runs an `app` verb.
pub(crate) async fn run(context: &CommandContext, what: AppSubcommand) -> CommandResult {
    let (job, body) = match what {
        AppSubcommand::Share {
            job,
            view,
            change,
            nobody,
        } => return share(context, &job, AppAccess { view, change }, nobody).await,
        AppSubcommand::Move { job, queue } => (
            job,
            ChangeApplicationRequest {
                queue: Some(queue),
                ..ChangeApplicationRequest::default()
            },
        ),
        AppSubcommand::Priority { job, priority } => (
            job,
            ChangeApplicationRequest {
                priority: Some(priority),
                ..ChangeApplicationRequest::default()
            },
        ),
        AppSubcommand::Lifetime { job, time } => {
            let ms = match time {
                LifetimeArgument::Unbounded => 0,
                LifetimeArgument::AtMost(time) => millis(time).max(1),
            };
            (
                job,
                ChangeApplicationRequest {
                    lifetime_ms: Some(ms),
                    ..ChangeApplicationRequest::default()
                },
            )
        }
    };
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, &job).await?;
    let after = client.change_app(&app.id, None, &body).await?;
    let machine = MachineOutput::one(&after).text(&context.output, |a| a.id.to_string());
    Ok(context.show(machine, || people(&after, now())))
}

/// Sets or shows the users and groups that may view or change a job.
async fn share(
    context: &CommandContext,
    job: &str,
    wanted: AppAccess,
    nobody: bool,
) -> CommandResult {
    let client = context.client()?;
    let (app, _) = context.app_figures(&client, job).await?;
    let access = if nobody || wanted != AppAccess::default() {
        client.share_app(&app.id, &wanted).await?
    } else {
        client.app_access(&app.id).await?
    };
    let machine = MachineOutput::one(&access).text(&context.output, |_| app.id.to_string());
    Ok(context.show(machine, || with_whom(&app, &access)))
}

fn with_whom(app: &AppView, access: &AppAccess) -> String {
    let named = |list: &[String]| {
        if list.is_empty() {
            "no other user".to_owned()
        } else {
            list.join(", ")
        }
    };
    let AppAccess { view, change } = access;
    format!(
        "{}  of {}; may view: {}; may change and end: {}\nnext: rmctl ps {}\n",
        app.id,
        app.user,
        named(view),
        named(change),
        app.id
    )
}

fn people(app: &AppView, now: UnixMillis) -> String {
    let until = app.until.map_or_else(
        || "unlimited".to_owned(),
        |until| format!("{} left", span(until.since(now))),
    );
    let id = &app.id;
    format!(
        "{id}  queue {}, priority {}, lifetime {until}\nnext: rmctl why {id}\n",
        app.queue.short(),
        app.priority
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn the_screen_names_the_users_that_share_a_job() {
        let access = AppAccess {
            view: vec!["bob".into(), "@etl".into()],
            change: vec![],
        };
        let text = with_whom(&fixture::app(), &access);
        assert!(
            text.contains("may view: bob, @etl; may change and end: no other user"),
            "{text}"
        );
    }

    #[test]
    fn the_screen_shows_queue_priority_and_lifetime() {
        let mut app = fixture::app();
        app.until = Some(UnixMillis(fixture::NOW.0 + 90_000));
        assert_eq!(
            people(&app, fixture::NOW),
            "wordcount.7  queue default, priority 0, lifetime 1m30s left\nnext: rmctl why wordcount.7\n"
        );
        app.until = None;
        assert!(people(&app, fixture::NOW).contains("lifetime unlimited"));
    }
}
