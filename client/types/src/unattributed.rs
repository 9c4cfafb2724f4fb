//! Memory that ended programs leave behind: charged to a cgroup, but held by no process in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// Maximum number of owners in one list.
pub const MAX_OWNERS: usize = 5;

/// Memory charged to a container or node that no running process in it holds and that reclaim
/// cannot free. A lower bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unattributed {
    /// Amount. Bytes.
    pub memory: Bytes,
    /// Containers or tasks that ended with memory still charged to them, largest first; at most
    /// five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by: Vec<LeftoverOwner>,
}

/// A container or task that ended and left memory behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftoverOwner {
    /// Container id, or name of a task cgroup.
    pub name: String,
    /// Memory charged to it after its last process had ended. A part may have been freed since
    /// then. Bytes.
    pub memory: Bytes,
}

impl Unattributed {
    /// The owners in words: `left by job.1.e1.c2 (300 MiB), job.1.e1.c4 (20 MiB)`.
    pub fn owners_text(&self) -> String {
        owners(&self.left_by)
    }
}

/// The owners in words.
pub fn owners(left_by: &[LeftoverOwner]) -> String {
    if left_by.is_empty() {
        return "its owner is unknown".into();
    }
    let names: Vec<String> = left_by
        .iter()
        .map(|owner| format!("{} ({})", owner.name, owner.memory))
        .collect();
    format!("left by {}", names.join(", "))
}

/// Containers or tasks that ended with memory still charged, for as long as some of it remains.
/// Bounded.
#[derive(Clone, Debug, Default)]
pub struct LeftoverOwners(BTreeMap<String, Bytes>);

impl LeftoverOwners {
    /// Maximum number of entries. A larger entry replaces the smallest.
    const MAX_RECORDED_OWNERS: usize = 64;

    /// Records the memory that an ended container or task left charged to its cgroup.
    pub fn add(&mut self, name: &str, memory: Bytes) {
        if memory.is_zero() {
            return;
        }
        self.0.insert(name.to_owned(), memory);
        while self.0.len() > Self::MAX_RECORDED_OWNERS {
            let smallest = self
                .0
                .iter()
                .min_by_key(|(_, memory)| **memory)
                .map(|(name, _)| name.clone());
            let Some(smallest) = smallest else { break };
            self.0.remove(&smallest);
        }
    }
    /// Removes all entries, after their memory was freed.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// The largest entries, largest first; at most [`MAX_OWNERS`].
    pub fn largest(&self) -> Vec<LeftoverOwner> {
        let mut all: Vec<LeftoverOwner> = self
            .0
            .iter()
            .map(|(name, memory)| LeftoverOwner {
                name: name.clone(),
                memory: *memory,
            })
            .collect();
        all.sort_by(|a, b| b.memory.cmp(&a.memory).then_with(|| a.name.cmp(&b.name)));
        all.truncate(MAX_OWNERS);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_named_and_the_smallest_forgotten() {
        let mut leavers = LeftoverOwners::default();
        for n in 0..100 {
            leavers.add(&format!("job.1.e1.c{n}"), Bytes::from_mib(n));
        }
        let largest = leavers.largest();
        assert_eq!(largest.len(), MAX_OWNERS);
        assert_eq!(
            (largest[0].name.as_str(), largest[0].memory),
            ("job.1.e1.c99", Bytes::from_mib(99))
        );
        assert_eq!(leavers.0.len(), LeftoverOwners::MAX_RECORDED_OWNERS);
        assert_eq!(
            owners(&largest[..2]),
            "left by job.1.e1.c99 (99 MiB), job.1.e1.c98 (98 MiB)"
        );
        leavers.clear();
        assert_eq!(
            Unattributed::default().owners_text(),
            "its owner is unknown"
        );
    }
}
