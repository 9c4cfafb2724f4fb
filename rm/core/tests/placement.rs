//! Scenario tests of placement, waiting times and the sentences about them. The invariants are
//! checked after every step; each test must end with `check`.

use std::collections::BTreeSet;
use std::time::Duration;

use headroom_rm_core::placement::{
    AntiAffinityRule, AttributeMatch, PlacementLevel, PlacementRules, RelaxationPolicy,
};
use headroom_rm_core::request::ContainerRequest;
use headroom_rm_core::testkit::{ClusterScenario, FakeNode, ask, id, size};
use headroom_rm_core::{
    CallAnswer, CallRefusal, ClusterCall, DryRun, Exclusive, NodeProperties, RequestVerdict,
    UpdateKind,
};
use headroom_types::{AppId, ExitReason, Name, NodeId, Resource};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Adds a node in a rack with labels.
fn node(s: &mut ClusterScenario, name: &str, gib: u64, rack: Option<&str>, labels: &[&str]) {
    let traits = NodeProperties {
        rack: rack.map(id),
        labels: labels.iter().map(|l| id(l)).collect(),
        ..NodeProperties::default()
    };
    add(s, name, size(gib, 8), traits);
}

fn add(s: &mut ClusterScenario, name: &str, offers: Resource, traits: NodeProperties) {
    s.nodes.insert(
        id(name),
        FakeNode {
            offers,
            traits,
            ..FakeNode::default()
        },
    );
    s.register(name);
}

fn with(
    request: &str,
    count: u32,
    gib: u64,
    change: impl FnOnce(&mut PlacementRules),
) -> ContainerRequest {
    let mut ask = ask(request, count, size(gib, 1));
    change(&mut ask.place);
    ask
}

fn gpus(n: u64, gib: u64) -> Resource {
    let mut size = size(gib, 1);
    size.extra.insert(id("gpu"), n);
    size
}

fn send(s: &mut ClusterScenario, app: &AppId, ask: ContainerRequest) -> RequestVerdict {
    match s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(ask),
        how: DryRun::Really,
    }) {
        Ok(CallAnswer::Asked { verdict }) => verdict,
        other => panic!("not accepted: {other:?}"),
    }
}

fn never(s: &mut ClusterScenario, app: &AppId, ask: ContainerRequest) -> String {
    match s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(ask),
        how: DryRun::Really,
    }) {
        Err(CallRefusal::NeverFits { sentence, .. }) => sentence,
        other => panic!("not refused: {other:?}"),
    }
}

/// Nodes of the live containers of a request, sorted.
fn places(s: &ClusterScenario, request: &str) -> Vec<String> {
    let mine = s
        .cluster
        .containers()
        .filter(|c| c.request == Some(id(request)) && c.state.is_alive());
    let mut nodes: Vec<String> = mine.map(|c| c.node.to_string()).collect();
    nodes.sort();
    nodes
}

fn waits(verdict: RequestVerdict) -> String {
    match verdict {
        RequestVerdict::Waits { sentence } => sentence.to_string(),
        other @ (RequestVerdict::Fits | RequestVerdict::Never { .. }) => {
            panic!("does not wait: {other:?}")
        }
    }
}

fn expired(s: &ClusterScenario, app: &AppId) -> Vec<String> {
    let updates = s.updates.get(app).into_iter().flatten();
    let why = updates.filter_map(|(_, u)| {
        if let UpdateKind::Expired { request, why } = &u.what {
            Some(format!("{request}: {why}"))
        } else {
            None
        }
    });
    why.collect()
}

#[test]
fn labels_racks_and_attributes_select_the_node() {
    let mut s = ClusterScenario::new();
    node(&mut s, "plain", 4, Some("r1"), &[]);
    node(&mut s, "ssd-1", 8, Some("r1"), &["ssd"]);
    node(&mut s, "ssd-2", 16, Some("r2"), &["ssd", "fast"]);
    let traits = NodeProperties {
        attributes: [(id("zone"), "b".to_owned())].into(),
        ..NodeProperties::default()
    };
    add(&mut s, "zoned", size(32, 8), traits);
    let app = s.app("job");
    assert_eq!(
        send(
            &mut s,
            &app,
            with("a", 1, 1, |p| p.labels = [id("ssd")].into())
        ),
        RequestVerdict::Fits
    );
    assert_eq!(
        send(
            &mut s,
            &app,
            with("b", 1, 1, |p| p.labels = [id("ssd"), id("fast")].into())
        ),
        RequestVerdict::Fits
    );
    assert_eq!(
        send(&mut s, &app, with("c", 1, 1, |p| p.racks = vec![id("r2")])),
        RequestVerdict::Fits
    );
    let zone = AttributeMatch::OneOf(BTreeSet::from(["a".into(), "b".into()]));
    assert_eq!(
        send(
            &mut s,
            &app,
            with("d", 1, 1, |p| p.attributes = [(id("zone"), zone)].into())
        ),
        RequestVerdict::Fits
    );
    assert_eq!(
        send(
            &mut s,
            &app,
            with("e", 1, 1, |p| p.attributes =
                [(id("zone"), AttributeMatch::Absent)].into())
        ),
        RequestVerdict::Fits
    );
    let of = |r: &str| places(&s, r).join(" ");
    assert_eq!(
        (of("a"), of("b"), of("c"), of("d"), of("e")),
        (
            "ssd-1".into(),
            "ssd-2".into(),
            "ssd-2".into(),
            "zoned".into(),
            "plain".into()
        )
    );
    s.check();
}

#[test]
fn an_exclusive_node_accepts_only_requests_with_its_label() {
    let mut s = ClusterScenario::new();
    let traits = NodeProperties {
        labels: [id::<Name>("gpu")].into(),
        exclusive: Exclusive::Yes,
        ..NodeProperties::default()
    };
    add(&mut s, "kept", size(16, 8), traits);
    s.node("open", size(4, 8));
    let app = s.app("job");
    s.ask(&app, "many", 5, size(1, 1)).expect("asks");
    assert_eq!(
        places(&s, "many"),
        ["open"; 4],
        "the exclusive node does not accept requests without its label"
    );
    assert_eq!(
        send(
            &mut s,
            &app,
            with("one", 1, 1, |p| p.labels = [id("gpu")].into())
        ),
        RequestVerdict::Fits
    );
    assert_eq!(places(&s, "one"), ["kept"]);
    s.check();
}

#[test]
fn countable_resources_are_found_and_released() {
    let mut s = ClusterScenario::new();
    for n in 0..6 {
        s.node(&format!("plain-{n}"), size(4, 8));
    }
    add(&mut s, "g1", gpus(2, 16), NodeProperties::default());
    add(&mut s, "g2", gpus(4, 32), NodeProperties::default());
    let app = s.app("job");
    s.ask(&app, "two", 2, gpus(2, 1)).expect("asks");
    assert_eq!(places(&s, "two"), ["g1", "g2"]);
    let sentence = s.ask_waits(&app, "three", 1, gpus(3, 1));
    assert!(
        sentence.contains("3 gpu") && sentence.contains("g2"),
        "{sentence}"
    );
    s.settle();
    let on_g2 = s
        .cluster
        .containers()
        .find(|c| c.node == id("g2"))
        .expect("a container on g2")
        .id
        .clone();
    s.exit(&on_g2, OK);
    assert_eq!(places(&s, "three"), ["g2"]);
    s.check();
}

#[test]
fn anti_affinity_separates_containers_in_both_directions() {
    let mut s = ClusterScenario::new();
    for name in ["n1", "n2", "n3"] {
        node(&mut s, name, 16, None, &[]);
    }
    let app = s.app("job");
    let own = |p: &mut PlacementRules| {
        p.apart = Some(AntiAffinityRule {
            from: vec![],
            level: PlacementLevel::Node,
        })
    };
    let verdict = send(&mut s, &app, with("zk", 5, 1, own));
    assert_eq!(places(&s, "zk"), ["n1", "n2", "n3"]);
    assert!(
        waits(verdict).contains("anti-affinity"),
        "the sentence names anti-affinity"
    );
    let from = |p: &mut PlacementRules| {
        p.apart = Some(AntiAffinityRule {
            from: vec![id("db")],
            level: PlacementLevel::Node,
        })
    };
    send(&mut s, &app, with("noisy", 1, 1, from));
    let noisy = places(&s, "noisy");
    send(
        &mut s,
        &app,
        with("db", 9, 1, |p| p.spread = Some(PlacementLevel::Node)),
    );
    assert!(
        !places(&s, "db").contains(&noisy[0]),
        "anti-affinity applies in both directions: {:?}",
        places(&s, "db")
    );
    // without the request `noisy`, its anti-affinity does not apply any more
    let before = places(&s, "db").len();
    let full = (0..2).fold(ask("db", 40, size(1, 0)), |ask, _| ask);
    assert!(waits(send(&mut s, &app, full)).contains("anti-affinity"));
    s.call(ClusterCall::Withdraw {
        app: app.clone(),
        request: id("noisy"),
    })
    .expect("withdraws");
    assert!(places(&s, "db").len() > before && places(&s, "db").contains(&noisy[0]));
    s.check();
}

#[test]
fn a_rack_is_free_for_anti_affinity_once_its_container_has_ended() {
    let mut s = ClusterScenario::new();
    node(&mut s, "n1", 16, Some("r1"), &[]);
    node(&mut s, "n2", 16, Some("r1"), &[]);
    node(&mut s, "n3", 16, Some("r2"), &[]);
    let app = s.app("job");
    send(
        &mut s,
        &app,
        with("zk", 3, 1, |p| {
            p.apart = Some(AntiAffinityRule {
                from: vec![],
                level: PlacementLevel::Rack,
            })
        }),
    );
    assert_eq!(places(&s, "zk").len(), 2, "one in each rack");
    s.settle();
    let first = s
        .cluster
        .containers()
        .find(|c| c.node != id("n3"))
        .expect("a container in r1")
        .id
        .clone();
    s.exit(&first, OK);
    assert_eq!(
        places(&s, "zk").len(),
        2,
        "the third container is in the free rack"
    );
    s.check();
}

#[test]
fn spread_chooses_the_node_or_rack_with_the_fewest_containers() {
    let mut s = ClusterScenario::new();
    node(&mut s, "a1", 4, Some("a"), &[]);
    node(&mut s, "a2", 16, Some("a"), &[]);
    node(&mut s, "b1", 32, Some("b"), &[]);
    let app = s.app("job");
    send(
        &mut s,
        &app,
        with("nodes", 4, 1, |p| p.spread = Some(PlacementLevel::Node)),
    );
    assert_eq!(
        places(&s, "nodes"),
        ["a1", "a1", "a2", "b1"],
        "one on each node, then the tightest node"
    );
    send(
        &mut s,
        &app,
        with("racks", 4, 1, |p| p.spread = Some(PlacementLevel::Rack)),
    );
    let in_b = places(&s, "racks").iter().filter(|n| *n == "b1").count();
    assert_eq!(in_b, 2, "two in each rack: {:?}", places(&s, "racks"));
    s.check();
}

#[test]
fn avoided_racks_are_used_last() {
    let mut s = ClusterScenario::new();
    node(&mut s, "n1", 2, Some("r1"), &[]);
    node(&mut s, "n2", 4, Some("r2"), &[]);
    let app = s.app("job");
    send(
        &mut s,
        &app,
        with("a", 5, 1, |p| p.avoid_racks = vec![id("r1")]),
    );
    assert_eq!(places(&s, "a"), ["n1", "n2", "n2", "n2", "n2"]);
    s.check();
}

#[test]
fn a_preference_is_relaxed_from_node_to_rack_to_anywhere_by_time() {
    let mut s = ClusterScenario::new();
    node(&mut s, "near", 2, Some("r1"), &[]);
    node(&mut s, "rack", 1, Some("r1"), &[]);
    node(&mut s, "far", 8, Some("r2"), &[]);
    let app = s.app("job");
    s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(with("fill", 1, 2, |p| p.nodes = vec![id("near")])),
        how: DryRun::Really,
    })
    .expect("asks");
    let prefer_near = |p: &mut PlacementRules| {
        (p.prefer_nodes, p.relax) = (vec![id("near")], RelaxationPolicy::After { ms: 2000 })
    };
    let sentence = waits(send(&mut s, &app, with("w", 2, 1, prefer_near)));
    assert!(sentence.contains("2 s more for near"), "{sentence}");
    s.alive_for(Duration::from_millis(1900));
    // a repeated request does not restart the wait
    let sentence = waits(send(&mut s, &app, with("w", 2, 1, prefer_near)));
    assert!(sentence.contains("1 s more for near"), "{sentence}");
    s.after(Duration::from_millis(100));
    assert_eq!(places(&s, "w"), ["rack"], "only time has passed");
    s.alive_for(secs(2));
    assert_eq!(
        places(&s, "w"),
        ["rack"],
        "the second container has a wait of its own"
    );
    s.alive_for(secs(2));
    assert_eq!(places(&s, "w"), ["far", "rack"]);
    s.check();
}

#[test]
fn a_preference_that_is_never_relaxed_waits() {
    let mut s = ClusterScenario::new();
    node(&mut s, "near", 2, Some("r1"), &[]);
    node(&mut s, "far", 8, Some("r2"), &[]);
    let app = s.app("job");
    let prefer_near = |p: &mut PlacementRules| {
        (p.prefer_nodes, p.relax) = (vec![id("near")], RelaxationPolicy::Never)
    };
    send(&mut s, &app, with("w", 3, 1, prefer_near));
    s.alive_for(secs(20));
    assert_eq!(places(&s, "w"), ["near", "near"]);
    let sentence = never(&mut s, &app, with("big", 1, 4, prefer_near));
    assert!(sentence.contains("near"), "{sentence}");
    s.check();
}

#[test]
fn a_stalled_loop_does_not_relax_preferences() {
    let mut s = ClusterScenario::new();
    node(&mut s, "near", 1, None, &[]);
    node(&mut s, "far", 8, None, &[]);
    let app = s.app("job");
    let prefer_near = |p: &mut PlacementRules| {
        (p.prefer_nodes, p.relax) = (vec![id("near")], RelaxationPolicy::After { ms: 1000 })
    };
    send(&mut s, &app, with("w", 2, 1, prefer_near));
    s.now = s.now.plus(secs(60));
    s.step(headroom_rm_core::ClusterEvent::Stalled(secs(60)));
    s.step(headroom_rm_core::ClusterEvent::Time);
    assert_eq!(places(&s, "w"), ["near"]);
    s.after(secs(2));
    assert_eq!(places(&s, "w"), ["far", "near"]);
    s.check();
}

#[test]
fn an_infeasible_request_names_the_missing_property_and_the_closest_node() {
    let mut s = ClusterScenario::new();
    node(&mut s, "g1", 4, Some("r1"), &["gpu"]);
    node(&mut s, "n2", 16, Some("r2"), &[]);
    let app = s.app("job");
    let label = |l: &'static str| move |p: &mut PlacementRules| p.labels = [id(l)].into();
    assert_eq!(
        never(&mut s, &app, with("a", 1, 1, label("fpga"))),
        "no node has label fpga"
    );
    assert_eq!(
        never(&mut s, &app, with("b", 1, 8, label("gpu"))),
        "needs 8 GiB, 1 cpu on a node with label gpu; the largest of those is g1 with 4 GiB, 8 cpus"
    );
    assert_eq!(
        never(&mut s, &app, with("c", 1, 1, |p| p.racks = vec![id("r9")])),
        "no node is in rack r9"
    );
    let both = |p: &mut PlacementRules| (p.racks, p.labels) = (vec![id("r2")], [id("gpu")].into());
    assert_eq!(
        never(&mut s, &app, with("d", 1, 1, both)),
        "no node is in rack r2 and with label gpu; closest is n2: does not have label gpu"
    );
    let zone =
        |p: &mut PlacementRules| p.attributes = [(id("zone"), AttributeMatch::Exists)].into();
    assert_eq!(
        never(&mut s, &app, with("e", 1, 1, zone)),
        "no node is with attribute zone; closest is n2: has no attribute zone"
    );
    let gpu = s.ask(&app, "f", 1, gpus(1, 1));
    assert!(
        matches!(gpu, Err(CallRefusal::NeverFits { sentence, .. }) if sentence == "no node has gpu")
    );
    // an unknown node may still register
    let sentence = waits(send(
        &mut s,
        &app,
        with("g", 1, 1, |p| p.nodes = vec![id("tomorrow")]),
    ));
    assert_eq!(
        sentence,
        "the only node that the request names takes no work now"
    );
    s.check();
}

#[test]
fn a_dry_run_of_a_request_has_no_effect() {
    let mut s = ClusterScenario::new();
    node(&mut s, "n1", 4, None, &["ssd"]);
    let app = s.app("job");
    s.ask(&app, "work", 1, size(1, 1)).expect("asks");
    let mut dry = |ask: ContainerRequest| {
        let before = format!("{:?}", s.cluster);
        let answer = s.call(ClusterCall::Ask {
            app: app.clone(),
            ask: Box::new(ask),
            how: DryRun::DryRun,
        });
        assert_eq!(
            format!("{:?}", s.cluster),
            before,
            "a dry run changes nothing"
        );
        answer
    };
    let verdict = |answer| match answer {
        Ok(CallAnswer::Asked { verdict }) => verdict,
        other => panic!("not answered: {other:?}"),
    };
    assert_eq!(
        verdict(dry(ask("new", 3, size(1, 1)))),
        RequestVerdict::Fits
    );
    assert_eq!(
        waits(verdict(dry(ask("new", 4, size(1, 1))))),
        "needs 1 GiB on one node; best is n1 with 0 B free"
    );
    assert_eq!(
        waits(verdict(dry(ask("work", 2, size(4, 1))))),
        "needs 4 GiB on one node; best is n1 with 3 GiB free"
    );
    assert!(matches!(
        verdict(dry(ask("new", 1, size(5, 1)))),
        RequestVerdict::Never { .. }
    ));
    assert!(
        matches!(verdict(dry(with("new", 1, 1, |p| p.labels = [id("gpu")].into()))), RequestVerdict::Never { sentence, .. } if sentence == "no node has label gpu")
    );
    assert_eq!(
        (
            s.alive(&app).len(),
            s.cluster.app(&app).expect("app").requests.len()
        ),
        (1, 1)
    );
    s.check();
}

#[test]
fn a_deadline_drops_missing_containers_and_is_not_restarted() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    let app = s.app("job");
    let mut hurry = ask("hurry", 3, size(2, 1));
    hurry.deadline = Some(secs(10));
    assert!(waits(send(&mut s, &app, hurry.clone())).contains("2 GiB"));
    for _ in 0..3 {
        s.alive_for(secs(3));
        send(&mut s, &app, hurry.clone());
    }
    assert!(expired(&s, &app).is_empty());
    s.alive_for(secs(1));
    assert_eq!(
        expired(&s, &app),
        ["hurry: needs 2 GiB on one node; best is n1 with 0 B free"]
    );
    assert_eq!(s.logged("RequestExpired"), 1);
    // free memory comes too late, and neither a repeated nor a larger request restarts it
    s.settle();
    let first = s.alive(&app)[0].clone();
    s.exit(&first, OK);
    let sentence = waits(send(&mut s, &app, hurry.clone()));
    assert!(sentence.contains("its deadline expired"), "{sentence}");
    hurry.count = 9;
    send(&mut s, &app, hurry);
    s.alive_for(secs(30));
    assert_eq!((s.alive(&app).len(), expired(&s, &app).len()), (1, 1));
    assert_eq!(s.cluster.app(&app).expect("app").pending(), 0);
    s.check();
}

#[test]
fn a_deadline_continues_across_a_restart() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(1, 8));
    let app = s.app("job");
    let mut hurry = ask("hurry", 1, size(2, 1));
    s.node("n2", size(4, 8));
    s.ask(&app, "fill", 1, size(3, 1)).expect("asks");
    s.settle();
    hurry.deadline = Some(secs(10));
    send(&mut s, &app, hurry.clone());
    s.alive_for(secs(7));
    s.restart().register("n1").register("n2").settle();
    s.master(&app).expect("registers");
    // the master has waited for eight seconds and may report it repeatedly
    hurry.waited = secs(8);
    s.ask(&app, "fill", 1, size(3, 1))
        .expect("repeats the request");
    assert!(waits(send(&mut s, &app, hurry.clone())).contains("2 GiB"));
    s.alive_for(secs(1));
    hurry.waited = secs(9);
    send(&mut s, &app, hurry.clone());
    assert!(expired(&s, &app).is_empty());
    s.alive_for(secs(1));
    assert_eq!(expired(&s, &app).len(), 1);
    s.check();
}

#[test]
fn a_granted_request_does_not_expire() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    let app = s.app("job");
    let mut quick = ask("quick", 2, size(1, 1));
    quick.deadline = Some(secs(5));
    assert_eq!(send(&mut s, &app, quick.clone()), RequestVerdict::Fits);
    s.alive_for(secs(20));
    // a larger count starts a new deadline
    quick.count = 5;
    assert!(waits(send(&mut s, &app, quick.clone())).contains("1 GiB"));
    s.alive_for(secs(4));
    assert!(expired(&s, &app).is_empty());
    s.alive_for(secs(2));
    assert_eq!(expired(&s, &app).len(), 1);
    assert_eq!(s.nodes[&id::<NodeId>("n1")].has.len(), 4);
    s.check();
}

#[test]
fn wait_reasons_are_recorded_with_their_count() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    let app = s.app("job");
    s.ask(&app, "fill", 1, size(3, 1)).expect("asks");
    s.ask_waits(&app, "big", 1, size(2, 1));
    let noted = |s: &ClusterScenario| {
        let app = s.cluster.app(&app).expect("the application exists");
        app.undecided
            .iter()
            .map(|u| (u.request.to_string(), u.sentence.to_string(), u.times))
            .collect::<Vec<_>>()
    };
    let first = (
        "big".to_owned(),
        "needs 2 GiB on one node; best is n1 with 1 GiB free".to_owned(),
        1,
    );
    assert_eq!(noted(&s), [first]);
    s.alive_for(secs(5));
    let later = noted(&s);
    assert_eq!(
        (later.len(), later[0].2),
        (1, 6),
        "once at the request, and then each second: {later:?}"
    );
    s.ask(&app, "fill-2", 1, size(1, 1)).expect("asks");
    s.alive_for(secs(1));
    let last = noted(&s).pop().expect("noted");
    assert_eq!(
        (last.1.as_str(), last.2),
        ("needs 2 GiB on one node; best is n1 with 0 B free", 1)
    );
    s.check();
}

/// A request that waits for its preferred node again must not take another one of its size along.
#[test]
fn a_request_behind_one_that_prefers_a_node_keeps_its_turn() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 8));
    let app = s.app("job");
    s.ask(&app, "fill", 1, size(4, 1)).expect("asks");
    s.node("n2", size(5, 8)).node("n3", size(5, 8));
    let mut picky = ask("picky", 3, size(5, 1));
    picky.place = PlacementRules {
        prefer_nodes: vec![id("n1")],
        relax: RelaxationPolicy::After { ms: 1000 },
        ..PlacementRules::default()
    }
    .into();
    s.sync(&app, 0, vec![picky]).expect("asks");
    // Two of them are placed elsewhere, the second one half a second ago.
    s.alive_for(Duration::from_millis(4500));
    s.settle();
    let first = s.alive(&app);
    assert_eq!(first.len(), 3);
    s.ask(&app, "before", 1, size(4, 1)).expect("asks");
    s.ask(&app, "behind", 1, size(5, 1)).expect("asks");
    let last = first.last().expect("a container").clone();
    s.exit(&last, OK);
    s.settle();
    let granted = |request: &str| {
        let all = s.cluster.containers().filter(|c| c.state.is_alive());
        all.filter(|c| c.request == Some(id(request))).count()
    };
    assert_eq!((granted("before"), granted("behind")), (1, 0));
    s.check();
}

/// The same for a request that another one keeps away.
#[test]
fn a_request_behind_one_that_is_kept_away_keeps_its_turn() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(9, 8));
    let app = s.app("job");
    s.ask(&app, "fill", 1, size(4, 1)).expect("asks");
    let mut alone = ask("alone", 1, size(5, 1));
    alone.place = PlacementRules {
        apart: Some(AntiAffinityRule {
            from: vec![id("away")],
            level: PlacementLevel::Node,
        }),
        ..PlacementRules::default()
    }
    .into();
    s.sync(&app, 0, vec![alone]).expect("asks");
    s.settle();
    let fill = s.alive(&app)[0].clone();
    s.ask(&app, "away", 1, size(4, 1)).expect("asks");
    s.ask(&app, "before", 1, size(3, 1)).expect("asks");
    s.ask(&app, "behind", 1, size(4, 1)).expect("asks");
    s.exit(&fill, OK);
    s.settle();
    let granted = |request: &str| {
        let all = s.cluster.containers().filter(|c| c.state.is_alive());
        all.filter(|c| c.request == Some(id(request))).count()
    };
    assert_eq!(
        (granted("away"), granted("before"), granted("behind")),
        (0, 1, 0)
    );
    s.check();
}
