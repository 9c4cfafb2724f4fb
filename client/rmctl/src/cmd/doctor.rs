//! `rmctl doctor`: runs the checks of a node agent on this host without a daemon, or shows the
//! checks of a node's agent.

use headroom_config::NodeAgentConfig;
use headroom_nodeagent::doctor::{self, CheckResult, DoctorFinding};
use headroom_types::NodeId;
use serde::Deserialize;

use crate::args::DoctorArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render;
use crate::render::json::MachineOutput;

/// Prints the findings. The worst finding determines the exit code.
pub(crate) async fn run(context: &CommandContext, args: DoctorArgs) -> CommandResult {
    let findings = match &args.node {
        Some(node) => of_node(context, node).await?,
        None => of_this_host(args).await?,
    };
    let text = MachineOutput::list(&findings).text(&context.output, |f| f.code.to_string());
    let text = text.unwrap_or_else(|| {
        render::doctor::screen(&findings, context.term.width, context.term.paint)
    });
    context.term.print(&text);
    Ok(match doctor::worst(&findings) {
        CheckResult::Ok => CommandExitCode::Ok,
        CheckResult::Warn => CommandExitCode::NotNow,
        CheckResult::Fail => CommandExitCode::Failed,
    })
}

/// Findings of a node agent at its start, from its own interface.
async fn of_node(context: &CommandContext, node: &NodeId) -> CommandResult<Vec<DoctorFinding>> {
    #[derive(Deserialize)]
    struct NodeFindings {
        host: Vec<DoctorFinding>,
    }
    let url = context.client()?.node(node).await?.url;
    Ok(super::metrics::of_node(context, &url)?
        .get::<NodeFindings>("/v1/doctor")
        .await?
        .host)
}

async fn of_this_host(args: DoctorArgs) -> CommandResult<Vec<DoctorFinding>> {
    let mut config = match &args.config {
        None => NodeAgentConfig::default(),
        Some(path) => headroom_config::load_nodeagent(path)?,
    };
    config.state = args.state.unwrap_or(config.state);
    config.cgroup_root = args.cgroup_root.or(config.cgroup_root);
    let look = tokio::task::spawn_blocking(move || doctor::examine(&config)).await;
    look.map_err(|e| CommandFailure::failed(format!("the checks of this host failed: {e}")))
}
