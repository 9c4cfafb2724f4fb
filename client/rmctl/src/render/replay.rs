//! What came of a replay: a row for each dataset and mode, the totals last.

use headroom_appmaster::replay::{Gate, Row, Shared, TOTAL};

use super::Paint;
use super::table::Table;

/// The whole screen.
pub(crate) fn screen(rows: &[Row], paint: Paint) -> String {
    let headers = [
        "DATASET",
        "MODE",
        ">TASKS",
        ">USED/GIVEN",
        ">KILLS/1000",
        ">LOST",
        ">MAKESPAN",
        ">GIVEN GiB·h",
        ">WASTED GiB·h",
        ">GROWN",
    ];
    let mut table = Table::new(&headers);
    for row in rows {
        let lost = if row.lost == 0 { paint.good("0") } else { paint.bad(&row.lost.to_string()) };
        let name = if row.dataset == TOTAL { paint.strong(TOTAL) } else { row.dataset.clone() };
        let grown = if row.growth { row.grown.to_string() } else { "–".to_owned() };
        table.row([
            name,
            row.mode.as_str().to_owned(),
            row.tasks.to_string(),
            format!("{:.3}", row.maq),
            format!("{:.1}", row.kills_per_1000),
            lost,
            format!("{:.2}", row.makespan_ratio),
            format!("{:.1}", row.allocated_gib_h),
            format!("{:.1}", row.wasted_gib_h),
            grown,
        ]);
    }
    let note = "USED/GIVEN: memory that tasks needed, as a part of what they were given, over time.\n\
                SHARED EXECUTORS: 4 slots that share 16 GiB; TIGHT ONES: so little that one task in ten does\n\
                not fit its share; INNOCENT: within their size, CHARGED: of those, charged all the same.\n\
                MAKESPAN: beside a run in which every need is known beforehand. Hosts: 8, each 32 processors and 128 GiB.\n";
    table.text()
        + "\n"
        + &shared("SHARED EXECUTORS", rows, |row| &row.shared, paint)
        + &shared("TIGHT ONES", rows, |row| &row.tight, paint)
        + &gates(rows, paint)
        + &paint.dim(note)
}

/// The same tasks in shared executors.
fn shared(name: &str, rows: &[Row], of: fn(&Row) -> &Shared, paint: Paint) -> String {
    let mut table = Table::new(&[name, "MODE", ">KILLS", ">INNOCENT", ">CHARGED", ">DIED", ">LOST", ">USED/GIVEN"]);
    for row in rows {
        let name = if row.dataset == TOTAL { paint.strong(TOTAL) } else { row.dataset.clone() };
        let s = of(row);
        let counts = [s.kills, s.innocent_kills, s.innocent_charged, s.deaths, s.lost].map(|n| n.to_string());
        table.row([name, row.mode.as_str().to_owned()].into_iter().chain(counts).chain([format!("{:.3}", s.maq)]));
    }
    table.text() + "\n"
}

/// What is asked of mode `headroom`, and whether it is so.
fn gates(rows: &[Row], paint: Paint) -> String {
    let one = |gate: &Gate| {
        let met = if gate.met { paint.good("met") } else { paint.bad("missed") };
        format!("{}  {met}: {}\n      {}\n", gate.name, gate.asks, gate.says)
    };
    let text: String = rows.iter().flat_map(|row| &row.gates).map(one).collect();
    if text.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::v1::job::Mode;

    #[test]
    fn a_row_for_each_mode_and_the_totals() {
        let row = |dataset: &str, mode, growth, lost| Row {
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
            shared: Shared { kills: 12, innocent_kills: 3, innocent_charged: 1, deaths: 5, ..Shared::default() },
            tight: Shared::default(),
            parts: None,
            gates: Vec::new(),
        };
        let mut rows = [
            row("nd", Mode::Headroom, true, 0),
            row("nd", Mode::Fixed, false, 3),
            row(TOTAL, Mode::Headroom, true, 0),
            row(TOTAL, Mode::Fixed, false, 3),
        ];
        let gate = |name, met| Gate { name, asks: "no task lost", met, says: "none, of 7658".into() };
        rows[2].gates = vec![gate("G1", true), gate("G3", false)];
        insta::assert_snapshot!(screen(&rows, Paint::PLAIN));
    }
}
