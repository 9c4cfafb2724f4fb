//! Scenario tests of changed settings at run time. The invariants are checked after every step.

use std::time::Duration;

use headroom_rm_core::queue::QueueTree;
use headroom_rm_core::queue::spec::{QueueDefinition, QueueState};
use headroom_rm_core::testkit::{ClusterScenario, id, size};
use headroom_rm_core::{
    ApplicationOutcome, CallAnswer, CallRefusal, ClusterCall, ClusterSettings, QueuesFrom,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn tree(names: &[&str]) -> QueueTree {
    let children = names
        .iter()
        .map(|name| (id(name), QueueDefinition::default()))
        .collect();
    QueueTree::new(QueueDefinition {
        children,
        ..QueueDefinition::default()
    })
    .expect("a valid tree")
}

fn state(s: &ClusterScenario) -> &'static str {
    s.cluster.node(&id("n1")).expect("a node").state.as_str()
}

const HOLD: Result<CallAnswer, CallRefusal> = Ok(CallAnswer::Configured {
    queues: QueuesFrom::Settings,
});

#[test]
fn shorter_node_timeouts_apply_to_a_node_that_is_already_silent() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    s.after(secs(2));
    assert_eq!(state(&s), "ready");
    assert_eq!(
        s.configure(|t| (t.suspect, t.unreachable, t.lost) = (secs(1), secs(5), secs(8))),
        HOLD
    );
    s.after(secs(0));
    assert_eq!(state(&s), "suspect");
    s.after(secs(3));
    assert_eq!(state(&s), "unreachable");
    s.after(secs(3));
    assert_eq!(state(&s), "lost");
    s.check();
}

#[test]
fn longer_node_timeouts_apply_to_a_node_that_is_already_silent() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    s.after(secs(2));
    assert_eq!(
        s.configure(|t| (t.suspect, t.unreachable, t.lost) = (secs(20), secs(40), secs(60))),
        HOLD
    );
    s.after(secs(17));
    assert_eq!(state(&s), "ready");
    s.after(secs(1));
    assert_eq!(state(&s), "suspect");
    assert_eq!(
        s.configure(|t| (t.suspect, t.unreachable, t.lost) = (secs(50), secs(90), secs(100))),
        HOLD
    );
    s.after(secs(60));
    assert_eq!(
        (state(&s), s.logged("NodeSuspect")),
        ("suspect", 1),
        "the node stays suspect, and the event is not repeated"
    );
    s.after(secs(10));
    assert_eq!(state(&s), "unreachable");
    s.report("n1").expect("the heartbeat is accepted");
    assert_eq!(state(&s), "ready");
    s.check();
}

#[test]
fn a_lower_history_limit_removes_old_records_at_once() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    for _ in 0..6 {
        let app = s.app("job");
        s.ask(&app, "work", 2, size(1, 1)).expect("asks");
        s.settle();
        s.finish(&app, ApplicationOutcome::Succeeded)
            .expect("finishes");
        s.settle();
    }
    let kept = |s: &ClusterScenario| (s.cluster.apps().count(), s.cluster.history().iter().count());
    assert_eq!(kept(&s), (6, 12));
    assert_eq!(
        s.configure(|t| (t.keep_apps, t.keep_containers) = (2, 3)),
        HOLD
    );
    assert_eq!(kept(&s), (2, 3));
    s.restart();
    assert_eq!(
        kept(&s),
        (2, 3),
        "the store does not have the removed records either"
    );
    s.check();
}

#[test]
fn a_changed_queue_tree_of_the_settings_applies_and_is_not_saved() {
    let mut s = ClusterScenario::with(ClusterSettings {
        queues: tree(&["a", "b"]),
        ..ClusterSettings::default()
    });
    s.node("n1", size(4, 4));
    assert_eq!(s.configure(|t| t.queues = tree(&["a", "c"])), HOLD);
    assert_eq!(
        (
            s.cluster.queue_tree(),
            s.cluster.queues_generation(),
            s.logged("QueuesSet")
        ),
        (&tree(&["a", "c"]), 1, 1)
    );
    assert_eq!(s.configure(|_| ()), HOLD);
    assert_eq!(s.logged("QueuesSet"), 1, "the same tree is no change");
    s.reconfigure(|t| t.queues = tree(&["d"]))
        .restart()
        .register("n1");
    assert_eq!(
        s.cluster.queue_tree(),
        &tree(&["d"]),
        "a later epoch uses the tree of its own settings"
    );
    s.check();
}

#[test]
fn a_queue_tree_set_at_run_time_overrides_that_of_the_settings() {
    let mut s = ClusterScenario::with(ClusterSettings {
        queues: tree(&["a", "b"]),
        ..ClusterSettings::default()
    });
    s.node("n1", size(4, 4));
    s.call(ClusterCall::SetQueueState {
        queue: id("a"),
        state: QueueState::Paused,
    })
    .expect("sets");
    let overruled = Ok(CallAnswer::Configured {
        queues: QueuesFrom::Operator,
    });
    assert_eq!(s.configure(|t| t.queues = tree(&["c"])), overruled);
    assert_eq!(s.cluster.queue_tree().paths().count(), 3);
    s.restart().register("n1");
    assert_eq!(
        s.configure(|t| t.queues = tree(&["c"])),
        overruled,
        "the override survives a restart"
    );
    s.check();
}

#[test]
fn a_queue_tree_without_the_leaf_of_an_application_is_refused() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    let refused = s.configure(|t| (t.queues, t.keep_apps) = (tree(&["other"]), 1));
    let Err(CallRefusal::BadQueues(problems)) = refused else {
        panic!("{refused:?}")
    };
    assert!(problems[0].to_string().contains("job.1"), "{}", problems[0]);
    for _ in 0..2 {
        let other = s.app("short");
        s.finish(&other, ApplicationOutcome::Succeeded)
            .expect("finishes");
        s.settle();
    }
    assert_eq!(s.cluster.apps().count(), 3, "the earlier limit applies");
    s.finish(&app, ApplicationOutcome::Succeeded)
        .expect("finishes");
    s.settle();
    assert_eq!(s.configure(|_| ()), HOLD);
    assert_eq!(s.cluster.apps().count(), 1);
    s.check();
}
