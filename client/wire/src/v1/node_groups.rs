//! Nodes grouped by what decides placement, so that a client can compare a job with ten thousand
//! nodes without reading ten thousand rows.

use std::collections::BTreeMap;

use headroom_types::exit::EnforcerKind;
use headroom_types::{NodeId, Resource};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::nodes::{NodeTraits, NodeView};

/// Nodes that are equal for placement, except for their names and their load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeGroup {
    /// Resources of each node.
    pub offers: Resource,
    /// Enforcer of container limits on each node.
    pub enforcer: EnforcerKind,
    /// Rack, labels, attributes and taints of each node.
    #[serde(default)]
    pub traits: NodeTraits,
    /// Names of the nodes, in the order of the given list.
    pub nodes: Vec<NodeId>,
}

impl NodeGroup {
    /// Groups nodes, except those that are lost. The groups are in the order of their first nodes.
    pub fn group<'a>(nodes: impl IntoIterator<Item = &'a NodeView>) -> Vec<NodeGroup> {
        let mut groups: Vec<NodeGroup> = Vec::new();
        let mut places: BTreeMap<_, usize> = BTreeMap::new();
        for node in nodes.into_iter().filter(|node| node.state != "lost") {
            let Resource {
                memory,
                cpus,
                extra,
            } = &node.offers;
            let key = (*memory, *cpus, &**extra, node.enforcer, &node.traits);
            let place = *places.entry(key).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.nodes.push(node.id.clone()),
                None => groups.push(NodeGroup {
                    offers: node.offers.clone(),
                    enforcer: node.enforcer,
                    traits: node.traits.clone(),
                    nodes: vec![node.id.clone()],
                }),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use headroom_types::{Bytes, Cpus};

    use super::*;

    fn node(id: &str, state: &str, gib: u64, label: Option<&str>) -> NodeView {
        let text = format!(
            r#"{{"id": "{id}", "state": "{state}", "reason": null, "enforcer": "cgroup2",
                "offers": {{"memory": {}}}, "allocated": {{"memory": 0}}, "allocated_heap": 0, "used": 0,
                "host_used": 0, "containers": 0, "url": "http://{id}:1", "version": "1", "silent_ms": 0}}"#,
            gib << 30
        );
        let mut node: NodeView = serde_json::from_str(&text).expect("a node");
        node.offers.cpus = Cpus::from_cores(8);
        node.traits.labels = label
            .map(|l| l.parse().expect("a name"))
            .into_iter()
            .collect();
        node
    }

    #[test]
    fn equal_nodes_are_one_group_and_lost_ones_are_left_out() {
        let nodes = [
            node("a", "ready", 64, None),
            node("b", "ready", 64, Some("gpu")),
            node("c", "unreachable", 64, None),
            node("d", "lost", 64, None),
            node("e", "ready", 128, None),
        ];
        let groups = NodeGroup::group(&nodes);
        let names: Vec<Vec<&str>> = groups
            .iter()
            .map(|group| group.nodes.iter().map(NodeId::as_str).collect())
            .collect();
        assert_eq!(names, [vec!["a", "c"], vec!["b"], vec!["e"]]);
        let sizes: Vec<Bytes> = groups.iter().map(|group| group.offers.memory).collect();
        assert_eq!(sizes, [64, 64, 128].map(Bytes::from_gib));
        assert_eq!(groups[1].traits, nodes[1].traits);
    }
}
