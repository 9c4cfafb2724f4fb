//! Keys with which nodes grant access to their containers, as sent at their registration.
//!
//! Handlers share them. They are in memory only, and appear in no response and no log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use headroom_types::{NodeId, Reason, UnixMillis};
use headroom_wire::v1::events::{EventLevel, LoggedEvent};
use headroom_wire::v1::nodes::ConfigReload;

use crate::eventlog;
use crate::from_wire::cut;

/// Maximum length of a node's key. Bytes.
const LONGEST_KEY: usize = 128;
/// Maximum length of a message that is kept. Bytes.
const LONGEST_MESSAGE: usize = 1024;

/// Keys from the registrations of nodes, by which they authenticate the resource manager, and the
/// time of each node's last configuration reload.
#[derive(Debug, Default)]
pub(crate) struct NodeKeyStore(
    Mutex<BTreeMap<NodeId, String>>,
    Mutex<BTreeMap<NodeId, UnixMillis>>,
);

impl NodeKeyStore {
    /// Stores the key of a registered node. Without a key, the node allows no container access.
    pub(crate) fn set_key(&self, node: NodeId, key: Option<String>) {
        // Poisoning is harmless: no panic can leave the map half changed.
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match key.filter(|key| key.len() <= LONGEST_KEY) {
            Some(key) => drop(keys.insert(node, key)),
            None => drop(keys.remove(&node)),
        }
    }

    /// Event for a configuration reload of a node; `None` if it was reported before.
    pub(crate) fn reloaded(
        &self,
        node: &NodeId,
        reload: ConfigReload,
        now: UnixMillis,
    ) -> Option<LoggedEvent> {
        let before = self
            .1
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(node.clone(), reload.at);
        if before == Some(reload.at) {
            return None;
        }
        let (reason, level) = match reload.refused {
            false => (Reason::ConfigReloaded, EventLevel::Normal),
            true => (Reason::ConfigRefused, EventLevel::Warning),
        };
        let message = cut(reload.message, LONGEST_MESSAGE);
        Some(LoggedEvent {
            node: Some(node.clone()),
            ..eventlog::event(now, level, reason, node.to_string(), message)
        })
    }

    /// Key of a node; `None` if it has registered none.
    pub(crate) fn of(&self, node: &NodeId) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_report_of_a_reload_makes_no_second_event() {
        let (keys, node) = (
            NodeKeyStore::default(),
            "n1".parse::<NodeId>().expect("name"),
        );
        let reload = |at, refused| ConfigReload {
            at: UnixMillis(at),
            refused,
            message: "logs.count: 4 → 7".into(),
        };
        let event_reason = |at, refused| {
            keys.reloaded(&node, reload(at, refused), UnixMillis(9))
                .map(|event| event.reason)
        };
        assert_eq!(event_reason(1, false).as_deref(), Some("ConfigReloaded"));
        assert_eq!(event_reason(1, false), None);
        assert_eq!(event_reason(2, true).as_deref(), Some("ConfigRefused"));
    }
}
