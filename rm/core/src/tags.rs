//! Changes of the tags that operators set on nodes, and their effect on the scheduler.
//!
//! The node table owns the tags and the store saves them, also for nodes that are not registered.
//! Tags never move running containers: they only affect new placements.

use headroom_types::{NodeId, Reason};

use crate::cluster::Cluster;
use crate::event::{CallAnswer, CallRefusal, DryRun, LogSeverity, TagChange};
use crate::node_tags::{MAX_TAGS, NodeTags, TagChangeResult};
use crate::phrase::pair;
use crate::save::DurableRecord;
use crate::step_context::StepContext;

impl Cluster {
    pub(crate) fn tag(
        &mut self,
        id: &NodeId,
        change: &TagChange,
        how: DryRun,
        ctx: &mut StepContext<'_>,
    ) -> Result<CallAnswer, CallRefusal> {
        let tags = self.nodes.tags(id);
        if tags.is_none() && !self.nodes.contains(id) && self.nodes.mark(id).is_none() {
            return Err(CallRefusal::NoSuchNode(id.clone()));
        }
        let before = tags.cloned().unwrap_or_default();
        let after = before.changed(change);
        if after.len() > MAX_TAGS && after.len() > before.len() {
            return Err(CallRefusal::TooManyTags {
                node: id.clone(),
                most: MAX_TAGS,
            });
        }
        let node = self.nodes.get(id);
        let traits = node.map(|node| after.over(&node.traits).into_owned());
        let standing = node.map(|node| self.nodes.displayed_with(node, after.cordon.is_some()));
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
            tags: Box::new(after.clone()),
        });
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
        let ledger = self.allocations.ledger();
        if self.nodes.set_tags(id, after.clone(), ledger) {
            self.reindex(id);
            self.scheduler.reservations.mark_all_dirty();
        }
        self.queue.note_room();
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
