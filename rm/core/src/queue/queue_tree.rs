//! Validated queue tree of an operator.
//!
//! The settings or the cluster own it; it is always valid. It knows neither the allocated resources
//! of a queue nor its waiting requests.

use headroom_types::{Name, QueuePath};

use super::spec::{QueueDefinition, QueueDefinitionError, QueueState};
use super::valid;

/// Validated queue tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTree {
    root: QueueDefinition,
}

impl QueueTree {
    /// Validates the tree below `root`.
    ///
    /// # Errors
    /// All problems of the tree.
    pub fn new(root: QueueDefinition) -> Result<QueueTree, Vec<QueueDefinitionError>> {
        let problems = valid::problems(&root);
        if problems.is_empty() {
            Ok(QueueTree { root })
        } else {
            Err(problems)
        }
    }
    /// Copy of the tree with another state of one queue. `None` when the queue does not exist.
    pub(crate) fn with_state(&self, queue: &QueuePath, state: QueueState) -> Option<QueueTree> {
        let mut tree = self.clone();
        let mut spec = &mut tree.root;
        for word in queue.as_str().split('.').skip(1) {
            spec = spec
                .children
                .iter_mut()
                .find(|(name, _)| name.as_str() == word)?
                .1;
        }
        spec.state = state;
        Some(tree)
    }
    /// Paths of all queues, the root first.
    pub fn paths(&self) -> impl Iterator<Item = QueuePath> {
        self.walk().into_iter().map(|(path, _)| path)
    }
    /// Paths of all leaves.
    pub fn leaves(&self) -> impl Iterator<Item = QueuePath> {
        self.walk()
            .into_iter()
            .filter(|(_, spec)| spec.children.is_empty())
            .map(|(path, _)| path)
    }
    fn walk(&self) -> Vec<(QueuePath, &QueueDefinition)> {
        let mut all = vec![(QueuePath::root(), &self.root)];
        let mut at = 0;
        while let Some((path, spec)) = all.get(at).cloned() {
            all.extend(
                spec.children
                    .iter()
                    .map(|(name, child)| (path.child(name), child)),
            );
            at += 1;
        }
        all
    }
    /// Root queue with all queues below it.
    pub fn root(&self) -> &QueueDefinition {
        &self.root
    }
}

impl Default for QueueTree {
    /// One leaf, `root.default`, without limits.
    fn default() -> Self {
        let leaf = QueueDefinition::default();
        let children = "default"
            .parse::<Name>()
            .map(|name| (name, leaf))
            .into_iter()
            .collect();
        QueueTree {
            root: QueueDefinition {
                children,
                ..QueueDefinition::default()
            },
        }
    }
}
