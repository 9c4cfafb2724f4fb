//! The simulated store of the resource manager: exactly the state that was made durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::{
    AppSubmission, DurableRecord, EndedContainer, NodeTags, RestoredApp, RestoredCluster,
    SavedDrainMark, SavedState,
};
use headroom_types::{AppId, Epoch, NodeId, UnixMillis};

/// The durable state of a resource manager.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    apps: BTreeMap<AppId, (Arc<AppSubmission>, UnixMillis)>,
    states: BTreeMap<AppId, SavedState>,
    finished: Vec<EndedContainer>,
    nodes: BTreeSet<NodeId>,
    marks: BTreeMap<NodeId, SavedDrainMark>,
    tags: BTreeMap<NodeId, NodeTags>,
    queues: Option<(u64, QueueTree)>,
    last_app: u32,
    epoch: Epoch,
}

impl Disk {
    pub(super) fn save(&mut self, save: &DurableRecord) {
        match save.clone() {
            DurableRecord::App {
                app,
                spec,
                submitted,
            } => {
                self.last_app = self.last_app.max(app.seq());
                self.apps.insert(app, (spec, submitted));
            }
            DurableRecord::State { app, state } => {
                self.states.insert(app, *state);
            }
            DurableRecord::AppGone(app) => {
                self.apps.remove(&app);
                self.states.remove(&app);
            }
            DurableRecord::Container(finished) => {
                let finished = Arc::unwrap_or_clone(finished);
                match self
                    .finished
                    .iter_mut()
                    .find(|f| f.container == finished.container)
                {
                    Some(known) => *known = finished,
                    None => self.finished.push(finished),
                }
            }
            DurableRecord::ContainerGone(id) => self.finished.retain(|f| f.container != id),
            DurableRecord::Node(node) => {
                self.nodes.insert(node);
            }
            DurableRecord::NodeGone(node) => {
                self.nodes.remove(&node);
            }
            DurableRecord::Queues { generation, tree } => self.queues = Some((generation, *tree)),
            DurableRecord::Mark { node, mark } => {
                self.marks.insert(node, mark);
            }
            DurableRecord::MarkGone(node) => {
                self.marks.remove(&node);
            }
            DurableRecord::Tags { node, tags } if tags.is_empty() => drop(self.tags.remove(&node)),
            DurableRecord::Tags { node, tags } => drop(self.tags.insert(node, *tags)),
        }
    }
    /// The initial state of the next incarnation. Its epoch is durable before it acts.
    pub(super) fn next_life(&mut self) -> RestoredCluster {
        let restored = self.restored();
        self.begin(restored.epoch);
        restored
    }
    /// Begins an epoch.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }
    /// The state with the next epoch.
    pub(super) fn restored(&self) -> RestoredCluster {
        let apps = self.apps.iter().filter_map(|(id, (spec, submitted))| {
            let state = self.states.get(id)?.clone();
            Some(RestoredApp {
                id: id.clone(),
                spec: spec.clone(),
                submitted: *submitted,
                state,
            })
        });
        RestoredCluster {
            epoch: Epoch(self.epoch.0 + 1),
            last_app: self.last_app,
            apps: apps.collect(),
            finished: self.finished.clone(),
            nodes: self.nodes.iter().cloned().collect(),
            marks: self.marks.clone().into_iter().collect(),
            tags: self.tags.clone().into_iter().collect(),
            queues: self.queues.clone(),
        }
    }
}
