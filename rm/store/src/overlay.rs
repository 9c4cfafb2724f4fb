//! Entries that are newer than those of a database. Pure.
//!
//! A checkpoint writes a part of them into the database while newer ones are added.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::{KeyRange, RecordEntry};

/// Values by key; `None` for a removed entry.
pub type NewerEntries = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The newer entries. Clones share them until one is changed.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    recent: Arc<NewerEntries>,
    /// Entries that a checkpoint writes, older than the recent ones.
    in_checkpoint: Arc<NewerEntries>,
}

impl Overlay {
    /// The entries of a log: those that a checkpoint must write next, and the recent ones.
    pub fn new(in_checkpoint: NewerEntries, recent: NewerEntries) -> Self {
        Overlay {
            recent: Arc::new(recent),
            in_checkpoint: Arc::new(in_checkpoint),
        }
    }

    /// The entries that a checkpoint writes.
    pub fn in_checkpoint(&self) -> Arc<NewerEntries> {
        Arc::clone(&self.in_checkpoint)
    }

    /// Adds the entries of a batch.
    pub fn add(&mut self, entries: Vec<RecordEntry>) {
        let entries = entries
            .into_iter()
            .map(|(key, bytes)| (key.into_bytes(), bytes));
        Arc::make_mut(&mut self.recent).extend(entries);
    }

    /// Begins a checkpoint: returns the entries that it must write. The one before must have
    /// ended.
    pub fn begin_checkpoint(&mut self) -> Arc<NewerEntries> {
        self.in_checkpoint = std::mem::take(&mut self.recent);
        Arc::clone(&self.in_checkpoint)
    }

    /// Ends the checkpoint: its entries are in the database. Returns them, to be freed.
    pub fn end_checkpoint(&mut self) -> Arc<NewerEntries> {
        std::mem::take(&mut self.in_checkpoint)
    }

    /// The newer value of an entry: `Some(None)` if it is removed, `None` if the database has the
    /// newest one.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let newer = self.recent.get(key).or_else(|| self.in_checkpoint.get(key));
        newer.map(Option::as_deref)
    }

    /// The newer entries of a range, in key order.
    pub fn range(&self, keys: KeyRange<'_>) -> BTreeMap<&[u8], Option<&[u8]>> {
        let older = self.in_checkpoint.range::<[u8], _>(keys);
        let recent = self.recent.range::<[u8], _>(keys);
        older
            .chain(recent)
            .map(|(key, bytes)| (key.as_slice(), bytes.as_deref()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::ALL_KEYS;

    fn put(key: &str, value: &str) -> RecordEntry {
        (key.to_owned(), Some(value.as_bytes().to_vec()))
    }

    #[test]
    fn recent_entries_hide_those_in_a_checkpoint_and_these_stay_until_its_end() {
        let mut overlay = Overlay::default();
        overlay.add(vec![put("a", "1"), put("b", "1"), put("c", "1")]);
        let written = overlay.begin_checkpoint();
        assert_eq!(written.len(), 3);
        overlay.add(vec![put("a", "2"), ("b".into(), None)]);
        let all = |overlay: &Overlay| -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
            let entries = overlay.range(ALL_KEYS).into_iter();
            entries
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect()
        };
        let a = (b"a".to_vec(), Some(b"2".to_vec()));
        let b = (b"b".to_vec(), None);
        let c = (b"c".to_vec(), Some(b"1".to_vec()));
        assert_eq!(all(&overlay), [a.clone(), b.clone(), c]);
        assert_eq!(overlay.get(b"b"), Some(None));
        assert_eq!(overlay.get(b"c"), Some(Some(b"1".as_slice())));
        overlay.end_checkpoint();
        assert_eq!(all(&overlay), [a, b]);
        assert_eq!(overlay.get(b"c"), None);
    }
}
