//! What-if replay: recorded tasks run again on nodes that do not exist, under each way of giving them memory.
//!
//! One task is one container. Tasks start in the order they were submitted, each as soon as there is room. A task whose need is
//! above its size comes to its limit at a moment drawn from how real kills were spread, the same for every mode. There it grows, or
//! it is killed and its mode gives the next size. The yardstick is a run in which every need is known beforehand.

mod executors;
mod gates;
mod growth;
mod load;
mod nodes;
mod parts;
mod run;
mod sums;
pub mod trace;
mod ways;

use headroom_types::Bytes;
use headroom_wire::v1::job::Mode;
use load::TraceLoad;
use parts::Rule;
use serde::Serialize;
use sums::Sums;

use crate::policy::grow;

pub use crate::policy::grow::is_part_of as grows;
pub use executors::Shared;
pub use gates::Gate;
pub use load::StatedNodes;
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
    /// Kills.
    pub kills: u64,
    /// Attempts that did not start as soon as their task was submitted or its attempt before had ended.
    pub waits: u64,
    /// How long they waited in all. Seconds.
    pub wait_s: f64,
    /// Of all attempts, 99 in a hundred waited no longer. Seconds.
    pub wait_p99_s: f64,
    /// Attempts that were held near their limit because their node had no memory for them.
    pub held: u64,
    /// How long they were held in all. Seconds.
    pub held_s: f64,
    /// Attempts that gave way to one that was held, and ran again elsewhere.
    pub evictions: u64,
    /// Time until the last task ended; in the row of all datasets their sum. Seconds.
    pub makespan_s: f64,
    /// Memory that tasks needed, as a part of the memory of all nodes until the last task ended.
    pub utilization: f64,
    /// The utilisation for which submissions were paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilization: Option<f64>,
    /// Nodes; 0 in the row of all datasets where each had another number.
    pub nodes: usize,
    /// Memory of each; 0 where it differs. Bytes.
    pub node_memory: Bytes,
    /// Processors of each.
    pub node_cpus: u32,
}

/// The nodes of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterShape {
    /// How many.
    pub nodes: usize,
    /// Processors of each.
    pub cpus: u32,
    /// Memory of each.
    pub memory: Bytes,
}

impl Default for ClusterShape {
    fn default() -> Self {
        ClusterShape { nodes: 8, cpus: 32, memory: Bytes::from_gib(128) }
    }
}

/// Whether tasks at their limit are given more memory where they run, in the modes that do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthChoice {
    /// They are.
    On,
    /// They are killed.
    Off,
    /// Both, one after the other.
    Both,
}

impl GrowthChoice {
    /// The runs of a mode.
    fn of(self, mode: Mode) -> &'static [bool] {
        match self {
            _ if !grow::is_part_of(mode) => &[false],
            GrowthChoice::On => &[true],
            GrowthChoice::Off => &[false],
            GrowthChoice::Both => &[true, false],
        }
    }
}

/// What is replayed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// In which modes.
    pub modes: Vec<Mode>,
    /// With growth or without.
    pub growth: GrowthChoice,
    /// On which nodes.
    pub cluster: ClusterShape,
    /// What the caller stated of them: with `utilizations`, the trace gives the rest.
    pub stated: StatedNodes,
    /// Parts of the memory of the nodes that tasks need, 0 to 1: a run for each, in which tasks are submitted at an even pace. Where there is
    /// none, all tasks are submitted at the beginning.
    pub utilizations: Vec<f64>,
}

impl Scenario {
    /// The loads of a trace, each with the utilisation it was made for.
    fn loads(&self, tasks: &[trace::Task]) -> Vec<(Option<f64>, TraceLoad)> {
        if self.utilizations.is_empty() {
            return vec![(None, TraceLoad::at_once(self.cluster))];
        }
        let paced = |of: &f64| (Some(*of), TraceLoad::paced(tasks, *of, self.cluster, self.stated));
        self.utilizations.iter().map(paced).collect()
    }
    /// Each mode with growth and without, as far as asked for.
    fn variants(&self) -> Vec<(Mode, bool)> {
        self.modes.iter().flat_map(|mode| self.growth.of(*mode).iter().map(|growth| (*mode, *growth))).collect()
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

/// Replays every dataset in every mode and at every utilisation of the scenario; the last rows are the totals. `progress` receives how far it is.
pub fn replay(datasets: &[trace::Dataset], scenario: &Scenario, progress: &mut dyn FnMut(Done)) -> Vec<Row> {
    let variants = scenario.variants();
    let loads = scenario.utilizations.len().max(1);
    let each = |dataset: &trace::Dataset| count(dataset.tasks.len() * (variants.len() + 1) * loads);
    let of = datasets.iter().map(each).sum();
    let mut before = 0;
    let mut rows = Vec::new();
    let mut totals: Vec<Total> = Vec::new();
    for dataset in datasets {
        let tasks = &dataset.tasks;
        // All of these tasks are submitted at the beginning, whatever the pace of the others.
        let sides: Vec<Sides> = variants.iter().map(|variant| Sides::of(tasks, *variant, scenario.cluster)).collect();
        let mut places = 0..;
        for (target, load) in scenario.loads(tasks) {
            let ideal = run::ideal(tasks, &load, &mut |n| progress(Done { tasks: before + n, of }));
            before += count(tasks.len());
            for (variant, side) in variants.iter().zip(&sides) {
                let sums = run::run(tasks, *variant, &load, ideal, &mut |n| progress(Done { tasks: before + n, of }));
                before += count(tasks.len());
                let (mode, growth) = *variant;
                rows.push(side.on(Row { target_utilization: target, ..sums.row(&dataset.name, mode, growth, load.cluster) }));
                let total = Total { variant: *variant, target, cluster: load.cluster, sums, sides: *side };
                let place: usize = places.next().unwrap_or_default();
                match totals.get_mut(place) {
                    Some(sum) => sum.add(&total),
                    None => totals.push(total),
                }
            }
        }
    }
    let all: Vec<Row> = totals.iter().map(Total::row).collect();
    let gates = if scenario.utilizations.is_empty() { gates::all(&rows, &all) } else { Vec::new() };
    rows.extend(all);
    if let Some(ours) = rows.iter_mut().find(|row| row.mode == Mode::Headroom && row.dataset == TOTAL) {
        ours.gates = gates;
    }
    rows
}

fn count(tasks: usize) -> u64 {
    u64::try_from(tasks).unwrap_or(u64::MAX)
}

/// The same tasks in shared executors, and with two quantities.
#[derive(Clone, Copy, Debug)]
struct Sides {
    shared: Shared,
    tight: Shared,
    parts: Option<Parted>,
}

impl Sides {
    fn of(tasks: &[trace::Task], variant: (Mode, bool), cluster: ClusterShape) -> Sides {
        Sides {
            shared: executors::run(tasks, variant, cluster, executors::EXECUTOR),
            tight: executors::run(tasks, variant, cluster, executors::tight(tasks)),
            parts: (variant.0 == Mode::Headroom).then(|| parted(tasks, cluster)),
        }
    }
    fn on(self, row: Row) -> Row {
        Row { shared: self.shared, tight: self.tight, parts: self.parts, ..row }
    }
}

/// A mode over all datasets.
struct Total {
    variant: (Mode, bool),
    target: Option<f64>,
    cluster: ClusterShape,
    sums: Sums,
    sides: Sides,
}

impl Total {
    fn add(&mut self, other: &Total) {
        self.sums.add(&other.sums);
        self.sides.shared.add(&other.sides.shared);
        self.sides.tight.add(&other.sides.tight);
        if let (Some(parts), Some(more)) = (self.sides.parts.as_mut(), other.sides.parts) {
            parts.add(&more);
        }
        if self.cluster.nodes != other.cluster.nodes {
            self.cluster.nodes = 0;
        }
        if self.cluster.memory != other.cluster.memory {
            self.cluster.memory = Bytes::ZERO;
        }
    }
    fn row(&self) -> Row {
        let (mode, growth) = self.variant;
        self.sides.on(Row { target_utilization: self.target, ..self.sums.row(TOTAL, mode, growth, self.cluster) })
    }
}

fn parted(tasks: &[trace::Task], cluster: ClusterShape) -> Parted {
    let load = TraceLoad::at_once(cluster);
    let of = |rule| run::parted(tasks, rule, &load);
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
