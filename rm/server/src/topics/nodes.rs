//! Topics for one node with all its containers, and for one container with its tasks.

use headroom_types::{ContainerId, NodeId};
use headroom_wire::v1::error::ProblemResult;
use serde_json::{Value, json};

use super::task_summary::LiveTaskSummary;
use super::{TopicState, brief, json};
use crate::input::ClusterQuery;
use crate::reader::ClusterReader;
use crate::view;

/// Limit on containers of one node.
const CONTAINERS: usize = 1000;

/// State of the topic of one node; `None` if it does not exist.
pub(crate) async fn node(reader: &ClusterReader, id: &NodeId) -> ProblemResult<Option<TopicState>> {
    let Some((found, _)) = reader.handle.node(id).await? else {
        return Ok(None);
    };
    let held = reader
        .query(|reply| ClusterQuery::Held(vec![id.clone()], reply))
        .await?;
    let view = reader.handle.last();
    let stories = LiveTaskSummary::of(
        &reader.shared.jobs,
        view.apps
            .values()
            .filter(|a| !a.state.is_final())
            .map(|a| &a.id),
    );
    let mut board = TopicState::from([
        ("node".into(), json(&view::steady(&found))),
        ("row".into(), brief::node(&found)),
    ]);
    for held in held
        .iter()
        .flat_map(|(_, containers)| containers)
        .take(CONTAINERS)
    {
        board.insert(
            format!("container:{}", held.view.id),
            brief::container(held, &stories.labels),
        );
    }
    Ok(Some(board))
}

/// State of the topic of one container; `None` if it is unknown or no longer kept.
pub(crate) async fn container(
    reader: &ClusterReader,
    id: &ContainerId,
) -> ProblemResult<Option<TopicState>> {
    let found = reader
        .query(|reply| ClusterQuery::Container(id.clone(), reply))
        .await?;
    let Some(found) = found else { return Ok(None) };
    let mut board = TopicState::from([("container".into(), json(&found))]);
    if let Some(snapshot) = reader.shared.jobs.snapshot(&id.app) {
        let inside = |row: &&headroom_wire::v1::job::TaskRow| {
            row.attempts.iter().any(|a| a.container == *id)
        };
        let rows: Vec<Value> = snapshot
            .rows()
            .filter(inside)
            .take(200)
            .map(brief::task)
            .collect();
        board.insert("tasks".into(), json!(rows));
    }
    Ok(Some(board))
}
