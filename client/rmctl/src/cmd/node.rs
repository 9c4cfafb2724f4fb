//! `rmctl node list`.

use crate::args::Format;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::{json::Found, nodes};

/// Shows all nodes.
pub(crate) async fn list(context: &Context) -> Result<Exit, Failure> {
    let all = context.client()?.nodes().await?;
    let found = Found { items: &all, list: true };
    let text = found.text(context.format, |n| n.id.to_string());
    context.term.print(&text.unwrap_or_else(|| nodes::screen(&all, context.format == Format::Wide, context.term.paint)));
    Ok(Exit::Ok)
}
