//! Golden samples of the messages about queues.

#![allow(clippy::disallowed_methods)] // the crate does no I/O; these tests read samples

mod kept;

use headroom_types::{Bytes, Cpus, Resource};
use headroom_wire::v1::queues;
use headroom_wire::v1::share::Percent;
use kept::golden;

fn size() -> Resource {
    Resource::new(Bytes::from_mib(288), Cpus::from_milli(2500))
}

fn etl() -> queues::QueueSpec {
    queues::QueueSpec {
        guaranteed: serde_json::from_str("\"40%\"").expect("a share"),
        maximum: serde_json::from_str(r#"{"memory":"80GiB","cpus":16,"gpu":2}"#).expect("a share"),
        weight: Some(2),
        priority: 1,
        order: queues::ApplicationOrder::Fair,
        user_limit: Some(Percent::from_thousandths(250)),
        master_share: Some(Percent::from_thousandths(125)),
        max_running: Some(4),
        max_apps: Some(40),
        state: queues::QueueRunState::Paused,
        preemptable: queues::Preemptable::No,
        max_lifetime_ms: Some(3_600_000),
        queues: [("night".parse().expect("name"), queues::QueueSpec::default())].into(),
    }
}

#[test]
fn queue_messages_match_the_golden_files() {
    let root = queues::QueueSpec {
        queues: [("etl".parse().expect("name"), etl())].into(),
        ..queues::QueueSpec::default()
    };
    golden("queue_spec", &root);
    golden(
        "queues_checked",
        &queues::QueueTreeCheck {
            generation: 8,
            tree: root,
        },
    );
    golden(
        "set_queue_state",
        &queues::SetQueueState {
            state: queues::QueueRunState::Draining,
        },
    );
    let bound = Resource::new(Bytes::from_gib(80), Cpus::from_cores(16));
    let leaf = queues::QueueView {
        path: "root.etl".parse().expect("queue"),
        spec: queues::QueueSpec {
            queues: [].into(),
            ..etl()
        },
        state: queues::QueueRunState::Paused,
        guaranteed: bound.clone(),
        maximum: bound.clone(),
        used: size(),
        masters: Resource::default(),
        share: 1250,
        below_guarantee: false,
        containers: 3,
        pending: 2,
        waiting: size(),
        apps: 4,
        running: 1,
        users: vec![queues::QueueUser {
            user: "ana".into(),
            apps: 4,
            used: size(),
        }],
        queues: Vec::new(),
    };
    let root = queues::QueueView {
        path: "root".parse().expect("queue"),
        spec: queues::QueueSpec::default(),
        state: queues::QueueRunState::Running,
        users: Vec::new(),
        queues: vec![leaf.clone()],
        ..leaf
    };
    golden(
        "queues_view",
        &queues::QueuesView {
            generation: 7,
            root,
        },
    );
}
