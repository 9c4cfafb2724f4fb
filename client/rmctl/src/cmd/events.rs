//! `rmctl events`: the event log.

use headroom_client::{Client, EventFollower, EventQuery, FollowMode};
use headroom_types::ContainerId;
use headroom_wire::v1::events::{EventLevel, LoggedEvent};

use crate::args::{EventsArgs, ListOptions, OutputFormat};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandResult};
use crate::follow::SERVER_SILENCE_TIMEOUT;
use crate::interrupt::Interrupt;
use crate::render::events;
use crate::render::json::MachineOutput;
use crate::target;

/// Selection of events.
#[derive(Debug, Default)]
pub(crate) struct EventSelection {
    /// Job of the events.
    pub(crate) job: Option<String>,
    /// Name of a job, a task, an attempt, a container, or another object.
    pub(crate) about: Option<String>,
    /// Exact name of the object.
    pub(crate) object: Option<String>,
    /// Filter that the resource manager applies.
    pub(crate) of: EventQuery,
    pub(crate) watch: bool,
    pub(crate) tail: Option<usize>,
    pub(crate) rows: ListOptions,
}

impl EventSelection {
    /// Converts the arguments of the command line.
    pub(crate) fn of(args: EventsArgs) -> EventSelection {
        let EventsArgs {
            job,
            watch,
            topic,
            level,
            reason,
            about,
            warnings,
            tail,
            rows,
        } = args;
        let level = level.or(warnings.then_some(EventLevel::Warning));
        let of = EventQuery {
            topic,
            level,
            reason,
            ..EventQuery::default()
        };
        EventSelection {
            job,
            about,
            object: None,
            of,
            watch,
            tail,
            rows,
        }
    }
}

/// Prints past events, and with `watch` also new ones.
pub(crate) async fn run(context: &CommandContext, wanted: EventSelection) -> CommandResult {
    let context = &context.list(&wanted.rows);
    let client = context.client()?;
    let mut of = wanted.of;
    if let Some(job) = &wanted.job {
        of.app = Some(context.app_figures(&client, job).await?.0.id);
    }
    let object = match &wanted.about {
        Some(text) => narrow(context, &client, &mut of, text).await?,
        None => wanted.object,
    };
    let takes = |event: &LoggedEvent| object.as_ref().is_none_or(|object| concerns(event, object));
    let mut before = Vec::new();
    let mut cursor = 0;
    let mut lines = client.events_wanted(&of, 0, FollowMode::No).await?;
    while let Some(event) = lines.next().await {
        let event = event?;
        cursor = event.index;
        if takes(&event) {
            before.push(event);
        }
    }
    let which = wanted.rows.wanted();
    let before = which.of(before, now())?;
    let skipped = wanted.tail.map_or(0, |n| before.len().saturating_sub(n));
    print_all(context, &before[skipped..], wanted.watch);
    if !wanted.watch {
        let next = events::next(&before[skipped..], context.term.paint);
        context.term.print(&if context.format.is_screen() {
            context.look().advice(next)
        } else {
            String::new()
        });
        return Ok(CommandExitCode::Ok);
    }
    let mut follower = EventFollower::of(client, of, cursor, SERVER_SILENCE_TIMEOUT);
    let interrupt = Interrupt::ctrl_c()?;
    loop {
        tokio::select! {
            event = follower.next() => {
                let event = event?;
                if takes(&event) && which.takes(&event) {
                    print_all(context, std::slice::from_ref(&event), true);
                }
            }
            () = interrupt.asked() => return Ok(CommandExitCode::Ok),
        }
    }
}

/// Narrows the filter to the object that a text names: a container, a task, an attempt or a job.
/// Returns an object name that the caller must still compare.
async fn narrow(
    context: &CommandContext,
    client: &Client,
    of: &mut EventQuery,
    text: &str,
) -> CommandResult<Option<String>> {
    if let Ok(id) = text.parse::<ContainerId>() {
        of.app = Some(id.app);
        return Ok(Some(text.to_owned()));
    }
    if text.contains('/') {
        let (app, target) = context.app_figures(client, text).await?;
        of.app = Some(app.id);
        let object = match &target.part {
            target::TargetPart::Attempt(id) => Some(id.to_string()),
            target::TargetPart::Task(id) => Some(id.to_string()),
            target::TargetPart::Whole
            | target::TargetPart::Container(_)
            | target::TargetPart::Several(_) => None,
        };
        of.object.clone_from(&object);
        return Ok(object);
    }
    match context.app_figures(client, text).await {
        Ok((app, _)) => {
            of.app = Some(app.id);
            Ok(None)
        }
        // The text may name a node, a queue or a request.
        Err(failure)
            if matches!(
                failure.exit(),
                CommandExitCode::NotFound | CommandExitCode::Usage
            ) =>
        {
            Ok(Some(text.to_owned()))
        }
        Err(failure) => Err(failure),
    }
}

/// Whether an event concerns an object, one of its attempts, or happened on that node.
fn concerns(event: &LoggedEvent, object: &str) -> bool {
    let attempt = event
        .object
        .strip_prefix(object)
        .is_some_and(|rest| rest.starts_with('@'));
    event.object == object
        || attempt
        || event
            .node
            .as_ref()
            .is_some_and(|node| node.as_str() == object)
}

fn print_all(context: &CommandContext, all: &[LoggedEvent], watch: bool) {
    let paint = context.term.paint;
    let wide = context.format == OutputFormat::Wide;
    let people = || {
        all.iter()
            .map(|e| events::line(e, wide, paint) + "\n")
            .collect()
    };
    let output = if watch {
        context.output.endless()
    } else {
        context.output.clone()
    };
    let text = MachineOutput::list(all).rows(&output);
    context.show(text, people);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn an_event_matches_its_object_its_attempts_and_its_node() {
        let mut event = fixture::events().remove(1);
        assert!(
            concerns(&event, "map/7") && concerns(&event, "map/7@2"),
            "{}",
            event.object
        );
        assert!(
            !concerns(&event, "map/70")
                && !concerns(&event, "map")
                && !concerns(&event, "worker-01")
        );
        event.node = "worker-01".parse().ok();
        assert!(concerns(&event, "worker-01"));
    }
}
