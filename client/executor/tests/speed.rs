//! Latency between the end of a task and its report. The bounds are far above the latency of an
//! idle machine: they detect a wait for a timer.

mod world;

use std::time::{Duration, Instant};

use headroom_types::ExitReason;
use world::{ExecutorHarness, task};

/// Time from the start of a task to its first sample, less the time of a timer's tick.
const FIRST_SAMPLE: Duration = Duration::from_millis(45);
/// Maximum number of results until a fast one.
const ATTEMPTS: u32 = 400;

#[test]
fn a_result_does_not_wait_for_a_timer() {
    let world = ExecutorHarness::new("speed");
    let (mut master, _) = world.accept();
    let mut run = |index: u32| {
        let id = format!("quick/{index}@1");
        let sent = Instant::now();
        master.start(task(&id, &["true"]));
        let report = master.result(&id);
        assert_eq!(report.reason, ExitReason::Exit { code: 0 });
        sent.elapsed()
    };
    // One fast result shows it: the others may have waited for a processor, but none that waits for
    // the first sample is faster than that.
    let fast = (0..ATTEMPTS)
        .map(&mut run)
        .find(|took| *took < FIRST_SAMPLE);
    println!("start to result: {fast:?}");
    assert!(
        fast.is_some(),
        "each of {ATTEMPTS} results waited for the first sample"
    );
}

#[test]
fn many_short_tasks_leave_no_cgroup() {
    let world = ExecutorHarness::new("many");
    let (mut master, _) = world.accept();
    let began = Instant::now();
    let (mut sent, mut done) = (0u32, 0u32);
    const ALL: u32 = 200;
    while done < ALL {
        while sent < ALL && sent < done + 4 {
            master.start(task(&format!("many/{sent}@1"), &["true"]));
            sent += 1;
        }
        let report = master.result(&format!("many/{done}@1"));
        assert_eq!(report.reason, ExitReason::Exit { code: 0 }, "{report:?}");
        done += 1;
    }
    println!("{ALL} tasks in {:?}", began.elapsed());
    world::until("no cgroup is left", || world.groups().is_empty());
}
