//! Parser of a tree of queues that reports every error at once.
//!
//! serde stops at the first wrong key. An operator who sends a whole tree needs all errors.

use std::collections::BTreeMap;

use headroom_types::{Name, QueuePath};
use serde::Deserialize;
use serde_json::Value;

use super::queues::{QueueProblem, QueueSpec};
use super::share::ResourceShare;

/// All keys of a queue.
pub const KEYS: [&str; 13] = [
    "guaranteed",
    "master_share",
    "max_apps",
    "max_lifetime_ms",
    "max_running",
    "maximum",
    "order",
    "preemptable",
    "priority",
    "queues",
    "state",
    "user_limit",
    "weight",
];
/// Maximum number of queues in one tree.
pub const MAX_QUEUES: usize = 10_000;

/// Parses a tree; returns the valid part and all errors.
pub fn parse_queue_tree(value: &Value) -> (QueueSpec, Vec<QueueProblem>) {
    let mut reader = QueueTreeParser {
        problems: Vec::new(),
        queues: 0,
    };
    let spec = reader.queue(&QueuePath::root(), value);
    (spec, reader.problems)
}

struct QueueTreeParser {
    problems: Vec<QueueProblem>,
    queues: usize,
}

impl QueueTreeParser {
    fn note(
        &mut self,
        queue: &QueuePath,
        key: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let queue = queue.to_string();
        self.problems.push(QueueProblem {
            queue,
            key: key.into(),
            what: what.into(),
            fix: fix.into(),
        });
    }

    fn queue(&mut self, path: &QueuePath, value: &Value) -> QueueSpec {
        let mut spec = QueueSpec::default();
        self.queues += 1;
        let Some(object) = value.as_object() else {
            self.note(
                path,
                "",
                "a queue is an object with keys",
                "write {} for a queue without any",
            );
            return spec;
        };
        for (key, value) in object {
            let known = KEYS.contains(&key.as_str());
            match key.as_str() {
                "queues" => spec.queues = self.children(path, value),
                "guaranteed" => spec.guaranteed = self.share(path, key, value),
                "maximum" => spec.maximum = self.share(path, key, value),
                _ if known => self.plain(path, key, value, &mut spec),
                _ => self.note(
                    path,
                    key,
                    format!("a queue has no key {key:?}"),
                    format!("the keys are {}", KEYS.join(", ")),
                ),
            }
        }
        spec
    }

    fn children(&mut self, path: &QueuePath, value: &Value) -> BTreeMap<Name, QueueSpec> {
        let Some(object) = value.as_object() else {
            self.note(
                path,
                "queues",
                "`queues` must be an object with queue names as keys",
                "write {\"etl\": {}}",
            );
            return BTreeMap::new();
        };
        let mut found = BTreeMap::new();
        for (name, value) in object {
            if self.queues >= MAX_QUEUES {
                self.note(
                    path,
                    "queues",
                    format!("more than {MAX_QUEUES} queues"),
                    "use fewer queues",
                );
                break;
            }
            let whole = format!("{path}.{name}");
            match (name.parse::<Name>(), whole.parse::<QueuePath>()) {
                (Ok(name), Ok(below)) => {
                    let spec = self.queue(&below, value);
                    found.insert(name, spec);
                }
                (Err(e), _) | (_, Err(e)) => self.note(
                    path,
                    format!("queues.{name}"),
                    e.to_string(),
                    "choose another name",
                ),
            }
        }
        found
    }

    fn share(&mut self, path: &QueuePath, key: &str, value: &Value) -> ResourceShare {
        ResourceShare::read(value).unwrap_or_else(|wrong| {
            for (part, what) in wrong {
                let key = if part.is_empty() {
                    key.to_owned()
                } else {
                    format!("{key}.{part}")
                };
                self.note(
                    path,
                    key,
                    what,
                    "write one percentage, or {\"memory\": \"80GiB\", \"cpus\": 16}",
                );
            }
            ResourceShare::default()
        })
    }

    fn plain(&mut self, path: &QueuePath, key: &str, value: &Value, spec: &mut QueueSpec) {
        fn set<'v, T: Deserialize<'v>>(place: &mut T, value: &'v Value) -> Result<(), String> {
            T::deserialize(value)
                .map(|v| *place = v)
                .map_err(|e| e.to_string())
        }
        let (read, fix) = match key {
            "weight" => (set(&mut spec.weight, value), "write a whole number from 1"),
            "priority" => (set(&mut spec.priority, value), "write a whole number"),
            "order" => (set(&mut spec.order, value), "write \"fifo\" or \"fair\""),
            "user_limit" => (
                set(&mut spec.user_limit, value),
                "write a percentage such as \"25%\"",
            ),
            "master_share" => (
                set(&mut spec.master_share, value),
                "write a percentage such as \"10%\"",
            ),
            "max_running" => (set(&mut spec.max_running, value), "write a whole number"),
            "max_apps" => (set(&mut spec.max_apps, value), "write a whole number"),
            "state" => (
                set(&mut spec.state, value),
                "write \"running\", \"paused\", \"draining\" or \"stopped\"",
            ),
            "preemptable" => (set(&mut spec.preemptable, value), "write true or false"),
            _ => (
                set(&mut spec.max_lifetime_ms, value),
                "write a number of milliseconds",
            ),
        };
        if let Err(what) = read {
            self.note(path, key, what, fix);
        }
    }
}

/// Applies an RFC 7396 merge patch to one queue: null removes a key, any other value replaces it.
/// Child queues are patched in the same way.
pub fn apply_merge_patch(onto: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        onto.clone_from(patch);
        return;
    };
    if !onto.is_object() {
        *onto = Value::Object(serde_json::Map::new());
    }
    let Some(object) = onto.as_object_mut() else {
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            object.remove(key);
        } else {
            apply_merge_patch(object.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_mistake_of_a_tree_is_reported_with_queue_and_key() {
        let tree = json!({
            "order": "lifo",
            "queues": {
                "etl": { "guaranteed": "140%", "wieght": 2, "queues": { "a b": {}, "night": 7 } },
                "adhoc": { "maximum": { "memory": "much" }, "weight": -1 },
            },
        });
        let (_, problems) = parse_queue_tree(&tree);
        let mut found: Vec<String> = problems
            .iter()
            .map(|p| format!("{} {}", p.queue, p.key))
            .collect();
        found.sort();
        let wanted = [
            "root order",
            "root.adhoc maximum.memory",
            "root.adhoc weight",
            "root.etl guaranteed",
            "root.etl queues.a b",
            "root.etl wieght",
            "root.etl.night ",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_tree_parser_agrees_with_serde() {
        let tree = json!({
            "queues": { "etl": {
                "guaranteed": "40%", "maximum": {"memory": "80GiB", "cpus": 4}, "weight": 2, "priority": 3, "order": "fair",
                "user_limit": "25%", "master_share": "10%", "max_running": 4, "max_apps": 9, "state": "paused",
                "preemptable": false, "max_lifetime_ms": 60000, "queues": { "night": {} },
            }},
        });
        let (by_hand, problems) = parse_queue_tree(&tree);
        assert_eq!(problems, []);
        assert_eq!(
            serde_json::from_value::<QueueSpec>(tree.clone()).expect("reads"),
            by_hand
        );
        let written = serde_json::to_value(&by_hand).expect("writes");
        assert_eq!(parse_queue_tree(&written).0, by_hand);
        let etl = written["queues"]["etl"].as_object().expect("an object");
        assert_eq!(
            etl.keys().collect::<Vec<_>>(),
            KEYS,
            "every key is in the list of known ones"
        );
    }

    #[test]
    fn a_patch_removes_and_adds_queues() {
        let mut queue = json!({"weight": 2, "guaranteed": {"memory": "40%", "cpus": 4}, "queues": {"a": {}, "b": {}}});
        apply_merge_patch(
            &mut queue,
            &json!({"weight": null, "guaranteed": {"cpus": 8}, "queues": {"b": null, "c": {"priority": 1}}}),
        );
        assert_eq!(
            queue,
            json!({"guaranteed": {"memory": "40%", "cpus": 8}, "queues": {"a": {}, "c": {"priority": 1}}})
        );
        let mut short = json!({"guaranteed": "40%"});
        apply_merge_patch(&mut short, &json!({"guaranteed": {"memory": "1GiB"}}));
        assert_eq!(short, json!({"guaranteed": {"memory": "1GiB"}}));
    }
}
