//! A standby's copy of the state: read once, then kept current by a watch.
//!
//! The watch covers all keys of the cluster, so it also reports the leader and the other managers.
//! A leader that was elected at revision R has every earlier write when its copy has reached R.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::client::EtcdClient;
use crate::election::{ElectionView, ManagerRecord};
use crate::error::EtcdError;
use crate::keys::{EtcdKeys, after};
use crate::message::{
    EncodedBytes, EncodedNumber, StreamMessage, WatchCreate, WatchEventKind, WatchRequest,
    WatchResponse,
};
use crate::thread::EtcdThread;

/// Pause before a failed watch is opened again.
const AGAIN: Duration = Duration::from_millis(300);
/// Longest time without a message on the watch, after which it is opened again. etcd reports its
/// progress at least every 10 minutes; the connection is checked by the kernel.
const SILENCE: Duration = Duration::from_secs(660);

/// Entries of the state at one revision.
#[derive(Debug, Default)]
pub struct StateImage {
    /// Entries by key, without the prefix.
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The revision of etcd that they have reached.
    pub revision: i64,
    /// Whether parts of a large batch exist, which must be finished before the state is used.
    pub has_parts: bool,
}

/// Keeps an image current.
#[derive(Debug)]
pub struct StateFollower {
    image: Arc<Mutex<StateImage>>,
    reached: watch::Receiver<i64>,
    _task: AbortOnDropHandle<()>,
}

impl StateFollower {
    /// Starts to follow the state. The leader and the managers go to `view`, the revision that the
    /// image has reached to `progress`.
    pub fn start(
        thread: &EtcdThread,
        client: EtcdClient,
        keys: EtcdKeys,
        view: watch::Sender<ElectionView>,
        progress: watch::Sender<i64>,
    ) -> Self {
        let image = Arc::new(Mutex::new(StateImage::default()));
        let reached = progress.subscribe();
        let task = FollowTask {
            client,
            keys,
            image: image.clone(),
            progress,
            view,
        };
        StateFollower {
            image,
            reached,
            _task: AbortOnDropHandle::new(thread.handle().spawn(task.run())),
        }
    }

    /// Waits until the image has reached a revision.
    ///
    /// # Errors
    /// It has not within this time.
    pub async fn reach(&mut self, revision: i64, within: Duration) -> Result<(), EtcdError> {
        let reached = self.reached.wait_for(|now| *now >= revision);
        match tokio::time::timeout(within, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(EtcdError::Answer(format!(
                "the watch of the state has not reached revision {revision} within {} ms",
                within.as_millis()
            ))),
        }
    }

    /// Ends the watch and returns the image.
    pub fn into_image(self) -> StateImage {
        std::mem::take(&mut *self.image.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct FollowTask {
    client: EtcdClient,
    keys: EtcdKeys,
    image: Arc<Mutex<StateImage>>,
    progress: watch::Sender<i64>,
    view: watch::Sender<ElectionView>,
}

impl FollowTask {
    async fn run(self) {
        loop {
            let Err(error) = self.follow().await;
            self.view
                .send_modify(|view| view.problem = Some(error.to_string()));
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Reads everything, then follows the changes until an error.
    async fn follow(&self) -> Result<std::convert::Infallible, EtcdError> {
        let from = self.read_all().await?;
        let start = [self.keys.prefix().as_bytes(), b"/"].concat();
        let request = WatchRequest {
            create_request: WatchCreate {
                range_end: Some(EncodedBytes(after(&start))),
                key: EncodedBytes(start),
                start_revision: EncodedNumber(from + 1),
                progress_notify: true,
            },
        };
        let mut stream = self.client.stream("watch", &request).await?;
        let mut text = Vec::new();
        loop {
            let chunk = tokio::time::timeout(SILENCE, stream.chunk()).await;
            let chunk = match chunk {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) | Err(_) => {
                    return Err(EtcdError::Unreachable("the watch has ended".into()));
                }
                Ok(Err(error)) => return Err(EtcdError::Unreachable(error.to_string())),
            };
            text.extend_from_slice(&chunk);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                self.take_line(&line)?;
            }
        }
    }

    async fn read_all(&self) -> Result<i64, EtcdError> {
        let start = [self.keys.prefix().as_bytes(), b"/"].concat();
        let (mut image, mut view) = (StateImage::default(), ElectionView::default());
        let mut pages = self.client.pages_of(start);
        while let Some(page) = pages.next().await? {
            image.revision = page.revision;
            for (key, value) in page.entries {
                self.apply(&mut image, &mut view, key, Some(value));
            }
        }
        let revision = image.revision;
        *self.image.lock().unwrap_or_else(PoisonError::into_inner) = image;
        self.progress.send_replace(revision);
        self.view.send_replace(view);
        Ok(revision)
    }

    fn take_line(&self, line: &[u8]) -> Result<(), EtcdError> {
        let message: StreamMessage<WatchResponse> = serde_json::from_slice(line)
            .map_err(|error| EtcdError::Answer(format!("watch: {error}")))?;
        let answer = match message {
            StreamMessage::Result(answer) => answer,
            StreamMessage::Error(refusal) => {
                return Err(EtcdError::of_refusal(refusal.grpc_code, &refusal.message));
            }
        };
        if answer.canceled {
            return Err(if answer.compact_revision.0 > 0 {
                EtcdError::Compacted
            } else {
                EtcdError::Unreachable(format!(
                    "etcd has ended the watch: {}",
                    answer.cancel_reason
                ))
            });
        }
        let reached = answer.reached();
        let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        self.view.send_if_modified(|view| {
            let before = view.clone();
            for event in answer.events {
                let value = (event.kind == WatchEventKind::Put).then_some(event.kv.value.0);
                self.apply(&mut image, view, event.kv.key.0, value);
            }
            *view != before
        });
        image.revision = image.revision.max(reached);
        self.progress.send_replace(image.revision);
        Ok(())
    }

    /// Applies one change; `None` removes the key.
    fn apply(
        &self,
        image: &mut StateImage,
        view: &mut ElectionView,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    ) {
        if let Some(entry) = key.strip_prefix(self.keys.state().as_slice()) {
            match value {
                Some(value) => image.entries.insert(entry.to_vec(), value),
                None => image.entries.remove(entry),
            };
        } else if key == self.keys.leader() {
            view.leader = value.as_deref().and_then(ManagerRecord::read);
        } else if let Some(id) = key.strip_prefix(self.keys.managers().as_slice()) {
            let id = String::from_utf8_lossy(id);
            view.managers.retain(|manager| manager.id != id);
            view.managers
                .extend(value.as_deref().and_then(ManagerRecord::read));
            view.managers.sort_by(|a, b| a.url.cmp(&b.url));
        } else if key.starts_with(&self.keys.parts()) {
            image.has_parts = true;
        }
    }
}
