//! Scenario tests of memory that ended containers leave charged on a node: it counts as taken,
//! users see it, and it becomes free again. The invariants are checked after every step; each test
//! must end with `check`.

use headroom_rm_core::testkit::{ClusterScenario, id, size};
use headroom_types::exit::{LeftoverOwner, Unattributed};
use headroom_types::{Bytes, ExitReason, NodeId};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn left(s: &mut ClusterScenario, node: &str, mib: u64) {
    let memory = Bytes::from_mib(mib);
    let owner = LeftoverOwner {
        name: "old.1.e1.c1".into(),
        memory,
    };
    let left_by = if mib == 0 { Vec::new() } else { vec![owner] };
    s.nodes
        .get_mut(&id::<NodeId>(node))
        .expect("a node")
        .unattributed = Unattributed { memory, left_by };
    s.report(node).expect("reports");
}

#[test]
fn unattributed_memory_is_granted_only_after_its_release() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    let app = s.app("job");
    left(&mut s, "n1", 1536);
    let sentence = s.ask_waits(&app, "big", 1, size(3, 1));
    let words = "needs 3 GiB on one node; best is n1 with 2.5 GiB free, and ended containers left 1.5 GiB charged there";
    assert_eq!(sentence, words);
    let why = s.cluster.why(&app, headroom_types::Tick(0)).expect("known");
    let verdict = "512 MiB of memory short, and ended containers left 1.5 GiB charged there";
    assert_eq!(
        (
            why[0].nodes[0].verdict.as_str(),
            why[0].nodes[0].free.memory
        ),
        (verdict, Bytes::from_mib(2560))
    );
    s.ask(&app, "small", 1, size(2, 1)).expect("asks");
    assert_eq!(s.alive(&app).len(), 1, "free memory is granted");
    assert_eq!(
        (s.logged("NodeMemoryLeft"), s.logged("NodeMemoryFreed")),
        (1, 0)
    );
    left(&mut s, "n1", 1536);
    assert_eq!(
        s.logged("NodeMemoryLeft"),
        1,
        "the same amount is not logged again"
    );
    left(&mut s, "n1", 0);
    assert_eq!(
        (s.logged("NodeMemoryLeft"), s.logged("NodeMemoryFreed")),
        (1, 1)
    );
    let small = s.alive(&app)[0].clone();
    s.settle();
    s.exit(&small, OK);
    assert_eq!(
        s.alive(&app).len(),
        1,
        "the large container uses the freed memory"
    );
    s.check();
}

#[test]
fn an_overcommitted_node_gets_no_containers_and_stops_none() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8)).node("n2", size(2, 8));
    let app = s.app("job");
    s.ask(&app, "fill", 1, size(3, 1)).expect("asks");
    s.settle();
    left(&mut s, "n1", 2048);
    let account = s
        .cluster
        .ledger()
        .node(&id("n1"))
        .cloned()
        .expect("the node has an account");
    assert!(
        account.overdrawn
            && account.free().memory.is_zero()
            && account.capacity().memory == Bytes::from_gib(2)
    );
    s.ask(&app, "more", 1, size(1, 1)).expect("asks");
    let more = s
        .cluster
        .containers()
        .find(|c| c.request == Some(id("more")))
        .map(|c| c.node.to_string());
    assert_eq!(more.as_deref(), Some("n2"));
    assert_eq!(s.alive(&app).len(), 2, "running containers are not stopped");
    s.check();
}

#[test]
fn unattributed_memory_survives_a_registration_and_not_a_lost_node() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    left(&mut s, "n1", 1024);
    s.register("n1");
    let of = |s: &ClusterScenario| {
        s.cluster
            .ledger()
            .node(&id("n1"))
            .map(|account| account.unattributed)
    };
    assert_eq!(of(&s), Some(Bytes::from_gib(1)));
    let owners: Vec<String> = s
        .cluster
        .nodes()
        .flat_map(|n| n.left_by.iter().map(|owner| owner.name.clone()))
        .collect();
    assert_eq!(owners, ["old.1.e1.c1"]);
    s.after(std::time::Duration::from_secs(60));
    assert_eq!(of(&s), Some(Bytes::ZERO));
    s.check();
}
