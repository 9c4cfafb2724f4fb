//! The program in a tenant's container: it works for a fixed time and succeeds, or ends on request.

use headroom_rm_core::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, PlacementRules, RelaxationPolicy,
};
use headroom_rm_core::{Exclusive, NodeProperties};
use headroom_types::{ContainerId, NodeId, UnixMillis};
use headroom_wire::v1::nodes::RunOrder;

use super::host::SimProgramEnd;
use super::tenant::RUNS_MS;
use super::{Simulation, SimulationEvent as Any};
use crate::scenario::scenario_cluster::{self, OperatorMark};

/// A running program of a tenant.
#[derive(Clone, Debug)]
pub(super) struct TenantProgram {
    stubborn: bool,
}

impl Simulation {
    /// Starts the program if the container belongs to a tenant, and returns whether it does.
    pub(super) fn sitter_starts(
        &mut self,
        node: &NodeId,
        id: &ContainerId,
        order: &RunOrder,
    ) -> bool {
        let Some(runs) = order
            .launch
            .env
            .get(RUNS_MS)
            .and_then(|ms| ms.parse::<u64>().ok())
        else {
            return false;
        };
        let stubborn = self.chance.percent(self.scenario.weather.stubborn);
        self.sitters.insert(id.clone(), TenantProgram { stubborn });
        self.later(runs, Any::Sitter(node.clone(), id.clone()));
        self.is_placed_right(node, id, order.granted);
        true
    }

    /// Ends a program that has completed its work.
    pub(super) fn sitter_done(&mut self, node: &NodeId, id: &ContainerId) {
        if self.sitters.contains_key(id) {
            self.cell_ends(node, id, SimProgramEnd::Code(0));
        }
    }

    /// Handles SIGTERM. Returns whether the container belongs to a tenant.
    pub(super) fn sitter_terminated(&mut self, id: &ContainerId) -> bool {
        let Some(sitter) = self.sitters.get(id) else {
            return false;
        };
        let node = self
            .hosts
            .values()
            .find(|h| h.cells.contains_key(id))
            .map(|h| h.id.clone());
        if let (Some(node), false) = (node, sitter.stubborn) {
            self.cell_ends(&node, id, SimProgramEnd::Code(0));
        }
        true
    }

    fn traits_of(&self, node: &NodeId) -> Option<&NodeProperties> {
        let place = self.hosts.keys().position(|n| n == node)?;
        self.scenario
            .estate
            .nodes
            .get(place)
            .map(|standing| &standing.traits)
    }

    /// A node that can hold one container of this request if it has no others.
    pub(super) fn could_hold(&self, want: &scenario_cluster::TenantRequest) -> Option<NodeId> {
        let fits = |node: &&NodeId| {
            let offers = self.hosts.get(*node).map(|h| &h.offers);
            offers.is_some_and(|o| want.size.fits(o))
                && self
                    .traits_of(node)
                    .is_some_and(|t| self.may_go(node, t, &want.place))
        };
        self.hosts.keys().find(fits).cloned()
    }

    /// Whether a node satisfies all hard rules of a placement.
    fn may_go(&self, node: &NodeId, traits: &NodeProperties, place: &PlacementRules) -> bool {
        let rack_in = |racks: &[headroom_types::Name]| {
            traits.rack.as_ref().is_some_and(|r| racks.contains(r))
        };
        let named = place.nodes.is_empty() || place.nodes.contains(node);
        let in_rack = place.racks.is_empty() || rack_in(&place.racks);
        let prefers = !place.prefer_nodes.is_empty() || !place.prefer_racks.is_empty();
        let preferred = place.prefer_nodes.contains(node) || rack_in(&place.prefer_racks);
        let open = traits.exclusive == Exclusive::No
            || place.labels.iter().any(|l| traits.labels.contains(l));
        let labelled = place.labels.iter().all(|l| traits.labels.contains(l));
        let compares = place.attributes.iter().all(|(name, wanted)| {
            let value = traits.attributes.get(name);
            match wanted {
                AttributeMatch::Exists => value.is_some(),
                AttributeMatch::Absent => value.is_none(),
                AttributeMatch::OneOf(values) => value.is_some_and(|v| values.contains(v)),
                AttributeMatch::NoneOf(values) => value.is_none_or(|v| !values.contains(v)),
            }
        });
        named
            && in_rack
            && open
            && labelled
            && compares
            && (preferred || !prefers || place.relax != RelaxationPolicy::Never)
    }

    fn is_placed_right(&mut self, node: &NodeId, id: &ContainerId, granted: UnixMillis) {
        let Some(want) = self.want_of(node, id) else {
            return;
        };
        let Some(traits) = self.traits_of(node) else {
            return;
        };
        let mut traits = traits.clone();
        if self.operator.may_have_labelled(node) {
            traits.labels.insert(scenario_cluster::word("ssd"));
        }
        if self.operator.has_said(node, OperatorMark::Cordon, granted) {
            return self
                .oracle
                .fail(format!("{id} was granted on {node}, which is cordoned"));
        }
        if self.operator.has_said(node, OperatorMark::Taint, granted)
            && want.place.tolerate.is_empty()
        {
            return self.oracle.fail(format!(
                "{id} was granted on {node}, but does not tolerate its taint"
            ));
        }
        if !self.may_go(node, &traits, &want.place) {
            return self.oracle.fail(format!(
                "{id} runs on {node}, but must not: {traits:?}, {:?}",
                want.place
            ));
        }
        let Some(apart) = &want.place.apart else {
            return;
        };
        if self.oracle.gave_up_a_node() {
            return;
        }
        let others = self.beside(node, id, &want, apart);
        if let Some(other) = others.first() {
            self.oracle.fail(format!(
                "{id} runs with {other} on {node}, but must not: {apart:?}"
            ));
        }
    }

    fn want_of(&self, node: &NodeId, id: &ContainerId) -> Option<scenario_cluster::TenantRequest> {
        let tenant = self
            .tenants
            .iter()
            .find(|t| t.app.as_ref() == Some(&id.app))?;
        let request = self.hosts.get(node)?.cells.get(id)?.order.request.clone()?;
        tenant
            .plan
            .wants
            .iter()
            .find(|w| w.request == request)
            .cloned()
    }

    /// Live containers of the same application in the same node or rack that violate the
    /// anti-affinity of this one.
    fn beside(
        &self,
        node: &NodeId,
        id: &ContainerId,
        want: &scenario_cluster::TenantRequest,
        apart: &AntiAffinityRule,
    ) -> Vec<ContainerId> {
        let rack = |n: &NodeId| self.traits_of(n).and_then(|t| t.rack.clone());
        let same_place = |n: &NodeId| match apart.level {
            PlacementLevel::Node => n == node,
            PlacementLevel::Rack => n == node || (rack(n).is_some() && rack(n) == rack(node)),
        };
        let own = std::slice::from_ref(&want.request);
        let from = if apart.from.is_empty() {
            own
        } else {
            &apart.from
        };
        let hosts = self.hosts.values().filter(|h| same_place(&h.id));
        let cells = hosts
            .flat_map(|h| h.cells.iter())
            .filter(|(other, c)| c.alive && *other != id && other.app == id.app);
        cells
            .filter(|(_, c)| c.order.request.as_ref().is_some_and(|r| from.contains(r)))
            .map(|(other, _)| other.clone())
            .collect()
    }
}
