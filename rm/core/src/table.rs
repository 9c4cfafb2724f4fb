//! Hash table by name, for the look-ups of every event.
//!
//! Rows are in one vector; a hash with a fixed function gives their positions. No list follows the
//! order of the hash. Rows are listed by position, which depends only on insertions and removals,
//! or by name in [`SortedTable`]. So the same events create the same lists on every machine.

mod hash_index;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use headroom_types::{AppId, ContainerId, NodeId, RequestId};

pub(crate) use hash_index::HashIndex;

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
    index: HashIndex,
}

/// Position of a row; valid until the row is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition(u32);

impl RowPosition {
    /// Creates the position of a row.
    #[inline]
    pub(crate) fn new(row: u32) -> Self {
        RowPosition(row)
    }
    /// Number of the row.
    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0
    }
    /// Index into a list of rows.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl<K, V> Default for HashedTable<K, V> {
    fn default() -> Self {
        HashedTable {
            rows: Vec::new(),
            free: Vec::new(),
            index: HashIndex::default(),
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
        self.index.len()
    }
    /// True when the table is empty.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }
    /// Looks up a value.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.row(self.find(key)?.1).map(|(_, value)| value)
    }
    /// Looks up a value, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, row) = self.find(key)?;
        self.at_mut(RowPosition(row))
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
            None => self.add(key.clone(), V::default()),
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
        self.add(key, value);
        None
    }
    /// Adds a row whose key does not exist; returns its number.
    fn add(&mut self, key: K, value: V) -> u32 {
        let tag = tag(key.hash());
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = self.rows.get_mut(row as usize) {
            *slot = Some((key, value));
        }
        self.index.insert(tag, row);
        row
    }
    /// Removes a row and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (entry, row) = self.find(key)?;
        let (_, value) = self.rows.get_mut(row as usize)?.take()?;
        self.index.remove(entry);
        self.free.push(row);
        Some(value)
    }
    /// Removes a row without its value.
    pub fn drop_row(&mut self, key: &K) {
        let Some((entry, row)) = self.find(key) else {
            return;
        };
        if let Some(slot) = self.rows.get_mut(row as usize) {
            *slot = None;
        }
        self.index.remove(entry);
        self.free.push(row);
    }
    /// Position of a row.
    pub fn row_of(&self, key: &K) -> Option<RowPosition> {
        self.find(key).map(|(_, row)| RowPosition(row))
    }
    /// Value at a position.
    #[inline]
    pub fn at(&self, row: RowPosition) -> Option<&V> {
        self.row(row.0).map(|(_, value)| value)
    }
    /// Value at a position, mutable.
    #[inline]
    pub fn at_mut(&mut self, row: RowPosition) -> Option<&mut V> {
        self.rows
            .get_mut(row.index())?
            .as_mut()
            .map(|(_, value)| value)
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

    /// Value of a row that `find` or `add` has returned.
    fn filled(&mut self, row: u32) -> &mut V {
        match self.rows.get_mut(row as usize) {
            Some(Some((_, value))) => value,
            Some(None) | None => unreachable!("find and add return a filled row"),
        }
    }
    #[inline]
    fn row(&self, row: u32) -> Option<&(K, V)> {
        self.rows.get(row as usize)?.as_ref()
    }
    /// Entry in the index and number of a row.
    fn find(&self, key: &K) -> Option<(usize, u32)> {
        self.index.find(tag(key.hash()), |row| {
            self.row(row).is_some_and(|(known, _)| known == key)
        })
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
    #[inline]
    pub fn at(&self, row: RowPosition) -> Option<&V> {
        self.table.at(row)
    }
    /// Value at a position, mutable.
    pub fn at_mut(&mut self, row: RowPosition) -> Option<&mut V> {
        self.table.at_mut(row)
    }
    /// Key and value at a position.
    #[inline]
    pub fn entry_at(&self, row: RowPosition) -> Option<(&K, &V)> {
        self.table.row(row.0).map(|(key, value)| (key, value))
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
        let row = self.row_or_default(key);
        self.table.filled(row.number())
    }
    /// Position of a row; inserts the default when the key does not exist.
    pub(crate) fn row_or_default(&mut self, key: &K) -> RowPosition
    where
        V: Default,
    {
        if let Some(row) = self.table.row_of(key) {
            return row;
        }
        self.names.insert(key.clone(), ());
        RowPosition(self.table.add(key.clone(), V::default()))
    }
    /// Adds a row whose key does not exist; returns its position.
    pub(crate) fn add(&mut self, key: K, value: V) -> RowPosition {
        self.names.insert(key.clone(), ());
        RowPosition(self.table.add(key, value))
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
    /// Positions of all rows, by key.
    pub(crate) fn positions(&self) -> impl Iterator<Item = RowPosition> {
        self.names.keys().filter_map(|key| self.table.row_of(key))
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
