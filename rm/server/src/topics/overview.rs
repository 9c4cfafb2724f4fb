//! Topic `overview`: the cluster on one screen of bounded size. It has statistics, the load of
//! nodes, selected nodes with their containers, and waiting requests.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Bytes, NodeId};
use headroom_wire::v1::apps::AppView;
use headroom_wire::v1::error::ProblemResult;
use headroom_wire::v1::nodes::NodeView;
use serde_json::{Value, json};

use super::task_summary::LiveTaskSummary;
use super::{TopicState, attention, brief, json, log};
use crate::input::ClusterQuery;
use crate::reader::ClusterReader;
use crate::view::ClusterSnapshot;

/// Limit on nodes that are shown one by one.
const NODES: usize = 16;
/// Bars of a histogram.
const BARS: usize = 20;
/// Limit on racks; the fullest are shown.
const RACKS: usize = 48;
/// Limit on applications.
const JOBS: usize = 8;
/// Limit on waiting requests, longest wait first.
const WAITS: usize = 8;
/// Limit on warnings in the attention list.
const WARNINGS: usize = 8;

/// State of the topic.
pub(crate) async fn board(reader: &ClusterReader) -> ProblemResult<TopicState> {
    let view = reader.handle.view().await?;
    let shown = shown(&view);
    let held = reader
        .query(|reply| ClusterQuery::Held(shown.clone(), reply))
        .await?;
    let waits = reader
        .query(|reply| ClusterQuery::Waits(None, WAITS, reply))
        .await?;
    let stories = LiveTaskSummary::of(
        &reader.shared.jobs,
        view.apps
            .values()
            .filter(|a| !a.state.is_final())
            .map(|a| &a.id),
    );
    let zero = reader.clock.unix_at_zero();
    let hour = reader.shared.memory_hour(reader.clock.unix_now()).await;
    let mut status = json(&view.status(headroom_types::Tick(0), hour));
    if let Value::Object(fields) = &mut status {
        // The reader computes the uptime, so that it causes no changes.
        fields.remove("up_s");
        fields.insert("since".into(), json!(zero));
    }
    let nodes = || view.nodes.values().map(|(node, _)| node);
    let warnings = log::latest_warnings(&reader.shared.events, WARNINGS);
    let mut board = TopicState::from([
        ("status".into(), status),
        ("figures".into(), stories.figures()),
        ("fleet".into(), fleet(&view, shown.len())),
        ("racks".into(), json(&racks(&view))),
        (
            "attention".into(),
            json(&attention::lines(
                nodes(),
                &waits,
                zero,
                &view.queues.root,
                &warnings,
            )),
        ),
        (
            "waits".into(),
            json(
                &waits
                    .iter()
                    .map(|w| brief::wait(w, zero))
                    .collect::<Vec<_>>(),
            ),
        ),
        ("ladders".into(), json(&stories.ladders())),
        ("jobs".into(), json(&jobs(&view, &stories))),
    ]);
    for (place, (id, containers)) in held.iter().enumerate() {
        let Some((node, _)) = view.nodes.get(id) else {
            continue;
        };
        let mut value = brief::node(node);
        if let Value::Object(fields) = &mut value {
            let rows: Vec<Value> = containers
                .iter()
                .map(|held| brief::container(held, &stories.labels))
                .collect();
            fields.insert("held".into(), json(&rows));
            fields.insert("place".into(), json!(place));
        }
        board.insert(format!("node:{id}"), value);
    }
    Ok(board)
}

/// Nodes that are shown one by one: all nodes of a small cluster. Of a large one, up to half are
/// nodes with containers that are not ready; the rest are the fullest.
fn shown(view: &ClusterSnapshot) -> Vec<NodeId> {
    if view.nodes.len() <= NODES {
        return view.nodes.keys().cloned().collect();
    }
    let mut sick: Vec<&NodeView> = view
        .nodes
        .values()
        .map(|(n, _)| n)
        .filter(|n| n.state != "ready" && n.containers > 0)
        .collect();
    sick.truncate(NODES / 2);
    let chosen: BTreeSet<&NodeId> = sick.iter().map(|n| &n.id).collect();
    let mut rest: Vec<&NodeView> = view
        .nodes
        .values()
        .map(|(n, _)| n)
        .filter(|n| !chosen.contains(&n.id))
        .collect();
    let fullest = |n: &&NodeView| {
        std::cmp::Reverse((
            filled(n.used, n.offers.memory) / 20,
            filled(n.allocated.memory, n.offers.memory),
        ))
    };
    let most = NODES - sick.len();
    if rest.len() > most {
        rest.select_nth_unstable_by_key(most, |n| (fullest(n), n.id.clone()));
        rest.truncate(most);
    }
    rest.sort_by_key(|n| (fullest(n), n.id.clone()));
    sick.iter().chain(&rest).map(|n| n.id.clone()).collect()
}

/// Ratio in thousandths; 0 if `whole` is 0.
pub(crate) fn filled(part: Bytes, whole: Bytes) -> u64 {
    part.get()
        .saturating_mul(1000)
        .checked_div(whole.get())
        .unwrap_or(0)
}

/// Number of nodes by state and by load.
fn fleet(view: &ClusterSnapshot, shown: usize) -> Value {
    let mut states: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut granted, mut used) = ([0_u32; BARS], [0_u32; BARS]);
    let (mut largest, mut heap) = (Bytes::ZERO, Bytes::ZERO);
    for (node, _) in view.nodes.values() {
        *states.entry(node.state.as_str()).or_default() += 1;
        heap = heap.saturating_add(node.allocated_heap);
        if node.state != "ready" {
            continue;
        }
        largest = largest.max(node.offers.memory.saturating_sub(node.allocated.memory));
        for (bars, part) in [
            (&mut granted, node.allocated.memory),
            (&mut used, node.used),
        ] {
            let at = usize::try_from(filled(part, node.offers.memory)).unwrap_or(0) * BARS / 1001;
            if let Some(bar) = bars.get_mut(at.min(BARS - 1)) {
                *bar += 1;
            }
        }
    }
    json!({"states": states, "granted": granted, "used": used, "largest_free": largest, "heap": heap, "shown": shown})
}

/// Sums over the nodes of one rack.
#[derive(Default)]
struct RackTotals {
    nodes: u32,
    not_ready: u32,
    memory: Bytes,
    allocated: Bytes,
    used: Bytes,
    containers: u32,
}

fn racks(view: &ClusterSnapshot) -> Vec<Value> {
    let mut racks: BTreeMap<&str, RackTotals> = BTreeMap::new();
    for (node, _) in view.nodes.values() {
        let rack = racks
            .entry(node.traits.rack.as_ref().map_or("", |r| r.as_str()))
            .or_default();
        rack.nodes += 1;
        rack.not_ready += u32::from(node.state != "ready");
        rack.memory = rack.memory.saturating_add(node.offers.memory);
        rack.allocated = rack.allocated.saturating_add(node.allocated.memory);
        rack.used = rack.used.saturating_add(node.used);
        rack.containers = rack.containers.saturating_add(node.containers);
    }
    if racks.len() < 2 {
        return Vec::new();
    }
    let all = racks.len();
    let mut rows: Vec<(&str, RackTotals)> = racks.into_iter().collect();
    if all > RACKS {
        rows.sort_by_key(|(_, r)| std::cmp::Reverse(filled(r.allocated, r.memory)));
        rows.truncate(RACKS);
    }
    let row = |(name, r): (&str, RackTotals)| {
        json!({
            "rack": name, "nodes": r.nodes, "not_ready": r.not_ready, "memory": r.memory, "allocated": r.allocated, "used": r.used,
            "containers": r.containers, "of": all,
        })
    };
    rows.into_iter().map(row).collect()
}

/// Live applications, newest first, then ended ones, newest first.
fn jobs(view: &ClusterSnapshot, stories: &LiveTaskSummary) -> Vec<Value> {
    let newest = |over: bool| {
        view.apps
            .values()
            .rev()
            .filter(move |a| a.state.is_final() == over)
    };
    let total = |a: &AppId| stories.totals.get(a);
    let row = |a: &AppView| brief::app(a, total(&a.id));
    newest(false)
        .chain(newest(true))
        .take(JOBS)
        .map(row)
        .collect()
}
