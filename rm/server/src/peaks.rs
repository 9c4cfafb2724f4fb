//! Peak memory use of each node in the last hour: the sum over its containers, from its reports. It
//! is for information only.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headroom_types::{Bytes, NodeId, UnixMillis};
use headroom_wire::v1::nodes::{NodeView, ObservedContainer};

/// Number of intervals of the hour.
const PIECES: usize = 12;
/// Length of an interval. Milliseconds.
const PIECE_MS: u64 = 300_000;
/// Number of nodes from which on nodes without a report in the last hour are removed.
const MOST: usize = 20_000;

/// Peaks of all nodes.
#[derive(Debug, Default)]
pub(crate) struct NodePeaks {
    nodes: Mutex<BTreeMap<NodeId, HourlyPeaks>>,
}

/// Peaks of one node: the largest use in each interval of the last hour.
#[derive(Clone, Copy, Debug, Default)]
struct HourlyPeaks {
    /// Number of the latest interval since 1970.
    latest: u64,
    most: [Bytes; PIECES],
}

impl HourlyPeaks {
    /// Advances to an interval, and clears intervals that are older than an hour.
    fn at(mut self, piece: u64) -> HourlyPeaks {
        let passed = usize::try_from(piece.saturating_sub(self.latest))
            .unwrap_or(usize::MAX)
            .min(PIECES);
        self.most.rotate_right(passed);
        self.most
            .iter_mut()
            .take(passed)
            .for_each(|most| *most = Bytes::ZERO);
        self.latest = self.latest.max(piece);
        self
    }
}

impl NodePeaks {
    /// Records a report of a node. A report may contain only some of its containers; its sum is
    /// then too small, which does not change a maximum.
    pub(crate) fn note(&self, node: &NodeId, containers: &[ObservedContainer], now: UnixMillis) {
        let used = containers
            .iter()
            .filter_map(|c| c.used)
            .fold(Bytes::ZERO, Bytes::saturating_add);
        let piece = now.0 / PIECE_MS;
        let mut nodes = self.nodes();
        if nodes.len() >= MOST && !nodes.contains_key(node) {
            nodes.retain(|_, hour| piece.saturating_sub(hour.latest) < PIECES as u64);
        }
        let hour = nodes.entry(node.clone()).or_default();
        *hour = hour.at(piece);
        hour.most[0] = hour.most[0].max(used);
    }

    /// Adds the peak of the hour before `now` to a node, if the node has reported in that time.
    pub(crate) fn with_peak(&self, node: NodeView, now: UnixMillis) -> NodeView {
        let piece = now.0 / PIECE_MS;
        let hour = self.nodes().get(&node.id).copied();
        let recent = hour.filter(|hour| piece.saturating_sub(hour.latest) < PIECES as u64);
        let peak_1h = recent
            .and_then(|hour| hour.at(piece).most.into_iter().max())
            .map(|most| most.max(node.used));
        NodeView { peak_1h, ..node }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, HourlyPeaks>> {
        // Poisoning is harmless: no panic can leave the map half changed.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Cpus, EnforcerKind, Resource};
    use headroom_wire::v1::nodes::NodeContainerPhase;

    fn report(mib: u64) -> Vec<ObservedContainer> {
        let one = |mib| ObservedContainer {
            container: "job.1.e1.c1".parse().expect("id"),
            request: None,
            attempt: 1,
            resource: Resource::new(Bytes::from_gib(1), Cpus::ZERO),
            version: 1,
            refused: None,
            phase: NodeContainerPhase::Running,
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
        let (peaks, node) = (NodePeaks::default(), "n1".parse().expect("id"));
        let minute = |n: u64| UnixMillis(1_000 * PIECE_MS + n * 60_000);
        let peak = |n, used| {
            peaks
                .with_peak(view(used), minute(n))
                .peak_1h
                .map(|b| b.get() >> 20)
        };
        assert_eq!(peak(0, 5), None, "the node has not reported");
        peaks.note(&node, &report(99), minute(0));
        peaks.note(&node, &report(9), minute(3));
        peaks.note(&node, &report(19), minute(30));
        assert_eq!((peak(30, 5), peak(54, 5)), (Some(100), Some(100)));
        assert_eq!(
            (peak(61, 5), peak(61, 70)),
            (Some(20), Some(70)),
            "the current use counts too"
        );
        assert_eq!(peak(95, 5), None, "the node has not reported for an hour");
    }
}
