//! External views of the agent: registrations, reports, answers to queries. Reads the state
//! of the agent and changes nothing.

use std::collections::BTreeMap;

use headroom_node_core::report_schedule::ReportScope;
use headroom_types::{Bytes, ContainerId, Epoch, Name};
use headroom_wire::v1::nodes::{NodeHealthState, NodeReport, ObservedContainer, RegisterNode};

use crate::agent_query::{AccessTarget, AgentQuery, ContainerDetail, DoctorReport};
use crate::agent_state::AgentState;
use crate::doctor::{self, DoctorFinding};
use crate::node_link_event::NodeMembership;
use crate::node_messages::{self, MeasuredUse};
use crate::{metrics_page, sample};

fn measured(state: &AgentState, id: &ContainerId) -> MeasuredUse {
    let last = state
        .live
        .get(id)
        .and_then(|l| l.meter.as_ref())
        .and_then(|m| sample::locked(m).last());
    MeasuredUse {
        current: last.map(|s| s.current),
        anon: last.and_then(|s| s.anon),
    }
}

fn all_observed(state: &AgentState) -> Vec<ObservedContainer> {
    observed_in(state, &ReportScope::All)
}

fn observed_in(state: &AgentState, scope: &ReportScope) -> Vec<ObservedContainer> {
    node_messages::observed_in(&state.core, scope, |id| measured(state, id))
}

/// The registration of the node.
pub(crate) fn registration(state: &AgentState) -> RegisterNode {
    RegisterNode {
        offers: state.facts.ready.offers.clone(),
        enforcer: state.facts.site.kind(),
        url: state.facts.ready.url.clone(),
        health: health(state),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        traits: state.facts.traits.clone(),
        containers: all_observed(state),
        exits: node_messages::kept_exits(&state.core),
        key: Some(state.facts.key.clone()),
        serial: 0,
        unattributed: state.unattributed.memory,
        left_by: state.unattributed.left_by.clone(),
    }
}

/// The report of a node to the resource manager with this epoch. `host_used` is the memory in use on
/// the host.
pub(crate) fn report(
    state: &AgentState,
    epoch: Epoch,
    scope: &ReportScope,
    host_used: Bytes,
) -> NodeReport {
    NodeReport {
        epoch,
        containers: observed_in(state, scope),
        exits: node_messages::unreceived_exits(&state.core),
        host_used,
        health: health(state),
        reload: state.reload.clone(),
        unattributed: state.unattributed.memory,
        left_by: state.unattributed.left_by.clone(),
    }
}

/// The health of the node. A closing node takes no work.
fn health(state: &AgentState) -> NodeHealthState {
    match state.closing {
        Some(_) => NodeHealthState::Unhealthy {
            reason: "the node agent is shutting down".into(),
        },
        None => {
            let ills: Vec<&str> = state
                .ills
                .iter()
                .chain(&state.unattributed.ill)
                .map(String::as_str)
                .collect();
            match (&state.facts.ready.health, ills.as_slice()) {
                (proof, []) => proof.clone(),
                (NodeHealthState::Healthy, ills) => NodeHealthState::Unhealthy {
                    reason: ills.join("; "),
                },
                (NodeHealthState::Unhealthy { reason }, ills) => NodeHealthState::Unhealthy {
                    reason: format!("{reason}; {}", ills.join("; ")),
                },
            }
        }
    }
}

/// Answers a query of a handler.
pub(crate) fn reply(state: &AgentState, membership: NodeMembership, question: AgentQuery) {
    match question {
        AgentQuery::Containers(reply) => drop(reply.send(all_observed(state))),
        AgentQuery::Details(reply) => {
            let all = state
                .core
                .containers()
                .filter_map(|(id, _)| detail(state, id).map(|detail| *detail));
            drop(reply.send(all.collect()));
        }
        AgentQuery::Container(id, reply) => drop(reply.send(detail(state, &id))),
        AgentQuery::Inside(id, reply) => drop(reply.send(inside(state, &id))),
        AgentQuery::Metrics(reply) => drop(reply.send(metrics_page::page(state, membership))),
        AgentQuery::Doctor(reply) => drop(reply.send(DoctorReport {
            enforcer: state.facts.site.kind().to_string(),
            root: state.facts.site.enforcer.root(),
            health: health(state),
            resource_manager: membership,
            traits: state.facts.traits.clone(),
            notes: state.facts.ready.notes.clone(),
            host: host_findings(state),
            aux_services: aux_services(state),
        })),
    }
}

fn aux_services(state: &AgentState) -> BTreeMap<Name, &'static str> {
    let phases = state.services.phases();
    phases
        .map(|(name, phase)| (name.clone(), phase.as_str()))
        .collect()
}

/// The findings of the start, with the current value of unattributed memory.
fn host_findings(state: &AgentState) -> Vec<DoctorFinding> {
    let measured = state
        .facts
        .site
        .kind()
        .is_kernel()
        .then_some((state.unattributed.memory, state.facts.ready.offers.memory));
    let left = doctor::left_behind(measured);
    state
        .facts
        .host
        .iter()
        .map(|finding| {
            if finding.code == left.code {
                left.clone()
            } else {
                finding.clone()
            }
        })
        .collect()
}

/// The data for access to a container.
fn inside(state: &AgentState, id: &ContainerId) -> Option<Box<AccessTarget>> {
    let phase = node_messages::container_phase(&state.core.get(id)?.state)?;
    let live = state.live.get(id);
    Some(Box::new(AccessTarget {
        phase,
        order: live.and_then(|live| live.order.clone()),
        group: live.and_then(|live| live.group.clone()),
    }))
}

fn detail(state: &AgentState, id: &ContainerId) -> Option<Box<ContainerDetail>> {
    let c = state.core.get(id)?;
    let report = node_messages::exit_report(&c.state).cloned();
    let meter = state.live.get(id).and_then(|l| l.meter.as_ref());
    let timeline = match &report {
        Some(report) => report.timeline.clone(),
        None => meter
            .map(|m| sample::locked(m).timeline())
            .unwrap_or_default(),
    };
    Some(Box::new(ContainerDetail {
        observed: node_messages::observed(id, c, measured(state, id))?,
        timeline,
        report,
    }))
}
