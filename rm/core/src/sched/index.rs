//! Index of schedulable nodes by free resources and properties, so that a placement does not
//! inspect every node.
//!
//! The node table owns the index and updates it after every change of a node. Each node has a small
//! number, [`NodeNumber`], for the lifetime of the cluster; all sets contain that number.
//!
//! Costs per placement (one "search" is a search of one sorted list):
//!
//! | placement | cost |
//! | --- | --- |
//! | a size, no rules | one search among the nodes that are open to all requests |
//! | tolerated taints | two searches, one among the tainted nodes; other taints are skipped |
//! | countable resources | one search per class of free pieces, among nodes with a free piece |
//! | named or preferred nodes | one inspection of each of them |
//! | racks | one search in each of them |
//! | labels | one search in the smallest label; nodes that lack another label are skipped |
//! | attributes | inspections of the nodes with the value, if they are the smallest group |
//! | anti-affinity, spread, avoid | excluded nodes are skipped; or one search per other rack |
//!
//! Where several apply, the smallest group is searched and the others filter.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Bytes, Name, NodeId, Resource};

use super::free_memory_index::{FreeMemoryEntry, FreeMemoryIndex};
use super::node_ix::NodeNumber;
use crate::event::{Exclusive, NodeProperties};
use crate::table::HashedTable;

/// A node in the index.
#[derive(Clone, Debug)]
pub struct IndexedNode {
    /// Id of the node.
    pub node: NodeId,
    /// Rack, labels, attributes and taints.
    pub traits: NodeProperties,
    /// Offered resources, while the node is a member.
    pub offers: Option<Resource>,
    /// Free resources for all requests, while the node is schedulable.
    pub room: Option<Resource>,
}

/// Nodes with a common property.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeGroup {
    /// All member nodes of the group.
    pub(crate) members: BTreeSet<NodeNumber>,
    /// Schedulable nodes of the group.
    pub(crate) free: FreeMemoryIndex,
}

/// Nodes that offer one countable resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountableResourceNodes {
    /// All member nodes that offer it.
    pub(crate) members: BTreeSet<NodeNumber>,
    /// Schedulable nodes with free pieces, by class of the number of pieces.
    pub(crate) free: BTreeMap<u32, FreeMemoryIndex>,
}

/// Index of all nodes.
#[derive(Clone, Debug, Default)]
pub struct FreeIndex {
    handles: HashedTable<NodeId, NodeNumber>,
    slots: Vec<IndexedNode>,
    all: BTreeSet<NodeNumber>,
    working: usize,
    pub(crate) open: FreeMemoryIndex,
    /// Schedulable nodes with taints that are not exclusive.
    pub(crate) tainted: FreeMemoryIndex,
    pub(crate) labels: BTreeMap<Name, NodeGroup>,
    pub(crate) racks: BTreeMap<Name, NodeGroup>,
    /// Schedulable nodes without a rack; maintained while at least one rack exists.
    pub(crate) rackless: FreeMemoryIndex,
    pub(crate) extras: BTreeMap<Name, CountableResourceNodes>,
    pub(crate) attributes: BTreeMap<Name, BTreeMap<String, BTreeSet<NodeNumber>>>,
}

/// Class of a number of pieces: each number up to 15 is a class; above, four classes per octave.
pub(crate) fn class(pieces: u64) -> u32 {
    if pieces < 16 {
        return u32::try_from(pieces).unwrap_or(0);
    }
    let octave = pieces.ilog2();
    octave * 4 + u32::try_from((pieces >> (octave - 2)) & 3).unwrap_or(0)
}

impl FreeIndex {
    /// Adds a member node or updates its properties. It is not schedulable until
    /// [`put`](Self::put).
    pub fn enter(
        &mut self,
        node: &NodeId,
        traits: &NodeProperties,
        offers: &Resource,
    ) -> NodeNumber {
        let ix = self.handle(node);
        let known = self
            .slots
            .get(ix.index())
            .is_some_and(|s| s.traits == *traits && s.offers.as_ref() == Some(offers));
        if known {
            return ix;
        }
        self.leave(ix);
        if let Some(slot) = self.slots.get_mut(ix.index()) {
            (slot.traits, slot.offers) = (traits.clone(), Some(offers.clone()));
        }
        self.all.insert(ix);
        for label in &traits.labels {
            self.labels
                .entry(label.clone())
                .or_default()
                .members
                .insert(ix);
        }
        if let Some(rack) = &traits.rack {
            if self.racks.is_empty() {
                self.shelve_rackless();
            }
            self.racks
                .entry(rack.clone())
                .or_default()
                .members
                .insert(ix);
        }
        for (name, value) in &traits.attributes {
            self.attributes
                .entry(name.clone())
                .or_default()
                .entry(value.clone())
                .or_default()
                .insert(ix);
        }
        for name in offers.extra.keys() {
            self.extras
                .entry(name.clone())
                .or_default()
                .members
                .insert(ix);
        }
        ix
    }
    /// Removes a node from the members. Its number stays reserved.
    pub fn leave(&mut self, ix: NodeNumber) {
        self.remove(ix);
        let Some(slot) = self.slots.get_mut(ix.index()) else {
            return;
        };
        let Some(offers) = slot.offers.take() else {
            return;
        };
        let traits = std::mem::take(&mut slot.traits);
        self.all.remove(&ix);
        for label in &traits.labels {
            leave_group(&mut self.labels, label, ix);
        }
        if let Some(rack) = &traits.rack {
            leave_group(&mut self.racks, rack, ix);
            if self.racks.is_empty() {
                self.rackless = FreeMemoryIndex::default();
            }
        }
        for (name, value) in &traits.attributes {
            let Some(values) = self.attributes.get_mut(name) else {
                continue;
            };
            if let Some(nodes) = values.get_mut(value) {
                nodes.remove(&ix);
            }
            values.retain(|_, nodes| !nodes.is_empty());
            if values.is_empty() {
                self.attributes.remove(name);
            }
        }
        for name in offers.extra.keys() {
            let Some(extra) = self.extras.get_mut(name) else {
                continue;
            };
            extra.members.remove(&ix);
            if extra.members.is_empty() {
                self.extras.remove(name);
            }
        }
    }
    /// Makes a member schedulable with these free resources, or updates them.
    pub fn put(&mut self, ix: NodeNumber, free: Resource) {
        if self
            .slots
            .get(ix.index())
            .is_none_or(|s| s.offers.is_none() || s.room.as_ref() == Some(&free))
        {
            return;
        }
        let entry = FreeMemoryEntry {
            memory: free.memory,
            node: ix,
            cpus: free.cpus,
        };
        let before = self
            .slots
            .get_mut(ix.index())
            .and_then(|slot| slot.room.as_mut());
        if let Some(room) = before.filter(|room| room.extra.has_none() && free.extra.has_none()) {
            let memory = std::mem::replace(room, free.clone()).memory;
            self.shelves(ix, &free, |list| list.shift(memory, entry));
            return;
        }
        self.remove(ix);
        self.shelves(ix, &free, |list| list.insert(entry));
        if let Some(slot) = self.slots.get_mut(ix.index()) {
            slot.room = Some(free);
            self.working += 1;
        }
    }
    /// Makes a node unschedulable.
    pub fn remove(&mut self, ix: NodeNumber) {
        let Some(free) = self
            .slots
            .get_mut(ix.index())
            .and_then(|slot| slot.room.take())
        else {
            return;
        };
        self.working -= 1;
        self.shelves(ix, &free, |list| list.remove(free.memory, ix));
    }
    /// Calls `each` for every sorted list that contains a member with these free resources.
    fn shelves(
        &mut self,
        ix: NodeNumber,
        free: &Resource,
        mut each: impl FnMut(&mut FreeMemoryIndex),
    ) {
        let Some(slot) = self.slots.get(ix.index()) else {
            return;
        };
        match slot.traits.exclusive {
            Exclusive::No if slot.traits.taints.is_empty() => each(&mut self.open),
            Exclusive::No => each(&mut self.tainted),
            Exclusive::Yes => {}
        }
        for label in &slot.traits.labels {
            each(&mut self.labels.entry(label.clone()).or_default().free);
        }
        match &slot.traits.rack {
            Some(rack) => each(&mut self.racks.entry(rack.clone()).or_default().free),
            None if self.racks.is_empty() => {} // without racks, no search uses this list
            None => each(&mut self.rackless),
        }
        for (name, pieces) in free.extra.iter().filter(|(_, pieces)| **pieces > 0) {
            let classes = &mut self.extras.entry(name.clone()).or_default().free;
            let list = classes.entry(class(*pieces)).or_default();
            each(list);
            if list.is_empty() {
                classes.remove(&class(*pieces));
            }
        }
    }
    /// Collects the nodes without a rack when the first rack appears.
    fn shelve_rackless(&mut self) {
        let rooms = self
            .slots
            .iter()
            .zip(0u32..)
            .filter(|(slot, _)| slot.traits.rack.is_none());
        let entries = rooms.filter_map(|(slot, n)| {
            let room = slot.room.as_ref()?;
            Some(FreeMemoryEntry {
                memory: room.memory,
                node: NodeNumber::of(n),
                cpus: room.cpus,
            })
        });
        entries.for_each(|entry| self.rackless.insert(entry));
    }
    fn handle(&mut self, node: &NodeId) -> NodeNumber {
        if let Some(ix) = self.handles.get(node) {
            return *ix;
        }
        let ix = NodeNumber::of(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        self.slots.push(IndexedNode {
            node: node.clone(),
            traits: NodeProperties::default(),
            offers: None,
            room: None,
        });
        self.handles.insert(node.clone(), ix);
        ix
    }

    /// Number of a node that was ever a member.
    pub fn ix(&self, node: &NodeId) -> Option<NodeNumber> {
        self.handles.get(node).copied()
    }
    /// Looks up a node by number.
    pub fn slot(&self, ix: NodeNumber) -> Option<&IndexedNode> {
        self.slots.get(ix.index())
    }
    /// Id of a node by number.
    pub fn id(&self, ix: NodeNumber) -> Option<&NodeId> {
        self.slot(ix).map(|slot| &slot.node)
    }
    /// Free resources of a schedulable node.
    pub fn room(&self, ix: NodeNumber) -> Option<&Resource> {
        self.slot(ix)?.room.as_ref()
    }
    /// Number of schedulable nodes.
    pub fn working(&self) -> usize {
        self.working
    }
    /// All members, in the order of their first registration.
    pub fn members(&self) -> &BTreeSet<NodeNumber> {
        &self.all
    }
    /// All schedulable nodes with their free resources.
    pub fn rooms(&self) -> impl Iterator<Item = (&NodeId, &Resource)> {
        self.slots
            .iter()
            .filter_map(|slot| Some((&slot.node, slot.room.as_ref()?)))
    }
    /// Node without taints or exclusive labels that fits `size` with the least remaining memory.
    pub fn best_fit(&self, size: &Resource) -> Option<NodeNumber> {
        if size.extra.values().all(|pieces| *pieces == 0) {
            return self
                .open
                .first_fit(size.memory, size.cpus, |_| true)
                .map(|e| e.node);
        }
        let open = |ix: NodeNumber| {
            self.slot(ix)
                .is_some_and(|s| s.traits.takes_all() && fits(s, size))
        };
        let shelves = self.rarest_extra(size)?.1;
        shelves
            .filter_map(|list| list.first_fit(size.memory, size.cpus, open))
            .min()
            .map(|e| e.node)
    }
    /// Countable resource in `size` that the fewest nodes have free: the number of nodes, and the
    /// sorted lists with enough of it. `None` when `size` has no countable resources.
    pub(crate) fn rarest_extra(
        &self,
        size: &Resource,
    ) -> Option<(usize, impl Iterator<Item = &FreeMemoryIndex>)> {
        let wanted = size.extra.iter().filter(|(_, pieces)| **pieces > 0);
        let with = wanted.map(|(name, pieces)| {
            let classes = self
                .extras
                .get(name)
                .map(|extra| extra.free.range(class(*pieces)..));
            let shelves = classes.into_iter().flatten().map(|(_, list)| list);
            (
                shelves.clone().map(FreeMemoryIndex::len).sum::<usize>(),
                shelves,
            )
        });
        with.min_by_key(|(nodes, _)| *nodes)
    }
    /// Node that is open to all requests and has the most free memory.
    pub fn most_memory(&self) -> Option<(&NodeId, &Resource)> {
        self.named(self.open.most_memory())
    }
    /// Node that is open to all requests and has the most free processors, among those with at
    /// least this much free memory.
    pub fn most_cpus(&self, memory: Bytes) -> Option<(&NodeId, &Resource)> {
        self.named(self.open.most_cpus(memory))
    }
    fn named(&self, entry: Option<&FreeMemoryEntry>) -> Option<(&NodeId, &Resource)> {
        let slot = self.slot(entry?.node)?;
        Some((&slot.node, slot.room.as_ref()?))
    }
}

/// True when a size fits on a node now.
pub(crate) fn fits(slot: &IndexedNode, size: &Resource) -> bool {
    slot.room.as_ref().is_some_and(|room| size.fits(room))
}

fn leave_group(groups: &mut BTreeMap<Name, NodeGroup>, name: &Name, ix: NodeNumber) {
    let Some(group) = groups.get_mut(name) else {
        return;
    };
    group.members.remove(&ix);
    if group.members.is_empty() {
        groups.remove(name);
    }
}
