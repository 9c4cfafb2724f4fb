//! Open streams of nodes between rare heartbeats.

#![allow(missing_docs)] // tests are read, not imported

use std::time::Duration;

use headroom_rm_core::testkit::{ClusterScenario, id, size};
use headroom_rm_core::{ClusterEvent, ClusterSettings};
use headroom_types::NodeId;

const SECOND: Duration = Duration::from_secs(1);

fn scenario(heartbeat: Duration) -> ClusterScenario {
    let mut s = ClusterScenario::with(ClusterSettings {
        heartbeat,
        ..ClusterSettings::default()
    });
    s.node("n1", size(4, 4));
    s
}

fn state(s: &ClusterScenario) -> &'static str {
    let node = s.cluster.node(&id::<NodeId>("n1")).expect("node");
    node.state.as_str()
}

fn open(s: &mut ClusterScenario) {
    s.step(ClusterEvent::StreamsOpen(vec![id("n1")]));
}

/// Reports the open stream every second, and returns the state at the end.
fn stays_open(s: &mut ClusterScenario, seconds: u32) -> &'static str {
    for _ in 0..seconds {
        s.after(SECOND);
        open(s);
    }
    state(s)
}

#[test]
fn an_open_stream_replaces_heartbeats_up_to_their_interval() {
    let mut s = scenario(10 * SECOND);
    assert!(s.cluster.counts_streams());
    assert_eq!(stays_open(&mut s, 11), "ready");
    s.report("n1").expect("reports");
    assert_eq!(
        stays_open(&mut s, 12),
        "ready",
        "a heartbeat may be 2 s late"
    );
    assert_eq!(
        stays_open(&mut s, 4),
        "suspect",
        "an agent that hangs is noticed"
    );
    assert_eq!(
        stays_open(&mut s, 5),
        "suspect",
        "only a heartbeat ends the silence"
    );
    s.report("n1").expect("reports");
    assert_eq!(state(&s), "ready");
    s.check();
}

#[test]
fn the_end_of_a_stream_begins_the_silence_at_once() {
    let mut s = scenario(10 * SECOND);
    assert_eq!(stays_open(&mut s, 5), "ready");
    s.step(ClusterEvent::StreamsEnded(vec![id("n1")]));
    s.step(ClusterEvent::Time);
    assert_eq!(state(&s), "suspect");
    s.after(7 * SECOND);
    assert_eq!(
        state(&s),
        "unreachable",
        "10 s count from 3 s before the end"
    );
    s.after(20 * SECOND);
    assert_eq!(state(&s), "lost");
    open(&mut s);
    assert_eq!(state(&s), "lost");
    s.check();
}

#[test]
fn a_node_that_opens_another_stream_waits_for_its_next_heartbeat() {
    let mut s = scenario(10 * SECOND);
    s.step(ClusterEvent::StreamsEnded(vec![id("n1")]));
    open(&mut s);
    s.step(ClusterEvent::Time);
    assert_eq!(state(&s), "ready", "the new stream came before the timeout");
    s.check();
}

#[test]
fn with_frequent_heartbeats_streams_do_not_count() {
    let mut s = scenario(SECOND);
    assert!(!s.cluster.counts_streams());
    s.step(ClusterEvent::StreamsEnded(vec![id("n1")]));
    s.step(ClusterEvent::Time);
    assert_eq!(state(&s), "ready");
    s.check();
}

#[test]
fn a_stalled_loop_makes_no_heartbeat_late() {
    let mut s = scenario(10 * SECOND);
    s.now = s.now.plus(600 * SECOND);
    s.step(ClusterEvent::Stalled(600 * SECOND));
    open(&mut s);
    assert_eq!(stays_open(&mut s, 4), "ready");
    s.check();
}

/// Otherwise the first nodes to return would send a heartbeat each second while the others register.
#[test]
fn nodes_that_a_recovery_waits_for_count_for_the_interval() {
    let mut s = scenario(SECOND);
    for n in 2..=1200 {
        s.node(&format!("n{n}"), size(1, 1));
    }
    assert_eq!(s.cluster.heartbeat_interval(), 2 * SECOND);
    s.restart();
    assert_eq!(s.cluster.heartbeat_interval(), 2 * SECOND);
    s.register("n1").after(11 * SECOND);
    assert_eq!(
        s.cluster.heartbeat_interval(),
        SECOND,
        "the others are lost"
    );
    s.check();
}
