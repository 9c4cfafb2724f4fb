//! `rmctl top`: containers by memory use. On a terminal it is a live screen, otherwise one table or
//! document.

use super::container_usage::fetch_usage;
use crate::args::TopArgs;
use crate::context::CommandContext;
use crate::exit::CommandResult;
use crate::render::json::MachineOutput;
use crate::render::top;

/// Shows containers by memory use.
pub(crate) async fn run(context: &CommandContext, args: TopArgs) -> CommandResult {
    let context = &context.list(&args.rows);
    let client = context.client()?;
    let app = match &args.job {
        None => None,
        Some(job) => Some(context.app_figures(&client, job).await?.0.id),
    };
    let path = app.map_or_else(
        || "/v1/containers?state=running".to_owned(),
        |app| format!("/v1/containers?state=running&app={app}"),
    );
    let wanted = args.rows.wanted();
    if context.format.is_screen() && context.term.screen && context.term.live && !args.once {
        return super::topscreen::run(context, &client, &path, &wanted).await;
    }
    let all = fetch_usage(&client, &path, &wanted).await?;
    let text = MachineOutput::list(&all).rows(&context.output);
    let people = || {
        top::screen(
            &all,
            context.output.headers,
            context.term.width,
            context.term.paint,
        )
    };
    Ok(context.show(text, people))
}
