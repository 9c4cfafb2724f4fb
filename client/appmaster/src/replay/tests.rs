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
    let tasks: Vec<Task> = (0..1000).map(|n| task("sort", 500 + n)).collect();
    let mut told: Vec<Done> = Vec::new();
    let data = [Dataset { name: "made".into(), tasks }];
    replay(&data, &Mode::ALL, false, Estate::default(), &mut |done| told.push(done));
    assert!(told.len() > 20 && told.iter().all(|done| done.of == 7000 && done.tasks <= done.of));
    assert!(told.windows(2).all(|two| two[0].tasks <= two[1].tasks), "it only goes on");
}

#[test]
fn what_no_host_can_hold_is_lost_and_not_avoidable() {
    let rows = rows(vec![task("giant", 200 * 1024)], &[Mode::Headroom], false);
    assert_eq!((row(&rows, Mode::Headroom).lost, row(&rows, Mode::Headroom).lost_avoidable), (1, 0));
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
