//! The nodes of a replay: an attempt goes where the least memory is left over.

use std::collections::BTreeSet;

use headroom_types::Bytes;

use super::ClusterShape;

/// One node.
#[derive(Clone, Debug)]
struct NodeRoom {
    /// Processors that are free.
    cpus: u32,
    /// Memory that is free.
    memory: Bytes,
    /// Tasks whose attempts it runs.
    running: BTreeSet<usize>,
    /// Those of them that are held for more memory, the longest first.
    held: Vec<usize>,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    all: Vec<NodeRoom>,
    shape: ClusterShape,
}

impl Nodes {
    /// Nodes on which nothing runs.
    pub(super) fn new(shape: ClusterShape) -> Nodes {
        let node = NodeRoom { cpus: shape.cpus, memory: shape.memory, running: BTreeSet::new(), held: Vec::new() };
        Nodes { all: vec![node; shape.nodes], shape }
    }
    /// Processors that an attempt of this task takes: no more than a node has.
    pub(super) fn cpus_of(&self, cpus: u32) -> u32 {
        cpus.min(self.shape.cpus)
    }
    /// Their number, and what each has.
    pub(super) fn shape(&self) -> ClusterShape {
        self.shape
    }
    /// Memory of a node on which nothing runs.
    pub(super) fn memory(&self) -> Bytes {
        self.shape.memory
    }
    /// True when no processor is free on any node.
    pub(super) fn are_busy(&self) -> bool {
        self.all.iter().all(|node| node.cpus == 0)
    }
    /// Memory that is free on a node.
    pub(super) fn free_on(&self, at: usize) -> Bytes {
        self.all.get(at).map_or(Bytes::ZERO, |node| node.memory)
    }
    /// Tasks whose attempts run on a node.
    pub(super) fn running_on(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.all.get(at).into_iter().flat_map(|node| &node.running).copied()
    }
    /// Tasks that are held on a node, the longest first.
    pub(super) fn held_on(&self, at: usize) -> &[usize] {
        self.all.get(at).map_or(&[], |node| &node.held)
    }
    /// True when all attempts on a node, at least two, are held for the memory of each other, so that none of them will end.
    pub(super) fn stands_still(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|node| node.held.len() > 1 && node.held.len() == node.running.len())
    }
    /// Takes room for a task where the least memory is left over, and returns where. A node with held tasks takes nothing new: what
    /// becomes free there is for them.
    pub(super) fn take(&mut self, task: usize, cpus: u32, memory: Bytes) -> Option<usize> {
        let fits = |node: &NodeRoom| node.cpus >= cpus && node.memory >= memory && node.held.is_empty();
        let (at, _) = self.all.iter().enumerate().filter(|(_, node)| fits(node)).min_by_key(|(_, node)| node.memory)?;
        let node = self.all.get_mut(at)?;
        node.cpus -= cpus;
        node.memory = node.memory.saturating_sub(memory);
        node.running.insert(task);
        Some(at)
    }
    /// Takes more memory where a task runs. False when there is none.
    pub(super) fn grow(&mut self, at: usize, by: Bytes) -> bool {
        let Some(node) = self.all.get_mut(at).filter(|node| node.memory >= by) else { return false };
        node.memory = node.memory.saturating_sub(by);
        true
    }
    /// A task is held where it runs.
    pub(super) fn hold(&mut self, at: usize, task: usize) {
        if let Some(node) = self.all.get_mut(at) {
            node.held.push(task);
        }
    }
    /// A task is not held any longer.
    pub(super) fn resume(&mut self, at: usize, task: usize) {
        if let Some(node) = self.all.get_mut(at) {
            node.held.retain(|held| *held != task);
        }
    }
    /// An attempt has ended: its room is free.
    pub(super) fn free(&mut self, at: usize, task: usize, cpus: u32, memory: Bytes) {
        let Some(node) = self.all.get_mut(at) else { return };
        node.cpus += cpus;
        node.memory = node.memory.saturating_add(memory);
        node.running.remove(&task);
        node.held.retain(|held| *held != task);
    }
}
