//! What came of a replay: a row for each dataset and mode, the totals last.

use headroom_appmaster::replay::{Row, TOTAL};

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
                MAKESPAN: beside a run in which every need is known beforehand. Hosts: 8, each 32 processors and 128 GiB.\n";
    table.text() + "\n" + &paint.dim(note)
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
        };
        let rows = [
            row("nd", Mode::Headroom, true, 0),
            row("nd", Mode::Fixed, false, 3),
            row(TOTAL, Mode::Headroom, true, 0),
            row(TOTAL, Mode::Fixed, false, 3),
        ];
        insta::assert_snapshot!(screen(&rows, Paint::PLAIN));
    }
}
