//! Memory use of the running containers, from the resource manager and the nodes.

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use headroom_client::{Client, ClientError};
use headroom_wire::v1::apps::ContainerView;

use crate::context::now;
use crate::exit::CommandResult;
use crate::render::top::{self, ContainerUsageRow};
use crate::select::RowSelection;

/// Maximum number of concurrent calls.
const AT_ONCE: usize = 16;

/// Maximum number of containers whose timeline is read; those nearest to their limits come first.
const MOST: usize = 200;

/// The running containers with the measurements of their nodes, the fullest first unless the user
/// sets another order.
pub(super) async fn fetch_usage(
    client: &Client,
    path: &str,
    wanted: &RowSelection,
) -> CommandResult<Vec<ContainerUsageRow>> {
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
        Ok::<_, ClientError>(ContainerUsageRow::of(&c, &samples.unwrap_or_default()))
    });
    let answers: Vec<Result<ContainerUsageRow, ClientError>> =
        past.buffered(AT_ONCE).collect().await;
    let mut all = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    if wanted.order.is_none() {
        all.sort_by_key(|u| std::cmp::Reverse(top::share(u)));
    }
    wanted.of(all, now())
}
