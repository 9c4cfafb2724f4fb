//! Group commit: what a batch of events wants saved, written as one.
//!
//! Owned by the daemon's loop. Nothing that was appended is on disk before [`Journal::commit`] has returned; until then nothing
//! that depends on it may leave the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headroom_rm_core::Save;
use headroom_types::{AppId, Name};
use serde::Serialize;

use crate::access::{ACCESS, SavedAccess};
use crate::answers::{self, SavedAnswer};
use crate::families::{self, SavedFamily};
use crate::profiles::{PROFILES, SavedProfiles};
use crate::queues::{Queue, Queues};
use crate::record::{self, App, Ended, META, Mark, Meta, Node, State, Tags};
use crate::{Change, MAX_VALUE, Store, StoreError};

/// Collects records and writes them in batches.
#[derive(Debug)]
pub struct Journal<S> {
    store: S,
    meta: Meta,
    /// `None` removes. A later record of the same key takes the place of the earlier one.
    pending: BTreeMap<String, Option<Vec<u8>>>,
}

impl<S: Store> Journal<S> {
    /// A journal that goes on from `meta`.
    pub fn new(store: S, meta: Meta) -> Self {
        Journal { store, meta, pending: BTreeMap::new() }
    }

    /// The store below; what was appended and not committed is dropped.
    pub fn into_store(self) -> S {
        self.store
    }

    /// A new life begins with these numbers.
    pub fn begin(&mut self, meta: Meta) -> Result<(), StoreError> {
        self.meta = meta;
        self.put(META.to_owned(), &meta)
    }

    /// Takes in one thing that must survive.
    pub fn append(&mut self, save: &Save) -> Result<(), StoreError> {
        match save {
            Save::App { app, spec, submitted } => {
                if app.seq() > self.meta.last_app {
                    self.meta.last_app = app.seq();
                    self.put(META.to_owned(), &self.meta.clone())?;
                }
                self.put(record::app_key(app), &App::of(app, spec, *submitted))
            }
            Save::State { app, state } => self.put(record::state_key(app), &State::of(state)),
            Save::AppGone(app) => {
                self.remove(record::app_key(app));
                self.remove(record::state_key(app));
                self.remove(record::document_key(app));
                Ok(())
            }
            Save::Container(finished) => self.put(record::container_key(&finished.container), &Ended::of(finished)),
            Save::ContainerGone(container) => {
                self.remove(record::container_key(container));
                Ok(())
            }
            Save::Node(node) => self.put(record::node_key(node), &Node { id: node.clone() }),
            Save::NodeGone(node) => {
                self.remove(record::node_key(node));
                Ok(())
            }
            Save::Queues { generation, tree } => {
                self.put(record::QUEUES.to_owned(), &Queues { generation: *generation, root: Queue::of(tree.root()) })
            }
            Save::Mark { node, mark } => self.put(record::mark_key(node), &Mark::of(node, mark)),
            Save::MarkGone(node) => {
                self.remove(record::mark_key(node));
                Ok(())
            }
            Save::Tags { node, tags } if tags.is_empty() => {
                self.remove(record::tags_key(node));
                Ok(())
            }
            Save::Tags { node, tags } => self.put(record::tags_key(node), &Tags::of(node, tags)),
        }
    }

    /// Takes in a document of an application: opaque bytes, at most [`MAX_VALUE`].
    pub fn append_document(&mut self, app: &AppId, document: Vec<u8>) -> Result<(), StoreError> {
        self.put_bytes(record::document_key(app), document)
    }

    /// Takes in an answer to a call with a key.
    pub fn append_answer(&mut self, answer: &SavedAnswer) -> Result<(), StoreError> {
        self.put(answers::record_key(&answer.key), answer)
    }

    /// The answer to the call with this key is not needed any more.
    pub fn drop_answer(&mut self, key: &str) {
        self.remove(answers::record_key(key));
    }

    /// Takes in what is known of a family now.
    pub fn append_family(&mut self, family: &SavedFamily) -> Result<(), StoreError> {
        self.put(families::record_key(&family.user, &family.name), family)
    }

    /// The family is not remembered any more.
    pub fn drop_family(&mut self, user: &str, name: &Name) {
        self.remove(families::record_key(user, name));
    }

    /// Takes in the cluster's profiles, all of them as they are now.
    pub fn append_profiles(&mut self, profiles: &SavedProfiles) -> Result<(), StoreError> {
        self.put(PROFILES.to_owned(), profiles)
    }

    /// Takes in who may come in, all of it as it is now.
    pub fn append_access(&mut self, access: &SavedAccess) -> Result<(), StoreError> {
        self.put(ACCESS.to_owned(), access)
    }

    /// True when nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Makes all that was appended durable, at once and as a whole. After an error nothing may be assumed: stop.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let changes: Vec<Change> = pending
            .into_iter()
            .map(|(key, value)| match value {
                Some(value) => Change::Put { key, value },
                None => Change::Remove { key },
            })
            .collect();
        self.store.commit(&changes)
    }

    /// Writes a copy of all records but documents beside the database.
    pub fn snapshot(&mut self) -> Result<PathBuf, StoreError> {
        self.store.snapshot()
    }

    fn put<T: Serialize>(&mut self, key: String, value: &T) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(value).map_err(|source| StoreError::Encode { key: key.clone(), source })?;
        self.put_bytes(key, bytes)
    }

    fn put_bytes(&mut self, key: String, value: Vec<u8>) -> Result<(), StoreError> {
        if value.len() > MAX_VALUE {
            return Err(StoreError::TooLarge { key, length: value.len(), most: MAX_VALUE });
        }
        self.pending.insert(key, Some(value));
        Ok(())
    }

    fn remove(&mut self, key: String) {
        self.pending.insert(key, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers what it was told to write.
    #[derive(Debug, Default)]
    struct Written(Vec<Vec<Change>>);

    impl Store for Written {
        fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
            self.0.push(changes.to_vec());
            Ok(())
        }
        fn load(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
            Ok(Vec::new())
        }
        fn snapshot(&mut self) -> Result<PathBuf, StoreError> {
            Ok(PathBuf::new())
        }
    }

    #[test]
    fn a_batch_is_one_commit_and_the_last_word_on_a_key_counts() {
        let mut journal = Journal::new(Written::default(), Meta::default());
        let node: headroom_types::NodeId = "n1".parse().expect("id");
        journal.append(&Save::Node(node.clone())).expect("appends");
        journal.append(&Save::NodeGone(node)).expect("appends");
        journal.append_document(&"job.3".parse().expect("id"), b"{}".to_vec()).expect("appends");
        journal.commit().expect("commits");
        journal.commit().expect("commits");
        let put = Change::Put { key: "job/0000000003".into(), value: b"{}".to_vec() };
        assert_eq!(journal.store.0, [vec![put, Change::Remove { key: "node/n1".into() }]], "an empty batch writes nothing");
    }

    #[test]
    fn a_document_beyond_the_bound_is_refused_and_named() {
        let mut journal = Journal::new(Written::default(), Meta::default());
        let refused = journal.append_document(&"job.3".parse().expect("id"), vec![b' '; MAX_VALUE + 1]).expect_err("too large");
        assert!(refused.to_string().contains("job/0000000003"), "{refused}");
        assert!(journal.is_empty());
    }
}
