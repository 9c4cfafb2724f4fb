//! Changes of the tags that operators set on nodes, and their effect on the scheduler.
//!
//! The cluster owns the tags and the store saves them, also for nodes that are not registered. Tags
//! never move running containers: they only affect new placements.

use std::borrow::Cow;

use headroom_types::{NodeId, Reason};

use crate::cluster::Cluster;
use crate::event::{CallAnswer, CallRefusal, DryRun, LogSeverity, NodeProperties, TagChange};
use crate::node::{ClusterNode, ClusterNodeState};
use crate::node_tags::{MAX_TAGS, NodeTags, TagChangeResult};
use crate::phrase::pair;
use crate::save::DurableRecord;
use crate::step_context::StepContext;

impl Cluster {
    /// Tags of a node, also of a node that is not registered.
    pub fn tags(&self, node: &NodeId) -> Option<&NodeTags> {
        self.tags.get(node)
    }
    /// Effective properties of a node: those of the agent, overridden by the tags.
    pub fn traits<'n>(&self, node: &'n ClusterNode) -> Cow<'n, NodeProperties> {
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
    pub fn displayed_state(&self, node: &ClusterNode) -> &'static str {
        self.standing_with(node, self.cordon(&node.id).is_some())
    }

    fn standing_with(&self, node: &ClusterNode, cordoned: bool) -> &'static str {
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
        Ok(CallAnswer::Tagged(Box::new(TagChangeResult {
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
        let changes = differences(before, after);
        if !changes.is_empty() {
            ctx.log_node(LogSeverity::Normal, Reason::NodeTagged, id, changes);
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
    let mut changes: Vec<String> = after
        .labels
        .difference(&before.labels)
        .map(|label| format!("label {label}"))
        .collect();
    changes.extend(
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
        changes.extend(new.map(|(name, value)| format!("{kind} {}", pair(name, value))));
        changes.extend(
            before
                .keys()
                .filter(|name| !after.contains_key(*name))
                .map(|name| format!("no {kind} {name}")),
        );
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NodeProperties;
    use crate::testkit::id;
    use headroom_types::Name;
    use std::collections::BTreeMap;

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
