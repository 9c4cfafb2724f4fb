//! Screens of queues: the tree as a table, and one queue in detail.

use headroom_types::Resource;
use headroom_wire::v1::queues::{
    ApplicationOrder, Preemptable, QueueRunState, QueueView, QueuesView,
};
use serde_json::Value;

use super::figures::short;
use super::table::Table;
use super::{ListStyle, TextPainter};

/// The whole tree.
pub(crate) fn screen(view: &QueuesView, look: ListStyle) -> String {
    let paint = look.paint;
    let mut table = Table::new(&headers(look.wide));
    rows(&view.root, 0, look.wide, paint, &mut table);
    let next = paint.dim("next: rmctl queue show QUEUE · rmctl ps");
    table.of(look.headers) + &look.advice(format!("generation {}\n{next}\n", view.generation))
}

/// Selected queues, each with its full path.
pub(crate) fn chosen(queues: &[QueueView], look: ListStyle) -> String {
    let paint = look.paint;
    let mut table = Table::new(&headers(look.wide));
    for queue in queues {
        row(
            queue,
            queue.path.short().to_owned(),
            look.wide,
            paint,
            &mut table,
        );
    }
    table.of(look.headers)
}

fn headers(wide: bool) -> Vec<&'static str> {
    let mut headers = vec![
        "QUEUE",
        "STATE",
        ">GUARANTEED",
        ">MAXIMUM",
        ">USED",
        ">SHARE",
        ">CTR",
        ">PENDING",
        ">APPS",
        ">RUNNING",
    ];
    if wide {
        headers.extend([">CPUS", ">MASTERS", "ORDER", ">WEIGHT", ">PRIORITY"]);
    }
    headers
}

fn rows(q: &QueueView, depth: usize, wide: bool, paint: TextPainter, table: &mut Table) {
    row(
        q,
        format!("{}{}", "  ".repeat(depth), q.path.name()),
        wide,
        paint,
        table,
    );
    for below in &q.queues {
        rows(below, depth + 1, wide, paint, table);
    }
}

fn row(q: &QueueView, name: String, wide: bool, paint: TextPainter, table: &mut Table) {
    let mut cells = vec![
        name,
        state_cell(q.state, paint),
        short(q.guaranteed.memory),
        short(q.maximum.memory),
        short(q.used.memory),
    ];
    cells.extend([
        share(q, paint),
        q.containers.to_string(),
        q.pending.to_string(),
        q.apps.to_string(),
        q.running.to_string(),
    ]);
    if wide {
        let weight = q.spec.weight.unwrap_or(1).to_string();
        cells.extend([
            format!("{}/{}", q.used.cpus, q.maximum.cpus),
            short(q.masters.memory),
            order(q.spec.order).to_owned(),
        ]);
        cells.extend([weight, q.spec.priority.to_string()]);
    }
    table.row(cells);
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

fn order(order: ApplicationOrder) -> &'static str {
    match order {
        ApplicationOrder::Fifo => "fifo",
        ApplicationOrder::Fair => "fair",
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
    let mut users = Table::new(&["USER", ">APPS", ">MEMORY", ">CPUS"]);
    for user in &q.users {
        users.row([
            user.user.clone(),
            user.apps.to_string(),
            short(user.used.memory),
            user.used.cpus.to_string(),
        ]);
    }
    if !q.users.is_empty() {
        text.push_str(&users.text());
    }
    text + &paint.dim(&format!(
        "next: rmctl queue state {} paused · rmctl queue list",
        q.path.short()
    )) + "\n"
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
