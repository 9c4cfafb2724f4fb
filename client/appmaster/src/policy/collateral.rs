//! Kills for the limit of a cgroup around several containers, or for the memory of the host.
//! Neither the task nor its executor used too much. The task waits longer after each such kill, and
//! a place with repeated kills is no longer used.
//!
//! A container with [`MAX_PER_CONTAINER`] such kills takes no more tasks and ends. A node with
//! [`MAX_PER_NODE`] is excluded for the rest of the job. Kills in quick succession have one cause
//! and count once. A kill is charged to the task in two cases: on a node that was excluded before
//! the attempt started, while the job has no executor on another node, and after [`MAX_PER_TASK`]
//! kills.

use std::collections::BTreeMap;
use std::time::Duration;

use headroom_types::{ContainerId, NodeId, UnixMillis, millis};

use super::backoff::backoff;
use super::classify::AttemptEndClass;
use super::decision_input::DecisionInput;
use super::task_decision::{AvoidScope, TaskDecision};

/// Number of kills after which an executor ends.
pub const MAX_PER_CONTAINER: u32 = 2;
/// Number of kills after which a node is excluded.
pub const MAX_PER_NODE: u32 = 3;
/// Number of kills after which further ones are charged to the task on every node.
pub const MAX_PER_TASK: u32 = 20;
/// Time within which kills on one node have the same cause as the first of them.
const SAME_CAUSE: Duration = Duration::from_secs(2);

/// Kills in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CollateralKillCount {
    count: u32,
    /// Time of the first kill of the last cause.
    last: UnixMillis,
    /// Time at which the maximum was reached.
    full: Option<UnixMillis>,
}

impl CollateralKillCount {
    /// Counts a kill. True when it reaches the maximum.
    fn add(&mut self, at: UnixMillis, most: u32) -> bool {
        if self.count > 0 && at.since(self.last) < SAME_CAUSE {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.last = at;
        let fills = self.full.is_none() && self.count >= most;
        self.full = self.full.or_else(|| fills.then_some(at));
        fills
    }
}

/// The consequences of a kill for its container and node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillConsequence {
    /// The container takes no more tasks and ends.
    pub retire: bool,
    /// The node is excluded from now on.
    pub exclude: bool,
}

/// Whether the job has an executor on a node that is not excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherNodeExists {
    /// It has one.
    There,
    /// It has none.
    Missing,
}

/// All such kills of a job. The records reproduce it exactly.
#[derive(Clone, Debug, Default)]
pub struct CollateralKills {
    nodes: BTreeMap<NodeId, CollateralKillCount>,
    containers: BTreeMap<ContainerId, CollateralKillCount>,
    last: KillConsequence,
}

impl CollateralKills {
    /// Counts a killed attempt and returns the consequences.
    pub fn killed(
        &mut self,
        node: &NodeId,
        container: &ContainerId,
        at: UnixMillis,
    ) -> KillConsequence {
        let none = CollateralKillCount {
            count: 0,
            last: at,
            full: None,
        };
        let retire = self
            .containers
            .entry(container.clone())
            .or_insert(none)
            .add(at, MAX_PER_CONTAINER);
        let exclude = self
            .nodes
            .entry(node.clone())
            .or_insert(none)
            .add(at, MAX_PER_NODE);
        self.last = KillConsequence { retire, exclude };
        self.last
    }

    /// The consequences of the last kill.
    pub fn last_consequence(&self) -> KillConsequence {
        self.last
    }

    /// Removes a container that has ended.
    pub fn forget(&mut self, container: &ContainerId) {
        self.containers.remove(container);
    }

    /// True when the node is excluded.
    pub fn is_excluded(&self, node: &NodeId) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|kills| kills.full.is_some())
    }

    /// Excluded nodes.
    pub fn excluded(&self) -> impl Iterator<Item = &NodeId> {
        self.nodes
            .iter()
            .filter(|(_, kills)| kills.full.is_some())
            .map(|(node, _)| node)
    }

    /// Containers that take no more tasks.
    pub fn retired(&self) -> impl Iterator<Item = &ContainerId> {
        self.containers
            .iter()
            .filter(|(_, kills)| kills.full.is_some())
            .map(|(container, _)| container)
    }

    /// The class of an attempt's end, from its start time and the earlier kills of its task.
    pub fn class(
        &self,
        node: &NodeId,
        started: UnixMillis,
        (elsewhere, kills): (OtherNodeExists, u32),
        class: AttemptEndClass,
    ) -> AttemptEndClass {
        let excluded = self.nodes.get(node).and_then(|kills| kills.full);
        let forced =
            elsewhere == OtherNodeExists::Missing && excluded.is_some_and(|full| started >= full);
        if class == AttemptEndClass::Collateral && (forced || kills >= MAX_PER_TASK) {
            AttemptEndClass::Transient
        } else {
            class
        }
    }
}

/// The next attempt: after a wait that grows with each kill, and on another node if there is one.
pub(super) fn again(case: &DecisionInput<'_>) -> TaskDecision {
    let wait = backoff(case.spent.collateral.saturating_add(1));
    let why = format!(
        "not caused by the task ({}): same size on another node in {} s, not charged",
        case.reason,
        wait.as_secs()
    );
    let wait_ms = millis(wait);
    TaskDecision::Again {
        size: case.size.clone(),
        wait_ms,
        elsewhere: AvoidScope::Node,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(node: &str, container: u32) -> (NodeId, ContainerId) {
        (
            node.parse().expect("a node"),
            format!("job.1.e1.c{container}")
                .parse()
                .expect("a container"),
        )
    }

    /// Applies kills at these times in seconds, by node and container; returns the consequences of
    /// each.
    fn play(kills: &[(u64, &str, u32)]) -> (CollateralKills, Vec<(bool, bool)>) {
        let mut all = CollateralKills::default();
        let one = |(s, node, container): &(u64, &str, u32)| {
            let (node, container) = ids(node, *container);
            let what = all.killed(&node, &container, UnixMillis(s * 1000));
            (what.retire, what.exclude)
        };
        let results = kills.iter().map(one).collect();
        (all, results)
    }

    #[test]
    fn repeated_kills_retire_the_container_and_exclude_the_node() {
        const NO: (bool, bool) = (false, false);
        type Row = (
            &'static str,
            &'static [(u64, &'static str, u32)],
            &'static [(bool, bool)],
        );
        let table: [Row; 6] = [
            ("one kill", &[(10, "n0", 1)], &[NO]),
            ("eight tasks at once", &[(10, "n0", 1); 8], &[NO; 8]),
            (
                "two in one container",
                &[(10, "n0", 1), (20, "n0", 1)],
                &[NO, (true, false)],
            ),
            (
                "one in each of two containers",
                &[(10, "n0", 1), (20, "n0", 2)],
                &[NO, NO],
            ),
            (
                "three on one node",
                &[(10, "n0", 1), (20, "n0", 2), (30, "n0", 3)],
                &[NO, NO, (false, true)],
            ),
            (
                "once on each of three nodes",
                &[(10, "n0", 1), (20, "n1", 2), (30, "n2", 3)],
                &[NO, NO, NO],
            ),
        ];
        for (name, kills, wanted) in table {
            assert_eq!(play(kills).1, wanted, "{name}");
        }
    }

    #[test]
    fn an_excluded_node_stays_excluded_and_is_reported_once() {
        let (all, results) = play(&[(10, "n0", 1), (20, "n0", 2), (30, "n0", 3), (40, "n0", 4)]);
        assert_eq!(results.iter().filter(|(_, exclude)| *exclude).count(), 1);
        assert_eq!(
            all.excluded().map(NodeId::as_str).collect::<Vec<_>>(),
            ["n0"]
        );
    }

    #[test]
    fn only_attempts_started_on_an_excluded_node_are_charged() {
        let (all, _) = play(&[(10, "n0", 1), (20, "n0", 2), (30, "n0", 3)]);
        let class = |node: &str, started, elsewhere, kills| {
            all.class(
                &ids(node, 1).0,
                UnixMillis(started),
                (elsewhere, kills),
                AttemptEndClass::Collateral,
            )
        };
        let (there, missing) = (OtherNodeExists::There, OtherNodeExists::Missing);
        let table = [
            (
                "the attempt started before the exclusion",
                class("n0", 29_999, missing, 1),
                AttemptEndClass::Collateral,
            ),
            (
                "no other node was available",
                class("n0", 30_000, missing, 1),
                AttemptEndClass::Transient,
            ),
            (
                "another node is available",
                class("n0", 30_000, there, 1),
                AttemptEndClass::Collateral,
            ),
            (
                "the node is not excluded",
                class("n1", 60_000, missing, 1),
                AttemptEndClass::Collateral,
            ),
            (
                "the maximum of all tasks",
                class("n1", 60_000, there, MAX_PER_TASK),
                AttemptEndClass::Transient,
            ),
        ];
        for (name, found, wanted) in table {
            assert_eq!(found, wanted, "{name}");
        }
        assert_eq!(
            all.class(
                &ids("n0", 1).0,
                UnixMillis(60_000),
                (missing, 1),
                AttemptEndClass::Plain
            ),
            AttemptEndClass::Plain
        );
    }

    #[test]
    fn a_container_that_is_gone_is_forgotten() {
        let (mut all, _) = play(&[(10, "n0", 1), (20, "n0", 1)]);
        assert_eq!(all.retired().count(), 1);
        all.forget(&ids("n0", 1).1);
        assert_eq!(all.retired().count(), 0);
    }
}
