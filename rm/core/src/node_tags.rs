//! Tags of one node that operators set: cordon, labels, attributes and taints.
//!
//! Plain data; the node table owns the tags of all nodes, and `tags` changes them. Tags override
//! the properties that the agent of the node reports; when an operator removes an attribute, the
//! agent's value applies again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use headroom_types::Name;

use crate::event::{CordonState, NodeProperties, TagChange};

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
    /// Tags after a change.
    pub(crate) fn changed(&self, change: &TagChange) -> Self {
        let mut tags = self.clone();
        match &change.cordon {
            None => {}
            Some(CordonState::On(reason)) => tags.cordon = Some(reason.clone()),
            Some(CordonState::Off) => tags.cordon = None,
        }
        tags.labels.extend(change.labels.iter().cloned());
        tags.labels
            .retain(|label| !change.drop_labels.contains(label));
        put(&mut tags.attributes, &change.attributes);
        put(&mut tags.taints, &change.taints);
        tags
    }
    /// Number of labels, attributes and taints.
    pub(crate) fn len(&self) -> usize {
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
pub struct TagChangeResult {
    /// Tags before the change.
    pub before: NodeTags,
    /// Tags after the change.
    pub after: NodeTags,
    /// Effective properties of the node; `None` while it is not registered.
    pub traits: Option<NodeProperties>,
    /// State of the node that users see; `None` while it is not registered.
    pub standing: Option<&'static str>,
}
