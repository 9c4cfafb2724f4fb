//! Nodes that take work, ordered by what is free on them, so that a best fit is found without looking at every node.
//!
//! Owned by the cluster; follows the ledger after every change of a node. Three levels: classes of free processors (four to an
//! octave), free memory, name.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Bytes, Cpus, NodeId, Resource};

type Members = BTreeMap<Bytes, BTreeSet<NodeId>>;

/// The free room of all nodes that take work.
#[derive(Clone, Debug, Default)]
pub struct FreeIndex {
    rooms: BTreeMap<NodeId, Resource>,
    classes: BTreeMap<u32, Members>,
}

/// Four classes to an octave: every member of a higher class has more free processors than any of a lower one.
fn class(cpus: Cpus) -> u32 {
    let milli = cpus.milli();
    if milli < 4 {
        return milli;
    }
    let octave = milli.ilog2();
    octave * 4 + ((milli >> (octave - 2)) & 3)
}

impl FreeIndex {
    /// Puts a node, or moves it to its new place.
    pub fn put(&mut self, node: &NodeId, free: Resource) {
        if self.rooms.get(node) == Some(&free) {
            return;
        }
        self.remove(node);
        let members = self.classes.entry(class(free.cpus)).or_default();
        members.entry(free.memory).or_default().insert(node.clone());
        self.rooms.insert(node.clone(), free);
    }
    /// Takes a node out.
    pub fn remove(&mut self, node: &NodeId) {
        let Some(free) = self.rooms.remove(node) else { return };
        let class = class(free.cpus);
        let Some(members) = self.classes.get_mut(&class) else { return };
        if let Some(names) = members.get_mut(&free.memory) {
            names.remove(node);
            if names.is_empty() {
                members.remove(&free.memory);
            }
        }
        if members.is_empty() {
            self.classes.remove(&class);
        }
    }
    /// What is free on a node that takes work.
    pub fn room(&self, node: &NodeId) -> Option<&Resource> {
        self.rooms.get(node)
    }
    /// All nodes that take work.
    pub fn rooms(&self) -> impl Iterator<Item = (&NodeId, &Resource)> {
        self.rooms.iter()
    }
    /// The node that fits `need` and has the least memory left over, among those `allowed`.
    pub fn best_fit(&self, need: &Resource, allowed: impl Fn(&NodeId) -> bool) -> Option<&NodeId> {
        let mut best: Option<(Bytes, &NodeId)> = None;
        for members in self.classes.range(class(need.cpus)..).map(|(_, members)| members) {
            let enough = members.range(need.memory..).flat_map(|(free, names)| names.iter().map(move |name| (*free, name)));
            let fits = |name: &NodeId| self.rooms.get(name).is_some_and(|room| need.fits(room)) && allowed(name);
            let found = enough.take_while(|found| best.is_none_or(|b| *found < b)).find(|(_, name)| fits(name));
            best = found.or(best);
        }
        best.map(|(_, node)| node)
    }
    /// The node with the most free memory.
    pub fn most_memory(&self) -> Option<(&NodeId, &Resource)> {
        let (_, names) = self.classes.values().filter_map(|members| members.last_key_value()).max()?;
        self.rooms.get_key_value(names.first()?)
    }
    /// Among nodes with at least this much free memory, one of those with the most free processors.
    pub fn most_cpus(&self, memory: Bytes) -> Option<(&NodeId, &Resource)> {
        let enough = |members: &&Members| members.last_key_value().is_some_and(|(top, _)| *top >= memory);
        let members = self.classes.values().rev().find(enough)?;
        self.rooms.get_key_value(members.last_key_value()?.1.first()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_room() -> impl Strategy<Value = Resource> {
        (0u64..64, 0u32..20_000, 0u64..3).prop_map(|(gib, milli, gpu)| {
            let mut room = Resource::new(Bytes::from_gib(gib), Cpus::from_milli(milli));
            if gpu > 0 {
                room.extra.insert("gpu".parse().expect("name"), gpu);
            }
            room
        })
    }

    proptest! {
        /// The index finds exactly what a scan of all nodes would find.
        #[test]
        fn agrees_with_a_scan(rooms in proptest::collection::vec(any_room(), 0..30), moved in proptest::collection::vec(any_room(), 0..10),
                              need in any_room(), barred in 0usize..30) {
            let name = |i: usize| format!("n{i:02}").parse::<NodeId>().expect("name");
            let mut index = FreeIndex::default();
            let mut plain = BTreeMap::new();
            for (i, room) in rooms.iter().chain(&moved).enumerate() {
                let node = name(i % rooms.len().max(1));
                index.put(&node, room.clone());
                plain.insert(node, room.clone());
            }
            let allowed = |n: &NodeId| *n != name(barred);
            let scan = plain.iter().filter(|(n, r)| need.fits(r) && allowed(n)).map(|(n, r)| (r.memory, n)).min().map(|(_, n)| n);
            prop_assert_eq!(index.best_fit(&need, allowed), scan);
            let most = plain.values().map(|r| r.memory).max();
            prop_assert_eq!(index.most_memory().map(|(_, r)| r.memory), most);
            for node in plain.keys() {
                index.remove(node);
            }
            prop_assert!(index.most_memory().is_none() && index.classes.is_empty());
        }
    }

    #[test]
    fn classes_follow_the_order_of_processors() {
        let classes: Vec<u32> = (0..70_000).map(|milli| class(Cpus::from_milli(milli))).collect();
        assert!(classes.is_sorted());
    }
}
