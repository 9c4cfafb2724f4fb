//! `rmctl dev`: runs a whole cluster until Ctrl-C.

use headroom_client::Client;
use headroom_types::Cpus;
use headroom_wire::v1::attached::NodeReady;

use crate::args::DevClusterArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandResult};
use crate::interrupt::Interrupt;
use crate::local_cluster::{LocalCluster, LocalClusterParams};
use crate::render::{count, json};

/// Default log level.
const LOG: &str = "warn";

/// Runs a cluster until it is interrupted.
pub(crate) async fn run(context: &CommandContext, args: DevClusterArgs) -> CommandResult {
    begin_log(LOG, context.term.live);
    let params = LocalClusterParams {
        nodes: args.nodes,
        memory: args.memory,
        cpus: None::<Cpus>,
        enforcer: args.enforcer,
        listen: args.listen,
        keep: args.keep.clone(),
        log: LOG,
    };
    let interrupt = Interrupt::listen()?;
    let mut cluster = LocalCluster::start(&params).await?;
    greet(context, &cluster, args.keep.is_some());
    let failed = tokio::select! {
        () = interrupt.asked() => None,
        failure = cluster.failed() => Some(failure),
    };
    let status = match Client::new(cluster.url()) {
        Ok(client) => client.status().await.ok(),
        Err(_) => None,
    };
    let alive = status.map_or("all containers".to_owned(), |status| {
        count(status.containers, "container")
    });
    context
        .term
        .say(&format!("stopping: waiting for {alive} to end"));
    cluster.stop().await;
    failed.map_or(Ok(CommandExitCode::Ok), Err)
}

fn greet(context: &CommandContext, cluster: &LocalCluster, kept: bool) {
    if !context.format.is_screen() {
        let nodes: Vec<_> = cluster.nodes().map(node_json).collect();
        let state = cluster.home().display().to_string();
        context.term.line(&json::line(
            &serde_json::json!({"addr": cluster.url(), "state": state, "nodes": nodes}),
        ));
        return;
    }
    let paint = context.term.paint;
    let mut lines = vec![format!("resource manager  {}", paint.strong(cluster.url()))];
    for node in cluster.nodes() {
        let label = if node.enforcer.is_kernel() {
            ""
        } else {
            " (not kernel-enforced)"
        };
        lines.push(format!(
            "node {:<12} {} · enforcer {}{label}",
            node.node, node.offers, node.enforcer
        ));
    }
    let notes = cluster
        .nodes()
        .next()
        .map(|n| n.notes.clone())
        .unwrap_or_default();
    lines.extend(notes.iter().map(|n| format!("                  {n}")));
    let fate = if kept { "kept" } else { "removed at the end" };
    lines.push(format!(
        "state             {} ({fate})",
        cluster.home().display()
    ));
    lines.push(format!("export HEADROOM_ADDR={}", cluster.url()));
    lines.push(paint.dim("next, in another terminal: rmctl status · rmctl submit FILE --follow      Ctrl-C here stops it"));
    context.term.print(&(lines.join("\n") + "\n"));
}

fn node_json(node: &NodeReady) -> serde_json::Value {
    serde_json::json!({"id": node.node, "url": node.url, "enforcer": node.enforcer, "notes": node.notes, "offers": node.offers})
}

/// Starts the log of this process on standard error, filtered by `HEADROOM_LOG`, like the logs of
/// its daemons.
pub(crate) fn begin_log(usual: &str, colour: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HEADROOM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_writer(std::io::stderr);
    // This fails only if a subscriber is set already, and this process sets only one.
    let _ = subscriber.try_init();
}
