//! The live containers of an application, as its master knows them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{ContainerId, NodeId};
use headroom_wire::v1::application_master::{ApplicationUpdateKind, ContainerGrant};

/// Live containers with their nodes, from registrations and updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveContainers {
    /// `None` before the first registration.
    nodes: Option<BTreeMap<ContainerId, NodeId>>,
}

impl LiveContainers {
    /// Takes the containers of a registration: all others have ended.
    pub fn register(&mut self, containers: &[ContainerGrant]) {
        let live = containers.iter();
        self.nodes = Some(
            live.map(|grant| (grant.container.clone(), grant.node.clone()))
                .collect(),
        );
    }

    /// Takes an update.
    pub fn update(&mut self, update: &ApplicationUpdateKind) {
        let Some(nodes) = &mut self.nodes else {
            return;
        };
        match update {
            ApplicationUpdateKind::Allocated(grant) => {
                nodes.insert(grant.container.clone(), grant.node.clone());
            }
            ApplicationUpdateKind::Exited { report, .. } => {
                nodes.remove(&report.container);
            }
            ApplicationUpdateKind::Running { .. }
            | ApplicationUpdateKind::Resized { .. }
            | ApplicationUpdateKind::ResizeFailed { .. }
            | ApplicationUpdateKind::PreemptSoon { .. }
            | ApplicationUpdateKind::NodeDraining { .. }
            | ApplicationUpdateKind::Expired { .. }
            | ApplicationUpdateKind::Scale(_)
            | ApplicationUpdateKind::Order(_)
            | ApplicationUpdateKind::Alive => {}
        }
    }

    /// The nodes, as a registration names them; `None` before the first one, when the master may
    /// have containers that it does not know.
    pub fn nodes(&self) -> Option<BTreeSet<NodeId>> {
        let nodes = self.nodes.as_ref()?;
        Some(nodes.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus, Resource};

    fn grant(container: u32, node: &str) -> ContainerGrant {
        ContainerGrant {
            container: format!("job.1.e1.c{container}").parse().expect("an id"),
            request: "work".parse().expect("an id"),
            node: node.parse().expect("an id"),
            resource: Resource::new(Bytes::from_mib(1), Cpus::from_cores(1)),
            attempt: 1,
            running: false,
        }
    }

    fn names(live: &LiveContainers) -> Option<Vec<String>> {
        let nodes = live.nodes()?;
        Some(nodes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nodes_are_unknown_before_the_first_registration_and_follow_the_updates() {
        let mut live = LiveContainers::default();
        live.update(&ApplicationUpdateKind::Allocated(grant(1, "n1")));
        assert_eq!(names(&live), None);
        live.register(&[grant(1, "n1"), grant(2, "n2")]);
        live.update(&ApplicationUpdateKind::Allocated(grant(3, "n2")));
        live.update(&ApplicationUpdateKind::Alive);
        assert_eq!(names(&live), Some(vec!["n1".into(), "n2".into()]));
        live.register(&[grant(3, "n2")]);
        assert_eq!(
            names(&live),
            Some(vec!["n2".into()]),
            "all others have ended"
        );
    }
}
