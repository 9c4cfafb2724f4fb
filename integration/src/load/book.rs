//! What agents and masters wrote down, and whether it agrees: pure.
//!
//! An agent writes down what it launched and what ended, a master what it asked for and whose end it was told. When everything
//! that was asked for has run and ended, each container was launched once, by one agent, and its end is known to its master.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{AppId, Bytes, ContainerId, NodeId, RequestId};
use headroom_wire::v1::nodes::Observed;

/// Notes kept of what does not agree.
const NOTES: usize = 8;

/// What one agent saw.
#[derive(Clone, Debug)]
pub struct AgentBook {
    /// Who wrote it.
    pub node: NodeId,
    /// Everything it launched, in order.
    pub launched: Vec<(ContainerId, RequestId)>,
    /// Everything that ended.
    pub ended: Vec<ContainerId>,
    /// Launches that were more than it offers.
    pub oversold: u64,
    /// Times that its line broke.
    pub troubles: u64,
    /// The latest reason for that.
    pub trouble: Option<String>,
}

impl AgentBook {
    /// An empty one.
    pub fn of(node: NodeId) -> Self {
        AgentBook { node, launched: Vec::new(), ended: Vec::new(), oversold: 0, troubles: 0, trouble: None }
    }
    /// It launched something.
    pub fn launched(&mut self, container: &Observed) {
        let Some(request) = &container.request else { return };
        self.launched.push((container.container.clone(), request.clone()));
    }
    /// Something ended.
    pub fn ended(&mut self, container: &ContainerId) {
        self.ended.push(container.clone());
    }
    /// All that it runs now takes so much of what it offers.
    pub fn holds(&mut self, memory: Bytes, offers: Bytes) {
        self.oversold += u64::from(memory > offers);
    }
    /// Its line broke.
    pub fn trouble(&mut self, error: &anyhow::Error) {
        self.troubles += 1;
        self.trouble = Some(format!("{error:#}"));
    }
}

/// What one master saw.
#[derive(Clone, Debug)]
pub struct MasterBook {
    /// Whose it is.
    pub app: AppId,
    /// Containers asked for in all, by request.
    pub asked: BTreeMap<RequestId, u32>,
    /// Containers whose end it was told.
    pub ended: BTreeSet<ContainerId>,
    /// Times that its line broke, and the latest reason.
    pub troubles: u64,
    /// The latest reason for that.
    pub trouble: Option<String>,
}

/// How the books compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Containers launched by anybody.
    pub launched: u64,
    /// Asked for and never launched, or ended and never told.
    pub lost: u64,
    /// Launched twice, or launched beyond what was asked for.
    pub twice: u64,
    /// Launches that were more than a node offers.
    pub oversold: u64,
    /// Times that a line of an agent or a master broke.
    pub troubles: u64,
    /// The first of all that does not agree, in words.
    pub notes: Vec<String>,
}

impl Balance {
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.notes.len() < NOTES {
            self.notes.push(what());
        }
    }
}

/// Compares the books of everybody, when all is over.
pub fn compare(agents: &[AgentBook], masters: &[MasterBook]) -> Balance {
    let mut balance = Balance::default();
    let mut launched: BTreeMap<&ContainerId, &NodeId> = BTreeMap::new();
    let mut by_request: BTreeMap<(&AppId, &RequestId), u32> = BTreeMap::new();
    balance.troubles = agents.iter().map(|a| a.troubles).chain(masters.iter().map(|m| m.troubles)).sum();
    for agent in agents {
        balance.oversold += agent.oversold;
        for (container, request) in &agent.launched {
            balance.launched += 1;
            match launched.insert(container, &agent.node) {
                None => *by_request.entry((&container.app, request)).or_default() += 1,
                Some(other) => {
                    balance.twice += 1;
                    balance.note(|| format!("{container} was launched by {other} and by {}", agent.node));
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
                balance.note(|| format!("{} asked for {asked} of {request}, and {given} were launched", master.app));
            }
        }
    }
    for ((app, request), given) in by_request {
        balance.twice += u64::from(given);
        balance.note(|| format!("{given} of {request} were launched for {app}, and nobody asked"));
    }
    let troubles = agents.iter().map(|a| &a.trouble).chain(masters.iter().map(|m| &m.trouble));
    for trouble in troubles.flatten().take(NOTES / 2) {
        balance.note(|| trouble.clone());
    }
    let told: BTreeMap<&AppId, &BTreeSet<ContainerId>> = masters.iter().map(|m| (&m.app, &m.ended)).collect();
    for container in agents.iter().flat_map(|a| &a.ended) {
        if !told.get(&container.app).is_some_and(|ended| ended.contains(container)) {
            balance.lost += 1;
            balance.note(|| format!("{container} ended, and its master was not told"));
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
    fn agent(name: &str, launched: &[u64], ended: &[u64]) -> AgentBook {
        let mut book = AgentBook::of(name.parse().expect("an id"));
        book.launched = launched.iter().map(|n| (container(*n), "r".parse().expect("an id"))).collect();
        book.ended = ended.iter().map(|n| container(*n)).collect();
        book
    }
    fn master(asked: u32, ended: &[u64]) -> MasterBook {
        MasterBook {
            app: "job.1".parse().expect("an id"),
            asked: [("r".parse().expect("an id"), asked)].into(),
            ended: ended.iter().map(|n| container(*n)).collect(),
            troubles: 0,
            trouble: None,
        }
    }

    #[test]
    fn books_that_agree() {
        let balance = compare(&[agent("a", &[1, 2], &[1, 2]), agent("b", &[3], &[3])], &[master(3, &[1, 2, 3])]);
        assert_eq!(balance, Balance { launched: 3, ..Balance::default() });
    }

    #[test]
    fn an_end_that_was_not_told_and_a_container_that_never_came_are_lost() {
        let balance = compare(&[agent("a", &[1, 2], &[1, 2])], &[master(3, &[1])]);
        assert_eq!((balance.lost, balance.twice), (2, 0), "{balance:?}");
    }

    #[test]
    fn one_on_two_nodes_and_one_too_many_are_twice() {
        let balance = compare(&[agent("a", &[1, 2], &[]), agent("b", &[2, 3], &[])], &[master(2, &[])]);
        assert_eq!((balance.lost, balance.twice), (0, 2), "{balance:?}");
        assert_eq!(compare(&[agent("a", &[1], &[])], &[]).twice, 1, "nobody asked");
    }
}
