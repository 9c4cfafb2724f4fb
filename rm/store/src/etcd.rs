//! Entries in etcd, for resource managers on several hosts.
//!
//! Only the leader opens it. It keeps an image of all records, so that a snapshot does not read
//! them through the network; documents are read from etcd.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use headroom_config::etcd::EtcdConfig;
use headroom_rm_etcd::checks::{self, EtcdCheck};
use headroom_rm_etcd::{EtcdClient, EtcdError, EtcdKeys, EtcdThread, StateWriter};

use crate::engine_error::EngineError;
use crate::entry::{KeyRange, RecordEntry};
use crate::record::DOCUMENTS;

/// The state of one cluster in etcd. Clones share it.
#[derive(Clone, Debug)]
pub struct EtcdEngine {
    thread: Arc<EtcdThread>,
    client: EtcdClient,
    keys: EtcdKeys,
    /// None for a state that is only read.
    writer: Option<StateWriter>,
    image: Arc<Mutex<EntryImage>>,
}

/// Entries in memory.
#[derive(Debug, Default)]
enum EntryImage {
    /// None: every read goes to etcd.
    #[default]
    Nothing,
    /// All entries.
    Whole(BTreeMap<Vec<u8>, Vec<u8>>),
    /// All entries except those of documents.
    Records(BTreeMap<Vec<u8>, Vec<u8>>),
}

impl EtcdEngine {
    /// The state below `keys`, written by `writer`. `image` has all its entries, if a standby
    /// followed them.
    pub fn new(
        thread: Arc<EtcdThread>,
        client: EtcdClient,
        keys: EtcdKeys,
        writer: StateWriter,
        image: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    ) -> Self {
        EtcdEngine {
            thread,
            client,
            keys,
            writer: Some(writer),
            image: Arc::new(Mutex::new(
                image.map_or(EntryImage::Nothing, EntryImage::Whole),
            )),
        }
    }

    /// The state below `keys`, for reading only.
    pub fn reader(thread: Arc<EtcdThread>, client: EtcdClient, keys: EtcdKeys) -> Self {
        EtcdEngine {
            thread,
            client,
            keys,
            writer: None,
            image: Arc::default(),
        }
    }

    /// The prefix of its keys.
    pub fn prefix(&self) -> &str {
        self.keys.prefix()
    }

    /// Finishes a batch that an earlier leader began, and reads all entries unless an image was
    /// given. Call it before the first read.
    pub fn prepare(&self) -> Result<(), EngineError> {
        let writer = self.writer()?;
        let unfinished = self.wait(async move { writer.finish_batch().await })?;
        if unfinished || matches!(*self.lock(), EntryImage::Nothing) {
            self.read_image()?;
        }
        Ok(())
    }

    /// Reads all entries of one revision into memory.
    pub(crate) fn read_image(&self) -> Result<(), EngineError> {
        let mut all = BTreeMap::new();
        self.read((Bound::Unbounded, Bound::Unbounded), |key, value| {
            all.insert(key.to_vec(), value.to_vec());
            Ok::<(), EngineError>(())
        })?;
        *self.lock() = EntryImage::Whole(all);
        Ok(())
    }

    /// Drops the documents from memory, after the start.
    pub fn drop_documents(&self) {
        let mut image = self.lock();
        if let EntryImage::Whole(mut entries) = std::mem::take(&mut *image) {
            entries.retain(|key, _| !key.starts_with(DOCUMENTS.as_bytes()));
            *image = EntryImage::Records(entries);
        }
    }

    /// The identity of the cluster; `None` before the first start.
    pub fn cluster(&self) -> Result<Option<Vec<u8>>, EngineError> {
        let (client, key) = (self.client.clone(), self.keys.cluster());
        self.wait(async move { client.value(key).await })
    }

    /// The reason why no manager may use the state.
    pub fn closed(&self) -> Result<Option<String>, EngineError> {
        let (client, key) = (self.client.clone(), self.keys.closed());
        let reason = self.wait(async move { client.value(key).await })?;
        Ok(reason.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Closes the state for all managers, or opens it again.
    pub fn set_closed(&self, reason: Option<&str>) -> Result<(), EngineError> {
        let (writer, key) = (self.writer()?, self.keys.closed());
        let reason = reason.map(|text| text.as_bytes().to_vec());
        self.wait(async move {
            match reason {
                Some(reason) => writer.put(key, reason).await,
                None => writer.remove(key).await,
            }
        })
    }

    /// Runs the checks of etcd with these settings.
    pub(crate) fn examine(
        &self,
        client: EtcdClient,
        settings: EtcdConfig,
    ) -> Result<Vec<EtcdCheck>, EngineError> {
        self.wait(async move { Ok(checks::examine(&client, &settings).await) })
    }

    /// Sets the identity of the cluster.
    pub fn set_cluster(&self, identity: Vec<u8>) -> Result<(), EngineError> {
        let (writer, key) = (self.writer()?, self.keys.cluster());
        self.wait(async move { writer.put(key, identity).await })
    }

    /// Removes all entries.
    pub fn clear(&self) -> Result<(), EngineError> {
        let writer = self.writer()?;
        *self.lock() = EntryImage::Nothing;
        self.wait(async move { writer.clear().await })
    }

    /// Writes all entries or none.
    pub fn write(&self, entries: Vec<RecordEntry>) -> Result<(), EngineError> {
        let (writer, copy) = (self.writer()?, entries.clone());
        self.wait(async move { writer.write(copy).await })?;
        self.lock().apply(entries);
        Ok(())
    }

    /// The value of one entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let (client, key) = (self.client.clone(), self.keys.entry(key.as_bytes()));
        self.wait(async move { client.value(key).await })
    }

    /// Passes entries to `see` in key order.
    pub fn walk<E: From<EngineError>>(
        &self,
        keys: KeyRange<'_>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let image = self.lock();
        let entries = match &*image {
            EntryImage::Whole(entries) => Some(entries),
            EntryImage::Records(entries) if !has_documents(keys) => Some(entries),
            EntryImage::Records(_) | EntryImage::Nothing => None,
        };
        if let Some(entries) = entries {
            return entries
                .range::<[u8], _>(keys)
                .try_for_each(|(key, value)| see(key, value));
        }
        drop(image);
        self.read(keys, see)
    }

    fn read<E: From<EngineError>>(
        &self,
        (from, end): KeyRange<'_>,
        mut see: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let state = self.keys.state();
        let from = match from {
            Bound::Unbounded => state.clone(),
            Bound::Included(key) => self.keys.entry(key),
            Bound::Excluded(key) => next(self.keys.entry(key)),
        };
        let mut pages = match end {
            Bound::Unbounded => self.client.pages_from(from, &state),
            Bound::Included(key) => self.client.pages(from, next(self.keys.entry(key))),
            Bound::Excluded(key) => self.client.pages(from, self.keys.entry(key)),
        };
        loop {
            let (page, rest) = self.wait(async move {
                let page = pages.next().await?;
                Ok((page, pages))
            })?;
            pages = rest;
            let Some(page) = page else {
                return Ok(());
            };
            for (key, value) in &page.entries {
                see(key.strip_prefix(state.as_slice()).unwrap_or(key), value)?;
            }
        }
    }

    fn writer(&self) -> Result<StateWriter, EngineError> {
        let refused = || EtcdError::Refused("the state is open for reading only".into());
        Ok(self.writer.clone().ok_or_else(refused)?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, EntryImage> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until a call of etcd returns.
    fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, EtcdError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let ending = || EtcdError::Unreachable("the process is ending".into());
        Ok(self.thread.wait(call).ok_or_else(ending)??)
    }
}

impl EntryImage {
    fn apply(&mut self, entries: Vec<RecordEntry>) {
        let (map, documents) = match self {
            EntryImage::Nothing => return,
            EntryImage::Whole(map) => (map, true),
            EntryImage::Records(map) => (map, false),
        };
        for (key, value) in entries {
            match value {
                _ if !documents && key.starts_with(DOCUMENTS) => {}
                Some(value) => _ = map.insert(key.into_bytes(), value),
                None => _ = map.remove(key.as_bytes()),
            }
        }
    }
}

/// Whether a range may contain documents.
fn has_documents((from, end): KeyRange<'_>) -> bool {
    let documents = DOCUMENTS.as_bytes();
    let before = match end {
        Bound::Unbounded => false,
        Bound::Included(key) => key < documents,
        Bound::Excluded(key) => key <= documents,
    };
    let after = match from {
        Bound::Unbounded => false,
        Bound::Included(key) | Bound::Excluded(key) => {
            key > documents && !key.starts_with(documents)
        }
    };
    !before && !after
}

/// The first key after this one.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_documents_are_recognised() {
        let key = |text: &'static str| Bound::Included(text.as_bytes());
        let until = |text: &'static str| Bound::Excluded(text.as_bytes());
        assert_eq!(DOCUMENTS, "job/");
        assert!(!has_documents((Bound::Unbounded, until("job/"))));
        assert!(!has_documents((key("job0"), Bound::Unbounded)));
        assert!(has_documents((Bound::Unbounded, Bound::Unbounded)));
        assert!(has_documents((key("job/1"), until("job0"))));
        assert!(has_documents((Bound::Unbounded, until("job/1"))));
    }

    #[test]
    fn an_image_of_records_takes_no_documents() {
        let mut image = EntryImage::Records(BTreeMap::new());
        image.apply(vec![
            ("job/1".into(), Some(vec![1])),
            ("app/1".into(), Some(vec![2])),
            ("app/2".into(), Some(vec![3])),
        ]);
        image.apply(vec![("app/2".into(), None)]);
        let EntryImage::Records(entries) = image else {
            panic!("another kind")
        };
        assert_eq!(
            entries.into_iter().collect::<Vec<_>>(),
            [(b"app/1".to_vec(), vec![2])]
        );
    }
}
