//! `rmctl top`: containers by memory use. On a terminal it is a live screen, otherwise one table or
//! document.

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use headroom_client::{Client, ClientError};
use headroom_wire::v1::apps::ContainerView;

use crate::args::Top;
use crate::context::{Context, now};
use crate::exit::{Exit, Failure};
use crate::render::json::MachineOutput;
use crate::render::top::{self, Usage};
use crate::select::RowSelection;

/// Maximum number of concurrent calls.
const AT_ONCE: usize = 16;
/// Maximum number of containers whose timeline is read; those nearest to their limits come first.
const MOST: usize = 200;

/// Shows containers by memory use.
pub(crate) async fn run(context: &Context, args: Top) -> Result<Exit, Failure> {
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
    let all = look(&client, &path, &wanted).await?;
    let text = MachineOutput {
        items: &all,
        list: true,
    }
    .rows(&context.output);
    let people = || {
        top::screen(
            &all,
            context.output.headers,
            context.term.width,
            context.term.paint,
        )
    };
    context.term.print(&text.unwrap_or_else(people));
    Ok(Exit::Ok)
}

/// The running containers with the measurements of their nodes, the fullest first unless the user
/// sets another order.
pub(super) async fn look(
    client: &Client,
    path: &str,
    wanted: &RowSelection,
) -> Result<Vec<Usage>, Failure> {
    let mut all: Vec<ContainerView> = client.get(path).await?;
    all.sort_by_key(|c| {
        std::cmp::Reverse(
            c.used
                .unwrap_or_default()
                .mul_ratio(1000, c.resource.memory.get()),
        )
    });
    all.truncate(MOST);
    let past = iter(all).map(|c| async move {
        // A container that has ended meanwhile, or whose node does not answer, keeps the values of
        // the resource manager.
        let samples = client.timeline(&c.id).await.map(|t| t.samples);
        Ok::<_, ClientError>(Usage::of(&c, &samples.unwrap_or_default()))
    });
    let answers: Vec<Result<Usage, ClientError>> = past.buffered(AT_ONCE).collect().await;
    let mut all = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    if wanted.order.is_none() {
        all.sort_by_key(|u| std::cmp::Reverse(top::share(u)));
    }
    wanted.of(all, now())
}
