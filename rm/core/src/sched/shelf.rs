//! Nodes in the order of their free memory, so that the tightest one with enough processors is found without looking at all.
//!
//! Owned by the index. Knows nothing of labels or names. Blocks of at most [`MOST`] entries, and for each block its last key and
//! the most free processors in it: a search skips whole blocks, and a change moves entries of one block only. With n nodes a
//! search costs log(n) to find its first block, a look at the heads of later ones (16 bytes each, n / 64 of them), and two blocks.

use headroom_types::{Bytes, Cpus};

use super::index::NodeIx;

/// Most entries of one block.
const MOST: usize = 96;
/// Neighbours that have no more than this together become one block.
const MERGE: usize = 48;

/// A node and what is free on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// Free memory. Bytes.
    pub(crate) memory: Bytes,
    /// The node.
    pub(crate) node: NodeIx,
    /// Free processors.
    pub(crate) cpus: Cpus,
}

impl Entry {
    fn key(&self) -> (Bytes, NodeIx) {
        (self.memory, self.node)
    }
}

/// What is known of a block without looking into it.
#[derive(Clone, Copy, Debug)]
struct Head {
    last: (Bytes, NodeIx),
    cpus: Cpus,
}

/// Nodes by free memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    heads: Vec<Head>,
    blocks: Vec<Vec<Entry>>,
    len: usize,
}

impl Shelf {
    /// How many nodes are on it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// True when no node is on it.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Puts a node on it that is not there.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.len += 1;
        if self.blocks.is_empty() {
            self.blocks.push(Vec::with_capacity(MOST + 1));
            self.heads.push(Head { last: entry.key(), cpus: entry.cpus });
        }
        let at = self.block_of(entry.key()).min(self.blocks.len() - 1);
        let block = &mut self.blocks[at];
        let place = block.partition_point(|e| e.key() < entry.key());
        block.insert(place, entry);
        let head = &mut self.heads[at];
        head.last = head.last.max(entry.key());
        head.cpus = head.cpus.max(entry.cpus);
        if block.len() > MOST {
            let rest = block.split_off(block.len() / 2);
            self.heads.insert(at + 1, head_of(&rest));
            self.blocks.insert(at + 1, rest);
            self.heads[at] = head_of(&self.blocks[at]);
        }
    }
    /// Takes a node off it.
    pub(crate) fn remove(&mut self, memory: Bytes, node: NodeIx) {
        let at = self.block_of((memory, node));
        let Some(block) = self.blocks.get_mut(at) else { return };
        let Ok(place) = block.binary_search_by_key(&(memory, node), Entry::key) else { return };
        block.remove(place);
        self.len -= 1;
        if block.is_empty() {
            self.blocks.remove(at);
            self.heads.remove(at);
            return;
        }
        self.heads[at] = head_of(block);
        let small = block.len() + self.blocks.get(at + 1).map_or(MERGE, Vec::len) <= MERGE;
        if small {
            let next = self.blocks.remove(at + 1);
            self.heads.remove(at + 1);
            self.blocks[at].extend(next);
            self.heads[at] = head_of(&self.blocks[at]);
        }
    }
    /// The first entry with enough of both that passes: the tightest. Cost: see above, and one `pass` for each refused entry.
    pub(crate) fn first_fit(&self, memory: Bytes, cpus: Cpus, mut pass: impl FnMut(NodeIx) -> bool) -> Option<Entry> {
        let first = self.heads.partition_point(|head| head.last.0 < memory);
        let (heads, blocks) = (self.heads.get(first..)?, self.blocks.get(first..)?);
        let likely = heads.iter().zip(blocks).filter(|(head, _)| head.cpus >= cpus);
        for (_, block) in likely {
            let enough = block.iter().filter(|e| e.memory >= memory && e.cpus >= cpus);
            for entry in enough {
                if pass(entry.node) {
                    return Some(*entry);
                }
            }
        }
        None
    }
    /// The entry with the most free memory.
    pub(crate) fn most_memory(&self) -> Option<&Entry> {
        self.blocks.last()?.last()
    }
    /// Among entries with at least this much free memory, the first with the most free processors.
    pub(crate) fn most_cpus(&self, memory: Bytes) -> Option<&Entry> {
        let first = self.heads.partition_point(|head| head.last.0 < memory);
        let (heads, blocks) = (self.heads.get(first..)?, self.blocks.get(first..)?);
        // the first block alone may hold entries with too little memory; of the others the heads tell enough
        let largest = heads.iter().zip(blocks).skip(1).min_by_key(|(head, _)| std::cmp::Reverse(head.cpus));
        let blocks = blocks.first().into_iter().chain(largest.map(|(_, block)| block));
        blocks.flatten().filter(|e| e.memory >= memory).min_by_key(|e| std::cmp::Reverse(e.cpus))
    }
    /// All entries, tightest first.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.blocks.iter().flatten()
    }

    /// The first block whose last key is not below this one.
    fn block_of(&self, key: (Bytes, NodeIx)) -> usize {
        self.heads.partition_point(|head| head.last < key)
    }
}

fn head_of(block: &[Entry]) -> Head {
    let last = block.last().map_or((Bytes::ZERO, NodeIx::FIRST), Entry::key);
    Head { last, cpus: block.iter().map(|e| e.cpus).max().unwrap_or(Cpus::ZERO) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any changes the shelf finds what a scan of all entries finds, and its heads tell the truth.
        #[test]
        fn agrees_with_a_scan(moves in proptest::collection::vec((0u32..400, proptest::option::of((0u64..50, 0u32..9))), 0..900),
                              memory in 0u64..50, cpus in 0u32..9, barred in 0u32..400) {
            let mut shelf = Shelf::default();
            let mut plain: BTreeMap<NodeIx, Entry> = BTreeMap::new();
            for (n, room) in moves {
                let node = NodeIx::of(n);
                if let Some(old) = plain.remove(&node) {
                    shelf.remove(old.memory, node);
                }
                if let Some((memory, cpus)) = room {
                    let entry = Entry { memory: Bytes::new(memory), node, cpus: Cpus::from_milli(cpus) };
                    shelf.insert(entry);
                    plain.insert(node, entry);
                }
            }
            let mut sorted: Vec<Entry> = plain.values().copied().collect();
            sorted.sort();
            prop_assert_eq!(shelf.iter().copied().collect::<Vec<_>>(), sorted.clone());
            prop_assert_eq!(shelf.len(), sorted.len());
            for (head, block) in shelf.heads.iter().zip(&shelf.blocks) {
                prop_assert_eq!(Some(head.last), block.last().map(Entry::key));
                prop_assert_eq!(Some(head.cpus), block.iter().map(|e| e.cpus).max());
            }
            let (memory, cpus) = (Bytes::new(memory), Cpus::from_milli(cpus));
            let enough = |e: &&Entry| e.memory >= memory && e.cpus >= cpus;
            let scan = sorted.iter().filter(enough).find(|e| e.node != NodeIx::of(barred));
            let found = shelf.first_fit(memory, cpus, |n| n != NodeIx::of(barred));
            prop_assert_eq!(found.as_ref(), scan);
            prop_assert_eq!(shelf.most_memory(), sorted.last());
            let most = sorted.iter().filter(|e| e.memory >= memory).map(|e| e.cpus).max();
            prop_assert_eq!(shelf.most_cpus(memory).map(|e| e.cpus), most);
        }
    }
}
