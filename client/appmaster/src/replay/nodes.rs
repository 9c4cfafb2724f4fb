//! The nodes of a replay. An attempt is placed on the fitting node with the least free memory.

use std::collections::BTreeSet;

use headroom_types::Bytes;

use super::cluster_shape::ClusterShape;

/// One node.
#[derive(Clone, Debug)]
struct ReplayNodeCapacity {
    /// Free processors.
    cpus: u32,
    /// Free memory.
    memory: Bytes,
    /// Tasks whose attempts run there.
    running: BTreeSet<usize>,
    /// Tasks among them that are frozen, the longest first.
    held: Vec<usize>,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(super) struct ReplayNodes {
    all: Vec<ReplayNodeCapacity>,
    shape: ClusterShape,
}

impl ReplayNodes {
    /// Nodes without attempts.
    pub(super) fn new(shape: ClusterShape) -> ReplayNodes {
        let node = ReplayNodeCapacity {
            cpus: shape.cpus,
            memory: shape.memory,
            running: BTreeSet::new(),
            held: Vec::new(),
        };
        ReplayNodes {
            all: vec![node; shape.nodes],
            shape,
        }
    }
    /// Processors that an attempt of this task occupies: at most those of a node.
    pub(super) fn cpus_of(&self, cpus: u32) -> u32 {
        cpus.min(self.shape.cpus)
    }
    /// Number and size of the nodes.
    pub(super) fn shape(&self) -> ClusterShape {
        self.shape
    }
    /// Total memory of a node.
    pub(super) fn memory(&self) -> Bytes {
        self.shape.memory
    }
    /// True when no node has a free processor.
    pub(super) fn are_busy(&self) -> bool {
        self.all.iter().all(|node| node.cpus == 0)
    }
    /// Free memory of a node.
    pub(super) fn free_on(&self, at: usize) -> Bytes {
        self.all.get(at).map_or(Bytes::ZERO, |node| node.memory)
    }
    /// Tasks whose attempts run on a node.
    pub(super) fn running_on(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.all
            .get(at)
            .into_iter()
            .flat_map(|node| &node.running)
            .copied()
    }
    /// Tasks that are frozen on a node, the longest first.
    pub(super) fn held_on(&self, at: usize) -> &[usize] {
        self.all.get(at).map_or(&[], |node| &node.held)
    }
    /// True when all attempts on a node, at least two, are frozen and wait for each other's memory,
    /// so that none will end.
    pub(super) fn stands_still(&self, at: usize) -> bool {
        self.all
            .get(at)
            .is_some_and(|node| node.held.len() > 1 && node.held.len() == node.running.len())
    }
    /// Reserves memory for a task on the fitting node with the least free memory, and returns the
    /// node. A node with frozen tasks accepts no new task: its free memory is for them.
    pub(super) fn take(&mut self, task: usize, cpus: u32, memory: Bytes) -> Option<usize> {
        let fits = |node: &ReplayNodeCapacity| {
            node.cpus >= cpus && node.memory >= memory && node.held.is_empty()
        };
        let (at, _) = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, node)| fits(node))
            .min_by_key(|(_, node)| node.memory)?;
        let node = self.all.get_mut(at)?;
        node.cpus -= cpus;
        node.memory = node.memory.saturating_sub(memory);
        node.running.insert(task);
        Some(at)
    }
    /// Takes more memory for a running task. False when there is too little.
    pub(super) fn grow(&mut self, at: usize, by: Bytes) -> bool {
        let Some(node) = self.all.get_mut(at).filter(|node| node.memory >= by) else {
            return false;
        };
        node.memory = node.memory.saturating_sub(by);
        true
    }
    /// Marks a task as frozen.
    pub(super) fn hold(&mut self, at: usize, task: usize) {
        if let Some(node) = self.all.get_mut(at) {
            node.held.push(task);
        }
    }
    /// Marks a task as no longer frozen.
    pub(super) fn resume(&mut self, at: usize, task: usize) {
        if let Some(node) = self.all.get_mut(at) {
            node.held.retain(|held| *held != task);
        }
    }
    /// Frees the resources of an ended attempt.
    pub(super) fn free(&mut self, at: usize, task: usize, cpus: u32, memory: Bytes) {
        let Some(node) = self.all.get_mut(at) else {
            return;
        };
        node.cpus += cpus;
        node.memory = node.memory.saturating_add(memory);
        node.running.remove(&task);
        node.held.retain(|held| *held != task);
    }
}
