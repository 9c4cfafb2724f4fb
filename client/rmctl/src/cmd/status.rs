//! `rmctl status`: a summary of the cluster.

use headroom_wire::v1::apps::ClusterView;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};
use crate::render::{json::MachineOutput, status};
use crate::watch::watch;

/// Shows a summary of the cluster.
pub(crate) async fn run(context: &CommandContext, watched: bool) -> CommandResult {
    let client = context.client()?;
    let screen = async |cluster: &ClusterView| -> CommandResult<String> {
        let (nodes, apps) = tokio::try_join!(client.nodes(), client.apps())?;
        Ok(status::screen(cluster, &nodes, &apps, context.term.paint))
    };
    if watched {
        let draw = async |all: Vec<ClusterView>| match all.first() {
            Some(cluster) => screen(cluster).await,
            None => Ok(String::new()),
        };
        return watch(
            context,
            "/v1/status",
            |cluster: ClusterView| Ok(vec![cluster]),
            draw,
        )
        .await;
    }
    if context.format.is_screen() {
        // The three calls run at the same time.
        let (cluster, nodes, apps) =
            tokio::try_join!(client.status(), client.nodes(), client.apps())?;
        context
            .term
            .print(&status::screen(&cluster, &nodes, &apps, context.term.paint));
        return Ok(CommandExitCode::Ok);
    }
    let cluster = client.status().await?;
    let text = MachineOutput::one(&cluster).text(&context.output, |_| client.base().to_owned());
    context.show(text, String::new);
    Ok(CommandExitCode::Ok)
}
