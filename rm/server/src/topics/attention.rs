//! Attention list for operators, most important entries first.

use headroom_types::UnixMillis;
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use headroom_wire::v1::nodes::NodeView;
use headroom_wire::v1::queues::{QueueRunState, QueueView};
use serde_json::{Value, json};

use crate::input::WaitingRequest;

/// Maximum number of entries.
const LINES: usize = 12;
/// Maximum number of nodes with an entry of their own.
const NODES: usize = 4;
/// Maximum number of requests with an entry of their own.
const REQUESTS: usize = 4;
/// Maximum number of warnings.
const WARNINGS: usize = 5;

/// Entries: `level`, `text`, the object as `kind` and `id`, and a command.
pub(crate) fn lines<'a>(
    nodes: impl Iterator<Item = &'a NodeView>,
    waits: &[WaitingRequest],
    zero: UnixMillis,
    root: &QueueView,
    warnings: &[std::sync::Arc<LoggedEvent>],
) -> Vec<Value> {
    let (sick_nodes, ready): (Vec<&NodeView>, Vec<&NodeView>) =
        nodes.partition(|n| n.state != "ready");
    let mut lines = sick(&sick_nodes);
    lines.extend(ready.into_iter().filter_map(left_behind).take(NODES));
    lines.extend(waits.iter().take(REQUESTS).map(|w| waiting(w, zero)));
    lines.extend(
        root.walk()
            .into_iter()
            .filter(|q| q.state != QueueRunState::Running && q.queues.is_empty())
            .map(queue_not_running),
    );
    lines.extend(
        warnings
            .iter()
            .rev()
            .filter(|e| e.level == EventLevel::Warning)
            .take(WARNINGS)
            .map(|e| warning(e)),
    );
    lines.truncate(LINES);
    lines
}

/// Entry for memory that ended containers left on a ready node.
fn left_behind(node: &NodeView) -> Option<Value> {
    let text = format!("{} has {}", node.id, node.leftover_text()?);
    let type_in = format!("rmctl node show {}", node.id);
    Some(json!({"level": "warning", "kind": "node", "id": node.id, "text": text, "type": type_in}))
}

fn sick(sick: &[&NodeView]) -> Vec<Value> {
    let mut lines: Vec<Value> = sick.iter().take(NODES).map(|n| one_node(n)).collect();
    if sick.len() > NODES {
        let text = format!("{} more nodes are not ready", sick.len() - NODES);
        lines.push(json!({"level": "warning", "kind": "nodes", "id": "", "text": text, "type": "rmctl node list"}));
    }
    lines
}

fn one_node(node: &NodeView) -> Value {
    let back = node.undo_verb();
    let because = node
        .not_ready_reason()
        .map(|why| format!(": {why}"))
        .unwrap_or_default();
    let text = format!("{} is {}{because}", node.id, node.state);
    let level = if back.is_some() { "normal" } else { "warning" };
    let type_in = back.map_or_else(
        || "rmctl node list".to_owned(),
        |verb| format!("rmctl node {verb} {}", node.id),
    );
    json!({"level": level, "kind": "node", "id": node.id, "text": text, "type": type_in})
}

fn waiting(w: &WaitingRequest, zero: UnixMillis) -> Value {
    let text = format!("{}/{} waits: {}", w.app, w.request, w.sentence);
    json!({
        "level": "warning", "kind": "wait", "id": w.app, "since": UnixMillis(zero.0.saturating_add(w.since.0)), "text": text, "type": format!("rmctl why {}", w.app),
    })
}

fn queue_not_running(queue: &QueueView) -> Value {
    let text = format!("queue {} is {}", queue.path, queue.state.as_str());
    json!({"level": "normal", "kind": "queue", "id": queue.path, "text": text, "type": format!("rmctl queue show {}", queue.path)})
}

fn warning(event: &LoggedEvent) -> Value {
    let about = match &event.app {
        Some(app) if event.object.contains('/') => format!("{app}/{}", event.object),
        Some(_) | None => event.object.clone(),
    };
    let text = format!("{about}: {}", event.message);
    json!({
        "level": "event", "kind": "event", "reason": event.reason, "id": about, "app": event.app, "node": event.node, "at": event.time,
        "text": text, "type": format!("rmctl diagnose {about}"),
    })
}
