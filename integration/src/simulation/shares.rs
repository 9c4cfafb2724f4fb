//! Checks of queue shares: a queue never exceeds its maximum, and it gets at least its guarantee
//! while it waits and others exceed theirs.

use std::collections::BTreeSet;

use headroom_rm_core::queue::spec::{QueuePreemption, QueueState};
use headroom_rm_core::{Cluster, ClusterEffect, ContainerCommand, QueueSnapshot};
use headroom_types::{Bytes, QueuePath};

use super::Simulation;

/// The first queue that exceeds its maximum by a grant among these effects.
pub(super) fn beyond_maximum(cluster: &Cluster, effects: &[ClusterEffect]) -> Option<String> {
    let granted = effects.iter().filter_map(|effect| match effect {
        ClusterEffect::SendCommand {
            container,
            want: ContainerCommand::Run(order),
            ..
        } if order.version == 1 => cluster.app(&container.app),
        ClusterEffect::SendCommand { .. }
        | ClusterEffect::Save(_)
        | ClusterEffect::Answer { .. }
        | ClusterEffect::Update { .. } => None,
        ClusterEffect::UpdatesEnd { .. }
        | ClusterEffect::Log(_)
        | ClusterEffect::Illegal { .. } => None,
    });
    let leaves: BTreeSet<QueuePath> = granted.map(|app| app.queue.clone()).collect();
    if leaves.is_empty() {
        return None;
    }
    let holds = |queue: &QueuePath, leaf: &QueuePath| {
        let (queue, leaf) = (queue.to_string(), leaf.to_string());
        leaf == queue || leaf.starts_with(&format!("{queue}."))
    };
    let concerned = |view: &QueueSnapshot<'_>| leaves.iter().any(|leaf| holds(view.path, leaf));
    let over = cluster
        .queues()
        .into_iter()
        .find(|view| concerned(view) && !view.used.fits(view.maximum))?;
    Some(format!(
        "queue {} has {}, but its maximum is {}",
        over.path, over.used, over.maximum
    ))
}

impl Simulation {
    /// Queues below their guarantee with a request that fits into the free memory plus the memory
    /// that others hold beyond their guarantees. Each is named with its number of granted
    /// containers, so that a queue with a new grant differs.
    pub(super) fn starving(&self, cluster: &Cluster) -> BTreeSet<String> {
        let views = cluster.queues();
        // Leaves directly below the root: their guarantees depend on no other queue.
        let leaves: Vec<&QueueSnapshot<'_>> = views
            .iter()
            .filter(|v| v.children.is_empty() && v.path.to_string().matches('.').count() == 1)
            .collect();
        let mut found = BTreeSet::new();
        for view in leaves
            .iter()
            .filter(|v| v.below_guarantee && v.state == QueueState::Running)
        {
            let mine = || cluster.apps().filter(|app| app.queue == *view.path);
            let fits = |size: &headroom_types::Resource| {
                view.used.memory.saturating_add(size.memory) <= view.guaranteed.memory
                    && self.room_beyond(cluster, &leaves, view, size)
            };
            let waits = cluster.waiting().filter(|(app, _)| app.queue == *view.path);
            let asks = waits.filter_map(|(app, request)| app.requests.get(request));
            let owed = asks
                .filter(|r| r.ask.place == Default::default())
                .any(|r| fits(&r.ask.resource));
            if owed {
                let given: u32 = mine()
                    .flat_map(|app| app.tallies.values())
                    .map(headroom_rm_core::request::GrantCounts::granted)
                    .sum();
                found.insert(format!(
                    "queue {} waits below its guarantee, with {given} containers given so far",
                    view.path
                ));
            }
        }
        found
    }

    /// Whether a node has enough memory, counting the memory that other queues use there beyond
    /// their guarantees.
    fn room_beyond(
        &self,
        cluster: &Cluster,
        leaves: &[&QueueSnapshot<'_>],
        mine: &QueueSnapshot<'_>,
        size: &headroom_types::Resource,
    ) -> bool {
        let spare =
            |view: &QueueSnapshot<'_>| view.used.memory.saturating_sub(view.guaranteed.memory);
        let others: Vec<&&QueueSnapshot<'_>> = leaves
            .iter()
            .filter(|v| v.path != mine.path && v.spec.preemptable == QueuePreemption::Yes)
            .collect();
        cluster
            .nodes()
            .filter(|node| node.state.takes_work())
            .any(|node| {
                let open = cluster.node_table().traits(node).takes_all()
                    && cluster.node_table().cordon(&node.id).is_none();
                let Some(account) = cluster
                    .ledger()
                    .node(&node.id)
                    .filter(|a| open && !a.overdrawn)
                else {
                    return false;
                };
                let of = |view: &QueueSnapshot<'_>| {
                    let there = cluster
                        .containers()
                        .filter(|c| c.node == node.id && c.request.is_some() && c.state.is_alive());
                    let theirs = there.filter(|c| {
                        cluster
                            .app(&c.id.app)
                            .is_some_and(|app| app.queue == *view.path)
                    });
                    theirs
                        .fold(Bytes::ZERO, |sum, c| sum.saturating_add(c.resource.memory))
                        .min(spare(view))
                };
                let free = others.iter().fold(account.free().memory, |sum, view| {
                    sum.saturating_add(of(view))
                });
                size.memory <= free && size.cpus <= account.free().cpus
            })
    }
}
