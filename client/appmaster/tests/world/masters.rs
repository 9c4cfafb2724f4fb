//! Successive masters in the simulated cluster: with the journal of the previous one, or without.

use super::*;

impl SimulatedCluster {
    /// Announces to the master that the first node drains, within this time.
    pub(super) fn first_node_drains(&mut self, within_ms: Option<u64>) {
        let now = self.now().unix.0;
        self.update(ApplicationUpdateKind::NodeDraining {
            node: "n0".parse().expect("node"),
            until: within_ms.map(|ms| UnixMillis(now + ms)),
        });
    }

    /// A master that has read the journal.
    pub fn successor(&self) -> MasterCore {
        MasterCore::replay(self.job.clone(), setup(self.attempt), &self.records)
    }

    /// A later attempt that has read the first records of the journal and has registered. The
    /// resource manager lists no container.
    pub fn registered_successor(&self, attempt: u32, records: usize) -> MasterCore {
        let journal = &self.records[..records];
        let mut core = MasterCore::replay(self.job.clone(), setup(attempt), journal);
        let registered = MasterEvent::Registered {
            epoch: Epoch(9),
            largest: Resource::new(Bytes::from_gib(2), Cpus::from_cores(64)),
            containers: Vec::new(),
            cursor: 0,
        };
        core.step(self.now(), registered, &mut Vec::new());
        core.assert_invariants();
        core
    }

    pub(super) fn master_dies(&mut self) {
        self.die_after = None;
        self.master_up = false;
        self.clients_lose_master();
        self.attempt += 1;
        self.core = MasterCore::replay(self.job.clone(), setup(self.attempt), &self.records);
        self.core.assert_invariants();
        if let Some(outcome) = self.core.outcome() {
            self.outcome = Some(outcome.clone());
            return;
        }
        self.things.retain(|_, thing| {
            !matches!(
                thing,
                SimulatedEvent::Commit(..)
                    | SimulatedEvent::Deliver(_)
                    | SimulatedEvent::Granted(_)
                    | SimulatedEvent::Hello(_)
                    | SimulatedEvent::Exited(_)
                    | SimulatedEvent::Resized(..)
            )
        });
        self.later(200, SimulatedEvent::Registered(Epoch(self.epoch)));
        let boxes: Vec<ContainerId> = self.boxes.keys().cloned().collect();
        for (n, container) in boxes.into_iter().enumerate() {
            self.boxes.get_mut(&container).expect("there").connected = false;
            self.later(
                250 + 10 * u64::try_from(n).expect("few"),
                SimulatedEvent::Hello(container),
            );
        }
    }

    /// The new master finds the journal of an earlier one on that host, if any, and executors that
    /// know another secret.
    pub(super) fn master_moves(&mut self, to: usize) {
        let left = std::mem::replace(&mut self.host, to);
        let found = self.journals.remove(&to).unwrap_or_default();
        self.journals
            .insert(left, std::mem::replace(&mut self.records, found));
        self.master_dies();
        if self.records.is_empty() {
            self.core = MasterCore::new(self.job.clone(), setup(self.attempt));
        }
        // The next run reports itself how many ends it knows.
        self.granted.clear();
        let alive = self.boxes.values().map(|b| &b.granted.request);
        for request in alive.chain(self.exits.values().map(|(request, _, _)| request)) {
            *self.granted.entry(request.clone()).or_default() += 1;
        }
        self.unreported.extend(self.launches.keys().cloned());
    }
}
