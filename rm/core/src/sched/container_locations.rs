//! Nodes of the live containers of one application, by request.
//!
//! The application's record owns the locations, and the cluster updates them when a container
//! starts or ends. This module never chooses a node.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::RequestId;

use super::node_ix::NodeNumber;
use crate::placement::PlacementRules;

/// Number of live containers of one request per node.
pub(crate) type ContainersPerNode = BTreeMap<NodeNumber, u32>;

/// Nodes of the live containers of an application's requests; maintained from the first request
/// that needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerLocations {
    of: BTreeMap<RequestId, ContainersPerNode>,
    /// Requests whose anti-affinity names other requests.
    shy: BTreeSet<RequestId>,
}

impl ContainerLocations {
    /// Adds a container.
    pub(crate) fn came(&mut self, request: &RequestId, node: NodeNumber) {
        let count = self
            .of
            .entry(request.clone())
            .or_default()
            .entry(node)
            .or_default();
        *count = count.saturating_add(1);
    }
    /// Removes an ended container.
    pub(crate) fn went(&mut self, request: &RequestId, node: NodeNumber) {
        let Some(spots) = self.of.get_mut(request) else {
            return;
        };
        if let Some(count) = spots.get_mut(&node) {
            *count = count.saturating_sub(1);
        }
        spots.retain(|_, count| *count > 0);
        if spots.is_empty() {
            self.of.remove(request);
        }
    }
    /// Nodes of one request's containers.
    pub(crate) fn of(&self, request: &RequestId) -> Option<&ContainersPerNode> {
        self.of.get(request)
    }
    /// Updates the anti-affinity of a request after it was accepted, changed or dropped.
    pub(crate) fn says(&mut self, request: &RequestId, place: Option<&PlacementRules>) {
        let shy = place
            .and_then(|p| p.apart.as_ref())
            .is_some_and(|apart| !apart.from.is_empty());
        if shy {
            self.shy.insert(request.clone());
        } else {
            self.shy.remove(request);
        }
    }
    /// True when any request has an anti-affinity that names other requests.
    pub(crate) fn has_shy(&self) -> bool {
        !self.shy.is_empty()
    }
    /// Requests whose anti-affinity names other requests.
    pub(crate) fn shy(&self) -> impl Iterator<Item = &RequestId> {
        self.shy.iter()
    }
    /// True when this request has an anti-affinity that names other requests.
    pub(crate) fn is_shy(&self, request: &RequestId) -> bool {
        self.shy.contains(request)
    }
}
