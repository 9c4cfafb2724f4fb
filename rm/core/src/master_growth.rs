//! Size of the next attempt of a managed master after a memory failure.
//!
//! Without [`MasterGrowth`], heap and overhead grow together, and the failed attempt is charged.
//! With it, only the quantity that ran out doubles. The failed attempt is then not charged: the
//! sizes double, so their number is bounded.

use headroom_types::{AppId, Bytes, Dimension, ExitCharge, ExitReason, MasterGrowth, Reason};

use crate::app::{ClusterApplication, MasterSize};
use crate::attempt::AttemptFailure;
use crate::cluster::Cluster;
use crate::event::{EventLogLine, LogSeverity, MasterKind};
use crate::grant::container_line;

/// Size of the next attempt of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextMasterSize {
    /// The same size.
    Same,
    /// A larger size without declared growth; the failed attempt is charged.
    Doubled(MasterSize),
    /// A larger size by declared growth; the failed attempt is not charged.
    Grown(MasterSize),
    /// Growth is declared, but no larger size is possible. Reason for users.
    Exhausted(String),
}

impl NextMasterSize {
    /// True when the failed attempt is not charged because the next one is larger.
    pub(crate) fn is_grown(&self) -> bool {
        match self {
            NextMasterSize::Grown(_) => true,
            NextMasterSize::Same | NextMasterSize::Doubled(_) | NextMasterSize::Exhausted(_) => {
                false
            }
        }
    }
    /// Reason that no larger size is possible, as an addition to the reason of the failure.
    pub(crate) fn limit(&self) -> String {
        match self {
            NextMasterSize::Exhausted(sentence) => format!("; {sentence}"),
            NextMasterSize::Same | NextMasterSize::Doubled(_) | NextMasterSize::Grown(_) => {
                String::new()
            }
        }
    }
}

impl Cluster {
    /// Size of the attempt that follows a failed attempt.
    pub(crate) fn next_master_size(&self, id: &AppId, failure: AttemptFailure) -> NextMasterSize {
        let Some(app) = self.apps.get(id) else {
            return NextMasterSize::Same;
        };
        let (AttemptFailure::Exited(reason), Some(size), MasterKind::Managed { growth, .. }) =
            (failure, &app.master, &app.spec.master)
        else {
            return NextMasterSize::Same;
        };
        if reason.charge() != ExitCharge::Memory {
            return NextMasterSize::Same;
        }
        let largest = self.nodes.largest().map(|(_, largest)| largest.memory);
        // A master above the limit of its queue would wait for ever.
        let never = |next: &MasterSize| {
            let leaf = self.queue.leaf_of(id)?;
            self.never_in_queue(leaf, &next.resource)
        };
        let Some(growth) = growth else {
            let next = doubled(size, largest);
            return if never(&next).is_none() {
                NextMasterSize::Doubled(next)
            } else {
                NextMasterSize::Same
            };
        };
        let next = match grown(size, reason, *growth, largest) {
            Ok(next) => next,
            Err(sentence) => return NextMasterSize::Exhausted(sentence),
        };
        match never(&next) {
            Some((sentence, _)) => {
                NextMasterSize::Exhausted(format!("the next size is not possible: it {sentence}"))
            }
            None => NextMasterSize::Grown(next),
        }
    }
}

/// Twice the size, heap included, but at most the memory of the largest node.
fn doubled(size: &MasterSize, largest: Option<Bytes>) -> MasterSize {
    let before = size.resource.memory;
    let twice = before.mul_ratio(2, 1);
    let memory = largest.map_or(twice, |largest| twice.min(largest.max(before)));
    let mut resource = size.resource.clone();
    resource.memory = memory;
    MasterSize {
        resource,
        heap: size
            .heap
            .map(|heap| heap.mul_ratio(memory.get(), before.get())),
    }
}

/// The size with twice the quantity that ran out. Below twice, it is cut to whole MiB, which every
/// runtime accepts as a heap. Fails with a sentence when the size is at its maximum.
fn grown(
    size: &MasterSize,
    reason: ExitReason,
    growth: MasterGrowth,
    largest: Option<Bytes>,
) -> Result<MasterSize, String> {
    let memory = size.resource.memory;
    let (most, limit) = match largest.filter(|largest| *largest < growth.max_memory) {
        Some(largest) => (largest, "the largest node offers"),
        None => (growth.max_memory, "its growth ends at"),
    };
    let (dimension, quantity) = exhausted_quantity(size, reason);
    let room = Bytes::from_mib(most.saturating_sub(memory).whole_mib());
    let added = quantity.min(room);
    if added.is_zero() {
        return Err(format!("it has {memory} and cannot grow: {limit} {most}"));
    }
    let mut resource = size.resource.clone();
    resource.memory = memory.saturating_add(added);
    let heap = match dimension {
        Dimension::Heap => size.heap.map(|heap| heap.saturating_add(added)),
        Dimension::Overhead | Dimension::Native => size.heap,
    };
    Ok(MasterSize { resource, heap })
}

/// The quantity that ran out, and its size. An overhead of zero counts as the whole memory, because
/// twice nothing is no growth.
fn exhausted_quantity(size: &MasterSize, reason: ExitReason) -> (Dimension, Bytes) {
    let memory = size.resource.memory;
    match (size.heap, reason) {
        (None, _) => (Dimension::Native, memory),
        (Some(heap), ExitReason::HeapOom) => (Dimension::Heap, heap),
        (Some(heap), _) => {
            let overhead = memory.saturating_sub(heap);
            let quantity = if overhead.is_zero() { memory } else { overhead };
            (Dimension::Overhead, quantity)
        }
    }
}

/// Line of the event log about a larger next attempt, for the container of the failed one. `None`
/// without declared growth.
pub(crate) fn escalation_line(
    app: &ClusterApplication,
    next: &NextMasterSize,
) -> Option<EventLogLine> {
    let NextMasterSize::Grown(after) = next else {
        return None;
    };
    let (failed, before) = (app.runs.current()?, app.master.as_ref()?);
    let (container, node) = (failed.container.as_ref()?, failed.node.as_ref()?);
    let message = format!(
        "attempt {} of the master gets {}",
        app.attempt + 1,
        change(before, after)
    );
    Some(container_line(
        LogSeverity::Warning,
        Reason::Escalated,
        container,
        node,
        message,
    ))
}

/// Both sizes, for users: "heap 2 GiB instead of 1 GiB, memory 2.4 GiB instead of 1.4 GiB".
fn change(before: &MasterSize, after: &MasterSize) -> String {
    let overhead = |size: &MasterSize| {
        size.heap
            .map(|heap| size.resource.memory.saturating_sub(heap))
    };
    let line = |name: &str, before: Option<Bytes>, after: Option<Bytes>| {
        let (before, after) = before
            .zip(after)
            .filter(|(before, after)| before != after)?;
        Some(format!("{name} {after} instead of {before}"))
    };
    let parts = [
        line("heap", before.heap, after.heap),
        line("overhead", overhead(before), overhead(after)),
        line(
            "memory",
            Some(before.resource.memory),
            Some(after.resource.memory),
        ),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use headroom_types::{Cpus, Resource};

    use super::*;

    fn size(memory: u64, heap: Option<u64>) -> MasterSize {
        MasterSize {
            resource: Resource::new(Bytes::from_mib(memory), Cpus::from_cores(1)),
            heap: heap.map(Bytes::from_mib),
        }
    }
    fn next(now: &MasterSize, reason: ExitReason, most: u64) -> Result<MasterSize, String> {
        let growth = MasterGrowth {
            max_memory: Bytes::from_mib(most),
        };
        grown(now, reason, growth, Some(Bytes::from_mib(8192)))
    }

    #[test]
    fn only_the_quantity_that_ran_out_doubles() {
        let now = size(1408, Some(1024));
        let heap = next(&now, ExitReason::HeapOom, 8192).expect("grows");
        assert_eq!(heap, size(2432, Some(2048)));
        for reason in [
            ExitReason::OverheadOom,
            ExitReason::TaskOom,
            ExitReason::StalledAtLimit,
        ] {
            assert_eq!(next(&now, reason, 8192), Ok(size(1792, Some(1024))));
        }
        assert_eq!(
            next(&size(512, None), ExitReason::OverheadOom, 8192),
            Ok(size(1024, None))
        );
        assert_eq!(
            change(&now, &heap),
            "heap 2 GiB instead of 1 GiB, memory 2.4 GiB instead of 1.4 GiB"
        );
    }

    #[test]
    fn a_size_without_overhead_grows_by_its_memory() {
        assert_eq!(
            next(&size(512, Some(512)), ExitReason::OverheadOom, 8192),
            Ok(size(1024, Some(512)))
        );
    }

    #[test]
    fn the_maximum_and_the_largest_node_limit_the_growth() {
        let now = size(1408, Some(1024));
        let cut = next(&now, ExitReason::HeapOom, 2000).expect("grows");
        assert_eq!(cut, size(2000, Some(1616)));
        assert_eq!(
            next(&cut, ExitReason::HeapOom, 2000),
            Err("it has 2.0 GiB and cannot grow: its growth ends at 2.0 GiB".to_owned())
        );
        let wide = next(&size(8192, Some(7000)), ExitReason::HeapOom, 99_999);
        assert!(wide.expect_err("at the node").contains("the largest node"));
    }
}
