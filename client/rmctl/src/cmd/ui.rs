//! `rmctl ui`: the web page of the resource manager.

use tokio::process::Command;

use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};

/// Opens the page, or prints its address.
pub(crate) async fn run(context: &CommandContext, print_url: bool) -> CommandResult {
    if context.addr.starts_with(headroom_types::UNIX_SOCKET_PREFIX) {
        return Err(CommandFailure::usage("a browser cannot open the page through a Unix socket")
            .help("rmctl ui --addr http://127.0.0.1:7070, or the address in `listen` of the resource manager"));
    }
    let client = context.client()?;
    if client.base().contains(',') {
        // The page is that of the leader, which a call finds. An error answer finds it as well.
        match client.status().await {
            Err(error) if error.unreachable() => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
    let url = format!("{}/ui", client.current_address());
    context.term.line(&url);
    if print_url {
        return Ok(CommandExitCode::Ok);
    }
    match Command::new("xdg-open").arg(&url).status().await {
        Ok(status) if status.success() => Ok(CommandExitCode::Ok),
        Ok(_) | Err(_) => {
            context
                .term
                .say("no browser could be opened here: the address is above");
            Ok(CommandExitCode::Ok)
        }
    }
}
