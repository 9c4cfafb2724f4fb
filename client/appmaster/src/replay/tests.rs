use super::*;
use trace::{Dataset, Task};

fn task(kind: &str, peak_mib: u64) -> Task {
    let peak = Bytes::from_mib(peak_mib);
    Task { kind: kind.into(), input: None, peak, runtime_s: 60.0, request: None, cpus: 1 }
}

fn rows(tasks: Vec<Task>, modes: &[Mode], growth: bool) -> Vec<Row> {
    replay(&[Dataset { name: "made".into(), tasks }], modes, growth, Estate::default(), &mut |_| {})
}

fn row(rows: &[Row], mode: Mode) -> &Row {
    rows.iter().find(|row| row.mode == mode && row.dataset == TOTAL).expect("a total")
}

#[test]
fn what_learns_wastes_less_than_a_share_for_all_and_loses_nobody() {
    let tasks = (0..2000).map(|n| task("sort", 900 + (n * 7919) % 200)).collect();
    let rows = rows(tasks, &Mode::ALL, false);
    let (ours, fixed) = (row(&rows, Mode::Headroom), row(&rows, Mode::Fixed));
    assert_eq!((ours.lost, fixed.lost, fixed.kills_per_1000), (0, 0, 0.0));
    assert!(ours.maq > 2.0 * fixed.maq, "{ours:?} {fixed:?}");
    // eight rounds, of which the first two are spent on learning
    assert!(ours.makespan_ratio < 1.6 && ours.kills_per_1000 < 35.0, "{ours:?}");
}

#[test]
fn heavy_tasks_are_lost_by_those_that_do_not_escalate() {
    let tasks = (0..400).map(|n| task("skew", if n % 20 == 0 { 9000 } else { 1000 })).collect();
    let rows = rows(tasks, &Mode::ALL, false);
    assert_eq!(row(&rows, Mode::Headroom).lost, 0);
    assert_eq!(row(&rows, Mode::Fixed).lost_avoidable, 20);
    assert!(row(&rows, Mode::Headroom).kills_per_1000 > 0.0);
}

#[test]
fn growth_in_place_ends_kills_where_there_is_room() {
    let tasks: Vec<Task> = (0..400).map(|n| task("skew", if n % 20 == 0 { 9000 } else { 1000 })).collect();
    let kills = |growth| row(&rows(tasks.clone(), &[Mode::Headroom], growth), Mode::Headroom).kills_per_1000;
    assert!(kills(true) < kills(false) / 10.0 + 0.001);
}

/// Gate 5: what is larger than any node has cost three attempts when that is known, whatever is known of its kind.
#[test]
fn a_partition_larger_than_any_node_costs_three_attempts() {
    for others in [0u32, 5, 500] {
        let mut tasks: Vec<Task> = (0..others).map(|_| task("part", 700)).collect();
        tasks.push(task("part", 300 * 1024));
        let ours = row(&rows(tasks, &[Mode::Headroom], false), Mode::Headroom).clone();
        let kills = ours.kills_per_1000 * f64::from(others + 1) / 1000.0;
        assert_eq!((ours.lost, ours.lost_avoidable), (1, 0), "{others}: {ours:?}");
        assert!(kills < 3.01, "{others}: {kills} attempts, {ours:?}");
    }
}

#[test]
fn how_far_it_is_is_told_and_never_beyond_the_end() {
    let tasks: Vec<Task> = (0..400).map(|n| task("sort", 500 + n)).collect();
    let mut told: Vec<Done> = Vec::new();
    let data = [Dataset { name: "made".into(), tasks }];
    replay(&data, &Mode::ALL, false, Estate::default(), &mut |done| told.push(done));
    assert!(told.len() > 7 && told.iter().all(|done| done.of == 2800 && done.tasks <= done.of));
    assert!(told.windows(2).all(|two| two[0].tasks <= two[1].tasks), "it only goes on");
}

#[test]
fn what_no_host_can_hold_is_lost_and_not_avoidable() {
    let rows = rows(vec![task("giant", 200 * 1024)], &[Mode::Headroom], false);
    assert_eq!((row(&rows, Mode::Headroom).lost, row(&rows, Mode::Headroom).lost_avoidable), (1, 0));
}

/// Gate 3, on a trace made for it: those who are beside a heavy task die with it, once, and are not charged for it.
#[test]
fn in_shared_executors_the_innocent_die_less_often_than_where_everybody_is_marked() {
    let tasks: Vec<Task> = (0..800).map(|n| task("skew", if n % 10 == 0 { 13_000 } else { 1500 })).collect();
    let rows = rows(tasks, &[Mode::Headroom, Mode::Uber], false);
    let (ours, uber) = (row(&rows, Mode::Headroom).shared, row(&rows, Mode::Uber).shared);
    assert_eq!((ours.lost, uber.lost), (0, 0));
    assert!(ours.innocent_kills < uber.innocent_kills, "{ours:?} {uber:?}");
    assert_eq!(ours.innocent_charged, 0, "{ours:?}");
    let gates = &row(&rows, Mode::Headroom).gates;
    let said = |name: &str| gates.iter().find(|gate| gate.name == name).expect("said");
    assert!(said("G3").met, "{}", said("G3").says);
    assert!(row(&rows, Mode::Uber).gates.is_empty(), "they are about the house's own mode");
}

#[test]
fn who_fits_a_slot_is_left_alone_in_shared_executors() {
    let tasks = (0..400).map(|_| task("small", 2000)).collect();
    let rows = rows(tasks, &Mode::ALL, false);
    for mode in Mode::ALL {
        let shared = row(&rows, mode).shared;
        assert_eq!((shared.kills, shared.deaths, shared.lost), (0, 0, 0), "{mode:?}: {shared:?}");
    }
}

/// Gate 4: a kind that needs much beside its heap makes the one knob turn the heap.
#[test]
fn two_quantities_take_less_than_one_knob() {
    let tasks: Vec<Task> = (0..400).map(|n| task(&format!("kind-{}", n % 10), 1000 + n % 300)).collect();
    let rows = rows(tasks, &[Mode::Headroom], false);
    let parts = row(&rows, Mode::Headroom).parts.expect("measured");
    assert!(parts.apart_gib_h * 2.0 < parts.one_knob_gib_h, "{parts:?}");
    assert_eq!(parts.apart_lost_avoidable, 0);
    let gates = &row(&rows, Mode::Headroom).gates;
    assert!(gates.iter().any(|gate| gate.name == "G4" && gate.met));
    assert!(!gates.iter().any(|gate| gate.name == "G3"), "there is nobody to compare with");
}

#[test]
fn a_folder_that_is_no_trace_is_refused_with_the_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let message = |dir: &std::path::Path| trace::read(dir).expect_err("refused").to_string();
    assert!(message(dir.path()).contains("no .csv file"));
    let head = "dataset,task_type,seq,input_bytes,peak_mem_bytes,runtime_s,user_mem_bytes,cpus\n";
    std::fs::write(dir.path().join("a.csv"), format!("{head}d,k,0,0,5,-1,0,1\n")).expect("writes");
    assert!(message(dir.path()).contains("line 2: runtime_s is negative"), "{}", message(dir.path()));
    std::fs::write(dir.path().join("a.csv"), format!("{head}d,k,0,0,many,1,0,1\n")).expect("writes");
    assert!(message(dir.path()).contains("a.csv"));
}
