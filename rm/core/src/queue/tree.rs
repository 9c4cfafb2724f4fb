//! Queue tree in effect: queues with resolved limits, applications in their leaves, and the
//! scheduling order.
//!
//! The cluster owns the tree. The tree does not count used resources; the caller passes the ledger
//! for that.

mod service;

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Bytes, Cpus, QueuePath, RequestId, Resource};

use super::bound::ResourceBound;
use super::queue_ix::QueueNumber;
use super::sibling_order::{SiblingOrder, SiblingRank, SizeClass};
use super::spec::QueueDefinition;
use super::waiter::PlacementWaiter;
use super::waits::{LineSharing, RequestLineHead, WaitingRequests};
use crate::app::ClusterApplication;
use crate::event::QueuesFrom;
use crate::ledger::ResourceLedger;
use crate::queue::QueueTree;
use crate::table::{HashedTable, RowPosition};

/// One queue.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// Path.
    pub path: QueuePath,
    /// Definition of the operator, without child queues.
    pub spec: QueueDefinition,
    /// Parent queue.
    pub parent: Option<QueueNumber>,
    /// Child queues by name. Empty in a leaf.
    pub children: Vec<QueueNumber>,
    /// Guarantee as quantities.
    pub guaranteed: ResourceBound,
    /// Maximum as quantities.
    pub maximum: ResourceBound,
    /// Maximum, with an amount for each resource.
    pub most: Resource,
    /// Limit of one user; only in a leaf.
    pub user: ResourceBound,
    /// Limit of all masters; only in a leaf.
    pub masters: ResourceBound,
    /// Applications in it that have not ended.
    pub apps: BTreeSet<AppId>,
    /// Number of its running applications.
    pub running: u32,
    /// Waiting requests and masters of the queue and its descendants.
    pub waiting: usize,
    /// Waiting child queues or applications that may be granted containers.
    sibling_order: SiblingOrder,
    seat: Option<(SizeClass, SiblingRank)>,
    /// Memory and processors of the latest computed rank, with that rank; `None` when other
    /// resources are used.
    ranked: Option<((Bytes, Cpus), SiblingRank)>,
    failed: u64,
}

/// Application that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct ActiveApplication {
    id: AppId,
    leaf: QueueNumber,
    priority: i32,
    running: bool,
    waits: WaitingRequests,
    seat: Option<(SizeClass, SiblingRank)>,
    failed: u64,
    /// True when it is in the list of moved applications.
    moved: bool,
}

/// All queues and their waiting applications.
#[derive(Clone, Debug)]
pub struct SchedulerQueues {
    generation: u64,
    tree: QueueTree,
    slots: Vec<QueueEntry>,
    by_path: BTreeMap<QueuePath, QueueNumber>,
    /// Applications by number.
    members: HashedTable<u32, ActiveApplication>,
    /// Resources against which all limits were resolved.
    total: Resource,
    /// Number of the round; a new round begins when something that failed may succeed.
    round: u64,
    /// True when a waiter has not been tried in this round.
    fresh: bool,
    /// True when the next pass must begin a new round.
    room_changed: bool,
    /// Source of the tree.
    source: QueuesFrom,
    /// Number of requests that have arrived.
    arrivals: u64,
    /// Applications whose waiting requests have changed since the last update of the order.
    moved: Vec<u32>,
    /// Leaves with such an application or with changed resources. Empty between updates of the
    /// order; kept for its allocation.
    leaves: Vec<QueueNumber>,
}

/// Next object of a pass, in scheduling order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassTarget {
    /// A queue.
    Queue(QueueNumber),
    /// An application, by number.
    App(u32),
}

/// Object that failed in this round and is not tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailedCandidate {
    /// All waiters below a queue.
    Queue(QueueNumber),
    /// All waiters of an application.
    App(u32),
    /// One line of an application.
    Line(u32, RequestLineHead),
}

/// Waiter that a visit of all waiters continues with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextVisit {
    /// The next waiter.
    NextWaiter,
    /// The first waiter of the next leaf.
    NextLeaf,
    /// None; the visit ends.
    Nothing,
}

impl SchedulerQueues {
    /// Creates the queues of `tree`, without applications.
    pub fn new(tree: QueueTree, generation: u64, source: QueuesFrom) -> SchedulerQueues {
        let mut queues = SchedulerQueues {
            generation,
            tree: QueueTree::default(),
            slots: Vec::new(),
            by_path: BTreeMap::new(),
            members: HashedTable::default(),
            total: Resource::default(),
            round: 1,
            fresh: false,
            room_changed: false,
            source,
            arrivals: 0,
            moved: Vec::new(),
            leaves: Vec::new(),
        };
        queues.plant(QueuePath::root(), tree.root(), None);
        queues.tree = tree;
        queues.resolve();
        queues
    }

    fn plant(
        &mut self,
        path: QueuePath,
        spec: &QueueDefinition,
        parent: Option<QueueNumber>,
    ) -> QueueNumber {
        let ix = QueueNumber::new(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        self.slots.push(QueueEntry {
            path: path.clone(),
            spec: QueueDefinition {
                children: BTreeMap::new(),
                ..spec.clone()
            },
            parent,
            children: Vec::new(),
            guaranteed: ResourceBound::default(),
            maximum: ResourceBound::default(),
            most: Resource::default(),
            user: ResourceBound::default(),
            masters: ResourceBound::default(),
            apps: BTreeSet::new(),
            running: 0,
            waiting: 0,
            sibling_order: SiblingOrder::default(),
            seat: None,
            ranked: None,
            failed: 0,
        });
        let children: Vec<QueueNumber> = spec
            .children
            .iter()
            .map(|(name, child)| self.plant(path.child(name), child, Some(ix)))
            .collect();
        if let Some(slot) = self.slots.get_mut(ix.index()) {
            slot.children = children;
        }
        self.by_path.insert(path, ix);
        ix
    }

    /// Replaces the queue tree. Applications of removed leaves move to the fallback leaf.
    pub fn replant(&mut self, tree: QueueTree, source: QueuesFrom, ledger: &mut ResourceLedger) {
        let mut next = SchedulerQueues::new(tree, self.generation + 1, source);
        let members = std::mem::take(&mut self.members);
        let fallback = next.fallback();
        for (number, mut member) in members.into_rows() {
            let path = self.slots.get(member.leaf.index()).map(|slot| &slot.path);
            member.leaf = path.and_then(|path| next.leaf(path)).unwrap_or(fallback);
            (member.seat, member.moved) = (None, false);
            next.seat_member(number, member);
        }
        next.round = self.round + 1;
        (next.fresh, next.room_changed) = (true, true);
        next.arrivals = self.arrivals;
        ledger.regroup(&next.parents(), |app| {
            next.members.get(&app.seq()).map(|member| member.leaf)
        });
        *self = next;
        self.total = ledger.total().clone();
        self.resolve();
        self.rerank_all(ledger);
    }

    fn seat_member(&mut self, number: u32, member: ActiveApplication) {
        let (leaf, waiting, running) = (member.leaf, member.waits.len(), u32::from(member.running));
        if let Some(slot) = self.slots.get_mut(leaf.index()) {
            slot.apps.insert(member.id.clone());
            slot.running += running;
        }
        self.members.insert(number, member);
        self.wait_more(leaf, waiting);
    }

    /// Parents of all queues, by number.
    pub fn parents(&self) -> Vec<Option<QueueNumber>> {
        self.slots.iter().map(|slot| slot.parent).collect()
    }
    /// Queue tree as the operator defined it.
    pub fn tree(&self) -> &QueueTree {
        &self.tree
    }
    /// Number of changes at run time.
    pub fn generation(&self) -> u64 {
        self.generation
    }
    /// Source of the tree.
    pub(crate) fn source(&self) -> QueuesFrom {
        self.source
    }
    /// Number of the next request in the order of arrival.
    pub(crate) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals - 1
    }
    /// All queues, each before its children.
    pub fn slots(&self) -> impl Iterator<Item = (QueueNumber, &QueueEntry)> {
        (0u32..).map(QueueNumber::new).zip(&self.slots)
    }
    /// Looks up a queue.
    pub fn slot(&self, queue: QueueNumber) -> Option<&QueueEntry> {
        self.slots.get(queue.index())
    }
    /// Finds a queue by path.
    pub fn find(&self, path: &QueuePath) -> Option<QueueNumber> {
        self.by_path.get(path).copied()
    }
    /// Finds a leaf by path.
    pub fn leaf(&self, path: &QueuePath) -> Option<QueueNumber> {
        self.find(path)
            .filter(|ix| self.slot(*ix).is_some_and(|slot| slot.children.is_empty()))
    }
    /// First leaf in or below a queue.
    pub fn first_leaf(&self, queue: QueueNumber) -> QueueNumber {
        let mut at = queue;
        while let Some(child) = self.slot(at).and_then(|slot| slot.children.first()) {
            at = *child;
        }
        at
    }
    /// Leaf for applications whose queue was removed: the default leaf, or else the first one.
    pub fn fallback(&self) -> QueueNumber {
        self.leaf(&QueuePath::default_leaf())
            .unwrap_or_else(|| self.first_leaf(QueueNumber::ROOT))
    }
    /// The queue and its ancestors, innermost first.
    pub fn path_of(&self, queue: QueueNumber) -> impl Iterator<Item = (QueueNumber, &QueueEntry)> {
        let mut at = Some(queue);
        std::iter::from_fn(move || {
            let ix = at?;
            let slot = self.slots.get(ix.index())?;
            at = slot.parent;
            Some((ix, slot))
        })
    }
    /// Leaf of an application that has not ended.
    pub fn leaf_of(&self, app: &AppId) -> Option<QueueNumber> {
        self.members.get(&app.seq()).map(|member| member.leaf)
    }
    /// Leaf of an application that has not ended, and whether it counts against `max_running`.
    pub(crate) fn leaf_and_run_of(&self, app: &AppId) -> Option<(QueueNumber, bool)> {
        let member = self.members.get(&app.seq())?;
        Some((member.leaf, member.running))
    }
    /// True when the application counts against `max_running`.
    pub fn is_running(&self, app: &AppId) -> bool {
        self.members
            .get(&app.seq())
            .is_some_and(|member| member.running)
    }

    /// Adds an application to a leaf.
    pub fn open(&mut self, app: &AppId, leaf: QueueNumber, priority: i32) {
        let waits = WaitingRequests::default();
        let member = ActiveApplication {
            id: app.clone(),
            leaf,
            priority,
            running: false,
            waits,
            seat: None,
            failed: 0,
            moved: false,
        };
        self.seat_member(app.seq(), member);
    }
    /// Removes an ended application.
    pub fn close(&mut self, app: &AppId, ledger: &ResourceLedger) {
        let Some(member) = self.members.get(&app.seq()) else {
            return;
        };
        let (leaf, waiting) = (member.leaf, member.waits.len());
        self.unseat(app.seq());
        self.wait_less(leaf, waiting);
        self.reseat_path(leaf, ledger);
        let Some(member) = self.members.remove(&app.seq()) else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(leaf.index()) {
            slot.apps.remove(app);
            slot.running = slot.running.saturating_sub(u32::from(member.running));
        }
        if member.running {
            self.start_round(); // another application may run in its place
        }
    }
    /// Moves an application to another leaf, or changes its priority.
    pub fn change(
        &mut self,
        app: &AppId,
        leaf: QueueNumber,
        priority: i32,
        ledger: &ResourceLedger,
    ) {
        let Some(mut member) = self.members.get(&app.seq()).cloned() else {
            return;
        };
        self.close(app, ledger);
        (member.leaf, member.priority, member.seat, member.failed) = (leaf, priority, None, 0);
        member.moved = false;
        self.seat_member(app.seq(), member);
        self.reseat_app(app.seq(), ledger);
        self.round += 1;
    }
    /// Counts an application against `max_running`.
    pub fn run(&mut self, app: &AppId) {
        let Some(member) = self
            .members
            .get_mut(&app.seq())
            .filter(|member| !member.running)
        else {
            return;
        };
        member.running = true;
        if let Some(slot) = self.slots.get_mut(member.leaf.index()) {
            slot.running += 1;
        }
    }
    /// True when the leaf has reached `max_running`.
    pub fn is_full(&self, leaf: QueueNumber) -> bool {
        self.slot(leaf).is_some_and(|slot| {
            slot.spec
                .max_running
                .is_some_and(|most| slot.running >= most)
        })
    }

    /// Adds the waiting master of an application.
    pub fn put_master(&mut self, app: &AppId, size: &Resource) {
        self.put(app, |waits| waits.put_master(size));
    }
    /// Adds a waiting request; the next pass tries it even when no resources became free.
    pub fn put_request(
        &mut self,
        app: &AppId,
        request: (RowPosition, &RequestId),
        size: &Resource,
        at: (i32, u64),
        whereto: LineSharing,
    ) {
        let (priority, arrival) = at;
        self.put(app, |waits| {
            waits.put(request, size, priority, arrival, whereto)
        });
    }
    fn put(&mut self, app: &AppId, what: impl FnOnce(&mut WaitingRequests)) {
        let Some(member) = self.members.get_mut(&app.seq()) else {
            return;
        };
        let before = member.waits.len();
        what(&mut member.waits);
        member.failed = 0;
        let (leaf, more) = (member.leaf, member.waits.len().saturating_sub(before));
        if !std::mem::replace(&mut member.moved, true) {
            self.moved.push(app.seq());
        }
        let mut at = Some(leaf);
        while let Some(slot) = at.and_then(|ix| self.slots.get_mut(ix.index())) {
            slot.failed = 0;
            slot.waiting = slot.waiting.saturating_add(more);
            at = slot.parent;
        }
        self.fresh = true;
    }
    /// Removes a waiting request by its row, or the waiting master when `request` is `None`.
    pub fn remove(&mut self, app: &AppId, request: Option<RowPosition>) {
        let Some(member) = self.members.get_mut(&app.seq()) else {
            return;
        };
        let before = member.waits.len();
        member.waits.remove(request);
        let (leaf, less) = (member.leaf, before - member.waits.len());
        if less > 0 {
            if !std::mem::replace(&mut member.moved, true) {
                self.moved.push(app.seq());
            }
            self.wait_less(leaf, less);
        }
    }
    /// True when the request of a row waits, or the master when `request` is `None`.
    pub fn contains(&self, app: &AppId, request: Option<RowPosition>) -> bool {
        self.members
            .get(&app.seq())
            .is_some_and(|member| member.waits.contains(request))
    }
    /// Like [`SchedulerQueues::contains`], for the id of a request.
    pub(crate) fn contains_request(
        &self,
        app: &ClusterApplication,
        request: Option<&RequestId>,
    ) -> bool {
        match request {
            None => self.contains(&app.id, None),
            Some(request) => app
                .requests
                .row_of(request)
                .is_some_and(|row| self.contains(&app.id, Some(row))),
        }
    }
    /// Waiting requests of an application in scheduling order.
    pub(crate) fn requests_of(&self, app: &AppId) -> Vec<&RequestId> {
        self.members
            .get(&app.seq())
            .map(|member| member.waits.all())
            .into_iter()
            .flatten()
            .flatten()
            .collect()
    }
    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.slots.first().map_or(0, |root| root.waiting)
    }
    /// True when there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All waiters in scheduling order, as long as no grant changes it.
    pub fn all(&self, ledger: &ResourceLedger) -> Vec<PlacementWaiter> {
        let mut all = Vec::new();
        self.visit_waiting(&BTreeSet::new(), ledger, &mut |app, request| {
            all.push(PlacementWaiter::new(app, request));
            NextVisit::NextWaiter
        });
        all
    }
    /// Calls `visit` for every waiter in scheduling order, as long as no grant changes it, without
    /// the waiters of some leaves.
    pub(crate) fn visit_waiting(
        &self,
        but: &BTreeSet<QueueNumber>,
        ledger: &ResourceLedger,
        visit: &mut impl FnMut(&AppId, Option<&RequestId>) -> NextVisit,
    ) {
        self.visit_queue(QueueNumber::ROOT, but, ledger, visit);
    }
    /// Visits the waiters below a queue. Returns false when the visit has ended.
    fn visit_queue(
        &self,
        queue: QueueNumber,
        but: &BTreeSet<QueueNumber>,
        ledger: &ResourceLedger,
        visit: &mut impl FnMut(&AppId, Option<&RequestId>) -> NextVisit,
    ) -> bool {
        let Some(slot) = self
            .slot(queue)
            .filter(|slot| slot.waiting > 0 && !but.contains(&queue))
        else {
            return true;
        };
        let mut children: Vec<SiblingRank> = slot
            .children
            .iter()
            .filter_map(|ix| Some((ix, self.slot(*ix)?)))
            .filter(|(_, child)| child.waiting > 0)
            .map(|(ix, child)| self.rank(*ix, child, ledger))
            .collect();
        children.sort_unstable();
        if !children
            .into_iter()
            .all(|child| self.visit_queue(QueueNumber::new(child.who), but, ledger, visit))
        {
            return false;
        }
        let members = self.in_order(slot, ledger).into_iter();
        for member in members.filter_map(|number| self.members.get(&number)) {
            for request in member.waits.all() {
                match visit(&member.id, request) {
                    NextVisit::NextWaiter => {}
                    NextVisit::NextLeaf => return true,
                    NextVisit::Nothing => return false,
                }
            }
        }
        true
    }
    /// Waiting applications of a leaf in scheduling order.
    fn in_order(&self, leaf: &QueueEntry, ledger: &ResourceLedger) -> Vec<u32> {
        let members = leaf
            .apps
            .iter()
            .filter_map(|app| self.members.get(&app.seq()))
            .filter(|member| !member.waits.is_empty());
        let mut ranks: Vec<SiblingRank> = members
            .map(|member| self.rank_app(member, leaf, ledger))
            .collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|rank| rank.who).collect()
    }
    /// Number of waiters of the same leaf that precede this request.
    pub fn ahead(&self, app: &AppId, request: RowPosition, ledger: &ResourceLedger) -> usize {
        let number = app.seq();
        let Some((member, leaf)) = self
            .members
            .get(&number)
            .and_then(|m| Some((m, self.slot(m.leaf)?)))
        else {
            return 0;
        };
        let before = self
            .in_order(leaf, ledger)
            .into_iter()
            .take_while(|other| *other != number);
        let others: usize = before
            .filter_map(|other| self.members.get(&other))
            .map(|other| other.waits.len())
            .sum();
        others + member.waits.ahead(request)
    }

    fn wait_more(&mut self, leaf: QueueNumber, by: usize) {
        self.wait_changes(leaf, |waiting| waiting.saturating_add(by));
    }
    fn wait_less(&mut self, leaf: QueueNumber, by: usize) {
        self.wait_changes(leaf, |waiting| waiting.saturating_sub(by));
    }
    fn wait_changes(&mut self, leaf: QueueNumber, what: impl Fn(usize) -> usize) {
        let mut at = Some(leaf);
        while let Some(slot) = at.and_then(|ix| self.slots.get_mut(ix.index())) {
            slot.waiting = what(slot.waiting);
            at = slot.parent;
        }
    }
}
