//! `rmctl version`: versions of the program and of the server. Works without a server.

use serde::Serialize;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::json::MachineOutput;

/// Both versions.
#[derive(Debug, Serialize)]
struct VersionReport {
    /// Version of this program.
    client: &'static str,
    /// Version of the resource manager, or `None` without an answer.
    server: Option<String>,
    /// Address of the resource manager.
    addr: String,
}

/// Prints both versions.
pub(crate) async fn run(context: &CommandContext, check: bool) -> CommandResult {
    let server = context.client()?.status().await.ok().map(|s| s.version);
    let versions = VersionReport {
        client: env!("CARGO_PKG_VERSION"),
        server,
        addr: context.addr.clone(),
    };
    let text = MachineOutput::one(&versions)
        .text(&context.output, |v| v.client.to_owned())
        .unwrap_or_else(|| {
            let server = versions.server.as_deref().unwrap_or("no answer");
            format!(
                "rmctl            {}\nresourcemanager  {server} ({})\n",
                versions.client, versions.addr
            )
        });
    context.term.print(&text);
    if !check {
        return Ok(CommandExitCode::Ok);
    }
    match versions.server.as_deref() {
        Some(server) if server == versions.client => Ok(CommandExitCode::Ok),
        Some(server) => Err(CommandFailure::new(
            CommandExitCode::Conflict,
            format!(
                "rmctl has version {}, the resource manager {server}",
                versions.client
            ),
        )
        .help("install that version of rmctl; calls of /v1 that both versions know still work")),
        None => Err(CommandFailure::new(
            CommandExitCode::Unreachable,
            format!("no answer from {}", versions.addr),
        )
        .help("is it running? `rmctl dev` starts a cluster on this machine")),
    }
}
