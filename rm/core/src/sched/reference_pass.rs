//! Reference of the scheduling pass: sums every share from the containers, sorts all queues,
//! applications and requests again for each grant, and inspects every node.
//!
//! Tests and simulations compare each grant of [`Cluster::pass`] with it. Common to both are only
//! the arithmetic of shares and bounds and the free resources of each node, which the invariants
//! compare with the containers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use headroom_types::{AppId, NodeId, RequestId, Resource};

use super::container_locations::ContainersPerNode;
use super::fit::PlacementNeed;
use super::pass::grant_block;
use super::reference_placement::PlacementFacts;
use crate::app::ClusterApplication;
use crate::attempt::AttemptState;
use crate::cluster::Cluster;
use crate::container::Container;
use crate::ledger::ContainerRole;
use crate::queue::QueueNumber;
use crate::queue::bound::{DominantShare, ResourceBound};
use crate::queue::spec::LeafOrder;
use crate::queue::tree::QueueEntry;
use crate::request::PendingRequest;
use crate::timer::TimerKey;

/// The grant that a pass must make next: application, request (`None` for its master), and node.
pub(super) type ReferenceGrant = (AppId, Option<RequestId>, NodeId);

/// Sums over all live containers.
#[derive(Default)]
struct ContainerSums<'a> {
    by_queue: BTreeMap<QueueNumber, Resource>,
    by_app: BTreeMap<&'a AppId, Resource>,
    by_user: BTreeMap<(QueueNumber, &'a str), Resource>,
    masters: BTreeMap<QueueNumber, Resource>,
}

/// A queue on the path from the root, with its limits as quantities.
#[derive(Clone)]
struct QueueLimits {
    queue: QueueNumber,
    maximum: ResourceBound,
    /// Maximum, with an amount for each resource.
    most: Resource,
    /// Guarantee, with an amount for each resource.
    sure: Resource,
}

impl<'a> ContainerSums<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let mut sums = ContainerSums::default();
        for c in cluster.containers().filter(|c| c.state.is_alive()) {
            let app = cluster.apps.get(&c.id.app);
            let app = app.unwrap_or_else(|| panic!("{} has no application", c.id));
            sums.add(cluster, app, c);
        }
        sums
    }

    fn add(&mut self, cluster: &'a Cluster, app: &'a ClusterApplication, c: &Container) {
        let (size, _) = c.counted();
        let leaf = cluster.queue.find(&app.queue);
        let leaf = leaf.unwrap_or_else(|| panic!("{} has no queue", app.id));
        for (queue, _) in cluster.queue.path_of(leaf) {
            add(self.by_queue.entry(queue).or_default(), &size);
        }
        add(self.by_app.entry(&app.id).or_default(), &size);
        let user = app.spec.user.as_str();
        add(self.by_user.entry((leaf, user)).or_default(), &size);
        if c.role() == ContainerRole::Master {
            add(self.masters.entry(leaf).or_default(), &size);
        }
    }

    fn queue(&self, queue: QueueNumber) -> Resource {
        self.by_queue.get(&queue).cloned().unwrap_or_default()
    }
}

fn add(sum: &mut Resource, size: &Resource) {
    let whole = sum.checked_add(size);
    *sum = whole.expect("the sum of the containers is representable");
}

impl Cluster {
    /// Compares each grant of all later passes with the reference. For tests and simulations; a
    /// pass then costs a visit of every container, waiter and node for each grant.
    pub fn compare_passes(&mut self) {
        self.scheduler.compares_passes = true;
    }

    /// Compares the next grant of a pass with the reference.
    ///
    /// # Panics
    /// When they differ.
    pub(super) fn compare_grant(&self, found: Option<ReferenceGrant>) {
        let mut total = Resource::default();
        for account in self
            .nodes
            .values()
            .filter_map(|node| self.ledger().node(&node.id))
        {
            add(&mut total, &account.offers);
        }
        let walk = ReferenceWalk {
            cluster: self,
            sums: ContainerSums::of(self),
            total: total.clone(),
        };
        let above = QueueLimits {
            queue: QueueNumber::ROOT,
            maximum: ResourceBound::default(),
            most: total.clone(),
            sure: total,
        };
        let expected = walk.below(QueueNumber::ROOT, &above, &[]);
        assert_eq!(
            found, expected,
            "the grant of the pass (left) differs from that of its reference (right)"
        );
    }
}

struct ReferenceWalk<'a> {
    cluster: &'a Cluster,
    sums: ContainerSums<'a>,
    /// Resources of all nodes.
    total: Resource,
}

impl<'a> ReferenceWalk<'a> {
    /// The next grant in or below a queue. `path` has the queues above it.
    fn below(
        &self,
        queue: QueueNumber,
        above: &QueueLimits,
        path: &[QueueLimits],
    ) -> Option<ReferenceGrant> {
        let slot = self.cluster.queue.slot(queue)?;
        if !slot.spec.state.grants() {
            return None;
        }
        let maximum = ResourceBound::of(&slot.spec.maximum, &above.most);
        let limits = QueueLimits {
            queue,
            most: maximum.over(&above.most),
            maximum,
            sure: ResourceBound::of(&slot.spec.guaranteed, &above.sure).over(&above.sure),
        };
        let path = [path, std::slice::from_ref(&limits)].concat();
        if slot.children.is_empty() {
            return self.in_leaf(slot, &path);
        }
        let mut children = slot.children.clone();
        children.sort_by_cached_key(|child| self.rank(*child, &limits));
        let mut children = children.into_iter();
        children.find_map(|child| self.below(child, &limits, &path))
    }

    /// Position among the siblings: priority, guarantee, share, number.
    fn rank(
        &self,
        queue: QueueNumber,
        above: &QueueLimits,
    ) -> (Reverse<i32>, bool, DominantShare, QueueNumber) {
        let slot = self.cluster.queue.slot(queue);
        let spec = &slot.expect("a child queue exists").spec;
        let used = self.sums.queue(queue);
        let guaranteed = ResourceBound::of(&spec.guaranteed, &above.sure);
        let has_none = guaranteed.is_open() || guaranteed.is_nothing();
        let share = if has_none {
            DominantShare::of_all(&used, &self.total)
        } else {
            DominantShare::of_bound(&used, &guaranteed)
        };
        let is_above = has_none || share.is_whole();
        let share = share.by_weight(spec.weight.unwrap_or(1));
        (Reverse(spec.priority), is_above, share, queue)
    }

    fn in_leaf(&self, leaf: &QueueEntry, path: &[QueueLimits]) -> Option<ReferenceGrant> {
        let apps = leaf.apps.iter();
        let mut apps: Vec<&ClusterApplication> =
            apps.filter_map(|app| self.cluster.apps.get(app)).collect();
        apps.sort_by_cached_key(|app| {
            let share = match leaf.spec.order {
                LeafOrder::Fifo => DominantShare::default(),
                LeafOrder::Fair => {
                    let used = self.sums.by_app.get(&app.id).cloned();
                    DominantShare::of_all(&used.unwrap_or_default(), &self.total)
                }
            };
            (Reverse(app.priority), share, app.id.seq())
        });
        let apps = apps.into_iter();
        let mut apps = apps.filter(|app| grant_block(app, &self.cluster.nodes).is_none());
        apps.find_map(|app| self.of_app(app, leaf, path))
    }

    /// The next grant of an application: its master, or a request by priority and arrival.
    fn of_app(
        &self,
        app: &ClusterApplication,
        leaf: &QueueEntry,
        path: &[QueueLimits],
    ) -> Option<ReferenceGrant> {
        let delayed = TimerKey::Relaunch(app.id.clone());
        let master =
            app.run == AttemptState::Scheduled && self.cluster.timers.of(&delayed).is_none();
        let missing = |(_, asked): &(&RequestId, &PendingRequest)| {
            !app.state.is_ending() && app.missing_of(asked) > 0
        };
        let mut requests: Vec<_> = app.requests.iter().filter(missing).collect();
        requests.sort_by_key(|(_, asked)| (Reverse(asked.ask.priority), asked.arrival));
        let requests = requests.into_iter().map(|(request, _)| Some(request));
        let mut waiting = master.then_some(None).into_iter().chain(requests);
        let facts = self.facts(app);
        waiting.find_map(|request| {
            let need = PlacementNeed::of(app, request)?;
            if !self.limits_admit(app, leaf, path, (request, need.size)) {
                return None;
            }
            let node = facts.choose(need)?;
            let node = self.cluster.nodes.index().id(node)?;
            Some((app.id.clone(), request.cloned(), node.clone()))
        })
    }

    fn limits_admit(
        &self,
        app: &ClusterApplication,
        leaf: &QueueEntry,
        path: &[QueueLimits],
        (request, size): (Option<&RequestId>, &Resource),
    ) -> bool {
        let runs = |app: &&AppId| self.cluster.queue.is_running(app);
        let running = leaf.apps.iter().filter(runs).count();
        let full = leaf
            .spec
            .max_running
            .is_some_and(|most| running >= most as usize);
        if full && !self.cluster.queue.is_running(&app.id) {
            return false;
        }
        let admits = |limits: &QueueLimits| {
            let used = self.sums.queue(limits.queue);
            limits.maximum.admits(&used, size)
        };
        let Some(last) = path.last() else {
            return false;
        };
        let part = |part: Option<u32>| {
            let of = |part| ResourceBound::part_of(&last.most, part);
            part.map_or(ResourceBound::default(), of)
        };
        let user = (last.queue, app.spec.user.as_str());
        let of_user = self.sums.by_user.get(&user).cloned().unwrap_or_default();
        let masters = self.sums.masters.get(&last.queue);
        let masters_admit = match (request, masters) {
            (None, Some(masters)) => part(leaf.spec.master_share).admits(masters, size),
            // The first master of a queue has no limit.
            (None, None) | (Some(_), _) => true,
        };
        path.iter().all(admits)
            && part(leaf.spec.user_limit).admits(&of_user, size)
            && masters_admit
    }

    fn facts(&self, app: &ClusterApplication) -> PlacementFacts<'a> {
        let index = self.cluster.nodes.index();
        let members = index.members().iter();
        let nodes = members
            .filter_map(|ix| Some((*ix, index.slot(*ix)?)))
            .collect();
        let mut containers: BTreeMap<RequestId, ContainersPerNode> = BTreeMap::new();
        for c in self
            .cluster
            .containers_of(&app.id)
            .filter(|c| c.state.is_alive())
        {
            let Some(request) = &c.request else { continue };
            let of = containers.entry(request.clone()).or_default();
            *of.entry(c.node_number).or_default() += 1;
        }
        PlacementFacts { nodes, containers }
    }
}
