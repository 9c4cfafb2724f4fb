//! External views of the agent: registrations, reports, answers to queries. Reads the loop's state
//! and changes nothing.

use headroom_node_core::agent;
use headroom_node_core::container::LifecyclePhase;
use headroom_node_core::report_schedule::ReportScope;
use headroom_types::{ContainerId, Epoch, ExitReport};
use headroom_wire::v1::nodes::{
    NodeContainerPhase, NodeHealthState, NodeReport, ObservedContainer, RefusedSize, RegisterNode,
};

use crate::agent_loop::NodeAgentLoop;
use crate::doctor::{self, DoctorFinding};
use crate::http::{AccessTarget, AgentQuery, Detail, Diagnosis};
use crate::{host, sample};

/// Maximum number of exit reports in one message; each may contain a timeline. The others follow in
/// later messages.
const ENDS_AT_ONCE: usize = 32;

impl NodeAgentLoop {
    fn observed(&self, id: &ContainerId, c: &agent::AgentContainer) -> Option<ObservedContainer> {
        let last = self
            .live
            .get(id)
            .and_then(|l| l.meter.as_ref())
            .and_then(|m| sample::locked(m).last());
        Some(ObservedContainer {
            container: id.clone(),
            request: c.order.request.clone(),
            attempt: c.order.attempt,
            resource: c.order.resource.clone(),
            version: c.order.version,
            refused: c.sizing.refused.as_ref().map(|r| RefusedSize {
                version: r.size.version,
                why: r.why.clone(),
            }),
            phase: phase(&c.state)?,
            used: last.map(|s| s.current),
            anon: last.and_then(|s| s.anon),
            granted: c.order.granted,
        })
    }

    fn all_observed(&self) -> Vec<ObservedContainer> {
        self.agent
            .containers()
            .filter_map(|(id, c)| self.observed(id, c))
            .collect()
    }

    pub(crate) fn registration(&self) -> RegisterNode {
        RegisterNode {
            offers: self.facts.offers.clone(),
            enforcer: self.facts.site.kind(),
            url: self.facts.url.clone(),
            health: self.health(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            traits: self.facts.traits.clone(),
            containers: self.all_observed(),
            exits: self.exits(),
            key: Some(self.facts.key.clone()),
            serial: 0,
            unattributed: self.unattributed.memory,
            left_by: self.unattributed.left_by.clone(),
        }
    }

    pub(crate) fn report(&self, epoch: Epoch, scope: &ReportScope) -> NodeReport {
        let containers = match scope {
            ReportScope::All => self.all_observed(),
            ReportScope::Changed(ids) => ids
                .iter()
                .filter_map(|id| self.observed(id, self.agent.get(id)?))
                .collect(),
        };
        NodeReport {
            epoch,
            containers,
            exits: self.unreceived(),
            host_used: host::memory().used,
            health: self.health(),
            reload: self.reload.clone(),
            unattributed: self.unattributed.memory,
            left_by: self.unattributed.left_by.clone(),
        }
    }

    /// The health of the node. A closing node takes no work.
    fn health(&self) -> NodeHealthState {
        match self.closing {
            Some(_) => NodeHealthState::Unhealthy {
                reason: "the node agent is shutting down".into(),
            },
            None => {
                let ills: Vec<&str> = self
                    .ills
                    .iter()
                    .chain(&self.unattributed.ill)
                    .map(String::as_str)
                    .collect();
                match (&self.facts.health, ills.as_slice()) {
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

    fn unreceived(&self) -> Vec<ExitReport> {
        self.agent
            .unreceived()
            .take(ENDS_AT_ONCE)
            .cloned()
            .collect()
    }

    /// All exit reports that are still kept, for a peer that may know none of them.
    fn exits(&self) -> Vec<ExitReport> {
        self.agent
            .containers()
            .filter_map(|(_, c)| report_of(&c.state))
            .take(ENDS_AT_ONCE)
            .cloned()
            .collect()
    }

    pub(crate) fn reply(&self, question: AgentQuery) {
        match question {
            AgentQuery::Containers(reply) => drop(reply.send(self.all_observed())),
            AgentQuery::Details(reply) => {
                let all = self
                    .agent
                    .containers()
                    .filter_map(|(id, _)| self.detail(id).map(|detail| *detail));
                drop(reply.send(all.collect()));
            }
            AgentQuery::Container(id, reply) => drop(reply.send(self.detail(&id))),
            AgentQuery::Inside(id, reply) => drop(reply.send(self.inside(&id))),
            AgentQuery::Metrics(reply) => drop(reply.send(self.page())),
            AgentQuery::Doctor(reply) => drop(reply.send(Diagnosis {
                enforcer: self.facts.site.kind().to_string(),
                root: self.facts.site.enforcer.root(),
                health: self.health(),
                resource_manager: self.link.standing(),
                traits: self.facts.traits.clone(),
                notes: self.facts.notes.clone(),
                host: self.host_findings(),
            })),
        }
    }

    /// The findings of the start, with the current value of unattributed memory.
    fn host_findings(&self) -> Vec<DoctorFinding> {
        let measured = self
            .facts
            .site
            .kind()
            .is_kernel()
            .then_some((self.unattributed.memory, self.facts.offers.memory));
        let left = doctor::left_behind(measured);
        self.facts
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
    fn inside(&self, id: &ContainerId) -> Option<Box<AccessTarget>> {
        let phase = phase(&self.agent.get(id)?.state)?;
        let live = self.live.get(id);
        Some(Box::new(AccessTarget {
            phase,
            order: live.and_then(|live| live.order.clone()),
            group: live.and_then(|live| live.group.clone()),
        }))
    }

    fn detail(&self, id: &ContainerId) -> Option<Box<Detail>> {
        let c = self.agent.get(id)?;
        let report = report_of(&c.state).cloned();
        let meter = self.live.get(id).and_then(|l| l.meter.as_ref());
        let timeline = match &report {
            Some(report) => report.timeline.clone(),
            None => meter
                .map(|m| sample::locked(m).timeline())
                .unwrap_or_default(),
        };
        Some(Box::new(Detail {
            observed: self.observed(id, c)?,
            timeline,
            report,
        }))
    }
}

fn report_of(state: &LifecyclePhase) -> Option<&ExitReport> {
    match state {
        LifecyclePhase::Exited { report, .. } => Some(report),
        LifecyclePhase::New
        | LifecyclePhase::Preparing { .. }
        | LifecyclePhase::Starting { .. }
        | LifecyclePhase::Running => None,
        LifecyclePhase::Stopping { .. } | LifecyclePhase::Acked => None,
    }
}

fn phase(state: &LifecyclePhase) -> Option<NodeContainerPhase> {
    Some(match state {
        LifecyclePhase::New | LifecyclePhase::Preparing { .. } => NodeContainerPhase::Preparing,
        LifecyclePhase::Starting { .. } => NodeContainerPhase::Starting,
        LifecyclePhase::Running => NodeContainerPhase::Running,
        LifecyclePhase::Stopping { .. } => NodeContainerPhase::Stopping,
        LifecyclePhase::Exited { .. } => NodeContainerPhase::Exited,
        LifecyclePhase::Acked => return None,
    })
}
