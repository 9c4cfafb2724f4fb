//! The live containers of an application, as its master knows them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{ContainerId, Epoch, NodeId};
use headroom_wire::v1::application_master::{
    ApplicationUpdateKind, ContainerGrant, MasterRegistered,
};
use headroom_wire::v1::known_containers::ContainerNumbers;

/// Grants of live containers, from registrations and updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveContainers {
    /// `None` before the first registration.
    grants: Option<BTreeMap<ContainerId, ContainerGrant>>,
}

impl LiveContainers {
    /// Takes the containers of a registration: all others have ended. Completes the list of the
    /// answer with the grants of the confirmed containers.
    pub fn register(&mut self, registered: &mut MasterRegistered) {
        let known = self.grants.take().unwrap_or_default();
        let mut known: BTreeMap<(Epoch, u64), ContainerGrant> = known
            .into_values()
            .map(|grant| ((grant.container.epoch, grant.container.seq), grant))
            .collect();
        for group in std::mem::take(&mut registered.confirmed) {
            for number in group.containers.iter() {
                // The end of a container may have arrived after the call was sent.
                let Some(grant) = known.remove(&number) else {
                    continue;
                };
                registered.containers.push(ContainerGrant {
                    resource: group.resource.clone(),
                    running: group.running,
                    ..grant
                });
            }
        }
        let live = registered.containers.iter();
        self.grants = Some(
            live.map(|grant| (grant.container.clone(), grant.clone()))
                .collect(),
        );
    }

    /// Takes an update.
    pub fn update(&mut self, update: &ApplicationUpdateKind) {
        let Some(grants) = &mut self.grants else {
            return;
        };
        match update {
            ApplicationUpdateKind::Allocated(grant) => {
                grants.insert(grant.container.clone(), grant.clone());
            }
            ApplicationUpdateKind::Exited { report, .. } => {
                grants.remove(&report.container);
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
        let grants = self.grants.as_ref()?;
        Some(grants.values().map(|grant| grant.node.clone()).collect())
    }

    /// The numbers of the containers, as a registration names them.
    pub fn numbers(&self) -> ContainerNumbers {
        let mut numbers = ContainerNumbers::default();
        let grants = self.grants.iter().flat_map(BTreeMap::keys);
        grants.for_each(|container| numbers.insert(container));
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_types::{Bytes, Cpus, Resource};
    use headroom_wire::v1::known_containers::ConfirmedContainers;

    fn size(mib: u64) -> Resource {
        Resource::new(Bytes::from_mib(mib), Cpus::from_cores(1))
    }

    fn grant(container: u32, node: &str) -> ContainerGrant {
        ContainerGrant {
            container: format!("job.1.e1.c{container}").parse().expect("an id"),
            request: "work".parse().expect("an id"),
            node: node.parse().expect("an id"),
            resource: size(1),
            attempt: 1,
            running: false,
        }
    }

    fn registered(
        containers: Vec<ContainerGrant>,
        confirmed: Vec<ConfirmedContainers>,
    ) -> MasterRegistered {
        MasterRegistered {
            epoch: Epoch(2),
            largest: size(1),
            containers,
            confirmed,
            cursor: 0,
            known: None,
            traces: None,
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
        assert_eq!((names(&live), live.numbers().is_empty()), (None, true));
        let first = vec![grant(1, "n1"), grant(2, "n2")];
        live.register(&mut registered(first, Vec::new()));
        live.update(&ApplicationUpdateKind::Allocated(grant(3, "n2")));
        live.update(&ApplicationUpdateKind::Alive);
        assert_eq!(names(&live), Some(vec!["n1".into(), "n2".into()]));
        live.register(&mut registered(vec![grant(3, "n2")], Vec::new()));
        assert_eq!(
            names(&live),
            Some(vec!["n2".into()]),
            "all others have ended"
        );
    }

    #[test]
    fn confirmed_containers_keep_their_grants_with_their_present_state() {
        let mut live = LiveContainers::default();
        let first = vec![grant(1, "n1"), grant(2, "n2"), grant(3, "n3")];
        live.register(&mut registered(first, Vec::new()));
        let mut containers = live.numbers();
        assert_eq!(containers.iter().count(), 3);
        containers.insert(&grant(9, "n9").container);
        let confirmed = ConfirmedContainers {
            resource: size(2),
            running: true,
            containers,
        };
        let mut answer = registered(vec![grant(4, "n4")], vec![confirmed]);
        live.register(&mut answer);
        let enlarged = |container, node| ContainerGrant {
            resource: size(2),
            running: true,
            ..grant(container, node)
        };
        assert_eq!(
            answer.containers,
            [
                grant(4, "n4"),
                enlarged(1, "n1"),
                enlarged(2, "n2"),
                enlarged(3, "n3")
            ],
            "an unknown number is left out"
        );
        assert!(answer.confirmed.is_empty() && live.numbers().iter().count() == 4);
    }
}
