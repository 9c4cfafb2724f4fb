//! `rmctl container`: shows containers and changes the size of a running one.

use std::time::Duration;

use headroom_client::DryRunMode;
use headroom_types::ContainerId;
use headroom_wire::v1::apps::{ContainerView, ResizeContainer};

use super::container_chart::{CHART, MARGIN, container_chart};
use super::{container_access, container_views};
use crate::args::{ContainerResizeArgs, ContainerSubcommand};
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};
use crate::render::{figures::short, json::MachineOutput};

/// Longest wait for the confirmation of a node.
const CONFIRM: Duration = Duration::from_secs(30);
/// Longest wait of one poll.
const LOOK: Duration = Duration::from_secs(5);

/// Runs a `container` verb.
pub(crate) async fn run(context: &CommandContext, what: ContainerSubcommand) -> CommandResult {
    match what {
        ContainerSubcommand::Resize(args) => resize(context, args).await,
        ContainerSubcommand::Timeline { container } => timeline(context, &container).await,
        ContainerSubcommand::List {
            job,
            node,
            all,
            list,
        } => container_views::list(context, job, node, all, list).await,
        ContainerSubcommand::Show { container } => container_views::show(context, &container).await,
        ContainerSubcommand::Stats { container, follow } => {
            container_views::stats(context, &container, follow).await
        }
        ContainerSubcommand::Logs(args) => super::logs::run(context, args).await,
        ContainerSubcommand::Kill { container, sure } => {
            container_views::kill(context, &container, sure).await
        }
        ContainerSubcommand::Signal(args) => container_access::signal(context, args).await,
        ContainerSubcommand::Files(what) => container_access::files(context, what).await,
        ContainerSubcommand::Exec(args) => container_access::exec(context, args).await,
        ContainerSubcommand::History { container } => {
            container_views::history(context, &container).await
        }
    }
}

async fn timeline(context: &CommandContext, container: &ContainerId) -> CommandResult {
    let client = context.client()?;
    let found = client.timeline(container).await?;
    // The node may still have the timeline of a container that the resource manager has deleted.
    let peak = client
        .container(container)
        .await
        .ok()
        .and_then(|view| view.peak);
    let machine = MachineOutput::one(&found).text(&context.output, |t| t.container.to_string());
    let width = context.term.width.saturating_sub(MARGIN).min(CHART);
    Ok(context.show(machine, || {
        container_chart(&found, peak, width, context.term.paint)
    }))
}

async fn resize(context: &CommandContext, args: ContainerResizeArgs) -> CommandResult {
    let client = context.client()?;
    let before = client.container(&args.container).await?;
    let mut resource = before.resource.clone();
    resource.memory = args.memory.unwrap_or(resource.memory);
    resource.cpus = args.cpus.unwrap_or(resource.cpus);
    let body = ResizeContainer {
        version: args.version.or(Some(before.version)),
        resource,
        heap: args.heap,
    };
    let how = DryRunMode::of(args.dry_run);
    let answer = client.resize(&args.container, how, &body).await?;
    if args.dry_run {
        let to = &body.resource;
        context.term.line(&format!(
            "{} could be resized to {}, {}: version {}",
            before.id,
            short(to.memory),
            to.cpus.words(),
            answer.version
        ));
        return Ok(CommandExitCode::Ok);
    }
    let mut view = client.container(&args.container).await?;
    let until = tokio::time::Instant::now() + CONFIRM;
    let mut index = 0;
    while !args.no_wait && view.wanted.is_some() && tokio::time::Instant::now() < until {
        let list = format!("/v1/containers?app={}&state=running", view.id.app);
        (_, index) = client
            .get_after::<Vec<ContainerView>>(&list, index, LOOK)
            .await?;
        view = client.container(&args.container).await?;
    }
    let machine = MachineOutput::one(&view).text(&context.output, |c| c.id.to_string());
    context.show(machine, || people(&view));
    let refused = !args.no_wait && view.version < answer.version;
    Ok(if refused {
        CommandExitCode::Failed
    } else {
        CommandExitCode::Ok
    })
}

fn people(c: &ContainerView) -> String {
    let size = format!(
        "{}  has {}, {} (version {})",
        c.id,
        short(c.resource.memory),
        c.resource.cpus.words(),
        c.version
    );
    let wanted = c.wanted.as_ref().map(|w| {
        format!(
            ", {} is pending (version {})",
            short(w.resource.memory),
            w.version
        )
    });
    format!(
        "{size}{}\nnext: rmctl events --tail 5\n",
        wanted.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;
    use headroom_types::Bytes;
    use headroom_wire::v1::apps::DesiredSize;

    #[test]
    fn a_pending_size_is_shown() {
        let mut c = fixture::containers().remove(1);
        assert_eq!(
            people(&c).lines().next(),
            Some("wordcount.7.e1.c2  has 10.4G, 1 cpu (version 1)")
        );
        let mut resource = c.resource.clone();
        resource.memory = Bytes::from_gib(12);
        c.wanted = Some(DesiredSize {
            resource,
            version: 2,
        });
        assert!(
            people(&c).contains("12G is pending (version 2)"),
            "{}",
            people(&c)
        );
    }
}
