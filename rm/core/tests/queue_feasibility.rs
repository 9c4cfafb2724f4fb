//! Scenario tests of containers that the limits of queues make infeasible. The invariants are
//! checked after every step; each test must end with `check`.

use std::sync::Arc;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{QueueDefinition, QueueShare, ShareOrAmount};
use headroom_rm_core::testkit::{ClusterScenario, id, size};
use headroom_rm_core::{
    AppSubmission, CallAnswer, CallRefusal, ClusterCall, ClusterSettings, MasterKind,
};
use headroom_types::{AppId, Bytes, ExitReason, LaunchSpec, Resource};

/// A cluster with one leaf, `q`.
fn scenario(leaf: QueueDefinition) -> ClusterScenario {
    let queues = QueueTree::new(QueueDefinition {
        children: [(id("q"), leaf)].into(),
        ..QueueDefinition::default()
    });
    ClusterScenario::with(ClusterSettings {
        queues: queues.expect("a valid tree"),
        ..ClusterSettings::default()
    })
}

fn at_most(memory: ShareOrAmount<Bytes>) -> QueueDefinition {
    QueueDefinition {
        maximum: QueueShare {
            memory: Some(memory),
            ..QueueShare::default()
        },
        ..QueueDefinition::default()
    }
}

fn managed(s: &mut ClusterScenario, resource: Resource) -> Result<AppId, CallRefusal> {
    let launch = Arc::new(LaunchSpec {
        command: vec!["am".into()],
        ..LaunchSpec::default()
    });
    let spec = AppSubmission {
        name: id("job"),
        queue: id("q"),
        priority: 0,
        user: "u".into(),
        lifetime: None,
        master: MasterKind::Managed {
            resource,
            launch,
            max_attempts: 2,
            growth: None,
            start_timeout: None,
            first_request: None,
        },
        key: None,
    };
    let answer = s.call(ClusterCall::Submit(Box::new(spec)))?;
    let CallAnswer::Submitted { app, .. } = answer else {
        panic!("not submitted: {answer:?}")
    };
    Ok(app)
}

fn sentence(refused: Result<AppId, CallRefusal>) -> String {
    match refused {
        Err(CallRefusal::NeverFits { sentence, .. }) => sentence,
        other => panic!("not infeasible: {other:?}"),
    }
}

#[test]
fn a_part_of_the_cluster_refuses_nothing_before_nodes_have_registered() {
    let mut s = scenario(at_most(ShareOrAmount::Part(500)));
    let early = managed(&mut s, size(4, 1)).expect("no node is known yet");
    s.node("n1", size(16, 16)).settle();
    assert_eq!(s.alive(&early).len(), 1);
    assert_eq!(
        sentence(managed(&mut s, size(9, 1))),
        "needs 9 GiB, and queue q may never have more than 8 GiB"
    );
    s.restart();
    managed(&mut s, size(4, 1)).expect("nodes are expected after a restart");
    s.check();
}

#[test]
fn an_amount_refuses_larger_containers_before_nodes_have_registered() {
    let mut s = scenario(at_most(ShareOrAmount::Exactly(Bytes::from_gib(2))));
    assert_eq!(
        sentence(managed(&mut s, size(3, 1))),
        "needs 3 GiB, and queue q may never have more than 2 GiB"
    );
    s.check();
}

#[test]
fn a_master_above_the_user_limit_is_refused() {
    let mut s = scenario(QueueDefinition {
        user_limit: Some(250),
        ..QueueDefinition::default()
    });
    s.node("n1", size(16, 16));
    assert_eq!(
        sentence(managed(&mut s, size(5, 1))),
        "needs 5 GiB, and one user may never have more than 4 GiB in queue q"
    );
    s.check();
}

#[test]
fn a_master_does_not_double_above_the_maximum_of_its_queue() {
    let mut s = scenario(at_most(ShareOrAmount::Exactly(Bytes::from_gib(4))));
    s.node("n1", size(16, 16));
    let app = managed(&mut s, size(3, 1)).expect("submitted");
    for attempt in 1..=2 {
        s.settle();
        let masters = s.alive(&app);
        let [master] = masters.as_slice() else {
            panic!("attempt {attempt} waits: {masters:?}")
        };
        s.exit(master, ExitReason::OverheadOom);
    }
    s.settle();
    assert_eq!(s.state(&app), "failed", "both attempts are charged");
    s.check();
}
