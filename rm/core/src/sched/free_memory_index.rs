//! Nodes sorted by free memory, so that the tightest node with enough processors is found without a
//! full scan.
//!
//! The index owns these lists, which contain no labels or names. Entries are in blocks of at most
//! [`MOST`]. Each block has a head with its last key and the largest number of free processors: a
//! search skips whole blocks, and a change moves the entries of one block only. With n nodes, a
//! search costs log(n) for the first block, an inspection of later heads (n / 32 of them, of which
//! 16 at a time are skipped by one inspection), and two blocks.

use std::cmp::Ordering;

use headroom_types::{Bytes, Cpus};

use super::node_ix::NodeNumber;

/// Most entries of one block.
const MOST: usize = 48;
/// Adjacent blocks with at most this many entries together are merged.
const MERGE: usize = 24;

/// A node and its free resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeMemoryEntry {
    /// Free memory. Bytes.
    pub(crate) memory: Bytes,
    /// The node.
    pub(crate) node: NodeNumber,
    /// Free processors.
    pub(crate) cpus: Cpus,
}

impl FreeMemoryEntry {
    fn key(&self) -> (Bytes, NodeNumber) {
        (self.memory, self.node)
    }
}

/// Summary of a block.
#[derive(Clone, Copy, Debug)]
struct BlockSummary {
    last: (Bytes, NodeNumber),
    /// Most free processors of an entry.
    cpus: Cpus,
    /// Number of entries with so many free processors.
    most: u32,
}

impl BlockSummary {
    /// Adds an entry to the summary.
    fn add(&mut self, cpus: Cpus) {
        match cpus.cmp(&self.cpus) {
            Ordering::Less => {}
            Ordering::Equal => self.most += 1,
            Ordering::Greater => (self.cpus, self.most) = (cpus, 1),
        }
    }
    /// Removes an entry from the summary. Returns false when the summary must be computed again.
    #[must_use]
    fn remove(&mut self, cpus: Cpus) -> bool {
        if cpus == self.cpus {
            self.most -= 1;
        }
        self.most > 0
    }
}

/// Nodes sorted by free memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeMemoryIndex {
    heads: Vec<BlockSummary>,
    /// Most free processors under each [`GROUP`] heads.
    tops: Vec<Cpus>,
    blocks: Vec<Vec<FreeMemoryEntry>>,
    len: usize,
}

/// Number of heads that one inspection skips.
const GROUP: usize = 16;

impl FreeMemoryIndex {
    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// True when the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Adds a node that is not in the list.
    pub(crate) fn insert(&mut self, entry: FreeMemoryEntry) {
        self.len += 1;
        if self.blocks.is_empty() {
            self.blocks.push(Vec::with_capacity(MOST + 1));
            self.heads.push(BlockSummary {
                last: entry.key(),
                cpus: entry.cpus,
                most: 0,
            });
            self.tops.push(entry.cpus);
        }
        let at = self.block_of(entry.key()).min(self.blocks.len() - 1);
        let block = &mut self.blocks[at];
        let place = block.partition_point(|e| e.key() < entry.key());
        block.insert(place, entry);
        let head = &mut self.heads[at];
        head.last = head.last.max(entry.key());
        head.add(entry.cpus);
        self.tops[at / GROUP] = self.tops[at / GROUP].max(entry.cpus);
        if block.len() > MOST {
            let rest = block.split_off(block.len() / 2);
            self.heads.insert(at + 1, head_of(&rest));
            self.blocks.insert(at + 1, rest);
            self.heads[at] = head_of(&self.blocks[at]);
            self.top_all();
        }
    }
    /// Replaces the entry of a node that had `memory` free.
    pub(crate) fn shift(&mut self, memory: Bytes, entry: FreeMemoryEntry) {
        let (old, new) = ((memory, entry.node), entry.key());
        let at = self.block_of(old);
        let stays = self.heads.get(at).is_some_and(|head| new <= head.last)
            && at
                .checked_sub(1)
                .and_then(|before| self.heads.get(before))
                .is_none_or(|head| head.last < new);
        if !stays {
            self.remove(memory, entry.node);
            self.insert(entry);
            return;
        }
        let block = &mut self.blocks[at];
        let Ok(from) = block.binary_search_by_key(&old, FreeMemoryEntry::key) else {
            return;
        };
        let (gone, last) = (block[from].cpus, from + 1 == block.len());
        let to = block.partition_point(|e| e.key() < new);
        if from < to {
            block.copy_within(from + 1..to, from);
            block[to - 1] = entry;
        } else {
            block.copy_within(to..from, to + 1);
            block[to] = entry;
        }
        let head = &mut self.heads[at];
        let before = head.cpus;
        head.add(entry.cpus);
        if !head.remove(gone) {
            *head = head_of(block);
        } else if last {
            head.last = block.last().map_or(new, FreeMemoryEntry::key);
        }
        if head.cpus != before {
            self.top_of(at);
        }
    }
    /// Recomputes the summary of the group of one head.
    fn top_of(&mut self, at: usize) {
        let group = at / GROUP;
        let heads = self.heads.iter().skip(group * GROUP).take(GROUP);
        self.tops[group] = heads.map(|head| head.cpus).max().unwrap_or(Cpus::ZERO);
    }
    /// Recomputes the summaries of all groups after heads were added or removed.
    fn top_all(&mut self) {
        let tops = self.heads.chunks(GROUP).map(|heads| {
            heads
                .iter()
                .map(|head| head.cpus)
                .max()
                .unwrap_or(Cpus::ZERO)
        });
        self.tops = tops.collect();
    }
    /// Removes a node.
    pub(crate) fn remove(&mut self, memory: Bytes, node: NodeNumber) {
        let at = self.block_of((memory, node));
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let Ok(place) = block.binary_search_by_key(&(memory, node), FreeMemoryEntry::key) else {
            return;
        };
        let gone = block.remove(place);
        self.len -= 1;
        if block.is_empty() {
            self.blocks.remove(at);
            self.heads.remove(at);
            self.top_all();
            return;
        }
        let head = &mut self.heads[at];
        if !head.remove(gone.cpus) {
            *head = head_of(block);
            self.top_of(at);
        } else if place == block.len() {
            head.last = block.last().map_or(head.last, FreeMemoryEntry::key);
        }
        let left = self.blocks.get(at).map_or(0, Vec::len);
        let small = left + self.blocks.get(at + 1).map_or(MERGE, Vec::len) <= MERGE;
        if small {
            let next = self.blocks.remove(at + 1);
            self.heads.remove(at + 1);
            self.blocks[at].extend(next);
            self.heads[at] = head_of(&self.blocks[at]);
            self.top_all();
        }
    }
    /// Tightest entry with enough memory and processors that `pass` accepts. Calls `pass` once for
    /// each refused entry.
    pub(crate) fn first_fit(
        &self,
        memory: Bytes,
        cpus: Cpus,
        mut pass: impl FnMut(NodeNumber) -> bool,
    ) -> Option<FreeMemoryEntry> {
        let first = self.heads.partition_point(|head| head.last.0 < memory);
        let mut at = first;
        while let Some(head) = self.heads.get(at) {
            if at.is_multiple_of(GROUP) && self.tops.get(at / GROUP).is_some_and(|top| *top < cpus)
            {
                at += GROUP;
                continue;
            }
            if head.cpus >= cpus {
                let block = self.blocks.get(at)?;
                // only the first block has entries with too little memory
                let from = if at == first {
                    block.partition_point(|e| e.memory < memory)
                } else {
                    0
                };
                let enough = block.iter().skip(from).filter(|e| e.cpus >= cpus);
                for entry in enough {
                    if pass(entry.node) {
                        return Some(*entry);
                    }
                }
            }
            at += 1;
        }
        None
    }
    /// Entries with at least this much free memory that `pass` accepts, with the most free
    /// processors, counted up to `cpus`. At most `most` entries, tightest first. Blocks with fewer
    /// processors are skipped.
    pub(crate) fn roomiest(
        &self,
        memory: Bytes,
        cpus: Cpus,
        most: usize,
        pass: impl Fn(NodeNumber) -> bool,
    ) -> Vec<NodeNumber> {
        let first = self.heads.partition_point(|head| head.last.0 < memory);
        let (mut best, mut found) = (Cpus::ZERO, Vec::new());
        for (head, block) in self.heads.iter().zip(&self.blocks).skip(first) {
            if head.cpus.min(cpus) < best || (found.len() >= most && head.cpus.min(cpus) == best) {
                continue;
            }
            for entry in block.iter().filter(|e| e.memory >= memory) {
                let has = entry.cpus.min(cpus);
                if has < best || (has == best && found.len() >= most) || !pass(entry.node) {
                    continue;
                }
                if has > best {
                    (best, found) = (has, Vec::new());
                }
                found.push(entry.node);
            }
        }
        found
    }
    /// All entries, the most free memory first.
    pub(crate) fn down(&self) -> impl Iterator<Item = &FreeMemoryEntry> {
        self.blocks
            .iter()
            .rev()
            .flat_map(|block| block.iter().rev())
    }
    /// Entry with the most free memory.
    pub(crate) fn most_memory(&self) -> Option<&FreeMemoryEntry> {
        self.blocks.last()?.last()
    }
    /// First entry with the most free processors, among entries with at least this much free
    /// memory.
    pub(crate) fn most_cpus(&self, memory: Bytes) -> Option<&FreeMemoryEntry> {
        let first = self.heads.partition_point(|head| head.last.0 < memory);
        let (heads, blocks) = (self.heads.get(first..)?, self.blocks.get(first..)?);
        // only the first block may contain entries with too little memory; for the others the heads
        // are exact
        let largest = heads
            .iter()
            .zip(blocks)
            .skip(1)
            .min_by_key(|(head, _)| std::cmp::Reverse(head.cpus));
        let blocks = blocks
            .first()
            .into_iter()
            .chain(largest.map(|(_, block)| block));
        blocks
            .flatten()
            .filter(|e| e.memory >= memory)
            .min_by_key(|e| std::cmp::Reverse(e.cpus))
    }
    /// All entries, tightest first.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FreeMemoryEntry> {
        self.blocks.iter().flatten()
    }

    /// First block whose last key is not below `key`.
    fn block_of(&self, key: (Bytes, NodeNumber)) -> usize {
        self.heads.partition_point(|head| head.last < key)
    }
}

fn head_of(block: &[FreeMemoryEntry]) -> BlockSummary {
    let last = block
        .last()
        .map_or((Bytes::ZERO, NodeNumber::FIRST), FreeMemoryEntry::key);
    let mut head = BlockSummary {
        last,
        cpus: Cpus::ZERO,
        most: 0,
    };
    block.iter().for_each(|entry| head.add(entry.cpus));
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any changes, the list finds the same entries as a scan, and its heads are exact.
        #[test]
        fn the_free_memory_index_agrees_with_a_scan(moves in proptest::collection::vec((0u32..400, proptest::option::of((0u64..50, 0u32..9))), 0..900),
                              memory in 0u64..50, cpus in 0u32..9, barred in 0u32..400) {
            let mut list = FreeMemoryIndex::default();
            let mut plain: BTreeMap<NodeNumber, FreeMemoryEntry> = BTreeMap::new();
            for (n, room) in moves {
                let node = NodeNumber::of(n);
                if let Some(old) = plain.remove(&node) {
                    list.remove(old.memory, node);
                }
                if let Some((memory, cpus)) = room {
                    let entry = FreeMemoryEntry { memory: Bytes::new(memory), node, cpus: Cpus::from_milli(cpus) };
                    list.insert(FreeMemoryEntry { memory: Bytes::new(n.into()), node, cpus: Cpus::from_milli(cpus + n % 3) });
                    list.shift(Bytes::new(n.into()), entry);
                    plain.insert(node, entry);
                }
            }
            let mut sorted: Vec<FreeMemoryEntry> = plain.values().copied().collect();
            sorted.sort();
            prop_assert_eq!(list.iter().copied().collect::<Vec<_>>(), sorted.clone());
            prop_assert_eq!(list.len(), sorted.len());
            for (head, block) in list.heads.iter().zip(&list.blocks) {
                prop_assert_eq!(Some(head.last), block.last().map(FreeMemoryEntry::key));
                prop_assert_eq!(Some(head.cpus), block.iter().map(|e| e.cpus).max());
                let most = block.iter().filter(|e| e.cpus == head.cpus).count();
                prop_assert_eq!(usize::try_from(head.most), Ok(most));
            }
            let tops: Vec<Cpus> = list.heads.chunks(GROUP).filter_map(|heads| heads.iter().map(|head| head.cpus).max()).collect();
            prop_assert_eq!(&list.tops, &tops);
            let (memory, cpus) = (Bytes::new(memory), Cpus::from_milli(cpus));
            let enough = |e: &&FreeMemoryEntry| e.memory >= memory && e.cpus >= cpus;
            let scan = sorted.iter().filter(enough).find(|e| e.node != NodeNumber::of(barred));
            let found = list.first_fit(memory, cpus, |n| n != NodeNumber::of(barred));
            prop_assert_eq!(found.as_ref(), scan);
            prop_assert_eq!(list.most_memory(), sorted.last());
            let most = sorted.iter().filter(|e| e.memory >= memory).map(|e| e.cpus).max();
            let few = Cpus::from_milli(4);
            let barrier = |n: NodeNumber| n != NodeNumber::of(barred);
            let able = sorted.iter().filter(|e| e.memory >= memory && barrier(e.node));
            let best = able.clone().map(|e| e.cpus.min(few)).max();
            let roomiest: Vec<NodeNumber> = able.filter(|e| Some(e.cpus.min(few)) == best).map(|e| e.node).take(3).collect();
            prop_assert_eq!(list.roomiest(memory, few, 3, barrier), roomiest);
            prop_assert_eq!(list.most_cpus(memory).map(|e| e.cpus), most);
        }
    }
}
