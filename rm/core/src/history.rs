//! Ended and acknowledged containers: a bounded list that drops the oldest first.
//!
//! The allocations own the history. A container in it is never granted, counted or reported again.

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_types::{
    AppId, Bytes, ContainerId, ExitReason, ExitReport, NodeId, RequestId, Resource, UnixMillis,
};

use crate::container::Container;
use crate::table::HashedTable;

/// An ended and acknowledged container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedContainer {
    /// Its id.
    pub container: ContainerId,
    /// Node of the container.
    pub node: NodeId,
    /// Its request; `None` for a master.
    pub request: Option<RequestId>,
    /// Attempt of its master for which it was granted; 1 for the first.
    pub attempt: u32,
    /// Size.
    pub resource: Resource,
    /// Time of the grant.
    pub granted: UnixMillis,
    /// Time of its end.
    pub ended: UnixMillis,
    /// Verdict.
    pub reason: ExitReason,
    /// Exit code of the program, if it exited by itself.
    pub exit_code: Option<i32>,
    /// Peak memory, if the kernel records it. Bytes.
    pub peak: Option<Bytes>,
    /// Diagnosed cause, or the reason for a missing report, for users. Empty when neither is known.
    pub why: String,
}

impl EndedContainer {
    /// Record of a container that ended with this report.
    pub(crate) fn new(c: &Container, report: &ExitReport) -> Self {
        EndedContainer {
            container: c.id.clone(),
            node: c.node.clone(),
            request: c.request.clone(),
            attempt: c.attempt,
            resource: c.resource.clone(),
            granted: c.granted,
            ended: report.ended,
            reason: report.reason,
            exit_code: report.evidence.exit_code,
            peak: report.evidence.own.peak,
            why: because(report),
        }
    }
}

/// Longest sentence that is kept with an ended container. Characters.
const LONGEST_WHY: usize = 300;

fn because(report: &ExitReport) -> String {
    let diagnosed = report.diagnosis.first().map(|d| &d.cause);
    let missing = report
        .evidence
        .missing
        .first()
        .filter(|_| report.started.is_none());
    diagnosed
        .or(missing)
        .map(|why| why.chars().take(LONGEST_WHY).collect())
        .unwrap_or_default()
}

/// The latest ended containers.
#[derive(Clone, Debug)]
pub struct ContainerHistory {
    most: usize,
    order: VecDeque<ContainerId>,
    by_id: HashedTable<ContainerId, Arc<EndedContainer>>,
}

impl ContainerHistory {
    /// Creates a history of at most `most` containers.
    pub fn new(most: usize) -> Self {
        ContainerHistory {
            most: most.max(1),
            order: VecDeque::new(),
            by_id: HashedTable::default(),
        }
    }
    /// Changes the limit to `most`; returns the removed containers.
    pub fn keep(&mut self, most: usize) -> Vec<ContainerId> {
        self.most = most.max(1);
        let gone: Vec<ContainerId> = self
            .order
            .drain(..self.order.len().saturating_sub(self.most))
            .collect();
        gone.iter().for_each(|id| self.by_id.drop_row(id));
        gone
    }
    /// Adds a container; returns the container that was removed for it.
    pub fn push(&mut self, finished: Arc<EndedContainer>) -> Option<ContainerId> {
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
    /// Removes the containers of an application and returns their ids.
    pub fn forget(&mut self, app: &AppId) -> Vec<ContainerId> {
        let (gone, kept) = std::mem::take(&mut self.order)
            .into_iter()
            .partition(|id: &ContainerId| id.app == *app);
        self.order = kept;
        let gone: VecDeque<ContainerId> = gone;
        gone.iter().for_each(|id| self.by_id.drop_row(id));
        gone.into()
    }
    /// Looks up a container.
    pub fn get(&self, id: &ContainerId) -> Option<&EndedContainer> {
        self.by_id.get(id).map(Arc::as_ref)
    }
    /// All kept containers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &EndedContainer> {
        self.order.iter().filter_map(|id| self.get(id))
    }
}
