//! `rmctl node`: lists, shows, drains and restores nodes.

use std::time::Duration;

use headroom_client::Client;
use headroom_types::NodeId;
use headroom_wire::v1::apps::ContainerView;
use headroom_wire::v1::nodes::{DrainNodeRequest, NodeView};

use super::{events, tags};
use crate::args::{NodeDrainArgs, NodeSubcommand, WatchedListOptions};
use crate::context::{CommandContext, now, user};
use crate::exit::{CommandExitCode, CommandResult};
use crate::progress::ProgressLine;
use crate::render::{count, figures::span, json::MachineOutput, nodes};
use crate::watch::watch;

/// Longest wait of one poll while a node drains.
const LOOK: Duration = Duration::from_secs(20);

/// Runs a `node` verb.
pub(crate) async fn run(context: &CommandContext, what: NodeSubcommand) -> CommandResult {
    match what {
        NodeSubcommand::Join(args) => super::acl::join(context, &args).await,
        NodeSubcommand::List(args) => list(context, args).await,
        NodeSubcommand::Drain(args) => drain(context, args).await,
        NodeSubcommand::Cordon(args) => tags::cordon(context, args).await,
        NodeSubcommand::Uncordon(args) => tags::uncordon(context, args).await,
        NodeSubcommand::Label(args) => tags::label(context, args).await,
        NodeSubcommand::Taint(args) => tags::taint(context, args).await,
        NodeSubcommand::Bench(args) => super::bench::run(context, args).await,
        NodeSubcommand::Undrain { node } => undrain(context, &node).await,
        NodeSubcommand::Show { node } => show(context, &node).await,
        NodeSubcommand::Events { node, watch } => happened(context, &node, watch).await,
    }
}

/// Lists all nodes.
async fn list(context: &CommandContext, args: WatchedListOptions) -> CommandResult {
    let context = &context.list(&args.rows);
    let wanted = args.rows.wanted();
    let screen = |all: &[NodeView]| nodes::screen(all, context.look());
    if args.watch {
        let rows = |all: Vec<NodeView>| wanted.of(all, now());
        return watch(context, "/v1/nodes", rows, async |all| Ok(screen(&all))).await;
    }
    let all = wanted.of(context.client()?.nodes().await?, now())?;
    let text = MachineOutput::list(&all).rows(&context.output);
    Ok(context.show(text, || screen(&all)))
}

/// Shows one node with its containers.
async fn show(context: &CommandContext, node: &NodeId) -> CommandResult {
    let client = context.client()?;
    let view = client.node(node).await?;
    if let Some(text) = MachineOutput::one(&view).rows(&context.output) {
        context.term.print(&text);
        return Ok(CommandExitCode::Ok);
    }
    let on_it: Vec<ContainerView> = client.get(&format!("/v1/containers?node={node}")).await?;
    context
        .term
        .print(&nodes::one(&view, &on_it, now(), context.term.paint));
    Ok(CommandExitCode::Ok)
}

async fn happened(context: &CommandContext, node: &NodeId, watch: bool) -> CommandResult {
    context.client()?.node(node).await?;
    events::run(
        context,
        events::EventSelection {
            object: Some(node.to_string()),
            watch,
            ..events::EventSelection::default()
        },
    )
    .await
}

async fn drain(context: &CommandContext, args: NodeDrainArgs) -> CommandResult {
    let client = context.client()?;
    let fate = match (args.deadline, args.decommission) {
        (Some(time), _) => format!("the rest is stopped in {}", span(time)),
        (None, true) => "it leaves the cluster once they have ended".to_owned(),
        (None, false) => "they may run to their end".to_owned(),
    };
    if args.sure.dry_run || args.deadline.is_some() {
        let view = client.node(&args.node).await?;
        let on_it = count(view.containers, "container");
        if args.sure.dry_run {
            let all: Vec<ContainerView> = client
                .get(&format!("/v1/containers?node={}", args.node))
                .await?;
            context.term.line(&format!(
                "{} would be drained: {on_it} on it, {fate}",
                view.id
            ));
            context
                .term
                .print(&nodes::on_it(&all, now(), context.term.paint));
            return Ok(CommandExitCode::Ok);
        }
        context.confirm(
            args.sure,
            &format!("{} is drained: {on_it} on it, {fate}", view.id),
        )?;
    }
    let reason = args
        .reason
        .or_else(|| user().map(|user| format!("drained by {user}")))
        .unwrap_or_default();
    let body = DrainNodeRequest {
        deadline_s: args.deadline.map(|d| d.as_secs().max(1)),
        reason,
        decommission: args.decommission,
    };
    let mut view = client.drain(&args.node, &body).await?;
    if !args.no_wait {
        view = until_empty(context, &client, view).await?;
    }
    tags::print_node(context, &view, |v| nodes::drained(v, now()))
}

/// Prints the number of remaining containers whenever it falls, until it is zero.
async fn until_empty(
    context: &CommandContext,
    client: &Client,
    mut view: NodeView,
) -> CommandResult<NodeView> {
    let (path, mut index, mut said) = (format!("/v1/nodes/{}", view.id), 0, None);
    let (progress, most) = (
        ProgressLine::containers(&context.term, view.id.as_str()),
        u64::from(view.containers),
    );
    while view.mark.as_ref().is_some_and(|mark| !mark.drained) {
        if said != Some(view.containers) {
            said = Some(view.containers);
            let left = view
                .mark
                .as_ref()
                .and_then(|m| m.until)
                .map(|until| span(until.since(now())));
            let left = left
                .map(|l| format!(", the rest is stopped in {l}"))
                .unwrap_or_default();
            progress.at(most.saturating_sub(u64::from(view.containers)), most);
            let line = format!(
                "{}  {} on it{left}",
                view.id,
                count(view.containers, "container")
            );
            progress.above(|| context.term.say(&line));
        }
        (view, index) = client.get_after::<NodeView>(&path, index, LOOK).await?;
    }
    Ok(view)
}

async fn undrain(context: &CommandContext, node: &NodeId) -> CommandResult {
    let client = context.client()?;
    let view = client.undrain(node).await?;
    tags::print_node(context, &view, |v| {
        format!("{} is {} again\nnext: rmctl node list\n", v.id, v.state)
    })
}
