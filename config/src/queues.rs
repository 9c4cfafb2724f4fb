//! Queues of `resourcemanager.toml`: `[queues.etl]`, `[queues.etl.queues.night]`. The keys are
//! those of `PUT /v1/queues`.
//!
//! This module reports errors of single keys. The resource manager finds errors of the tree as a
//! whole; [`locate_problems`] maps them to their positions in the file.

use std::ops::Range;

use headroom_wire::v1::queue_tree;
use headroom_wire::v1::queues::{QueueProblem, QueueSpec};
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{FileProblem, ProblemCollector};
use crate::toml_reader::{self, TomlSection};

/// Reason that is shown for an invalid queue key.
const WHY: &str = "a tree of queues is applied completely or not at all";

/// Reads the tree of a file; `None` without queues.
pub(crate) fn read(root: &mut TomlSection<'_>) -> Option<QueueSpec> {
    let written = root.value("queues")?;
    let tree = Value::Object(
        [("queues".to_owned(), json(written.get_ref()))]
            .into_iter()
            .collect(),
    );
    let (spec, problems) = queue_tree::parse_queue_tree(&tree);
    note(root.problems(), written, &problems);
    Some(spec)
}

/// The tree of a file in the form of a `PUT /v1/queues` body: its table `queues`. Other tables are
/// ignored.
///
/// # Errors
/// The text is not TOML, or has no such table.
pub fn parse_queue_tree(text: &str, file: &str) -> Result<Value, Vec<FileProblem>> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    let queues = table.get_ref().get("queues").map(|q| json(q.get_ref()));
    if queues.is_none() && report.is_empty() {
        report.add(
            0..0,
            "queues",
            "the file has no queues",
            WHY,
            "write a table for each: [queues.default]",
        );
    }
    report.finish(
        queues.map(|queues| Value::Object([("queues".to_owned(), queues)].into_iter().collect())),
    )
}

/// Maps errors of a tree to their positions in this file.
pub fn locate_problems(text: &str, file: &str, problems: &[QueueProblem]) -> Vec<FileProblem> {
    let report = ProblemCollector::new(file, text);
    let table = toml_reader::parse(text, &report);
    if let Some(written) = table.get_ref().get("queues") {
        note(&report, written, problems);
    }
    report.finish::<()>(None).err().unwrap_or_default()
}

fn note(report: &ProblemCollector<'_>, written: &Spanned<DeValue<'_>>, problems: &[QueueProblem]) {
    for p in problems {
        let below = p
            .queue
            .strip_prefix("root")
            .unwrap_or(&p.queue)
            .trim_start_matches('.');
        let words: Vec<&str> = below.split('.').filter(|w| !w.is_empty()).collect();
        let key = match (words.is_empty(), p.key.as_str()) {
            (true, key) => key.to_owned(),
            (false, "") => format!("queues.{}", words.join(".queues.")),
            (false, key) => format!("queues.{}.{key}", words.join(".queues.")),
        };
        report.add(
            place(written, &words, &p.key),
            &key,
            format!("{key}: {}", p.what),
            WHY,
            p.fix.clone(),
        );
    }
}

/// Position of a queue's key; if absent, of its queue, or else of the whole file.
fn place(written: &Spanned<DeValue<'_>>, queue: &[&str], key: &str) -> Range<usize> {
    let mut at = written.span();
    let mut table = written.get_ref().as_table();
    for (level, word) in queue.iter().enumerate() {
        let inside = if level == 0 {
            table
        } else {
            table
                .and_then(|t| t.get("queues"))
                .and_then(|q| q.get_ref().as_table())
        };
        let Some(next) = inside.and_then(|t| t.get(*word)) else {
            return at;
        };
        (at, table) = (next.span(), next.get_ref().as_table());
    }
    let words = if queue.is_empty() {
        key.strip_prefix("queues.").unwrap_or("")
    } else {
        key
    };
    for word in words.split('.').filter(|w| !w.is_empty()) {
        let Some(next) = table.and_then(|t: &DeTable<'_>| t.get(word)) else {
            return at;
        };
        (at, table) = (next.span(), next.get_ref().as_table());
    }
    at
}

/// Converts a TOML value to JSON.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(n) => {
            i64::from_str_radix(n.as_str(), n.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(n) => n
            .as_str()
            .parse()
            .ok()
            .and_then(Number::from_f64)
            .map_or(Value::Null, Value::Number),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(d) => Value::String(d.to_string()),
        DeValue::Array(items) => items.iter().map(|i| json(i.get_ref())).collect(),
        DeValue::Table(table) => Value::Object(
            table
                .iter()
                .map(|(k, v)| (k.get_ref().to_string(), json(v.get_ref())))
                .collect::<Map<_, _>>(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::resourcemanager;

    #[test]
    fn queues_in_a_file_have_the_format_of_the_api() {
        let text = "[queues.etl]\nguaranteed = \"40%\"\nmaximum = { memory = \"80GiB\", cpus = 4.5 }\npreemptable = false\n\
                    [queues.etl.queues.night]\nmax_apps = 3\n[queues.adhoc]\n";
        let tree = resourcemanager(text, "f")
            .expect("right")
            .queues
            .expect("a tree");
        let wanted = r#"{"queues": {"adhoc": {}, "etl": {"guaranteed": "40%", "maximum": {"memory": "80GiB", "cpus": 4.5},
            "preemptable": false, "queues": {"night": {"max_apps": 3}}}}}"#;
        assert_eq!(tree, serde_json::from_str(wanted).expect("reads"));
    }

    #[test]
    fn each_mistake_has_its_line() {
        let text = "lost = 30\n[queues.etl]\nguaranteed = \"140%\"\nwieght = 2\n[queues.etl.queues.night]\norder = \"lifo\"\n\
                    maximum.memory = \"much\"\n[queues.\"a b\"]\n";
        let problems = resourcemanager(text, "f").expect_err("six mistakes");
        let found: Vec<(Option<usize>, &str)> =
            problems.iter().map(|p| (p.line, p.key.as_str())).collect();
        let wanted = [
            (Some(1), "lost"),
            (Some(3), "queues.etl.guaranteed"),
            (Some(4), "queues.etl.wieght"),
            (Some(6), "queues.etl.queues.night.order"),
            (Some(7), "queues.etl.queues.night.maximum.memory"),
            (Some(8), "queues.a b"),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_later_problem_is_reported_at_its_position() {
        let text = "[queues.etl]\nguaranteed = \"60%\"\n[queues.adhoc]\n";
        let wrong = |queue: &str, key: &str| QueueProblem {
            queue: queue.into(),
            key: key.into(),
            what: "too much".into(),
            fix: "less".into(),
        };
        let found = locate_problems(
            text,
            "f",
            &[
                wrong("root.etl", "guaranteed"),
                wrong("root.adhoc", "maximum"),
                wrong("root", "queues"),
            ],
        );
        assert_eq!(
            found.iter().map(|p| p.line).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(3)]
        );
    }
}
