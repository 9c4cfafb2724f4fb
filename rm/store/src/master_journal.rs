//! Journals of application masters: one entry for each group of records.
//!
//! The entries of an application are beside its document, so they are in backups, and neither in
//! snapshots nor in memory. The key of an entry has all that the resource manager checks at the next
//! append, so no value is read for it.

use headroom_types::AppId;

use crate::record::document_key;

/// The part of a key that separates the application from the group.
const JOURNAL: &str = "/journal/";

/// One group of records in the journal of a master, without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalGroup {
    /// The attempt that appended it.
    pub attempt: u32,
    /// Offset of its first byte in the journal of the attempt.
    pub begin: u64,
    /// Offset after its last byte.
    pub end: u64,
    /// Checksum of its records.
    pub checksum: u32,
    /// True for the mark that the journal continues on the node of its master.
    pub moved: bool,
}

impl JournalGroup {
    /// A group of `attempt` with these records at offset `begin`.
    pub fn new(attempt: u32, begin: u64, records: &[u8]) -> Self {
        let length = u64::try_from(records.len()).unwrap_or(u64::MAX);
        JournalGroup {
            attempt,
            begin,
            end: begin.saturating_add(length),
            checksum: crc32fast::hash(records),
            moved: false,
        }
    }

    /// The mark that the journal continues on the node of `attempt`.
    pub fn moved(attempt: u32, begin: u64) -> Self {
        JournalGroup {
            moved: true,
            ..JournalGroup::new(attempt, begin, &[])
        }
    }

    /// Size of its records. Bytes.
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// Key of its entry. Keys of one application are in the order of their attempts and offsets.
    pub(crate) fn key(&self, app: &AppId) -> String {
        let JournalGroup {
            attempt,
            begin,
            end,
            checksum,
            moved,
        } = self;
        let kind = if *moved { "moved" } else { "group" };
        let prefix = prefix(app);
        format!("{prefix}{attempt:010}/{begin:015}-{end:015}-{checksum:08x}-{kind}")
    }

    /// Parses the key of an entry, with the number of its application; `None` for another record.
    pub(crate) fn parse(key: &str) -> Option<(u32, Self)> {
        let (document, group) = key.split_once(JOURNAL)?;
        let (_, app) = document.split_once('/')?;
        let (attempt, rest) = group.split_once('/')?;
        let mut parts = rest.split('-');
        let mut part = || parts.next();
        let group = JournalGroup {
            attempt: attempt.parse().ok()?,
            begin: part()?.parse().ok()?,
            end: part()?.parse().ok()?,
            checksum: u32::from_str_radix(part()?, 16).ok()?,
            moved: part()? == "moved",
        };
        Some((app.parse().ok()?, group))
    }
}

/// Prefix of the keys of an application's journal.
pub(crate) fn prefix(app: &AppId) -> String {
    format!("{}{JOURNAL}", document_key(app))
}

/// True for the key of a group of a journal.
pub(crate) fn is_group(key: &str) -> bool {
    key.contains(JOURNAL)
}

/// The groups among these keys, in the order of application, attempt and offset.
pub(crate) fn groups<'k>(keys: impl Iterator<Item = &'k String>) -> Vec<(u32, JournalGroup)> {
    keys.filter_map(|key| JournalGroup::parse(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_whole_group_and_keys_are_in_the_order_of_the_journal() {
        let app: AppId = "sort.12".parse().expect("id");
        let all = [
            JournalGroup::new(1, 0, b"one\n"),
            JournalGroup::new(1, 4, b"two\n"),
            JournalGroup::new(2, 0, b"three\n"),
            JournalGroup::moved(11, 6),
        ];
        assert_eq!((all[1].end, all[1].length()), (8, 4));
        let keys = all.map(|group| group.key(&app));
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(groups(keys.iter()), all.map(|group| (12, group)));
        assert!(keys.iter().all(|key| key.starts_with(&prefix(&app))));
        assert!(keys.iter().all(|key| is_group(key)));
        assert_eq!(JournalGroup::parse(&document_key(&app)), None);
    }
}
