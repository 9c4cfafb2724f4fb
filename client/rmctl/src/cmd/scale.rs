//! `rmctl job scale`: changes the number of executors of a running job. Its master decides and
//! records an event.

use std::time::Duration;

use headroom_client::Client;
use headroom_types::{AppId, Name, Reason};
use headroom_wire::v1::apps::ScaleExecutorsRequest;
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use tokio::time::Instant;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::json::MachineOutput;

/// Timeout of the master's answer. A master answers an order within one or two heartbeats.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(200);

/// Sends the order and waits for the master's answer.
pub(super) async fn run(
    context: &CommandContext,
    job: &str,
    count: u32,
    reason: Option<String>,
    no_wait: bool,
) -> CommandResult {
    let client = context.client()?;
    let (job, executors) = parted(job)?;
    let (app, _) = context.app_figures(&client, job).await?;
    let before = latest(&client, &app.id)
        .await?
        .map_or(0, |event| event.index);
    let view = client
        .scale(
            &app.id,
            &ScaleExecutorsRequest {
                executors,
                count,
                reason,
            },
        )
        .await?;
    let machine = MachineOutput::one(&view).text(&context.output, |a| a.id.to_string());
    if no_wait {
        let people = || {
            format!(
                "{}: the order is sent to its master\nnext: rmctl events {}\n",
                app.id, app.id
            )
        };
        return Ok(context.show(machine, people));
    }
    let event = answered(&client, &app.id, before).await?;
    if event.level == EventLevel::Warning {
        return Err(
            CommandFailure::not_found(format!("{}: {}", app.id, event.message))
                .help(format!("rmctl ps {}", app.id)),
        );
    }
    Ok(context.show(machine, || {
        format!(
            "{}  {}\nnext: rmctl container list {}\n",
            app.id, event.message, app.id
        )
    }))
}

/// Parses a job and a set of its executors, such as `sort.3/main`.
fn parted(text: &str) -> CommandResult<(&str, Option<Name>)> {
    let Some((job, set)) = text.split_once('/') else {
        return Ok((text, None));
    };
    let wrong = |_| {
        CommandFailure::usage(format!("{set:?} is no executor name"))
            .help("write for example sort.3/main")
    };
    Ok((job, Some(set.parse().map_err(wrong)?)))
}

async fn answered(client: &Client, app: &AppId, after: u64) -> CommandResult<LoggedEvent> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        if let Some(event) = latest(client, app)
            .await?
            .filter(|event| event.index > after)
        {
            return Ok(event);
        }
        if Instant::now() >= deadline {
            let silent = CommandFailure::new(
                CommandExitCode::WaitTimeout,
                format!("the master of {app} has not answered the order"),
            );
            return Err(silent.help(format!("rmctl events {app}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The latest event with a master's answer to such an order.
async fn latest(client: &Client, app: &AppId) -> CommandResult<Option<LoggedEvent>> {
    let mut last: Option<LoggedEvent> = None;
    for reason in [Reason::JobScaled, Reason::ScaleRefused] {
        let path = format!("/v1/events?app={app}&reason={}", reason.as_str());
        let mut lines = client.lines::<LoggedEvent>(&path).await?;
        while let Some(event) = lines.next().await {
            let event = event?;
            last = last.filter(|last| last.index > event.index).or(Some(event));
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_may_be_followed_by_the_name_of_an_executor_set() {
        assert_eq!(parted("sort.3"), Ok(("sort.3", None)));
        assert_eq!(
            parted("last/main"),
            Ok(("last", Some("main".parse().expect("name"))))
        );
        assert_eq!(
            parted("sort.3/a b").expect_err("no name").exit(),
            CommandExitCode::Usage
        );
    }
}
