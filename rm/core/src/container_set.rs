//! Set of the containers of one node or one application, in the order of their grants.
//!
//! Sorted by epoch and number, which are unique, so that names are not compared. Stored in blocks
//! of at most `MOST`: usually a container is appended at the end, and a removal only shifts its
//! block.

use headroom_types::{ContainerId, Epoch};

/// Most containers of one block.
const MOST: usize = 64;

/// Set of containers, ordered by epoch and number.
#[derive(Clone, Debug, Default)]
pub struct ContainerSet {
    /// No block is empty.
    blocks: Vec<Vec<ContainerId>>,
    len: usize,
}

impl ContainerSet {
    /// Number of containers.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// True when the set contains the container.
    pub fn contains(&self, id: &ContainerId) -> bool {
        let block = self.blocks.get(self.block_of(id));
        block.is_some_and(|block| {
            block
                .binary_search_by_key(&number(id), number)
                .is_ok_and(|at| block.get(at) == Some(id))
        })
    }
    /// All containers in the order of their grants.
    pub fn iter(&self) -> impl Iterator<Item = &ContainerId> + Clone {
        self.blocks.iter().flatten()
    }
    pub(crate) fn insert(&mut self, id: ContainerId) {
        let at = self.block_of(&id).min(self.blocks.len().saturating_sub(1));
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(vec![id]);
            self.len = 1;
            return;
        };
        match block.binary_search_by_key(&number(&id), number) {
            Ok(place) => block[place] = id,
            Err(place) => {
                self.len += 1;
                block.insert(place, id);
                if block.len() > MOST {
                    // later containers follow at the end, so the block stays full
                    let rest = if place == MOST { MOST } else { MOST / 2 };
                    let rest = block.split_off(rest);
                    self.blocks.insert(at + 1, rest);
                }
            }
        }
    }
    pub(crate) fn remove(&mut self, id: &ContainerId) {
        let at = self.block_of(id);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let Ok(place) = block.binary_search_by_key(&number(id), number) else {
            return;
        };
        block.remove(place);
        self.len -= 1;
        if block.is_empty() {
            self.blocks.remove(at);
        }
    }
    /// Index of the first block that does not end before `id`.
    fn block_of(&self, id: &ContainerId) -> usize {
        self.blocks
            .partition_point(|block| block.last().is_some_and(|last| number(last) < number(id)))
    }
}

impl PartialEq for ContainerSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl Eq for ContainerSet {}

fn number(id: &ContainerId) -> (Epoch, u64, u32) {
    (id.epoch, id.seq, id.app.seq())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any insertions and removals, the set contains the same ids as a sorted map.
        #[test]
        fn the_set_contains_the_same_ids_as_a_map(ops in proptest::collection::vec((any::<bool>(), 0u64..400), 0..1500)) {
            let id = |n: u64| ContainerId { app: "a.1".parse().expect("id"), epoch: Epoch(1), seq: n };
            let (mut holding, mut map) = (ContainerSet::default(), BTreeMap::new());
            for (put, n) in ops {
                if put {
                    holding.insert(id(n));
                    map.insert(n, id(n));
                } else {
                    holding.remove(&id(n));
                    map.remove(&n);
                }
                prop_assert_eq!((holding.len(), holding.contains(&id(n))), (map.len(), put));
            }
            prop_assert!(holding.iter().eq(map.values()));
            prop_assert!(holding.blocks.iter().all(|block| !block.is_empty() && block.len() <= MOST));
        }
    }
}
