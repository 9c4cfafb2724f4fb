//! Ended and acknowledged containers: a bounded list that drops the oldest first.
//!
//! The allocations own the history. A container in it is never granted, counted or reported again.

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_types::{
    AppId, Bytes, ContainerId, ExitReason, ExitReport, NodeId, RequestId, Resource, UnixMillis,
};

use crate::container::Container;
use crate::container_table::tag;
use crate::table::HashIndex;

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
    /// Oldest first. They have consecutive numbers.
    kept: VecDeque<Arc<EndedContainer>>,
    /// Number of the oldest one.
    first: u32,
    /// Numbers by id.
    index: HashIndex,
}

/// Bits of a number; the numbers start again at zero.
const NUMBER: u32 = u32::MAX >> 1;

impl ContainerHistory {
    /// Creates a history of at most `most` containers.
    pub fn new(most: usize) -> Self {
        ContainerHistory {
            most: most.max(1),
            kept: VecDeque::new(),
            first: 0,
            index: HashIndex::default(),
        }
    }
    /// Changes the limit to `most`; returns the removed containers.
    pub fn keep(&mut self, most: usize) -> Vec<ContainerId> {
        self.most = most.max(1);
        let mut gone = Vec::new();
        while self.kept.len() > self.most {
            gone.extend(self.pop_oldest());
        }
        gone
    }
    /// Adds a container; returns the container that was removed for it.
    pub fn push(&mut self, finished: Arc<EndedContainer>) -> Option<ContainerId> {
        let known = self.place_of(&finished.container);
        if let Some(known) = known.and_then(|place| self.kept.get_mut(place)) {
            *known = finished;
            return None;
        }
        self.add(finished);
        if self.kept.len() <= self.most {
            return None;
        }
        self.pop_oldest()
    }
    /// Removes the containers of an application and returns their ids.
    pub fn forget(&mut self, app: &AppId) -> Vec<ContainerId> {
        let mut gone = Vec::new();
        self.index = HashIndex::default();
        for ended in std::mem::take(&mut self.kept) {
            if ended.container.app == *app {
                gone.push(ended.container.clone());
            } else {
                self.add(ended);
            }
        }
        gone
    }
    /// Looks up a container.
    pub fn get(&self, id: &ContainerId) -> Option<&EndedContainer> {
        self.kept.get(self.place_of(id)?).map(Arc::as_ref)
    }
    /// All kept containers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &EndedContainer> {
        self.kept.iter().map(Arc::as_ref)
    }

    /// Reads the oldest containers, which the next containers replace; see
    /// `Cluster::prefetch_containers`.
    pub(crate) fn prefetch_oldest(&self, count: usize) {
        if self.kept.len() < self.most {
            return; // none is replaced
        }
        let touch = |ended: &Arc<EndedContainer>| {
            ended.container.seq
                ^ ended.granted.0
                ^ u64::from(ended.attempt)
                ^ ended.why.len() as u64
        };
        let oldest = self.kept.iter().take(count).map(touch);
        std::hint::black_box(oldest.fold(0, |all, one| all ^ one));
    }
    /// Adds a container that is not kept.
    fn add(&mut self, finished: Arc<EndedContainer>) {
        let len = u32::try_from(self.kept.len()).unwrap_or(NUMBER);
        let number = self.first.wrapping_add(len) & NUMBER;
        self.index.insert(tag(&finished.container), number);
        self.kept.push_back(finished);
    }
    fn pop_oldest(&mut self) -> Option<ContainerId> {
        let oldest = self.kept.pop_front()?;
        let number = self.first;
        self.first = number.wrapping_add(1) & NUMBER;
        if let Some((entry, _)) = self.index.find(tag(&oldest.container), |n| n == number) {
            self.index.remove(entry);
        }
        Some(oldest.container.clone())
    }
    /// Index into the list of kept containers.
    fn place_of(&self, id: &ContainerId) -> Option<usize> {
        let place = |number: u32| (number.wrapping_sub(self.first) & NUMBER) as usize;
        let is_it = |number| {
            let kept = self.kept.get(place(number));
            kept.is_some_and(|ended| ended.container.seq == id.seq && ended.container == *id)
        };
        let (_, number) = self.index.find(tag(id), is_it)?;
        Some(place(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::Epoch;
    use proptest::prelude::*;

    fn ended((app, seq): (u32, u64), attempt: u32) -> Arc<EndedContainer> {
        let app = AppId::new("job".parse().expect("name"), app);
        Arc::new(EndedContainer {
            container: ContainerId {
                app,
                epoch: Epoch(1),
                seq,
            },
            node: "n1".parse().expect("id"),
            request: None,
            attempt,
            resource: Resource::default(),
            granted: UnixMillis(1),
            ended: UnixMillis(2),
            reason: ExitReason::Stopped,
            exit_code: None,
            peak: None,
            why: String::new(),
        })
    }

    proptest! {
        /// After any changes, the history has the same containers as a list, also while its numbers
        /// start again at zero.
        #[test]
        fn the_history_has_the_same_containers_as_a_list(
            ops in proptest::collection::vec((0u8..20, 1u32..4, 0u64..40), 0..300),
        ) {
            let mut history = ContainerHistory::new(12);
            history.first = NUMBER - 5;
            let (mut plain, mut most): (Vec<Arc<EndedContainer>>, usize) = (Vec::new(), 12);
            for (n, (op, app, seq)) in (1u32..).zip(ops) {
                match op {
                    0 => {
                        let gone = history.forget(&ended((app, seq), n).container.app);
                        let (out, kept): (Vec<_>, Vec<_>) =
                            plain.into_iter().partition(|e| e.container.app.seq() == app);
                        let ids: Vec<_> = out.iter().map(|e| e.container.clone()).collect();
                        plain = kept;
                        prop_assert_eq!(gone, ids);
                    }
                    1 => {
                        most = usize::try_from(seq).expect("small").max(1);
                        let gone = history.keep(usize::try_from(seq).expect("small"));
                        let out = plain.len().saturating_sub(most);
                        let ids: Vec<_> = plain.drain(..out).map(|e| e.container.clone()).collect();
                        prop_assert_eq!(gone, ids);
                    }
                    _ => {
                        let new = ended((app, seq), n);
                        let gone = history.push(new.clone());
                        match plain.iter_mut().find(|e| e.container == new.container) {
                            Some(known) => *known = new,
                            None => plain.push(new),
                        }
                        let out = (plain.len() > most).then(|| plain.remove(0).container.clone());
                        prop_assert_eq!(gone, out);
                    }
                }
                prop_assert!(history.iter().eq(plain.iter().map(Arc::as_ref)));
                for known in &plain {
                    prop_assert_eq!(history.get(&known.container), Some(&**known));
                }
                prop_assert!(history.get(&ended((9, 0), 0).container).is_none());
            }
        }
    }
}
