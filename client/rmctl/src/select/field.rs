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
use serde_json::Value;

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

/// Implements [`ListRow`]: the id, the start time, and the columns that are not a single key of the
/// document.
macro_rules! list_row {
    (
        $type:ty, |$row:ident| $id:expr $(, started: $started:expr)?
        $(, { $($column:literal: $value:expr),+ $(,)? })?
    ) => {
        impl $crate::select::field::ListRow for $type {
            fn id(&self) -> String {
                let $row = self;
                $id.to_string()
            }
            $(fn extra_columns(&self) -> Vec<(&'static str, serde_json::Value)> {
                let $row = self;
                vec![$(($column, serde_json::json!($value))),+]
            })?
            $(fn started_at(&self) -> Option<headroom_types::UnixMillis> {
                let $row = self;
                $started
            })?
        }
    };
}
pub(crate) use list_row;

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

list_row!(AppView, |row| row.id, started: Some(row.submitted), {
    "job": row.id,
    "name": row.id.name(),
    "ctr": row.containers,
    "master": if row.managed { "managed" } else { "unmanaged" },
    "note": row.diagnostics,
});

list_row!(NodeView, |row| row.id, {
    "node": row.id,
    "size": row.offers.memory,
    "alloc": row.allocated.memory,
    "free": row.free_memory(),
    "left": row.unattributed,
    "host": row.host_used,
    "peak1h": row.peak_1h,
    "ctr": row.containers,
    "cpus": row.offers.cpus,
});

list_row!(ContainerView, |row| row.id, started: Some(row.granted), {
    "container": row.id,
    "ctr": row.id,
    "app": row.id.app,
    "job": row.id.app,
    "limit": row.resource.memory,
    "memory": row.resource.memory,
    "cpus": row.resource.cpus,
    "reason": row.reason.map(|r| r.name()),
});

list_row!(TaskRow, |row| row.task, started: Some(started_or_newest(row)), {
    "stage": row.task.stage,
    "index": row.task.index,
    "limit": row.profile.memory(),
    "heap": row.profile.heap,
    "overhead": row.profile.overhead,
    "used": row.attempts.last().and_then(|a| a.used),
    "peak": row.attempts.iter().rev().find_map(|a| a.peak),
    "node": row.attempts.last().map(|a| &a.node),
    "container": row.attempts.last().map(|a| &a.container),
    "tries": row.attempts.len(),
    "reason": row.attempts.iter().rev().find_map(|a| a.reason).map(|r| r.name()),
});

/// The start of a task. A task that has not started counts as the newest.
fn started_or_newest(row: &TaskRow) -> UnixMillis {
    row.attempts
        .first()
        .map_or(UnixMillis(u64::MAX), |a| a.started)
}

list_row!(AttemptRow, |row| row.attempt, started: Some(row.started), {
    "task": row.attempt.task,
    "limit": row.profile.memory(),
    "heap": row.profile.heap,
    "overhead": row.profile.overhead,
    "reason": row.reason.map(|r| r.name()),
});

list_row!(QueueView, |row| row.path, {
    "queue": row.path.short(),
    "guaranteed": row.guaranteed.memory,
    "maximum": row.maximum.memory,
    "used": row.used.memory,
    "ctr": row.containers,
});

list_row!(LoggedEvent, |row| row.index, started: Some(row.time));

list_row!(AuditLine, |row| row.index, started: Some(row.time));

list_row!(PlacementRequest, |row| row.request, {
    "memory": row.resource.memory,
    "cpus": row.resource.cpus,
    "open": row.count.saturating_sub(row.ended),
});

list_row!(ClusterView, |row| row.epoch);

list_row!(JobHistoryRow, |row| row.name, started: Some(row.last));

list_row!(ClusterProfile, |row| row.name, started: Some(row.changed), {
    "memory": row.size().memory(),
});

#[cfg(test)]
mod tests {
    use serde_json::json;

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
