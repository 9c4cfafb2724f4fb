//! Invariants of a cluster. Every test checks them after every step.

mod queues;

use std::collections::BTreeMap;

use headroom_types::{Bytes, NodeId, RequestId, Resource};

use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::container::{Container, ContainerState};
use crate::size;
use crate::timer::TimerKey;

impl Cluster {
    /// Checks all invariants. For tests and simulations.
    ///
    /// # Panics
    /// When the tables contradict each other; the message names the invariant.
    pub fn assert_invariants(&self) {
        self.check_ledger();
        self.check_index();
        self.check_containers();
        for app in self.apps.values() {
            self.check_app(app);
        }
        self.check_queues();
        self.check_nodes();
        self.check_reservations();
        self.check_claims();
    }

    fn check_ledger(&self) {
        let mut sums: BTreeMap<&NodeId, (Resource, Bytes)> = BTreeMap::new();
        for c in self.containers.values().filter(|c| c.state.is_alive()) {
            let slot = sums.entry(&c.node).or_default();
            let (size, heap) = c.counted();
            slot.0 = slot
                .0
                .checked_add(&size)
                .expect("the sum of the containers is representable");
            slot.1 = slot.1.saturating_add(heap);
        }
        for (id, account) in self.ledger.nodes() {
            let (sum, heap) = sums.remove(id).unwrap_or_default();
            assert_eq!(
                account.allocated, sum,
                "{id}: the ledger differs from the sum of its containers"
            );
            assert_eq!(
                account.heap, heap,
                "{id}: the ledger's heap differs from the sum of its containers"
            );
            assert_eq!(
                account.overdrawn,
                !account.allocated.fits(&account.capacity()),
                "{id}: the flag overdrawn is wrong"
            );
        }
        assert!(
            sums.is_empty(),
            "containers on nodes without an account: {sums:?}"
        );
        for app in self.apps.keys() {
            let mine = self
                .containers
                .values()
                .filter(|c| c.id.app == *app && c.state.is_alive());
            let share = self.ledger.app(app).cloned().unwrap_or_default();
            assert_eq!(
                usize::try_from(share.containers).expect("small"),
                mine.clone().count(),
                "{app}: number of containers in the ledger"
            );
            let memory = mine.fold(Bytes::ZERO, |sum, c| {
                sum.saturating_add(c.counted().0.memory)
            });
            assert_eq!(share.used.memory, memory, "{app}: memory in the ledger");
        }
    }

    fn check_index(&self) {
        for (id, node) in self.nodes.iter() {
            let account = self.ledger.node(id).expect("every node has an account");
            let room = (self.is_open(node) && !account.overdrawn).then(|| self.room_for_all(id));
            let ix = self.index.ix(id).expect("every node has a number");
            assert_eq!(
                self.index.id(ix),
                Some(id),
                "{id}: its number belongs to another node"
            );
            assert_eq!(
                self.index.room(ix),
                room.as_ref(),
                "{id}: the index differs from the ledger"
            );
            let traits = self
                .index
                .slot(ix)
                .map(|slot| &slot.traits)
                .filter(|_| node.state.is_member());
            assert!(
                traits.is_none_or(|traits| *traits == *self.traits(node)),
                "{id}: other properties in the index"
            );
            assert_eq!(
                self.index.members().contains(&ix),
                node.state.is_member(),
                "{id}: membership in the index"
            );
            let offered = self.offers.contains(&(account.offers.memory, id.clone()));
            assert_eq!(
                offered,
                node.state.is_member(),
                "{id}: entry in the list of offers"
            );
        }
        assert!(
            self.index
                .rooms()
                .all(|(id, _)| self.nodes.contains_key(id)),
            "the index contains removed nodes"
        );
        assert!(
            self.offers.len() <= self.nodes.len(),
            "more offers than nodes"
        );
    }

    fn check_containers(&self) {
        for (id, c) in self.containers.iter() {
            let node = self
                .nodes
                .get(&c.node)
                .unwrap_or_else(|| panic!("{id} is on {}, which does not exist", c.node));
            assert!(
                node.containers.contains(id),
                "{id} is missing in the list of node {}",
                c.node
            );
            let app = self
                .apps
                .get(&id.app)
                .unwrap_or_else(|| panic!("{id} has no application"));
            assert!(
                app.containers.contains(id),
                "{id} is missing in the list of application {}",
                id.app
            );
            assert_eq!(
                self.apps.row_of(&id.app),
                Some(c.home),
                "{id}: the row of its application is wrong"
            );
            let stopping = self
                .stopping
                .get(&c.node)
                .is_some_and(|ids| ids.contains(id));
            assert!(
                c.stop_asked.is_none() || stopping || !c.state.is_alive(),
                "{id} was ordered to stop, and is not in the list of stopping containers"
            );
            assert!(
                self.history.get(id).is_none(),
                "{id} is in the history and in the table"
            );
            assert!(
                c.newest >= c.version && c.newest >= c.sizing.order().map_or(0, |o| o.version),
                "{id}: a version could be used twice"
            );
            if let size::ResizeState::Ordered { .. } = c.sizing
                && c.state.is_alive()
            {
                assert!(
                    self.timers.of(&TimerKey::Resize(id.clone())).is_some(),
                    "{id}: no timer for its unconfirmed size"
                );
            }
            match &c.state {
                ContainerState::Exited { .. } => {
                    let has_update = app
                        .updates
                        .after(0)
                        .any(|u| matches!(&u.what, crate::event::UpdateKind::Exited { report, .. } if report.container == *id));
                    assert!(
                        has_update,
                        "{id} has ended, is not acknowledged, and has no update for its master"
                    );
                }
                ContainerState::Done { .. } => panic!("{id} is done and still in the table"),
                ContainerState::Allocated
                | ContainerState::Launching
                | ContainerState::Running
                | ContainerState::Stopping { .. } => {}
            }
        }
        let listed: usize = self.nodes.values().map(|n| n.containers.len()).sum();
        assert_eq!(
            listed,
            self.containers.len(),
            "nodes list containers that are not in the table"
        );
        let listed: usize = self.apps.values().map(|a| a.containers.len()).sum();
        assert_eq!(
            listed,
            self.containers.len(),
            "applications list containers that are not in the table"
        );
    }

    fn check_app(&self, app: &ClusterApplication) {
        let id = &app.id;
        let counts = live_by_request(app.containers.iter().filter_map(|c| self.containers.get(c)));
        for (request, granted) in app.tallies.iter() {
            let (live, unacked) = counts.get(request).copied().unwrap_or_default();
            assert_eq!(
                (granted.live, granted.unacked),
                (live, unacked),
                "{id}/{request}: the count of granted containers is wrong"
            );
        }
        assert!(
            counts.keys().all(|r| app.tallies.contains_key(r)),
            "{id}: containers of a request without a count"
        );
        if let Some(spots) = &app.spots {
            assert_eq!(
                *spots,
                self.whereabouts(app),
                "{id}: the nodes of its containers are wrong"
            );
        }
        let cursors: Vec<u64> = app.updates.after(0).map(|u| u.cursor).collect();
        let expected: Vec<u64> = (app.updates.acked() + 1..=app.updates.last()).collect();
        assert_eq!(
            cursors, expected,
            "{id}: gaps in the cursors of the updates"
        );
        if app.state.is_ending() {
            assert!(app.requests.is_empty(), "{id} is ending and has requests");
            assert!(
                app.updates.is_empty(),
                "{id} is ending and has unacknowledged updates"
            );
        }
        if app.state.is_over() {
            assert!(
                app.containers.is_empty(),
                "{id} has ended and has containers"
            );
        }
        let waits = app.run == crate::attempt::AttemptState::Scheduled;
        let queued = self.queue.contains(&crate::queue::PlacementWaiter {
            app: id.clone(),
            request: None,
        });
        let delayed = self.timers.of(&TimerKey::Relaunch(id.clone())).is_some();
        assert_eq!(
            (waits, queued && delayed),
            (queued || delayed, false),
            "{id}: its master waits and is neither queued nor delayed, or the reverse"
        );
        let silence = self.timers.of(&TimerKey::Master(id.clone())).is_some();
        if app.run.is_registered() {
            assert!(silence, "{id}: no timer for the heartbeats of its master");
        }
    }

    fn check_reservations(&self) {
        let kept: Vec<_> = self.reservations.all().collect();
        for (ix, kept) in &kept {
            let (app, request) = (&kept.app, &kept.request);
            assert_eq!(
                self.index.id(*ix),
                Some(&kept.node),
                "{app}/{request}: the reserved node has another number"
            );
            assert!(
                self.index.room(*ix).is_some(),
                "{} is reserved for {app}/{request} and takes no work",
                kept.node
            );
            assert_eq!(
                self.reservations.of(app, request).map(|(ix, _)| ix),
                Some(*ix),
                "{app}/{request}: two nodes are reserved"
            );
            let record = self
                .apps
                .get(app)
                .expect("the application of a reservation exists");
            assert!(
                record.missing(request) > 0,
                "{} is reserved for {app}/{request}, which does not wait",
                kept.node
            );
            assert_eq!(
                record
                    .requests
                    .get(request)
                    .expect("the request of a reservation exists")
                    .ask
                    .resource,
                kept.size,
                "{app}/{request}: another size is reserved"
            );
            let free = self
                .ledger
                .node(&kept.node)
                .expect("every node has an account")
                .free();
            assert!(
                !kept.size.fits(&free),
                "{} can hold {app}/{request}, which waits with a reservation",
                kept.node
            );
        }
        assert!(
            kept.len() <= self.most_reservations(),
            "{} nodes are reserved, and the limit is {}",
            kept.len(),
            self.most_reservations()
        );
        let mut leaves: Vec<_> = self.kept_leaves().collect();
        let all = leaves.len();
        leaves.sort();
        leaves.dedup();
        assert_eq!(leaves.len(), all, "a leaf has two reservations");
    }

    fn check_nodes(&self) {
        for (id, node) in self.nodes.iter() {
            let timer = self.timers.of(&TimerKey::Node(id.clone())).is_some();
            assert_eq!(
                timer,
                node.state.is_member(),
                "{id}: a member has a heartbeat timer, and no other node has"
            );
            let barred = node.state == crate::node::ClusterNodeState::Decommissioned;
            assert_eq!(
                barred,
                self.is_barred(id),
                "{id}: decommissioned in one table only"
            );
        }
        assert!(
            self.tags.values().all(|tags| !tags.is_empty()),
            "empty tags are stored"
        );
        for (id, mark) in &self.marks {
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            let alive = node
                .containers
                .iter()
                .filter_map(|c| self.containers.get(c))
                .any(|c| c.state.is_alive());
            assert!(
                !(mark.drained && alive),
                "{id} is drained and has containers"
            );
            assert!(
                mark.drained || !node.containers.is_empty(),
                "{id} is empty and not marked as drained"
            );
        }
    }
}

/// Numbers of live and ended containers per request of an application.
fn live_by_request<'a>(
    containers: impl Iterator<Item = &'a Container>,
) -> BTreeMap<RequestId, (u32, u32)> {
    let mut counts: BTreeMap<RequestId, (u32, u32)> = BTreeMap::new();
    for c in containers {
        let Some(request) = &c.request else { continue };
        let slot = counts.entry(request.clone()).or_default();
        if c.state.is_alive() {
            slot.0 += 1
        } else {
            slot.1 += 1
        }
    }
    counts
}
