//! Rows of succeeded tasks become counts beyond the first 10,000 tasks.

#[macro_use]
mod world;

use headroom_wire::v1::job::JobViewPatch;
use world::{MasterScenario, SimulatedCluster, TaskBehaviour, task};

const JOB: &str = concat!(
    job_head!("many", "544MiB", 8, 4, 8),
    r#"[[stage]]
name = "map"
array = "5-10064"
command = ["prog", "{index}"]
grow = false
"#
);

/// A job in which one task beyond the first 10,000 is killed and gets more memory.
fn many() -> SimulatedCluster {
    MasterScenario::of(JOB)
        .nodes(&[8 * 1024])
        .usual(TaskBehaviour::native(10, 1_000))
        .habit("map/10030", TaskBehaviour::native(100, 1_000))
        .quick()
        .run()
}

#[test]
fn only_escalated_tasks_keep_their_rows() {
    let world = many();
    assert_eq!(
        (world.core.totals().done, world.core.totals().memory_kills),
        (10_060, 1)
    );
    assert_eq!(world.folded.len(), 59);
    assert_eq!(
        world.folded.first(),
        Some(&task("map/10005")),
        "the 10,001st"
    );
    assert!(
        !world.folded.contains(&task("map/10030")),
        "the task was killed once"
    );
    let rows = |id: &str| {
        let key = world
            .core
            .tasks()
            .find(world.core.job(), &task(id))
            .expect("a task");
        world.core.tasks().get(key).expect("a task").attempts.len()
    };
    assert_eq!(
        (rows("map/10030"), rows("map/10031"), rows("map/5")),
        (2, 0, 1),
        "attempts in memory"
    );
}

#[test]
fn an_unsent_patch_restores_the_rows() {
    let world = many();
    let mut core = world.successor();
    let mut patches: Vec<JobViewPatch> = Vec::new();
    while core.has_unreported_changes() {
        patches.push(core.take_patch());
    }
    let (sent, folded): (usize, usize) = patches
        .iter()
        .fold((0, 0), |(s, f), p| (s + p.tasks.len(), f + p.folded.len()));
    assert_eq!(
        (sent, folded),
        (10_060, 59),
        "each row is reported once, and a restart counts the same rows"
    );
    let last = patches.pop().expect("a patch");
    assert!(!last.folded.is_empty(), "{:?}", last.totals);
    core.restore_patch(last.clone());
    assert_eq!(core.take_patch(), last);
    assert_eq!(last.totals.folded_tasks(), 59);
}
