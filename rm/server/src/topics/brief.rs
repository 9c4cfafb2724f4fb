//! Short rows for pages: few fields, without long texts that only one screen shows.

use std::collections::BTreeMap;

use headroom_types::{ContainerId, UnixMillis};
use headroom_wire::v1::apps::{AppView, ContainerView};
use headroom_wire::v1::job::{AttemptRow, JobTotals, TaskRow};
use headroom_wire::v1::nodes::NodeView;
use serde_json::{Value, json};

use super::json;
use crate::input::{HeldContainer, WaitingRequest};

/// Maximum text in a short row. Characters.
const TEXT: usize = 240;

/// Names of running tasks by container.
pub(crate) type RunningTaskNames = BTreeMap<ContainerId, Vec<String>>;

/// One node, for bars and lists.
pub(crate) fn node(node: &NodeView) -> Value {
    json!({
        "id": node.id, "state": node.state, "reason": node.reason, "enforcer": node.enforcer,
        "memory": node.offers.memory, "cpus": node.offers.cpus,
        "allocated": node.allocated.memory, "cpus_allocated": node.allocated.cpus, "heap": node.allocated_heap,
        "used": node.used, "unattributed": node.unattributed, "containers": node.containers,
        "rack": node.traits.rack, "mark": node.mark, "cordon": node.tags.cordon,
    })
}

/// One container on its node, with its running tasks.
pub(crate) fn container(held: &HeldContainer, labels: &RunningTaskNames) -> Value {
    let ContainerView {
        id,
        request,
        resource,
        state,
        used,
        granted,
        wanted,
        ..
    } = &held.view;
    json!({
        "id": id, "app": id.app, "request": request, "memory": resource.memory, "cpus": resource.cpus, "heap": held.heap,
        "state": state, "used": used, "granted": granted, "wanted": wanted.as_ref().map(|w| w.resource.memory),
        "tasks": labels.get(id).map(Vec::as_slice).unwrap_or_default(),
    })
}

/// One application, with its totals if the master reported tasks.
pub(crate) fn app(app: &AppView, totals: Option<&JobTotals>) -> Value {
    json!({
        "id": app.id, "queue": app.queue, "user": app.user, "state": app.state, "priority": app.priority,
        "diagnostics": cut(&app.diagnostics), "submitted": app.submitted, "ended": app.ended, "managed": app.managed,
        "containers": app.containers, "memory": app.memory, "pending": app.pending, "totals": totals.map(self::totals),
    })
}

/// Totals of a job. Byte-milliseconds exceed the exact integers of JavaScript, so they are
/// converted to byte-seconds.
pub(crate) fn totals(totals: &JobTotals) -> Value {
    let seconds = |byte_ms: u128| u64::try_from(byte_ms / 1000).unwrap_or(u64::MAX);
    json!({
        "mode": totals.mode, "tasks": totals.tasks, "done": totals.done, "failed": totals.failed, "running": totals.running,
        "memory_kills": totals.memory_kills, "collateral_reruns": totals.collateral_reruns, "transient": totals.transient,
        "escalated": totals.escalated, "grown": totals.grown,
        "rerun_byte_s": seconds(totals.rerun_byte_ms), "allocated_byte_s": seconds(totals.allocated_byte_ms),
    })
}

/// One task with the outcome of its attempts.
pub(crate) fn task(row: &TaskRow) -> Value {
    json!({
        "task": row.task, "state": row.state, "rung": row.rung, "heap": row.profile.heap, "overhead": row.profile.overhead,
        "note": cut(&row.note), "attempts": row.attempts.iter().map(attempt).collect::<Vec<_>>(),
    })
}

fn attempt(a: &AttemptRow) -> Value {
    json!({
        "n": a.attempt.attempt, "rung": a.rung, "heap": a.profile.heap, "overhead": a.profile.overhead,
        "container": a.container, "node": a.node, "started": a.started, "ended": a.ended, "peak": a.peak, "used": a.used,
        "reason": a.reason.map(|r| r.to_string()), "charge": a.reason.as_ref().map(|r| r.charge()), "dimension": a.dimension,
        "grown": a.grown.iter().map(|g| json!({"at": g.at, "from": g.from, "to": g.to})).collect::<Vec<_>>(),
        "cause": a.diagnosis.first().map(|d| d.name), "decision": cut(&a.decision),
        "treatment": a.treatment.map(|treated| treated.to_string()),
    })
}

/// One attempt with all fields of its own screen.
pub(crate) fn whole_attempt(a: &AttemptRow) -> Value {
    let mut value = json(a);
    if let Value::Object(fields) = &mut value {
        fields.insert(
            "charge".into(),
            json(&a.reason.as_ref().map(|r| r.charge())),
        );
        fields.insert("verdict".into(), json(&a.reason.map(|r| r.to_string())));
        fields.insert("sentence".into(), json(&a.reason.map(|r| r.sentence())));
    }
    value
}

/// One waiting request; `zero` is the wall-clock time at tick 0.
pub(crate) fn wait(w: &WaitingRequest, zero: UnixMillis) -> Value {
    json!({
        "app": w.app, "request": w.request, "queue": w.queue, "since": zero.0.saturating_add(w.since.0), "missing": w.missing,
        "asks": {"memory": w.asks.memory, "cpus": w.asks.cpus}, "sentence": w.sentence,
    })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
