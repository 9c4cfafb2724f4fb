//! `rmctl operator metrics`: a metrics page, or some series of it.

use headroom_client::{Client, ClientCredentials, ExpectedPeer, TokenSource};

use crate::args::OperatorMetricsArgs;
use crate::context::CommandContext;
use crate::exit::{CommandExitCode, CommandFailure, CommandResult};
use crate::render::json::MachineOutput;
use crate::render::metrics::{self, name};

/// A client of a node agent's own interface, with certificates and without a token.
pub(super) fn of_node(context: &CommandContext, url: &str) -> CommandResult<Client> {
    let trust = ClientCredentials {
        other: ExpectedPeer::Node,
        token: TokenSource::Nowhere,
        ..context.settings.trust.clone()
    };
    Ok(Client::with_credentials(url, trust)?.with_timeout(context.settings.timeout.value))
}

/// Prints the page as a scraper reads it. In the machine formats each series is a row.
pub(crate) async fn run(context: &CommandContext, args: OperatorMetricsArgs) -> CommandResult {
    let client = context.client()?;
    let asked = match &args.node {
        None => client,
        Some(node) => of_node(context, &client.node(node).await?.url)?,
    };
    let page = asked.get_text("/metrics").await?;
    let shown = match &args.filter {
        None => page.clone(),
        Some(part) => metrics::only(&page, part),
    };
    if let Some(part) = args.filter.as_ref().filter(|_| shown.is_empty()) {
        let failure = CommandFailure::not_found(format!("no metric has {part:?} in its name"));
        return Err(failure
            .near(part, page.lines().map(name))
            .help("rmctl operator metrics -o name lists them"));
    }
    let series = metrics::series(&shown);
    context.term.print(
        &MachineOutput::list(&series)
            .rows(&context.output)
            .unwrap_or(shown),
    );
    Ok(CommandExitCode::Ok)
}
