//! Updates of the scheduling order from used resources, and the iteration of a pass over waiters.

use std::cmp::Reverse;

use headroom_types::{AppId, QueuePath, Resource};

use super::{ActiveApplication, FailedCandidate, PassTarget, QueueEntry, SchedulerQueues};
use crate::ledger::ResourceLedger;
use crate::queue::QueueNumber;
use crate::queue::bound::{DominantShare, ResourceBound};
use crate::queue::sibling_order::{GuaranteePosition, SiblingRank, SizeClass};
use crate::queue::spec::{LeafOrder, QueueState};
use crate::queue::waits::RequestLineHead;
use crate::table::RowPosition;

impl SchedulerQueues {
    /// Starts a new round: something that failed may succeed, because resources became free or a
    /// limit was raised.
    pub(super) fn start_round(&mut self) {
        self.round += 1;
        self.fresh = true;
    }
    /// Records that something that failed may succeed: the next pass starts a new round.
    pub(crate) fn note_room(&mut self) {
        self.room_changed = true;
    }
    /// True when the next pass starts a new round.
    #[inline]
    pub(crate) fn room_changed(&self) -> bool {
        self.room_changed
    }
    /// Starts a new round if something that failed may succeed.
    pub(crate) fn start_due_round(&mut self) {
        if std::mem::take(&mut self.room_changed) {
            self.start_round();
        }
    }
    /// Updates the scheduling order from the ledger. Returns false when no waiter needs to be
    /// tried.
    pub(crate) fn update_order(&mut self, ledger: &mut ResourceLedger) -> bool {
        if self.total != *ledger.total() {
            self.total = ledger.total().clone();
            self.resolve();
            self.rerank_all(ledger);
        } else if !(self.moved.is_empty() && ledger.changed().is_empty()) {
            self.update_moved(ledger);
        }
        ledger.clear_changed();
        std::mem::take(&mut self.fresh) && !self.is_empty()
    }
    /// Updates the order after changes of waiting requests and of applications' resources. Each
    /// leaf and its ancestors are updated once.
    pub(crate) fn update_moved(&mut self, ledger: &ResourceLedger) {
        let mut leaves = std::mem::take(&mut self.leaves);
        let mut note = |leaf: QueueNumber| {
            if leaves.last() != Some(&leaf) {
                leaves.push(leaf);
            }
        };
        let mut moved = std::mem::take(&mut self.moved);
        for app in moved.drain(..) {
            let member = self.members.get_mut(&app);
            if let Some(member) = member.filter(|member| member.moved) {
                member.moved = false;
                note(member.leaf);
                self.reseat_member(app, ledger);
            }
        }
        self.moved = moved;
        for app in ledger.changed() {
            let Some(member) = self.members.get(app) else {
                continue;
            };
            note(member.leaf);
            let fair = member.seat.is_some()
                && self
                    .slot(member.leaf)
                    .is_some_and(|slot| slot.spec.order == LeafOrder::Fair);
            if fair {
                self.reseat_member(*app, ledger);
            }
        }
        for leaf in leaves.drain(..) {
            self.reseat_path(leaf, ledger);
        }
        self.leaves = leaves;
    }
    /// Resolves all limits against the total resources, and discards all computed ranks.
    pub(super) fn resolve(&mut self) {
        let (mut can_have, mut can_count_on) = (
            Vec::with_capacity(self.slots.len()),
            Vec::with_capacity(self.slots.len()),
        );
        for slot in &mut self.slots {
            let above =
                |list: &Vec<Resource>| slot.parent.and_then(|ix| list.get(ix.index()).cloned());
            let most = above(&can_have).unwrap_or_else(|| self.total.clone());
            let sure = above(&can_count_on).unwrap_or_else(|| self.total.clone());
            slot.ranked = None;
            slot.maximum = ResourceBound::of(&slot.spec.maximum, &most);
            slot.guaranteed = ResourceBound::of(&slot.spec.guaranteed, &sure);
            let most = slot.maximum.over(&most);
            slot.most = most.clone();
            let part = |part: Option<u32>| {
                part.map_or(ResourceBound::default(), |part| {
                    ResourceBound::part_of(&most, part)
                })
            };
            slot.user = part(slot.spec.user_limit);
            slot.masters = part(slot.spec.master_share);
            can_count_on.push(slot.guaranteed.over(&sure));
            can_have.push(most);
        }
    }
    pub(super) fn rerank_all(&mut self, ledger: &ResourceLedger) {
        for app in std::mem::take(&mut self.moved) {
            if let Some(member) = self.members.get_mut(&app) {
                member.moved = false;
            }
            self.reseat_member(app, ledger);
        }
        let waiting: Vec<u32> = self
            .members
            .iter()
            .filter(|(_, m)| !m.waits.is_empty())
            .map(|(number, _)| *number)
            .collect();
        for number in waiting {
            self.reseat_member(number, ledger);
        }
        // a parent has a smaller number than its children, so children come first
        for number in (0..self.slots.len())
            .rev()
            .filter_map(|n| u32::try_from(n).ok())
        {
            self.reseat_queue(QueueNumber::new(number), ledger);
        }
    }
    pub(super) fn reseat_app(&mut self, number: u32, ledger: &ResourceLedger) {
        self.reseat_member(number, ledger);
        if let Some(leaf) = self.members.get(&number).map(|member| member.leaf) {
            self.reseat_path(leaf, ledger);
        }
    }
    pub(super) fn reseat_member(&mut self, number: u32, ledger: &ResourceLedger) {
        let Some(member) = self.members.get(&number) else {
            return;
        };
        let Some(slot) = self.slot(member.leaf) else {
            return;
        };
        let seat = member
            .waits
            .least()
            .map(|class| (class, self.rank_app(member, slot, ledger)));
        if seat == member.seat {
            return;
        }
        self.unseat(number);
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        member.seat = seat;
        if let (Some((class, rank)), Some(slot)) = (seat, self.slots.get_mut(member.leaf.index())) {
            slot.sibling_order.put(class, rank);
        }
    }
    pub(super) fn unseat(&mut self, number: u32) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        if let (Some((class, rank)), Some(slot)) =
            (member.seat.take(), self.slots.get_mut(member.leaf.index()))
        {
            slot.sibling_order.remove(class, &rank);
        }
    }
    pub(super) fn reseat_path(&mut self, queue: QueueNumber, ledger: &ResourceLedger) {
        let mut at = Some(queue);
        while let Some(ix) = at {
            self.reseat_queue(ix, ledger);
            at = self.slot(ix).and_then(|slot| slot.parent);
        }
    }
    pub(super) fn reseat_queue(&mut self, ix: QueueNumber, ledger: &ResourceLedger) {
        let Some(slot) = self.slot(ix) else { return };
        let Some(parent) = slot.parent else { return };
        let plain = ledger
            .queue(ix)
            .map(|account| &account.used)
            .filter(|used| used.extra.is_empty());
        let (old, now) = (slot.seat, plain.map(|used| (used.memory, used.cpus)));
        let known = slot
            .ranked
            .filter(|(of, _)| now == Some(*of))
            .map(|(_, rank)| rank);
        let seat = self
            .least(ix, slot, ledger)
            .map(|class| (class, known.unwrap_or_else(|| self.rank(ix, slot, ledger))));
        if seat == old {
            return;
        }
        if let Some(slot) = self.slots.get_mut(ix.index()) {
            slot.seat = seat;
            slot.ranked = seat.map_or(slot.ranked, |(_, rank)| now.map(|now| (now, rank)));
        }
        let Some(parent) = self.slots.get_mut(parent.index()) else {
            return;
        };
        if let Some((class, rank)) = old {
            parent.sibling_order.remove(class, &rank);
        }
        if let Some((class, rank)) = seat {
            parent.sibling_order.put(class, rank);
        }
    }
    /// Minimum class of all waiters in or below a queue; `None` when the queue may not grant it.
    fn least(
        &self,
        ix: QueueNumber,
        slot: &QueueEntry,
        ledger: &ResourceLedger,
    ) -> Option<SizeClass> {
        let least = slot
            .sibling_order
            .least()
            .filter(|_| slot.spec.state.grants())?;
        let most =
            |used: &Resource| slot.maximum.is_open() || slot.maximum.admits(used, &least.floor());
        ledger
            .queue(ix)
            .is_none_or(|account| most(&account.used))
            .then_some(least)
    }
    pub(super) fn rank(
        &self,
        ix: QueueNumber,
        slot: &QueueEntry,
        ledger: &ResourceLedger,
    ) -> SiblingRank {
        let (standing, share) = self.standing(ix, slot, ledger);
        let weight = slot.spec.weight.unwrap_or(1);
        SiblingRank {
            priority: Reverse(slot.spec.priority),
            standing,
            share: share.by_weight(weight),
            who: ix.number(),
        }
    }
    /// Position of a queue relative to its guarantee, and its share of the guarantee; of the
    /// cluster without a guarantee.
    pub(crate) fn standing(
        &self,
        ix: QueueNumber,
        slot: &QueueEntry,
        ledger: &ResourceLedger,
    ) -> (GuaranteePosition, DominantShare) {
        let Some(used) = ledger.queue(ix).map(|account| &account.used) else {
            return (GuaranteePosition::Above, DominantShare::default());
        };
        if slot.guaranteed.is_open() || slot.guaranteed.is_nothing() {
            return (
                GuaranteePosition::Above,
                DominantShare::of_all(used, &self.total),
            );
        }
        let share = DominantShare::of_bound(used, &slot.guaranteed);
        (
            if share.is_whole() {
                GuaranteePosition::Above
            } else {
                GuaranteePosition::Below
            },
            share,
        )
    }
    pub(super) fn rank_app(
        &self,
        member: &ActiveApplication,
        leaf: &QueueEntry,
        ledger: &ResourceLedger,
    ) -> SiblingRank {
        let share = match leaf.spec.order {
            LeafOrder::Fifo => DominantShare::default(),
            LeafOrder::Fair => ledger
                .app(&member.id)
                .map_or(DominantShare::default(), |has| {
                    DominantShare::of_all(&has.used, &self.total)
                }),
        };
        SiblingRank {
            priority: Reverse(member.priority),
            standing: GuaranteePosition::Above,
            share,
            who: member.id.seq(),
        }
    }

    /// Next child queue or application that may succeed.
    pub(crate) fn next(
        &self,
        queue: QueueNumber,
        after: Option<SiblingRank>,
        open: impl FnMut(SizeClass) -> bool,
    ) -> Option<(SiblingRank, PassTarget)> {
        let slot = self.slot(queue)?;
        if slot.children.is_empty() {
            let failed = |rank: &SiblingRank| {
                self.members
                    .get(&rank.who)
                    .is_none_or(|member| member.failed == self.round)
            };
            let rank = slot.sibling_order.next(after, open, failed)?;
            return Some((rank, PassTarget::App(rank.who)));
        }
        let failed = |rank: &SiblingRank| {
            self.slot(QueueNumber::new(rank.who))
                .is_none_or(|slot| slot.failed == self.round)
        };
        let rank = slot.sibling_order.next(after, open, failed)?;
        Some((rank, PassTarget::Queue(QueueNumber::new(rank.who))))
    }
    /// Application of this number, and the next line that it waits for.
    pub(crate) fn next_line(
        &self,
        number: u32,
        after: Option<&RequestLineHead>,
    ) -> Option<(&AppId, RequestLineHead)> {
        let member = self.members.get(&number)?;
        Some((&member.id, member.waits.next(after, self.round)?))
    }
    /// Rows of all requests of a line, in order.
    pub(crate) fn line(
        &self,
        number: u32,
        head: &RequestLineHead,
    ) -> impl Iterator<Item = RowPosition> {
        self.members
            .get(&number)
            .into_iter()
            .flat_map(|member| member.waits.line(head))
    }
    /// Application of this number, and its leaf.
    pub(crate) fn member(&self, number: u32) -> Option<(&AppId, QueueNumber)> {
        self.members
            .get(&number)
            .map(|member| (&member.id, member.leaf))
    }
    /// Excludes an object from further tries in this round.
    pub(crate) fn fail(&mut self, failed: FailedCandidate) {
        match failed {
            FailedCandidate::Queue(ix) => {
                if let Some(slot) = self.slots.get_mut(ix.index()) {
                    slot.failed = self.round;
                }
            }
            FailedCandidate::App(number) => {
                if let Some(member) = self.members.get_mut(&number) {
                    member.failed = self.round;
                }
            }
            FailedCandidate::Line(number, head) => {
                if let Some(member) = self.members.get_mut(&number) {
                    member.waits.fail(&head, self.round);
                }
            }
        }
    }
    /// Effective state of a queue: the most restrictive one of the queue and its ancestors.
    pub fn state(&self, queue: QueueNumber) -> QueueState {
        let states = || self.path_of(queue).map(|(_, slot)| slot.spec.state);
        match (
            states().all(QueueState::admits),
            states().all(QueueState::grants),
        ) {
            (true, true) => QueueState::Running,
            (true, false) => QueueState::Paused,
            (false, true) => QueueState::Draining,
            (false, false) => QueueState::Stopped,
        }
    }
    /// Innermost queue on the path to the root whose state forbids grants.
    pub(crate) fn barred(&self, leaf: QueueNumber) -> Option<(&QueuePath, QueueState)> {
        self.path_of(leaf)
            .find(|(_, slot)| !slot.spec.state.grants())
            .map(|(_, slot)| (&slot.path, slot.spec.state))
    }
}

#[cfg(any(test, feature = "testkit"))]
impl SchedulerQueues {
    /// Checks the invariant that every position equals a newly computed one.
    pub(crate) fn check_seats(&self, ledger: &ResourceLedger) {
        let mut taken = vec![0; self.slots.len()];
        let mut check = |of: QueueNumber,
                         seat: Option<(SizeClass, SiblingRank)>,
                         right: Option<(SizeClass, SiblingRank)>,
                         who: &dyn std::fmt::Display| {
            assert_eq!(
                seat, right,
                "{who}: its position differs from a newly computed one"
            );
            let (Some((class, rank)), Some(slot)) = (seat, self.slot(of)) else {
                return;
            };
            assert!(
                slot.sibling_order.has(class, &rank),
                "{who} has a position and is not listed in {}",
                slot.path
            );
            taken[of.index()] += 1;
        };
        for member in self.members.values() {
            let Some(slot) = self.slot(member.leaf) else {
                continue;
            };
            let right = member
                .waits
                .least()
                .map(|class| (class, self.rank_app(member, slot, ledger)));
            check(member.leaf, member.seat, right, &member.id);
        }
        for (ix, slot) in self.slots() {
            let Some(parent) = slot.parent else { continue };
            let right = self
                .least(ix, slot, ledger)
                .map(|class| (class, self.rank(ix, slot, ledger)));
            check(parent, slot.seat, right, &slot.path);
        }
        for (ix, slot) in self.slots() {
            assert_eq!(
                slot.sibling_order.len(),
                taken[ix.index()],
                "{}: positions without an application or queue",
                slot.path
            );
        }
    }
}
