//! List topics: nodes, applications and audit log by page; queues, families and profiles whole.

use std::sync::Arc;

use headroom_types::AppId;
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::audit::AuditLine;
use headroom_wire::v1::error::ProblemResult;
use headroom_wire::v1::nodes::NodeView;
use headroom_wire::v1::queues::QueueView;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::overview::filled;
use super::{TopicState, brief, json};
use crate::audit::{AuditFilter, AuditRecorder};
use crate::input::ClusterQuery;
use crate::reader::ClusterReader;

/// Rows of one page.
pub(crate) const ROWS: usize = 50;
/// Limit on queues.
const QUEUES: usize = 1000;
/// Limit on waiting requests, longest wait first.
const WAITS: usize = 200;

/// Sort order of the list of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeSortOrder {
    /// By name.
    #[default]
    Name,
    /// By the share of allocated memory, largest first.
    Granted,
    /// By the share of used memory, largest first.
    Used,
    /// By state, nodes that are not ready first.
    State,
}

/// Selection of one page of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListPage {
    /// Number of rows before the page.
    pub(crate) from: usize,
    /// Sort order.
    pub(crate) sort: NodeSortOrder,
    /// Text that the rows contain, in lower case.
    pub(crate) find: Option<String>,
}

impl ListPage {
    fn finds(&self, texts: &[&str]) -> bool {
        self.find
            .as_ref()
            .is_none_or(|find| texts.iter().any(|t| t.to_lowercase().contains(find)))
    }
}

/// One page of the list of nodes.
pub(crate) async fn nodes(reader: &ClusterReader, piece: &ListPage) -> ProblemResult<TopicState> {
    let view = reader.handle.view().await?;
    let rack = |n: &NodeView| {
        n.traits
            .rack
            .as_ref()
            .map(|r| r.to_string())
            .unwrap_or_default()
    };
    let mut found: Vec<&NodeView> = view.nodes.values().map(|(n, _)| n).collect();
    if piece.find.is_some() {
        found.retain(|n| piece.finds(&[n.id.as_str(), &n.state, &rack(n)]));
    }
    let by = |n: &NodeView| match piece.sort {
        NodeSortOrder::Name => (0, 0),
        NodeSortOrder::Granted => (
            0,
            1000_u64.saturating_sub(filled(n.allocated.memory, n.offers.memory)),
        ),
        NodeSortOrder::Used => (0, 1000_u64.saturating_sub(filled(n.used, n.offers.memory))),
        NodeSortOrder::State => (u8::from(n.state == "ready"), 0),
    };
    // The sort is stable, and the input is sorted by name.
    found.sort_by_key(|n| by(n));
    let rows: Vec<&NodeView> = found.iter().skip(piece.from).take(ROWS).copied().collect();
    let ids: Vec<Value> = rows.iter().map(|n| json(&n.id)).collect();
    let largest = view.nodes.values().map(|(n, _)| n.offers.memory).max();
    let page = json!({"from": piece.from, "of": found.len(), "all": view.nodes.len(), "ids": ids, "rows": ROWS, "largest": largest});
    let mut board = TopicState::from([("page".into(), page)]);
    board.extend(
        rows.into_iter()
            .map(|n| (format!("node:{}", n.id), brief::node(n))),
    );
    Ok(board)
}

/// One page of the list of applications, newest first.
pub(crate) async fn jobs(reader: &ClusterReader, piece: &ListPage) -> ProblemResult<TopicState> {
    let view = reader.handle.view().await?;
    let wanted = |a: &&AppView| {
        let (id, queue) = (a.id.to_string(), a.queue.to_string());
        piece.finds(&[&id, &queue, &a.user, a.state.as_str()])
    };
    let found: Vec<&AppView> = view.apps.values().rev().filter(wanted).collect();
    let rows: Vec<&AppView> = found.iter().skip(piece.from).take(ROWS).copied().collect();
    let ids: Vec<Value> = rows.iter().map(|a| json(&a.id)).collect();
    let page = json!({"from": piece.from, "of": found.len(), "all": view.apps.len(), "ids": ids, "rows": ROWS});
    let mut board = TopicState::from([("page".into(), page)]);
    let row = |a: &AppView| {
        (
            format!("app:{}", a.id),
            brief::app(a, reader.shared.jobs.totals(&a.id).as_ref()),
        )
    };
    board.extend(rows.into_iter().map(row));
    Ok(board)
}

/// All queues, with their waiting requests.
pub(crate) async fn queues(reader: &ClusterReader) -> ProblemResult<TopicState> {
    let view = reader.handle.view().await?;
    let mut board = TopicState::new();
    let all = view.queues.root.walk();
    let order: Vec<Value> = all.iter().take(QUEUES).map(|q| json(&q.path)).collect();
    board.insert("order".into(), json(&order));
    for queue in all.into_iter().take(QUEUES) {
        let children = queue
            .queues
            .iter()
            .map(|q| q.path.clone())
            .collect::<Vec<_>>();
        let mut value = json(&QueueView {
            queues: Vec::new(),
            ..queue.clone()
        });
        if let Value::Object(fields) = &mut value {
            fields.insert("children".into(), json(&children));
        }
        board.insert(format!("queue:{}", queue.path), value);
    }
    board.insert("waits".into(), waits(reader, None).await?);
    Ok(board)
}

/// Waiting requests with their reasons.
pub(crate) async fn waits(reader: &ClusterReader, app: Option<AppId>) -> ProblemResult<Value> {
    let waits = reader
        .query(|reply| ClusterQuery::Waits(app, WAITS, reply))
        .await?;
    let zero = reader.clock.unix_at_zero();
    Ok(json(
        &waits
            .iter()
            .map(|w| brief::wait(w, zero))
            .collect::<Vec<_>>(),
    ))
}

/// One page of the audit log, latest first.
pub(crate) fn audit(log: &AuditRecorder, piece: &ListPage) -> TopicState {
    let all = log.read(0, &AuditFilter::default());
    let finds = |line: &&Arc<AuditLine>| {
        let code = line.code.map(|code| code.to_string()).unwrap_or_default();
        piece.finds(&[
            &line.who,
            &line.verb,
            &line.object,
            &line.request,
            &line.outcome.to_string(),
            &code,
        ])
    };
    let found: Vec<&Arc<AuditLine>> = all.iter().rev().filter(finds).collect();
    let rows: Vec<&AuditLine> = found
        .iter()
        .skip(piece.from)
        .take(ROWS)
        .map(|line| &***line)
        .collect();
    let page = json!({"from": piece.from, "of": found.len(), "all": all.len(), "rows": ROWS});
    TopicState::from([("page".into(), page), ("lines".into(), json(&rows))])
}

/// All profiles of the cluster.
pub(crate) fn profiles(reader: &ClusterReader) -> TopicState {
    let all = reader.shared.profiles.borrow().clone();
    all.known
        .values()
        .map(|profile| (format!("profile:{}", profile.name), json(profile)))
        .collect()
}

/// All families of the usage history.
pub(crate) fn families(reader: &ClusterReader) -> TopicState {
    let rows = reader.shared.families.list(None);
    rows.iter()
        .map(|row| (format!("family:{}/{}", row.user, row.name), json(row)))
        .collect()
}
