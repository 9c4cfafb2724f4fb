//! Fake node: holds containers and unacknowledged exit reports, applies or refuses sizes, and
//! removes records on command.

use std::collections::BTreeMap;
use std::sync::Arc;

use headroom_types::exit::Unattributed;
use headroom_types::{
    ContainerId, EnforcerKind, Evidence, ExitReason, ExitReport, NodeId, RequestId, Resource,
    StopCause, UnixMillis,
};

use crate::event::{
    ContainerCommand, ContainerPhase, NodeHealth, NodeProperties, NodeRegistration, RefusedResize,
    ReportedContainer,
};

/// Fake node.
#[derive(Clone, Debug, Default)]
pub struct FakeNode {
    /// Offered resources.
    pub offers: Resource,
    /// Containers on the node.
    pub has: BTreeMap<ContainerId, FakeContainer>,
    /// Exit reports that are not acknowledged.
    pub exits: BTreeMap<ContainerId, ExitReport>,
    /// True while it receives messages of the resource manager.
    pub connected: bool,
    /// Containers to stop, with the cause.
    pub asked_to_stop: BTreeMap<ContainerId, StopCause>,
    /// Rack, labels, attributes and taints.
    pub traits: NodeProperties,
    /// Reason with which it refuses every resize; `None` to apply them.
    pub rigid: Option<String>,
    /// Memory that ended containers left charged on it.
    pub unattributed: Unattributed,
    /// All containers that it ever ran, with their requests.
    pub ever: BTreeMap<ContainerId, Option<RequestId>>,
}

/// Container on a node.
#[derive(Clone, Debug)]
pub struct FakeContainer {
    /// Its request.
    pub request: Option<RequestId>,
    /// Attempt of its master for which it was granted.
    pub attempt: u32,
    /// Size.
    pub resource: Resource,
    /// Version of the size.
    pub version: u32,
    /// A later size that was refused.
    pub refused: Option<RefusedResize>,
    /// Phase.
    pub phase: ContainerPhase,
    /// Time of the grant.
    pub granted: UnixMillis,
}

impl FakeContainer {
    /// Applies a later size, unless the node refuses resizes.
    fn take_size(&mut self, resource: Resource, version: u32, rigid: Option<&String>) {
        if version <= self.version || self.phase == ContainerPhase::Exited {
            return;
        }
        match rigid {
            Some(why) => {
                self.refused = Some(RefusedResize {
                    version,
                    why: why.clone(),
                })
            }
            None => (self.resource, self.version, self.refused) = (resource, version, None),
        }
    }
}

/// Verdict of a container that was stopped for this cause.
fn stopped(cause: StopCause) -> ExitReason {
    match cause {
        StopCause::Asked => ExitReason::Stopped,
        StopCause::Preempted => ExitReason::Preempted,
        StopCause::Timeout => ExitReason::Timeout,
        StopCause::OverLimit => ExitReason::OverheadOom,
        StopCause::Stalled => ExitReason::StalledAtLimit,
        StopCause::Fenced => ExitReason::NodeLost,
    }
}

impl FakeNode {
    pub(super) fn registration(&self) -> NodeRegistration {
        NodeRegistration {
            serial: 0,
            offers: self.offers.clone(),
            enforcer: EnforcerKind::Cgroup2,
            url: "http://127.0.0.1:1".into(),
            version: "test".into(),
            traits: self.traits.clone(),
            health: NodeHealth::Healthy,
            seen: self.seen(),
            exits: self.exits.values().cloned().map(Arc::new).collect(),
            unattributed: self.unattributed.clone(),
        }
    }
    pub(super) fn seen(&self) -> Vec<ReportedContainer> {
        let seen = self.has.iter().map(|(id, held)| ReportedContainer {
            container: id.clone(),
            request: held.request.clone(),
            attempt: held.attempt,
            resource: held.resource.clone(),
            version: held.version,
            refused: held.refused.clone(),
            phase: held.phase,
            used: None,
            granted: held.granted,
        });
        seen.collect()
    }
    pub(super) fn obey(&mut self, container: ContainerId, want: ContainerCommand) {
        match want {
            ContainerCommand::Run(order) => {
                let order = *order;
                if let Some(held) = self.has.get_mut(&container) {
                    return held.take_size(order.resource, order.version, self.rigid.as_ref());
                }
                let (request, attempt, resource) = (order.request, order.attempt, order.resource);
                let (version, granted) = (order.version, order.granted);
                self.ever.insert(container.clone(), request.clone());
                let new = FakeContainer {
                    request,
                    attempt,
                    resource,
                    version,
                    refused: None,
                    phase: ContainerPhase::Preparing,
                    granted,
                };
                self.has.insert(container, new);
            }
            ContainerCommand::Stop { cause } => {
                if self.has.contains_key(&container) {
                    self.asked_to_stop.insert(container, cause);
                }
            }
            ContainerCommand::Forget => self.forget(&container),
        }
    }
    pub(super) fn forget(&mut self, container: &ContainerId) {
        self.has.remove(container);
        self.exits.remove(container);
        self.asked_to_stop.remove(container);
    }
    /// Starts prepared containers and ends containers that must stop.
    pub fn go_on(&mut self, name: &NodeId, wall: UnixMillis) {
        for held in self.has.values_mut() {
            if held.phase == ContainerPhase::Preparing {
                held.phase = ContainerPhase::Running;
            }
        }
        for (container, cause) in std::mem::take(&mut self.asked_to_stop) {
            if self
                .has
                .get(&container)
                .is_some_and(|held| held.phase != ContainerPhase::Exited)
            {
                self.end(name, &container, stopped(cause), wall);
            }
        }
    }
    /// Ends a container's program.
    pub fn end(
        &mut self,
        name: &NodeId,
        container: &ContainerId,
        reason: ExitReason,
        ended: UnixMillis,
    ) {
        let Some(held) = self.has.get_mut(container) else {
            return;
        };
        held.phase = ContainerPhase::Exited;
        let report = ExitReport {
            container: container.clone(),
            node: name.clone(),
            reason,
            evidence: Evidence::empty(EnforcerKind::Cgroup2),
            diagnosis: vec![],
            started: Some(ended),
            ended,
            timeline: vec![],
            log_tail: String::new(),
            tasks: vec![],
        };
        self.exits.entry(container.clone()).or_insert(report);
    }
}
