//! The part of the loop about auxiliary services: feeds their core, and carries out its actions.

use std::collections::BTreeSet;

use headroom_node_core::aux_services::{AuxServicesAction, AuxServicesEvent};
use headroom_node_core::container::{LifecycleEvent, LifecyclePhase};
use headroom_types::{ContainerId, Name};
use tracing::{error, info, warn};

use super::NodeAgentLoop;
use crate::agent_input::AuxServiceReport;
use crate::metrics::FailedOperation;

impl NodeAgentLoop {
    /// Takes over the services of an earlier agent.
    pub(crate) fn adopt_aux_services(&mut self, found: Vec<Name>) {
        for service in found {
            self.step_aux_services(AuxServicesEvent::Adopted(service));
        }
    }

    /// Prepares a container after its auxiliary services are ready.
    pub(super) fn prepare(&mut self, id: ContainerId) {
        let order = self.state.live.get(&id).and_then(|l| l.order.as_ref());
        let Some(order) = order else {
            error!(container_id = %id, "an order without a launch, ignoring");
            return;
        };
        let services = order.launch.aux_services.clone();
        if services.is_empty() {
            self.jobs.prepare(id, order.clone());
        } else {
            self.step_aux_services(AuxServicesEvent::Launch(id, services));
        }
    }

    /// Stops waiting for the services or files of a container.
    pub(super) fn abandon(&mut self, id: ContainerId) {
        self.state.facts.site.localizer.abandon(&id);
        self.step_aux_services(AuxServicesEvent::Abandon(id));
    }

    /// Handles a report of a service's process.
    pub(super) fn aux_service_reported(
        &mut self,
        service: Name,
        run: u32,
        report: AuxServiceReport,
    ) {
        self.step_aux_services(match report {
            AuxServiceReport::Ready => AuxServicesEvent::Ready { service, run },
            AuxServiceReport::Ended(why) => AuxServicesEvent::Ended { service, run, why },
        });
    }

    /// Reports to the core which services the containers of this node name.
    pub(super) fn update_aux_service_use(&mut self) {
        if self.state.services.is_empty() {
            return;
        }
        let uses = |id: &ContainerId| {
            self.state.core.get(id).is_some_and(|c| match c.state {
                LifecyclePhase::Starting { .. }
                | LifecyclePhase::Running
                | LifecyclePhase::Stopping { .. } => true,
                // A launch that is being prepared waits in the core of the services.
                LifecyclePhase::New
                | LifecyclePhase::Preparing { .. }
                | LifecyclePhase::Exited { .. }
                | LifecyclePhase::Acked => false,
            })
        };
        let names: BTreeSet<Name> = self
            .state
            .live
            .iter()
            .filter(|(id, _)| uses(id))
            .filter_map(|(_, live)| live.order.as_ref())
            .flat_map(|order| order.launch.aux_services.iter().cloned())
            .collect();
        if names != *self.state.services.in_use() {
            self.step_aux_services(AuxServicesEvent::InUse(names));
        }
    }

    /// Applies an event to the core of the services, and carries out its actions.
    pub(super) fn step_aux_services(&mut self, event: AuxServicesEvent) {
        let actions = self.state.services.step(self.clock.now(), event);
        for action in actions {
            match action {
                AuxServicesAction::Start { service, run } => {
                    self.jobs.start_aux_service(service, run);
                }
                AuxServicesAction::AwaitReady { service, run } => {
                    self.jobs.resume_aux_service(service, run);
                }
                AuxServicesAction::Terminate(service) => self.jobs.terminate_aux_service(service),
                AuxServicesAction::Kill(service) => self.jobs.kill_aux_service(service),
                AuxServicesAction::Prepare(id) => {
                    match self.state.live.get(&id).and_then(|l| l.order.clone()) {
                        Some(order) => self.jobs.prepare(id, order),
                        None => error!(container_id = %id, "an order without a launch, ignoring"),
                    }
                }
                AuxServicesAction::Fail(id, failure) => {
                    let why = &failure.why;
                    warn!(container_id = %id, why, "the container could not be launched");
                    self.state.counts.failed(FailedOperation::Prepare);
                    self.on_container_event(id, LifecycleEvent::Failed(failure));
                }
                AuxServicesAction::LogReady(service) => {
                    info!(%service, "the auxiliary service is ready");
                }
                AuxServicesAction::LogEnded(service, why) => {
                    warn!(%service, why, "the auxiliary service ended");
                }
            }
        }
    }
}
