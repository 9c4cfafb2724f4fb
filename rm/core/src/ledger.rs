//! The ledger: the only place that adds and subtracts allocated resources.
//!
//! The allocations own the ledger. The ledger decides nothing; each container is taken once and
//! given back once.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_types::{AppId, Bytes, Cpus, ExtraResources, NodeId, RequestId, Resource};

use crate::queue::QueueNumber;
use crate::sched::node_ix::NodeNumber;
use crate::table::{RowPosition, SortedTable};

/// Account of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAccount {
    /// Offered resources.
    pub offers: Resource,
    /// Allocated resources.
    pub allocated: Resource,
    /// Memory that ended containers left charged on the node; no container can use it. Bytes.
    pub unattributed: Bytes,
    /// Memory of surplus containers, whose end is ordered and not yet reported. Bytes.
    pub surplus: Bytes,
    /// Heap budgets within the allocated memory. Bytes.
    pub heap: Bytes,
    /// True when more is allocated than the node can hold: it registered with too many containers,
    /// or memory was left charged. The node gets no containers until that is over.
    pub overdrawn: bool,
}

impl NodeAccount {
    /// Memory that is taken, and that no counted container owns. Bytes.
    fn uncounted(&self) -> Bytes {
        self.unattributed.saturating_add(self.surplus)
    }
    /// Capacity for all containers of the node.
    pub fn capacity(&self) -> Resource {
        Resource {
            memory: self.offers.memory.saturating_sub(self.uncounted()),
            ..self.offers.clone()
        }
    }
    /// Free resources.
    pub fn free(&self) -> Resource {
        let extra = self.offers.extra.iter().map(|(name, n)| {
            let used = self.allocated.extra.get(name).copied().unwrap_or(0);
            (name.clone(), n.saturating_sub(used))
        });
        // usually there are none, and the check is cheaper than an empty collection
        let extra = if self.offers.extra.has_none() {
            ExtraResources::default()
        } else {
            extra.collect()
        };
        Resource {
            memory: self
                .offers
                .memory
                .saturating_sub(self.uncounted())
                .saturating_sub(self.allocated.memory),
            cpus: Cpus::from_milli(
                self.offers
                    .cpus
                    .milli()
                    .saturating_sub(self.allocated.cpus.milli()),
            ),
            extra,
        }
    }
}

/// Account of one application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppAccount {
    /// Live containers.
    pub containers: u32,
    /// Allocated resources of all containers.
    pub used: Resource,
    /// Part of [`AppAccount::used`] that masters use.
    pub masters: Resource,
    /// Leaf and user that are charged.
    payer: Option<(QueueNumber, Arc<str>)>,
}

/// Account of one queue, with all queues below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAccount {
    /// Parent queue.
    parent: Option<QueueNumber>,
    /// Live containers.
    pub containers: u32,
    /// Allocated resources of all containers.
    pub used: Resource,
    /// Part of [`QueueAccount::used`] that masters use.
    pub masters: Resource,
    /// Accounts of users; only in leaves.
    pub users: BTreeMap<Arc<str>, UserAccount>,
}

/// Account of one user in one leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserAccount {
    /// Applications that have not ended.
    pub apps: u32,
    /// Allocated resources of all containers.
    pub used: Resource,
}

/// Role of a container in its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRole {
    /// Container of the master.
    Master,
    /// Container of a request.
    Work,
}

impl ContainerRole {
    /// Role of a container of this request; `None` for the master.
    pub fn of(request: Option<&RequestId>) -> Self {
        request.map_or(ContainerRole::Master, |_| ContainerRole::Work)
    }
}

/// All accounts.
#[derive(Clone, Debug, Default)]
pub struct ResourceLedger {
    nodes: SortedTable<NodeId, NodeAccount>,
    apps: SortedTable<AppId, AppAccount>,
    queues: Vec<QueueAccount>,
    total: Resource,
    /// Numbers of the applications whose accounts have changed since the last
    /// [`ResourceLedger::take_changed`].
    changed: Vec<u32>,
}

impl ResourceLedger {
    /// Opens a node's account, or changes its offered resources.
    pub fn offer(&mut self, node: &NodeId, offers: Resource) {
        let account = self.nodes.entry(node);
        subtract(&mut self.total, &account.offers);
        add(&mut self.total, &offers);
        account.offers = offers;
        update_overdrawn(account);
    }
    /// Sets the memory that ended containers left charged on a node.
    pub fn set_unattributed(&mut self, node: &NodeId, memory: Bytes) {
        let account = self.nodes.entry(node);
        account.unattributed = memory;
        update_overdrawn(account);
    }
    /// Sets the memory of surplus containers of a node.
    pub fn set_surplus(&mut self, node: &NodeId, memory: Bytes) {
        let account = self.nodes.entry(node);
        account.surplus = memory;
        update_overdrawn(account);
    }
    /// Sets the offered resources and all memory that no counted container owns to zero.
    pub fn close(&mut self, node: &NodeId) {
        self.set_unattributed(node, Bytes::ZERO);
        self.set_surplus(node, Bytes::ZERO);
        self.offer(node, Resource::default());
    }
    /// Opens an application's account in a leaf.
    pub fn open_app(&mut self, app: &AppId, leaf: QueueNumber, user: &str) {
        let user: Arc<str> = user.into();
        self.apps.entry(app).payer = Some((leaf, user.clone()));
        if let Some(account) = self.queues.get_mut(leaf.index()) {
            let user = account.users.entry(user).or_default();
            user.apps = user.apps.saturating_add(1);
        }
    }
    /// Closes the account of an application without containers.
    pub fn close_app(&mut self, app: &AppId) {
        let Some(AppAccount {
            payer: Some((leaf, user)),
            ..
        }) = self.apps.remove(app)
        else {
            return;
        };
        if let Some(account) = self.queues.get_mut(leaf.index()) {
            leave(account, &user);
        }
    }
    /// Moves the account of an application to another leaf.
    pub fn move_app(&mut self, app: &AppId, leaf: QueueNumber) {
        let Some(share) = self.apps.get(app).cloned() else {
            return;
        };
        let Some((from, user)) = share.payer.clone() else {
            return;
        };
        book(&mut self.queues, from, |account| {
            subtract(&mut account.used, &share.used);
            subtract(&mut account.masters, &share.masters);
            account.containers = account.containers.saturating_sub(share.containers);
        });
        // The planted fault: the user is still charged in the leaf that the application has left.
        if cfg!(not(feature = "planted")) {
            book_user(&mut self.queues, from, &user, |account| {
                subtract(&mut account.used, &share.used)
            });
        }
        if let Some(account) = self.queues.get_mut(from.index()) {
            leave(account, &user);
        }
        self.changed.push(app.seq());
        self.open_app(app, leaf, &user);
        enter_share(&mut self.queues, leaf, &user, &share);
    }
    /// Rebuilds all queue accounts for a new queue tree, from the parents and the leaf of every
    /// application.
    pub fn regroup(
        &mut self,
        parents: &[Option<QueueNumber>],
        leaf_of: impl Fn(&AppId) -> Option<QueueNumber>,
    ) {
        self.queues = parents
            .iter()
            .map(|parent| QueueAccount {
                parent: *parent,
                ..QueueAccount::default()
            })
            .collect();
        let apps: Vec<(AppId, AppAccount)> = self
            .apps
            .iter()
            .map(|(app, share)| (app.clone(), share.clone()))
            .collect();
        for (app, share) in apps {
            let (Some((_, user)), Some(leaf)) = (share.payer.clone(), leaf_of(&app)) else {
                continue;
            };
            self.open_app(&app, leaf, &user);
            enter_share(&mut self.queues, leaf, &user, &share);
        }
    }
    /// Account of a node.
    pub fn node(&self, node: &NodeId) -> Option<&NodeAccount> {
        self.nodes.get(node)
    }
    /// Account of a node, by number.
    #[inline]
    pub(crate) fn account(&self, node: NodeNumber) -> Option<&NodeAccount> {
        self.nodes.at(account_row(node))
    }
    /// Free resources of a node; zero without an account.
    pub(crate) fn free(&self, node: &NodeId) -> Resource {
        self.node(node).map(NodeAccount::free).unwrap_or_default()
    }
    /// Memory that ended containers left charged on a node; zero without an account. Bytes.
    pub(crate) fn unattributed(&self, node: &NodeId) -> Bytes {
        self.node(node)
            .map(|account| account.unattributed)
            .unwrap_or_default()
    }
    /// Account of an application.
    pub fn app(&self, app: &AppId) -> Option<&AppAccount> {
        self.apps.get(app)
    }
    /// Account of a queue.
    pub fn queue(&self, queue: QueueNumber) -> Option<&QueueAccount> {
        self.queues.get(queue.index())
    }
    /// Offered resources of all member nodes.
    pub fn total(&self) -> &Resource {
        &self.total
    }
    /// Accounts of all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &NodeAccount)> {
        self.nodes.iter()
    }
    /// Accounts of all applications.
    pub fn apps(&self) -> impl Iterator<Item = (&AppId, &AppAccount)> {
        self.apps.iter()
    }
    /// Numbers of the applications whose accounts have changed.
    pub(crate) fn changed(&self) -> &[u32] {
        &self.changed
    }
    /// Clears the list of applications whose accounts have changed.
    pub(crate) fn clear_changed(&mut self) {
        self.changed.clear();
    }

    /// Adds the size of a container. Returns false and changes nothing on overflow.
    #[must_use]
    pub fn take(
        &mut self,
        node: &NodeId,
        app: &AppId,
        part: ContainerRole,
        size: &Resource,
        heap: Bytes,
    ) -> bool {
        let row = self.nodes.row_or_default(node);
        self.take_at(NodeNumber::of(row.number()), app, part, size, heap)
    }
    /// Like [`ResourceLedger::take`], for a node with an account.
    #[must_use]
    pub(crate) fn take_at(
        &mut self,
        node: NodeNumber,
        app: &AppId,
        part: ContainerRole,
        size: &Resource,
        heap: Bytes,
    ) -> bool {
        let Some(account) = self.nodes.at_mut(account_row(node)) else {
            return false;
        };
        if !can_add(&account.allocated, size) {
            return false;
        }
        add(&mut account.allocated, size);
        account.heap = account.heap.saturating_add(heap);
        update_overdrawn(account);
        note_changed(&mut self.changed, app);
        let share = self.apps.entry(app);
        add(&mut share.used, size);
        share.containers = share.containers.saturating_add(1);
        if part == ContainerRole::Master {
            add(&mut share.masters, size);
        }
        let Some((leaf, user)) = &share.payer else {
            return true;
        };
        book(&mut self.queues, *leaf, |account| {
            add(&mut account.used, size);
            account.containers = account.containers.saturating_add(1);
            if part == ContainerRole::Master {
                add(&mut account.masters, size);
            }
        });
        book_user(&mut self.queues, *leaf, user, |account| {
            add(&mut account.used, size)
        });
        true
    }
    /// Subtracts the size of a container. Returns false and changes nothing when it was not
    /// allocated.
    #[must_use]
    pub fn give(
        &mut self,
        node: &NodeId,
        app: &AppId,
        part: ContainerRole,
        size: &Resource,
        heap: Bytes,
    ) -> bool {
        let Some(row) = self.nodes.row_of(node) else {
            return false;
        };
        self.give_at(NodeNumber::of(row.number()), app, part, size, heap)
    }
    /// Like [`ResourceLedger::give`], for the number of a node.
    #[must_use]
    pub(crate) fn give_at(
        &mut self,
        node: NodeNumber,
        app: &AppId,
        part: ContainerRole,
        size: &Resource,
        heap: Bytes,
    ) -> bool {
        let Some(account) = self.nodes.at_mut(account_row(node)) else {
            return false;
        };
        if !size.fits(&account.allocated) {
            return false;
        }
        subtract(&mut account.allocated, size);
        account.heap = account.heap.saturating_sub(heap);
        update_overdrawn(account);
        let Some(share) = self.apps.get_mut(app) else {
            return true;
        };
        note_changed(&mut self.changed, app);
        subtract(&mut share.used, size);
        share.containers = share.containers.saturating_sub(1);
        if part == ContainerRole::Master {
            subtract(&mut share.masters, size);
        }
        let Some((leaf, user)) = &share.payer else {
            return true;
        };
        book(&mut self.queues, *leaf, |account| {
            subtract(&mut account.used, size);
            account.containers = account.containers.saturating_sub(1);
            if part == ContainerRole::Master {
                subtract(&mut account.masters, size);
            }
        });
        book_user(&mut self.queues, *leaf, user, |account| {
            subtract(&mut account.used, size)
        });
        true
    }
}

fn note_changed(changed: &mut Vec<u32>, app: &AppId) {
    if changed.last() != Some(&app.seq()) {
        changed.push(app.seq());
    }
}

/// Row of a node's account: accounts are opened in the order of the numbers.
#[inline]
fn account_row(node: NodeNumber) -> RowPosition {
    RowPosition::new(node.number())
}

fn enter_share(
    queues: &mut [QueueAccount],
    leaf: QueueNumber,
    user: &Arc<str>,
    share: &AppAccount,
) {
    book(queues, leaf, |account| {
        add(&mut account.used, &share.used);
        add(&mut account.masters, &share.masters);
        account.containers = account.containers.saturating_add(share.containers);
    });
    book_user(queues, leaf, user, |account| {
        add(&mut account.used, &share.used)
    });
}

/// Applies `what` to a leaf's account and to the accounts of all its ancestors.
fn book(queues: &mut [QueueAccount], leaf: QueueNumber, what: impl Fn(&mut QueueAccount)) {
    let mut at = Some(leaf);
    while let Some(account) = at.and_then(|queue| queues.get_mut(queue.index())) {
        what(account);
        at = account.parent;
    }
}

fn book_user(
    queues: &mut [QueueAccount],
    leaf: QueueNumber,
    user: &Arc<str>,
    what: impl Fn(&mut UserAccount),
) {
    let account = queues.get_mut(leaf.index());
    if let Some(account) = account.and_then(|account| account.users.get_mut(user)) {
        what(account);
    }
}

fn leave(account: &mut QueueAccount, user: &Arc<str>) {
    if let Some(left) = account.users.get_mut(user) {
        left.apps = left.apps.saturating_sub(1);
        if left.apps == 0 {
            account.users.remove(user);
        }
    }
}

/// True when the sum does not overflow.
fn can_add(sum: &Resource, size: &Resource) -> bool {
    sum.memory.checked_add(size.memory).is_some()
        && sum.cpus.checked_add(size.cpus).is_some()
        && (size.extra.has_none() || extras_add(sum, size))
}

fn extras_add(sum: &Resource, size: &Resource) -> bool {
    size.extra.iter().all(|(name, n)| {
        sum.extra
            .get(name)
            .copied()
            .unwrap_or(0)
            .checked_add(*n)
            .is_some()
    })
}

/// Adds a size to a sum and saturates on overflow.
fn add(sum: &mut Resource, size: &Resource) {
    sum.memory = sum.memory.saturating_add(size.memory);
    sum.cpus = Cpus::from_milli(sum.cpus.milli().saturating_add(size.cpus.milli()));
    if size.extra.has_none() {
        return;
    }
    for (name, n) in &size.extra {
        let slot = sum.extra.entry(name.clone()).or_default();
        *slot = slot.saturating_add(*n);
    }
}

/// Adds a size several times to a sum that is only displayed.
pub(crate) fn add_times(sum: &mut Resource, size: &Resource, times: u32) {
    let cpus = u64::from(size.cpus.milli()).saturating_mul(u64::from(times));
    let extra = size
        .extra
        .iter()
        .map(|(name, n)| (name.clone(), n.saturating_mul(u64::from(times))))
        .collect();
    let cpus = Cpus::from_milli(u32::try_from(cpus).unwrap_or(u32::MAX));
    add(
        sum,
        &Resource {
            memory: size.memory.mul_ratio(u64::from(times), 1),
            cpus,
            extra,
        },
    );
}

fn subtract(sum: &mut Resource, size: &Resource) {
    sum.memory = sum.memory.saturating_sub(size.memory);
    sum.cpus = Cpus::from_milli(sum.cpus.milli().saturating_sub(size.cpus.milli()));
    if size.extra.has_none() {
        return;
    }
    for (name, n) in &size.extra {
        let rest = sum.extra.get(name).copied().unwrap_or(0).saturating_sub(*n);
        if rest == 0 {
            sum.extra.remove(name);
        } else {
            sum.extra.insert(name.clone(), rest);
        }
    }
}

fn update_overdrawn(account: &mut NodeAccount) {
    // Computed at every change without a copy of the resources.
    let capacity = account.offers.memory.saturating_sub(account.uncounted());
    account.overdrawn =
        account.allocated.memory > capacity || !account.allocated.fits(&account.offers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Taken and returned sizes cancel out in any order.
        #[test]
        fn taken_and_returned_sizes_cancel_out(sizes in proptest::collection::vec((1u64..1 << 30, 0u32..8000), 1..20), turn in any::<usize>()) {
            let (node, app): (NodeId, AppId) = ("n1".parse().expect("id"), "job.1".parse().expect("id"));
            let mut ledger = ResourceLedger::default();
            ledger.offer(&node, Resource::new(Bytes::from_gib(64), Cpus::from_cores(512)));
            let (root, leaf) = (QueueNumber::ROOT, QueueNumber::new(1));
            ledger.regroup(&[None, Some(root)], |_| None);
            ledger.open_app(&app, leaf, "u");
            let opened = ledger.app(&app).cloned().expect("opened");
            let before = ledger.node(&node).cloned();
            let sizes: Vec<Resource> = sizes.into_iter().map(|(m, c)| Resource::new(Bytes::new(m), Cpus::from_milli(c))).collect();
            for size in &sizes {
                prop_assert!(ledger.take(&node, &app, ContainerRole::Work, size, size.memory));
            }
            let by = turn % sizes.len();
            for size in sizes[by..].iter().chain(&sizes[..by]) {
                prop_assert!(ledger.give(&node, &app, ContainerRole::Work, size, size.memory));
            }
            prop_assert_eq!(ledger.node(&node).cloned(), before);
            prop_assert_eq!(ledger.app(&app), Some(&opened));
            prop_assert_eq!(ledger.queue(root).map(|q| &q.used), Some(&Resource::default()));
            prop_assert_eq!(ledger.queue(leaf).and_then(|q| q.users.get("u")).map(|u| &u.used), Some(&Resource::default()));
            ledger.close_app(&app);
            prop_assert_eq!(ledger.queue(leaf).map(|q| q.users.len()), Some(0));
        }
    }

    #[test]
    fn returning_more_than_was_taken_is_refused() {
        let mut ledger = ResourceLedger::default();
        let (node, app): (NodeId, AppId) =
            ("n1".parse().expect("id"), "job.1".parse().expect("id"));
        ledger.offer(
            &node,
            Resource::new(Bytes::from_gib(1), Cpus::from_cores(1)),
        );
        assert!(!ledger.give(
            &node,
            &app,
            ContainerRole::Work,
            &Resource::new(Bytes::from_mib(1), Cpus::ZERO),
            Bytes::ZERO
        ));
    }
}
