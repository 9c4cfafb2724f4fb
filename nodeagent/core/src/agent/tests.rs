use super::*;
use headroom_types::{Bytes, Cpus, EnforcerKind, Evidence, ExitReason, Resource, UnixMillis};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

fn id(n: u64) -> ContainerId {
    format!("job.1.e1.c{n}").parse().expect("id")
}
fn order() -> ContainerOrder {
    ContainerOrder {
        request: None,
        attempt: 1,
        resource: Resource::new(Bytes::from_mib(64), Cpus::from_cores(1)),
        version: 1,
        granted: UnixMillis(1),
        grace: Duration::from_secs(2),
    }
}
fn report(n: u64) -> Box<ExitReport> {
    Box::new(ExitReport {
        container: id(n),
        node: "n".parse().expect("name"),
        reason: ExitReason::Exit { code: 0 },
        evidence: Evidence::empty(EnforcerKind::Poll),
        diagnosis: Vec::new(),
        started: None,
        ended: UnixMillis(1),
        timeline: Vec::new(),
        log_tail: String::new(),
        tasks: Vec::new(),
    })
}
fn run(n: u64) -> (ContainerId, DesiredState) {
    (id(n), DesiredState::Run(order()))
}

/// An agent with a driver that carries out its actions and records them.
#[derive(Default)]
struct SimulatedAgent {
    agent: AgentCore,
    now: u64,
    spawned: Vec<u64>,
    alive: BTreeSet<u64>,
    recorded: BTreeSet<u64>,
    forgot: BTreeSet<u64>,
    resizing: BTreeMap<u64, OrderedSize>,
    queue: VecDeque<AgentEvent>,
}

impl SimulatedAgent {
    fn feed(&mut self, event: AgentEvent) -> Vec<ContainerEffect> {
        let outcome = self.agent.step(Tick(self.now), event);
        assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
        outcome
            .actions
            .iter()
            .for_each(|a| self.act(a.id.seq, &a.what));
        outcome.actions.into_iter().map(|a| a.what).collect()
    }
    fn apply(&mut self, n: u64, event: container::LifecycleEvent) {
        self.queue
            .push_back(AgentEvent::Container { id: id(n), event });
    }
    fn act(&mut self, n: u64, effect: &ContainerEffect) {
        match effect {
            ContainerEffect::Prepare => self.apply(n, container::LifecycleEvent::Prepared),
            ContainerEffect::Abandon => {}
            ContainerEffect::Spawn => {
                assert!(!self.spawned.contains(&n), "launched twice");
                self.spawned.push(n);
                self.alive.insert(n);
                self.apply(
                    n,
                    container::LifecycleEvent::Started {
                        now: Tick(self.now),
                    },
                );
            }
            ContainerEffect::RecordStop(_) => drop(self.recorded.insert(n)),
            ContainerEffect::Terminate => {
                assert!(self.recorded.contains(&n), "a stop is recorded first")
            }
            ContainerEffect::Kill => {
                assert!(self.recorded.contains(&n), "a kill is recorded first");
                if self.alive.remove(&n) {
                    self.apply(n, container::LifecycleEvent::Ended);
                }
            }
            ContainerEffect::Collect(_) => {
                assert!(!self.alive.contains(&n), "collected while it runs");
                self.apply(n, container::LifecycleEvent::Reported(report(n)));
            }
            ContainerEffect::Changed | ContainerEffect::ReportEnd => {}
            ContainerEffect::Resize(size) => {
                assert_eq!(self.state(n), "running", "resized while it does not run");
                assert!(
                    self.resizing.insert(n, size.clone()).is_none(),
                    "two changes at once"
                );
            }
            ContainerEffect::Forget => {
                assert!(self.forgot.insert(n), "forgotten twice");
                assert!(!self.alive.contains(&n), "forgotten while it runs");
            }
        }
    }
    fn dies(&mut self, n: u64) {
        if self.alive.remove(&n) {
            self.apply(n, container::LifecycleEvent::Ended);
        }
    }
    /// Completes a change of size. The node refuses sizes above 100 MiB.
    fn resize(&mut self, n: u64) {
        let Some(size) = self.resizing.remove(&n) else {
            return;
        };
        let fits = size.resource.memory <= Bytes::from_mib(100);
        let result = if fits { Ok(()) } else { Err("too much".into()) };
        self.feed(AgentEvent::Resized {
            id: id(n),
            version: size.version,
            result,
        });
    }
    fn has(&self, n: u64) -> (u32, Bytes) {
        let order = &self.agent.get(&id(n)).expect("there").order;
        (order.version, order.resource.memory)
    }
    /// Applies all queued events, then lets `ms` pass.
    fn run_for(&mut self, ms: u64) {
        while let Some(event) = self.queue.pop_front() {
            self.feed(event);
        }
        self.now += ms;
        self.feed(AgentEvent::Time);
        while let Some(event) = self.queue.pop_front() {
            self.feed(event);
        }
    }
    fn state(&self, n: u64) -> &'static str {
        self.agent.get(&id(n)).map_or("gone", |c| c.state.name())
    }
}

#[test]
fn a_repeated_order_has_no_effect() {
    let mut n = SimulatedAgent::default();
    let wants = || AgentEvent::Desired {
        extent: DesiredListExtent::Changes,
        wants: vec![run(1)],
    };
    assert_eq!(n.feed(wants()), [ContainerEffect::Prepare]);
    assert_eq!(n.feed(wants()), []);
    n.run_for(0);
    assert_eq!((n.state(1), n.feed(wants())), ("running", vec![]));
}

#[test]
fn a_container_missing_from_the_full_list_is_stopped() {
    let mut n = SimulatedAgent::default();
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1), run(2)],
    });
    n.run_for(0);
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(2)],
    });
    assert_eq!((n.state(1), n.state(2)), ("stopping", "running"));
    n.run_for(2000);
    assert_eq!(n.state(1), "exited");
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Changes,
        wants: vec![],
    });
    assert_eq!(
        n.state(2),
        "running",
        "an empty list of changes stops no container"
    );
}

#[test]
fn an_exit_is_reported_until_received_and_again_to_a_new_peer() {
    let mut n = SimulatedAgent::default();
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1)],
    });
    n.run_for(0);
    n.dies(1);
    n.run_for(0);
    assert_eq!(n.agent.unreceived().count(), 1);
    n.feed(AgentEvent::Received(vec![id(1), id(9)]));
    assert_eq!(n.agent.unreceived().count(), 0);
    n.feed(AgentEvent::NewPeer { acked: vec![] });
    assert_eq!(n.agent.unreceived().count(), 1);
    n.feed(AgentEvent::NewPeer { acked: vec![id(1)] });
    assert_eq!(n.state(1), "gone");
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1)],
    });
    assert_eq!(
        n.state(1),
        "gone",
        "a late order does not start the container again"
    );
}

#[test]
fn a_stop_of_an_unknown_container_is_reported() {
    let mut n = SimulatedAgent::default();
    let stop = || AgentEvent::Desired {
        extent: DesiredListExtent::Changes,
        wants: vec![(id(4), DesiredState::Stop(StopCause::Asked))],
    };
    assert_eq!(
        n.feed(stop()),
        [ContainerEffect::Collect(container::ContainerEnd::Never {
            cause: StopCause::Asked
        })]
    );
    n.run_for(0);
    assert_eq!((n.state(4), n.agent.unreceived().count()), ("exited", 1));
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Changes,
        wants: vec![(id(4), DesiredState::Forget)],
    });
    assert_eq!(n.feed(stop()), []);
}

#[test]
fn containers_of_an_earlier_agent_are_adopted() {
    let mut n = SimulatedAgent::default();
    let adopt = |n, found| AgentEvent::Adopted {
        id: id(n),
        order: order(),
        found,
    };
    n.alive.extend([1, 2]);
    n.recorded.insert(2);
    assert_eq!(n.feed(adopt(1, AdoptedState::Alive { asked: None })), []);
    n.feed(adopt(
        2,
        AdoptedState::Alive {
            asked: Some(StopCause::Asked),
        },
    ));
    n.feed(adopt(3, AdoptedState::Ended { asked: None }));
    n.feed(adopt(4, AdoptedState::Reported(report(4))));
    n.feed(adopt(5, AdoptedState::Unstarted));
    n.run_for(0);
    let states = [1, 2, 3, 4, 5].map(|i| n.state(i));
    assert_eq!(states, ["running", "exited", "exited", "exited", "running"]);
    assert_eq!(n.spawned, [5], "a prepared container is started now");
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1), run(5)],
    });
    assert_eq!(
        (n.state(1), n.spawned.len()),
        ("running", 1),
        "adopted, not launched again"
    );
}

fn sized(n: u64, version: u32, mib: u64) -> AgentEvent {
    let resource = Resource::new(Bytes::from_mib(mib), Cpus::from_cores(1));
    let order = ContainerOrder {
        version,
        resource,
        ..order()
    };
    AgentEvent::Desired {
        extent: DesiredListExtent::Changes,
        wants: vec![(id(n), DesiredState::Run(order))],
    }
}

#[test]
fn a_new_size_is_applied_when_the_container_runs() {
    let mut n = SimulatedAgent::default();
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1)],
    });
    assert_eq!(
        n.feed(sized(1, 2, 80)),
        [],
        "the container does not run yet"
    );
    n.run_for(0);
    assert_eq!(n.resizing.get(&1).map(|s| s.version), Some(2));
    assert_eq!(
        (n.feed(sized(1, 2, 80)), n.has(1)),
        (vec![], (1, Bytes::from_mib(64)))
    );
    n.resize(1);
    assert_eq!(n.has(1), (2, Bytes::from_mib(80)));
    assert_eq!(
        (n.feed(sized(1, 2, 80)), n.feed(sized(1, 1, 64))),
        (vec![], vec![]),
        "an old order has no effect"
    );
    n.feed(sized(1, 3, 200));
    n.resize(1);
    let c = n.agent.get(&id(1)).expect("there");
    assert_eq!(
        c.sizing
            .refused
            .as_ref()
            .map(|r| (r.size.version, r.why.as_str())),
        Some((3, "too much"))
    );
    assert_eq!(
        (n.has(1), n.feed(sized(1, 3, 200))),
        ((2, Bytes::from_mib(80)), vec![]),
        "a refused size is not tried again"
    );
    n.dies(1);
    n.run_for(0);
    assert_eq!((n.feed(sized(1, 4, 64)), n.state(1)), (vec![], "exited"));
}

#[test]
fn a_resize_result_is_reported_at_once() {
    let mut n = SimulatedAgent::default();
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1)],
    });
    n.run_for(0);
    n.feed(sized(1, 2, 80));
    let done = |version, result| AgentEvent::Resized {
        id: id(1),
        version,
        result,
    };
    assert_eq!(n.feed(done(2, Ok(()))), [ContainerEffect::Changed]);
    n.resizing.clear();
    n.feed(sized(1, 3, 90));
    assert_eq!(
        n.feed(done(3, Err("no".into()))),
        [ContainerEffect::Changed]
    );
    assert_eq!(n.feed(done(3, Ok(()))), [], "no change is in progress");
}

#[test]
fn a_disconnected_node_ends_its_containers_and_reports_later() {
    let timeout = crate::fence::FenceTimeout::For(Duration::from_secs(60));
    let mut n = SimulatedAgent {
        agent: AgentCore::new(NodeFence::new(timeout, Tick(0))),
        ..SimulatedAgent::default()
    };
    assert_eq!(n.agent.deadline(), None, "no container can be ended");
    n.now = 5_000;
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(1), run(2)],
    });
    n.run_for(20_000);
    n.feed(AgentEvent::Received(vec![]));
    assert_eq!(
        n.agent.deadline(),
        Some(Tick(85_000)),
        "an answer to a report restarts the timeout"
    );
    n.run_for(59_999);
    assert_eq!(
        (n.state(1), n.agent.deadline()),
        ("running", Some(Tick(85_000)))
    );
    n.now = 85_000;
    assert_eq!(
        n.agent.clone().step(Tick(85_000), AgentEvent::Time).fenced,
        Some(Duration::from_secs(60))
    );
    let stopping = LifecyclePhase::Stopping {
        asked: Some(StopCause::Fenced),
        step: StopProgress::Grace {
            kill_at: Tick(87_000),
        },
    };
    n.feed(AgentEvent::Time);
    assert_eq!(
        (
            &n.agent.get(&id(1)).expect("there").state,
            n.agent.deadline()
        ),
        (&stopping, Some(Tick(87_000)))
    );
    n.run_for(2_000);
    assert_eq!(
        (n.state(1), n.state(2), n.agent.unreceived().count()),
        ("exited", "exited", 2)
    );
    assert_eq!(n.agent.deadline(), None);
    n.feed(AgentEvent::NewPeer { acked: vec![] });
    n.feed(AgentEvent::Desired {
        extent: DesiredListExtent::Full,
        wants: vec![run(3)],
    });
    n.run_for(0);
    assert_eq!(
        (n.state(3), n.agent.deadline()),
        ("running", Some(Tick(147_000))),
        "the node runs further containers"
    );
}

#[derive(Clone, Debug)]
enum AgentTestAction {
    Want(u64),
    Size(u64, u32, u64),
    Resized(u64),
    Stop(u64),
    Full(Vec<u64>),
    Forget(u64),
    Dies(u64),
    Received,
    Restarted,
    Pass(u64),
}

fn any_deed() -> impl Strategy<Value = AgentTestAction> {
    let n = 0u64..6;
    prop_oneof![
        n.clone().prop_map(AgentTestAction::Want),
        (n.clone(), 1u32..6, 30u64..160).prop_map(|(n, v, mib)| AgentTestAction::Size(n, v, mib)),
        n.clone().prop_map(AgentTestAction::Resized),
        n.clone().prop_map(AgentTestAction::Stop),
        proptest::collection::vec(n.clone(), 0..6).prop_map(AgentTestAction::Full),
        n.clone().prop_map(AgentTestAction::Forget),
        n.prop_map(AgentTestAction::Dies),
        Just(AgentTestAction::Received),
        Just(AgentTestAction::Restarted),
        (0u64..3000).prop_map(AgentTestAction::Pass),
    ]
}

fn apply(n: &mut SimulatedAgent, deed: AgentTestAction) {
    let changes = |want| AgentEvent::Desired {
        extent: DesiredListExtent::Changes,
        wants: vec![want],
    };
    match deed {
        AgentTestAction::Want(i) => drop(n.feed(changes(run(i)))),
        AgentTestAction::Size(i, version, mib) => drop(n.feed(sized(i, version, mib))),
        AgentTestAction::Resized(i) => n.resize(i),
        AgentTestAction::Stop(i) => {
            drop(n.feed(changes((id(i), DesiredState::Stop(StopCause::Asked)))))
        }
        AgentTestAction::Full(ids) => {
            let wants: BTreeMap<_, _> = ids.into_iter().map(run).collect();
            n.feed(AgentEvent::Desired {
                extent: DesiredListExtent::Full,
                wants: wants.into_iter().collect(),
            });
        }
        // A resource manager forgets only containers whose end it has received.
        AgentTestAction::Forget(i) if n.state(i) == "exited" => {
            drop(n.feed(changes((id(i), DesiredState::Forget))))
        }
        AgentTestAction::Forget(_) => {}
        AgentTestAction::Dies(i) => n.dies(i),
        AgentTestAction::Received => {
            let ids = n.agent.unreceived().map(|r| r.container.clone()).collect();
            n.feed(AgentEvent::Received(ids));
        }
        AgentTestAction::Restarted => drop(n.feed(AgentEvent::NewPeer { acked: vec![] })),
        AgentTestAction::Pass(ms) => n.run_for(ms),
    }
}

proptest! {
    /// Safety: no container is launched twice, killed without a record or forgotten while it runs.
    /// It is resized only while it runs, one change at a time (see `SimulatedAgent::act`). No event
    /// is refused. Liveness: when no container is desired, all end within the grace period and are
    /// reported.
    #[test]
    fn any_sequence_of_events_is_safe_and_ends(deeds in proptest::collection::vec(any_deed(), 0..60)) {
        let mut n = SimulatedAgent::default();
        deeds.into_iter().for_each(|d| apply(&mut n, d));
        n.feed(AgentEvent::Desired { extent: DesiredListExtent::Full, wants: vec![] });
        (0..4).for_each(|_| n.run_for(2000));
        prop_assert!(n.agent.is_quiet() && n.alive.is_empty(), "{:?}", n.agent);
        prop_assert_eq!(n.agent.deadline(), None);
    }
}
