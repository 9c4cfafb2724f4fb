//! The most memory that the containers of each node had at once in the last hour, as their reports told it. Nothing is decided by it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headroom_types::{Bytes, NodeId, UnixMillis};
use headroom_wire::v1::nodes::{NodeView, Observed};

/// Pieces of an hour.
const PIECES: usize = 12;
/// Length of a piece. Milliseconds.
const PIECE_MS: u64 = 300_000;
/// From so many nodes on, those that said nothing for an hour are forgotten.
const MOST: usize = 20_000;

/// Of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    nodes: Mutex<BTreeMap<NodeId, Hour>>,
}

/// Of one node: the largest use in each piece of the last hour.
#[derive(Clone, Copy, Debug, Default)]
struct Hour {
    /// The latest piece, counted from the beginning of time.
    latest: u64,
    most: [Bytes; PIECES],
}

impl Hour {
    /// Moves on to a piece; what is older than an hour then is forgotten.
    fn at(mut self, piece: u64) -> Hour {
        let passed = usize::try_from(piece.saturating_sub(self.latest)).unwrap_or(usize::MAX).min(PIECES);
        self.most.rotate_right(passed);
        self.most.iter_mut().take(passed).for_each(|most| *most = Bytes::ZERO);
        self.latest = self.latest.max(piece);
        self
    }
}

impl Peaks {
    /// A node has reported. A report may name only some of its containers: then it tells of less than there is, which harms no largest value.
    pub(crate) fn note(&self, node: &NodeId, containers: &[Observed], now: UnixMillis) {
        let used = containers.iter().filter_map(|c| c.used).fold(Bytes::ZERO, Bytes::saturating_add);
        let piece = now.0 / PIECE_MS;
        let mut nodes = self.nodes();
        if nodes.len() >= MOST && !nodes.contains_key(node) {
            nodes.retain(|_, hour| piece.saturating_sub(hour.latest) < PIECES as u64);
        }
        let hour = nodes.entry(node.clone()).or_default();
        *hour = hour.at(piece);
        hour.most[0] = hour.most[0].max(used);
    }

    /// The node with its largest use of the hour before `now`, where it has reported in that time.
    pub(crate) fn told(&self, node: NodeView, now: UnixMillis) -> NodeView {
        let piece = now.0 / PIECE_MS;
        let hour = self.nodes().get(&node.id).copied();
        let recent = hour.filter(|hour| piece.saturating_sub(hour.latest) < PIECES as u64);
        let peak_1h = recent.and_then(|hour| hour.at(piece).most.into_iter().max()).map(|most| most.max(node.used));
        NodeView { peak_1h, ..node }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, Hour>> {
        // Whoever panicked here left whole hours behind.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Cpus, EnforcerKind, Resource};
    use headroom_wire::v1::nodes::Phase;

    fn report(mib: u64) -> Vec<Observed> {
        let one = |mib| Observed {
            container: "job.1.e1.c1".parse().expect("id"),
            request: None,
            attempt: 1,
            resource: Resource::new(Bytes::from_gib(1), Cpus::ZERO),
            version: 1,
            refused: None,
            phase: Phase::Running,
            used: Some(Bytes::from_mib(mib)),
            anon: None,
            granted: UnixMillis(0),
        };
        vec![one(mib), one(1)]
    }

    fn view(used: u64) -> NodeView {
        NodeView {
            id: "n1".parse().expect("id"),
            state: "ready".into(),
            reason: None,
            enforcer: EnforcerKind::Cgroup2,
            offers: Resource::new(Bytes::from_gib(4), Cpus::ZERO),
            allocated: Resource::default(),
            allocated_heap: Bytes::ZERO,
            used: Bytes::from_mib(used),
            host_used: Bytes::ZERO,
            unattributed: Bytes::ZERO,
            left_by: Vec::new(),
            containers: 0,
            url: String::new(),
            version: String::new(),
            traits: Default::default(),
            tags: Default::default(),
            silent_ms: 0,
            mark: None,
            peak_1h: None,
        }
    }

    #[test]
    fn the_largest_use_is_kept_for_an_hour() {
        let (peaks, node) = (Peaks::default(), "n1".parse().expect("id"));
        let minute = |n: u64| UnixMillis(1_000 * PIECE_MS + n * 60_000);
        let peak = |n, used| peaks.told(view(used), minute(n)).peak_1h.map(|b| b.get() >> 20);
        assert_eq!(peak(0, 5), None, "it has not reported");
        peaks.note(&node, &report(99), minute(0));
        peaks.note(&node, &report(9), minute(3));
        peaks.note(&node, &report(19), minute(30));
        assert_eq!((peak(30, 5), peak(54, 5)), (Some(100), Some(100)));
        assert_eq!((peak(61, 5), peak(61, 70)), (Some(20), Some(70)), "what is used now counts as well");
        assert_eq!(peak(95, 5), None, "it has said nothing for an hour");
    }
}
