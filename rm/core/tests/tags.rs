//! Scenario tests of node tags that operators set.

use std::time::Duration;

use headroom_rm_core::placement::PlacementRules;
use headroom_rm_core::testkit::{ClusterScenario, ask, id, size};
use headroom_rm_core::{
    AfterDrain, CallAnswer, CallRefusal, CallResult, ClusterCall, CordonState, DryRun,
    NodeProperties, NodeTags, RequestVerdict, TagChange, TagChangeResult,
};
use headroom_types::{AppId, ContainerId, ExitReason, Name};

const OK: ExitReason = ExitReason::Exit { code: 0 };

fn tag(s: &mut ClusterScenario, node: &str, how: DryRun, change: TagChange) -> CallResult {
    s.call(ClusterCall::Tag {
        node: id(node),
        change: Box::new(change),
        how,
    })
}
fn really(s: &mut ClusterScenario, node: &str, change: TagChange) -> TagChangeResult {
    let Ok(CallAnswer::Tagged(tagged)) = tag(s, node, DryRun::Really, change) else {
        panic!("the tags are refused")
    };
    *tagged
}
fn cordon(s: &mut ClusterScenario, node: &str, reason: &str) {
    really(
        s,
        node,
        TagChange {
            cordon: Some(CordonState::On(reason.into())),
            ..TagChange::default()
        },
    );
}
fn uncordon(s: &mut ClusterScenario, node: &str) {
    really(
        s,
        node,
        TagChange {
            cordon: Some(CordonState::Off),
            ..TagChange::default()
        },
    );
}
fn taint(name: &str, value: Option<&str>) -> TagChange {
    TagChange {
        taints: [(id(name), value.map(str::to_owned))].into(),
        ..TagChange::default()
    }
}
fn standing(s: &ClusterScenario, node: &str) -> &'static str {
    s.cluster
        .node_table()
        .displayed_state(s.cluster.node(&id(node)).expect("the node exists"))
}
fn nodes_of(s: &ClusterScenario, app: &AppId) -> Vec<String> {
    s.alive(app)
        .iter()
        .filter_map(|c| s.cluster.container(c))
        .map(|c| c.node.to_string())
        .collect()
}
fn placed(s: &mut ClusterScenario, app: &AppId, request: &str, place: PlacementRules) {
    let mut ask = ask(request, 1, size(1, 1));
    ask.place = place.into();
    s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(ask),
        how: DryRun::Really,
    })
    .expect("asks");
}
fn labelled(label: &str) -> PlacementRules {
    PlacementRules {
        labels: [id(label)].into(),
        ..PlacementRules::default()
    }
}
fn tolerant(taint: &str, value: Option<&str>) -> PlacementRules {
    PlacementRules {
        tolerate: [(id(taint), value.map(str::to_owned))].into(),
        ..PlacementRules::default()
    }
}
/// Two nodes of 4 GiB; the application has two containers on n1 and none on n2.
fn two() -> (ClusterScenario, AppId, Vec<ContainerId>) {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    s.ask(&app, "work", 2, size(2, 1)).expect("asks");
    s.settle().node("n2", size(4, 4));
    let work = s.alive(&app);
    (s, app, work)
}

#[test]
fn a_cordoned_node_keeps_its_containers_and_gets_no_more() {
    let (mut s, app, work) = two();
    cordon(&mut s, "n1", "a disk is slow");
    assert_eq!(
        (standing(&s, "n1"), s.alive(&app)),
        ("cordoned", work.clone()),
        "no container is stopped"
    );
    s.exit(&work[0], OK);
    s.ask(&app, "work", 5, size(2, 1)).expect("asks");
    assert_eq!(nodes_of(&s, &app), ["n1", "n2", "n2"]);
    let why = s.cluster.why(&app, s.now).expect("the application exists");
    let rows: Vec<(&str, &str)> = why[0]
        .nodes
        .iter()
        .map(|n| (n.node.as_str(), n.verdict.as_str()))
        .collect();
    assert_eq!(
        rows[1],
        ("n1", "cordoned: a disk is slow"),
        "n1 has more free memory, and is not the closest node: {rows:?}"
    );
    assert_eq!(rows[0].0, "n2");
    uncordon(&mut s, "n1");
    assert_eq!((standing(&s, "n1"), nodes_of(&s, &app).len()), ("ready", 4));
    assert_eq!(
        (
            s.logged("NodeCordoned"),
            s.logged("NodeUncordoned"),
            s.logged("NodeTagged")
        ),
        (1, 1, 0)
    );
    s.check();
}

#[test]
fn a_drain_overrides_a_cordon_and_does_not_remove_the_cordon() {
    let (mut s, app, _) = two();
    cordon(&mut s, "n1", "slow");
    s.call(ClusterCall::Drain {
        node: id("n1"),
        within: None,
        reason: "new disks".into(),
        then: AfterDrain::Stay,
    })
    .expect("drains");
    assert_eq!(standing(&s, "n1"), "draining");
    s.ask(&app, "work", 5, size(2, 1)).expect("asks");
    let why = s.cluster.why(&app, s.now).expect("the application exists");
    assert_eq!(why[0].nodes[1].verdict, "draining: new disks");
    s.call(ClusterCall::Undrain { node: id("n1") })
        .expect("undrains");
    assert_eq!(
        standing(&s, "n1"),
        "cordoned",
        "the cordon is independent of the drain"
    );
    s.check();
}

#[test]
fn operator_tags_survive_restarts_and_registrations() {
    let (mut s, _, _) = two();
    let change = TagChange {
        cordon: Some(CordonState::On("slow".into())),
        labels: [id("gpu")].into(),
        attributes: [(id("zone"), Some("b".to_owned()))].into(),
        taints: [(id("etl"), Some("yes".to_owned()))].into(),
        ..TagChange::default()
    };
    let said = really(&mut s, "n1", change).after;
    s.restart();
    assert_eq!(
        s.cluster.node_table().tags(&id("n1")),
        Some(&said),
        "the tags exist before the node registers"
    );
    let own = NodeProperties {
        labels: [id("ssd")].into(),
        attributes: [(id("zone"), "a".to_owned())].into(),
        ..NodeProperties::default()
    };
    s.nodes.get_mut(&id("n1")).expect("the node exists").traits = own;
    s.register("n1");
    let node = s.cluster.node(&id("n1")).expect("the node is registered");
    let all = s.cluster.node_table().traits(node).into_owned();
    assert_eq!(all.labels, [id::<Name>("gpu"), id("ssd")].into());
    assert_eq!(
        (
            all.attributes[&id::<Name>("zone")].as_str(),
            all.taints.len(),
            standing(&s, "n1")
        ),
        ("b", 1, "cordoned")
    );
    let back = TagChange {
        cordon: Some(CordonState::Off),
        drop_labels: [id("gpu"), id("ssd")].into(),
        attributes: [(id("zone"), None)].into(),
        taints: [(id("etl"), None)].into(),
        ..TagChange::default()
    };
    let tagged = really(&mut s, "n1", back);
    assert_eq!(
        (tagged.after, tagged.standing),
        (NodeTags::default(), Some("ready"))
    );
    let beneath = tagged.traits.expect("the node has properties");
    assert_eq!(
        (
            beneath.labels,
            beneath.attributes[&id::<Name>("zone")].as_str()
        ),
        ([id("ssd")].into(), "a")
    );
    s.restart();
    assert_eq!(s.cluster.node_table().tags(&id("n1")), None);
    s.check();
}

#[test]
fn a_new_label_admits_requests_and_its_removal_stops_no_containers() {
    let (mut s, app, _) = two();
    let Err(CallRefusal::NeverFits { sentence, .. }) = s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new({
            let mut ask = ask("gpu", 1, size(1, 1));
            ask.place = labelled("gpu").into();
            ask
        }),
        how: DryRun::Really,
    }) else {
        panic!("a request for a missing label is accepted")
    };
    assert_eq!(sentence, "no node has label gpu");
    really(
        &mut s,
        "n2",
        TagChange {
            labels: [id("gpu")].into(),
            ..TagChange::default()
        },
    );
    placed(&mut s, &app, "gpu", labelled("gpu"));
    assert_eq!(nodes_of(&s, &app), ["n1", "n1", "n2"]);
    really(
        &mut s,
        "n2",
        TagChange {
            drop_labels: [id("gpu")].into(),
            ..TagChange::default()
        },
    );
    s.alive_for(Duration::from_secs(2));
    assert_eq!(nodes_of(&s, &app).len(), 3, "running containers stay");
    s.check();
}

#[test]
fn a_taint_excludes_requests_that_do_not_tolerate_the_taint() {
    let (mut s, app, _) = two();
    really(&mut s, "n2", taint("team", Some("etl")));
    s.ask(&app, "work", 3, size(2, 1)).expect("asks");
    let why = s.cluster.why(&app, s.now).expect("the application exists");
    let row = why[0]
        .nodes
        .iter()
        .find(|n| n.node.as_str() == "n2")
        .expect("n2 is listed");
    assert_eq!(
        row.verdict,
        "has taint team=etl, which it does not tolerate"
    );
    placed(&mut s, &app, "other", tolerant("team", Some("ml")));
    assert_eq!(
        nodes_of(&s, &app),
        ["n1", "n1"],
        "a toleration of another value does not match"
    );
    placed(&mut s, &app, "mine", tolerant("team", Some("etl")));
    placed(&mut s, &app, "any", tolerant("team", None));
    assert_eq!(nodes_of(&s, &app), ["n1", "n1", "n2", "n2"]);
    really(&mut s, "n2", taint("team", None));
    assert_eq!(
        nodes_of(&s, &app).len(),
        5,
        "half of n2 is free for one waiting container"
    );
    s.check();
}

#[test]
fn the_wait_sentence_of_a_tolerant_request_names_tainted_nodes() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(4, 4));
    let app = s.app("job");
    really(&mut s, "n1", taint("etl", Some("")));
    let mut large = ask("large", 1, size(4, 1));
    large.place = tolerant("etl", None).into();
    s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(large.clone()),
        how: DryRun::Really,
    })
    .expect("fits");
    (large.request, large.count) = (id("second"), 1);
    s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(large),
        how: DryRun::Really,
    })
    .expect("waits");
    let why = s.cluster.why(&app, s.now).expect("the application exists");
    assert_eq!(
        why[0].sentence,
        "needs 4 GiB, 1 cpu on a node without taints other than etl; best is n1 with 0 B, 3 cpus free"
    );
    let waits = s.ask_waits(&app, "plain", 1, size(1, 1));
    assert_eq!(
        waits,
        "the only node does not take this work now; n1: has taint etl, which it does not tolerate",
        "a taint does not make a request infeasible"
    );
    let mut labelled = ask("labelled", 1, size(1, 1));
    labelled.place = self::labelled("gpu").into();
    really(
        &mut s,
        "n1",
        TagChange {
            labels: [id("gpu")].into(),
            ..TagChange::default()
        },
    );
    let asked = s.call(ClusterCall::Ask {
        app: app.clone(),
        ask: Box::new(labelled),
        how: DryRun::Really,
    });
    let Ok(CallAnswer::Asked {
        verdict: RequestVerdict::Waits { sentence },
    }) = asked
    else {
        panic!("does not wait: {asked:?}")
    };
    assert_eq!(
        &*sentence,
        "no node with label gpu takes this request now; n1: has taint etl, which it does not tolerate"
    );
    s.check();
}

#[test]
fn the_closest_node_is_a_node_that_takes_work() {
    let mut s = ClusterScenario::new();
    s.node("n1", size(8, 4)).node("n2", size(4, 4));
    let app = s.app("job");
    for (node, label) in [("n1", "gpu"), ("n2", "ssd")] {
        really(
            &mut s,
            node,
            TagChange {
                labels: [id(label)].into(),
                ..TagChange::default()
            },
        );
    }
    let never = |s: &mut ClusterScenario| {
        let mut both = ask("both", 1, size(1, 1));
        both.place.labels = [id("gpu"), id("ssd")].into();
        let asked = s.call(ClusterCall::Ask {
            app: app.clone(),
            ask: Box::new(both),
            how: DryRun::Really,
        });
        let Err(CallRefusal::NeverFits { sentence, .. }) = asked else {
            panic!("not refused: {asked:?}")
        };
        sentence
    };
    let kind = "no node is with label gpu and with label ssd";
    assert_eq!(
        never(&mut s),
        format!("{kind}; closest is n1: does not have label ssd")
    );
    cordon(&mut s, "n1", "slow");
    assert_eq!(
        never(&mut s),
        format!("{kind}; closest is n2: does not have label gpu"),
        "a cordoned node is not the closest"
    );
    s.call(ClusterCall::Drain {
        node: id("n2"),
        within: None,
        reason: "new disks".into(),
        then: AfterDrain::Stay,
    })
    .expect("drains");
    assert_eq!(never(&mut s), format!("{kind}, and none takes work now"));
    s.check();
}

#[test]
fn a_dry_run_changes_no_tags_and_an_unknown_node_is_refused() {
    let (mut s, _, _) = two();
    let change = || TagChange {
        cordon: Some(CordonState::On("slow".into())),
        ..TagChange::default()
    };
    let Ok(CallAnswer::Tagged(would)) = tag(&mut s, "n1", DryRun::DryRun, change()) else {
        panic!("the dry run is refused")
    };
    assert_eq!(
        (would.standing, would.after.cordon.as_deref()),
        (Some("cordoned"), Some("slow"))
    );
    assert_eq!(
        (standing(&s, "n1"), s.cluster.node_table().tags(&id("n1"))),
        ("ready", None)
    );
    assert_eq!(
        tag(&mut s, "n9", DryRun::Really, change()),
        Err(CallRefusal::NoSuchNode(id("n9")))
    );
    let many = (0..65)
        .map(|n| (id(&format!("t{n}")), Some(String::new())))
        .collect();
    let refused = tag(
        &mut s,
        "n1",
        DryRun::Really,
        TagChange {
            taints: many,
            ..TagChange::default()
        },
    );
    assert_eq!(
        refused,
        Err(CallRefusal::TooManyTags {
            node: id("n1"),
            most: 64
        })
    );
    s.check();
}
