//! Locations of inputs and read bytes: placement, the memory of remote inputs, and reported gaps.

#[macro_use]
mod world;

use headroom_types::{Bytes, Dimension};
use headroom_wire::v1::application_master::RelaxationPolicy;
use headroom_wire::v1::job::{DataLocality, InputGap};
use world::{InjectedFault, MasterScenario, SimulatedCluster, TaskBehaviour};

/// Two JVM tasks at once in one executor, with inputs of 96 MiB that are on one node.
const JVM: &str = concat!(
    job_head!("near", "352MiB", 2, 2, 2),
    r#"[profiles.task]
heap = "96MiB"
overhead = "32MiB"
[[stage]]
grow = false
name = "map"
count = 4
profile = "task"
runtime = "jvm"
input = ["96MiB", "96MiB", "96MiB", "96MiB"]
command = ["prog"]
"#
);

fn jvm(more: &str) -> MasterScenario {
    MasterScenario::of(&JVM.replace("count = 4", &format!("count = 4\n{more}")))
        .usual(TaskBehaviour::jvm(64, 16))
}

fn overheads(world: &SimulatedCluster, id: &str) -> Vec<u64> {
    world
        .row(id)
        .attempts
        .iter()
        .map(|a| a.profile.overhead.whole_mib())
        .collect()
}

fn localities(world: &SimulatedCluster, id: &str) -> Vec<Option<DataLocality>> {
    world
        .row(id)
        .attempts
        .iter()
        .map(|a| a.input.as_ref().and_then(|input| input.locality))
        .collect()
}

#[test]
fn containers_are_requested_on_the_nodes_of_the_input() {
    // The first node has more memory, the second one has the input.
    let world = jvm("input_hosts = [\"n1\"]").nodes(&[4096, 2048]).run();
    let placement = &world.placements[&"set-main".parse().expect("id")];
    let names: Vec<&str> = placement.prefer_nodes.iter().map(|n| n.as_str()).collect();
    assert_eq!(
        (names, placement.relax),
        (vec!["n1"], RelaxationPolicy::After { ms: 3000 })
    );
    for n in 0..4 {
        assert_eq!(
            localities(&world, &format!("map/{n}")),
            [Some(DataLocality::Local)]
        );
    }
    let inputs = &world.core.totals().inputs[0];
    assert_eq!((inputs.attempts, inputs.remote, inputs.kills), (4, 0, 0));
    let nowhere = jvm("").nodes(&[4096, 2048]).run();
    assert!(
        nowhere.placements[&"set-main".parse().expect("id")]
            .prefer_nodes
            .is_empty()
    );
    assert_eq!(localities(&nowhere, "map/0"), [None]);
}

#[test]
fn an_own_container_is_requested_on_the_node_of_its_input() {
    let hosts = "input_hosts = [[\"n0\"], [\"n1\"], [\"n0\"], [\"n1\"]]";
    let world = jvm(hosts)
        .nodes(&[4096, 4096])
        .habit("map/1", TaskBehaviour::jvm(64, 400))
        .run();
    let own: Vec<&str> = world
        .placements
        .iter()
        .filter(|(id, _)| id.as_str().starts_with("own-map-1"))
        .flat_map(|(_, placement)| placement.prefer_nodes.iter().map(|n| n.as_str()))
        .collect();
    assert!(
        !own.is_empty() && own.iter().all(|node| *node == "n1"),
        "{own:?}"
    );
    assert_eq!(
        localities(&world, "map/1").last(),
        Some(&Some(DataLocality::Local))
    );
}

#[test]
fn only_the_retry_of_a_remote_attempt_includes_its_input() {
    let heavy = |hosts: &str| {
        jvm(hosts)
            .nodes(&[4096])
            .habit("map/2", TaskBehaviour::jvm(64, 40))
            .run()
    };
    let (local, remote) = (
        heavy("input_hosts = [\"n0\"]"),
        heavy("input_hosts = [\"n7\"]"),
    );
    assert_eq!(
        overheads(&local, "map/2"),
        [32, 80],
        "twice the observed use, without its input"
    );
    assert_eq!(
        overheads(&remote, "map/2"),
        [32, 128],
        "its size plus its input of 96 MiB"
    );
    let killed = &remote.row("map/2").attempts[0];
    assert_eq!(killed.dimension, Some(Dimension::Overhead));
    assert!(
        killed
            .decision
            .contains("96 MiB that comes over the network"),
        "{}",
        killed.decision
    );
    let inputs = &remote.core.totals().inputs[0];
    assert_eq!(
        (
            inputs.attempts,
            inputs.remote,
            inputs.kills,
            inputs.remote_kills
        ),
        (5, 5, 1, 1)
    );
}

#[test]
fn a_full_heap_gets_heap_wherever_the_input_is() {
    let world = jvm("input_hosts = [\"n7\"]")
        .nodes(&[4096])
        .habit("map/2", TaskBehaviour::jvm(150, 16))
        .run();
    assert_eq!(overheads(&world, "map/2"), [32, 32]);
}

#[test]
fn an_always_remote_input_is_added_once_to_the_first_size() {
    let world = jvm("input_locality = \"remote\"")
        .nodes(&[4096])
        .habit("map/2", TaskBehaviour::jvm(64, 140))
        .run();
    assert_eq!(overheads(&world, "map/0"), [128]);
    assert_eq!(
        overheads(&world, "map/2"),
        [128, 280],
        "twice the observed use: the input is not added again"
    );
    assert!(
        world.row("map/0").attempts[0]
            .why
            .contains("its input of 96 MiB"),
        "{}",
        world.row("map/0").attempts[0].why
    );
    let native = JVM.replace("runtime = \"jvm\"", "input_locality = \"remote\"");
    let native = MasterScenario::of(&native).nodes(&[4096]).run();
    assert_eq!(
        overheads(&native, "map/0"),
        [32],
        "a native program keeps its stated size"
    );
}

#[test]
fn an_input_larger_than_every_node_is_capped() {
    let world = jvm("input_locality = \"remote\"").nodes(&[230]).run();
    assert_eq!(
        world.core.totals().failed,
        4,
        "no executor of 352 MiB fits there"
    );
    let large = JVM
        .replace("\"96MiB\"]", "\"9GiB\"]")
        .replace("count = 4", "count = 4\ninput_locality = \"remote\"");
    let world = MasterScenario::of(&large)
        .nodes(&[2048])
        .usual(TaskBehaviour::jvm(64, 16))
        .run();
    assert_eq!(
        (world.core.totals().done, world.core.totals().failed),
        (4, 0)
    );
    assert_eq!(world.sizes("map/3"), [2048 - 32]);
}

/// Tasks with planned inputs of 100 MiB.
const SPLIT: &str = concat!(
    job_head!("split", "288MiB", 4, 2, 4),
    r#"[[stage]]
grow = false
name = "map"
array = "0-7"
input = "part-{index}"
command = ["prog"]
"#
);

fn split() -> MasterScenario {
    (0..8).fold(
        MasterScenario::of(SPLIT).usual(TaskBehaviour::native(10, 500)),
        |s, n| s.file(&format!("part-{n}"), 100),
    )
}

fn reads(mib: u64) -> TaskBehaviour {
    let tells: fn(&mut headroom_types::TaskReport) = match mib {
        800 => |report| report.read = Some(Bytes::from_mib(800)),
        _ => |report| report.read = Some(Bytes::from_mib(103)),
    };
    TaskBehaviour::native(10, 500).telling(tells)
}

#[test]
fn read_and_planned_bytes_are_kept_and_a_gap_adds_one_event() {
    let world = split()
        .usual(reads(103))
        .habit("map/3", reads(800))
        .habit("map/5", reads(800))
        .run();
    let input = |id: &str| world.row(id).attempts[0].input.clone().expect("an input");
    assert_eq!(
        (input("map/0").planned, input("map/0").read),
        (Some(Bytes::from_mib(100)), Some(Bytes::from_mib(103)))
    );
    assert_eq!(
        (input("map/0").gap, input("map/3").gap),
        (None, Some(InputGap::More))
    );
    let messages = world.words("InputGap");
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("to read 100 MiB and read 800 MiB"),
        "{messages:?}"
    );
    assert_eq!(
        (
            world.core.totals().inputs[0].more,
            world.core.totals().inputs[0].less
        ),
        (2, 0)
    );
}

#[test]
fn an_executor_that_does_not_measure_reads_keeps_the_plan() {
    let world = split().run();
    let input = world.row("map/0").attempts[0]
        .input
        .clone()
        .expect("an input");
    assert_eq!(
        (input.planned, input.read, input.gap),
        (Some(Bytes::from_mib(100)), None, None)
    );
}

#[test]
fn a_master_that_dies_counts_the_same_inputs() {
    let scenario = || {
        jvm("input_hosts = [\"n1\"]")
            .nodes(&[900, 400])
            .habit("map/2", TaskBehaviour::jvm(64, 60))
    };
    let whole = scenario().run();
    assert!(whole.core.totals().inputs[0].attempts > 4);
    for n in 1..=whole.records.len() {
        let again = scenario().fault(InjectedFault::MasterDiesAfter(n)).run();
        assert_eq!(again.result(), whole.result(), "died after record {n}");
        assert_eq!(
            again.core.totals().inputs[0].kills,
            whole.core.totals().inputs[0].kills,
            "died after record {n}"
        );
    }
}

/// The split was ignored: all tasks read eight times the planned bytes, and need as much as they
/// read.
#[test]
fn the_learner_uses_the_read_bytes() {
    let text = SPLIT
        .replace("name = \"split\"", "name = \"split\"\nsizes = \"learned\"")
        .replace("0-7", "0-39");
    let job = (0..40).fold(
        MasterScenario::of(&text).nodes(&[8192]).mirrored(),
        |s, n| {
            let (planned, read) = (
                if n % 2 == 0 { 20 } else { 40 },
                if n % 2 == 0 { 160 } else { 320 },
            );
            let tells: fn(&mut headroom_types::TaskReport) = match read {
                160 => |report| report.read = Some(Bytes::from_mib(160)),
                _ => |report| report.read = Some(Bytes::from_mib(320)),
            };
            s.file(&format!("part-{n}"), planned).habit(
                &format!("map/{n}"),
                TaskBehaviour::native(read / 8, 500).telling(tells),
            )
        },
    );
    let world = job.run();
    assert_eq!(world.core.totals().done, 40);
    assert_eq!(world.core.totals().inputs[0].more, 40);
}
