//! Limit warnings: containers near their limit, reported once each from the reports of nodes. They
//! are for information only.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use headroom_types::{Bytes, ContainerId, NodeId, Reason, UnixMillis};
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use headroom_wire::v1::nodes::{NodeContainerPhase, ObservedContainer};

use crate::eventlog;

/// Share of the limit from which a container gets a warning; page cache does not count. Percent.
const NEAR: u64 = 90;
/// Limit on containers whose warning is remembered.
const MOST: usize = 10_000;

/// Containers whose warning was reported.
#[derive(Debug, Default)]
pub(crate) struct LimitWarnings {
    reported: Mutex<BTreeSet<ContainerId>>,
}

/// A container near its limit, with its use and its limit.
pub(crate) type NearLimitContainer = (ContainerId, Bytes, Bytes);

/// Containers of a report that are near their limit. Takes no lock, because mostly there is none.
pub(crate) fn those_in(containers: &[ObservedContainer]) -> Vec<NearLimitContainer> {
    // A use above the limit was measured before the limit was lowered, so it does not show the
    // current use.
    let near = |c: &&ObservedContainer| {
        let limit = c.resource.memory;
        c.phase == NodeContainerPhase::Running
            && c.anon
                .is_some_and(|a| a >= limit.mul_ratio(NEAR, 100) && a <= limit)
    };
    containers
        .iter()
        .filter(near)
        .filter_map(|c| Some((c.container.clone(), c.anon?, c.resource.memory)))
        .collect()
}

impl LimitWarnings {
    /// Events for containers that were not reported before.
    pub(crate) fn events(
        &self,
        node: &NodeId,
        now: UnixMillis,
        found: Vec<NearLimitContainer>,
    ) -> Vec<LoggedEvent> {
        if found.is_empty() {
            return Vec::new();
        }
        // Poisoning is harmless: no panic can leave the set half changed.
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= MOST {
            reported.clear();
        }
        let fresh = found
            .into_iter()
            .filter(|(container, _, _)| reported.insert(container.clone()));
        fresh.map(|found| event(node, now, &found)).collect()
    }
}

fn event(
    node: &NodeId,
    now: UnixMillis,
    (container, anon, limit): &NearLimitContainer,
) -> LoggedEvent {
    let message = format!("uses {anon} of {limit}, without page cache");
    let (level, object) = (EventLevel::Warning, container.to_string());
    LoggedEvent {
        app: Some(container.app.clone()),
        node: Some(node.clone()),
        ..eventlog::event(now, level, Reason::NearLimit, object, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Cpus, Resource};

    fn observed(anon: u64) -> ObservedContainer {
        ObservedContainer {
            container: "job.1.e1.c1".parse().expect("id"),
            request: None,
            attempt: 1,
            resource: Resource::new(Bytes::new(100), Cpus::from_cores(1)),
            version: 1,
            refused: None,
            phase: NodeContainerPhase::Running,
            used: Some(Bytes::new(99)),
            anon: Some(Bytes::new(anon)),
            granted: UnixMillis(0),
        }
    }

    #[test]
    fn each_container_is_reported_once() {
        let (near, node) = (LimitWarnings::default(), "n1".parse().expect("id"));
        let events_at = |anon| {
            near.events(&node, UnixMillis(5), those_in(&[observed(anon)]))
                .len()
        };
        assert_eq!(
            [events_at(89), events_at(101), events_at(90), events_at(95)],
            [0, 0, 1, 0],
            "neither page cache nor a use above the limit causes a warning"
        );
    }
}
