//! What-if replay: recorded tasks run again on simulated nodes, in each mode.
//!
//! One task is one container. Tasks start in the order of their submission, each as soon as there
//! is free memory. A task whose need exceeds its size reaches its limit at a time drawn from the
//! distribution of real kills, equal for every mode. There it grows, or it is killed and its mode
//! gives the next size. The reference is a run in which every need is known in advance.

mod cluster_shape;
mod executors;
mod growth;
mod hold;
mod load;
mod mode_sizes;
mod nodes;
mod parts;
mod requirements;
mod result_row;
mod run;
mod shared_results;
mod sums;
mod ticks;
pub mod trace;

use headroom_types::Bytes;
use headroom_wire::v1::job::MemoryFailureMode;
use load::TraceLoad;
use parts::MemorySplitRule;
use sums::ReplayCounters;

use crate::policy::grow;

pub use crate::policy::grow::mode_allows_growth as grows;
pub use cluster_shape::ClusterShape;
pub use load::StatedNodes;
pub use mode_sizes::SHARE;
pub use parts::MemorySplitResults;
pub use result_row::{ReplayResultRow, Requirement, TOTAL};
pub use shared_results::SharedResults;

/// Whether tasks at their limit grow in place, in modes that support this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthChoice {
    /// They grow.
    On,
    /// They are killed.
    Off,
    /// Both variants, one after the other.
    Both,
}

impl GrowthChoice {
    /// The growth variants of a mode.
    fn of(self, mode: MemoryFailureMode) -> &'static [bool] {
        match self {
            _ if !grow::mode_allows_growth(mode) => &[false],
            GrowthChoice::On => &[true],
            GrowthChoice::Off => &[false],
            GrowthChoice::Both => &[true, false],
        }
    }
}

/// The parameters of a replay.
#[derive(Clone, Debug)]
pub struct ReplayScenario {
    /// Modes.
    pub modes: Vec<MemoryFailureMode>,
    /// Growth variants.
    pub growth: GrowthChoice,
    /// Nodes.
    pub cluster: ClusterShape,
    /// The properties of the nodes that the caller stated; with `utilizations`, the trace
    /// determines the others.
    pub stated: StatedNodes,
    /// Target utilisations of the nodes' memory, 0 to 1. Each causes a run with submissions at a
    /// constant rate. If empty, all tasks are submitted at the start.
    pub utilizations: Vec<f64>,
}

impl ReplayScenario {
    /// The loads of a trace, each with its target utilisation.
    fn loads(&self, tasks: &[trace::RecordedTask]) -> Vec<(Option<f64>, TraceLoad)> {
        if self.utilizations.is_empty() {
            return vec![(None, TraceLoad::at_once(self.cluster))];
        }
        let paced = |of: &f64| {
            (
                Some(*of),
                TraceLoad::paced(tasks, *of, self.cluster, self.stated),
            )
        };
        self.utilizations.iter().map(paced).collect()
    }
    /// Each mode with its requested growth variants.
    fn variants(&self) -> Vec<(MemoryFailureMode, bool)> {
        self.modes
            .iter()
            .flat_map(|mode| self.growth.of(*mode).iter().map(|growth| (*mode, *growth)))
            .collect()
    }
}

/// Progress of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Tasks that have ended, over all modes and the reference runs.
    pub tasks: u64,
    /// Total number of tasks.
    pub of: u64,
}

/// Replays every dataset in every mode and at every utilisation of the scenario; the last rows are
/// the totals. `progress` receives the progress.
pub fn replay(
    datasets: &[trace::RecordedDataset],
    scenario: &ReplayScenario,
    progress: &mut dyn FnMut(ReplayProgress),
) -> Vec<ReplayResultRow> {
    let variants = scenario.variants();
    let loads = scenario.utilizations.len().max(1);
    let each = |dataset: &trace::RecordedDataset| {
        count(dataset.tasks.len() * (variants.len() + 1) * loads)
    };
    let of = datasets.iter().map(each).sum();
    let mut before = 0;
    let mut rows = Vec::new();
    let mut totals: Vec<ReplayModeTotals> = Vec::new();
    for dataset in datasets {
        let tasks = &dataset.tasks;
        // These runs submit all tasks at the start, independent of the target utilisation.
        let sides: Vec<SideResults> = variants
            .iter()
            .map(|variant| SideResults::of(tasks, *variant, scenario.cluster))
            .collect();
        let mut places = 0..;
        for (target, load) in scenario.loads(tasks) {
            let ideal = run::ideal(tasks, &load, &mut |n| {
                progress(ReplayProgress {
                    tasks: before + n,
                    of,
                })
            });
            before += count(tasks.len());
            for (variant, side) in variants.iter().zip(&sides) {
                let sums = run::run(tasks, *variant, &load, ideal, &mut |n| {
                    progress(ReplayProgress {
                        tasks: before + n,
                        of,
                    })
                });
                before += count(tasks.len());
                let (mode, growth) = *variant;
                rows.push(side.on(ReplayResultRow {
                    target_utilization: target,
                    ..sums.row(&dataset.name, mode, growth, load.cluster)
                }));
                let total = ReplayModeTotals {
                    variant: *variant,
                    target,
                    cluster: load.cluster,
                    sums,
                    sides: *side,
                };
                let place: usize = places.next().unwrap_or_default();
                match totals.get_mut(place) {
                    Some(sum) => sum.add(&total),
                    None => totals.push(total),
                }
            }
        }
    }
    let all: Vec<ReplayResultRow> = totals.iter().map(ReplayModeTotals::row).collect();
    let gates = if scenario.utilizations.is_empty() {
        requirements::all(&rows, &all)
    } else {
        Vec::new()
    };
    rows.extend(all);
    if let Some(ours) = rows
        .iter_mut()
        .find(|row| row.mode == MemoryFailureMode::Headroom && row.dataset == TOTAL)
    {
        ours.gates = gates;
    }
    rows
}

fn count(tasks: usize) -> u64 {
    u64::try_from(tasks).unwrap_or(u64::MAX)
}

/// Additional results: shared executors, and separate quantities.
#[derive(Clone, Copy, Debug)]
struct SideResults {
    shared: SharedResults,
    tight: SharedResults,
    parts: Option<MemorySplitResults>,
}

impl SideResults {
    fn of(
        tasks: &[trace::RecordedTask],
        variant: (MemoryFailureMode, bool),
        cluster: ClusterShape,
    ) -> SideResults {
        SideResults {
            shared: executors::run(tasks, variant, cluster, executors::EXECUTOR),
            tight: executors::run(tasks, variant, cluster, executors::tight(tasks)),
            parts: (variant.0 == MemoryFailureMode::Headroom).then(|| parted(tasks, cluster)),
        }
    }
    fn on(self, row: ReplayResultRow) -> ReplayResultRow {
        ReplayResultRow {
            shared: self.shared,
            tight: self.tight,
            parts: self.parts,
            ..row
        }
    }
}

/// The sum of a mode over all datasets.
struct ReplayModeTotals {
    variant: (MemoryFailureMode, bool),
    target: Option<f64>,
    cluster: ClusterShape,
    sums: ReplayCounters,
    sides: SideResults,
}

impl ReplayModeTotals {
    fn add(&mut self, other: &ReplayModeTotals) {
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
    fn row(&self) -> ReplayResultRow {
        let (mode, growth) = self.variant;
        self.sides.on(ReplayResultRow {
            target_utilization: self.target,
            ..self.sums.row(TOTAL, mode, growth, self.cluster)
        })
    }
}

fn parted(tasks: &[trace::RecordedTask], cluster: ClusterShape) -> MemorySplitResults {
    let load = TraceLoad::at_once(cluster);
    let of = |rule| run::parted(tasks, rule, &load);
    let (knob, learned, apart) = (
        of(MemorySplitRule::OneKnob),
        of(MemorySplitRule::OneKnobLearned),
        of(MemorySplitRule::Apart),
    );
    MemorySplitResults {
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
