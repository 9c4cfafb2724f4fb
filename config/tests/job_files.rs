//! Job files as people write them: a whole one, and one with many mistakes whose messages are kept as golden text.

use std::time::Duration;

use headroom_config::job::{self, Idempotent, Runtime, TaskLimit};
use headroom_config::{Placeholder, Problem, render};
use headroom_types::{Bytes, Cpus, Profile, Resource};
use headroom_wire::v1::job::Mode;

const WHOLE: &str = include_str!("golden/whole.toml");

#[test]
fn a_whole_file_is_read_to_the_last_key() {
    let job = job::compile(WHOLE, "whole.toml").map_err(|p| render(&p)).expect("right");
    assert_eq!((job.name.as_str(), job.priority, job.mode, job.tasks()), ("group-by", 5, Mode::Uber, 21));
    assert_eq!((job.retry.max_attempts, job.retry.memory_attempts, job.retry.transient), (5, 7, 2));
    assert_eq!(job.retry.cap, Some(Bytes::from_gib(4)));
    assert_eq!(job.executors[0].share(), Bytes::from_mib(64));
    let group = &job.stages[0];
    assert_eq!(group.profile, Profile { heap: Bytes::from_mib(128), overhead: Bytes::ZERO, cpus: Cpus::from_cores(2) });
    assert_eq!(
        (group.timeout, group.idempotent, group.enforce),
        (Some(Duration::from_secs(1800)), Idempotent::No, TaskLimit::Executor)
    );
    let words: Vec<String> = group.command.iter().map(|w| w.fill(|p| format!("<{}>", p.as_str()))).collect();
    assert_eq!(words, ["prog", "--part=<index>", "{}"]);
    assert_eq!(group.env["OPTS"].fill(|p| if p == Placeholder::Heap { "64m".into() } else { String::new() }), "-Xmx64m");
    let reduce = &job.stages[1];
    assert_eq!((reduce.runtime, reduce.heap_exit_codes.as_slice(), reduce.count), (Runtime::Jvm, [3].as_slice(), 1));
    assert_eq!(reduce.profile.memory(), Bytes::from_mib(96));
}

#[test]
fn ten_mistakes_are_told_in_one_go() {
    let problems = job::compile(include_str!("golden/ten-mistakes.toml"), "ten-mistakes.toml").expect_err("mistakes");
    assert!(problems.len() >= 10);
    assert!(problems.iter().all(|p| p.line.is_some() && !p.key.is_empty() && !p.why.is_empty() && !p.fix.is_empty()));
    insta::assert_snapshot!(render(&problems));
}

/// The keys of the mistakes in the whole file after one edit.
fn mistakes(from: &str, to: &str) -> Vec<Problem> {
    assert!(WHOLE.contains(from), "{from}");
    job::compile(&WHOLE.replace(from, to), "f").expect_err(to)
}

#[test]
fn each_kind_of_mistake_is_found_and_names_its_key() {
    let cases = [
        ("version = 1", "version = 2", "version"),
        ("version = 1\n", "", "version"),
        ("name = \"group-by\"\n", "", "name"),
        ("priority = 5", "priority = 1.5", "priority"),
        ("queue = \"default\"", "queue = \"a b\"", "queue"),
        ("heap = \"256MiB\"", "memory = \"256MiB\"", "profiles.exec.memory"),
        ("heap = \"256MiB\"", "heap = 0", "profiles.exec.heap"),
        ("factor = 0.10", "factor = -1", "profiles.jvm-task.overhead"),
        ("cpus = 4", "cpus = \"many\"", "profiles.exec.cpus"),
        ("reserve = \"32MiB\"", "reserve = \"1GiB\"", "executors.main.reserve"),
        ("array = \"0-19\"", "array = \"0-19\"\ncount = 20", "stage.group.count"),
        ("array = \"0-19\"", "count = 0", "stage.group.count"),
        ("array = \"0-19\"", "array = \"0-999999\"", "stage.group.array"),
        ("executors = \"main\"", "executors = \"mian\"", "stage.group.executors"),
        ("cpus_per_task = 2", "cpus_per_task = 5", "stage.group.cpus_per_task"),
        ("timeout = \"30m\"", "timeout = \"30\"", "stage.group.timeout"),
        ("idempotent = \"no\"", "idempotent = false", "stage.group.idempotent"),
        ("OPTS", "HEADROOM_TASK", "stage.group.env"),
        ("profile = \"jvm-task\"\n", "", "stage.reduce.profile"),
        ("after = [\"group\"]", "after = [\"reduce\"]", "stage.after"),
        ("name = \"reduce\"", "name = \"group\"", "stage.name"),
        ("command = [\"java\"]", "command = []", "stage.reduce.command"),
        ("cap = \"4GiB\"", "cap = \"4 lots\"", "retry.cap"),
        ("max_attempts = 5", "max_atempts = 5", "retry.max_atempts"),
    ];
    for (from, to, key) in cases {
        let problems = mistakes(from, to);
        assert!(problems.iter().any(|p| p.key == key), "{to}: {}", render(&problems));
    }
}

#[test]
fn one_mistake_is_told_once() {
    for (from, to) in
        [("heap = \"256MiB\"", "heap = true"), ("profile = \"exec\"", "profile = \"exek\""), ("slots = 4", "slots = 1")]
    {
        let problems = mistakes(from, to);
        assert_eq!(problems.len(), 1, "{}", render(&problems));
    }
}

#[test]
fn nothing_but_a_broken_line_is_still_a_message_with_its_place() {
    let problems = job::compile("version = 1\nname = \n[executors.main\n", "f").expect_err("broken");
    assert!(problems.iter().any(|p| p.line == Some(2) && p.what.starts_with("not TOML")), "{}", render(&problems));
    assert!(problems.iter().any(|p| p.line == Some(3)), "{}", render(&problems));
    assert!(!job::compile("", "f").expect_err("empty").is_empty());
}

#[test]
fn tasks_that_can_never_run_are_named_with_the_largest_container() {
    let job = job::compile(WHOLE, "f").expect("right");
    let enough = Resource::new(Bytes::from_mib(288), Cpus::from_cores(4));
    assert!(job::never_fits(&job, &enough).is_empty());
    let little = Resource::new(Bytes::from_mib(200), Cpus::from_cores(4));
    let never = job::never_fits(&job, &little);
    assert_eq!(never.len(), 2);
    assert!(never[0].sentence.contains("288 MiB") && never[0].sentence.contains("200 MiB"), "{}", never[0].sentence);
}
