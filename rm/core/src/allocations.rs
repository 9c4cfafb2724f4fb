//! Allocations: the containers of the cluster, booked in the ledger, and the history of ended ones.
//!
//! The table owns the container records and numbers them. Nodes and applications list the ids of
//! their containers.
//!
//! *Invariants*: the ledger has the sizes of all live containers and of no others. A container that
//! was ordered to stop and has not ended is in the list of its node. No container is in the table
//! and in the history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headroom_types::{AppId, Bytes, ContainerId, Epoch, NodeId, Resource, StopCause, Tick};

use crate::app::{ClusterApplication, KeptUpdate};
use crate::container::{self, Container, ContainerAction, ContainerEvent, ContainerState};
use crate::container_set::ContainerSet;
use crate::container_table::ContainerTable;
use crate::event::{ContainerCommand, GrantedContainer, ReportedContainer, UpdateKind};
use crate::history::{ContainerHistory, EndedContainer};
use crate::ledger::ResourceLedger;
use crate::save::DurableRecord;
use crate::sched::node_ix::NodeNumber;
use crate::size::{self, ResizeAction, ResizeEvent};
use crate::step_context::StepContext;
use crate::table::RowPosition;

/// Container that has left the table: where it is still listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetiredContainer {
    /// Number of its node.
    pub(crate) node_number: NodeNumber,
    /// Row of its application.
    pub(crate) home: RowPosition,
    /// Place in the set of its application.
    pub(crate) place: u32,
}

/// Containers whose end the application has not acknowledged, with the ledger and the history.
#[derive(Clone, Debug)]
pub(crate) struct Allocations {
    containers: ContainerTable,
    ledger: ResourceLedger,
    history: ContainerHistory,
    /// Containers that must end and have not ended, by node.
    stopping: BTreeMap<NodeId, BTreeSet<ContainerId>>,
    /// Number of the latest granted container.
    latest: u64,
    /// Empty between events; kept for its allocation.
    acts: Vec<ContainerAction>,
}

impl Allocations {
    /// Creates a table without containers.
    pub(crate) fn new(ledger: ResourceLedger, history: ContainerHistory) -> Self {
        Allocations {
            containers: ContainerTable::default(),
            ledger,
            history,
            stopping: BTreeMap::new(),
            latest: 0,
            acts: Vec::new(),
        }
    }
    /// Looks up a container.
    #[inline]
    pub(crate) fn get(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }
    /// Row of a container.
    #[inline]
    pub(crate) fn row_of(&self, id: &ContainerId) -> Option<RowPosition> {
        self.containers.row_of(id)
    }
    /// Container in a row.
    #[inline]
    pub(crate) fn at(&self, row: RowPosition) -> Option<&Container> {
        self.containers.at(row)
    }
    /// All containers. The order depends on insertions and removals.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Container> + Clone {
        self.containers.values()
    }
    /// Containers in the table among these ids.
    pub(crate) fn of<'a>(
        &'a self,
        ids: impl IntoIterator<Item = &'a ContainerId>,
    ) -> impl Iterator<Item = &'a Container> {
        ids.into_iter().filter_map(|id| self.get(id))
    }
    /// Content of a kept update. `None` when the record of its container is gone, which never
    /// happens before the acknowledgement of the update.
    pub(crate) fn whole_update(&self, kept: &KeptUpdate) -> Option<UpdateKind> {
        match kept {
            KeptUpdate::Allocated(row) => {
                let c = self.at(*row)?;
                Some(UpdateKind::Allocated(c.granted_for(c.request.clone()?)))
            }
            KeptUpdate::Running(row) => Some(UpdateKind::Running {
                container: self.at(*row)?.id.clone(),
            }),
            KeptUpdate::Exited(row) => {
                let c = self.at(*row)?;
                Some(UpdateKind::Exited {
                    request: c.request.clone()?,
                    report: c.state.report()?.clone(),
                })
            }
            KeptUpdate::Other(what) => Some(UpdateKind::clone(what)),
        }
    }
    /// Containers of a node or an application, in any order.
    pub(crate) fn among<'a>(
        &'a self,
        set: &'a ContainerSet,
    ) -> impl Iterator<Item = &'a Container> {
        set.rows().iter().filter_map(|row| self.at(*row))
    }
    /// Containers of a node or an application, in the order of their grants.
    pub(crate) fn in_order<'a>(
        &'a self,
        set: &ContainerSet,
    ) -> impl Iterator<Item = &'a Container> + use<'a> {
        let rows = set.rows().iter();
        let mut all: Vec<&Container> = rows.filter_map(|row| self.at(*row)).collect();
        all.sort_unstable_by_key(|c| (c.id.epoch, c.id.seq, c.id.app.seq()));
        all.into_iter()
    }
    /// Containers of a node or an application that have not ended, in the order of their grants.
    pub(crate) fn alive_in<'a>(
        &'a self,
        set: &ContainerSet,
    ) -> impl Iterator<Item = &'a Container> + use<'a> {
        self.in_order(set).filter(|c| c.state.is_alive())
    }
    /// Containers among these ids that have not ended.
    pub(crate) fn alive<'a>(
        &'a self,
        ids: impl IntoIterator<Item = &'a ContainerId>,
    ) -> impl Iterator<Item = &'a Container> {
        self.of(ids).filter(|c| c.state.is_alive())
    }
    /// Live containers of an application, without its master's.
    pub(crate) fn granted(&self, app: &ClusterApplication) -> Vec<GrantedContainer> {
        self.alive_in(&app.containers)
            .filter_map(|c| Some(c.granted_for(c.request.clone()?)))
            .collect()
    }
    /// Containers of a node that were ordered to stop before the node reported them, at least
    /// `timeout` ago.
    pub(crate) fn stopped_unseen(
        &self,
        node: &NodeId,
        timeout: Duration,
        now: Tick,
    ) -> Vec<ContainerId> {
        let overdue = |c: &&Container| {
            c.stop_asked.is_some_and(|asked| {
                now.since(asked) >= timeout && c.seen.is_none_or(|seen| seen < asked)
            })
        };
        let stopping = self.stopping.get(node).into_iter().flatten();
        let overdue = self.alive(stopping).filter(overdue);
        overdue.map(|c| c.id.clone()).collect()
    }
    /// Allocated resources.
    #[inline]
    pub(crate) fn ledger(&self) -> &ResourceLedger {
        &self.ledger
    }
    /// Allocated resources, for changes of nodes, applications and queues.
    #[inline]
    pub(crate) fn ledger_mut(&mut self) -> &mut ResourceLedger {
        &mut self.ledger
    }
    /// History of ended containers.
    pub(crate) fn history(&self) -> &ContainerHistory {
        &self.history
    }
    /// History of ended containers, for removals.
    pub(crate) fn history_mut(&mut self) -> &mut ContainerHistory {
        &mut self.history
    }
    /// Number of the latest granted container.
    #[inline]
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Id of the next container; ids are never reused.
    pub(crate) fn next_id(&mut self, app: &AppId, epoch: Epoch) -> ContainerId {
        self.latest += 1;
        ContainerId {
            app: app.clone(),
            epoch,
            seq: self.latest,
        }
    }
    /// Adds a container and its size; returns its position.
    #[inline]
    pub(crate) fn insert(&mut self, c: Container, ctx: &mut StepContext<'_>) -> RowPosition {
        take(&mut self.ledger, &c, c.counted(), ctx);
        self.containers.insert(c)
    }
    /// Records the place of a container in the set of its application.
    pub(crate) fn note_place(&mut self, row: RowPosition, place: u32) {
        if let Some(c) = self.containers.at_mut(row) {
            c.place = place;
        }
    }
    /// Records a node's report about the memory of a container.
    pub(crate) fn note_report(&mut self, row: RowPosition, used: Option<Bytes>, now: Tick) {
        if let Some(c) = self.containers.at_mut(row) {
            c.used = used.or(c.used);
            c.seen = Some(now);
        }
    }
    /// Applies an event to a container and returns the actions that follow. The caller gives the
    /// list back with [`Allocations::recycle`].
    ///
    /// # Errors
    /// A sentence, for an event that is not allowed in the state of the container.
    pub(crate) fn apply(
        &mut self,
        row: RowPosition,
        event: ContainerEvent,
    ) -> Result<Vec<ContainerAction>, String> {
        let mut acts = std::mem::take(&mut self.acts);
        let Some(c) = self.containers.at_mut(row) else {
            return Ok(acts);
        };
        let state = std::mem::replace(&mut c.state, ContainerState::Allocated);
        match container::next_container_state(state, event, &mut acts) {
            Ok(next) => c.state = next,
            Err(illegal) => {
                c.state = illegal.state.clone();
                return Err(format!("{}: {illegal}", c.id));
            }
        }
        Ok(acts)
    }
    /// Takes the allocation of an empty list back.
    pub(crate) fn recycle(&mut self, acts: Vec<ContainerAction>) {
        self.acts = acts;
    }
    /// Orders the node of a container to stop it.
    pub(crate) fn send_stop(
        &mut self,
        row: RowPosition,
        cause: StopCause,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(c) = self.containers.at_mut(row) else {
            return;
        };
        c.stop_asked = Some(ctx.now);
        self.stopping
            .entry(c.node.clone())
            .or_default()
            .insert(c.id.clone());
        ctx.send_command(&c.node, &c.id, ContainerCommand::Stop { cause });
    }
    /// Subtracts the size of a container that has ended.
    pub(crate) fn release(
        &mut self,
        row: RowPosition,
        ctx: &mut StepContext<'_>,
    ) -> Option<&Container> {
        let c = self.containers.at(row)?;
        no_longer_stopping(&mut self.stopping, c);
        give(&mut self.ledger, c, c.counted(), ctx);
        Some(c)
    }
    /// Moves an acknowledged container to the history, and orders its node to forget it.
    pub(crate) fn retire(
        &mut self,
        row: RowPosition,
        ctx: &mut StepContext<'_>,
    ) -> Option<RetiredContainer> {
        let c = self.containers.at(row)?;
        let retired = RetiredContainer {
            node_number: c.node_number,
            home: c.home,
            place: c.place,
        };
        if let ContainerState::Done { report } = &c.state {
            let ended = Arc::new(EndedContainer::new(c, report));
            ctx.save(DurableRecord::Container(ended.clone()));
            if let Some(oldest) = self.history.push(ended) {
                ctx.save(DurableRecord::ContainerGone(oldest));
            }
        }
        no_longer_stopping(&mut self.stopping, c);
        ctx.send_command(&c.node, &c.id, ContainerCommand::Forget);
        self.containers.remove(row);
        Some(retired)
    }
    /// Applies an event to the size of a container and books the difference in the ledger. Returns
    /// the actions that follow, and the node if its allocation has changed.
    pub(crate) fn apply_size_event(
        &mut self,
        id: &ContainerId,
        event: ResizeEvent,
        ctx: &mut StepContext<'_>,
    ) -> (Vec<ResizeAction>, Option<NodeNumber>) {
        let mut acts = Vec::new();
        let Some(c) = self.containers.get_mut(id) else {
            return (acts, None);
        };
        let before = c.counted();
        match size::next_resize_state(c.sizing.clone(), &c.has(), event, &mut acts) {
            Ok(next) => c.sizing = next,
            Err(illegal) => {
                ctx.illegal(format!("{id}: {illegal}"));
                return (Vec::new(), None);
            }
        }
        for act in &acts {
            if let ResizeAction::Has(now) = act {
                c.take_size(now.clone());
            }
        }
        let ordered = c.sizing.order().map_or(0, |order| order.version);
        c.newest = c.newest.max(ordered);
        let after = c.counted();
        if before == after {
            return (acts, None);
        }
        give(&mut self.ledger, c, before, ctx);
        take(&mut self.ledger, c, after, ctx);
        (acts, Some(c.node_number))
    }
    /// Records that the ordered size is sent to the node now.
    pub(crate) fn note_size_sent(&mut self, id: &ContainerId, now: Tick) -> Option<&Container> {
        let c = self.containers.get_mut(id)?;
        c.size_sent = now;
        Some(c)
    }
    /// Repeats the order of a size to a node that reports an earlier version, at most once per
    /// `interval`.
    pub(crate) fn resend_size(
        &mut self,
        seen: &ReportedContainer,
        interval: Duration,
        ctx: &mut StepContext<'_>,
    ) {
        let Some(c) = self.containers.get_mut(&seen.container) else {
            return;
        };
        let later = c.order().version > seen.version;
        if later && c.state == ContainerState::Running && ctx.now.since(c.size_sent) >= interval {
            c.size_sent = ctx.now;
            let order = Box::new(c.order());
            ctx.send_command(&c.node, &c.id, ContainerCommand::Run(order));
        }
    }
}

fn take(
    ledger: &mut ResourceLedger,
    c: &Container,
    (size, heap): (Resource, Bytes),
    ctx: &mut StepContext<'_>,
) {
    if !ledger.take_at(c.node_number, &c.id.app, c.role(), &size, heap) {
        let Container { id, node, .. } = c;
        ctx.illegal(format!("{id}: its size {size} cannot be added to {node}"));
    }
}

fn give(
    ledger: &mut ResourceLedger,
    c: &Container,
    (size, heap): (Resource, Bytes),
    ctx: &mut StepContext<'_>,
) {
    if !ledger.give_at(c.node_number, &c.id.app, c.role(), &size, heap) {
        let Container { id, node, .. } = c;
        ctx.illegal(format!("{id}: its size {size} was not taken on {node}"));
    }
}

fn no_longer_stopping(stopping: &mut BTreeMap<NodeId, BTreeSet<ContainerId>>, c: &Container) {
    if c.stop_asked.is_none() {
        return; // the usual case
    }
    if let Some(ids) = stopping.get_mut(&c.node) {
        ids.remove(&c.id);
        if ids.is_empty() {
            stopping.remove(&c.node);
        }
    }
}

#[cfg(any(test, feature = "testkit"))]
impl Allocations {
    /// Checks the invariants of the table, the ledger and the history.
    pub(crate) fn check(&self) {
        for (row, c) in self.containers.iter() {
            let id = &c.id;
            assert_eq!(self.row_of(id), Some(row), "{id} is not found by its id");
            let is_stopping = self.stopping.get(&c.node).is_some_and(|s| s.contains(id));
            assert!(
                c.stop_asked.is_none() || is_stopping || !c.state.is_alive(),
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
            assert!(
                !matches!(c.state, ContainerState::Done { .. }),
                "{id} is done and still in the table"
            );
        }
        self.check_nodes();
        self.check_apps();
    }
    fn check_nodes(&self) {
        let mut sums: BTreeMap<&NodeId, (Resource, Bytes)> = BTreeMap::new();
        for c in self.values().filter(|c| c.state.is_alive()) {
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
    }
    fn check_apps(&self) {
        let mut sums: BTreeMap<&AppId, (u32, Bytes)> = BTreeMap::new();
        for c in self.values().filter(|c| c.state.is_alive()) {
            let sum = sums.entry(&c.id.app).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(c.counted().0.memory);
        }
        for (app, share) in self.ledger.apps() {
            assert_eq!(
                (share.containers, share.used.memory),
                sums.remove(app).unwrap_or_default(),
                "{app}: number of containers and memory in the ledger"
            );
        }
        assert!(
            sums.is_empty(),
            "containers of applications without an account: {sums:?}"
        );
    }
}
