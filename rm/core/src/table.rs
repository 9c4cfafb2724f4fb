//! Hash table by name, for the look-ups of every event.
//!
//! Rows are in one vector; a hash with a fixed function gives their positions. No list follows the
//! order of the hash. Rows are listed by position, which depends only on insertions and removals,
//! or by name in [`SortedTable`]. So the same events create the same lists on every machine.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use headroom_types::{AppId, ContainerId, NodeId, RequestId};

/// Key with a hash that is the same on every machine and in every run.
pub trait StableHash: Clone + Eq + Ord {
    /// Hash; equal keys have equal hashes.
    fn hash(&self) -> u64;
}

impl StableHash for NodeId {
    fn hash(&self) -> u64 {
        self.fingerprint()
    }
}
impl StableHash for RequestId {
    fn hash(&self) -> u64 {
        self.fingerprint()
    }
}
impl StableHash for u32 {
    fn hash(&self) -> u64 {
        u64::from(*self)
    }
}
impl StableHash for AppId {
    fn hash(&self) -> u64 {
        u64::from(self.seq())
    }
}
impl StableHash for ContainerId {
    fn hash(&self) -> u64 {
        self.seq ^ (u64::from(self.epoch.0) << 40)
    }
}

/// Rows by key.
#[derive(Clone)]
pub struct HashedTable<K, V> {
    rows: Vec<Option<(K, V)>>,
    free: Vec<u32>,
    /// Positions of rows, by hash, with gaps; the length is a power of two.
    places: Vec<TableSlot>,
    len: usize,
}

/// Position of a row, with a part of its hash that avoids most comparisons of keys.
#[derive(Clone, Copy)]
struct TableSlot {
    tag: u32,
    row: u32,
}

const EMPTY: u32 = u32::MAX;
const GAP: TableSlot = TableSlot { tag: 0, row: EMPTY };

/// Position of a row; valid until the row is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPosition(u32);

impl<K, V> Default for HashedTable<K, V> {
    fn default() -> Self {
        HashedTable {
            rows: Vec::new(),
            free: Vec::new(),
            places: Vec::new(),
            len: 0,
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for HashedTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.rows.iter().flatten().map(|(k, v)| (k, v)))
            .finish()
    }
}

impl<K: StableHash, V> HashedTable<K, V> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Looks up a value.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.row(self.find(key)?.1).map(|(_, value)| value)
    }
    /// Looks up a value, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, row) = self.find(key)?;
        self.rows
            .get_mut(row as usize)?
            .as_mut()
            .map(|(_, value)| value)
    }
    /// Looks up a value with the stored key.
    pub fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.row(self.find(key)?.1).map(|(key, value)| (key, value))
    }
    /// True when the key exists.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }
    /// Looks up a value, or inserts the default.
    pub fn entry(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        let row = match self.find(key) {
            Some((_, row)) => row,
            None => {
                self.insert(key.clone(), V::default());
                self.find(key).map_or(EMPTY, |(_, row)| row)
            }
        };
        self.filled(row)
    }
    /// All rows, by position.
    pub fn into_rows(self) -> impl Iterator<Item = (K, V)> {
        self.rows.into_iter().flatten()
    }
    /// Inserts a row or replaces its value; returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        if (self.len + 1) * 2 > self.places.len() {
            self.widen();
        }
        let tag = tag(key.hash());
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).unwrap_or(EMPTY)
        });
        if let Some(slot) = self.rows.get_mut(row as usize) {
            *slot = Some((key, value));
        }
        self.len += 1;
        self.file(tag, row);
        None
    }
    /// Removes a row and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (gap, row) = self.find(key)?;
        let (_, value) = self.rows.get_mut(row as usize)?.take()?;
        self.close(gap, row);
        Some(value)
    }
    /// Removes a row without its value.
    pub fn drop_row(&mut self, key: &K) {
        let Some((gap, row)) = self.find(key) else {
            return;
        };
        if let Some(slot) = self.rows.get_mut(row as usize) {
            *slot = None;
        }
        self.close(gap, row);
    }
    /// Position of a row.
    pub fn row_of(&self, key: &K) -> Option<RowPosition> {
        self.find(key).map(|(_, row)| RowPosition(row))
    }
    /// Value at a position.
    pub fn at(&self, row: RowPosition) -> Option<&V> {
        self.row(row.0).map(|(_, value)| value)
    }
    /// Value at a position, mutable.
    pub fn at_mut(&mut self, row: RowPosition) -> Option<&mut V> {
        self.rows
            .get_mut(row.0 as usize)?
            .as_mut()
            .map(|(_, value)| value)
    }
    /// Releases a position and moves displaced entries back.
    fn close(&mut self, mut gap: usize, row: u32) {
        self.free.push(row);
        self.len -= 1;
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask();
            let Some(next) = self
                .places
                .get(at)
                .copied()
                .filter(|place| place.row != EMPTY)
            else {
                break;
            };
            let home = next.tag as usize & self.mask();
            if (at.wrapping_sub(home) & self.mask()) >= (at.wrapping_sub(gap) & self.mask()) {
                self.set(gap, next);
                gap = at;
            }
        }
        self.set(gap, GAP);
    }
    /// All rows, by position.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().flatten().map(|(key, value)| (key, value))
    }
    /// All values, by position.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.rows.iter().flatten().map(|(_, value)| value)
    }
    /// All values, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.rows.iter_mut().flatten().map(|(_, value)| value)
    }

    /// Value of a row that `find` has returned.
    fn filled(&mut self, row: u32) -> &mut V {
        match self.rows.get_mut(row as usize) {
            Some(Some((_, value))) => value,
            Some(None) | None => unreachable!("find returned a filled row"),
        }
    }
    fn row(&self, row: u32) -> Option<&(K, V)> {
        self.rows.get(row as usize)?.as_ref()
    }
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }
    fn set(&mut self, at: usize, place: TableSlot) {
        if let Some(slot) = self.places.get_mut(at) {
            *slot = place;
        }
    }
    /// Index in `places` and position of a row.
    fn find(&self, key: &K) -> Option<(usize, u32)> {
        let tag = tag(key.hash());
        let mut at = tag as usize & self.mask();
        loop {
            let place = self
                .places
                .get(at)
                .copied()
                .filter(|place| place.row != EMPTY)?;
            if place.tag == tag && self.row(place.row).is_some_and(|(known, _)| known == key) {
                return Some((at, place.row));
            }
            at = (at + 1) & self.mask();
        }
    }
    fn file(&mut self, tag: u32, row: u32) {
        let mut at = tag as usize & self.mask();
        while self.places.get(at).is_some_and(|place| place.row != EMPTY) {
            at = (at + 1) & self.mask();
        }
        self.set(at, TableSlot { tag, row });
    }
    fn widen(&mut self) {
        self.places = vec![GAP; (self.places.len() * 2).max(16)];
        let filed: Vec<(u32, u32)> = (0u32..)
            .zip(&self.rows)
            .filter_map(|(n, row)| Some((tag(row.as_ref()?.0.hash()), n)))
            .collect();
        for (tag, row) in filed {
            self.file(tag, row);
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // the upper half of the bits
fn tag(hash: u64) -> u32 {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Table with lists in the order of the keys.
#[derive(Clone)]
pub struct SortedTable<K, V> {
    table: HashedTable<K, V>,
    names: BTreeMap<K, ()>,
}

impl<K, V> Default for SortedTable<K, V> {
    fn default() -> Self {
        SortedTable {
            table: HashedTable::default(),
            names: BTreeMap::new(),
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl<K: StableHash, V> SortedTable<K, V> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.table.len()
    }
    /// True when the table is empty.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
    /// Looks up a value.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.table.get(key)
    }
    /// Looks up a value, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.table.get_mut(key)
    }
    /// Looks up a value with the stored key.
    pub fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.table.get_key_value(key)
    }
    /// True when the key exists.
    pub fn contains_key(&self, key: &K) -> bool {
        self.table.contains_key(key)
    }
    /// Position of a row.
    pub fn row_of(&self, key: &K) -> Option<RowPosition> {
        self.table.row_of(key)
    }
    /// Value at a position.
    pub fn at(&self, row: RowPosition) -> Option<&V> {
        self.table.at(row)
    }
    /// Value at a position, mutable.
    pub fn at_mut(&mut self, row: RowPosition) -> Option<&mut V> {
        self.table.at_mut(row)
    }
    /// Inserts a row or replaces its value; returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if !self.table.contains_key(&key) {
            self.names.insert(key.clone(), ());
        }
        self.table.insert(key, value)
    }
    /// Looks up a value, or inserts the default.
    pub fn entry(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        match self.table.find(key) {
            Some((_, row)) => self.table.filled(row),
            None => {
                self.names.insert(key.clone(), ());
                self.table.entry(key)
            }
        }
    }
    /// Removes a row and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.table.remove(key)?;
        self.names.remove(key);
        Some(value)
    }
    /// All keys, in order.
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.names.into_keys()
    }
    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.names.keys()
    }
    /// Keys from `first` on, in order; all keys when `first` is `None`.
    pub fn keys_from(&self, first: Option<&K>) -> impl Iterator<Item = &K> {
        let from = first.map_or(Bound::Unbounded, |first| Bound::Included(first.clone()));
        self.names
            .range((from, Bound::Unbounded))
            .map(|(key, ())| key)
    }
    /// All rows, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.names
            .keys()
            .filter_map(|key| Some((key, self.table.get(key)?)))
    }
    /// All values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
    /// All values, mutable, by position.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.table.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Epoch;
    use proptest::prelude::*;

    proptest! {
        /// After any insertions and removals, the table contains the same rows as a map and lists
        /// keys in order.
        #[test]
        fn the_table_contains_the_same_rows_as_a_map(ops in proptest::collection::vec((any::<bool>(), 0u16..300), 0..800)) {
            let node = |n: u16| format!("n{n}").parse::<NodeId>().expect("id");
            let container = |n: u16| ContainerId { app: "a.1".parse().expect("id"), epoch: Epoch(u32::from(n % 2)), seq: u64::from(n / 2) };
            let (mut sorted, mut table) = (SortedTable::default(), HashedTable::default());
            let (mut nodes, mut containers) = (BTreeMap::new(), BTreeMap::new());
            for (at, (put, n)) in ops.into_iter().enumerate() {
                if put {
                    prop_assert_eq!(sorted.insert(node(n), at), nodes.insert(node(n), at));
                    prop_assert_eq!(table.insert(container(n), at), containers.insert(container(n), at));
                } else {
                    prop_assert_eq!(sorted.remove(&node(n)), nodes.remove(&node(n)));
                    prop_assert_eq!(table.remove(&container(n)), containers.remove(&container(n)));
                }
            }
            prop_assert!(sorted.iter().eq(nodes.iter()));
            prop_assert_eq!((sorted.len(), table.len(), table.iter().count()), (nodes.len(), containers.len(), containers.len()));
            for n in 0..300 {
                prop_assert_eq!(sorted.get(&node(n)), nodes.get(&node(n)));
                prop_assert_eq!(table.get(&container(n)), containers.get(&container(n)));
            }
        }
    }
}
