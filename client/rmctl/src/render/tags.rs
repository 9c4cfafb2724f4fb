//! Labels, attributes, taints and cordons of a node, from its agent and from operators.

use std::collections::BTreeMap;

use headroom_types::Name;
use headroom_wire::v1::nodes::NodeView;

use super::{TextPainter, count};

/// `gpu, zone=b (operator)`: labels and attributes of a node. Those of operators are marked.
pub(crate) fn labels(n: &NodeView) -> Vec<String> {
    let by = |operator: bool| if operator { " (operator)" } else { "" };
    let labels = n
        .traits
        .labels
        .iter()
        .map(|label| format!("{label}{}", by(n.tags.labels.contains(label))));
    let named =
        n.traits.attributes.iter().map(|(name, value)| {
            format!("{name}={value}{}", by(n.tags.attributes.contains_key(name)))
        });
    labels.chain(named).collect()
}

/// `etl, team=ada`: taints of a node.
pub(crate) fn taints(n: &NodeView) -> Vec<String> {
    n.traits
        .taints
        .iter()
        .map(|(name, value)| pair(name, value))
        .collect()
}

/// `gpu,zone=b`: labels and attributes for a column.
pub(crate) fn brief(n: &NodeView) -> String {
    let labels = n.traits.labels.iter().map(Name::to_string);
    let all: Vec<String> = labels
        .chain(
            n.traits
                .attributes
                .iter()
                .map(|(name, value)| pair(name, value)),
        )
        .collect();
    if all.is_empty() {
        "–".to_owned()
    } else {
        all.join(",")
    }
}

fn pair(name: &Name, value: &str) -> String {
    if value.is_empty() {
        name.to_string()
    } else {
        format!("{name}={value}")
    }
}

/// The result of `cordon`.
pub(crate) fn cordoned(n: &NodeView, dry_run: bool) -> String {
    let would = if dry_run { "would get" } else { "gets" };
    let state = if n.state == "cordoned" {
        String::new()
    } else {
        format!("; the node is also {}", n.state)
    };
    let stay = match n.containers {
        0 => "no container runs on it".to_owned(),
        some => format!("{} on it may run to the end", count(some, "container")),
    };
    format!(
        "{} {would} no new containers; {stay}{state}\nnext: rmctl node uncordon {}\n",
        n.id, n.id
    )
}

/// The result of `uncordon`.
pub(crate) fn uncordoned(n: &NodeView, dry_run: bool) -> String {
    let would = if dry_run { "would be" } else { "is" };
    let next = n.undo_verb().map_or_else(
        || "rmctl node list".to_owned(),
        |verb| format!("rmctl node {verb} {}", n.id),
    );
    format!("{} {would} {}\nnext: {next}\n", n.id, n.state)
}

/// The present labels and taints of a node.
pub(crate) fn said(n: &NodeView, dry_run: bool, paint: TextPainter) -> String {
    let would = if dry_run { " would have" } else { "" };
    let all = |what: &str, words: Vec<String>| {
        let words = if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(", ")
        };
        format!("{what:<8} {words}\n")
    };
    format!(
        "{}{would}\n{}{}",
        paint.strong(n.id.as_str()),
        all("labels", labels(n)),
        all("taints", taints(n))
    )
}

/// A note for each removed name that stays, because the node's own configuration sets it.
pub(crate) fn stays(n: &NodeView, gone: &[Name]) -> String {
    let own: BTreeMap<&Name, ()> = gone
        .iter()
        .filter(|name| n.traits.labels.contains(*name) || n.traits.attributes.contains_key(*name))
        .map(|name| (name, ()))
        .collect();
    own.keys()
        .map(|name| format!("note: {name} stays: the node's own configuration sets it\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn labels_and_taints_are_shown_with_their_source() {
        insta::assert_snapshot!(said(&fixture::tagged(), false, TextPainter::PLAIN));
    }

    #[test]
    fn labels_of_the_nodes_configuration_cannot_be_removed() {
        let names = ["ssd", "old"].map(|name| name.parse().expect("a name"));
        let text = stays(&fixture::tagged(), &names);
        assert_eq!(
            text,
            "note: ssd stays: the node's own configuration sets it\n"
        );
    }

    #[test]
    fn a_cordon_shows_the_containers_that_stay() {
        let mut node = fixture::tagged();
        assert_eq!(
            cordoned(&node, false),
            "worker-01 gets no new containers; 4 containers on it may run to the end\nnext: rmctl node uncordon worker-01\n"
        );
        node.state = "drained".into();
        assert!(
            cordoned(&node, true).contains("would get")
                && cordoned(&node, true).contains("the node is also drained")
        );
        (node.state, node.tags.cordon) = ("ready".into(), None);
        assert_eq!(
            uncordoned(&node, false),
            "worker-01 is ready\nnext: rmctl node list\n"
        );
    }
}
