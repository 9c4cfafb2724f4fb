//! Table of nodes, with the marks and tags of operators and the index of free resources.
//!
//! The table owns the node records, also the data of nodes that are not registered. The ledger has
//! the allocated resources of a node; after a change of them, the caller updates the index entry
//! with `NodeTable::reindex`.
//!
//! *Invariants*: each member node has an entry in the index and in the list of offers, with the
//! same offered resources. No stored tags are empty.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headroom_types::exit::LeftoverOwner;
use headroom_types::{Bytes, ContainerId, Cpus, NodeId, Resource, Tick, millis};

use crate::container_set::ContainerSet;
use crate::event::{AfterDrain, NodeProperties, NodeRegistration};
use crate::ledger::ResourceLedger;
use crate::node::{self, ClusterNode, ClusterNodeState, InvalidNodeEvent, NodeAction, NodeEvent};
use crate::node_tags::NodeTags;
use crate::request::ContainerRequest;
use crate::save::SavedDrainMark;
use crate::sched::constraint::is_choosy;
use crate::sched::index::{FreeIndex, IndexedNode};
use crate::sched::node_ix::NodeNumber;
use crate::sched::scheduler_state::SchedulerState;
use crate::table::RowPosition;

/// Recovery after a restart: nodes may still run containers that they have not reported.
#[derive(Clone, Debug)]
pub struct ClusterRecovery {
    /// Nodes that have not registered again.
    pub waiting: BTreeSet<NodeId>,
    /// End of the wait.
    pub until: Tick,
}

/// All nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    /// Records by number.
    records: Vec<ClusterNode>,
    /// Numbers by id.
    names: BTreeMap<NodeId, NodeNumber>,
    index: FreeIndex,
    /// Members by offered memory; used to find infeasible requests.
    offers: BTreeSet<(Bytes, NodeId)>,
    /// Drain marks, also of nodes that are not registered.
    marks: BTreeMap<NodeId, SavedDrainMark>,
    /// Labels, attributes, taints and cordons of operators, also of nodes that are not registered.
    tags: BTreeMap<NodeId, NodeTags>,
    recovery: Option<ClusterRecovery>,
    /// Nodes whose allocation has changed and whose entry in the index is out of date.
    moved: Vec<NodeNumber>,
    /// A size that some member node can hold; reset whenever the offered resources change.
    roomy: Option<(Bytes, Cpus)>,
}

impl NodeTable {
    /// Creates a table without nodes, from saved tags.
    pub(crate) fn new(tags: Vec<(NodeId, NodeTags)>, recovery: Option<ClusterRecovery>) -> Self {
        NodeTable {
            tags: tags.into_iter().collect(),
            recovery,
            ..NodeTable::default()
        }
    }
    /// Looks up a node.
    #[inline]
    pub fn get(&self, id: &NodeId) -> Option<&ClusterNode> {
        self.at(self.number(id)?)
    }
    /// Looks up a node by number.
    #[inline]
    pub(crate) fn at(&self, number: NodeNumber) -> Option<&ClusterNode> {
        self.records.get(number.index())
    }
    /// Number of a node that has ever registered.
    #[inline]
    pub(crate) fn number(&self, id: &NodeId) -> Option<NodeNumber> {
        self.index.ix(id)
    }
    /// True when the node has ever registered.
    pub fn contains(&self, id: &NodeId) -> bool {
        self.number(id).is_some()
    }
    /// All nodes, by id.
    pub fn values(&self) -> impl Iterator<Item = &ClusterNode> {
        self.names.values().filter_map(|number| self.at(*number))
    }
    /// Index of free resources.
    #[inline]
    pub(crate) fn index(&self) -> &FreeIndex {
        &self.index
    }
    /// Index entry of a node.
    pub(crate) fn slot_of(&self, id: &NodeId) -> Option<&IndexedNode> {
        self.index.slot(self.index.ix(id)?)
    }
    /// Free resources of a node for all requests without a reservation there. `None` when it is not
    /// schedulable.
    pub(crate) fn room_for_others(&self, id: &NodeId) -> Option<&Resource> {
        self.index.room(self.index.ix(id)?)
    }
    /// Index entries of the member nodes, largest memory first.
    pub(crate) fn by_offered_memory(&self) -> impl Iterator<Item = &IndexedNode> {
        let members = self.offers.iter().rev();
        members.filter_map(|(_, id)| self.slot_of(id))
    }
    /// Largest container that any member node could ever hold.
    pub fn largest(&self) -> Option<(&NodeId, &Resource)> {
        let slot = self.by_offered_memory().next()?;
        Some((&slot.node, slot.offers.as_ref()?))
    }

    /// True when the node may get new containers.
    pub(crate) fn is_open(&self, node: &ClusterNode) -> bool {
        node.state.takes_work()
            && !self.marks.contains_key(&node.id)
            && self.cordon(&node.id).is_none()
    }
    /// Like [`NodeTable::is_open`], for an id.
    pub(crate) fn works(&self, id: &NodeId) -> bool {
        self.get(id).is_some_and(|node| self.is_open(node))
    }
    /// True when the node is decommissioned and cannot register.
    pub(crate) fn is_barred(&self, id: &NodeId) -> bool {
        self.mark(id)
            .is_some_and(|mark| mark.drained && mark.then == AfterDrain::Decommission)
    }
    /// True when any node has a drain mark.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }
    /// Drain mark of a node, also of a node that is not registered.
    pub fn mark(&self, id: &NodeId) -> Option<&SavedDrainMark> {
        self.marks.get(id)
    }
    /// All drain marks.
    pub fn marks(&self) -> impl Iterator<Item = (&NodeId, &SavedDrainMark)> {
        self.marks.iter()
    }
    /// Tags of a node, also of a node that is not registered.
    pub fn tags(&self, id: &NodeId) -> Option<&NodeTags> {
        self.tags.get(id)
    }
    /// Reason of the cordon of a node; `None` without one.
    pub fn cordon(&self, id: &NodeId) -> Option<&str> {
        self.tags(id)?.cordon.as_deref()
    }
    /// Effective properties of a node: those of the agent, overridden by the tags.
    pub fn traits<'n>(&self, node: &'n ClusterNode) -> Cow<'n, NodeProperties> {
        effective(&self.tags, &node.id, &node.traits)
    }
    /// State of a node that users see: its own state, or drain and cordon while it sends
    /// heartbeats.
    pub fn displayed_state(&self, node: &ClusterNode) -> &'static str {
        self.displayed_with(node, self.cordon(&node.id).is_some())
    }
    /// Like [`NodeTable::displayed_state`], with or without a cordon.
    pub(crate) fn displayed_with(&self, node: &ClusterNode, cordoned: bool) -> &'static str {
        match self.mark(&node.id).filter(|_| node.state.is_heard()) {
            Some(mark) if mark.drained => "drained",
            Some(_) => "draining",
            None if cordoned && node.state == ClusterNodeState::Ready => "cordoned",
            None => node.state.as_str(),
        }
    }
    /// Recovery after a restart, while grants wait for nodes.
    pub fn recovery(&self) -> Option<&ClusterRecovery> {
        self.recovery.as_ref()
    }

    /// Whether the cluster is known: nodes have registered, and no other one is still expected after
    /// a restart.
    pub(crate) fn has_all_nodes(&self) -> bool {
        self.recovery.is_none() && !self.index.members().is_empty()
    }

    /// Adds a node that registers, or replaces its record. Returns its number, and true when it was
    /// not a member.
    pub(crate) fn enter(
        &mut self,
        id: &NodeId,
        facts: &NodeRegistration,
        now: Tick,
    ) -> (NodeNumber, bool) {
        self.withdraw_offer(id);
        self.offers.insert((facts.offers.memory, id.clone()));
        let traits = effective(&self.tags, id, &facts.traits);
        let number = self.index.enter(id, &traits, &facts.offers);
        let known = self.records.get_mut(number.index());
        let (state, containers) = known.map_or_else(
            || (ClusterNodeState::Lost, ContainerSet::default()),
            |node| (node.state.clone(), std::mem::take(&mut node.containers)),
        );
        let fresh = !state.is_member();
        let node = ClusterNode {
            id: id.clone(),
            state,
            enforcer: facts.enforcer,
            url: facts.url.clone(),
            version: facts.version.clone(),
            traits: facts.traits.clone(),
            heard: now,
            reported: now,
            serial: facts.serial,
            host_used: Default::default(),
            left_by: Vec::new(),
            surplus: BTreeMap::new(),
            containers,
        };
        match self.records.get_mut(number.index()) {
            Some(known) => *known = node,
            None => {
                self.records.push(node); // numbers are dense
                self.names.insert(id.clone(), number);
            }
        }
        (number, fresh)
    }
    /// Removes a node from the members.
    pub(crate) fn leave(&mut self, id: &NodeId) {
        self.withdraw_offer(id);
        if let Some(ix) = self.index.ix(id) {
            self.index.leave(ix);
        }
    }
    /// The offered resources of a node are about to change.
    fn withdraw_offer(&mut self, id: &NodeId) {
        self.roomy = None;
        let offers = self.slot_of(id).and_then(|slot| slot.offers.as_ref());
        if let Some(memory) = offers.map(|offers| offers.memory) {
            self.offers.remove(&(memory, id.clone()));
        }
    }
    /// Records a heartbeat. Returns the number of the node, if it is a member.
    pub(crate) fn note_heartbeat(
        &mut self,
        id: &NodeId,
        host_used: Bytes,
        now: Tick,
    ) -> Option<NodeNumber> {
        let number = self.number(id)?;
        let node = self.records.get_mut(number.index())?;
        if !node.state.is_member() {
            return None;
        }
        (node.heard, node.reported, node.host_used) = (now, now, host_used);
        Some(number)
    }
    /// Counts a node with an open stream as alive if its heartbeat came less than `late` ago. Returns
    /// false otherwise.
    pub(crate) fn note_stream(&mut self, id: &NodeId, now: Tick, late: Duration) -> bool {
        let number = self.number(id);
        let node = number.and_then(|number| self.records.get_mut(number.index()));
        let alive =
            |node: &&mut ClusterNode| node.state.is_heard() && now.since(node.reported) <= late;
        node.filter(alive).map(|node| node.heard = now).is_some()
    }
    /// Records that the stream of a node ended: it counts as silent for `silence`. Returns false for
    /// a node that is silent already.
    pub(crate) fn note_stream_end(&mut self, id: &NodeId, now: Tick, silence: Duration) -> bool {
        let number = self.number(id);
        let node = number.and_then(|number| self.records.get_mut(number.index()));
        let began = Tick(now.0.saturating_sub(millis(silence)));
        let heard = node.filter(|node| node.state.is_heard());
        heard
            .map(|node| node.heard = node.heard.min(began))
            .is_some()
    }
    /// Sets the memory of a surplus container; `None` when it is none. Returns whether that changed.
    pub(crate) fn set_surplus(
        &mut self,
        number: NodeNumber,
        container: &ContainerId,
        memory: Option<(Bytes, Tick)>,
    ) -> bool {
        let Some(node) = self.records.get_mut(number.index()) else {
            return false;
        };
        match memory {
            Some(latest) => {
                let before = node.surplus.insert(container.clone(), latest);
                before.map(|(memory, _)| memory) != Some(latest.0)
            }
            None => !node.surplus.is_empty() && node.surplus.remove(container).is_some(),
        }
    }
    /// Forgets the surplus containers that a node did not report for longer than `unseen`. Returns
    /// whether there were any.
    pub(crate) fn forget_surplus(
        &mut self,
        number: NodeNumber,
        now: Tick,
        unseen: Duration,
    ) -> bool {
        let node = self.records.get_mut(number.index());
        let Some(node) = node.filter(|node| !node.surplus.is_empty()) else {
            return false;
        };
        let before = node.surplus.len();
        node.surplus
            .retain(|_, (_, seen)| now.since(*seen) <= unseen);
        node.surplus.len() < before
    }
    /// Memory of all surplus containers of a node. Bytes.
    pub(crate) fn surplus(&self, number: NodeNumber) -> Bytes {
        let node = self.records.get(number.index());
        let sizes = node.into_iter().flat_map(|node| node.surplus.values());
        sizes.fold(Bytes::ZERO, |all, (memory, _)| all.saturating_add(*memory))
    }
    /// Records the owners of memory that ended containers left charged.
    pub(crate) fn note_leftover_owners(&mut self, number: NodeNumber, owners: Vec<LeftoverOwner>) {
        let node = self.records.get_mut(number.index());
        if let Some(node) = node.filter(|node| node.left_by != owners) {
            node.left_by = owners;
        }
    }
    /// Applies an event to a node; the caller updates its index entry. Returns true when its state
    /// has changed, and `None` for an unknown node.
    pub(crate) fn apply(
        &mut self,
        number: NodeNumber,
        event: NodeEvent,
        acts: &mut Vec<NodeAction>,
    ) -> Option<Result<bool, InvalidNodeEvent>> {
        let node = self.records.get_mut(number.index())?;
        let next = node::next_node_state(node.state.clone(), event, acts);
        Some(next.map(|next| std::mem::replace(&mut node.state, next) != node.state))
    }
    /// Excludes the length of a stall of the event loop from all silences.
    pub(crate) fn postpone_silences(&mut self, by: Duration) {
        for node in &mut self.records {
            node.heard = node.heard.plus(by);
            node.reported = node.reported.plus(by);
            for (_, seen) in node.surplus.values_mut() {
                *seen = seen.plus(by);
            }
        }
    }
    /// Adds a container to the list of its node.
    pub(crate) fn add_container(&mut self, number: NodeNumber, container: RowPosition) {
        if let Some(node) = self.records.get_mut(number.index()) {
            node.containers.push(container);
        }
    }
    /// Removes a container from the list of its node.
    pub(crate) fn remove_container(&mut self, number: NodeNumber, container: RowPosition) {
        if let Some(node) = self.records.get_mut(number.index()) {
            node.containers.remove(container);
        }
    }
    /// Sets the drain mark of a node.
    pub(crate) fn set_mark(&mut self, id: &NodeId, mark: SavedDrainMark) {
        self.marks.insert(id.clone(), mark);
    }
    /// Removes the drain mark of a node. Returns false when there was none.
    pub(crate) fn remove_mark(&mut self, id: &NodeId) -> bool {
        self.marks.remove(id).is_some()
    }
    /// Replaces the tags of a node. Returns true when the node is a member, whose index entry the
    /// caller then updates.
    pub(crate) fn set_tags(
        &mut self,
        id: &NodeId,
        tags: NodeTags,
        ledger: &ResourceLedger,
    ) -> bool {
        if tags.is_empty() {
            self.tags.remove(id);
        } else {
            self.tags.insert(id.clone(), tags);
        }
        self.roomy = None;
        let node = self.get(id).filter(|node| node.state.is_member());
        let Some((node, account)) = node.and_then(|node| Some((node, ledger.node(id)?))) else {
            return false;
        };
        let traits = effective(&self.tags, id, &node.traits).into_owned();
        self.index.enter(id, &traits, &account.offers);
        true
    }
    /// Records that a node registered. Returns true when recovery waited for it and for no other
    /// node.
    pub(crate) fn note_return(&mut self, id: &NodeId) -> bool {
        self.recovery.as_mut().is_some_and(|recovery| {
            recovery.waiting.remove(id);
            recovery.waiting.is_empty()
        })
    }
    /// Ends the recovery; returns it if it was in progress.
    pub(crate) fn end_recovery(&mut self) -> Option<ClusterRecovery> {
        self.recovery.take()
    }
    /// Checks whether a request is infeasible, like [`NodeTable::infeasible_reason`]. A feasible
    /// size without placement rules is cached, because most requests have few sizes.
    pub(crate) fn never_fits(&mut self, ask: &ContainerRequest) -> Option<(String, Resource)> {
        let size = &ask.resource;
        let plain = !is_choosy(&ask.place) && size.extra.has_none();
        let fits = |(memory, cpus)| size.memory <= memory && size.cpus <= cpus;
        if plain && self.roomy.is_some_and(fits) {
            return None;
        }
        let never = self.infeasible_reason(size, &ask.place);
        if plain && never.is_none() && self.recovery.is_none() && !self.offers.is_empty() {
            self.roomy = Some((size.memory, size.cpus));
        }
        never
    }

    /// Updates the index entry of a node from its account and its state.
    pub(crate) fn reindex(
        &mut self,
        number: NodeNumber,
        ledger: &ResourceLedger,
        scheduler: &mut SchedulerState,
    ) {
        let (Some(node), Some(account)) = (self.at(number), ledger.account(number)) else {
            return;
        };
        if self.is_open(node) && !account.overdrawn {
            let room = scheduler.left_for_all(&node.id, number, account.free());
            self.index.put(number, room);
            scheduler.reservations.mark_dirty(number);
        } else {
            self.index.remove(number);
            scheduler.reservations.mark_all_dirty(); // fewer nodes may be reserved now
        }
    }
    /// Records that the index entry of a node is out of date. Several containers may end in one
    /// step: the index is updated once, before the next placement.
    pub(crate) fn mark_moved(&mut self, number: NodeNumber) {
        if self.moved.last() != Some(&number) {
            self.moved.push(number);
        }
    }
    /// Updates the index entries of all nodes whose allocation has changed.
    pub(crate) fn reindex_moved(
        &mut self,
        ledger: &ResourceLedger,
        scheduler: &mut SchedulerState,
    ) {
        let mut moved = std::mem::take(&mut self.moved);
        for number in moved.drain(..) {
            self.reindex(number, ledger, scheduler);
        }
        self.moved = moved;
    }
}

/// Properties of a node's agent, overridden by the tags of operators.
fn effective<'n>(
    tags: &BTreeMap<NodeId, NodeTags>,
    id: &NodeId,
    own: &'n NodeProperties,
) -> Cow<'n, NodeProperties> {
    tags.get(id)
        .map_or(Cow::Borrowed(own), |tags| tags.over(own))
}

#[cfg(any(test, feature = "testkit"))]
impl NodeTable {
    /// Checks the invariants of the table, and that the index agrees with the ledger.
    pub(crate) fn check(&self, ledger: &ResourceLedger, scheduler: &SchedulerState) {
        for (id, ix) in &self.names {
            let ix = *ix;
            let node = self.at(ix).expect("every number has a record");
            let account = ledger.node(id).expect("every node has an account");
            assert_eq!(
                (&node.id, ledger.account(ix)),
                (id, Some(account)),
                "{id}: its number belongs to another record or account"
            );
            let room = (self.is_open(node) && !account.overdrawn)
                .then(|| scheduler.left_for_all(id, ix, account.free()));
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
            let member = node.state.is_member();
            let slot = self.index.slot(ix).expect("every node has an entry");
            assert!(
                !member || slot.traits == *self.traits(node),
                "{id}: other properties in the index"
            );
            assert_eq!(
                slot.offers.as_ref(),
                member.then_some(&account.offers),
                "{id}: other offered resources in the index"
            );
            assert_eq!(
                self.index.members().contains(&ix),
                member,
                "{id}: membership in the index"
            );
            assert_eq!(
                self.offers.contains(&(account.offers.memory, id.clone())),
                member,
                "{id}: entry in the list of offers"
            );
            assert_eq!(
                node.state == ClusterNodeState::Decommissioned,
                self.is_barred(id),
                "{id}: decommissioned in one table only"
            );
        }
        assert!(
            self.index.rooms().all(|(id, _)| self.contains(id)),
            "the index contains removed nodes"
        );
        assert!(
            self.offers.len() <= self.records.len(),
            "more offers than nodes"
        );
        assert!(
            self.tags.values().all(|tags| !tags.is_empty()),
            "empty tags are stored"
        );
    }
}
