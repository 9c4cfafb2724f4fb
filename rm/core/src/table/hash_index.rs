//! Positions of rows by hash. The owner keeps the rows in a vector and compares the keys.
//!
//! Entries are in one vector with gaps; an entry is at the position of its hash or behind it. The
//! index stores a part of each hash, so it grows without reading the rows.

/// Position of a row, with a part of its hash that avoids most comparisons of keys.
#[derive(Clone, Copy, Debug)]
struct HashIndexEntry {
    tag: u32,
    row: u32,
}

/// Row number of a gap.
const EMPTY: u32 = u32::MAX;
const GAP: HashIndexEntry = HashIndexEntry { tag: 0, row: EMPTY };

/// Positions of rows by hash.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashIndex {
    /// The length is a power of two, at least twice the number of rows.
    entries: Vec<HashIndexEntry>,
    len: usize,
}

impl HashIndex {
    /// Number of rows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// Index of an entry with this part of the hash whose row `is_it` accepts, and that row.
    #[inline]
    pub(crate) fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let mask = self.mask();
        let mut at = tag as usize & mask;
        loop {
            let entry = *self.entries.get(at)?;
            if entry.row == EMPTY {
                return None;
            }
            if entry.tag == tag && is_it(entry.row) {
                return Some((at, entry.row));
            }
            at = (at + 1) & mask;
        }
    }
    /// Adds a row that has no entry.
    pub(crate) fn insert(&mut self, tag: u32, row: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            let wider = vec![GAP; (self.entries.len() * 2).max(16)];
            let known = std::mem::replace(&mut self.entries, wider);
            for entry in known.into_iter().filter(|entry| entry.row != EMPTY) {
                self.file(entry);
            }
        }
        self.len += 1;
        self.file(HashIndexEntry { tag, row });
    }
    /// Removes the entry at an index that [`HashIndex::find`] returned, and moves displaced entries
    /// back.
    pub(crate) fn remove(&mut self, entry: usize) {
        let (mask, mut gap, mut at) = (self.mask(), entry, entry);
        self.len -= 1;
        loop {
            at = (at + 1) & mask;
            let Some(next) = self.entries.get(at).copied().filter(|e| e.row != EMPTY) else {
                break;
            };
            let home = next.tag as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.set(gap, next);
                gap = at;
            }
        }
        self.set(gap, GAP);
    }
    fn file(&mut self, entry: HashIndexEntry) {
        let mask = self.mask();
        let mut at = entry.tag as usize & mask;
        while self.entries.get(at).is_some_and(|e| e.row != EMPTY) {
            at = (at + 1) & mask;
        }
        self.set(at, entry);
    }
    fn mask(&self) -> usize {
        self.entries.len().wrapping_sub(1)
    }
    fn set(&mut self, at: usize, entry: HashIndexEntry) {
        if let Some(slot) = self.entries.get_mut(at) {
            *slot = entry;
        }
    }
}
