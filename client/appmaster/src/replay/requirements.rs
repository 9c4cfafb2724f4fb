//! Requirements on mode `headroom` for recorded tasks, and whether they are met.

use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;

use super::cluster_shape::ClusterShape;
use super::load::TraceLoad;
use super::result_row::{ReplayResultRow, Requirement};
use super::run;
use super::shared_results::SharedResults;
use super::trace::RecordedTask;

/// The requirements that these rows allow to check: those of each dataset, and the totals. A
/// comparison with another mode is made only if that mode was replayed too.
pub(super) fn all(rows: &[ReplayResultRow], totals: &[ReplayResultRow]) -> Vec<Requirement> {
    let Some(ours) = totals
        .iter()
        .find(|row| row.mode == MemoryFailureMode::Headroom)
    else {
        return Vec::new();
    };
    let mut gates = vec![none_lost(rows, ours), few_kills(ours)];
    gates.extend(collateral_kills_of(rows, ours, &SIXTEEN));
    gates.extend(collateral_kills_of(rows, ours, &TIGHT));
    gates.extend(apart(ours));
    gates.push(giant());
    gates
}

fn of_ours<'a>(
    rows: &'a [ReplayResultRow],
    ours: &ReplayResultRow,
) -> impl Iterator<Item = &'a ReplayResultRow> {
    let growth = ours.growth;
    rows.iter()
        .filter(move |row| row.mode == MemoryFailureMode::Headroom && row.growth == growth)
}

fn none_lost(rows: &[ReplayResultRow], ours: &ReplayResultRow) -> Requirement {
    let where_ = of_ours(rows, ours)
        .filter(|row| row.lost_avoidable > 0)
        .count();
    let says = format!(
        "{} lost, {} of them avoidable, on {where_} of {} traces",
        ours.lost,
        ours.lost_avoidable,
        of_ours(rows, ours).count()
    );
    Requirement {
        name: "G1",
        asks: "no avoidable task lost on any trace",
        met: where_ == 0,
        says,
    }
}

fn few_kills(ours: &ReplayResultRow) -> Requirement {
    let (asks, kills, maq) = if ours.growth {
        (
            "with growth at most 12 kills / 1000 and .83 of the allocated memory used",
            12.0,
            0.83,
        )
    } else {
        (
            "at most 35 kills / 1000 and .80 of the allocated memory used",
            35.0,
            0.80,
        )
    };
    let met = ours.kills_per_1000 <= kills && ours.maq >= maq;
    Requirement {
        name: "G2",
        asks,
        met,
        says: format!(
            "{:.1} kills / 1000, {:.3} used",
            ours.kills_per_1000, ours.maq
        ),
    }
}

/// Shared executors of one size.
struct ExecutorSizes {
    name: &'static str,
    asks: &'static str,
    of: fn(&ReplayResultRow) -> &SharedResults,
    /// True if the first number, of mode headroom, is low enough compared with the second, of mode
    /// uber.
    enough: fn(u64, u64) -> bool,
}

const SIXTEEN: ExecutorSizes = ExecutorSizes {
    name: "G3",
    enough: |a, b| a < b || (a, b) == (0, 0),
    asks: "shared executors, 4 slots and 16 GiB: no avoidable loss, collateral kills below mode uber on every trace",
    of: |row| &row.shared,
};
const TIGHT: ExecutorSizes = ExecutorSizes {
    name: "G3 tight",
    // Tasks that die with the first executor of an unknown kind die in every mode: equal numbers
    // are allowed.
    enough: |a, b| a <= b,
    asks: "the same with one task in ten above its share: fewer in total, and not more on any trace",
    of: |row| &row.tight,
};

fn collateral_kills_of(
    rows: &[ReplayResultRow],
    ours: &ReplayResultRow,
    executors: &ExecutorSizes,
) -> Option<Requirement> {
    let pairs: Vec<(&ReplayResultRow, &ReplayResultRow)> = of_ours(rows, ours)
        .filter_map(|row| {
            Some((
                row,
                rows.iter().find(|other| {
                    other.mode == MemoryFailureMode::Uber && other.dataset == row.dataset
                })?,
            ))
        })
        .collect();
    if pairs.is_empty() {
        return None;
    }
    let of = |row: &ReplayResultRow| (executors.of)(row).collateral_kills;
    let worse: Vec<&str> = pairs
        .iter()
        .filter(|(a, b)| !(executors.enough)(of(a), of(b)))
        .map(|(row, _)| row.dataset.as_str())
        .collect();
    let as_many = pairs
        .iter()
        .filter(|(a, b)| of(a) == of(b) && of(a) > 0)
        .count();
    let theirs: u64 = pairs.iter().map(|(_, uber)| of(uber)).sum();
    let SharedResults {
        collateral_kills,
        collateral_charged,
        lost_avoidable,
        deaths,
        ..
    } = *(executors.of)(ours);
    let on = match (worse.is_empty(), as_many) {
        (false, _) => format!("; too many on {}", worse.join(", ")),
        (true, 0) => String::new(),
        (true, as_many) => {
            format!(
                "; equal on {as_many} of {} traces, fewer on the others with dead executors",
                pairs.len()
            )
        }
    };
    let nothing = if deaths == 0 && theirs == 0 {
        "; no executor died in either mode, so the traces prove nothing"
    } else {
        ""
    };
    Some(Requirement {
        name: executors.name,
        asks: executors.asks,
        met: lost_avoidable == 0 && worse.is_empty() && (collateral_kills < theirs || theirs == 0),
        says: format!(
            "{lost_avoidable} avoidably lost, {collateral_kills} collateral kills ({collateral_charged} charged) against {theirs}{on}{nothing}"
        ),
    })
}

fn apart(ours: &ReplayResultRow) -> Option<Requirement> {
    let parts = ours.parts?;
    Some(Requirement {
        name: "G4",
        asks: "heap and overhead learned separately take at most half as much as one size (10 % rule, doubled after a kill)",
        met: parts.apart_gib_h * 2.0 <= parts.one_knob_gib_h && parts.apart_lost_avoidable == 0,
        says: format!(
            "{:.1} GiB·h against {:.1}, {} avoidably lost; one learned size takes {:.1}; the split is synthetic",
            parts.apart_gib_h,
            parts.one_knob_gib_h,
            parts.apart_lost_avoidable,
            parts.one_knob_learned_gib_h
        ),
    })
}

/// A task larger than any node, among many of its kind that are not.
fn giant() -> Requirement {
    let task = |peak| RecordedTask {
        kind: "part".into(),
        input: None,
        peak,
        runtime_s: 60.0,
        request: None,
        cpus: 1,
    };
    let mut tasks = vec![task(Bytes::from_mib(700)); 500];
    tasks.push(task(Bytes::from_gib(300)));
    let load = TraceLoad::at_once(ClusterShape::default());
    let kills = run::run(
        &tasks,
        (MemoryFailureMode::Headroom, false),
        &load,
        1.0,
        &mut |_| {},
    )
    .kills;
    let asks = "a partition larger than any node costs at most 3 attempts";
    Requirement {
        name: "G5",
        asks,
        met: kills <= 3,
        says: format!("{kills} attempts among 500 others of its kind"),
    }
}
