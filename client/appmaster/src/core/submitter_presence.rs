//! The connections of the clients of a live job. Not durable: after a restart of the master all
//! clients connect again, and have a lease of time for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::Tick;
use headroom_wire::v1::job_history::JobHistory;

use crate::event::SubmitterConnection;
use crate::taskset::TaskPosition;

/// Connected clients, and the times since when others are away.
#[derive(Clone, Debug, Default)]
pub(super) struct SubmitterPresence {
    connections: BTreeMap<SubmitterConnection, String>,
    /// For each known client without a connection, the time since when it has none.
    away_since: BTreeMap<String, Tick>,
    /// Time since when no client is connected; `None` while one is, and before the master has
    /// registered.
    alone_since: Option<Tick>,
    /// Tasks whose state has changed since the clients were last informed.
    changed: BTreeSet<TaskPosition>,
    /// The usage history of earlier jobs, for stages that are declared later.
    pub(super) history: Option<Box<JobHistory>>,
}

impl SubmitterPresence {
    /// Begins the lease of a master that has just registered; these clients are known and away.
    pub(super) fn begin<'c>(&mut self, now: Tick, clients: impl Iterator<Item = &'c String>) {
        self.alone_since = self.connections.is_empty().then_some(now);
        self.away_since = clients.map(|client| (client.clone(), now)).collect();
    }
    /// Adds a connection.
    pub(super) fn connect(&mut self, connection: SubmitterConnection, client: &str) {
        self.away_since.remove(client);
        self.alone_since = None;
        self.connections.insert(connection, client.to_owned());
    }
    /// Removes a connection.
    pub(super) fn disconnect(&mut self, connection: SubmitterConnection, now: Tick) {
        let Some(client) = self.connections.remove(&connection) else {
            return;
        };
        if !self.connections.values().any(|other| *other == client) {
            self.away_since.insert(client, now);
        }
        if self.connections.is_empty() {
            self.alone_since = Some(now);
        }
    }
    /// Removes the connection of a client that needs no more results. False if the client has
    /// another connection.
    pub(super) fn leave(&mut self, connection: SubmitterConnection, now: Tick) -> bool {
        let Some(client) = self.connections.get(&connection).cloned() else {
            return false;
        };
        self.disconnect(connection, now);
        self.away_since.remove(&client).is_some()
    }
    /// The client of a connection; `None` if it was not welcomed.
    pub(super) fn client(&self, connection: SubmitterConnection) -> Option<&String> {
        self.connections.get(&connection)
    }
    /// Forgets a client.
    pub(super) fn forget(&mut self, client: &str) {
        self.away_since.remove(client);
    }
    /// The clients that were away for this time.
    pub(super) fn away_for(&self, now: Tick, lease: Duration) -> Vec<String> {
        let over = self
            .away_since
            .iter()
            .filter(|(_, since)| since.plus(lease) <= now);
        over.map(|(client, _)| client.clone()).collect()
    }
    /// True when no client was connected for this time.
    pub(super) fn alone_for(&self, now: Tick, lease: Duration) -> bool {
        self.alone_since
            .is_some_and(|since| since.plus(lease) <= now)
    }
    /// Time at which the next lease of a client, or that of the job, passes.
    pub(super) fn next_deadline(&self, lease: Duration, job: bool) -> Option<Tick> {
        let alone = self.alone_since.filter(|_| job);
        let since = self.away_since.values().copied().chain(alone).min();
        since.map(|since| since.plus(lease))
    }
    /// Notes the new state of a task that has not ended.
    pub(super) fn note_change(&mut self, key: TaskPosition) {
        self.changed.insert(key);
    }
    /// Removes a task that has ended: clients are informed by its result.
    pub(super) fn note_end(&mut self, key: TaskPosition) {
        self.changed.remove(&key);
    }
    /// Removes and returns the next task whose state has changed.
    pub(super) fn take_change(&mut self) -> Option<TaskPosition> {
        self.changed.pop_first()
    }
    /// True when the state of a task has changed.
    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }
}
