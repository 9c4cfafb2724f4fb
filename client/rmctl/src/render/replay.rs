//! Screen of a replay: a row for each dataset and mode, the totals last.

use headroom_appmaster::replay::{ReplayResultRow, Requirement, SharedResults, TOTAL};

use super::figures::or_dash;
use super::table::{Column, list};
use super::{ListStyle, TextPainter};

/// The whole screen.
pub(crate) fn screen(rows: &[ReplayResultRow], paint: TextPainter) -> String {
    if rows.iter().any(|row| row.target_utilization.is_some()) {
        return utilizations(rows, paint);
    }
    let note = "USED/GIVEN: memory that tasks needed, as a part of the memory that they were given, over time.\n\
                UTILIZED: the same as a part of the memory of the nodes. WAITED: attempts that did not start at once, and\n\
                for how long. FROZEN: attempts at their limit whose node was full; EVICTED: attempts ended for them.\n\
                SHARED EXECUTORS: 4 slots that share 16 GiB; TIGHT EXECUTORS: one task in ten does not fit its share;\n\
                COLLATERAL: killed within their size; CHARGED: of those, charged nevertheless.\n\
                MAKESPAN: relative to a run in which every need is known in advance.";
    let nodes = rows.last().map_or_else(String::new, |row| {
        format!(
            " Nodes: {}, each {} processors and {}.",
            row.nodes, row.node_cpus, row.node_memory
        )
    });
    let columns: &[Column<'_, &ReplayResultRow>] = &[
        ("DATASET", &|row| name_of(row, paint)),
        ("MODE", &|row| row.mode.to_string()),
        (">TASKS", &|row| row.tasks.to_string()),
        (">USED/GIVEN", &|row| format!("{:.3}", row.maq)),
        (">KILLS/1000", &|row| format!("{:.1}", row.kills_per_1000)),
        (">LOST", &|row| lost(row, paint)),
        (">MAKESPAN", &|row| format!("{:.2}", row.makespan_ratio)),
        (">GIVEN GiB·h", &|row| {
            format!("{:.1}", row.allocated_gib_h)
        }),
        (">WASTED GiB·h", &|row| format!("{:.1}", row.wasted_gib_h)),
        (">GROWN", &|row| or_dash(row.growth.then_some(row.grown))),
    ];
    list(rows, ListStyle::whole(paint), columns)
        + "\n"
        + &on_nodes(rows, paint)
        + &shared("SHARED EXECUTORS", rows, |row| &row.shared, paint)
        + &shared("TIGHT EXECUTORS", rows, |row| &row.tight, paint)
        + &gates(rows, paint)
        + &paint.dim(&(note.to_owned() + &nodes + "\n"))
}

fn name_of(row: &ReplayResultRow, paint: TextPainter) -> String {
    if row.dataset == TOTAL {
        paint.strong(TOTAL)
    } else {
        row.dataset.clone()
    }
}

fn lost(row: &ReplayResultRow, paint: TextPainter) -> String {
    if row.lost == 0 {
        paint.good("0")
    } else {
        paint.bad(&row.lost.to_string())
    }
}

/// Utilization of the nodes, and tasks that waited for memory.
fn on_nodes(rows: &[ReplayResultRow], paint: TextPainter) -> String {
    let columns: &[Column<'_, &ReplayResultRow>] = &[
        ("NODES", &|row| name_of(row, paint)),
        ("MODE", &|row| row.mode.to_string()),
        (">UTILIZED", &|row| format!("{:.3}", row.utilization)),
        (">KILLS", &|row| row.kills.to_string()),
        (">WAITED", &|row| row.waits.to_string()),
        (">HOURS", &|row| format!("{:.1}", row.wait_s / 3600.0)),
        (">P99 s", &|row| format!("{:.1}", row.wait_p99_s)),
        (">FROZEN", &|row| row.frozen.to_string()),
        (">FROZEN s", &|row| format!("{:.0}", row.frozen_s)),
        (">EVICTED", &|row| row.evictions.to_string()),
    ];
    list(rows, ListStyle::whole(paint), columns) + "\n"
}

/// All datasets together, for each requested utilization.
fn utilizations(rows: &[ReplayResultRow], paint: TextPainter) -> String {
    let target = |row: &ReplayResultRow| row.target_utilization.unwrap_or_default() * 100.0;
    let totals = rows.iter().filter(|row| row.dataset == TOTAL);
    let note = "UTILIZATION: memory that tasks need, as a part of the memory of the nodes, at the pace they are submitted at;\n\
                UTILIZED: the same from the first task to the last, with the beginning and the end of each trace.\n\
                WAITED: attempts that did not start at once. FROZEN: attempts at their limit whose node was full; EVICTED:\n\
                attempts ended for them. USED/GIVEN: needed, as a part of the given memory. MAKESPAN: relative to a run in\n\
                which every need is known. Each dataset by itself: -o json.\n";
    let columns: &[Column<'_, &ReplayResultRow>] = &[
        (">UTILIZATION", &|row| format!("{:.0} %", target(row))),
        ("MODE", &|row| row.mode.to_string()),
        ("GROWTH", &|row| {
            if row.growth { "yes" } else { "no" }.to_owned()
        }),
        (">KILLS/1000", &|row| format!("{:.2}", row.kills_per_1000)),
        (">LOST", &|row| lost(row, paint)),
        (">WAITED", &|row| row.waits.to_string()),
        (">P99 s", &|row| format!("{:.1}", row.wait_p99_s)),
        (">FROZEN", &|row| row.frozen.to_string()),
        (">EVICTED", &|row| row.evictions.to_string()),
        (">USED/GIVEN", &|row| format!("{:.3}", row.maq)),
        (">MAKESPAN", &|row| format!("{:.3}", row.makespan_ratio)),
        (">UTILIZED", &|row| format!("{:.3}", row.utilization)),
    ];
    list(totals, ListStyle::whole(paint), columns) + "\n" + &paint.dim(note)
}

/// The same tasks in shared executors.
fn shared(
    name: &str,
    rows: &[ReplayResultRow],
    of: fn(&ReplayResultRow) -> &SharedResults,
    paint: TextPainter,
) -> String {
    let columns: &[Column<'_, &ReplayResultRow>] = &[
        (name, &|row| name_of(row, paint)),
        ("MODE", &|row| row.mode.to_string()),
        (">KILLS", &|row| of(row).kills.to_string()),
        (">COLLATERAL", &|row| of(row).collateral_kills.to_string()),
        (">CHARGED", &|row| of(row).collateral_charged.to_string()),
        (">DIED", &|row| of(row).deaths.to_string()),
        (">LOST", &|row| of(row).lost.to_string()),
        (">USED/GIVEN", &|row| format!("{:.3}", of(row).maq)),
    ];
    list(rows, ListStyle::whole(paint), columns) + "\n"
}

/// The requirements for mode `headroom`, and whether they are met.
fn gates(rows: &[ReplayResultRow], paint: TextPainter) -> String {
    let one = |gate: &Requirement| {
        let met = if gate.met {
            paint.good("met")
        } else {
            paint.bad("missed")
        };
        format!("{}  {met}: {}\n      {}\n", gate.name, gate.asks, gate.says)
    };
    let text: String = rows.iter().flat_map(|row| &row.gates).map(one).collect();
    if text.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Bytes;
    use headroom_wire::v1::job::MemoryFailureMode;

    fn row(dataset: &str, mode: MemoryFailureMode, growth: bool, lost: u64) -> ReplayResultRow {
        ReplayResultRow {
            dataset: dataset.to_owned(),
            mode,
            growth,
            maq: 0.8134,
            kills_per_1000: 12.47,
            lost,
            lost_avoidable: 0,
            makespan_ratio: 1.127,
            allocated_gib_h: 100.0,
            wasted_gib_h: 18.77,
            tasks: 7658,
            grown: 7,
            shared: SharedResults {
                kills: 12,
                collateral_kills: 3,
                collateral_charged: 1,
                deaths: 5,
                ..SharedResults::default()
            },
            tight: SharedResults::default(),
            parts: None,
            gates: Vec::new(),
            kills: 95,
            waits: 7400,
            wait_s: 7200.0,
            wait_p99_s: 61.25,
            frozen: if growth { 9 } else { 0 },
            frozen_s: if growth { 41.5 } else { 0.0 },
            evictions: if growth { 2 } else { 0 },
            makespan_s: 3800.0,
            utilization: 0.4321,
            target_utilization: None,
            nodes: 8,
            node_memory: Bytes::from_gib(128),
            node_cpus: 32,
        }
    }

    #[test]
    fn a_row_for_each_mode_and_the_totals() {
        let mut rows = [
            row("nd", MemoryFailureMode::Headroom, true, 0),
            row("nd", MemoryFailureMode::Fixed, false, 3),
            row(TOTAL, MemoryFailureMode::Headroom, true, 0),
            row(TOTAL, MemoryFailureMode::Fixed, false, 3),
        ];
        let gate = |name, met| Requirement {
            name,
            asks: "no task lost",
            met,
            says: "none, of 7658".into(),
        };
        rows[2].gates = vec![gate("G1", true), gate("G3", false)];
        insta::assert_snapshot!(screen(&rows, TextPainter::PLAIN));
    }

    #[test]
    fn each_utilization_with_growth_and_without() {
        let at = |target, growth| ReplayResultRow {
            target_utilization: Some(target),
            ..row(TOTAL, MemoryFailureMode::Headroom, growth, 0)
        };
        let one = ReplayResultRow {
            target_utilization: Some(0.5),
            ..row("nd", MemoryFailureMode::Headroom, true, 0)
        };
        let rows = [
            one,
            at(0.5, true),
            at(0.5, false),
            at(0.95, true),
            at(0.95, false),
        ];
        insta::assert_snapshot!(screen(&rows, TextPainter::PLAIN));
    }
}
