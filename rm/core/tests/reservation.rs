//! Scenario tests of growing requests among many small ones. Without a reservation they starve;
//! with one they are granted within a bounded number of ends. The invariants are checked after
//! every step; each test must end with `check`.

use std::time::Duration;

use headroom_rm_core::testkit::{ClusterScenario, FakeNode, ask, id, size};
use headroom_rm_core::{ClusterCall, ClusterSettings, DryRun, NodeProperties};
use headroom_types::{AppId, ContainerId, ExitReason, UnixMillis};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn scenario(reserve_after: Duration) -> ClusterScenario {
    ClusterScenario::with(ClusterSettings {
        unix_at_zero: UnixMillis(1_000_000),
        reserve_after,
        ..ClusterSettings::default()
    })
}

fn alive_of(s: &ClusterScenario, app: &AppId, request: &str) -> Vec<ContainerId> {
    let mine = s
        .cluster
        .containers()
        .filter(|c| c.id.app == *app && c.request == Some(id(request)) && c.state.is_alive());
    mine.map(|c| c.id.clone()).collect()
}

fn ack(s: &mut ClusterScenario, app: &AppId) {
    let last = s.cluster.app(app).expect("app").updates.last();
    s.sync(app, last, vec![]).expect("syncs");
}

/// Endless small containers: they use all free resources, and more of them wait.
struct Stream {
    app: AppId,
    ended: usize,
}

impl Stream {
    fn begin(s: &mut ClusterScenario) -> Self {
        let app = s.app("small");
        s.ask(&app, "work", 100_000, size(1, 0)).expect("asks");
        s.settle();
        Stream { app, ended: 0 }
    }
    /// Ends the oldest small container; others wait for its resources.
    fn end_one(&mut self, s: &mut ClusterScenario) {
        let oldest = s
            .cluster
            .containers()
            .filter(|c| c.id.app == self.app && c.state.is_alive())
            .min_by_key(|c| (c.granted, c.id.seq));
        let oldest = oldest.expect("small containers always run").id.clone();
        s.exit(&oldest, OK);
        self.ended += 1;
        s.alive_for(Duration::from_millis(250));
        s.settle();
        ack(s, &self.app);
    }
    /// Number of ends of small containers until a request has its container; `None` after more than
    /// `most` ends.
    fn until(
        &mut self,
        s: &mut ClusterScenario,
        app: &AppId,
        request: &str,
        most: usize,
    ) -> Option<usize> {
        let before = self.ended;
        while alive_of(s, app, request).is_empty() {
            if self.ended - before >= most {
                return None;
            }
            self.end_one(s);
            ack(s, app);
        }
        Some(self.ended - before)
    }
}

/// Small containers on both nodes together.
const SMALL: usize = 32;

#[test]
fn a_doubling_request_is_granted_despite_many_small_requests() {
    let mut s = scenario(secs(2));
    s.node("n1", size(16, 64)).node("n2", size(16, 64));
    let mut stream = Stream::begin(&mut s);
    let job = s.app("job");
    for (rung, gib) in ["r2", "r4", "r8", "r16"].into_iter().zip([2, 4, 8, 16]) {
        s.ask_waits(&job, rung, 1, size(gib, 1));
        // 2 s of waiting are 8 ends; then each end on the reserved node counts, and every second
        // one is on the other
        let ends = stream.until(&mut s, &job, rung, 10 + SMALL);
        assert!(
            ends.is_some(),
            "{rung} starves: {:?}",
            s.cluster.why(&job, s.now)
        );
        let mine = alive_of(&s, &job, rung)[0].clone();
        s.settle();
        s.exit(&mine, ExitReason::OverheadOom);
        ack(&mut s, &job);
    }
    assert_eq!(
        s.logged("NodeReserved"),
        4,
        "{:?}",
        s.log
            .iter()
            .filter(|l| l.reason.as_str().contains("eserv"))
            .collect::<Vec<_>>()
    );
    assert_eq!(s.cluster.reservations().count(), 0);
    s.check();
}

#[test]
fn a_doubling_request_starves_without_a_reservation() {
    let mut s = scenario(secs(1_000_000));
    s.node("n1", size(16, 64)).node("n2", size(16, 64));
    let mut stream = Stream::begin(&mut s);
    let job = s.app("job");
    s.ask_waits(&job, "r2", 1, size(2, 1));
    assert_eq!(
        stream.until(&mut s, &job, "r2", 20 * SMALL),
        None,
        "the request starves through twenty times as many ends"
    );
    s.check();
}

#[test]
fn a_reservation_is_reported_and_leaves_the_rest_of_the_node_open() {
    let mut s = scenario(secs(2));
    s.node("n1", size(16, 64));
    let mut stream = Stream::begin(&mut s);
    let job = s.app("job");
    s.ask_waits(&job, "big", 1, size(4, 1));
    while s.cluster.reservations().count() == 0 {
        stream.end_one(&mut s);
    }
    stream.end_one(&mut s);
    let kept: Vec<String> = s
        .cluster
        .reservations()
        .map(|r| format!("{} {}/{}", r.node, r.app, r.request))
        .collect();
    assert_eq!(kept, [format!("n1 {job}/big")]);
    let why = &s.cluster.why(&job, s.now).expect("app")[0];
    let sentence = &why.sentence;
    assert!(
        sentence.contains("n1 is reserved for this request since")
            && sentence.contains("has run longest"),
        "{sentence}"
    );
    assert!(
        why.nodes[0]
            .verdict
            .starts_with("reserved for this request; "),
        "{}",
        why.nodes[0].verdict
    );
    let why = &s.cluster.why(&stream.app, s.now).expect("app")[0];
    let expected = format!("n1 has enough free resources and is reserved for {job}/big since");
    assert!(why.sentence.contains(&expected), "{}", why.sentence);
    assert!(
        why.nodes[0]
            .verdict
            .starts_with(&format!("reserved for {job}/big since")),
        "{}",
        why.nodes[0].verdict
    );
    stream
        .until(&mut s, &job, "big", 4)
        .expect("the request is granted");
    // a request that fits next to the reservation was not blocked
    let wide = s.app("wide");
    s.ask_waits(&wide, "cpus", 1, size(4, 61));
    s.check();
}

#[test]
fn a_request_that_fits_next_to_a_reservation_is_granted() {
    let mut s = scenario(secs(2));
    s.node("n1", size(16, 8));
    let job = s.app("job");
    let small = s.app("small");
    s.ask(&small, "work", 6, size(1, 1)).expect("asks");
    s.settle();
    // it lacks processors: 2 GiB and the 2 free cores are set aside, the other 8 GiB are not
    s.ask_waits(&job, "wide", 1, size(2, 4));
    s.ask(&small, "other", 1, size(1, 0)).expect("asks");
    s.alive_for(secs(4));
    assert_eq!(s.cluster.reservations().count(), 1);
    s.ask(&small, "beside", 8, size(1, 0)).expect("asks");
    assert_eq!(
        alive_of(&s, &small, "beside").len(),
        7,
        "16 GiB - 6 - 1 - 2 set aside"
    );
    s.ask_waits(&small, "no-core", 1, size(1, 1));
    for _ in 0..2 {
        let one = alive_of(&s, &small, "work")[0].clone();
        s.exit(&one, OK);
    }
    assert_eq!(alive_of(&s, &job, "wide").len(), 1);
    s.check();
}

#[test]
fn a_reservation_ends_when_its_request_does_not_wait_any_more() {
    let mut s = scenario(secs(1));
    s.node("n1", size(8, 64));
    let job = s.app("job");
    let mut stream = Stream::begin(&mut s);
    let reserved = |s: &ClusterScenario| s.cluster.reservations().count();
    let wait = |s: &mut ClusterScenario, stream: &mut Stream| {
        for _ in 0..12 {
            stream.end_one(s);
        }
    };
    // withdrawn
    s.ask_waits(&job, "a", 1, size(8, 1));
    for _ in 0..6 {
        stream.end_one(&mut s);
    }
    assert_eq!(reserved(&s), 1);
    s.call(ClusterCall::Withdraw {
        app: job.clone(),
        request: id("a"),
    })
    .expect("withdraws");
    assert_eq!(
        (reserved(&s), alive_of(&s, &stream.app, "work").len()),
        (0, 8),
        "the reserved resources are used at once"
    );
    // deadline expired
    let mut late = ask("b", 1, size(8, 1));
    late.deadline = Some(secs(2));
    s.settle();
    s.sync(&job, 0, vec![late]).expect("syncs");
    wait(&mut s, &mut stream);
    assert_eq!((reserved(&s), s.logged("RequestExpired")), (0, 1));
    // another node with enough free resources registers
    s.ask_waits(&job, "c", 1, size(8, 1));
    for _ in 0..6 {
        stream.end_one(&mut s);
    }
    assert_eq!(reserved(&s), 1);
    s.nodes.insert(
        id("n2"),
        FakeNode {
            offers: size(8, 64),
            traits: NodeProperties::default(),
            ..FakeNode::default()
        },
    );
    s.register("n2");
    assert_eq!((reserved(&s), alive_of(&s, &job, "c").len()), (0, 1));
    s.check();
}

#[test]
fn a_reservation_moves_from_a_silent_node_to_another_node() {
    let mut s = scenario(secs(1));
    s.node("n1", size(8, 64)).node("n2", size(8, 64));
    let mut stream = Stream::begin(&mut s);
    let job = s.app("job");
    s.ask_waits(&job, "big", 1, size(8, 1));
    for _ in 0..6 {
        stream.end_one(&mut s);
    }
    let first = s
        .cluster
        .reservations()
        .next()
        .expect("a reservation")
        .node
        .clone();
    s.nodes.get_mut(&first).expect("node").connected = false;
    s.after(secs(4));
    assert!(s.cluster.reservations().all(|r| r.node != first));
    s.nodes.get_mut(&first).expect("node").connected = true;
    s.register(first.as_str());
    stream
        .until(&mut s, &job, "big", 40)
        .expect("the request is granted");
    s.check();
}

#[test]
fn a_wait_alone_creates_no_reservation() {
    let mut s = scenario(secs(1));
    s.node("n1", size(8, 64));
    let first = s.app("first");
    s.ask(&first, "work", 1, size(6, 1)).expect("asks");
    let job = s.app("job");
    s.ask_waits(&job, "big", 1, size(8, 1));
    s.alive_for(secs(30));
    assert_eq!(
        s.cluster.reservations().count(),
        0,
        "no other request was granted meanwhile"
    );
    s.check();
}

#[test]
fn a_reservation_obeys_the_placement_rules_of_its_request() {
    let mut s = scenario(secs(1));
    for (name, label) in [("n1", None), ("n2", Some("ssd"))] {
        let labels = label.map(id).into_iter().collect();
        let traits = NodeProperties {
            labels,
            ..NodeProperties::default()
        };
        s.nodes.insert(
            id(name),
            FakeNode {
                offers: size(8, 64),
                traits,
                ..FakeNode::default()
            },
        );
        s.register(name);
    }
    let mut stream = Stream::begin(&mut s);
    let job = s.app("job");
    let mut big = ask("big", 1, size(6, 1));
    big.place.labels = [id("ssd")].into();
    s.sync(&job, 0, vec![big]).expect("syncs");
    stream
        .until(&mut s, &job, "big", 30)
        .expect("the request is granted");
    assert!(
        s.cluster
            .containers()
            .filter(|c| c.id.app == job)
            .all(|c| c.node == id("n2"))
    );
    s.check();
}

/// Advances the time while nodes and masters send heartbeats.
fn live_on(s: &mut ClusterScenario, seconds: u64) {
    for _ in 0..seconds {
        s.alive_for(secs(1));
        s.settle();
        let apps: Vec<AppId> = s.cluster.apps().map(|app| app.id.clone()).collect();
        apps.iter().for_each(|app| ack(s, app));
    }
}

/// One application keeps a small container until its large one has ended; a request of the other
/// application needs the whole node.
#[test]
fn two_applications_that_block_each_other_are_both_granted() {
    let mut s = scenario(secs(2));
    s.node("n1", size(16, 64));
    let holder = s.app("holder");
    s.ask(&holder, "stays", 1, size(1, 1)).expect("asks");
    s.settle();
    let whole = s.app("whole");
    s.ask_waits(&whole, "all", 1, size(16, 1));
    s.ask(&holder, "short", 1, size(1, 1))
        .expect("a smaller request is granted meanwhile");
    s.settle();
    let short = alive_of(&s, &holder, "short")[0].clone();
    s.exit(&short, OK);
    s.alive_for(secs(5));
    assert_eq!(
        s.cluster.reservations().count(),
        1,
        "{:?}",
        s.cluster.why(&whole, s.now)
    );
    s.ask_waits(&holder, "large", 1, size(12, 1));
    live_on(&mut s, 40);
    let large = alive_of(&s, &holder, "large").first().cloned();
    s.exit(&large.expect("the other request is granted"), OK);
    let stays = alive_of(&s, &holder, "stays")[0].clone();
    s.exit(&stays, OK);
    live_on(&mut s, 40);
    assert_eq!(
        alive_of(&s, &whole, "all").len(),
        1,
        "the large request is granted: {:?}",
        s.cluster.why(&whole, s.now)
    );
    s.check();
}

#[test]
fn resources_of_a_reservation_that_a_pass_releases_go_to_the_first_waiter() {
    let mut s = scenario(secs(2));
    s.node("n1", size(8, 64)).node("n2", size(8, 64));
    let (small, job) = (s.app("small"), s.app("job"));
    s.ask(&small, "work", 17, size(1, 1)).expect("asks");
    s.settle();
    s.ask_waits(&job, "big", 1, size(6, 1));
    let oldest = s.alive(&small)[0].clone();
    s.exit(&oldest, OK); // and the last small container is granted before the big one
    s.settle();
    s.alive_for(secs(4));
    let reserved = s
        .cluster
        .reservations()
        .next()
        .expect("a reservation")
        .node
        .clone();
    let end = |s: &mut ClusterScenario, on_reserved: bool| {
        let one = s.cluster.containers().find(|c| {
            let alive = c.state.is_alive() && c.id.app == small;
            alive && (c.node == reserved) == on_reserved
        });
        let one = one.expect("a small container runs there").id.clone();
        s.exit(&one, OK);
    };
    for _ in 0..3 {
        end(&mut s, true);
    }
    for (request, priority) in [("first", 1), ("behind", -1)] {
        let mut asked = ask(request, 1, size(3, 1));
        asked.priority = priority;
        asked.place.nodes = vec![reserved.clone()];
        let how = DryRun::Really;
        let (app, asked) = (job.clone(), Box::new(asked));
        let asked = s.call(ClusterCall::Ask {
            app,
            ask: asked,
            how,
        });
        asked.expect("the request waits");
        assert!(
            alive_of(&s, &job, request).is_empty(),
            "the node is reserved"
        );
    }
    for _ in 0..6 {
        end(&mut s, false);
    }
    assert_eq!(alive_of(&s, &job, "big").len(), 1, "it fits the other node");
    assert_eq!(alive_of(&s, &job, "first").len(), 1);
    assert_eq!(alive_of(&s, &job, "behind").len(), 0);
    s.check();
}
