//! What-if replay: recorded tasks run again on hosts that do not exist, under each way of giving them memory.
//!
//! One task is one container. Tasks start in the order they were submitted, each as soon as there is room. A task whose need is
//! above its size is killed at a moment drawn from how real kills were spread, the same for every mode, and asks its mode what
//! next. The yardstick is a run in which every need is known beforehand.

mod executors;
mod gates;
mod hosts;
mod parts;
mod run;
pub mod trace;
mod ways;

use headroom_types::Bytes;
use headroom_wire::v1::job::Mode;
use parts::Rule;
use serde::Serialize;

pub use executors::Shared;
pub use gates::Gate;
pub use parts::Parted;

pub use ways::SHARE;

/// The name of the rows that stand for all datasets of a replay.
pub const TOTAL: &str = "total";

/// How a replay went. Memory over time in GiB·h.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which tasks; [`TOTAL`] for all.
    pub dataset: String,
    /// Which way.
    pub mode: Mode,
    /// Whether sizes grew in place.
    pub growth: bool,
    /// Memory used divided by memory allocated.
    pub maq: f64,
    /// Kills for every thousand tasks.
    pub kills_per_1000: f64,
    /// Tasks that were given up.
    pub lost: u64,
    /// Of them, those that some host could have held.
    pub lost_avoidable: u64,
    /// Time until the last task ended, beside a run in which every need was known.
    pub makespan_ratio: f64,
    /// Allocated in all.
    pub allocated_gib_h: f64,
    /// Allocated and not used.
    pub wasted_gib_h: f64,
    /// Tasks.
    pub tasks: u64,
    /// Sizes that were raised while a task ran.
    pub grown: u64,
    /// The same tasks in shared executors: four slots that share 16 GiB.
    pub shared: Shared,
    /// The same where the executors of each trace are so small that one task in ten does not fit its share.
    pub tight: Shared,
    /// The same tasks with a heap and an overhead, in mode `headroom` and beside one knob; only in rows of that mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parted>,
    /// What the house asks of itself; only in the row of all datasets in mode `headroom`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
}

/// The hosts of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Estate {
    /// How many.
    pub hosts: usize,
    /// Processors of each.
    pub cpus: u32,
    /// Memory of each.
    pub memory: Bytes,
}

impl Default for Estate {
    fn default() -> Self {
        Estate { hosts: 8, cpus: 32, memory: Bytes::from_gib(128) }
    }
}

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Tasks that have ended, over all modes, and with the runs that measure what is best.
    pub tasks: u64,
    /// All of them.
    pub of: u64,
}

/// Replays every dataset in every mode that is asked for; the last rows are the totals of each mode. `told` hears how far it is.
pub fn replay(datasets: &[trace::Dataset], modes: &[Mode], growth: bool, estate: Estate, told: &mut dyn FnMut(Done)) -> Vec<Row> {
    let each = |dataset: &trace::Dataset| u64::try_from(dataset.tasks.len() * (modes.len() + 1)).unwrap_or(u64::MAX);
    let of = datasets.iter().map(each).sum();
    let mut before = 0;
    let mut rows = Vec::new();
    let mut totals: Vec<Total> = modes.iter().map(|mode| Total::new(*mode)).collect();
    for dataset in datasets {
        let size = u64::try_from(dataset.tasks.len()).unwrap_or(u64::MAX);
        let ideal = run::ideal(&dataset.tasks, estate, &mut |n| told(Done { tasks: before + n, of }));
        before += size;
        for total in &mut totals {
            let (mode, yard) = (total.mode, run::Yard { growth, estate, ideal });
            let sums = run::run(&dataset.tasks, mode, yard, &mut |n| told(Done { tasks: before + n, of }));
            let shared = executors::run(&dataset.tasks, mode, estate, executors::EXECUTOR);
            let tight = executors::run(&dataset.tasks, mode, estate, executors::tight(&dataset.tasks));
            let parts = (mode == Mode::Headroom).then(|| parted(&dataset.tasks, estate));
            before += size;
            rows.push(Row { shared, tight, parts, ..sums.row(&dataset.name, mode, growth) });
            total.sums.add(&sums);
            total.shared.add(&shared);
            total.tight.add(&tight);
            if let Some(parts) = parts {
                total.parts.get_or_insert_default().add(&parts);
            }
        }
    }
    let all: Vec<Row> = totals
        .iter()
        .map(|t| Row { shared: t.shared, tight: t.tight, parts: t.parts, ..t.sums.row(TOTAL, t.mode, growth) })
        .collect();
    let gates = gates::all(&rows, &all, growth);
    rows.extend(all);
    if let Some(ours) = rows.iter_mut().rev().find(|row| row.mode == Mode::Headroom && row.dataset == TOTAL) {
        ours.gates = gates;
    }
    rows
}

/// What a mode came to over all datasets.
struct Total {
    mode: Mode,
    sums: run::Sums,
    shared: Shared,
    tight: Shared,
    parts: Option<Parted>,
}

impl Total {
    fn new(mode: Mode) -> Total {
        Total { mode, sums: run::Sums::default(), shared: Shared::default(), tight: Shared::default(), parts: None }
    }
}

fn parted(tasks: &[trace::Task], estate: Estate) -> Parted {
    let of = |rule| run::parted(tasks, rule, estate);
    let (knob, learned, apart) = (of(Rule::OneKnob), of(Rule::OneKnobLearned), of(Rule::Apart));
    Parted {
        one_knob_gib_h: knob.gib_h,
        one_knob_learned_gib_h: learned.gib_h,
        apart_gib_h: apart.gib_h,
        one_knob_kills: knob.kills,
        apart_kills: apart.kills,
        apart_lost_avoidable: apart.lost_avoidable,
    }
}

#[cfg(test)]
mod tests;
