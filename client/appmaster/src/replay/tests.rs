use super::*;
use trace::{RecordedDataset, RecordedTask};

fn task(kind: &str, peak_mib: u64) -> RecordedTask {
    let peak = Bytes::from_mib(peak_mib);
    RecordedTask {
        kind: kind.into(),
        input: None,
        peak,
        runtime_s: 60.0,
        request: None,
        cpus: 1,
    }
}

fn rows(
    tasks: Vec<RecordedTask>,
    modes: &[MemoryFailureMode],
    growth: bool,
) -> Vec<ReplayResultRow> {
    on(tasks, modes, growth, ClusterShape::default())
}

fn on(
    tasks: Vec<RecordedTask>,
    modes: &[MemoryFailureMode],
    growth: bool,
    cluster: ClusterShape,
) -> Vec<ReplayResultRow> {
    replay(
        &[RecordedDataset {
            name: "made".into(),
            tasks,
        }],
        &scenario(modes, growth, cluster),
        &mut |_| {},
    )
}

fn scenario(modes: &[MemoryFailureMode], growth: bool, cluster: ClusterShape) -> ReplayScenario {
    let growth = if growth {
        GrowthChoice::On
    } else {
        GrowthChoice::Off
    };
    ReplayScenario {
        modes: modes.to_vec(),
        growth,
        cluster,
        stated: StatedNodes::Nodes,
        utilizations: Vec::new(),
    }
}

fn row(rows: &[ReplayResultRow], mode: MemoryFailureMode) -> &ReplayResultRow {
    rows.iter()
        .find(|row| row.mode == mode && row.dataset == TOTAL)
        .expect("a total")
}

#[test]
fn learning_wastes_less_than_fixed_shares_and_loses_no_task() {
    let tasks = (0..2000)
        .map(|n| task("sort", 900 + (n * 7919) % 200))
        .collect();
    let rows = rows(tasks, &MemoryFailureMode::ALL, false);
    let (ours, fixed) = (
        row(&rows, MemoryFailureMode::Headroom),
        row(&rows, MemoryFailureMode::Fixed),
    );
    assert_eq!((ours.lost, fixed.lost, fixed.kills_per_1000), (0, 0, 0.0));
    assert!(ours.maq > 2.0 * fixed.maq, "{ours:?} {fixed:?}");
    // eight rounds, of which the first two serve to learn
    assert!(
        ours.makespan_ratio < 1.6 && ours.kills_per_1000 < 35.0,
        "{ours:?}"
    );
}

#[test]
fn heavy_tasks_are_lost_by_those_that_do_not_escalate() {
    let tasks = (0..400)
        .map(|n| task("skew", if n % 20 == 0 { 9000 } else { 1000 }))
        .collect();
    let rows = rows(tasks, &MemoryFailureMode::ALL, false);
    assert_eq!(row(&rows, MemoryFailureMode::Headroom).lost, 0);
    assert_eq!(row(&rows, MemoryFailureMode::Fixed).lost_avoidable, 20);
    assert!(row(&rows, MemoryFailureMode::Headroom).kills_per_1000 > 0.0);
}

#[test]
fn growth_in_place_prevents_kills_on_nodes_with_free_memory() {
    let tasks: Vec<RecordedTask> = (0..400)
        .map(|n| task("skew", if n % 20 == 0 { 9000 } else { 1000 }))
        .collect();
    let kills = |growth| {
        row(
            &rows(tasks.clone(), &[MemoryFailureMode::Headroom], growth),
            MemoryFailureMode::Headroom,
        )
        .kills_per_1000
    };
    assert!(kills(true) < kills(false) / 10.0 + 0.001);
}

/// Gate 5: a task larger than any node costs three attempts, independent of the
/// knowledge about its kind.
#[test]
fn a_partition_larger_than_any_node_costs_three_attempts() {
    for others in [0u32, 5, 500] {
        let mut tasks: Vec<RecordedTask> = (0..others).map(|_| task("part", 700)).collect();
        tasks.push(task("part", 300 * 1024));
        let ours = row(
            &rows(tasks, &[MemoryFailureMode::Headroom], false),
            MemoryFailureMode::Headroom,
        )
        .clone();
        let kills = ours.kills_per_1000 * f64::from(others + 1) / 1000.0;
        assert_eq!(
            (ours.lost, ours.lost_avoidable),
            (1, 0),
            "{others}: {ours:?}"
        );
        assert!(kills < 3.01, "{others}: {kills} attempts, {ours:?}");
    }
}

#[test]
fn progress_rises_and_never_exceeds_the_total() {
    let tasks: Vec<RecordedTask> = (0..400).map(|n| task("sort", 500 + n)).collect();
    let mut reports: Vec<ReplayProgress> = Vec::new();
    let data = [RecordedDataset {
        name: "made".into(),
        tasks,
    }];
    replay(
        &data,
        &scenario(&MemoryFailureMode::ALL, false, ClusterShape::default()),
        &mut |done| reports.push(done),
    );
    assert!(
        reports.len() > 7
            && reports
                .iter()
                .all(|done| done.of == 2800 && done.tasks <= done.of)
    );
    assert!(
        reports.windows(2).all(|two| two[0].tasks <= two[1].tasks),
        "progress never falls"
    );
}

#[test]
fn a_task_larger_than_any_host_is_an_unavoidable_loss() {
    let rows = rows(
        vec![task("giant", 200 * 1024)],
        &[MemoryFailureMode::Headroom],
        false,
    );
    assert_eq!(
        (
            row(&rows, MemoryFailureMode::Headroom).lost,
            row(&rows, MemoryFailureMode::Headroom).lost_avoidable
        ),
        (1, 0)
    );
}

/// Gate 3, on a trace made for it: tasks in the executor of a heavy task die with it, once, and are
/// not charged.
#[test]
fn headroom_has_fewer_collateral_kills_than_uber_in_shared_executors() {
    let tasks: Vec<RecordedTask> = (0..800)
        .map(|n| task("skew", if n % 10 == 0 { 13_000 } else { 1500 }))
        .collect();
    let rows = rows(
        tasks,
        &[MemoryFailureMode::Headroom, MemoryFailureMode::Uber],
        false,
    );
    let (ours, uber) = (
        row(&rows, MemoryFailureMode::Headroom).shared,
        row(&rows, MemoryFailureMode::Uber).shared,
    );
    assert_eq!((ours.lost, uber.lost), (0, 0));
    assert!(
        ours.collateral_kills < uber.collateral_kills,
        "{ours:?} {uber:?}"
    );
    assert_eq!(ours.collateral_charged, 0, "{ours:?}");
    let gates = &row(&rows, MemoryFailureMode::Headroom).gates;
    let said = |name: &str| gates.iter().find(|gate| gate.name == name).expect("said");
    assert!(said("G3").met, "{}", said("G3").says);
    assert!(
        row(&rows, MemoryFailureMode::Uber).gates.is_empty(),
        "gates are for mode headroom only"
    );
}

#[test]
fn tasks_that_fit_a_slot_are_not_killed_in_shared_executors() {
    let tasks = (0..400).map(|_| task("small", 2000)).collect();
    let rows = rows(tasks, &MemoryFailureMode::ALL, false);
    for mode in MemoryFailureMode::ALL {
        let shared = row(&rows, mode).shared;
        assert_eq!(
            (shared.kills, shared.deaths, shared.lost),
            (0, 0, 0),
            "{mode:?}: {shared:?}"
        );
    }
}

/// Gate 4: a kind with much memory outside its heap makes the one knob raise the heap.
#[test]
fn two_learned_quantities_allocate_less_than_one() {
    let tasks: Vec<RecordedTask> = (0..400)
        .map(|n| task(&format!("kind-{}", n % 10), 1000 + n % 300))
        .collect();
    let rows = rows(tasks, &[MemoryFailureMode::Headroom], false);
    let parts = row(&rows, MemoryFailureMode::Headroom)
        .parts
        .expect("measured");
    assert!(parts.apart_gib_h * 2.0 < parts.one_knob_gib_h, "{parts:?}");
    assert_eq!(parts.apart_lost_avoidable, 0);
    let gates = &row(&rows, MemoryFailureMode::Headroom).gates;
    assert!(gates.iter().any(|gate| gate.name == "G4" && gate.met));
    assert!(
        !gates.iter().any(|gate| gate.name == "G3"),
        "no other mode to compare with"
    );
}

#[test]
fn a_folder_without_a_trace_is_refused_with_file_and_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let message = |dir: &std::path::Path| trace::read(dir).expect_err("refused").to_string();
    assert!(message(dir.path()).contains("no .csv file"));
    let head = "dataset,task_type,seq,input_bytes,peak_mem_bytes,runtime_s,user_mem_bytes,cpus\n";
    std::fs::write(
        dir.path().join("a.csv"),
        format!("{head}d,k,0,0,5,-1,0,1\n"),
    )
    .expect("writes");
    assert!(
        message(dir.path()).contains("line 2: runtime_s is negative"),
        "{}",
        message(dir.path())
    );
    std::fs::write(
        dir.path().join("a.csv"),
        format!("{head}d,k,0,0,many,1,0,1\n"),
    )
    .expect("writes");
    assert!(message(dir.path()).contains("a.csv"));
}

/// Tasks of 2 GiB, some of which grow to 6 GiB, on nodes that hold four and a half of them.
fn crowded() -> (Vec<RecordedTask>, ClusterShape) {
    let tasks = (0..400)
        .map(|n| task("skew", if n % 8 == 0 { 6000 } else { 1950 + n % 50 }))
        .collect();
    (
        tasks,
        ClusterShape {
            nodes: 4,
            cpus: 16,
            memory: Bytes::from_gib(9),
        },
    )
}

#[test]
fn on_full_nodes_attempts_are_evicted_instead_of_killed() {
    let (tasks, cluster) = crowded();
    let of = |growth| {
        row(
            &on(
                tasks.clone(),
                &[MemoryFailureMode::Headroom],
                growth,
                cluster,
            ),
            MemoryFailureMode::Headroom,
        )
        .clone()
    };
    let (with, without) = (of(true), of(false));
    assert_eq!((with.lost, without.lost), (0, 0));
    assert!(with.kills < without.kills, "{with:?} {without:?}");
    assert!(
        with.frozen > 0 && with.frozen_s > 0.0 && with.evictions > 0,
        "{with:?}"
    );
    assert_eq!((without.frozen, without.evictions), (0, 0), "{without:?}");
    assert!(
        with.waits > 0 && with.wait_s > 0.0 && with.wait_p99_s > 0.0,
        "{with:?}"
    );
    assert!(with.utilization > 0.3 && with.utilization < 1.0, "{with:?}");
}

/// Both need more memory at the same time and neither would end: one is evicted at once.
#[test]
fn a_node_with_only_frozen_tasks_makes_progress() {
    let tasks: Vec<RecordedTask> = (0..200)
        .map(|n| task("twins", if n < 100 { 1000 } else { 3500 }))
        .collect();
    for gib in [4, 5, 6, 8] {
        let cluster = ClusterShape {
            nodes: 1,
            cpus: 8,
            memory: Bytes::from_gib(gib),
        };
        let ours = row(
            &on(tasks.clone(), &[MemoryFailureMode::Headroom], true, cluster),
            MemoryFailureMode::Headroom,
        )
        .clone();
        assert_eq!(ours.lost, 0, "{gib} GiB: {ours:?}");
        assert!(ours.evictions <= 200, "no task is evicted twice: {ours:?}");
    }
}

#[test]
fn a_paced_trace_reaches_about_the_requested_utilization() {
    let tasks: Vec<RecordedTask> = (0..600)
        .map(|n| task("sort", 900 + (n * 7919) % 200))
        .collect();
    let data = [RecordedDataset {
        name: "made".into(),
        tasks,
    }];
    let cluster = ClusterShape {
        memory: Bytes::from_gib(8),
        ..ClusterShape::default()
    };
    let of_mode = scenario(&[MemoryFailureMode::Headroom], true, cluster);
    let asked = ReplayScenario {
        growth: GrowthChoice::Both,
        stated: StatedNodes::Memory,
        utilizations: vec![0.5, 0.8],
        ..of_mode
    };
    let rows = replay(&data, &asked, &mut |_| {});
    let totals: Vec<&ReplayResultRow> = rows.iter().filter(|row| row.dataset == TOTAL).collect();
    let order: Vec<(Option<f64>, bool)> = totals
        .iter()
        .map(|row| (row.target_utilization, row.growth))
        .collect();
    assert_eq!(
        order,
        [
            (Some(0.5), true),
            (Some(0.5), false),
            (Some(0.8), true),
            (Some(0.8), false)
        ]
    );
    for row in totals {
        let missed = row.target_utilization.unwrap_or_default() - row.utilization;
        assert!(missed > 0.0 && missed < 0.15, "{row:?}");
        assert!(
            row.gates.is_empty(),
            "gates need a constant number of nodes"
        );
    }
}

/// Tasks die with their executor if only that has a limit. With their own limits they are frozen
/// and grow.
#[test]
fn in_tight_executors_growth_kills_fewer() {
    let tasks: Vec<RecordedTask> = (0..400)
        .map(|n| task("skew", if n % 20 == 0 { 6000 } else { 1400 + n % 100 }))
        .collect();
    let of = |growth, cluster| {
        row(
            &on(
                tasks.clone(),
                &[MemoryFailureMode::Headroom],
                growth,
                cluster,
            ),
            MemoryFailureMode::Headroom,
        )
        .tight
    };
    let (with, without) = (
        of(true, ClusterShape::default()),
        of(false, ClusterShape::default()),
    );
    assert_eq!((with.lost, without.lost), (0, 0));
    assert!(with.kills * 10 < without.kills, "{with:?} {without:?}");
    assert_eq!((with.collateral_kills, with.deaths), (0, 0), "{with:?}");
    assert!(with.grown > 0 && without.grown == 0, "{with:?} {without:?}");
}

/// If executors fill the nodes, no memory is left to enlarge them.
#[test]
fn full_nodes_limit_the_growth_of_executors() {
    let tasks: Vec<RecordedTask> = (0..400)
        .map(|n| task("skew", if n % 20 == 0 { 6000 } else { 1400 + n % 100 }))
        .collect();
    for gib in [8, 12, 13, 16] {
        let cluster = ClusterShape {
            nodes: 2,
            cpus: 64,
            memory: Bytes::from_gib(gib),
        };
        let with = row(
            &on(tasks.clone(), &[MemoryFailureMode::Headroom], true, cluster),
            MemoryFailureMode::Headroom,
        )
        .tight;
        assert_eq!(
            (with.lost, with.collateral_kills),
            (0, 0),
            "{gib} GiB: {with:?}"
        );
        assert!(
            with.frozen == 0 || with.frozen_s > 0.0,
            "{gib} GiB: {with:?}"
        );
    }
}
