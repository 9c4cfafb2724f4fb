//! Containers of one application by number. A master that registers again knows the nodes and
//! requests of its containers, so their numbers are enough, and a hundredth of their grants.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{ContainerId, Epoch, Resource};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Numbers of containers, by the epoch of their grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(value_type = BTreeMap<u32, BTreeSet<u64>>)]
#[serde(transparent)]
pub struct ContainerNumbers(BTreeMap<Epoch, BTreeSet<u64>>);

impl ContainerNumbers {
    /// Adds a container.
    pub fn insert(&mut self, container: &ContainerId) {
        let numbers = self.0.entry(container.epoch).or_default();
        numbers.insert(container.seq);
    }

    /// True if the container is among them.
    pub fn contains(&self, container: &ContainerId) -> bool {
        let numbers = self.0.get(&container.epoch);
        numbers.is_some_and(|numbers| numbers.contains(&container.seq))
    }

    /// True without containers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All numbers with their epochs.
    pub fn iter(&self) -> impl Iterator<Item = (Epoch, u64)> {
        let epochs = self.0.iter();
        epochs.flat_map(|(epoch, numbers)| numbers.iter().map(|number| (*epoch, *number)))
    }
}

/// Live containers that a master has named, with their state: all of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfirmedContainers {
    /// The size of each.
    pub resource: Resource,
    /// True if their programs run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// Their numbers.
    pub containers: ContainerNumbers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_by_epoch() {
        let mut numbers = ContainerNumbers::default();
        for id in ["job.1.e3.c9", "job.1.e3.c2", "job.1.e12.c1"] {
            numbers.insert(&id.parse().expect("an id"));
        }
        let text = serde_json::to_string(&numbers).expect("writes");
        assert_eq!(text, r#"{"3":[2,9],"12":[1]}"#);
        assert_eq!(
            serde_json::from_str::<ContainerNumbers>(&text).expect("reads"),
            numbers
        );
        let holds = |id: &str| numbers.contains(&id.parse().expect("an id"));
        assert!(holds("job.1.e3.c9") && !holds("job.1.e3.c1") && !holds("job.1.e2.c9"));
        assert_eq!(numbers.iter().count(), 3);
    }
}
