//! Scenario tests of changed settings at run time. The invariants are checked after every step.

use std::time::Duration;

use headroom_rm_core::queue::spec::{QueueSpec, QueueState, QueueTree};
use headroom_rm_core::testkit::{Scenario, id, size};
use headroom_rm_core::{CallAnswer, CallRefusal, ClusterCall, Outcome, QueuesFrom, Settings};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn tree(names: &[&str]) -> QueueTree {
    let children = names.iter().map(|name| (id(name), QueueSpec::default())).collect();
    QueueTree::new(QueueSpec { children, ..QueueSpec::default() }).expect("a right tree")
}

fn state(s: &Scenario) -> &'static str {
    s.cluster.node(&id("n1")).expect("a node").state.as_str()
}

const HOLD: Result<CallAnswer, CallRefusal> = Ok(CallAnswer::Configured { queues: QueuesFrom::Settings });

#[test]
fn less_patience_counts_for_a_silence_that_has_begun() {
    let mut s = Scenario::new();
    s.node("n1", size(4, 4));
    s.after(secs(2));
    assert_eq!(state(&s), "ready");
    assert_eq!(s.configure(|t| (t.suspect, t.unreachable, t.lost) = (secs(1), secs(5), secs(8))), HOLD);
    s.after(secs(0));
    assert_eq!(state(&s), "suspect");
    s.after(secs(3));
    assert_eq!(state(&s), "unreachable");
    s.after(secs(3));
    assert_eq!(state(&s), "lost");
    s.check();
}

#[test]
fn more_patience_counts_likewise() {
    let mut s = Scenario::new();
    s.node("n1", size(4, 4));
    s.after(secs(2));
    assert_eq!(s.configure(|t| (t.suspect, t.unreachable, t.lost) = (secs(20), secs(40), secs(60))), HOLD);
    s.after(secs(17));
    assert_eq!(state(&s), "ready");
    s.after(secs(1));
    assert_eq!(state(&s), "suspect");
    assert_eq!(s.configure(|t| (t.suspect, t.unreachable, t.lost) = (secs(50), secs(90), secs(100))), HOLD);
    s.after(secs(60));
    assert_eq!((state(&s), s.logged("NodeSilent")), ("suspect", 1), "it does not come back by itself, and nothing is told twice");
    s.after(secs(10));
    assert_eq!(state(&s), "unreachable");
    s.report("n1").expect("is heard");
    assert_eq!(state(&s), "ready");
    s.check();
}

#[test]
fn what_is_over_and_no_longer_kept_goes_at_once() {
    let mut s = Scenario::new();
    s.node("n1", size(4, 4));
    for _ in 0..6 {
        let app = s.app("job");
        s.ask(&app, "work", 2, size(1, 1)).expect("asks");
        s.settle();
        s.finish(&app, Outcome::Succeeded).expect("finishes");
        s.settle();
    }
    let kept = |s: &Scenario| (s.cluster.apps().count(), s.cluster.history().iter().count());
    assert_eq!(kept(&s), (6, 12));
    assert_eq!(s.configure(|t| (t.keep_apps, t.keep_containers) = (2, 3)), HOLD);
    assert_eq!(kept(&s), (2, 3));
    s.restart();
    assert_eq!(kept(&s), (2, 3), "they are gone from the store as well");
    s.check();
}

#[test]
fn another_tree_of_the_settings_holds_and_is_not_saved() {
    let mut s = Scenario::with(Settings { queues: tree(&["a", "b"]), ..Settings::default() });
    s.node("n1", size(4, 4));
    assert_eq!(s.configure(|t| t.queues = tree(&["a", "c"])), HOLD);
    assert_eq!((s.cluster.queue_tree(), s.cluster.queues_generation(), s.logged("QueuesSet")), (&tree(&["a", "c"]), 1, 1));
    assert_eq!(s.configure(|_| ()), HOLD);
    assert_eq!(s.logged("QueuesSet"), 1, "it is so already");
    s.reconfigure(|t| t.queues = tree(&["d"])).restart().register("n1");
    assert_eq!(s.cluster.queue_tree(), &tree(&["d"]), "a later life takes what is written then");
    s.check();
}

#[test]
fn a_tree_that_was_set_at_run_time_goes_before_that_of_the_settings() {
    let mut s = Scenario::with(Settings { queues: tree(&["a", "b"]), ..Settings::default() });
    s.node("n1", size(4, 4));
    s.call(ClusterCall::SetGate { queue: id("a"), gate: QueueState::Paused }).expect("sets");
    let overruled = Ok(CallAnswer::Configured { queues: QueuesFrom::Operator });
    assert_eq!(s.configure(|t| t.queues = tree(&["c"])), overruled);
    assert_eq!(s.cluster.queue_tree().paths().count(), 3);
    s.restart().register("n1");
    assert_eq!(s.configure(|t| t.queues = tree(&["c"])), overruled, "after a restart too");
    s.check();
}

#[test]
fn a_tree_that_would_leave_somebody_without_a_leaf_changes_nothing_at_all() {
    let mut s = Scenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    let refused = s.configure(|t| (t.queues, t.keep_apps) = (tree(&["other"]), 1));
    let Err(CallRefusal::BadQueues(problems)) = refused else { panic!("{refused:?}") };
    assert!(problems[0].to_string().contains("job.1"), "{}", problems[0]);
    for _ in 0..2 {
        let other = s.app("short");
        s.finish(&other, Outcome::Succeeded).expect("finishes");
        s.settle();
    }
    assert_eq!(s.cluster.apps().count(), 3, "the bound of before holds");
    s.finish(&app, Outcome::Succeeded).expect("finishes");
    s.settle();
    assert_eq!(s.configure(|_| ()), HOLD);
    assert_eq!(s.cluster.apps().count(), 1);
    s.check();
}
