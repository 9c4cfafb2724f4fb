//! Invariants of queues: accounts add up, limits hold, and no waiter waits that could be placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_types::Resource;

use crate::cluster::Cluster;
use crate::container::Container;
use crate::ledger::ContainerRole;
use crate::queue::QueueNumber;
use crate::sched::fit::{self, PlacementNeed};

/// Sums over the containers of one queue.
#[derive(Debug, Default, PartialEq)]
struct QueueUsageSum {
    containers: u32,
    used: Resource,
    masters: Resource,
    users: BTreeMap<Arc<str>, Resource>,
}

impl Cluster {
    pub(super) fn check_queues(&self) {
        self.check_accounts();
        self.check_members();
        self.check_waiting();
        self.check_limits();
        self.queue.check_seats(self.ledger());
    }

    fn check_accounts(&self) {
        let mut sums: BTreeMap<QueueNumber, QueueUsageSum> = self
            .queue
            .slots()
            .map(|(ix, _)| (ix, QueueUsageSum::default()))
            .collect();
        for c in self.allocations.values().filter(|c| c.state.is_alive()) {
            let app = self
                .apps
                .get(&c.id.app)
                .unwrap_or_else(|| panic!("{} has no application", c.id));
            let leaf = self
                .queue
                .leaf_of(&app.id)
                .unwrap_or_else(|| panic!("{} has containers and no leaf", app.id));
            for (ix, slot) in self.queue.path_of(leaf) {
                let sum = sums
                    .get_mut(&ix)
                    .unwrap_or_else(|| panic!("queue {} has no sum", slot.path));
                add(sum, c);
                if ix == leaf {
                    let user = sum.users.entry(app.spec.user.as_str().into()).or_default();
                    *user = user
                        .checked_add(&c.counted().0)
                        .expect("the sum of the containers is representable");
                }
            }
        }
        for (ix, slot) in self.queue.slots() {
            let account = self
                .ledger()
                .queue(ix)
                .unwrap_or_else(|| panic!("{} has no account", slot.path));
            let used = |user: &crate::ledger::UserAccount| user.used.clone();
            let users = account
                .users
                .iter()
                .map(|(user, account)| (user.clone(), used(account)));
            let users = users
                .filter(|(_, used)| *used != Resource::default())
                .collect();
            let (containers, masters) = (account.containers, account.masters.clone());
            let ledger_sum = QueueUsageSum {
                containers,
                used: account.used.clone(),
                masters,
                users,
            };
            assert_eq!(
                Some(ledger_sum),
                sums.remove(&ix),
                "{}: the ledger differs from the sum of its containers",
                slot.path
            );
        }
    }

    fn check_members(&self) {
        let mut live = 0;
        for app in self.apps.values() {
            let leaf = self.queue.leaf_of(&app.id);
            assert_eq!(
                leaf.is_none(),
                app.state.is_over(),
                "{}: a live application is in a leaf, and no other is",
                app.id
            );
            let path = leaf
                .and_then(|leaf| self.queue.slot(leaf))
                .map(|slot| &slot.path);
            assert!(
                path.is_none_or(|path| *path == app.queue),
                "{} has queue {} and is in {path:?}",
                app.id,
                app.queue
            );
            live += usize::from(leaf.is_some());
        }
        let listed: usize = self.queue.slots().map(|(_, slot)| slot.apps.len()).sum();
        assert_eq!(listed, live, "leaves list removed applications");
        for (_, slot) in self.queue.slots() {
            let running = slot
                .apps
                .iter()
                .filter(|app| self.queue.is_running(app))
                .count();
            assert_eq!(
                usize::try_from(slot.running).ok(),
                Some(running),
                "{}: the number of running applications is wrong",
                slot.path
            );
        }
    }

    fn check_waiting(&self) {
        let all = self.queue.all(self.ledger());
        assert_eq!(all.len(), self.queue.len(), "the count of waiters is wrong");
        for waiter in &all {
            let app = self
                .apps
                .get(&waiter.app)
                .expect("the application of a waiter exists");
            if let Some(request) = &waiter.request {
                assert!(
                    app.missing(request) > 0,
                    "{}/{request} is queued and needs no container",
                    waiter.app
                );
            }
            let need =
                PlacementNeed::of(app, waiter.request.as_ref()).expect("a waiter has a size");
            let free = self.may_be_served(app, waiter.request.as_ref(), need.size);
            assert!(
                !free || fit::choose(self.nodes.index(), need).is_none(),
                "{waiter:?} waits although a node has enough free resources and no limit applies"
            );
        }
        let missing = self
            .apps
            .values()
            .flat_map(|a| a.requests.keys().map(move |r| a.missing(r)))
            .filter(|n| *n > 0);
        let queued = all.iter().filter(|w| w.request.is_some()).count();
        assert_eq!(
            missing.count(),
            queued,
            "waiting requests that are not queued"
        );
    }

    /// A queue above a lowered maximum gets no containers.
    fn check_limits(&self) {
        for (ix, slot) in self.queue.slots() {
            let used = &self
                .ledger()
                .queue(ix)
                .expect("every queue has an account")
                .used;
            let over = slot.maximum.passed(used, &Resource::default()).is_some();
            for app in slot
                .apps
                .iter()
                .filter_map(|app| self.apps.get(app))
                .filter(|_| over)
            {
                let held = self
                    .queue
                    .limit(
                        app,
                        ContainerRole::Work,
                        &Resource::default(),
                        self.ledger(),
                    )
                    .is_some();
                assert!(
                    held,
                    "{} uses {used}, more than its maximum, and {} would get more",
                    slot.path, app.id
                );
            }
        }
    }
}

fn add(sum: &mut QueueUsageSum, c: &Container) {
    sum.containers += 1;
    let (size, _) = c.counted();
    sum.used = sum
        .used
        .checked_add(&size)
        .expect("the sum of the containers is representable");
    if c.role() == ContainerRole::Master {
        sum.masters = sum
            .masters
            .checked_add(&size)
            .expect("the sum of the containers is representable");
    }
}
