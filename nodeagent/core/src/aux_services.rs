//! All auxiliary services of a node, and the launches that wait for them.
//!
//! The loop of the node agent owns this state. A launch that names services waits here until all of
//! them are ready, or until one of them fails. A service that ended is started again while a launch
//! waits for it or a running container names it.

use std::collections::{BTreeMap, BTreeSet};

use headroom_types::{ContainerId, Name, NodeId, Tick};

use crate::aux_service::{
    AuxService, AuxServiceEffect, AuxServiceEvent, AuxServicePhase, AuxServiceTimes,
};
use crate::launch_failure::{LaunchFailure, LaunchFailureKind};

/// Input of the services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuxServicesEvent {
    /// A launch needs these services.
    Launch(ContainerId, Vec<Name>),
    /// A waiting launch is abandoned.
    Abandon(ContainerId),
    /// The services that the containers of this node name now.
    InUse(BTreeSet<Name>),
    /// An earlier agent had started this service, and it runs.
    Adopted(Name),
    /// The service is ready.
    Ready {
        /// The service.
        service: Name,
        /// Number of its start.
        run: u32,
    },
    /// The service could not be started, or ended.
    Ended {
        /// The service.
        service: Name,
        /// Number of its start.
        run: u32,
        /// One sentence with the cause, and the end of its log.
        why: String,
    },
    /// A deadline may have passed.
    Time,
    /// All services are stopped for good, because the node shuts down.
    StopAll,
}

/// One action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuxServicesAction {
    /// Start a service.
    Start {
        /// The service.
        service: Name,
        /// Number of this start, for its events.
        run: u32,
    },
    /// Wait until an adopted service is ready, and for its end.
    AwaitReady {
        /// The service.
        service: Name,
        /// Number of its start.
        run: u32,
    },
    /// Send SIGTERM to the program of a service.
    Terminate(Name),
    /// Send SIGKILL to all processes of a service.
    Kill(Name),
    /// All services of this launch are ready: prepare the container.
    Prepare(ContainerId),
    /// The launch fails.
    Fail(ContainerId, LaunchFailure),
    /// Log that a service is ready.
    LogReady(Name),
    /// Log that a service ended or failed, for this cause.
    LogEnded(Name, String),
}

/// All services of a node.
#[derive(Clone, Debug)]
pub struct AuxServices {
    node: NodeId,
    services: BTreeMap<Name, AuxService>,
    /// Launches that wait, with the services that they name.
    waiting: BTreeMap<ContainerId, Vec<Name>>,
    in_use: BTreeSet<Name>,
}

impl AuxServices {
    /// The configured services of `node`, none of which runs.
    pub fn new(node: NodeId, times: impl IntoIterator<Item = (Name, AuxServiceTimes)>) -> Self {
        AuxServices {
            node,
            services: times
                .into_iter()
                .map(|(name, times)| (name, AuxService::new(times)))
                .collect(),
            waiting: BTreeMap::new(),
            in_use: BTreeSet::new(),
        }
    }

    /// Whether the node has no service.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// All services with their phase.
    pub fn phases(&self) -> impl Iterator<Item = (&Name, &AuxServicePhase)> {
        self.services.iter().map(|(name, s)| (name, s.phase()))
    }

    /// Whether no process of any service runs.
    pub fn is_quiet(&self) -> bool {
        self.services.values().all(AuxService::is_quiet)
    }

    /// The services that running containers name, as last reported.
    pub fn in_use(&self) -> &BTreeSet<Name> {
        &self.in_use
    }

    /// The time at which [`AuxServicesEvent::Time`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        self.services
            .values()
            .filter_map(AuxService::deadline)
            .min()
    }

    /// Applies an event.
    pub fn step(&mut self, now: Tick, event: AuxServicesEvent) -> Vec<AuxServicesAction> {
        let mut out = Vec::new();
        match event {
            AuxServicesEvent::Launch(id, names) => self.launch(now, id, names, &mut out),
            AuxServicesEvent::Abandon(id) => {
                if self.waiting.remove(&id).is_some() {
                    out.push(AuxServicesAction::Fail(
                        id,
                        LaunchFailure::new(
                            LaunchFailureKind::AuxServiceFailed,
                            "the container was stopped while it waited for its auxiliary services",
                        ),
                    ));
                }
            }
            AuxServicesEvent::InUse(names) => {
                self.in_use = names;
                for name in self.in_use.clone() {
                    self.feed(now, &name, AuxServiceEvent::Needed, &mut out);
                }
            }
            AuxServicesEvent::Adopted(name) => {
                self.feed(now, &name, AuxServiceEvent::Adopted, &mut out);
            }
            AuxServicesEvent::Ready { service, run } => {
                if self.is_current(&service, run) {
                    self.feed(now, &service, AuxServiceEvent::Ready, &mut out);
                }
            }
            AuxServicesEvent::Ended { service, run, why } => {
                if self.is_current(&service, run) {
                    self.feed(now, &service, AuxServiceEvent::Ended(why), &mut out);
                }
            }
            AuxServicesEvent::Time => {
                for name in self.names() {
                    let needed = self.is_needed(&name);
                    self.feed(now, &name, AuxServiceEvent::Time { needed }, &mut out);
                }
            }
            AuxServicesEvent::StopAll => {
                for name in self.names() {
                    self.feed(now, &name, AuxServiceEvent::Stop, &mut out);
                }
            }
        }
        out
    }

    fn launch(
        &mut self,
        now: Tick,
        id: ContainerId,
        names: Vec<Name>,
        out: &mut Vec<AuxServicesAction>,
    ) {
        if let Some(name) = names.iter().find(|name| !self.services.contains_key(*name)) {
            let why = format!(
                "the launch needs the auxiliary service {name}, which node {} does not have; add \
                 [aux_services.{name}] to its nodeagent.toml",
                self.node
            );
            out.push(AuxServicesAction::Fail(
                id,
                LaunchFailure::new(LaunchFailureKind::AuxServiceMissing, why),
            ));
            return;
        }
        self.waiting.insert(id, names.clone());
        for name in &names {
            self.feed(now, name, AuxServiceEvent::Needed, out);
        }
        self.continue_launches(out);
    }

    fn feed(
        &mut self,
        now: Tick,
        name: &Name,
        event: AuxServiceEvent,
        out: &mut Vec<AuxServicesAction>,
    ) {
        // A container may name a service that the node no longer has.
        let Some(service) = self.services.get_mut(name) else {
            return;
        };
        let mut effects = Vec::new();
        service.apply(now, event, &mut effects);
        let run = service.run();
        for effect in effects {
            let service = name.clone();
            match effect {
                AuxServiceEffect::Start => out.push(AuxServicesAction::Start { service, run }),
                AuxServiceEffect::AwaitReady => {
                    out.push(AuxServicesAction::AwaitReady { service, run });
                }
                AuxServiceEffect::Terminate => out.push(AuxServicesAction::Terminate(service)),
                AuxServiceEffect::Kill => out.push(AuxServicesAction::Kill(service)),
                AuxServiceEffect::Announce => {
                    out.push(AuxServicesAction::LogReady(service));
                    self.continue_launches(out);
                }
                AuxServiceEffect::Refuse(why) => {
                    out.push(AuxServicesAction::LogEnded(service, why.clone()));
                    self.fail_launches(name, &why, out);
                }
                AuxServiceEffect::Lost(why) => {
                    out.push(AuxServicesAction::LogEnded(service, why));
                }
            }
        }
    }

    /// Releases the launches all of whose services are ready.
    fn continue_launches(&mut self, out: &mut Vec<AuxServicesAction>) {
        let services = &self.services;
        let is_ready = |name: &Name| services.get(name).is_some_and(AuxService::is_ready);
        let ready = self
            .waiting
            .extract_if(.., |_, names| names.iter().all(is_ready));
        out.extend(ready.map(|(id, _)| AuxServicesAction::Prepare(id)));
    }

    fn fail_launches(&mut self, name: &Name, why: &str, out: &mut Vec<AuxServicesAction>) {
        let why = format!(
            "the auxiliary service {name} of node {} failed: {why}",
            self.node
        );
        let failed = self.waiting.extract_if(.., |_, names| names.contains(name));
        out.extend(failed.map(|(id, _)| {
            let failure = LaunchFailure::new(LaunchFailureKind::AuxServiceFailed, why.clone());
            AuxServicesAction::Fail(id, failure)
        }));
    }

    fn is_needed(&self, name: &Name) -> bool {
        self.in_use.contains(name) || self.waiting.values().any(|names| names.contains(name))
    }

    fn is_current(&self, name: &Name, run: u32) -> bool {
        self.services.get(name).is_some_and(|s| s.run() == run)
    }

    fn names(&self) -> Vec<Name> {
        self.services.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }
    fn id(n: u32) -> ContainerId {
        format!("job.1.e1.c{n}").parse().expect("an id")
    }
    fn services() -> AuxServices {
        let times = AuxServiceTimes {
            start_timeout: Duration::from_secs(30),
            stop_grace: Duration::from_secs(10),
        };
        let node = "worker-01".parse().expect("a node");
        AuxServices::new(node, [(name("a"), times), (name("b"), times)])
    }
    fn ready(service: &str, run: u32) -> AuxServicesEvent {
        AuxServicesEvent::Ready {
            service: name(service),
            run,
        }
    }
    fn ended(service: &str, run: u32) -> AuxServicesEvent {
        AuxServicesEvent::Ended {
            service: name(service),
            run,
            why: "exit 1".into(),
        }
    }
    fn start(service: &str, run: u32) -> AuxServicesAction {
        AuxServicesAction::Start {
            service: name(service),
            run,
        }
    }

    #[test]
    fn a_launch_waits_until_all_its_services_are_ready() {
        let mut s = services();
        let launch = AuxServicesEvent::Launch(id(1), vec![name("a"), name("b")]);
        assert_eq!(s.step(Tick(0), launch), [start("a", 1), start("b", 1)]);
        assert_eq!(
            s.step(Tick(1), ready("a", 1)),
            [AuxServicesAction::LogReady(name("a"))]
        );
        let second = AuxServicesEvent::Launch(id(2), vec![name("a")]);
        assert_eq!(
            s.step(Tick(2), second),
            [AuxServicesAction::Prepare(id(2))],
            "its service is ready"
        );
        let out = s.step(Tick(3), ready("b", 1));
        assert!(out.contains(&AuxServicesAction::Prepare(id(1))), "{out:?}");
        assert!(s.deadline().is_none());
    }

    #[test]
    fn an_unknown_service_fails_the_launch_and_names_the_key() {
        let mut s = services();
        let out = s.step(
            Tick(0),
            AuxServicesEvent::Launch(id(1), vec![name("a"), name("spark-shuffle")]),
        );
        let [AuxServicesAction::Fail(failed, failure)] = out.as_slice() else {
            panic!("{out:?}")
        };
        assert_eq!(
            (failed, failure.kind),
            (&id(1), LaunchFailureKind::AuxServiceMissing)
        );
        for word in ["spark-shuffle", "worker-01", "[aux_services.spark-shuffle]"] {
            assert!(failure.why.contains(word), "{word}: {}", failure.why);
        }
        assert!(s.is_quiet(), "no service is started for it");
    }

    #[test]
    fn a_failed_start_fails_its_launches_only() {
        let mut s = services();
        for (n, service) in [(1, "a"), (2, "b")] {
            s.step(
                Tick(0),
                AuxServicesEvent::Launch(id(n), vec![name(service)]),
            );
        }
        let out = s.step(Tick(5), ended("a", 1));
        let failed: Vec<_> = out
            .iter()
            .filter_map(|action| {
                let AuxServicesAction::Fail(id, failure) = action else {
                    return None;
                };
                Some((id.clone(), failure.why.clone()))
            })
            .collect();
        let why = "the auxiliary service a of node worker-01 failed: exit 1".to_owned();
        assert_eq!(failed, [(id(1), why)]);
        // Nothing needs it any more.
        assert!(s.step(Tick(1_005), AuxServicesEvent::Time).is_empty());
    }

    #[test]
    fn a_service_in_use_starts_again_and_late_events_are_dropped() {
        let mut s = services();
        s.step(Tick(0), AuxServicesEvent::Launch(id(1), vec![name("a")]));
        s.step(Tick(1), ready("a", 1));
        s.step(Tick(2), AuxServicesEvent::InUse([name("a")].into()));
        s.step(Tick(10), ended("a", 1));
        assert_eq!(s.deadline(), Some(Tick(1_010)));
        assert_eq!(s.step(Tick(1_010), AuxServicesEvent::Time), [start("a", 2)]);
        assert!(s.step(Tick(1_011), ended("a", 1)).is_empty(), "an old end");
        assert!(s.step(Tick(1_011), ready("a", 1)).is_empty(), "an old one");
        assert!(!s.step(Tick(1_012), ready("a", 2)).is_empty());
        s.step(Tick(1_013), AuxServicesEvent::InUse(BTreeSet::new()));
        s.step(Tick(1_014), ended("a", 2));
        let until = s.deadline().expect("a wait");
        assert!(s.step(until, AuxServicesEvent::Time).is_empty());
    }

    #[test]
    fn an_abandoned_launch_leaves_and_the_service_stays() {
        let mut s = services();
        s.step(Tick(0), AuxServicesEvent::Launch(id(1), vec![name("a")]));
        let out = s.step(Tick(1), AuxServicesEvent::Abandon(id(1)));
        assert!(matches!(out.as_slice(), [AuxServicesAction::Fail(failed, _)] if *failed == id(1)));
        assert!(s.step(Tick(1), AuxServicesEvent::Abandon(id(1))).is_empty());
        assert_eq!(
            s.step(Tick(2), ready("a", 1)),
            [AuxServicesAction::LogReady(name("a"))]
        );
    }

    #[test]
    fn an_adopted_service_that_a_container_names_is_not_started_twice() {
        let mut s = services();
        let out = s.step(Tick(0), AuxServicesEvent::Adopted(name("a")));
        let wanted = AuxServicesAction::AwaitReady {
            service: name("a"),
            run: 1,
        };
        assert_eq!(out, [wanted]);
        let used = AuxServicesEvent::InUse([name("a"), name("removed")].into());
        assert!(s.step(Tick(1), used).is_empty());
        assert!(!s.is_quiet());
        let out = s.step(Tick(2), AuxServicesEvent::StopAll);
        assert_eq!(out, [AuxServicesAction::Terminate(name("a"))]);
        assert!(s.step(Tick(3), ended("a", 1)).is_empty());
        assert!(s.is_quiet());
    }
}
