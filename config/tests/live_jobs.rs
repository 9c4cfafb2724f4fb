//! Live jobs: their keys, and the stages that clients declare while they run.

use std::time::Duration;

use headroom_config::job::{self, ClusterProfiles};
use headroom_config::{JobSpec, render};
use headroom_types::{Bytes, Cpus, Name, Profile};
use serde_json::json;

fn text(top: &str, stages: &str) -> String {
    format!(
        "version = 1\nname = \"j\"\n{top}\n[profiles.exec]\nmemory = \"1GiB\"\n[profiles.task]\nmemory = \"100MiB\"\n\
         [executors.main]\nprofile = \"exec\"\nslots = 4\n{stages}"
    )
}

fn compiled(top: &str, stages: &str) -> JobSpec {
    job::compile(&text(top, stages), "job.toml")
        .map_err(|problems| render(&problems))
        .expect("compiles")
}

fn refused(top: &str, stages: &str) -> String {
    let problems = job::compile(&text(top, stages), "job.toml").expect_err("has errors");
    assert_eq!(problems.len(), 1, "{}", render(&problems));
    render(&problems)
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[test]
fn only_a_live_job_may_have_no_stage_and_stages_without_an_array() {
    let job = compiled("live = true", "");
    assert_eq!((job.stages.len(), job.tasks()), (0, 0));
    assert_eq!(
        job.live.expect("live").lease,
        Duration::from_secs(60),
        "the default"
    );
    assert_eq!(job.executors[0].idle, Duration::from_secs(30));
    let stage = "[[stage]]\nname = \"map\"\ncommand = [\"prog\"]\n";
    assert_eq!(
        compiled("live = true\nlease = \"24h\"", stage).stages[0].count,
        0
    );
    assert_eq!(compiled("", stage).stages[0].count, 1);
    assert!(compiled("live = false", stage).live.is_none());
    assert!(refused("", "").contains("the job has no stage"));
}

#[test]
fn keys_that_a_live_stage_cannot_have_are_errors() {
    let live = |more: &str| {
        let stage = format!("[[stage]]\nname = \"map\"\ncommand = [\"prog\"]\n{more}\n");
        refused("live = true", &stage)
    };
    assert!(live("input = \"part-{index}\"").contains("input in a live stage"));
    assert!(live("output = \"/out\"").contains("output in a live stage"));
    assert!(refused("live = true\nlease = \"25h\"", "").contains("1s to 24h"));
    let stage = "[[stage]]\nname = \"map\"\ncommand = [\"prog\"]\n";
    assert!(refused("lease = \"5s\"", stage).contains("not live"));
    let after = format!(
        "{stage}[[stage]]\nname = \"reduce\"\ncount = 1\nafter = [\"map\"]\ncommand = [\"prog\"]\n"
    );
    assert!(refused("live = true", &after).contains("which is a live stage"));
}

#[test]
fn a_declared_stage_is_compiled_like_one_of_the_file() {
    let keys = r#"profile = "task"
command = ["prog", "{index}"]
env = { A = "{attempt}" }
timeout = "5m"
fork_server = ["python3", "-m", "headroom.fork_server"]
"#;
    let file = format!("[[stage]]\nname = \"map\"\n{keys}");
    let expected = compiled("live = true", &file).stages[0].clone();
    let json = json!({
        "profile": "task", "command": ["prog", "{index}"], "env": {"A": "{attempt}"}, "timeout": "5m",
        "fork_server": ["python3", "-m", "headroom.fork_server"],
    });
    let job = compiled("live = true", "");
    let declared = job.compile_stage(&name("map"), &json).expect("compiles");
    assert_eq!(declared, expected);
    assert_eq!(declared.profile.memory(), Bytes::from_mib(100));
    assert_eq!(declared.fork_server.expect("set").len(), 3);
}

#[test]
fn errors_of_a_declared_stage_are_those_of_a_job_file() {
    let job = compiled("live = true", "");
    for (keys, says) in [
        (
            json!({"command": ["prog"], "profil": "task"}),
            "did you mean `profile`?",
        ),
        (json!({"command": ["prog"], "profile": "tsk"}), "task"),
        (json!({"command": []}), "the command is empty"),
        (json!({}), "stage.map.command is missing"),
        (
            json!({"command": ["prog"], "count": 3}),
            "count in a declared stage",
        ),
        (
            json!({"command": ["prog"], "after": ["x"]}),
            "after in a live stage",
        ),
        (json!({"command": ["prog"], "name": "x"}), "without name"),
        (json!({"command": ["prog"], "timeout": null}), "null"),
        (json!(7), "JSON object"),
        (
            json!({"command": ["prog"], "fork_server": []}),
            "the list is empty",
        ),
        (
            json!({"command": ["prog"], "files": [{"name": "a", "from": "/a"}]}),
            "not a file of this job",
        ),
    ] {
        let problems = job.compile_stage(&name("map"), &keys).expect_err(says);
        let text = render(&problems);
        assert!(text.contains(says), "{keys}: {text}");
    }
    let other = compiled("", "[[stage]]\nname = \"a\"\ncommand = [\"prog\"]\n");
    let refused = other.compile_stage(&name("map"), &json!({"command": ["prog"]}));
    assert!(render(&refused.expect_err("not live")).contains("not live"));
}

#[test]
fn a_declared_stage_may_use_any_profile_of_the_cluster() {
    let profile = Profile {
        heap: Bytes::from_mib(70),
        overhead: Bytes::from_mib(7),
        cpus: Cpus::from_cores(1),
    };
    let cluster: ClusterProfiles = [(name("small"), profile.clone())].into();
    let inlined = job::profiles::inline_cluster_profiles(&text("live = true", ""), &cluster);
    let job = job::compile(&inlined, "job.toml").expect("compiles");
    let keys = json!({"command": ["prog"], "profile": "small"});
    let stage = job.compile_stage(&name("map"), &keys).expect("compiles");
    assert_eq!(stage.profile, profile);
    let plain = text("", "[[stage]]\nname = \"a\"\ncommand = [\"prog\"]\n");
    assert_eq!(
        job::profiles::inline_cluster_profiles(&plain, &cluster),
        plain
    );
}
