//! A consistency check without faults: the resource manager, the nodes and the tenants must agree.
//!
//! Messages are in flight at any time. Therefore a difference counts only if it persists until a
//! second check.

use std::collections::BTreeSet;

use headroom_node_core::container::LifecyclePhase as Held;
use headroom_rm_core::container::ContainerState;
use headroom_rm_core::{Cluster, size};

use super::{Simulation, SimulationEvent as Any};

/// Time of the first check after the last fault. Milliseconds.
const FIRST: u64 = 100_000;
/// Time between the two checks of a pair. Milliseconds.
const LATER: u64 = 8_000;
/// Time between two pairs. Milliseconds.
const EVERY: u64 = 60_000;

#[derive(Debug)]
pub(super) enum ConsistencyCheck {
    Look,
    LookAgain(BTreeSet<String>),
}

impl Simulation {
    pub(super) fn views_plan(&mut self) {
        let at = self.scenario.calm_ms + FIRST;
        self.at(at, Any::Views(ConsistencyCheck::Look));
    }

    pub(super) fn views_thing(&mut self, thing: ConsistencyCheck) {
        let now = self.differences();
        match thing {
            ConsistencyCheck::Look => {
                self.look_at_shares();
                self.later(LATER, Any::Views(ConsistencyCheck::LookAgain(now)));
            }
            ConsistencyCheck::LookAgain(before) => {
                if let Some(still) = before.intersection(&now).next() {
                    return self
                        .oracle
                        .fail(format!("the cluster is idle, but still {still}"));
                }
                self.later(EVERY, Any::Views(ConsistencyCheck::Look));
            }
        }
    }

    /// Checks for queues below their guarantees. The interval exceeds one minute, enough to preempt
    /// what others hold beyond theirs.
    fn look_at_shares(&mut self) {
        let now = self
            .leading_cluster()
            .map(|cluster| self.starving(cluster))
            .unwrap_or_default();
        if let Some(still) = self.starving.intersection(&now).next() {
            self.oracle
                .fail(format!("the cluster is idle, but still {still}"));
        }
        self.starving = now;
    }

    fn differences(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let Some(cluster) = self.leading_cluster() else {
            found.insert("there is no resource manager".to_owned());
            return found;
        };
        self.manager_and_nodes(cluster, &mut found);
        self.manager_and_tenants(cluster, &mut found);
        found
    }

    fn manager_and_nodes(&self, cluster: &Cluster, found: &mut BTreeSet<String>) {
        for c in cluster.containers() {
            let held = self.hosts.get(&c.node).and_then(|h| h.agent.get(&c.id));
            let there = held.map_or("absent", |h| h.state.name());
            let same = match &c.state {
                ContainerState::Allocated => false,
                ContainerState::Launching => matches!(there, "preparing" | "starting"),
                ContainerState::Running => there == "running",
                ContainerState::Stopping { .. } => there == "stopping",
                ContainerState::Exited { .. } | ContainerState::Done { .. } => there == "exited",
            };
            if !same {
                found.insert(format!(
                    "{} is {} for the resource manager and {there} on {}",
                    c.id,
                    c.state.as_str(),
                    c.node
                ));
            }
            if c.sizing != size::ResizeState::Stable && c.state.is_alive() {
                found.insert(format!("{} waits for a size: {:?}", c.id, c.sizing));
            }
            let running =
                held.filter(|h| h.state == Held::Running && c.state == ContainerState::Running);
            if let Some(h) =
                running.filter(|h| (&h.order.resource, h.order.version) != (&c.resource, c.version))
            {
                let (expected, is) = (
                    format!("{} v{}", c.resource, c.version),
                    format!("{} v{}", h.order.resource, h.order.version),
                );
                found.insert(format!(
                    "{} has {expected} for the resource manager and {is} on {}",
                    c.id, c.node
                ));
            }
        }
        for (node, host) in &self.hosts {
            for (id, c) in host
                .agent
                .containers()
                .filter(|(id, _)| cluster.container(id).is_none())
            {
                found.insert(format!(
                    "{node} has {id}, {}, but the resource manager does not",
                    c.state.name()
                ));
            }
            for (id, cell) in host
                .cells
                .iter()
                .filter(|(id, c)| c.alive && host.agent.get(id).is_none())
            {
                found.insert(format!(
                    "{id} runs on {node} ({}), but its agent does not know it",
                    cell.order.resource
                ));
            }
        }
    }

    fn manager_and_tenants(&self, cluster: &Cluster, found: &mut BTreeSet<String>) {
        for t in self.tenants.iter().filter(|t| t.listens()) {
            let name = &t.plan.name;
            let Some(app) = &t.app else { continue };
            let theirs = cluster
                .containers()
                .filter(|c| c.id.app == *app && c.state.is_alive());
            for c in theirs {
                match t.live.get(&c.id) {
                    None => {
                        found.insert(format!("{} runs, but {name} does not know it", c.id));
                    }
                    Some(l)
                        if l.resource != c.resource
                            || l.version.is_some_and(|v| v != c.version)
                            || l.node != c.node =>
                    {
                        found.insert(format!(
                            "{} is {l:?} for {name} and {} v{} on {}",
                            c.id, c.resource, c.version, c.node
                        ));
                    }
                    Some(_) => {}
                }
            }
            for (id, lease) in &t.live {
                if cluster.container(id).is_none_or(|c| !c.state.is_alive()) {
                    found.insert(format!("{name} treats {id} ({}) as running", lease.request));
                }
            }
        }
    }
}
