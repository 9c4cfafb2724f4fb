//! Containers that are over and known to be over: bounded, oldest first out.
//!
//! Owned by the cluster. A container in it is never granted, never counted and never reported again.

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_types::{AppId, Bytes, ContainerId, ExitReason, NodeId, RequestId, Resource, UnixMillis};

use crate::table::Table;

/// A container that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its id.
    pub container: ContainerId,
    /// Where it was.
    pub node: NodeId,
    /// Its request; `None` for a master.
    pub request: Option<RequestId>,
    /// The run of its master that it was granted in; 1 for the first.
    pub attempt: u32,
    /// Its size.
    pub resource: Resource,
    /// When it was granted.
    pub granted: UnixMillis,
    /// When it ended.
    pub ended: UnixMillis,
    /// How it ended.
    pub reason: ExitReason,
    /// Its program's exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The most memory it had at once, where the kernel keeps that. Bytes.
    pub peak: Option<Bytes>,
    /// More than the reason says, where more is known: the diagnosed cause, or why there is no report. For people.
    pub why: String,
}

/// The latest of them.
#[derive(Clone, Debug)]
pub struct History {
    most: usize,
    order: VecDeque<ContainerId>,
    by_id: Table<ContainerId, Arc<Finished>>,
}

impl History {
    /// Keeps at most `most`.
    pub fn new(most: usize) -> Self {
        History { most: most.max(1), order: VecDeque::new(), by_id: Table::default() }
    }
    /// Keeps at most `most` from now on; what has to leave for that comes back.
    pub fn keep(&mut self, most: usize) -> Vec<ContainerId> {
        self.most = most.max(1);
        let gone: Vec<ContainerId> = self.order.drain(..self.order.len().saturating_sub(self.most)).collect();
        gone.iter().for_each(|id| self.by_id.drop_row(id));
        gone
    }
    /// Adds one; what has to leave for it comes back.
    pub fn push(&mut self, finished: Arc<Finished>) -> Option<ContainerId> {
        let id = finished.container.clone();
        if self.by_id.insert(id.clone(), finished).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() <= self.most {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.by_id.drop_row(&oldest);
        Some(oldest)
    }
    /// Those of an application are kept no longer; they come back.
    pub fn forget(&mut self, app: &AppId) -> Vec<ContainerId> {
        let (gone, kept) = std::mem::take(&mut self.order).into_iter().partition(|id: &ContainerId| id.app == *app);
        self.order = kept;
        let gone: VecDeque<ContainerId> = gone;
        gone.iter().for_each(|id| self.by_id.drop_row(id));
        gone.into()
    }
    /// One of them.
    pub fn get(&self, id: &ContainerId) -> Option<&Finished> {
        self.by_id.get(id).map(Arc::as_ref)
    }
    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Finished> {
        self.order.iter().filter_map(|id| self.get(id))
    }
}
