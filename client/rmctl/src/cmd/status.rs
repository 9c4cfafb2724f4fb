//! `rmctl status`.

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::{json::Found, status};

/// Shows the cluster on one screen.
pub(crate) async fn run(context: &Context) -> Result<Exit, Failure> {
    let client = context.client()?;
    let cluster = client.status().await?;
    let found = Found { items: std::slice::from_ref(&cluster), list: false };
    let text = match found.text(context.format, |_| client.base().to_owned()) {
        Some(text) => text,
        None => status::screen(&cluster, &client.nodes().await?, &client.apps().await?, context.term.paint),
    };
    context.term.print(&text);
    Ok(Exit::Ok)
}
