//! Group commit: all records of a batch of events, written as one.
//!
//! The loop of the daemon owns it. Appended records are on disk only after their [`RecordBatch`] is
//! committed. Before that, no message that depends on them may leave the process. A batch may be
//! committed on another thread, while the loop appends the records of the next one.

use std::collections::BTreeMap;

use headroom_rm_core::DurableRecord;
use headroom_types::{AppId, Name};
use serde::Serialize;

use crate::access::{ACCESS, SavedAccess};
use crate::history::{self, SavedJobHistory};
use crate::idempotency::{self, SavedResponse};
use crate::master_journal::{self, JournalGroup};
use crate::profiles::{PROFILES, SavedProfiles};
use crate::queues::{QueueRecord, StoredQueueTree};
use crate::record::{
    self, AppRecord, ContainerEndRecord, DrainRecord, ExpectedNode, META, MetaRecord, StateRecord,
    TagsRecord,
};
use crate::{MAX_VALUE, RecordChange, RecordStore, StoreError};

/// Collects records into batches.
#[derive(Debug)]
pub struct RecordJournal {
    meta: MetaRecord,
    pending: RecordBatch,
}

/// Records that are written as a whole.
#[derive(Debug, Default)]
pub struct RecordBatch {
    /// Records by key; `None` removes. A later record replaces an earlier one of the same key.
    records: BTreeMap<String, Option<Vec<u8>>>,
    /// Prefixes of which all records are removed that are not in `records`.
    removed: Vec<String>,
}

impl RecordBatch {
    /// Makes all records durable as a whole. Batches must be committed in the order in which they
    /// were taken. After an error the state is unknown, so the caller must stop.
    pub fn commit(mut self, store: &mut impl RecordStore) -> Result<(), StoreError> {
        for key in self.removed.iter().flat_map(|prefix| store.keys(prefix)) {
            self.records.entry(key).or_insert(None);
        }
        let changes: Vec<RecordChange> = self
            .records
            .into_iter()
            .map(|(key, value)| match value {
                Some(value) => RecordChange::Put { key, value },
                None => RecordChange::Remove { key },
            })
            .collect();
        store.commit(&changes)
    }
}

impl RecordJournal {
    /// A journal that continues from `meta`.
    pub fn new(meta: MetaRecord) -> Self {
        RecordJournal {
            meta,
            pending: RecordBatch::default(),
        }
    }

    /// Begins a new epoch with these numbers.
    pub fn begin(&mut self, meta: MetaRecord) -> Result<(), StoreError> {
        self.meta = meta;
        self.put(META.to_owned(), &meta)
    }

    /// Appends one change of the core that must survive.
    pub fn append(&mut self, save: &DurableRecord) -> Result<(), StoreError> {
        match save {
            DurableRecord::App {
                app,
                spec,
                submitted,
            } => {
                if app.seq() > self.meta.last_app {
                    self.meta.last_app = app.seq();
                    self.put(META.to_owned(), &self.meta.clone())?;
                }
                self.put(record::app_key(app), &AppRecord::of(app, spec, *submitted))
            }
            DurableRecord::State { app, state } => {
                self.put(record::state_key(app), &StateRecord::of(state))
            }
            DurableRecord::AppGone(app) => {
                self.remove(record::app_key(app));
                self.remove(record::state_key(app));
                self.remove(record::document_key(app));
                self.remove_master_journal(app);
                Ok(())
            }
            DurableRecord::Container(finished) => self.put(
                record::container_key(&finished.container),
                &ContainerEndRecord::of(finished),
            ),
            DurableRecord::ContainerGone(container) => {
                self.remove(record::container_key(container));
                Ok(())
            }
            DurableRecord::Node(node) => {
                self.put(record::node_key(node), &ExpectedNode { id: node.clone() })
            }
            DurableRecord::NodeGone(node) => {
                self.remove(record::node_key(node));
                Ok(())
            }
            DurableRecord::Queues { generation, tree } => self.put(
                record::QUEUES.to_owned(),
                &StoredQueueTree {
                    generation: *generation,
                    root: QueueRecord::of(tree.root()),
                },
            ),
            DurableRecord::Mark { node, mark } => {
                self.put(record::mark_key(node), &DrainRecord::of(node, mark))
            }
            DurableRecord::MarkGone(node) => {
                self.remove(record::mark_key(node));
                Ok(())
            }
            DurableRecord::Tags { node, tags } if tags.is_empty() => {
                self.remove(record::tags_key(node));
                Ok(())
            }
            DurableRecord::Tags { node, tags } => {
                self.put(record::tags_key(node), &TagsRecord::of(node, tags))
            }
        }
    }

    /// Appends a document of an application: opaque bytes, at most [`MAX_VALUE`].
    pub fn append_document(&mut self, app: &AppId, document: Vec<u8>) -> Result<(), StoreError> {
        self.put_bytes(record::document_key(app), document)
    }

    /// Appends a group to the journal of an application's master: its records, at most
    /// [`MAX_VALUE`] bytes.
    pub fn append_journal_group(
        &mut self,
        app: &AppId,
        group: &JournalGroup,
        records: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.put_bytes(group.key(app), records)
    }

    /// Removes the journal of an application's master.
    pub fn remove_master_journal(&mut self, app: &AppId) {
        let prefix = master_journal::prefix(app);
        let pending = &mut self.pending;
        pending.records.retain(|key, _| !key.starts_with(&prefix));
        pending.removed.push(prefix);
    }

    /// Appends the response to an idempotent call.
    pub fn append_response(&mut self, answer: &SavedResponse) -> Result<(), StoreError> {
        self.put(idempotency::record_key(&answer.key), answer)
    }

    /// Removes the response to the idempotent call with this key.
    pub fn remove_response(&mut self, key: &str) {
        self.remove(idempotency::record_key(key));
    }

    /// Appends the present usage history of a user's jobs.
    pub fn append_history(&mut self, family: &SavedJobHistory) -> Result<(), StoreError> {
        self.put(history::record_key(&family.user, &family.name), family)
    }

    /// Removes the usage history of a user's jobs.
    pub fn remove_history(&mut self, user: &str, name: &Name) {
        self.remove(history::record_key(user, name));
    }

    /// Appends all profiles of the cluster.
    pub fn append_profiles(&mut self, profiles: &SavedProfiles) -> Result<(), StoreError> {
        self.put(PROFILES.to_owned(), profiles)
    }

    /// Appends all tokens, policies and shares.
    pub fn append_access(&mut self, access: &SavedAccess) -> Result<(), StoreError> {
        self.put(ACCESS.to_owned(), access)
    }

    /// Takes the records that were appended since the last batch. `None` without any.
    pub fn take_batch(&mut self) -> Option<RecordBatch> {
        let batch = std::mem::take(&mut self.pending);
        let is_empty = batch.records.is_empty() && batch.removed.is_empty();
        (!is_empty).then_some(batch)
    }

    /// Makes all appended records durable as a whole, as [`RecordBatch::commit`] does.
    pub fn commit(&mut self, store: &mut impl RecordStore) -> Result<(), StoreError> {
        self.take_batch()
            .map_or(Ok(()), |batch| batch.commit(store))
    }

    fn put<T: Serialize>(&mut self, key: String, value: &T) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(value).map_err(|source| StoreError::Encode {
            key: key.clone(),
            source,
        })?;
        self.put_bytes(key, bytes)
    }

    fn put_bytes(&mut self, key: String, value: Vec<u8>) -> Result<(), StoreError> {
        if value.len() > MAX_VALUE {
            return Err(StoreError::TooLarge {
                key,
                length: value.len(),
                most: MAX_VALUE,
            });
        }
        self.pending.records.insert(key, Some(value));
        Ok(())
    }

    fn remove(&mut self, key: String) {
        self.pending.records.insert(key, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that records the committed batches.
    #[derive(Debug, Default)]
    struct Written(Vec<Vec<RecordChange>>);

    impl RecordStore for Written {
        fn commit(&mut self, changes: &[RecordChange]) -> Result<(), StoreError> {
            self.0.push(changes.to_vec());
            Ok(())
        }
        fn load(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
            Ok(Vec::new())
        }
        fn keys(&self, prefix: &str) -> Vec<String> {
            let puts = self.0.iter().flatten().filter_map(|change| match change {
                RecordChange::Put { key, .. } => Some(key.clone()),
                RecordChange::Remove { .. } => None,
            });
            puts.filter(|key| key.starts_with(prefix)).collect()
        }
        fn snapshot(&mut self) -> Result<std::path::PathBuf, StoreError> {
            Ok(std::path::PathBuf::new())
        }
    }

    #[test]
    fn the_removal_of_a_journal_includes_groups_of_the_same_batch_and_spares_other_records() {
        let mut journal = RecordJournal::new(MetaRecord::default());
        let mut store = Written::default();
        let app: AppId = "job.3".parse().expect("id");
        let (first, second) = (
            JournalGroup::new(1, 0, b"a\n"),
            JournalGroup::new(1, 2, b"b\n"),
        );
        journal
            .append_document(&app, b"{}".to_vec())
            .expect("appends");
        journal
            .append_journal_group(&app, &first, b"a\n".to_vec())
            .expect("appends");
        journal.commit(&mut store).expect("commits");
        journal
            .append_journal_group(&app, &second, b"b\n".to_vec())
            .expect("appends");
        journal.remove_master_journal(&app);
        journal.commit(&mut store).expect("commits");
        let removed = RecordChange::Remove {
            key: first.key(&app),
        };
        assert_eq!(store.0[1], [removed]);
    }

    #[test]
    fn a_batch_is_one_commit_and_the_last_change_of_a_key_applies() {
        let mut journal = RecordJournal::new(MetaRecord::default());
        let mut store = Written::default();
        let node: headroom_types::NodeId = "n1".parse().expect("id");
        journal
            .append(&DurableRecord::Node(node.clone()))
            .expect("appends");
        journal
            .append(&DurableRecord::NodeGone(node))
            .expect("appends");
        journal
            .append_document(&"job.3".parse().expect("id"), b"{}".to_vec())
            .expect("appends");
        journal.commit(&mut store).expect("commits");
        journal.commit(&mut store).expect("commits");
        let put = RecordChange::Put {
            key: "job/0000000003".into(),
            value: b"{}".to_vec(),
        };
        assert_eq!(
            store.0,
            [vec![
                put,
                RecordChange::Remove {
                    key: "node/n1".into()
                }
            ]],
            "an empty batch writes nothing"
        );
    }

    #[test]
    fn a_document_above_the_maximum_size_is_refused_and_named() {
        let mut journal = RecordJournal::new(MetaRecord::default());
        let refused = journal
            .append_document(&"job.3".parse().expect("id"), vec![b' '; MAX_VALUE + 1])
            .expect_err("too large");
        assert!(refused.to_string().contains("job/0000000003"), "{refused}");
        assert!(journal.take_batch().is_none());
    }
}
