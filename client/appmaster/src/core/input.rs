//! Inputs of attempts: planned and read bytes, local and remote data, and the memory that a remote
//! input takes.

use std::collections::BTreeSet;

use headroom_config::{InputHosts, InputLocality, MemoryQuantities, StageSpec};
use headroom_types::{Bytes, Dimension, ExitCharge, NodeId};
use headroom_wire::v1::application_master::{Placement, RelaxationPolicy};
use headroom_wire::v1::job::{AttemptInput, AttemptRow, DataLocality};

use super::MasterCore;
use super::input_sizes::gap;
use crate::executors::RequestPurpose;
use crate::spec;
use crate::taskset::{TaskInstance, TaskPosition};

/// Timeout for a container on a node that holds its task's input. Milliseconds.
const WAIT_FOR_LOCAL_MS: u64 = 3000;
/// Maximum number of preferred nodes. A request that would name more has no preference.
const MAX_PREFERRED_NODES: usize = 64;
impl MasterCore {
    /// The input size of a task; `None` if it is unknown. Bytes.
    pub(super) fn planned_input(&self, key: TaskPosition) -> Option<Bytes> {
        self.learning
            .inputs()
            .planned(key)
            .filter(|input| !input.is_zero())
    }

    fn hosts_of(&self, key: TaskPosition) -> Vec<NodeId> {
        let Some(stage) = self.stage_of(key) else {
            return Vec::new();
        };
        let hosts = |hosts: &InputHosts| {
            hosts.of(
                stage.first.saturating_add(key.index),
                usize::try_from(key.index).unwrap_or(usize::MAX),
            )
        };
        stage.input_hosts.as_ref().map(hosts).unwrap_or_default()
    }

    /// Location of a task's input for an attempt on this node.
    pub(super) fn locality(&self, key: TaskPosition, node: &NodeId) -> Option<DataLocality> {
        match self.stage_of(key)?.input_locality? {
            InputLocality::Remote => Some(DataLocality::Remote),
            InputLocality::Local => {
                let hosts = self.hosts_of(key);
                let local = if hosts.contains(node) {
                    DataLocality::Local
                } else {
                    DataLocality::Remote
                };
                (!hosts.is_empty()).then_some(local)
            }
        }
    }

    /// The known properties of an attempt's input when it is placed.
    pub(super) fn input_on(&self, key: TaskPosition, node: &NodeId) -> Option<AttemptInput> {
        let (planned, locality) = (self.planned_input(key), self.locality(key, node));
        (planned.is_some() || locality.is_some()).then_some(AttemptInput {
            planned,
            read: None,
            locality,
            gap: None,
        })
    }

    /// Adds the read bytes of an attempt to its row, and the gap to the planned bytes.
    pub(super) fn note_read(&self, key: TaskPosition, row: &mut AttemptRow, read: Option<Bytes>) {
        // Measured files may be known only after the attempt was placed.
        let planned = self.planned_input(key);
        if row.input.is_none() && planned.is_none() {
            return;
        }
        let whole = row
            .reason
            .is_some_and(|reason| reason.charge() == ExitCharge::Success);
        let input = row.input.get_or_insert_default();
        input.planned = input.planned.or(planned);
        input.read = read;
        input.gap = input
            .planned
            .zip(read)
            .and_then(|(planned, read)| gap(planned, read, whole));
    }

    /// Additional memory for the size after a kill: the input, if it came over the network into a
    /// managed runtime and no earlier size included it. Bytes.
    pub(super) fn remote_input(&self, key: TaskPosition, row: &AttemptRow) -> Bytes {
        let (Some(stage), Some(task)) = (self.stage_of(key), self.tasks.get(key)) else {
            return Bytes::ZERO;
        };
        if stage.input_locality != Some(InputLocality::Local) || !is_managed(stage) {
            return Bytes::ZERO;
        }
        let charged = |a: &AttemptRow| is_remote(a) && a.dimension == Some(Dimension::Overhead);
        let before = task
            .attempts
            .iter()
            .filter(|a| a.attempt != row.attempt)
            .any(charged);
        if before || !charged(row) {
            return Bytes::ZERO;
        }
        row.input
            .as_ref()
            .and_then(|input| input.planned.max(input.read))
            .unwrap_or_default()
    }

    /// Additional memory for the first size of a task: an input that is remote on every node, in a
    /// managed runtime. Bytes.
    pub(super) fn first_charge(&self, key: TaskPosition) -> Bytes {
        let remote = |stage: &&StageSpec| {
            stage.input_locality == Some(InputLocality::Remote) && is_managed(stage)
        };
        self.stage_of(key)
            .filter(remote)
            .and_then(|_| self.planned_input(key))
            .unwrap_or_default()
    }

    /// Recomputes the first sizes of a stage after its remote inputs became known, for tasks that
    /// have not started and have the stated size.
    pub(super) fn charge_first(&mut self, stage: usize) {
        for key in self.tasks.keys_of(stage).collect::<Vec<_>>() {
            let charge = self.first_charge(key);
            let waits = |task: &TaskInstance| {
                task.sized && task.attempts.is_empty() && !task.escalated && !task.is_final()
            };
            let (Some(spec), true) = (
                self.job.stages.get(stage),
                self.tasks.get(key).is_some_and(waits),
            ) else {
                continue;
            };
            let size = spec::first_size_with(&self.job, spec, charge);
            let Some(task) = self.tasks.get_mut(key).filter(|task| task.size != size) else {
                continue;
            };
            task.why = format!(
                "the size of its stage, and its input of {charge} that comes over the network"
            );
            self.resize(key, &size);
        }
    }

    /// Preferred nodes for containers of this purpose: those that hold the input of their tasks.
    pub(super) fn preference(
        &self,
        purpose: RequestPurpose,
        avoid: &BTreeSet<NodeId>,
    ) -> Placement {
        let keys: Vec<TaskPosition> = match purpose {
            RequestPurpose::Own(key) => vec![key],
            RequestPurpose::Set(set) => {
                let local = |stage: &usize| {
                    let spec = self.job.stages.get(*stage);
                    self.set_of.get(*stage) == Some(&set)
                        && spec.is_some_and(|s| s.input_locality == Some(InputLocality::Local))
                };
                (0..self.job.stages.len())
                    .filter(local)
                    .flat_map(|stage| self.tasks.keys_of(stage))
                    .collect()
            }
        };
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        for key in keys {
            nodes.extend(
                self.hosts_of(key)
                    .into_iter()
                    .filter(|node| !avoid.contains(node)),
            );
            if nodes.len() > MAX_PREFERRED_NODES {
                return Placement::default();
            }
        }
        if nodes.is_empty() {
            return Placement::default();
        }
        let relax = RelaxationPolicy::After {
            ms: WAIT_FOR_LOCAL_MS,
        };
        Placement {
            prefer_nodes: nodes.into_iter().collect(),
            relax,
            ..Placement::default()
        }
    }
}

fn is_managed(stage: &StageSpec) -> bool {
    stage.runtime.memory() == MemoryQuantities::HeapAndOverhead
}

/// True when the input came over the network.
fn is_remote(row: &AttemptRow) -> bool {
    row.input
        .as_ref()
        .is_some_and(|input| input.locality == Some(DataLocality::Remote))
}
