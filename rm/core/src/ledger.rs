//! Who has how much: the only place that adds and subtracts resources.
//!
//! Owned by the cluster. Never decides anything; a container is taken once and given back once.

use std::collections::BTreeMap;

use headroom_types::{AppId, Bytes, Cpus, NodeId, Resource};

/// One node's account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What the node offers.
    pub offers: Resource,
    /// What is taken of it.
    pub allocated: Resource,
    /// Heap budgets in what is taken. Bytes.
    pub heap: Bytes,
    /// It came with more than it offers now: nothing more goes there until that is over.
    pub overdrawn: bool,
}

impl Account {
    /// What can still be taken.
    pub fn free(&self) -> Resource {
        let extra = self.offers.extra.iter().map(|(name, n)| {
            let used = self.allocated.extra.get(name).copied().unwrap_or(0);
            (name.clone(), n.saturating_sub(used))
        });
        Resource {
            memory: self.offers.memory.saturating_sub(self.allocated.memory),
            cpus: Cpus::from_milli(self.offers.cpus.milli().saturating_sub(self.allocated.cpus.milli())),
            extra: extra.collect(),
        }
    }
}

/// What one application has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Containers alive.
    pub containers: u32,
    /// Their memory. Bytes.
    pub memory: Bytes,
}

/// All accounts.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    nodes: BTreeMap<NodeId, Account>,
    apps: BTreeMap<AppId, Share>,
}

impl Ledger {
    /// Opens a node's account, or changes what it offers.
    pub fn offer(&mut self, node: &NodeId, offers: Resource) {
        let account = self.nodes.entry(node.clone()).or_default();
        account.offers = offers;
        settle(account);
    }
    /// Closes a node's account when it is empty; else it offers nothing.
    pub fn close(&mut self, node: &NodeId) {
        self.offer(node, Resource::default());
    }
    /// A container takes its size. Returns false, changing nothing, when the sum cannot be written.
    #[must_use]
    pub fn take(&mut self, node: &NodeId, app: &AppId, size: &Resource, heap: Bytes) -> bool {
        let account = self.nodes.entry(node.clone()).or_default();
        let Some(sum) = account.allocated.checked_add(size) else { return false };
        account.allocated = sum;
        account.heap = account.heap.saturating_add(heap);
        settle(account);
        let share = self.apps.entry(app.clone()).or_default();
        share.containers = share.containers.saturating_add(1);
        share.memory = share.memory.saturating_add(size.memory);
        true
    }
    /// A container gives its size back. Returns false, changing nothing, when it was not taken.
    #[must_use]
    pub fn give(&mut self, node: &NodeId, app: &AppId, size: &Resource, heap: Bytes) -> bool {
        let Some(account) = self.nodes.get_mut(node) else { return false };
        let Some(rest) = account.allocated.checked_sub(size) else { return false };
        account.allocated = rest;
        account.allocated.extra.retain(|_, n| *n > 0);
        account.heap = account.heap.saturating_sub(heap);
        settle(account);
        if let Some(share) = self.apps.get_mut(app) {
            share.containers = share.containers.saturating_sub(1);
            share.memory = share.memory.saturating_sub(size.memory);
            if share.containers == 0 {
                self.apps.remove(app);
            }
        }
        true
    }
    /// A node's account.
    pub fn node(&self, node: &NodeId) -> Option<&Account> {
        self.nodes.get(node)
    }
    /// What an application has.
    pub fn app(&self, app: &AppId) -> Share {
        self.apps.get(app).copied().unwrap_or_default()
    }
    /// All nodes' accounts.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &Account)> {
        self.nodes.iter()
    }
    /// All applications that have something.
    pub fn apps(&self) -> impl Iterator<Item = (&AppId, &Share)> {
        self.apps.iter()
    }
}

fn settle(account: &mut Account) {
    account.overdrawn = !account.allocated.fits(&account.offers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What was taken and given back leaves no trace, in whatever order.
        #[test]
        fn takes_and_gives_cancel_out(sizes in proptest::collection::vec((1u64..1 << 30, 0u32..8000), 1..20), turn in any::<usize>()) {
            let (node, app): (NodeId, AppId) = ("n1".parse().expect("id"), "job.1".parse().expect("id"));
            let mut ledger = Ledger::default();
            ledger.offer(&node, Resource::new(Bytes::from_gib(64), Cpus::from_cores(512)));
            let before = ledger.node(&node).cloned();
            let sizes: Vec<Resource> = sizes.into_iter().map(|(m, c)| Resource::new(Bytes::new(m), Cpus::from_milli(c))).collect();
            for size in &sizes {
                prop_assert!(ledger.take(&node, &app, size, size.memory));
            }
            let by = turn % sizes.len();
            for size in sizes[by..].iter().chain(&sizes[..by]) {
                prop_assert!(ledger.give(&node, &app, size, size.memory));
            }
            prop_assert_eq!(ledger.node(&node).cloned(), before);
            prop_assert_eq!(ledger.app(&app), Share::default());
        }
    }

    #[test]
    fn giving_back_what_was_not_taken_is_refused() {
        let mut ledger = Ledger::default();
        let (node, app): (NodeId, AppId) = ("n1".parse().expect("id"), "job.1".parse().expect("id"));
        ledger.offer(&node, Resource::new(Bytes::from_gib(1), Cpus::from_cores(1)));
        assert!(!ledger.give(&node, &app, &Resource::new(Bytes::from_mib(1), Cpus::ZERO), Bytes::ZERO));
    }
}
