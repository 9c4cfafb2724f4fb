//! What attempts read and where that is: planned against read, local against remote, and what a remote input takes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headroom_config::{InputHosts, InputLocality, Memory, StageSpec};
use headroom_types::{Bytes, Charge, Dimension, NodeId};
use headroom_wire::v1::am::{Placement, Relax};
use headroom_wire::v1::job::{AttemptInput, AttemptRow, InputGap, Locality};

use super::Core;
use crate::executors::Purpose;
use crate::spec;
use crate::taskset::{Task, TaskKey};

/// A container waits so long for a node that holds its task's input.
const WAIT_FOR_LOCAL_MS: u64 = 3000;
/// Most nodes that are preferred at once; who names more has no preference.
const MOST_PREFERRED: usize = 64;
/// Programs read so much for themselves: code, settings, pipes. Bytes.
const OF_ITS_OWN: Bytes = Bytes::from_mib(4);

/// What the ratio of what was read to what was planned is told from: the last attempts of a kind.
const REMEMBERED: usize = 64;
/// Fewer tell nothing.
const ENOUGH: usize = 3;

/// The sizes of all inputs: as planned, and how far what was read lies from that. Lasting state of the core.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// For each stage, that of each task; empty where nothing was told or measured.
    planned: Vec<Vec<Option<Bytes>>>,
    /// For each stage, the first one of the same kind.
    kind_of: Vec<usize>,
    /// For each kind, what was read as a ratio to what was planned; 1 where there is no gap. The oldest first.
    ratios: BTreeMap<usize, VecDeque<f64>>,
}

impl Inputs {
    pub(super) fn new(planned: Vec<Vec<Option<Bytes>>>, kind_of: Vec<usize>) -> Inputs {
        Inputs { planned, kind_of, ratios: BTreeMap::new() }
    }
    /// The inputs of a stage were measured.
    pub(super) fn measured(&mut self, stage: usize, sizes: &[Option<Bytes>]) {
        if let Some(planned) = self.planned.get_mut(stage) {
            *planned = sizes.to_vec();
        }
    }
    /// True for a stage whose inputs were neither told nor measured.
    pub(super) fn are_unknown(&self, stage: usize) -> bool {
        self.planned.get(stage).is_some_and(Vec::is_empty)
    }
    /// As the job file tells, or as it was measured.
    pub(super) fn planned(&self, key: TaskKey) -> Option<Bytes> {
        self.planned.get(key.stage)?.get(usize::try_from(key.index).ok()?).copied().flatten()
    }
    /// What a task will read as far as its kind tells: where most of it reads twice what was planned, twice what is planned.
    pub(super) fn expected(&self, key: TaskKey) -> Option<Bytes> {
        let planned = self.planned(key)?;
        let ratio = self.kind_of.get(key.stage).and_then(|kind| self.ratios.get(kind)).map_or(1.0, median);
        Some(if (ratio - 1.0).abs() < f64::EPSILON { planned } else { times(planned, ratio) })
    }
    /// What a task of a finished attempt has read: as it was seen where it lies far from the plan, else as planned.
    pub(super) fn actual(&self, key: TaskKey, row: &AttemptRow) -> Option<Bytes> {
        let seen = row.input.as_ref().and_then(far_from_planned);
        self.planned(key).map(|planned| seen.unwrap_or(planned))
    }
    /// An attempt has ended well.
    pub(super) fn ended(&mut self, key: TaskKey, row: &AttemptRow) {
        let (Some(kind), Some(input)) = (self.kind_of.get(key.stage), &row.input) else { return };
        let Some(planned) = input.planned.filter(|_| input.read.is_some()) else { return };
        let ratios = self.ratios.entry(*kind).or_default();
        ratios.push_back(far_from_planned(input).map_or(1.0, |read| ratio(read, planned)));
        if ratios.len() > REMEMBERED {
            ratios.pop_front();
        }
    }
}

/// What was read, where that lies far from the plan and tells of the input. Who reads no more than programs read for themselves maps its
/// input, or has others read it: such a figure is the same for a large input and a small one.
fn far_from_planned(input: &AttemptInput) -> Option<Bytes> {
    input.read.filter(|read| input.gap.is_some() && *read > OF_ITS_OWN)
}

fn median(ratios: &VecDeque<f64>) -> f64 {
    let mut sorted: Vec<f64> = ratios.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() < ENOUGH { 1.0 } else { sorted.get(sorted.len() / 2).copied().unwrap_or(1.0) }
}
#[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
fn ratio(read: Bytes, planned: Bytes) -> f64 {
    read.get() as f64 / planned.get().max(1) as f64
}
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // as above
fn times(planned: Bytes, ratio: f64) -> Bytes {
    Bytes::new((planned.get() as f64 * ratio).min(1e18) as u64)
}

impl Core {
    /// What a task is to read; `None` where nobody said. Bytes.
    pub(super) fn planned_input(&self, key: TaskKey) -> Option<Bytes> {
        self.learning.inputs().planned(key).filter(|input| !input.is_zero())
    }

    fn hosts_of(&self, key: TaskKey) -> Vec<NodeId> {
        let Some(stage) = self.stage_of(key) else { return Vec::new() };
        let hosts = |hosts: &InputHosts| {
            hosts.of(stage.first.saturating_add(key.index), usize::try_from(key.index).unwrap_or(usize::MAX))
        };
        stage.input_hosts.as_ref().map(hosts).unwrap_or_default()
    }

    /// Where a task's input is for an attempt on this node.
    pub(super) fn locality(&self, key: TaskKey, node: &NodeId) -> Option<Locality> {
        match self.stage_of(key)?.input_locality? {
            InputLocality::Remote => Some(Locality::Remote),
            InputLocality::Local => {
                let hosts = self.hosts_of(key);
                let local = if hosts.contains(node) { Locality::Local } else { Locality::Remote };
                (!hosts.is_empty()).then_some(local)
            }
        }
    }

    /// What is known of an attempt's input when it is placed.
    pub(super) fn input_on(&self, key: TaskKey, node: &NodeId) -> Option<AttemptInput> {
        let (planned, locality) = (self.planned_input(key), self.locality(key, node));
        (planned.is_some() || locality.is_some()).then_some(AttemptInput { planned, read: None, locality, gap: None })
    }

    /// What an attempt has read, beside what was planned.
    pub(super) fn note_read(&self, key: TaskKey, row: &mut AttemptRow, read: Option<Bytes>) {
        // Measured files may be known only after the attempt was placed.
        let planned = self.planned_input(key);
        if row.input.is_none() && planned.is_none() {
            return;
        }
        let whole = row.reason.is_some_and(|reason| reason.charge() == Charge::Success);
        let input = row.input.get_or_insert_default();
        input.planned = input.planned.or(planned);
        input.read = read;
        input.gap = input.planned.zip(read).and_then(|(planned, read)| gap(planned, read, whole));
    }

    /// What the next size of an attempt that was killed has to hold more: its input, when that came over the network into a managed
    /// runtime and no size of the task's has held it yet. Bytes.
    pub(super) fn remote_input(&self, key: TaskKey, row: &AttemptRow) -> Bytes {
        let (Some(stage), Some(task)) = (self.stage_of(key), self.tasks.get(key)) else { return Bytes::ZERO };
        if stage.input_locality != Some(InputLocality::Local) || !is_managed(stage) {
            return Bytes::ZERO;
        }
        let charged = |a: &AttemptRow| is_remote(a) && a.dimension == Some(Dimension::Overhead);
        let before = task.attempts.iter().filter(|a| a.attempt != row.attempt).any(charged);
        if before || !charged(row) {
            return Bytes::ZERO;
        }
        row.input.as_ref().and_then(|input| input.planned.max(input.read)).unwrap_or_default()
    }

    /// What the first size of a task holds more than its stage states: an input that is remote wherever it runs, in a managed runtime. Bytes.
    pub(super) fn first_charge(&self, key: TaskKey) -> Bytes {
        let remote = |stage: &&StageSpec| stage.input_locality == Some(InputLocality::Remote) && is_managed(stage);
        self.stage_of(key).filter(remote).and_then(|_| self.planned_input(key)).unwrap_or_default()
    }

    /// First sizes of a stage whose inputs are known now and come over the network, for those that have not begun and start with what
    /// was stated.
    pub(super) fn charge_first(&mut self, stage: usize) {
        for key in self.tasks.keys_of(stage).collect::<Vec<_>>() {
            let charge = self.first_charge(key);
            let waits = |task: &Task| task.sized && task.attempts.is_empty() && !task.escalated && !task.is_final();
            let (Some(spec), true) = (self.job.stages.get(stage), self.tasks.get(key).is_some_and(waits)) else { continue };
            let size = spec::first_size_with(&self.job, spec, charge);
            let Some(task) = self.tasks.get_mut(key).filter(|task| task.size != size) else { continue };
            task.why = format!("the size of its stage, and its input of {charge} that comes over the network");
            self.resize(key, &size);
        }
    }

    /// Where containers of this purpose would rather be: where the input of their tasks is.
    pub(super) fn preference(&self, purpose: Purpose, avoid: &BTreeSet<NodeId>) -> Placement {
        let keys: Vec<TaskKey> = match purpose {
            Purpose::Own(key) => vec![key],
            Purpose::Set(set) => {
                let local = |stage: &usize| {
                    let spec = self.job.stages.get(*stage);
                    self.set_of.get(*stage) == Some(&set) && spec.is_some_and(|s| s.input_locality == Some(InputLocality::Local))
                };
                (0..self.job.stages.len()).filter(local).flat_map(|stage| self.tasks.keys_of(stage)).collect()
            }
        };
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        for key in keys {
            nodes.extend(self.hosts_of(key).into_iter().filter(|node| !avoid.contains(node)));
            if nodes.len() > MOST_PREFERRED {
                return Placement::default();
            }
        }
        if nodes.is_empty() {
            return Placement::default();
        }
        let relax = Relax::After { ms: WAIT_FOR_LOCAL_MS };
        Placement { prefer_nodes: nodes.into_iter().collect(), relax, ..Placement::default() }
    }
}

fn is_managed(stage: &StageSpec) -> bool {
    stage.runtime.memory() == Memory::HeapAndOverhead
}

/// True when its input came over the network.
fn is_remote(row: &AttemptRow) -> bool {
    row.input.as_ref().is_some_and(|input| input.locality == Some(Locality::Remote))
}

/// More than half as much again, or less than two thirds. One that did not come to its end may have read too little.
fn gap(planned: Bytes, read: Bytes, whole: bool) -> Option<InputGap> {
    let far = |less: Bytes, more: Bytes| more > less.mul_ratio(3, 2).saturating_add(OF_ITS_OWN);
    if far(planned, read) {
        Some(InputGap::More)
    } else if whole && far(read, planned) {
        Some(InputGap::Less)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TaskKey = TaskKey { stage: 0, index: 0 };

    fn read(planned: u64, read: u64) -> AttemptRow {
        let (planned, read) = (Bytes::from_mib(planned), Bytes::from_mib(read));
        let input = AttemptInput { planned: Some(planned), read: Some(read), locality: None, gap: gap(planned, read, true) };
        let mut row: AttemptRow = serde_json::from_value(serde_json::json!({
            "attempt": "map/0@1", "profile": {"heap": 1, "overhead": 0, "cpus": 1}, "slots": 1, "rung": 1,
            "container": "job.1.e1.c1", "node": "n1", "started": 1, "ended": 2, "peak": null, "used": null,
            "reason": null, "dimension": null, "evidence": null,
        }))
        .expect("a row");
        row.input = Some(input);
        row
    }

    #[test]
    fn where_a_kind_reads_twice_what_was_planned_twice_is_expected() {
        let mut inputs = Inputs::new(vec![vec![Some(Bytes::from_mib(100))]], vec![0]);
        for _ in 0..3 {
            assert_eq!(inputs.expected(ONE), Some(Bytes::from_mib(100)));
            inputs.ended(ONE, &read(200, 400));
        }
        assert_eq!(inputs.expected(ONE), Some(Bytes::from_mib(200)));
        for _ in 0..4 {
            inputs.ended(ONE, &read(200, 205));
        }
        assert_eq!(inputs.expected(ONE), Some(Bytes::from_mib(100)), "most read what was planned");
        for _ in 0..REMEMBERED {
            inputs.ended(ONE, &read(200, 1));
        }
        assert_eq!(inputs.expected(ONE), Some(Bytes::from_mib(100)), "the plan is all there is to go by");
    }

    #[test]
    fn a_finished_task_teaches_with_what_it_read_only_where_that_lies_far_from_the_plan() {
        let inputs = Inputs::new(vec![vec![Some(Bytes::from_mib(100))]], vec![0]);
        assert_eq!(inputs.actual(ONE, &read(100, 104)), Some(Bytes::from_mib(100)));
        assert_eq!(inputs.actual(ONE, &read(100, 800)), Some(Bytes::from_mib(800)));
        assert_eq!(inputs.actual(ONE, &read(100, 20)), Some(Bytes::from_mib(20)));
        assert_eq!(inputs.actual(ONE, &read(100, 3)), Some(Bytes::from_mib(100)), "it mapped its input");
        let unknown = Inputs::new(vec![vec![None]], vec![0]);
        assert_eq!(unknown.actual(ONE, &read(100, 800)), None, "whoever comes next has no input to go by either");
    }

    #[test]
    fn a_gap_is_more_than_half_as_much_again_either_way() {
        let of = |planned, read, whole| gap(Bytes::from_mib(planned), Bytes::from_mib(read), whole);
        assert_eq!(of(100, 154, true), None, "what a program reads for itself is no gap");
        assert_eq!(of(100, 155, true), Some(InputGap::More));
        assert_eq!(of(100, 155, false), Some(InputGap::More));
        assert_eq!((of(155, 100, true), of(154, 100, true)), (Some(InputGap::Less), None));
        assert_eq!(of(155, 100, false), None, "what was killed has not read it all");
        assert_eq!(of(1, 5, true), None);
    }
}
