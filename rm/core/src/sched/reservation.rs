//! Reservations: which node is set aside for which request, and the grants that count for the next
//! one.
//!
//! The scheduler's state owns the table. It only looks up and stores; `reserve` decides.

use std::collections::BTreeMap;

use headroom_types::{AppId, Bytes, Cpus, ExtraResources, Name, NodeId, RequestId, Resource, Tick};

use super::node_ix::NodeNumber;

/// Reservation of one node for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The node.
    pub node: NodeId,
    /// The application.
    pub app: AppId,
    /// The request.
    pub request: RequestId,
    /// Size of its container, which is set aside as far as it is free.
    pub size: Resource,
    /// Start of the reservation.
    pub since: Tick,
    /// Missing memory on the node, and the time since which it has not decreased.
    pub lacks: (Bytes, Tick),
}

/// All reservations.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    on: BTreeMap<NodeNumber, Reservation>,
    of: BTreeMap<(AppId, RequestId), NodeNumber>,
    /// Numbers of the applications with reservations; there are only a few.
    apps: Vec<u32>,
    /// Filter for the numbers: bit `n % 512` is set for each number `n` in the list.
    filter: [u64; 8],
    /// True when reservations must be checked: a node, a request or a limit has changed.
    doubted: bool,
    pub(crate) recent_grants: RecentGrants,
}

impl Reservations {
    /// True when there are no reservations.
    pub(crate) fn is_empty(&self) -> bool {
        self.on.is_empty()
    }
    /// Marks reservations for a check if this node is reserved.
    pub(crate) fn mark_dirty(&mut self, ix: NodeNumber) {
        self.doubted |= !self.on.is_empty() && self.on.contains_key(&ix);
    }
    /// Marks reservations for a check if this request has one.
    pub(crate) fn mark_request_dirty(&mut self, app: &AppId, request: &RequestId) {
        self.doubted |= self.of(app, request).is_some();
    }
    /// Marks all reservations for a check.
    pub(crate) fn mark_all_dirty(&mut self) {
        self.doubted = true;
    }
    /// Reservation of a node.
    pub(crate) fn on(&self, ix: NodeNumber) -> Option<&Reservation> {
        self.on.get(&ix)
    }
    /// Reservation of a request.
    pub(crate) fn of(
        &self,
        app: &AppId,
        request: &RequestId,
    ) -> Option<(NodeNumber, &Reservation)> {
        let (word, bit) = filter_bit(app.seq());
        if self.filter[word] & bit == 0 || !self.apps.contains(&app.seq()) {
            return None; // the usual case
        }
        let ix = *self.of.get(&(app.clone(), request.clone()))?;
        Some((ix, self.on.get(&ix)?))
    }
    /// All reservations, by node.
    pub(crate) fn all(&self) -> impl Iterator<Item = (NodeNumber, &Reservation)> {
        self.on.iter().map(|(ix, r)| (*ix, r))
    }
    /// Number of reservations.
    pub(crate) fn len(&self) -> usize {
        self.on.len()
    }
    /// Returns whether reservations must be checked, and clears the mark.
    pub(crate) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.doubted)
    }
    /// All reservations for an update, by node.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (NodeNumber, &mut Reservation)> {
        self.on.iter_mut().map(|(ix, r)| (*ix, r))
    }
    /// Adds a reservation.
    pub(crate) fn put(&mut self, ix: NodeNumber, reservation: Reservation) {
        self.apps.push(reservation.app.seq());
        self.fill_filter();
        self.of
            .insert((reservation.app.clone(), reservation.request.clone()), ix);
        self.on.insert(ix, reservation);
    }
    /// Removes the reservation of a node.
    pub(crate) fn take(&mut self, ix: NodeNumber) -> Option<Reservation> {
        let reservation = self.on.remove(&ix)?;
        self.of
            .remove(&(reservation.app.clone(), reservation.request.clone()));
        let app = reservation.app.seq();
        if let Some(at) = self.apps.iter().position(|known| *known == app) {
            self.apps.swap_remove(at);
            self.fill_filter();
        }
        Some(reservation)
    }
    fn fill_filter(&mut self) {
        self.filter = [0; 8];
        for app in &self.apps {
            let (word, bit) = filter_bit(*app);
            self.filter[word] |= bit;
        }
    }
}

/// Word and bit of an application in the filter.
#[inline]
fn filter_bit(app: u32) -> (usize, u64) {
    ((app / 64 % 8) as usize, 1 << (app % 64))
}

#[cfg(any(test, feature = "testkit"))]
impl Reservations {
    /// Checks that the lists by node and by request agree.
    pub(crate) fn check(&self) {
        for (ix, kept) in &self.on {
            assert_eq!(
                self.of(&kept.app, &kept.request).map(|(ix, _)| ix),
                Some(*ix),
                "{}/{}: two nodes are reserved",
                kept.app,
                kept.request
            );
        }
        assert_eq!(self.of.len(), self.on.len(), "requests without a node");
        let mut apps: Vec<u32> = self.on.values().map(|kept| kept.app.seq()).collect();
        let mut listed = self.apps.clone();
        apps.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, apps, "the applications with reservations");
        let mut filled = self.clone();
        filled.fill_filter();
        assert_eq!(self.filter, filled.filter, "the filter of applications");
    }
}

/// Smallest recently granted containers: answers whether a smaller container was granted since a
/// moment, without a list of all grants.
#[derive(Clone, Debug, Default)]
pub struct RecentGrants {
    /// Grant numbers with memory; each entry has less memory than all later ones.
    memory: Vec<(u64, Bytes)>,
    /// Grant numbers with processors; each entry has fewer processors than all later ones.
    cpus: Vec<(u64, Cpus)>,
}

impl RecentGrants {
    /// Records the grant of container number `seq`.
    pub(crate) fn granted(&mut self, seq: u64, size: &Resource) {
        note(&mut self.memory, seq, size.memory);
        note(&mut self.cpus, seq, size.cpus);
    }
    /// True when a container with less memory or fewer processors was granted after container
    /// number `seq`. For a size with countable resources, every later grant counts.
    pub(crate) fn smaller_since(&self, seq: u64, size: &Resource) -> bool {
        let memory = least_since(&self.memory, seq);
        let pieces = size.extra.values().any(|pieces| *pieces > 0);
        memory.is_some_and(|least| pieces || least < size.memory)
            || least_since(&self.cpus, seq).is_some_and(|least| least < size.cpus)
    }
}

/// Most entries per list of [`RecentGrants`]; the oldest are dropped.
const MAX_RECENT: usize = 64;

fn note<T: Ord>(stack: &mut Vec<(u64, T)>, seq: u64, amount: T) {
    while stack.last().is_some_and(|(_, least)| *least >= amount) {
        stack.pop();
    }
    stack.push((seq, amount));
    if stack.len() > MAX_RECENT {
        stack.remove(0);
    }
}

fn least_since<T: Copy>(stack: &[(u64, T)], seq: u64) -> Option<T> {
    stack
        .get(stack.partition_point(|(at, _)| *at <= seq))
        .map(|(_, least)| *least)
}

/// Free resources without the amount that is set aside.
pub(crate) fn beside(free: &Resource, aside: &Resource) -> Resource {
    let left = |(name, n): (&Name, &u64)| {
        (
            name.clone(),
            n.saturating_sub(aside.extra.get(name).copied().unwrap_or(0)),
        )
    };
    let extra = if free.extra.has_none() {
        ExtraResources::default()
    } else {
        free.extra.iter().map(left).collect()
    };
    Resource {
        memory: free.memory.saturating_sub(aside.memory),
        cpus: free.cpus.checked_sub(aside.cpus).unwrap_or(Cpus::ZERO),
        extra,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::size;

    #[test]
    fn only_later_grants_of_smaller_sizes_count() {
        let mut recent_grants = RecentGrants::default();
        for (seq, gib) in [(1, 1), (2, 8), (3, 4), (4, 6)] {
            recent_grants.granted(seq, &size(gib, 4));
        }
        let since = |seq, gib| recent_grants.smaller_since(seq, &size(gib, 1));
        assert!(since(0, 2), "1 GiB was granted");
        assert!(!since(1, 4), "4 GiB is not smaller than 4 GiB");
        assert!(since(1, 5) && since(2, 5));
        assert!(!since(3, 5), "only 6 GiB was granted later");
        assert!(!since(4, 100), "no container was granted later");
        assert!(
            recent_grants.smaller_since(3, &size(1, 5)),
            "the grant has fewer processors"
        );
    }
}
