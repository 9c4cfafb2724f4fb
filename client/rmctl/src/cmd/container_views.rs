//! `rmctl container list, show, stats, kill, history`: views of containers, and their end.

use std::time::Duration;

use headroom_client::{Client, FollowMode};
use headroom_types::{ContainerId, NodeId};
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::v1::events::LoggedEvent;
use tokio::time::timeout;

use super::container_chart::{CHART, MARGIN, container_chart};
use crate::args::{ConfirmOptions, WatchedListOptions};
use crate::context::{CommandContext, now};
use crate::exit::{CommandExitCode, CommandResult};
use crate::interrupt::Interrupt;
use crate::render::{containers, events, figures::short, json, json::MachineOutput, top};
use crate::watch::watch;

/// Polling interval. Nodes measure a container four times per second, but users read more slowly.
const LOOK: Duration = Duration::from_secs(1);

/// Lists containers.
pub(super) async fn list(
    context: &CommandContext,
    job: Option<String>,
    node: Option<NodeId>,
    all: bool,
    list: WatchedListOptions,
) -> CommandResult {
    let context = &context.list(&list.rows);
    let client = context.client()?;
    let mut filters = Vec::new();
    if let Some(job) = job {
        filters.push(format!(
            "app={}",
            context.app_figures(&client, &job).await?.0.id
        ));
    }
    filters.extend(node.map(|node| format!("node={node}")));
    let path = format!("/v1/containers?{}", filters.join("&"));
    let path = path.trim_end_matches('?');
    let wanted = list.rows.wanted();
    let rows = |mut rows: Vec<ContainerView>| {
        rows.retain(|c| all || c.ended.is_none() && c.state != "exited");
        wanted.of(rows, now())
    };
    let screen = |rows: &[ContainerView]| containers::screen(rows, now(), context.look());
    if list.watch {
        return watch(context, path, rows, async |rows| Ok(screen(&rows))).await;
    }
    let rows = rows(client.get(path).await?)?;
    let text = MachineOutput::list(&rows).rows(&context.output);
    Ok(context.show(text, || screen(&rows)))
}

/// Shows one container.
pub(super) async fn show(context: &CommandContext, id: &ContainerId) -> CommandResult {
    let view = context.client()?.container(id).await?;
    let text = MachineOutput::one(&view).rows(&context.output);
    Ok(context.show(text, || containers::one(&view, now(), context.term.paint)))
}

/// Prints the row of `top` for one container, once or until the container has ended.
pub(super) async fn stats(
    context: &CommandContext,
    id: &ContainerId,
    follow: bool,
) -> CommandResult {
    let client = context.client()?;
    let (mut headers, interrupt) = (true, Interrupt::ctrl_c()?);
    loop {
        let (view, timeline) = tokio::try_join!(client.container(id), client.timeline(id))?;
        let row = top::ContainerUsageRow::of(&view, &timeline.samples);
        let text = match MachineOutput::one(&row).rows(&context.output) {
            Some(_) if follow => json::line(&row) + "\n",
            Some(text) => text,
            None => top::lines(
                std::slice::from_ref(&row),
                headers,
                context.term.width,
                context.term.paint,
            ),
        };
        context.term.print(&text);
        headers = false;
        if !follow || view.ended.is_some() || timeline.reason.is_some() {
            return Ok(CommandExitCode::Ok);
        }
        // A change of the memory use does not end a long poll, so poll at intervals.
        if timeout(LOOK, interrupt.asked()).await.is_ok() {
            return Ok(CommandExitCode::Ok);
        }
    }
}

/// Ends a container.
pub(super) async fn kill(
    context: &CommandContext,
    id: &ContainerId,
    sure: ConfirmOptions,
) -> CommandResult {
    let client = context.client()?;
    let before = client.container(id).await?;
    let whose = before.request.as_ref().map_or_else(
        || format!("the application master of {}", id.app),
        ToString::to_string,
    );
    let size = short(before.resource.memory);
    if sure.dry_run {
        context.term.line(&format!(
            "{id} would end: {whose}, {size} on {}",
            before.node
        ));
        return Ok(CommandExitCode::Ok);
    }
    context.confirm(
        sure,
        &format!("{id} ends: {whose}, {size} on {}", before.node),
    )?;
    let after = client.stop(id).await?;
    let text = MachineOutput::one(&after).rows(&context.output);
    let people = || {
        format!(
            "{id}  is {}: {whose}, {size} on {}\nnext: rmctl events {} --tail 5\n",
            after.state, before.node, id.app
        )
    };
    Ok(context.show(text, people))
}

/// Shows the events of a container, and its memory if its node still stores it.
pub(super) async fn history(context: &CommandContext, id: &ContainerId) -> CommandResult {
    let client = context.client()?;
    let view = client.container(id).await?;
    let happened = happened(&client, id).await?;
    if let Some(text) = MachineOutput::list(&happened).rows(&context.output) {
        context.term.print(&text);
        return Ok(CommandExitCode::Ok);
    }
    let paint = context.term.paint;
    let mut text = containers::one(&view, now(), paint);
    text.extend(
        happened
            .iter()
            .map(|e| events::line(e, false, paint) + "\n"),
    );
    // A lost node has no timeline. The rest is shown nevertheless.
    if let Ok(timeline) = client.timeline(id).await {
        text.push_str(&container_chart(
            &timeline,
            view.peak,
            context.term.width.saturating_sub(MARGIN).min(CHART),
            paint,
        ));
    }
    context.term.print(&text);
    Ok(CommandExitCode::Ok)
}

/// Events about a container, or whose message names it.
async fn happened(client: &Client, id: &ContainerId) -> CommandResult<Vec<LoggedEvent>> {
    let name = id.to_string();
    let mut lines = client.events_of(Some(&id.app), 0, FollowMode::No).await?;
    let mut found = Vec::new();
    while let Some(event) = lines.next().await {
        let event = event?;
        let names = |text: &str| {
            text.split(|c: char| c.is_whitespace() || ",;()".contains(c))
                .any(|w| w == name)
        };
        if event.object == name || names(&event.message) {
            found.push(event);
        }
    }
    Ok(found)
}
