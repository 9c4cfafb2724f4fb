//! The runs of an application's master: the latest ones, where each was and how it ended.
//!
//! Owned by its application; the last one is the current one. Bounded, oldest first out. Never decides whether another run
//! follows: it is only told.

use std::collections::VecDeque;

use headroom_types::{ContainerId, ExitReason, NodeId, Resource, UnixMillis};

use crate::event::Outcome;

/// Most runs that are kept of one application.
pub const MOST: usize = 20;

/// One run of a master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Counts up from 1.
    pub number: u32,
    /// Its container; `None` for a master that somebody else runs.
    pub container: Option<ContainerId>,
    /// Where it was.
    pub node: Option<NodeId>,
    /// Size of its container.
    pub resource: Option<Resource>,
    /// When its container was granted; for a master that somebody else runs, when it registered.
    pub started: Option<UnixMillis>,
    /// When it was over.
    pub ended: Option<UnixMillis>,
    /// What it came to; `None` as long as it is not decided.
    pub outcome: Option<Outcome>,
    /// How its container ended.
    pub reason: Option<ExitReason>,
    /// Its end counts against the attempts its application may have.
    pub charged: bool,
    /// How it failed, for people.
    pub why: String,
}

/// The latest runs of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    latest: VecDeque<Run>,
}

impl Runs {
    /// The first run is about to begin.
    pub fn new() -> Self {
        Runs { latest: VecDeque::from([Run { number: 1, ..Run::default() }]) }
    }
    /// As saved before a restart. Where nothing was saved, the current run is known by its number and container only.
    pub fn restored(saved: Vec<Run>, number: u32, container: Option<&ContainerId>) -> Self {
        let mut latest = VecDeque::from(saved);
        if latest.is_empty() {
            latest.push_back(Run { number, container: container.cloned(), ..Run::default() });
        }
        Runs { latest }
    }
    /// Another run is about to begin.
    pub fn next(&mut self, number: u32) {
        self.latest.push_back(Run { number, ..Run::default() });
        while self.latest.len() > MOST {
            self.latest.pop_front();
        }
    }
    /// The current run got its container.
    pub fn granted(&mut self, container: &ContainerId, node: &NodeId, resource: &Resource, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut() {
            run.container = Some(container.clone());
            run.node = Some(node.clone());
            run.resource = Some(resource.clone());
            run.started = Some(at);
        }
    }
    /// The current run registered.
    pub fn registered(&mut self, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut() {
            run.started.get_or_insert(at);
        }
    }
    /// The current run failed.
    pub fn failed(&mut self, why: String, charged: bool, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut().filter(|run| run.outcome.is_none()) {
            (run.outcome, run.why, run.charged) = (Some(Outcome::Failed), why, charged);
            run.ended.get_or_insert(at);
        }
    }
    /// The application came to its end, and the current run with it.
    pub fn over(&mut self, outcome: Outcome, at: UnixMillis) {
        if let Some(run) = self.latest.back_mut().filter(|run| run.outcome.is_none()) {
            run.outcome = Some(outcome);
            run.ended.get_or_insert(at);
        }
    }
    /// The container of a run ended.
    pub fn exited(&mut self, container: &ContainerId, reason: ExitReason, at: UnixMillis) {
        let run = self.latest.iter_mut().find(|run| run.container.as_ref() == Some(container));
        if let Some(run) = run.filter(|run| run.reason.is_none()) {
            (run.reason, run.ended) = (Some(reason), Some(at));
        }
    }
    /// All that are kept, the current one last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.latest.iter()
    }
    /// The current one.
    pub fn current(&self) -> Option<&Run> {
        self.latest.back()
    }
}

impl Default for Runs {
    fn default() -> Self {
        Runs::new()
    }
}
