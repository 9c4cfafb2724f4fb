//! Fields of a row by name: keys of its JSON document, and columns of its table that have no single
//! key there.

use headroom_types::UnixMillis;
use headroom_wire::v1::application_master::PlacementRequest;
use headroom_wire::v1::apps::{AppView, ClusterView, ContainerView};
use headroom_wire::v1::audit::AuditLine;
use headroom_wire::v1::events::LoggedEvent;
use headroom_wire::v1::job::{AttemptRow, TaskRow};
use headroom_wire::v1::job_history::JobHistoryRow;
use headroom_wire::v1::nodes::NodeView;
use headroom_wire::v1::profiles::ClusterProfile;
use headroom_wire::v1::queues::QueueView;
use serde::Serialize;
use serde_json::{Value, json};

/// One row of a list.
pub(crate) trait ListRow: Serialize {
    /// Its id, as users type it.
    fn id(&self) -> String;
    /// Columns that are not a single key of the document.
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
    /// Start time.
    fn started_at(&self) -> Option<UnixMillis> {
        None
    }
}

/// A row as a JSON document with the additional columns.
#[derive(Clone, Debug)]
pub(crate) struct RowDocument {
    value: Value,
    figures: Vec<(&'static str, Value)>,
}

impl RowDocument {
    /// Creates the document of a row.
    pub(crate) fn of<T: ListRow>(row: &T) -> RowDocument {
        // A row that cannot be serialized has no fields; the lookup reports them as unknown.
        RowDocument {
            figures: row.extra_columns(),
            ..RowDocument::bare(row)
        }
    }

    /// The field of that name: a column, or a key of the document, with dots between the levels.
    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        let figure = self
            .figures
            .iter()
            .find(|(figure, _)| figure.eq_ignore_ascii_case(name));
        if let Some((_, value)) = figure {
            return Some(value.clone());
        }
        inside(&self.value, name).or_else(|| inside(&self.value, &name.to_ascii_lowercase()))
    }

    /// Creates the document of an item without additional columns.
    pub(crate) fn bare<T: Serialize>(item: &T) -> RowDocument {
        RowDocument {
            value: serde_json::to_value(item).unwrap_or_default(),
            figures: Vec::new(),
        }
    }

    /// The JSON document.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// All field names.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .figures
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        names.extend(flat(&self.value).into_iter().map(|(name, _)| name));
        names.sort();
        names.dedup();
        names
    }
}

/// The value at a path of keys and indexes.
pub(crate) fn inside(value: &Value, path: &str) -> Option<Value> {
    let step = |at: Option<Value>, key: &str| match at? {
        Value::Object(mut map) => map.remove(key),
        Value::Array(mut list) => key
            .parse()
            .ok()
            .filter(|n| *n < list.len())
            .map(|n: usize| list.swap_remove(n)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    path.split('.').fold(Some(value.clone()), step)
}

/// All keys with a value that fits into a cell; a list counts as one value.
pub(crate) fn flat(value: &Value) -> Vec<(String, Value)> {
    fn walk(prefix: &str, value: &Value, out: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let name = if prefix.is_empty() {
                        key.clone()
                    } else {
                        format!("{prefix}.{key}")
                    };
                    walk(&name, value, out);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                out.push((prefix.to_owned(), value.clone()));
            }
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}

/// The text of a value in a cell: strings without quotes, an empty text for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(map) => map
            .get("kind")
            .and_then(Value::as_str)
            .map_or_else(|| value.to_string(), str::to_owned),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    }
}

/// A value as a number.
pub(crate) fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

impl ListRow for AppView {
    fn id(&self) -> String {
        self.id.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        let master = if self.managed { "managed" } else { "unmanaged" };
        vec![
            ("job", json!(self.id)),
            ("name", json!(self.id.name())),
            ("ctr", json!(self.containers)),
            ("master", json!(master)),
            ("note", json!(self.diagnostics)),
        ]
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.submitted)
    }
}

impl ListRow for NodeView {
    fn id(&self) -> String {
        self.id.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("node", json!(self.id)),
            ("size", json!(self.offers.memory)),
            ("alloc", json!(self.allocated.memory)),
            ("free", json!(self.free_memory())),
            ("left", json!(self.unattributed)),
            ("host", json!(self.host_used)),
            ("peak1h", json!(self.peak_1h)),
            ("ctr", json!(self.containers)),
            ("cpus", json!(self.offers.cpus)),
        ]
    }
}

impl ListRow for ContainerView {
    fn id(&self) -> String {
        self.id.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("container", json!(self.id)),
            ("ctr", json!(self.id)),
            ("app", json!(self.id.app)),
            ("job", json!(self.id.app)),
            ("limit", json!(self.resource.memory)),
            ("memory", json!(self.resource.memory)),
            ("cpus", json!(self.resource.cpus)),
            ("reason", json!(self.reason.map(|r| r.name()))),
        ]
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.granted)
    }
}

impl ListRow for TaskRow {
    fn id(&self) -> String {
        self.task.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        let last = self.attempts.last();
        vec![
            ("stage", json!(self.task.stage)),
            ("index", json!(self.task.index)),
            ("limit", json!(self.profile.memory())),
            ("heap", json!(self.profile.heap)),
            ("overhead", json!(self.profile.overhead)),
            ("used", json!(last.and_then(|a| a.used))),
            (
                "peak",
                json!(self.attempts.iter().rev().find_map(|a| a.peak)),
            ),
            ("node", json!(last.map(|a| &a.node))),
            ("container", json!(last.map(|a| &a.container))),
            ("tries", json!(self.attempts.len())),
            (
                "reason",
                json!(
                    self.attempts
                        .iter()
                        .rev()
                        .find_map(|a| a.reason)
                        .map(|r| r.name())
                ),
            ),
        ]
    }
    fn started_at(&self) -> Option<UnixMillis> {
        // A task that has not started counts as the newest.
        Some(
            self.attempts
                .first()
                .map_or(UnixMillis(u64::MAX), |a| a.started),
        )
    }
}

impl ListRow for AttemptRow {
    fn id(&self) -> String {
        self.attempt.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("task", json!(self.attempt.task)),
            ("limit", json!(self.profile.memory())),
            ("heap", json!(self.profile.heap)),
            ("overhead", json!(self.profile.overhead)),
            ("reason", json!(self.reason.map(|r| r.name()))),
        ]
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.started)
    }
}

impl ListRow for QueueView {
    fn id(&self) -> String {
        self.path.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("queue", json!(self.path.short())),
            ("guaranteed", json!(self.guaranteed.memory)),
            ("maximum", json!(self.maximum.memory)),
            ("used", json!(self.used.memory)),
            ("ctr", json!(self.containers)),
        ]
    }
}

impl ListRow for LoggedEvent {
    fn id(&self) -> String {
        self.index.to_string()
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.time)
    }
}

impl ListRow for AuditLine {
    fn id(&self) -> String {
        self.index.to_string()
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.time)
    }
}

impl ListRow for PlacementRequest {
    fn id(&self) -> String {
        self.request.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("memory", json!(self.resource.memory)),
            ("cpus", json!(self.resource.cpus)),
            ("open", json!(self.count.saturating_sub(self.ended))),
        ]
    }
}

impl ListRow for ClusterView {
    fn id(&self) -> String {
        self.epoch.to_string()
    }
}

impl ListRow for JobHistoryRow {
    fn id(&self) -> String {
        self.name.to_string()
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.last)
    }
}

impl ListRow for ClusterProfile {
    fn id(&self) -> String {
        self.name.to_string()
    }
    fn extra_columns(&self) -> Vec<(&'static str, Value)> {
        vec![("memory", json!(self.size().memory()))]
    }
    fn started_at(&self) -> Option<UnixMillis> {
        Some(self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn fields_are_found_by_column_name_and_by_path() {
        let doc = RowDocument::of(&fixture::escalated());
        let get = |name: &str| {
            doc.get(name)
                .map(|v| text(&v))
                .unwrap_or_else(|| "none".into())
        };
        assert_eq!(get("state"), "running");
        assert_eq!(get("REASON"), "overhead_oom");
        assert_eq!(get("attempts.0.node"), "worker-02");
        assert_eq!(
            (get("attempts.9.node"), get("nothing")),
            ("none".into(), "none".into())
        );
        assert!(
            doc.names().contains(&"profile.heap".to_owned()),
            "{:?}",
            doc.names()
        );
    }

    #[test]
    fn cells_are_texts_without_quotes() {
        assert_eq!(text(&json!({"kind": "exit", "code": 3})), "exit");
        assert_eq!(
            (
                text(&json!("a b")),
                text(&json!(null)),
                text(&json!([1, 2]))
            ),
            ("a b".into(), String::new(), "[1,2]".into())
        );
    }
}
