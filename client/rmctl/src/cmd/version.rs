//! `rmctl version`: answers also when no resource manager does.

use serde::Serialize;

use crate::args::Format;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::render::json;

/// Both versions.
#[derive(Debug, Serialize)]
struct Versions {
    /// Of this program.
    client: &'static str,
    /// Of the resource manager; `None` when none answers.
    server: Option<String>,
    /// Where it was looked for.
    addr: String,
}

/// Prints both versions.
pub(crate) async fn run(context: &Context) -> Result<Exit, Failure> {
    let server = context.client()?.status().await.ok().map(|s| s.version);
    let versions = Versions { client: env!("CARGO_PKG_VERSION"), server, addr: context.addr.clone() };
    let text = match context.format {
        Format::Json => json::pretty(&versions),
        Format::Jsonl => json::line(&versions) + "\n",
        Format::Name => format!("{}\n", versions.client),
        Format::Table | Format::Wide => {
            let server = versions.server.as_deref().unwrap_or("no answer");
            format!("rmctl            {}\nresourcemanager  {server} ({})\n", versions.client, versions.addr)
        }
    };
    context.term.print(&text);
    Ok(Exit::Ok)
}
