//! `nodes`, `labels`, `attributes` and `tolerate` of `[executors.NAME]`: constraints on the nodes
//! of its containers.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Name, NodeId};
use headroom_wire::v1::nodes::NodeTraits;
use toml::de::DeValue;

use crate::toml_reader::{self, TomlSection, hint, texts};

/// Node constraints of an executor set. Empty for all nodes that are not exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConstraints {
    /// Allowed nodes; empty for any.
    pub nodes: BTreeSet<NodeId>,
    /// Required labels.
    pub labels: BTreeSet<Name>,
    /// Required attributes, each with its allowed values.
    pub attributes: BTreeMap<Name, BTreeSet<String>>,
    /// Tolerated taints, with the value that they must have; `None` for any value.
    pub tolerate: BTreeMap<Name, Option<String>>,
}

impl NodeConstraints {
    /// True if the node satisfies the constraints and all its taints are tolerated.
    pub fn allows_node(&self, id: &NodeId, node: &NodeTraits) -> bool {
        let tolerated = |(taint, value): (&Name, &String)| match self.tolerate.get(taint) {
            Some(wanted) => wanted.as_ref().is_none_or(|wanted| wanted == value),
            None => false,
        };
        self.matches_node(id, node) && node.taints.iter().all(tolerated)
    }
    /// True if the node satisfies the constraints, regardless of its taints.
    pub fn matches_node(&self, id: &NodeId, node: &NodeTraits) -> bool {
        let has = |(name, values): (&Name, &BTreeSet<String>)| {
            node.attributes
                .get(name)
                .is_some_and(|v| values.contains(v))
        };
        (self.nodes.is_empty() || self.nodes.contains(id))
            && self.labels.is_subset(&node.labels)
            && (!node.exclusive || !self.labels.is_disjoint(&node.labels))
            && self.attributes.iter().all(has)
    }
}

impl std::fmt::Display for NodeConstraints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let either = |values: &BTreeSet<String>| {
            values
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" or ")
        };
        let labels = self.labels.iter().map(|label| format!("label {label}"));
        let named = self
            .attributes
            .iter()
            .map(|(name, values)| format!("{name}={}", either(values)));
        let all: Vec<String> = labels.chain(named).collect();
        if !self.nodes.is_empty() {
            let nodes: Vec<&str> = self.nodes.iter().map(NodeId::as_str).collect();
            return write!(
                f,
                "{}",
                [vec![nodes.join(" or ")], all].concat().join(", with ")
            );
        }
        if all.is_empty() {
            write!(f, "open to all requests")
        } else {
            write!(f, "one with {}", all.join(" and "))
        }
    }
}

pub(super) fn read(s: &mut TomlSection<'_>) -> NodeConstraints {
    let labels = hint(
        "its containers run on nodes with all these labels",
        "write a list of names, such as labels = [\"gpu\"]",
    );
    let attributes = hint(
        "its containers run only on nodes with these attributes",
        "write a table, such as attributes = { zone = \"b\" } or { zone = [\"b\", \"c\"] }",
    );
    let tolerate = hint(
        "a tainted node takes only containers that tolerate its taints",
        "write a list, such as tolerate = [\"etl\"] for any value, or [\"team=etl\"] for one",
    );
    let nodes = hint(
        "its containers run only on these nodes",
        "write a list of nodes, such as nodes = [\"worker-03\"]",
    );
    NodeConstraints {
        nodes: s.read_or("nodes", nodes, BTreeSet::new(), node_names),
        labels: s.read_or("labels", labels, BTreeSet::new(), names),
        attributes: s.read_or("attributes", attributes, BTreeMap::new(), named_values),
        tolerate: s.read_or("tolerate", tolerate, BTreeMap::new(), taints),
    }
}

fn name(text: &str) -> Result<Name, String> {
    text.parse()
        .map_err(|e: headroom_types::ids::ParseIdError| e.to_string())
}

fn node_names(value: &DeValue<'_>) -> Result<BTreeSet<NodeId>, String> {
    let one = |text: &String| {
        text.parse()
            .map_err(|e: headroom_types::ids::ParseIdError| e.to_string())
    };
    texts(value)?.iter().map(one).collect()
}

fn names(value: &DeValue<'_>) -> Result<BTreeSet<Name>, String> {
    texts(value)?.iter().map(|text| name(text)).collect()
}

fn named_values(value: &DeValue<'_>) -> Result<BTreeMap<Name, BTreeSet<String>>, String> {
    let table = value.as_table().ok_or_else(|| {
        format!(
            "this is {}, not a table of attributes",
            toml_reader::kind(value)
        )
    })?;
    let one = |value: &DeValue<'_>| {
        toml_reader::text(value)
            .map(|text| vec![text])
            .or_else(|_| texts(value))
    };
    let mut all = BTreeMap::new();
    for (key, value) in table.iter() {
        let values: BTreeSet<String> = one(value.get_ref())
            .map_err(|e| format!("{}: {e}", key.get_ref()))?
            .into_iter()
            .collect();
        if values.is_empty() {
            return Err(format!("{}: the list of values is empty", key.get_ref()));
        }
        all.insert(name(key.get_ref())?, values);
    }
    Ok(all)
}

fn taints(value: &DeValue<'_>) -> Result<BTreeMap<Name, Option<String>>, String> {
    let mut all = BTreeMap::new();
    for text in texts(value)? {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (name(key)?, Some(value.to_owned())),
            None => (name(&text)?, None),
        };
        if all.insert(key, value).is_some() {
            return Err(format!(
                "{text:?}: the taint is named twice; without a value, any value is tolerated"
            ));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Name {
        name(text).expect("a name")
    }

    #[test]
    fn a_node_must_satisfy_every_constraint() {
        let place = NodeConstraints {
            nodes: BTreeSet::new(),
            labels: [id("gpu")].into(),
            attributes: [(id("zone"), ["b".to_owned(), "c".to_owned()].into())].into(),
            tolerate: [(id("etl"), None), (id("team"), Some("ada".to_owned()))].into(),
        };
        let node = |labels: &[&str], zone: &str, taints: &[(&str, &str)], exclusive| NodeTraits {
            rack: None,
            labels: labels.iter().map(|l| id(l)).collect(),
            exclusive,
            attributes: [(id("zone"), zone.to_owned())].into(),
            taints: taints
                .iter()
                .map(|(name, value)| (id(name), (*value).to_owned()))
                .collect(),
        };
        let here: NodeId = "n1".parse().expect("a node");
        assert!(place.allows_node(
            &here,
            &node(&["gpu", "ssd"], "c", &[("etl", "x"), ("team", "ada")], true)
        ));
        assert!(
            !place.allows_node(&here, &node(&["ssd"], "c", &[], false)),
            "no label"
        );
        assert!(
            !place.allows_node(&here, &node(&["gpu"], "a", &[], false)),
            "another zone"
        );
        assert!(
            !place.allows_node(&here, &node(&["gpu"], "b", &[("team", "bob")], false)),
            "a taint with another value"
        );
        assert!(
            !place.allows_node(&here, &node(&["gpu"], "b", &[("spot", "")], false)),
            "a taint that it does not tolerate"
        );
        assert!(NodeConstraints::default().allows_node(&here, &node(&["gpu"], "b", &[], false)));
        assert!(
            !NodeConstraints::default().allows_node(&here, &node(&["gpu"], "b", &[], true)),
            "an exclusive node"
        );
        assert!(
            place.matches_node(&here, &node(&["gpu"], "b", &[("spot", "")], false)),
            "taints are ignored"
        );
        assert_eq!(place.to_string(), "one with label gpu and zone=b or c");
        assert_eq!(
            NodeConstraints::default().to_string(),
            "open to all requests"
        );
        let only = |name: &str| NodeConstraints {
            nodes: [name.parse().expect("a node")].into(),
            ..place.clone()
        };
        let gpu = node(&["gpu"], "b", &[], false);
        assert!(only("n1").allows_node(&here, &gpu) && !only("n2").matches_node(&here, &gpu));
        assert_eq!(
            only("n2").to_string(),
            "n2, with label gpu, with zone=b or c"
        );
    }
}
