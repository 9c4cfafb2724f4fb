//! Cluster statistics for metrics that no list contains, computed together with the view.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_rm_core::{Cluster, attempt};
use headroom_types::{Bytes, NodeId, QueuePath, Resource, Tick};

/// Statistics at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterStatistics {
    /// Containers by state.
    pub(crate) containers: BTreeMap<&'static str, u64>,
    /// Waiting containers by queue.
    pub(crate) waiting: BTreeMap<QueuePath, QueueWaiting>,
    /// Reserved memory by node.
    pub(crate) reserved: BTreeMap<NodeId, Bytes>,
    /// Memory of the largest container that could be granted now. Bytes.
    pub(crate) largest_free: Bytes,
}

/// Waiting containers of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueWaiting {
    /// Containers that fit on at least one node.
    pub(crate) waits: u64,
    /// Containers that are larger than every node.
    pub(crate) never: u64,
    /// The longest wait.
    pub(crate) longest: Duration,
}

impl ClusterStatistics {
    pub(crate) fn of(cluster: &Cluster, now: Tick) -> Self {
        let mut figures = ClusterStatistics::default();
        for c in cluster.containers() {
            *figures.containers.entry(c.state.as_str()).or_default() += 1;
        }
        for kept in cluster.reservations() {
            figures.reserved.insert(kept.node.clone(), kept.size.memory);
        }
        let ready = cluster
            .nodes()
            .filter(|node| cluster.node_table().displayed_state(node) == "ready");
        let free = ready
            .filter_map(|node| cluster.ledger().node(&node.id))
            .map(|account| account.free().memory);
        figures.largest_free = free.max().unwrap_or_default();
        figures.count_waiting(cluster, now);
        figures
    }

    fn count_waiting(&mut self, cluster: &Cluster, now: Tick) {
        let largest = cluster.node_table().largest().map(|(_, size)| size);
        let too_large =
            |size: &Resource| largest.is_none_or(|l| size.memory > l.memory || size.cpus > l.cpus);
        for (app, id) in cluster.waiting() {
            let Some(request) = app.requests.get(id) else {
                continue;
            };
            let waiting = self.waiting.entry(app.queue.clone()).or_default();
            let missing = u64::from(app.missing(id));
            *(if too_large(&request.ask.resource) {
                &mut waiting.never
            } else {
                &mut waiting.waits
            }) += missing;
            waiting.longest = waiting.longest.max(now.since(request.waiting));
        }
        for app in cluster
            .apps()
            .filter(|app| app.run == attempt::AttemptState::Scheduled)
        {
            let Some(size) = &app.master else { continue };
            let waiting = self.waiting.entry(app.queue.clone()).or_default();
            *(if too_large(&size.resource) {
                &mut waiting.never
            } else {
                &mut waiting.waits
            }) += 1;
        }
    }
}
