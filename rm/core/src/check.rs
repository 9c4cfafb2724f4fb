//! Invariants of a cluster. Every test checks them after every step.

mod queues;

use std::collections::BTreeMap;

use headroom_types::{Bytes, RequestId};

use crate::app::ClusterApplication;
use crate::cluster::Cluster;
use crate::container::{Container, ContainerState};
use crate::sched::claim::ClaimStage;
use crate::sched::locality::locations_of;
use crate::sched::reserve::most_reservations;
use crate::size;
use crate::timer::TimerKey;

impl Cluster {
    /// Checks all invariants. For tests and simulations.
    ///
    /// # Panics
    /// When the tables contradict each other; the message names the invariant.
    pub fn assert_invariants(&self) {
        self.apps.check();
        self.nodes.check(self.ledger(), &self.scheduler);
        self.allocations.check();
        self.check_containers();
        for app in self.apps.values() {
            self.check_app(app);
        }
        self.scheduler.reservations.check();
        self.scheduler.claims.check();
        self.check_queues();
        self.check_nodes();
        self.check_reservations();
        self.check_claims();
    }

    fn check_containers(&self) {
        for c in self.allocations.values() {
            let id = &c.id;
            let row = self.allocations.row_of(id).expect("a container has a row");
            let node = self
                .nodes
                .get(&c.node)
                .unwrap_or_else(|| panic!("{id} is on {}, which does not exist", c.node));
            assert!(
                node.containers.rows().contains(&row),
                "{id} is missing in the list of node {}",
                c.node
            );
            assert_eq!(
                self.nodes.at(c.node_number).map(|node| &node.id),
                Some(&c.node),
                "{id}: the number of its node is wrong"
            );
            let app = self
                .apps
                .get(&id.app)
                .unwrap_or_else(|| panic!("{id} has no application"));
            assert!(
                app.containers.rows().get(c.place as usize) == Some(&row),
                "{id} is missing in the list of application {}",
                id.app
            );
            let counted = c.request.as_ref().map(|r| app.tallies.row_of(r));
            assert_eq!(
                counted,
                c.counts.map(Some),
                "{id}: the row of the counts of its request is wrong"
            );
            assert_eq!(
                self.apps.row_of(&id.app),
                Some(c.home),
                "{id}: the row of its application is wrong"
            );
            if let size::ResizeState::Ordered { .. } = c.sizing
                && c.state.is_alive()
            {
                assert!(
                    self.timers.of(&TimerKey::Resize(id.clone())).is_some(),
                    "{id}: no timer for its unconfirmed size"
                );
            }
            if matches!(c.state, ContainerState::Exited { .. }) {
                assert!(
                    app.updates.has_exit(row),
                    "{id} has ended, is not acknowledged, and has no update for its master"
                );
            }
        }
        let listed: usize = self.nodes.values().map(|n| n.containers.len()).sum();
        assert_eq!(
            listed,
            self.allocations.values().count(),
            "nodes list containers that are not in the table"
        );
        let listed: usize = self.apps.values().map(|a| a.containers.len()).sum();
        assert_eq!(
            listed,
            self.allocations.values().count(),
            "applications list containers that are not in the table"
        );
    }

    fn check_app(&self, app: &ClusterApplication) {
        let id = &app.id;
        let counts = live_by_request(self.allocations.among(&app.containers));
        for (request, asked) in app.requests.iter() {
            assert_eq!(
                app.tallies.row_of(request),
                Some(asked.counts),
                "{id}/{request}: the row of its counts is wrong"
            );
        }
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
                locations_of(app, &self.allocations),
                "{id}: the nodes of its containers are wrong"
            );
        }
        let waits = app.run == crate::attempt::AttemptState::Scheduled;
        let queued = self.queue.contains(id, None);
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
        let kept: Vec<_> = self.scheduler.reservations.all().collect();
        for (ix, kept) in &kept {
            let (app, request) = (&kept.app, &kept.request);
            assert_eq!(
                self.nodes.index().id(*ix),
                Some(&kept.node),
                "{app}/{request}: the reserved node has another number"
            );
            assert!(
                self.nodes.index().room(*ix).is_some(),
                "{} is reserved for {app}/{request} and takes no work",
                kept.node
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
                .ledger()
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
            kept.len() <= most_reservations(&self.nodes),
            "{} nodes are reserved, and the limit is {}",
            kept.len(),
            most_reservations(&self.nodes)
        );
        let mut leaves: Vec<_> = self.kept_leaves().collect();
        let all = leaves.len();
        leaves.sort();
        leaves.dedup();
        assert_eq!(leaves.len(), all, "a leaf has two reservations");
    }

    fn check_nodes(&self) {
        for node in self.nodes.values() {
            let id = &node.id;
            let timer = self.timers.of(&TimerKey::Node(id.clone())).is_some();
            assert_eq!(
                timer,
                node.state.is_member(),
                "{id}: a member has a heartbeat timer, and no other node has"
            );
            let surplus = node
                .surplus
                .iter()
                .fold(Bytes::ZERO, |all, (c, (memory, _))| {
                    assert!(self.allocations.get(c).is_none(), "{c} is no surplus");
                    all.saturating_add(*memory)
                });
            let charged = self.ledger().node(id).map(|account| account.surplus);
            assert!(
                !node.state.is_member() || charged.unwrap_or_default() == surplus,
                "{id}: {charged:?} is charged for surplus containers of {surplus}"
            );
        }
        for (id, mark) in self.nodes.marks() {
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            let mut alive = self.allocations.alive_in(&node.containers);
            assert!(
                !mark.drained || alive.next().is_none(),
                "{id} is drained and has containers"
            );
            assert!(
                mark.drained || !node.containers.is_empty(),
                "{id} is empty and not marked as drained"
            );
        }
    }

    fn check_claims(&self) {
        for (number, claim) in self.scheduler.claims.numbered() {
            let timed = self.timers.of(&TimerKey::Claim(number)).is_some();
            assert_eq!(
                timed,
                claim.stage == ClaimStage::Warned,
                "the timer of a claim on {} contradicts its stage",
                claim.node
            );
            for victim in &claim.victims {
                let master = self
                    .allocations
                    .get(victim)
                    .is_some_and(|c| c.request.is_none());
                assert!(!master, "{victim} is a master and a victim");
            }
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
