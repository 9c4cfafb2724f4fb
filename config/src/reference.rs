//! All configuration keys, each with its value and when a change takes effect.
//!
//! A test compares the tables with the keys and values that the parser accepts.

use crate::checked::{NodeAgentConfig, ResourceManagerConfig};

mod agent;
mod key;
mod manager;

pub use key::{ConfigKey, TakesEffect};

/// Keys of `resourcemanager.toml`, without those of queues.
pub const MANAGER_KEYS: &[ConfigKey<ResourceManagerConfig>] = manager::KEYS;
/// Keys of `nodeagent.toml`.
pub const AGENT_KEYS: &[ConfigKey<NodeAgentConfig>] = agent::KEYS;

/// Keys whose values differ between two configurations, with both values.
pub fn changes<C>(
    keys: &'static [ConfigKey<C>],
    before: &C,
    after: &C,
) -> Vec<(&'static ConfigKey<C>, String, String)> {
    let written = |value: Option<String>| value.unwrap_or_else(|| "left out".to_owned());
    let pair = |key: &'static ConfigKey<C>| (key, (key.value)(before), (key.value)(after));
    let changed = keys
        .iter()
        .map(pair)
        .filter(|(_, before, after)| before != after);
    changed
        .map(|(key, before, after)| (key, written(before), written(after)))
        .collect()
}
