//! Records of agents and masters, and their comparison. This module is pure.
//!
//! An agent records the containers that it launched and that ended. A master records its requests
//! and the ends that were reported to it. When all requested containers have run and ended, each
//! was launched once, by one agent, and its end is known to its master.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Bytes, ContainerId, NodeId, RequestId};
use headroom_wire::v1::nodes::ObservedContainer;

/// Maximum number of notes on differences.
const NOTES: usize = 8;

/// The record of one agent.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    /// The agent's node.
    pub node: NodeId,
    /// All launched containers, in order.
    pub launched: Vec<(ContainerId, RequestId)>,
    /// All ended containers.
    pub ended: Vec<ContainerId>,
    /// Launches beyond the node's memory.
    pub oversold: u64,
    /// Number of connection errors.
    pub troubles: u64,
    /// The latest connection error.
    pub trouble: Option<String>,
}

impl AgentRecord {
    /// An empty record.
    pub fn of(node: NodeId) -> Self {
        AgentRecord {
            node,
            launched: Vec::new(),
            ended: Vec::new(),
            oversold: 0,
            troubles: 0,
            trouble: None,
        }
    }
    /// Records a launch.
    pub fn launched(&mut self, container: &ObservedContainer) {
        let Some(request) = &container.request else {
            return;
        };
        self.launched
            .push((container.container.clone(), request.clone()));
    }
    /// Records an end.
    pub fn ended(&mut self, container: &ContainerId) {
        self.ended.push(container.clone());
    }
    /// Compares the memory of all running containers with the node's memory.
    pub fn holds(&mut self, memory: Bytes, offers: Bytes) {
        self.oversold += u64::from(memory > offers);
    }
    /// Records a connection error.
    pub fn trouble(&mut self, error: &anyhow::Error) {
        self.troubles += 1;
        self.trouble = Some(format!("{error:#}"));
    }
}

/// The record of one master.
#[derive(Clone, Debug)]
pub struct MasterRecord {
    /// The master's application.
    pub app: AppId,
    /// Total number of requested containers, by request.
    pub asked: BTreeMap<RequestId, u32>,
    /// Containers whose end was reported to it.
    pub ended: BTreeSet<ContainerId>,
    /// Number of connection errors.
    pub troubles: u64,
    /// The latest connection error.
    pub trouble: Option<String>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordComparison {
    /// Containers launched by all agents.
    pub launched: u64,
    /// Containers that were requested and never launched, or ended without a report to the master.
    pub lost: u64,
    /// Containers that were launched twice, or launched beyond the requested number.
    pub twice: u64,
    /// Launches beyond the memory of a node.
    pub oversold: u64,
    /// Connection errors of agents and masters.
    pub troubles: u64,
    /// Descriptions of the first differences.
    pub notes: Vec<String>,
}

impl RecordComparison {
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.notes.len() < NOTES {
            self.notes.push(what());
        }
    }
}

/// Compares all records after the end of a run.
pub fn compare(agents: &[AgentRecord], masters: &[MasterRecord]) -> RecordComparison {
    let mut balance = RecordComparison::default();
    let mut launched: BTreeMap<&ContainerId, &NodeId> = BTreeMap::new();
    let mut by_request: BTreeMap<(&AppId, &RequestId), u32> = BTreeMap::new();
    balance.troubles = agents
        .iter()
        .map(|a| a.troubles)
        .chain(masters.iter().map(|m| m.troubles))
        .sum();
    for agent in agents {
        balance.oversold += agent.oversold;
        for (container, request) in &agent.launched {
            balance.launched += 1;
            match launched.insert(container, &agent.node) {
                None => *by_request.entry((&container.app, request)).or_default() += 1,
                Some(other) => {
                    balance.twice += 1;
                    balance.note(|| {
                        format!("{container} was launched by {other} and by {}", agent.node)
                    });
                }
            }
        }
    }
    for master in masters {
        for (request, asked) in &master.asked {
            let given = by_request.remove(&(&master.app, request)).unwrap_or(0);
            balance.lost += u64::from(asked.saturating_sub(given));
            balance.twice += u64::from(given.saturating_sub(*asked));
            if given != *asked {
                balance.note(|| {
                    format!(
                        "{} requested {asked} of {request}, but {given} were launched",
                        master.app
                    )
                });
            }
        }
    }
    for ((app, request), given) in by_request {
        balance.twice += u64::from(given);
        balance.note(|| format!("{given} of {request} were launched for {app} without a request"));
    }
    let troubles = agents
        .iter()
        .map(|a| &a.trouble)
        .chain(masters.iter().map(|m| &m.trouble));
    for trouble in troubles.flatten().take(NOTES / 2) {
        balance.note(|| trouble.clone());
    }
    let reported: BTreeMap<&AppId, &BTreeSet<ContainerId>> =
        masters.iter().map(|m| (&m.app, &m.ended)).collect();
    for container in agents.iter().flat_map(|a| &a.ended) {
        if !reported
            .get(&container.app)
            .is_some_and(|ended| ended.contains(container))
        {
            balance.lost += 1;
            balance.note(|| format!("{container} ended, but its master received no report"));
        }
    }
    balance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(n: u64) -> ContainerId {
        format!("job.1.e1.c{n}").parse().expect("an id")
    }
    fn agent(name: &str, launched: &[u64], ended: &[u64]) -> AgentRecord {
        let mut book = AgentRecord::of(name.parse().expect("an id"));
        book.launched = launched
            .iter()
            .map(|n| (container(*n), "r".parse().expect("an id")))
            .collect();
        book.ended = ended.iter().map(|n| container(*n)).collect();
        book
    }
    fn master(asked: u32, ended: &[u64]) -> MasterRecord {
        MasterRecord {
            app: "job.1".parse().expect("an id"),
            asked: [("r".parse().expect("an id"), asked)].into(),
            ended: ended.iter().map(|n| container(*n)).collect(),
            troubles: 0,
            trouble: None,
        }
    }

    #[test]
    fn equal_records_give_no_differences() {
        let balance = compare(
            &[agent("a", &[1, 2], &[1, 2]), agent("b", &[3], &[3])],
            &[master(3, &[1, 2, 3])],
        );
        assert_eq!(
            balance,
            RecordComparison {
                launched: 3,
                ..RecordComparison::default()
            }
        );
    }

    #[test]
    fn unreported_ends_and_missing_containers_count_as_lost() {
        let balance = compare(&[agent("a", &[1, 2], &[1, 2])], &[master(3, &[1])]);
        assert_eq!((balance.lost, balance.twice), (2, 0), "{balance:?}");
    }

    #[test]
    fn double_and_surplus_launches_count_as_twice() {
        let balance = compare(
            &[agent("a", &[1, 2], &[]), agent("b", &[2, 3], &[])],
            &[master(2, &[])],
        );
        assert_eq!((balance.lost, balance.twice), (0, 2), "{balance:?}");
        assert_eq!(
            compare(&[agent("a", &[1], &[])], &[]).twice,
            1,
            "a launch without a request"
        );
    }
}
