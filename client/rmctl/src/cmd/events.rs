//! `rmctl events`.

use headroom_client::{EventFollower, Follow};
use headroom_types::AppId;
use headroom_wire::v1::events::{Event, EventLevel};

use crate::args::{Format, Output, Rows};
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::follow::PATIENCE;
use crate::render::events;
use crate::render::json::Found;

/// Which events.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) job: Option<String>,
    pub(crate) watch: bool,
    pub(crate) warnings: bool,
    pub(crate) tail: Option<usize>,
    pub(crate) rows: Rows,
}

/// Prints what has happened, and with `watch` what happens.
pub(crate) async fn run(context: &Context, wanted: Wanted) -> Result<Exit, Failure> {
    let context = &context.list(&wanted.rows);
    let client = context.client()?;
    let app: Option<AppId> = match &wanted.job {
        Some(job) => Some(context.app(&client, job).await?.0.id),
        None => None,
    };
    let mut before = Vec::new();
    let mut cursor = 0;
    let mut lines = client.events_of(app.as_ref(), 0, Follow::No).await?;
    while let Some(event) = lines.next().await {
        let event = event?;
        cursor = event.index;
        if !wanted.warnings || event.level == EventLevel::Warning {
            before.push(event);
        }
    }
    let which = wanted.rows.wanted();
    let before = which.of(before, now())?;
    let skipped = wanted.tail.map_or(0, |n| before.len().saturating_sub(n));
    print_all(context, &before[skipped..], wanted.watch);
    if !wanted.watch {
        return Ok(Exit::Ok);
    }
    let mut follower = EventFollower::new(client, app, cursor, PATIENCE);
    loop {
        tokio::select! {
            event = follower.next() => {
                let event = event?;
                if (!wanted.warnings || event.level == EventLevel::Warning) && which.takes(&event) {
                    print_all(context, std::slice::from_ref(&event), true);
                }
            }
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Ok),
        }
    }
}

/// A stream is never one JSON document: followed, JSON is printed a line each.
fn print_all(context: &Context, all: &[Event], watch: bool) {
    let paint = context.term.paint;
    let wide = context.format == Format::Wide;
    let people = || all.iter().map(|e| events::line(e, wide, paint) + "\n").collect();
    let found = Found { items: all, list: true };
    let text = match context.format {
        Format::Json if watch => found.rows(&Output::plain(Format::Jsonl)),
        Format::Table
        | Format::Wide
        | Format::Json
        | Format::Jsonl
        | Format::Yaml
        | Format::Csv
        | Format::Name
        | Format::Cols
        | Format::Template => found.rows(&context.output),
    };
    let text = text.unwrap_or_else(people);
    context.term.print(&text);
}
