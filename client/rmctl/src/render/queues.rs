//! Screens of queues: the tree as a table, and one queue in detail.

use headroom_types::Resource;
use headroom_wire::v1::queues::{Preemptable, QueueRunState, QueueUser, QueueView, QueuesView};
use serde_json::Value;

use super::figures::short;
use super::table::{Column, list};
use super::{ListStyle, TextPainter};

/// The whole tree.
pub(crate) fn screen(view: &QueuesView, look: ListStyle) -> String {
    let mut rows = Vec::new();
    add_rows(&view.root, 0, &mut rows);
    let next = look.paint.next("rmctl queue show QUEUE · rmctl ps");
    table(&rows, look) + &look.advice(format!("generation {}\n{next}", view.generation))
}

/// Selected queues, each with its full path.
pub(crate) fn chosen(queues: &[QueueView], look: ListStyle) -> String {
    let names = queues.iter().map(|queue| queue.path.short().to_owned());
    table(&names.zip(queues).collect::<Vec<_>>(), look)
}

/// A queue with its name in the table.
type NamedQueue<'a> = (String, &'a QueueView);

fn add_rows<'a>(q: &'a QueueView, depth: usize, rows: &mut Vec<NamedQueue<'a>>) {
    rows.push((format!("{}{}", "  ".repeat(depth), q.path.name()), q));
    for below in &q.queues {
        add_rows(below, depth + 1, rows);
    }
}

fn table(rows: &[NamedQueue<'_>], look: ListStyle) -> String {
    let columns: &[Column<'_, &NamedQueue<'_>>] = &[
        ("QUEUE", &|(name, _)| name.clone()),
        ("STATE", &|(_, q)| state_cell(q.state, look.paint)),
        (">GUARANTEED", &|(_, q)| short(q.guaranteed.memory)),
        (">MAXIMUM", &|(_, q)| short(q.maximum.memory)),
        (">USED", &|(_, q)| short(q.used.memory)),
        (">SHARE", &|(_, q)| share(q, look.paint)),
        (">CTR", &|(_, q)| q.containers.to_string()),
        (">PENDING", &|(_, q)| q.pending.to_string()),
        (">APPS", &|(_, q)| q.apps.to_string()),
        (">RUNNING", &|(_, q)| q.running.to_string()),
        ("+>CPUS", &|(_, q)| {
            format!("{}/{}", q.used.cpus, q.maximum.cpus)
        }),
        ("+>MASTERS", &|(_, q)| short(q.masters.memory)),
        ("+ORDER", &|(_, q)| q.spec.order.to_string()),
        ("+>WEIGHT", &|(_, q)| q.spec.weight.unwrap_or(1).to_string()),
        ("+>PRIORITY", &|(_, q)| q.spec.priority.to_string()),
    ];
    list(rows, look, columns)
}

/// Use as a percentage of the guarantee.
fn share(q: &QueueView, paint: TextPainter) -> String {
    let text = format!("{}%", q.share / 10);
    if q.share > 1000 {
        paint.warn(&text)
    } else {
        text
    }
}

fn state_cell(state: QueueRunState, paint: TextPainter) -> String {
    match state {
        QueueRunState::Running => state.as_str().to_owned(),
        QueueRunState::Paused | QueueRunState::Draining | QueueRunState::Stopped => {
            paint.warn(state.as_str())
        }
    }
}

/// One queue.
pub(crate) fn one(q: &QueueView, paint: TextPainter) -> String {
    let mut text = format!(
        "{}  {}\n",
        paint.strong(q.path.as_str()),
        state_cell(q.state, paint)
    );
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<14}{value}\n"));
    line("guaranteed", figures(&q.guaranteed));
    line("maximum", figures(&q.maximum));
    let below = if q.below_guarantee {
        ", below its guarantee"
    } else {
        ""
    };
    line(
        "used",
        format!(
            "{} ({}% of its guarantee{below})",
            figures(&q.used),
            q.share / 10
        ),
    );
    line("masters", figures(&q.masters));
    line(
        "waiting",
        format!("{} in {} containers", figures(&q.waiting), q.pending),
    );
    line("applications", format!("{} of {} run", q.running, q.apps));
    for (key, value) in written(q) {
        line(&key, value);
    }
    let names: Vec<&str> = q.queues.iter().map(|below| below.path.name()).collect();
    if !names.is_empty() {
        line("queues", names.join(", "));
    }
    if !q.users.is_empty() {
        let columns: &[Column<'_, &QueueUser>] = &[
            ("USER", &|user| user.user.clone()),
            (">APPS", &|user| user.apps.to_string()),
            (">MEMORY", &|user| short(user.used.memory)),
            (">CPUS", &|user| user.used.cpus.to_string()),
        ];
        text.push_str(&list(&q.users, ListStyle::whole(paint), columns));
    }
    let name = q.path.short();
    text + &paint.next(format!(
        "rmctl queue state {name} paused · rmctl queue list"
    ))
}

fn figures(r: &Resource) -> String {
    let extra: String = r
        .extra
        .iter()
        .map(|(name, n)| format!(", {n} {name}"))
        .collect();
    format!("{}, {}{extra}", short(r.memory), r.cpus.words())
}

/// The configuration of a queue without its shares and its state.
fn written(q: &QueueView) -> Vec<(String, String)> {
    let Ok(Value::Object(keys)) = serde_json::to_value(&q.spec) else {
        return Vec::new();
    };
    let shown = ["guaranteed", "maximum", "state"];
    let kept = keys
        .into_iter()
        .filter(|(key, _)| !shown.contains(&key.as_str()));
    let mut rows: Vec<(String, String)> = kept
        .map(|(key, value)| {
            (
                key,
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            )
        })
        .collect();
    if q.spec.preemptable == Preemptable::No {
        rows.retain(|(key, _)| key != "preemptable");
        rows.push(("preemptable".to_owned(), "never".to_owned()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: &str = include_str!("../../../wire/golden/v1/queues_view.json");

    fn view() -> QueuesView {
        serde_json::from_str(VIEW).expect("a golden sample")
    }

    #[test]
    fn queues_are_listed_below_their_parents() {
        let text = screen(&view(), ListStyle::USUAL);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("QUEUE")
                && lines[1].starts_with("root ")
                && lines[2].starts_with("  etl "),
            "{text}"
        );
        assert!(
            lines[2].contains("paused") && lines[2].contains("125%"),
            "{text}"
        );
        assert!(text.contains("generation 7\n"), "{text}");
        assert!(screen(&view(), ListStyle::WIDE).contains("fair"));
    }

    #[test]
    fn a_leaf_is_shown_with_its_users() {
        let text = one(&view().root.queues[0], TextPainter::PLAIN);
        for part in [
            "root.etl  paused\n",
            "applications  1 of 4 run\n",
            "preemptable   never\n",
            "user_limit    25%\n",
            "ana ",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
