//! The executor program of a job's containers.

mod world;

use world::{MasterScenario, TaskBehaviour};

const JOB: &str = r#"
version = 1
name = "other"
[profiles.exec]
memory = "288MiB"
cpus = 4
[executors.main]
profile = "exec"
slots = 4
PROGRAM
[[stage]]
grow = false
name = "map"
count = 3
command = ["prog"]
[[stage]]
grow = false
name = "tools"
command = ["prog"]
files = [{ name = "executor.py", from = "/srv/executor.py" }]
"#;

/// Commands, whether tasks have cgroups, and the number of files: of the set's containers and of
/// the own container of one task.
fn launches(program: &str) -> Vec<(String, bool, usize)> {
    let world = MasterScenario::of(&JOB.replace("PROGRAM", program))
        .habit("map/1", TaskBehaviour::native(500, 1000))
        .run();
    assert_eq!(world.core.totals().done, 4);
    let own = world
        .launches
        .iter()
        .find(|(id, _)| id.as_str().starts_with("own-map-1-"))
        .expect("a container of its own")
        .1;
    let set = &world.launches[&"set-main".parse().expect("id")];
    [set, own]
        .map(|launch| {
            (
                launch.command.join(" "),
                launch.task_groups,
                launch.fetch.len(),
            )
        })
        .to_vec()
}

#[test]
fn containers_run_the_executor_of_the_node() {
    let usual = |files| ("executor".to_owned(), true, files);
    assert_eq!(launches(""), [usual(1), usual(0)]);
}

#[test]
fn own_containers_run_the_program_of_their_executor_set() {
    let python = |groups| ("python3 ./executor.py".to_owned(), groups, 1);
    let named = "program = [\"python3\", \"./executor.py\"]";
    assert_eq!(
        launches(named),
        [python(false), python(false)],
        "with the file of another stage"
    );
    assert_eq!(
        launches(&format!("{named}\ntask_groups = true")),
        [python(true), python(true)]
    );
}
