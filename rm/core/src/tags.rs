//! Tags of nodes that operators set: cordon, labels, attributes and taints, in addition to those of
//! the agent.
//!
//! The cluster owns the tags and the store saves them, also for nodes that are not registered. They
//! override the agent's values; when an operator removes an attribute, the agent's value applies
//! again. Tags never move running containers: they only affect new placements.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{Name, NodeId, Reason};

use crate::cluster::{Cluster, StepContext};
use crate::event::{
    CallAnswer, CallRefusal, Cordon, DryRun, LogSeverity, NodeProperties, TagChange,
};
use crate::node::{ClusterNodeState, Node};
use crate::save::DurableRecord;

/// Most labels, attributes and taints of operators per node, together.
pub const MAX_TAGS: usize = 64;

/// Tags of a node that operators set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTags {
    /// Reason of a cordon: the node gets no new containers.
    pub cordon: Option<String>,
    /// Labels that a request can require.
    pub labels: BTreeSet<Name>,
    /// Attributes that a request can compare; they override those of the agent.
    pub attributes: BTreeMap<Name, String>,
    /// Taints; a request must tolerate all of them. The value may be empty.
    pub taints: BTreeMap<Name, String>,
}

impl NodeTags {
    /// True without any tags.
    pub fn is_empty(&self) -> bool {
        *self == NodeTags::default()
    }
    /// Effective properties of a node with the agent's properties `own`.
    pub fn over<'t>(&self, own: &'t NodeProperties) -> Cow<'t, NodeProperties> {
        if self.labels.is_empty() && self.attributes.is_empty() && self.taints.is_empty() {
            return Cow::Borrowed(own);
        }
        let mut all = own.clone();
        all.labels.extend(self.labels.iter().cloned());
        all.attributes.extend(self.attributes.clone());
        all.taints.extend(self.taints.clone());
        Cow::Owned(all)
    }
    fn changed(&self, change: &TagChange) -> Self {
        let mut tags = self.clone();
        match &change.cordon {
            None => {}
            Some(Cordon::On(reason)) => tags.cordon = Some(reason.clone()),
            Some(Cordon::Off) => tags.cordon = None,
        }
        tags.labels.extend(change.labels.iter().cloned());
        tags.labels
            .retain(|label| !change.drop_labels.contains(label));
        put(&mut tags.attributes, &change.attributes);
        put(&mut tags.taints, &change.taints);
        tags
    }
    fn len(&self) -> usize {
        self.labels.len() + self.attributes.len() + self.taints.len()
    }
}

fn put(known: &mut BTreeMap<Name, String>, change: &BTreeMap<Name, Option<String>>) {
    for (name, value) in change {
        match value {
            Some(value) => drop(known.insert(name.clone(), value.clone())),
            None => drop(known.remove(name)),
        }
    }
}

/// Result of a change of tags, also of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Tags before the change.
    pub before: NodeTags,
    /// Tags after the change.
    pub after: NodeTags,
    /// Effective properties of the node; `None` while it is not registered.
    pub traits: Option<NodeProperties>,
    /// State of the node that users see; `None` while it is not registered.
    pub standing: Option<&'static str>,
}

impl Cluster {
    /// Tags of a node, also of a node that is not registered.
    pub fn tags(&self, node: &NodeId) -> Option<&NodeTags> {
        self.tags.get(node)
    }
    /// Effective properties of a node: those of the agent, overridden by the tags.
    pub fn traits<'n>(&self, node: &'n Node) -> Cow<'n, NodeProperties> {
        self.tags
            .get(&node.id)
            .map_or(Cow::Borrowed(&node.traits), |tags| tags.over(&node.traits))
    }
    /// Reason of the cordon of a node; `None` without one.
    pub fn cordon(&self, node: &NodeId) -> Option<&str> {
        self.tags.get(node)?.cordon.as_deref()
    }
    /// State of a node that users see: its own state, or drain and cordon while it sends
    /// heartbeats.
    pub fn displayed_state(&self, node: &Node) -> &'static str {
        self.standing_with(node, self.cordon(&node.id).is_some())
    }

    fn standing_with(&self, node: &Node, cordoned: bool) -> &'static str {
        let speaks = match node.state {
            ClusterNodeState::Ready | ClusterNodeState::Unhealthy { .. } => true,
            ClusterNodeState::Suspect { .. }
            | ClusterNodeState::Unreachable { .. }
            | ClusterNodeState::Lost
            | ClusterNodeState::Decommissioned => false,
        };
        match self.mark(&node.id).filter(|_| speaks) {
            Some(mark) if mark.drained => "drained",
            Some(_) => "draining",
            None if cordoned && node.state == ClusterNodeState::Ready => "cordoned",
            None => node.state.as_str(),
        }
    }

    pub(crate) fn tag(
        &mut self,
        id: &NodeId,
        change: &TagChange,
        how: DryRun,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let known = self.nodes.contains_key(id)
            || self.tags.contains_key(id)
            || self.marks.contains_key(id);
        if !known {
            return Err(CallRefusal::NoSuchNode(id.clone()));
        }
        let before = self.tags.get(id).cloned().unwrap_or_default();
        let after = before.changed(change);
        if after.len() > MAX_TAGS && after.len() > before.len() {
            return Err(CallRefusal::TooManyTags {
                node: id.clone(),
                most: MAX_TAGS,
            });
        }
        let node = self.nodes.get(id);
        let traits = node.map(|node| after.over(&node.traits).into_owned());
        let standing = node.map(|node| self.standing_with(node, after.cordon.is_some()));
        if how == DryRun::Really && before != after {
            self.put_tags(id, &before, &after, ctx);
        }
        Ok(CallAnswer::Tagged(Box::new(Tagged {
            before,
            after,
            traits,
            standing,
        })))
    }

    fn put_tags(
        &mut self,
        id: &NodeId,
        before: &NodeTags,
        after: &NodeTags,
        ctx: &mut StepContext<'_>,
    ) {
        ctx.save(DurableRecord::Tags {
            node: id.clone(),
            tags: after.clone(),
        });
        if after.is_empty() {
            self.tags.remove(id);
        } else {
            self.tags.insert(id.clone(), after.clone());
        }
        match (&before.cordon, &after.cordon) {
            (None, Some(reason)) => ctx.log_node(
                LogSeverity::Normal,
                Reason::NodeCordoned,
                id,
                format!("gets no new containers: {reason}"),
            ),
            (Some(_), None) => ctx.log_node(
                LogSeverity::Normal,
                Reason::NodeUncordoned,
                id,
                "may get new containers again".into(),
            ),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let told = differences(before, after);
        if !told.is_empty() {
            ctx.log_node(LogSeverity::Normal, Reason::NodeTagged, id, told);
        }
        self.retag(id);
        self.room_changed = true;
    }

    /// Updates the scheduler's index after a change of tags.
    fn retag(&mut self, id: &NodeId) {
        self.roomy = None;
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let Some(account) = self.ledger.node(id).filter(|_| node.state.is_member()) else {
            return;
        };
        let traits = self
            .tags
            .get(id)
            .map_or(Cow::Borrowed(&node.traits), |tags| tags.over(&node.traits));
        self.index.enter(id, &traits, &account.offers);
        self.reindex(id);
        self.reservations.mark_all_dirty();
    }
}

/// Text of the changes, such as `label gpu, attribute zone=b, no taint etl`.
fn differences(before: &NodeTags, after: &NodeTags) -> String {
    let mut told: Vec<String> = after
        .labels
        .difference(&before.labels)
        .map(|label| format!("label {label}"))
        .collect();
    told.extend(
        before
            .labels
            .difference(&after.labels)
            .map(|label| format!("no label {label}")),
    );
    for (kind, before, after) in [
        ("attribute", &before.attributes, &after.attributes),
        ("taint", &before.taints, &after.taints),
    ] {
        let new = after
            .iter()
            .filter(|(name, value)| before.get(*name) != Some(*value));
        told.extend(new.map(|(name, value)| format!("{kind} {}", pair(name, value))));
        told.extend(
            before
                .keys()
                .filter(|name| !after.contains_key(*name))
                .map(|name| format!("no {kind} {name}")),
        );
    }
    told.join(", ")
}

/// `name=value`, or only the name when the value is empty.
pub(crate) fn pair(name: &Name, value: &str) -> String {
    if value.is_empty() {
        name.to_string()
    } else {
        format!("{name}={value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::id;

    fn words(pairs: &[(&str, &str)]) -> BTreeMap<Name, String> {
        pairs
            .iter()
            .map(|(name, value)| (id(name), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn operator_tags_override_agent_tags_and_do_not_change_them() {
        let own = NodeProperties {
            labels: [id("ssd")].into(),
            attributes: words(&[("zone", "a"), ("kernel", "6")]),
            ..NodeProperties::default()
        };
        assert_eq!(
            *NodeTags {
                cordon: Some("disk".into()),
                ..NodeTags::default()
            }
            .over(&own),
            own
        );
        let put = TagChange {
            labels: [id("gpu")].into(),
            attributes: [(id("zone"), Some("b".to_owned()))].into(),
            taints: [(id("etl"), Some(String::new()))].into(),
            ..TagChange::default()
        };
        let tags = NodeTags::default().changed(&put);
        let all = tags.over(&own).into_owned();
        assert_eq!(all.labels, [id("gpu"), id("ssd")].into());
        assert_eq!(
            (all.attributes, all.taints),
            (
                words(&[("zone", "b"), ("kernel", "6")]),
                words(&[("etl", "")])
            )
        );
        let back = TagChange {
            drop_labels: [id("gpu"), id("ssd")].into(),
            attributes: [(id("zone"), None)].into(),
            ..TagChange::default()
        };
        let tags = tags.changed(&back);
        let all = tags.over(&own).into_owned();
        assert_eq!(
            (
                all.labels,
                all.attributes["zone".parse::<Name>().as_ref().expect("a name")].as_str()
            ),
            ([id("ssd")].into(), "a")
        );
        assert_eq!(differences(&NodeTags::default(), &tags), "taint etl");
        assert_eq!(
            differences(
                &tags,
                &NodeTags {
                    attributes: words(&[("zone", "b")]),
                    ..NodeTags::default()
                }
            ),
            "attribute zone=b, no taint etl"
        );
    }
}
