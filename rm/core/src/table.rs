//! A table by name that finds its row without walking down a tree: for what every event asks for.
//!
//! Rows lie side by side; beside them a hash of fixed making says where. Nothing is ever listed in the order of the hash: rows are
//! listed in the order of their places, which follows from what was put in and taken out, or by name where [`Sorted`] is used.
//! So the same events make the same list on every machine.

use std::collections::BTreeMap;
use std::fmt;

use headroom_types::{AppId, ContainerId, NodeId, RequestId};

/// A name with a hash that is the same on every machine and in every run.
pub trait Named: Clone + Eq + Ord {
    /// The hash. Equal names have equal ones.
    fn hash(&self) -> u64;
}

impl Named for NodeId {
    fn hash(&self) -> u64 {
        of_text(self.as_str())
    }
}
impl Named for RequestId {
    fn hash(&self) -> u64 {
        of_text(self.as_str())
    }
}

/// Fowler, Noll and Vo, 1a.
fn of_text(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
impl Named for AppId {
    fn hash(&self) -> u64 {
        u64::from(self.seq())
    }
}
impl Named for ContainerId {
    fn hash(&self) -> u64 {
        self.seq ^ (u64::from(self.epoch.0) << 40)
    }
}

/// Rows by name.
#[derive(Clone)]
pub struct Table<K, V> {
    rows: Vec<Option<(K, V)>>,
    free: Vec<u32>,
    /// Places of rows, by hash, with gaps; a power of two of them.
    places: Vec<u32>,
    len: usize,
}

const EMPTY: u32 = u32::MAX;

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { rows: Vec::new(), free: Vec::new(), places: Vec::new(), len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.rows.iter().flatten().map(|(k, v)| (k, v))).finish()
    }
}

impl<K: Named, V> Table<K, V> {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// A row.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.row(self.find(key)?.1).map(|(_, value)| value)
    }
    /// A row, to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, row) = self.find(key)?;
        self.rows.get_mut(row as usize)?.as_mut().map(|(_, value)| value)
    }
    /// True when there is such a row.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }
    /// A new row, or another value for the one there is; the value before comes back.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        if (self.len + 1) * 2 > self.places.len() {
            self.widen();
        }
        let hash = key.hash();
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).unwrap_or(EMPTY)
        });
        if let Some(slot) = self.rows.get_mut(row as usize) {
            *slot = Some((key, value));
        }
        self.len += 1;
        self.file(hash, row);
        None
    }
    /// A row goes.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (mut gap, row) = self.find(key)?;
        let (_, value) = self.rows.get_mut(row as usize)?.take()?;
        self.free.push(row);
        self.len -= 1;
        // whoever was moved on by the one that is gone moves back
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask();
            let Some(next) = self.places.get(at).copied().filter(|row| *row != EMPTY) else { break };
            let home = self.row(next).map_or(0, |(key, _)| self.home(key.hash()));
            if (at.wrapping_sub(home) & self.mask()) >= (at.wrapping_sub(gap) & self.mask()) {
                self.set(gap, next);
                gap = at;
            }
        }
        self.set(gap, EMPTY);
        Some(value)
    }
    /// All rows, by place.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().flatten().map(|(key, value)| (key, value))
    }
    /// All values, by place.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.rows.iter().flatten().map(|(_, value)| value)
    }
    /// All values, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.rows.iter_mut().flatten().map(|(_, value)| value)
    }

    fn row(&self, row: u32) -> Option<&(K, V)> {
        self.rows.get(row as usize)?.as_ref()
    }
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }
    #[allow(clippy::cast_possible_truncation)] // only low bits are kept
    fn home(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.mask()
    }
    fn set(&mut self, at: usize, row: u32) {
        if let Some(place) = self.places.get_mut(at) {
            *place = row;
        }
    }
    /// Where a row is filed, and which row that is.
    fn find(&self, key: &K) -> Option<(usize, u32)> {
        let mut at = self.home(key.hash());
        loop {
            let row = self.places.get(at).copied().filter(|row| *row != EMPTY)?;
            if self.row(row).is_some_and(|(known, _)| known == key) {
                return Some((at, row));
            }
            at = (at + 1) & self.mask();
        }
    }
    fn file(&mut self, hash: u64, row: u32) {
        let mut at = self.home(hash);
        while self.places.get(at).is_some_and(|row| *row != EMPTY) {
            at = (at + 1) & self.mask();
        }
        self.set(at, row);
    }
    fn widen(&mut self) {
        self.places = vec![EMPTY; (self.places.len() * 2).max(16)];
        let filed: Vec<(u64, u32)> = (0u32..).zip(&self.rows).filter_map(|(n, row)| Some((row.as_ref()?.0.hash(), n))).collect();
        for (hash, row) in filed {
            self.file(hash, row);
        }
    }
}

/// A table that is listed by name.
#[derive(Clone)]
pub struct Sorted<K, V> {
    table: Table<K, V>,
    names: BTreeMap<K, ()>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Sorted { table: Table::default(), names: BTreeMap::new() }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Sorted<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl<K: Named, V> Sorted<K, V> {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.table.len()
    }
    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
    /// A row.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.table.get(key)
    }
    /// A row, to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.table.get_mut(key)
    }
    /// True when there is such a row.
    pub fn contains_key(&self, key: &K) -> bool {
        self.table.contains_key(key)
    }
    /// A new row, or another value for the one there is; the value before comes back.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if !self.table.contains_key(&key) {
            self.names.insert(key.clone(), ());
        }
        self.table.insert(key, value)
    }
    /// A row, made when it is not there.
    pub fn entry(&mut self, key: &K) -> &mut V
    where
        V: Default,
    {
        if !self.table.contains_key(key) {
            self.insert(key.clone(), V::default());
        }
        match self.table.get_mut(key) {
            Some(value) => value,
            None => unreachable!("it was put in"),
        }
    }
    /// A row goes.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.table.remove(key)?;
        self.names.remove(key);
        Some(value)
    }
    /// All names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.names.keys()
    }
    /// All rows, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.names.keys().filter_map(|key| Some((key, self.table.get(key)?)))
    }
    /// All values, by name.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
    /// All values, to change, by place.
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
        /// Whatever is put in and taken out, the table knows what a plain map knows, and lists names in order.
        #[test]
        fn knows_what_a_map_knows(ops in proptest::collection::vec((any::<bool>(), 0u16..300), 0..800)) {
            let node = |n: u16| format!("n{n}").parse::<NodeId>().expect("id");
            let container = |n: u16| ContainerId { app: "a.1".parse().expect("id"), epoch: Epoch(u32::from(n % 2)), seq: u64::from(n / 2) };
            let (mut sorted, mut table) = (Sorted::default(), Table::default());
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
